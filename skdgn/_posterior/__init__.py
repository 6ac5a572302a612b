"""The posterior of samples: which regions matter for them, and everything read from these."""

from skdgn._posterior.comparisons import check_gaussians
from skdgn._posterior.explored import Explorer
from skdgn._posterior.features import (
    MOST_INTERVALS,
    FeatureDistributions,
    Known,
    conditional_means,
    draw_known,
    feature_modes,
    highest_density_sets,
    keep_inside,
    log_probabilities,
    shapley_values,
    smallest_coverages,
    surprises,
)
from skdgn._posterior.listed import NEGLIGIBLE, RegionMaps, Visitor, Visits
from skdgn._posterior.model import INTEGRATION_TOL, MOST_REGIONS, Model, NetworkModel
from skdgn._posterior.posterior import Posterior
from skdgn._posterior.transformed import (
    NAMED_FUNCTIONS,
    ColumnMap,
    ColumnMaps,
    Line,
    NamedFunction,
    NormalScores,
    StraightTails,
    TransformedModel,
    YeoJohnson,
)
from skdgn._posterior.unlisted_model import UnlistedModel, build_model
from skdgn._posterior.weighted_sums import Density, WeightedSum

__all__ = [
    "INTEGRATION_TOL",
    "MOST_INTERVALS",
    "MOST_REGIONS",
    "NAMED_FUNCTIONS",
    "NEGLIGIBLE",
    "ColumnMap",
    "ColumnMaps",
    "Density",
    "Explorer",
    "FeatureDistributions",
    "Known",
    "Line",
    "Model",
    "NamedFunction",
    "NetworkModel",
    "NormalScores",
    "Posterior",
    "RegionMaps",
    "StraightTails",
    "TransformedModel",
    "UnlistedModel",
    "Visitor",
    "Visits",
    "WeightedSum",
    "YeoJohnson",
    "build_model",
    "check_gaussians",
    "conditional_means",
    "draw_known",
    "feature_modes",
    "highest_density_sets",
    "keep_inside",
    "log_probabilities",
    "shapley_values",
    "smallest_coverages",
    "surprises",
]
