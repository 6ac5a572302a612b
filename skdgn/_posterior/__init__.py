"""The posterior of samples: which regions matter for them, and everything read from these."""

from skdgn._posterior.attribution import shapley_values, surprises
from skdgn._posterior.boxes import keep_inside
from skdgn._posterior.column_maps import (
    NAMED_FUNCTIONS,
    ColumnMap,
    ColumnMaps,
    Line,
    NamedFunction,
    NormalScores,
    StraightTails,
    YeoJohnson,
)
from skdgn._posterior.explorer import Explorer
from skdgn._posterior.feature_distributions import FeatureDistributions
from skdgn._posterior.gaussians import check_gaussians
from skdgn._posterior.incomplete_conditionals import RegionMaps
from skdgn._posterior.likeliest_values import (
    MOST_INTERVALS,
    feature_modes,
    highest_density_sets,
    smallest_coverages,
)
from skdgn._posterior.line_boxes import Known, conditional_means, draw_known, log_probabilities
from skdgn._posterior.model import INTEGRATION_TOL, MOST_REGIONS, Model, NetworkModel
from skdgn._posterior.posterior import Posterior
from skdgn._posterior.transformed_model import TransformedModel
from skdgn._posterior.unlisted_model import UnlistedModel, build_model
from skdgn._posterior.visits import NEGLIGIBLE, Visitor, Visits
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
