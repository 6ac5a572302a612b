"""The least noise that the values of a feature warrant.

Where values are tied (counts, levels, rounded measurements, a column that is mostly zero), a
network can pass through them exactly, and the likelihood has no bound: the noise shrinks to
nothing, and a sample a little off what was seen before has no density worth the name.  So the
variance of a feature with n values, m of them distinct, m < n, is never below

    max(min(g^2, v) / 12,  t min(h^2 / 12, v / n)),    t = 1 - (m - 1) / (n - 1).

``g`` is the smallest gap between distinct values: ``g^2 / 12`` is the variance of what rounding to
a grid that wide leaves out.  ``v`` is the variance of the values, which a gap between few levels
may exceed.  The second term is for values that are tied without lying on a grid, as where many are
zero and the others are not rounded.  ``h`` is the mean gap between neighboring distinct values, and
``v / n`` what a single sample as far off as the values are from their mean adds to an estimate from
n of them; it bounds the price of surprises: about one new sample in n is one, and costs about n / 2
nats.  ``t`` is the share of ties: without any, there is no floor of this kind.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf

from skdgn._runtime import Bools, Floats

# Within so much of its floor, relatively, a variance is at it: the rest is rounding.
_AT_FLOOR = 1e-6
# Eigenvalues smaller than this share of the largest cannot be told from rounding errors of it.
_SINGULAR = 1e-13


def warranted_variances(samples: Floats, n_samples: int) -> Floats:
    """Smallest variances (D,) that ties warrant, by distinct samples (m, D) of n_samples."""
    return np.array([_warranted_variance(column, n_samples / len(samples)) for column in samples.T])


def _warranted_variance(column: Floats, repetitions: float) -> float:
    observed = column[~np.isnan(column)]
    values = np.unique(observed)
    if not 1 < len(values) < len(observed):
        return 0.0
    variance = float(observed.var())
    rounding = min(float(np.diff(values).min()) ** 2, variance) / 12.0
    ties = 1.0 - (len(values) - 1) / (len(observed) - 1)
    gap = float(values[-1] - values[0]) / (len(values) - 1)
    return max(rounding, ties * min(gap**2 / 12.0, variance / (repetitions * len(observed))))


def raise_matrix(covariance: Floats, floors: Floats) -> Floats:
    """Return the likeliest covariance (D, D) not below the floors (D,), given that of samples, S.

    That is, ``N - F`` is positive semidefinite, F the diagonal matrix of the floors.  In units of
    the floors, where F is the identity, the maximum of ``-log det N - tr(N^-1 S)`` has the
    eigenvectors of S, and its eigenvalues where these exceed 1.
    """
    # Most often nothing is below: then the difference has a Cholesky factor, rounding aside.
    lowest = floors + _SINGULAR * np.trace(covariance)
    if dpotrf(covariance - np.diag(lowest), lower=1)[1] == 0:
        return covariance
    units = np.sqrt(np.outer(floors, floors))
    values, vectors = np.linalg.eigh(covariance / units)
    values = np.maximum(values, max(1.0, _SINGULAR * values[-1]))
    return np.asarray(units * ((vectors * values) @ vectors.T))


def is_at(variances: Floats, floors: Floats | float) -> Bools:
    """Tell which variances are at their floors, but for rounding."""
    return np.asarray(variances <= (1.0 + _AT_FLOOR) * floors)
