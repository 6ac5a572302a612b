"""Methods that all densities share: densities, conditionals, ranges, contributions."""

from skdgn._estimators.methods.conditioning import is_frame, write_frame
from skdgn._estimators.methods.density import (
    ANY_DENSITY,
    ExactDensity,
    SumOfDensities,
    check_density,
)
from skdgn._estimators.methods.inference import InformationCriteria, LatentInference

__all__ = [
    "ANY_DENSITY",
    "ExactDensity",
    "InformationCriteria",
    "LatentInference",
    "SumOfDensities",
    "check_density",
    "is_frame",
    "write_frame",
]
