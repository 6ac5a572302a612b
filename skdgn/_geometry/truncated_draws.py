"""The normal distribution truncated to an interval: integrals, means, quantiles, all digits.

Everything is written for the density exp(slope v - v^2 / 2) on an interval: a normal with center
``slope``.  What is far from the center is measured from the interval's nearest end, where nothing
large cancels.
"""

from __future__ import annotations

import math

from skdgn._geometry import truncated_normal
from skdgn._geometry.intervals import gaussian_integrals
from skdgn._runtime import kernel


@kernel
def log_integral(slope: float, lower: float, upper: float) -> float:
    """Log of the integral of exp(slope v - v^2 / 2) from lower to upper; -inf if there is none."""
    if not lower < upper:
        return -math.inf
    nearest, zeroth, _, _ = gaussian_integrals(lower - slope, upper - slope)
    if zeroth <= 0.0:
        return -math.inf
    anchor = slope
    if nearest > 0.0:
        anchor = lower
    elif nearest < 0.0:
        anchor = upper
    return anchor * (slope - 0.5 * anchor) + math.log(zeroth)


@kernel
def quantile(slope: float, lower: float, upper: float, uniform: float) -> float:
    """Quantile of the density exp(slope v - v^2 / 2) on an interval."""
    nearest = min(max(slope, lower), upper)
    v = nearest + truncated_normal.quantile(lower - slope, upper - slope, uniform)
    return min(max(v, lower), upper)


@kernel
def truncated_mean(lower: float, upper: float) -> float:
    """Mean of the standard normal truncated to an interval; NaN if there is none."""
    nearest, zeroth, first, _ = gaussian_integrals(lower, upper)
    return nearest + first / zeroth
