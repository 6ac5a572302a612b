"""The posterior of samples: which regions matter for them, and everything read from these."""

from skdgn._posterior.feature_distributions import FeatureDistributions, quantiles
from skdgn._posterior.gaussians import check_gaussians
from skdgn._posterior.incomplete_conditionals import RegionMaps
from skdgn._posterior.model import MOST_REGIONS, Model
from skdgn._posterior.patterns import NoiseUnits, find_holes, make_holes, whiten_observed
from skdgn._posterior.posterior import Posterior
from skdgn._posterior.search import ObservedRegions
from skdgn._posterior.visits import NEGLIGIBLE, Visitor, Visits
from skdgn._posterior.weighted_sums import Density, WeightedSum

__all__ = [
    "MOST_REGIONS",
    "NEGLIGIBLE",
    "Density",
    "FeatureDistributions",
    "Model",
    "NoiseUnits",
    "ObservedRegions",
    "Posterior",
    "RegionMaps",
    "Visitor",
    "Visits",
    "WeightedSum",
    "check_gaussians",
    "find_holes",
    "make_holes",
    "quantiles",
    "whiten_observed",
]
