"""Gaussian noise around the generator, and the least of it that samples warrant."""

from skdgn._noise.floors import at_floor, bound_below, warranted_variances
from skdgn._noise.gaussian import COVARIANCE_TYPES, Noise

__all__ = [
    "COVARIANCE_TYPES",
    "Noise",
    "at_floor",
    "bound_below",
    "warranted_variances",
]
