"""The normal distribution truncated to an interval: integrals, moments and quantiles.

Unlike those of `intervals`, which are exact in every tail, these are made to be fast where one
value in thousands is drawn or summed up.
"""

from __future__ import annotations

import math

from skdgn._geometry.intervals import gaussian_integrals
from skdgn._runtime import SQRT_HALF, erfcx, kernel, ndtri

_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)

# Beyond this distance the asymptotic form of the normal tail is good enough for an approximation.
_FAR_CUT = 50.0

# Closed forms for the truncated normal lose digits farther out than this, and on narrow intervals:
# those for the moments, those for the quantiles.
_TAIL = 5.0
_NARROW = 0.3
_HAIR = 1e-6


@kernel
def truncate_below(cut: float) -> tuple[float, float]:
    """Mean beyond the cut and variance of the standard normal truncated to [cut, inf)."""
    if cut > _FAR_CUT:
        return 1.0 / cut, 1.0 / (cut * cut)
    hazard = 1.0 / (_SQRT_HALF_PI * erfcx(cut * SQRT_HALF))
    return hazard - cut, 1.0 - hazard * (hazard - cut)


@kernel
def quantile(lower: float, upper: float, uniform: float) -> float:
    """Quantile of the standard normal truncated to an interval, from its point nearest to zero."""
    if lower > _TAIL or (lower > 0.0 and upper - lower < _HAIR):
        return _tail_quantile(lower, upper, uniform)
    if upper < -_TAIL or (upper < 0.0 and upper - lower < _HAIR):
        return -_tail_quantile(-upper, -lower, 1.0 - uniform)
    # In the tail where probabilities are small they have all their digits.
    sign = 1.0 if lower + upper > 0.0 else -1.0
    at_lower = math.erfc(sign * lower * SQRT_HALF)
    at_upper = math.erfc(sign * upper * SQRT_HALF)
    t = -sign * ndtri(0.5 * (at_lower + uniform * (at_upper - at_lower)))
    return min(max(t, lower), upper) - min(max(0.0, lower), upper)


@kernel
def _tail_quantile(start: float, stop: float, uniform: float) -> float:
    """Quantile of exp(-start v - v^2/2) on [0, stop - start], start > 0, far out or narrow."""
    width = stop - start
    exponent = width * (start + 0.5 * width)
    if exponent < _HAIR:
        # Differences of probabilities have lost their digits; a quadratic has not.
        return width * uniform * (1.0 - 0.5 * (1.0 - uniform) * exponent)
    at_start = erfcx(start * SQRT_HALF)
    at_stop = math.exp(-exponent) * erfcx(stop * SQRT_HALF)
    # Newton's method on the log of the survival function, from that of Rayleigh's distribution.
    target = -math.log1p(-uniform * (1.0 - at_stop / at_start))
    v = 2.0 * target / (start + math.sqrt(start * start + 2.0 * target))
    for _ in range(3):
        here = erfcx((start + v) * SQRT_HALF)
        excess = target - v * (start + 0.5 * v) + math.log(here / at_start)
        v += _SQRT_HALF_PI * here * excess
    return min(max(v, 0.0), width)


@kernel
def _truncated_moments(lower: float, upper: float) -> tuple[float, float, float, float]:
    """Integrate exp(-t^2/2) over an interval.

    Returns the point ``nearest`` to zero, the integral divided by exp(-nearest^2/2), the mean
    relative to the nearest point, and the variance.
    """
    nearest = min(max(0.0, lower), upper)
    if nearest == 0.0 or abs(nearest) > _TAIL or upper - lower < _NARROW:
        nearest, zeroth, first, second = gaussian_integrals(lower, upper)
        if zeroth == 0.0:
            return nearest, 0.0, 0.0, 0.0
        excess = first / zeroth
        return nearest, zeroth, excess, second / zeroth - excess * excess
    # Closed forms are faster, where no digits cancel.
    scale = math.exp(0.5 * nearest * nearest)
    at_lower, at_upper = math.exp(-0.5 * lower * lower), math.exp(-0.5 * upper * upper)
    start, stop = abs(nearest), max(abs(lower), abs(upper))
    mass = _SQRT_HALF_PI * (math.erfc(start * SQRT_HALF) - math.erfc(stop * SQRT_HALF))
    mean = (at_lower - at_upper) / mass
    variance = 1.0 + (lower * at_lower - upper * at_upper) / mass - mean * mean
    return nearest, mass * scale, mean - nearest, variance


@kernel
def integrate_along(
    lower: float, upper: float, slope: float, precision: float
) -> tuple[float, float, float, float]:
    """Integrate exp(slope v - precision v^2 / 2) from lower to upper.

    Returns the log of the integral, the place where the integrand is largest, the mean relative to
    it, and the variance.
    """
    if not lower < upper:
        return -math.inf, 0.0, 0.0, 0.0
    root = math.sqrt(precision)
    nearest, mass, excess, variance = _truncated_moments(
        root * lower - slope / root, root * upper - slope / root
    )
    if mass == 0.0:
        return -math.inf, 0.0, 0.0, 0.0
    # An end of the interval is known better than what differs from it by a large slope.
    anchor = slope / precision
    if nearest > 0.0:
        anchor = lower
    elif nearest < 0.0:
        anchor = upper
    log_integral = anchor * (slope - 0.5 * precision * anchor) + math.log(mass / root)
    return log_integral, anchor, excess / root, variance / precision
