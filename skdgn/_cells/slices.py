"""The Gaussian integral over a convex polygon as a sum of positive terms.

Closed forms for polygons are alternating sums: useless where the mass is small, in the tail or on
a sliver.  Here the polygon is cut into chords perpendicular to the ray from the Gaussian's centre
to the polygon's nearest point.  With ``s`` along that ray and ``q`` across it, both measured from
the nearest point at distance ``rho``,

    mass = phi(rho) int exp(-rho s - s^2/2) (Phi(upper(s)) - Phi(lower(s))) ds,

and the ends of the chord are affine in ``s`` between vertices: the integrand is entire and
positive, so Gauss-Legendre panels keep full *relative* accuracy at any depth.  (Rays instead of
chords give an integrand with poles.)  Moments are taken about the nearest point, where no large
distance has to cancel.
"""

from __future__ import annotations

import math

import numpy as np

from skdgn._cells._interface import Floats
from skdgn._cells.intervals import truncated_normal
from skdgn._cells.quadrature import (
    LONG_NODES,
    LONG_RANGE,
    LONG_WEIGHTS,
    NEGLIGIBLE_EXPONENT,
)
from skdgn._jit import LOG_SQRT_2PI, kernel

# A panel is halved until halving changes its integral by less than this share of the total.
_PANEL_TOLERANCE = 1e-14
_MOST_HALVINGS = 40
# Chords at exponents beyond this share of the total are left out.
_NEGLIGIBLE_SHARE = 1e-18
_WIDEST = math.sqrt(2.0 * NEGLIGIBLE_EXPONENT)


@kernel
def _chord(
    along: Floats, across: Floats, gaps: Floats, s: float
) -> tuple[float, float]:
    """Ends of the chord at ``s``: where all ``gaps + along s + across q >= 0``."""
    lower, upper = -math.inf, math.inf
    for k in range(gaps.size):
        reach = gaps[k] + along[k] * s
        if across[k] > 0.0:
            lower = max(lower, -reach / across[k])
        elif across[k] < 0.0:
            upper = min(upper, -reach / across[k])
        elif reach < 0.0:
            return 1.0, 0.0
    return lower, upper


@kernel
def _panel(
    along: Floats,
    across: Floats,
    gaps: Floats,
    rho: float,
    start: float,
    stop: float,
    sums: Floats,
) -> None:
    """Integrate (1, s, q, ss, sq, qq) over the chords between ``start`` and ``stop``."""
    sums[:] = 0.0
    width = stop - start
    for i in range(LONG_NODES.size):
        s = start + width * LONG_NODES[i]
        lower, upper = _chord(along, across, gaps, s)
        if lower >= upper:
            continue
        log_mass, nearest, offset, variance = truncated_normal(lower, upper)
        weight = width * LONG_WEIGHTS[i] * math.exp(log_mass - s * (rho + 0.5 * s))
        q = nearest + offset
        sums[0] += weight
        sums[1] += weight * s
        sums[2] += weight * q
        sums[3] += weight * s * s
        sums[4] += weight * s * q
        sums[5] += weight * (variance + q * q)


@kernel
def _adaptive(
    along: Floats,
    across: Floats,
    gaps: Floats,
    rho: float,
    start: float,
    stop: float,
    total: Floats,
    work: Floats,
) -> None:
    """Add the integral over [start, stop] to ``total``, halving panels until they agree."""
    starts, stops = work[0], work[1]
    whole, left, right = work[2], work[3], work[4]
    depth = 1
    starts[0], stops[0] = start, stop
    while depth > 0:
        depth -= 1
        begin, end = starts[depth], stops[depth]
        middle = 0.5 * (begin + end)
        _panel(along, across, gaps, rho, begin, end, whole[:6])
        _panel(along, across, gaps, rho, begin, middle, left[:6])
        _panel(along, across, gaps, rho, middle, end, right[:6])
        both = left[0] + right[0]
        agreed = abs(whole[0] - both) <= _PANEL_TOLERANCE * (total[0] + both)
        if agreed or depth + 2 > _MOST_HALVINGS or not begin < middle < end:
            for k in range(6):
                total[k] += left[k] + right[k]
        else:
            starts[depth], stops[depth] = middle, end
            starts[depth + 1], stops[depth + 1] = begin, middle
            depth += 2


@kernel
def integrate_chords(
    along: Floats,
    across: Floats,
    gaps: Floats,
    breaks: Floats,
    rho: float,
    moments: Floats,
) -> float:
    """Integrate the standard normal over the polygon ``gaps + along s + across q >= 0``.

    Parameters
    ----------
    along, across, gaps : ndarray of shape (k,)
        The edges, seen from the nearest point.
    breaks : ndarray
        Coordinates ``s`` of the vertices and of steep edges, in ascending order.
    rho : float
        Distance of the nearest point; 0 if the centre is inside.
    moments : ndarray of shape (5,)
        Filled with the means of s and q, the variance of s, the covariance, the variance of q.

    Returns
    -------
    log_mass : float
    """
    total = np.zeros(6)
    work = np.empty((5, _MOST_HALVINGS + 2))
    # With the centre outside, the whole polygon lies at s >= 0.
    position = 0.0 if rho > 0.0 else -_WIDEST
    next_break = 0
    while next_break < breaks.size and breaks[next_break] <= position:
        next_break += 1
    while True:
        # Whatever lies beyond this position has at most the mass exp(-exponent).
        exponent = max(position, 0.0) * (rho + 0.5 * position)
        if math.exp(-exponent) <= _NEGLIGIBLE_SHARE * total[0]:
            break
        # The next panel ends at a vertex, or where the exponent has grown by a panel's range.
        slope = rho + max(position, 0.0)
        stop = position + 2.0 * LONG_RANGE / (slope + math.sqrt(slope * slope + 2.0 * LONG_RANGE))
        if next_break < breaks.size and breaks[next_break] <= stop:
            stop = breaks[next_break]
            next_break += 1
        lower, upper = _chord(along, across, gaps, 0.5 * (position + stop))
        if lower < upper:
            if stop > position:
                _adaptive(along, across, gaps, rho, position, stop, total, work)
        elif next_break == breaks.size:
            break
        position = stop
    if total[0] == 0.0:
        moments[:] = 0.0
        return -math.inf
    s, q = total[1] / total[0], total[2] / total[0]
    moments[0] = s
    moments[1] = q
    moments[2] = total[3] / total[0] - s * s
    moments[3] = total[4] / total[0] - s * q
    moments[4] = total[5] / total[0] - q * q
    return math.log(total[0]) - 0.5 * rho * rho - LOG_SQRT_2PI
