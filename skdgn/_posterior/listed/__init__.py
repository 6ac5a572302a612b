"""Listed regions: which of them matter for a sample, and the Gaussian integrals over these."""

from skdgn._posterior.listed.conditionals import Conditionals, condition
from skdgn._posterior.listed.frames import Frame, choose_frame, count_coordinates
from skdgn._posterior.listed.incomplete_conditionals import RegionMaps
from skdgn._posterior.listed.listed_regions import Gaussians, ListedRegions
from skdgn._posterior.listed.observed import (
    Observed,
    group_by_observed,
    observed_parts,
    restrict_features,
    restrict_noise,
)
from skdgn._posterior.listed.sparse_posteriors import Visits, concatenate, take_samples, unexplored
from skdgn._posterior.listed.visits import NEGLIGIBLE, Visitor

__all__ = [
    "NEGLIGIBLE",
    "Conditionals",
    "Frame",
    "Gaussians",
    "ListedRegions",
    "Observed",
    "RegionMaps",
    "Visitor",
    "Visits",
    "choose_frame",
    "concatenate",
    "condition",
    "count_coordinates",
    "group_by_observed",
    "observed_parts",
    "restrict_features",
    "restrict_noise",
    "take_samples",
    "unexplored",
]
