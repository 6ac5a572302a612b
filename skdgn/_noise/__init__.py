"""Gaussian noise around the generator, and the least of it that samples warrant."""

from skdgn._noise.covariances import Covariance, Dense, OfSamples, Sum
from skdgn._noise.factor import Factor
from skdgn._noise.floors import warranted_variances
from skdgn._noise.full import Full
from skdgn._noise.gaussian import KINDS, Noise
from skdgn._noise.independent import Diagonal, Independent, Spherical
from skdgn._noise.missing import (
    NoiseUnits,
    Observation,
    fill_missing,
    make_observation,
    missing_covariance,
    observe,
    predict_missing,
    whiten_by_factors,
)

KINDS.update({kind.covariance_type: kind for kind in (Spherical, Diagonal, Full, Factor)})
COVARIANCE_TYPES = tuple(KINDS)

__all__ = [
    "COVARIANCE_TYPES",
    "KINDS",
    "Covariance",
    "Dense",
    "Independent",
    "Noise",
    "NoiseUnits",
    "Observation",
    "OfSamples",
    "Sum",
    "fill_missing",
    "make_observation",
    "missing_covariance",
    "observe",
    "predict_missing",
    "warranted_variances",
    "whiten_by_factors",
]
