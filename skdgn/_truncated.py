"""The normal distribution truncated to an interval: integrals and quantiles with all their digits.

Everything is written for the density exp(slope v - v^2 / 2) on an interval: a normal with centre
``slope``.  What is far from the centre is measured from the interval's nearest end, where nothing
large cancels.
"""

from __future__ import annotations

import math

from skdgn._cells.intervals import gaussian_integrals
from skdgn._jit import SQRT_HALF, erfcx, kernel, ndtri

_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)
# From here on, quantiles come from the tail's own expansion, not from a difference of
# probabilities.
_TAIL = 4.0
# On intervals this narrow (in terms of the exponent) the density is as good as a quadratic.
_HAIR = 1e-6
# Newton's steps from Rayleigh's quantile: each squares an error that is below 0.05 at first.
_NEWTON_STEPS = 3


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
    start, stop = lower - slope, upper - slope
    if start > _TAIL or (start > 0.0 and stop - start < _HAIR):
        return min(lower + _tail_quantile(start, stop, uniform), upper)
    if stop < -_TAIL or (stop < 0.0 and stop - start < _HAIR):
        return max(upper - _tail_quantile(-stop, -start, 1.0 - uniform), lower)
    # Where probabilities are small they have all their digits.
    sign = 1.0 if start + stop > 0.0 else -1.0
    at_start = math.erfc(sign * start * SQRT_HALF)
    at_stop = math.erfc(sign * stop * SQRT_HALF)
    deviation = -sign * ndtri(0.5 * (at_start + uniform * (at_stop - at_start)))
    return min(max(slope + deviation, lower), upper)


@kernel
def _tail_quantile(start: float, stop: float, uniform: float) -> float:
    """Quantile of exp(-start v - v^2/2) on [0, stop - start], start > 0, far out or narrow."""
    width = stop - start
    exponent = width * (start + 0.5 * width)
    if exponent < _HAIR:
        # The cumulative distribution is a quadratic, to rounding; so is its inverse.
        return width * uniform * (1.0 - 0.5 * (1.0 - uniform) * exponent)
    at_start = erfcx(start * SQRT_HALF)
    at_stop = math.exp(-exponent) * erfcx(stop * SQRT_HALF)
    # Newton's method on the log of the survival function, from that of Rayleigh's distribution.
    target = -math.log1p(-uniform * (1.0 - at_stop / at_start))
    v = 2.0 * target / (start + math.sqrt(start * start + 2.0 * target))
    for _ in range(_NEWTON_STEPS):
        here = erfcx((start + v) * SQRT_HALF)
        excess = target - v * (start + 0.5 * v) + math.log(here / at_start)
        v += _SQRT_HALF_PI * here * excess
    return min(max(v, 0.0), width)
