"""Standard normal probabilities of intersections of at most S halfspaces (signed cones).

The halfspaces are ``normals @ y >= offsets`` with unit normals that are linearly independent, so
their intersection is an affine image of an orthant.  One method a dimension: closed form, Owen's
T, one quadrature over Owen's T, quasi-Monte Carlo.  Accuracy is *absolute*: a probability of 1e-30
comes out as 0, give or take the error stated with it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, special, stats

Floats = NDArray[np.float64]

# The probability beyond so many deviations is below 1e-18: nothing, next to rounding errors.
FAR = 8.8

# The probability beyond so many deviations is not a floating-point number: as good as infinity.
_NOWHERE = 40.0

# Error of the closed forms: a few roundings of numbers of order 1.
ROUNDING = 4 * float(np.finfo(np.float64).eps)

# What is asked of the adaptive quadrature of `_trivariate`, and how often it may halve.
_QUADRATURE_TOLERANCE = 1e-14
_MOST_INTERVALS = 200

# What SciPy's quasi-Monte Carlo integration is content with (three standard errors), by default.
# Each digit more would cost ten times the points: seconds a cell instead of tenths.
_MONTE_CARLO_TOLERANCE = 1e-5

# In place of a zero to divide by, where the limit is what is wanted.
_TINY = 1e-200


class Probability(NamedTuple):
    """A probability and an estimate of its absolute error."""

    value: float
    error: float


def orthant_probability(normals: Floats, offsets: Floats) -> Probability:
    """Integrate the standard normal density over an intersection of halfspaces.

    Parameters
    ----------
    normals : ndarray of shape (k, S)
        Inward unit normals, linearly independent (hence k <= S).  Nearly dependent ones, even
        parallel ones for k <= 3, are no problem; normals of halfspaces whose offset is -inf are
        not looked at.
    offsets : ndarray of shape (k,)
        The halfspaces are ``normals @ y >= offsets``.

    Returns
    -------
    probability : Probability
    """
    if np.any(offsets > FAR):
        return Probability(0.0, ROUNDING)
    cutting = offsets > -FAR
    normals, offsets = normals[cutting], offsets[cutting]
    match len(offsets):
        case 0:
            return Probability(1.0, ROUNDING)
        case 1:
            return Probability(float(special.ndtr(-offsets[0])), ROUNDING)
        case 2:
            factor = _triangular_factor(normals)
            (_, _), (cosine, sine) = factor.tolist()
            h, k = offsets.tolist()
            return Probability(_bivariate(h, k, cosine, sine), ROUNDING)
        case 3:
            return _trivariate(normals, offsets)
        case _:
            return _multivariate(normals, offsets)


def _triangular_factor(normals: Floats) -> Floats:
    """Turn the coordinates such that row i of the normals has i + 1 entries, the last >= 0."""
    factor = np.linalg.qr(normals.T).R.T
    return np.asarray(factor * np.where(np.diag(factor) < 0, -1.0, 1.0), dtype=np.float64)


def _bivariate(h: float, k: float, cosine: float, sine: float) -> float:
    """Return P(y1 >= h, cosine y1 + sine y2 >= k) by Owen's T.

    Owen (1956), eq. 2.1, for -y.  His arguments ``(k/h - cosine) / sine`` and ``(h/k - cosine) /
    sine`` are ratios of positions: those of the corner along the two lines, over the lines'
    distances.  Taking the second position from the first, rather than from h and k, keeps them
    positions of the *same* corner.  The angle may then be as small as it likes: the error of
    the corner's place is large, that of the probability is not.
    """
    sine = max(sine, _TINY)
    h, k = (min(max(x, -_NOWHERE), _NOWHERE) or -_TINY for x in (h, k))
    along_first = (k - cosine * h) / sine
    along_second = sine * h - cosine * along_first
    owen = special.owens_t(h, along_first / h) + special.owens_t(k, along_second / k)
    opposite = 0.0 if (h > 0) == (k > 0) else 0.5
    return float(0.5 * (special.ndtr(-h) + special.ndtr(-k)) - owen - opposite)


def _trivariate(normals: Floats, offsets: Floats) -> Probability:
    """Integrate over slices parallel to one of the three planes, each a bivariate probability."""
    # Slice along the normal most nearly orthogonal to the others: parallel to a plane that is
    # nearly parallel to another one, slices would change abruptly.
    cosines = np.abs(normals @ normals.T) - np.eye(3)
    first = int(np.argmin(cosines.max(axis=1)))
    order = [first, *(i for i in range(3) if i != first)]
    h1, h2, h3 = offsets[order].tolist()
    factor = _triangular_factor(normals[order])
    (_, _, _), (r21, r22, _), (r31, r32, r33) = factor.tolist()
    r22 = max(r22, _TINY)
    length = max(math.hypot(r32, r33), _TINY)
    cosine, sine = r32 / length, r33 / length

    def slice_at(x: float) -> float:
        density = math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return density * _bivariate((h2 - r21 * x) / r22, (h3 - r31 * x) / length, cosine, sine)

    # Where the slice may change abruptly: one of its lines passes through the axis of the slices,
    # or both are equally far from it (nearly parallel lines trade places there).  All happens
    # within FAR widths of the place; the quadrature must be told or it will miss narrow ones.
    changes = (  # value - slope x, width
        (h2, r21, r22),
        (h3, r31, length),
        (h2 / r22 - h3 / length, r21 / r22 - r31 / length, sine),
        (h2 / r22 + h3 / length, r21 / r22 + r31 / length, sine),
    )
    places = [
        (value + widths * width) / slope
        for value, slope, width in changes
        if slope != 0
        for widths in (-FAR, 0, FAR)
    ]
    # With full_output, trouble is told in the error estimate instead of by a warning.
    value, error, *_ = integrate.quad(
        slice_at,
        h1,
        FAR,
        points=[x for x in places if h1 < x < FAR] or None,
        epsabs=_QUADRATURE_TOLERANCE,
        epsrel=0.0,
        limit=_MOST_INTERVALS,
        full_output=1,
    )
    return Probability(value, max(error, ROUNDING))


def _multivariate(normals: Floats, offsets: Floats) -> Probability:
    """Leave four and more halfspaces to SciPy (Genz's quasi-Monte Carlo method)."""
    distribution = stats.multivariate_normal(
        cov=normals @ normals.T,
        allow_singular=True,
        seed=0,  # the same answer every time
    )
    return Probability(float(distribution.cdf(-offsets)), _MONTE_CARLO_TOLERANCE)
