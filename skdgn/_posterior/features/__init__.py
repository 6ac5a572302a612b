"""Distributions of features given others: functions, quantiles, modes, ranges, contributions."""

from skdgn._posterior.features.attribution import shapley_values, surprises
from skdgn._posterior.features.boxes import box_log_probabilities, keep_inside
from skdgn._posterior.features.feature_distributions import (
    NEGLIGIBLE_SHARE,
    FeatureDistributions,
    distributions_given,
    mix,
)
from skdgn._posterior.features.likeliest_values import (
    MOST_INTERVALS,
    feature_modes,
    highest_density_sets,
    smallest_coverages,
)
from skdgn._posterior.features.line_boxes import (
    Known,
    LineRegions,
    conditional_means,
    draw_known,
    log_probabilities,
)

__all__ = [
    "MOST_INTERVALS",
    "NEGLIGIBLE_SHARE",
    "FeatureDistributions",
    "Known",
    "LineRegions",
    "box_log_probabilities",
    "conditional_means",
    "distributions_given",
    "draw_known",
    "feature_modes",
    "highest_density_sets",
    "keep_inside",
    "log_probabilities",
    "mix",
    "shapley_values",
    "smallest_coverages",
    "surprises",
]
