"""The Gaussian integral over a convex polygon as a sum of positive terms.

Closed forms for polygons are alternating sums: useless where the mass is small, in the tail or on
a sliver.  Here the polygon is cut into chords perpendicular to the ray from the Gaussian's center
to the polygon's nearest point.  With ``s`` along that ray and ``q`` across it, both measured from
the nearest point at distance ``rho``,

    mass = phi(rho) int exp(-rho s - s^2/2) (Phi(upper(s)) - Phi(lower(s))) ds,

and the ends of the chord are affine in ``s`` between vertices: the integrand is entire and
positive, so quadrature on panels keeps full *relative* accuracy at any depth.  (Rays instead of
chords give an integrand with poles.)  Moments are taken about the nearest point, where no large
distance has to cancel.
"""

from __future__ import annotations

import math

import numpy as np

from skdgn._geometry.intervals import gaussian_integrals
from skdgn._geometry.quadrature import (
    KRONROD_GAUSS_WEIGHTS,
    KRONROD_NODES,
    KRONROD_RANGE,
    KRONROD_WEIGHTS,
)
from skdgn._runtime import Floats, kernel

# A panel is accepted when its Gauss and Kronrod sums differ by less than this share of the total:
# the Kronrod sum is then better by at least three more digits (the rule of QUADPACK).
_PANEL_TOLERANCE = 1e-13
_MOST_HALVINGS = 40
# On a sliver the chords' own rounding errors can exceed the tolerance; halving then never ends.
# So many panels between two breaks are enough for anything else.
_MOST_PANELS = 120
# Breaks closer than this are one: they differ by rounding errors.
_CLOSEST_BREAKS = 1e-14
# Chords whose density is below this share of the total are left out.
_NEGLIGIBLE_SHARE = 1e-18


@kernel
def negated(values: Floats, backward: bool) -> Floats:
    """Change all signs, and maybe the order (which takes long to compile as an expression)."""
    result = np.empty(values.size)
    for i in range(values.size):
        result[i] = -values[values.size - 1 - i if backward else i]
    return result


@kernel
def _chord(along: Floats, across: Floats, gaps: Floats, s: float) -> tuple[float, float]:
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
) -> float:
    """Integrate (1, s, q, ss, sq, qq) over the chords between two positions; return the error."""
    mass, s1, q1, ss, sq, qq = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    gauss = 0.0
    width = stop - start
    for i in range(KRONROD_NODES.size):
        s = start + width * KRONROD_NODES[i]
        lower, upper = _chord(along, across, gaps, s)
        if lower >= upper:
            continue
        nearest, zeroth, first, second = gaussian_integrals(lower, upper)
        density = width * math.exp(-s * (rho + 0.5 * s) - 0.5 * nearest * nearest)
        gauss += KRONROD_GAUSS_WEIGHTS[i] * density * zeroth
        density *= KRONROD_WEIGHTS[i]
        weight = density * zeroth
        weight_q = density * (first + nearest * zeroth)
        mass += weight
        s1 += weight * s
        ss += weight * s * s
        q1 += weight_q
        sq += weight_q * s
        qq += density * (second + 2.0 * nearest * first + nearest * nearest * zeroth)
    sums[0], sums[1], sums[2], sums[3], sums[4], sums[5] = mass, s1, q1, ss, sq, qq
    return abs(mass - gauss)


@kernel
def _integrate_outward(
    along: Floats,
    across: Floats,
    gaps: Floats,
    breaks: Floats,
    rho: float,
    tolerance: float,
    elsewhere: float,
    total: Floats,
) -> None:
    """Sum the panels at s >= 0, the likeliest first; ``elsewhere`` is the mass already found."""
    for k in range(6):
        total[k] = 0.0
    sums = np.empty(6)
    pending = np.empty(_MOST_HALVINGS)  # ends of the panels waiting for their left half
    position = 0.0
    next_break = 0
    while next_break < breaks.size and breaks[next_break] <= position:
        next_break += 1
    while True:
        # What lies beyond this position has at most the mass sqrt(2 pi) exp(-exponent) / slope.
        slope = rho + position
        beyond = math.exp(-position * (rho + 0.5 * position)) / max(slope, 0.4)
        if beyond <= max(_NEGLIGIBLE_SHARE * (total[0] + elsewhere), 0.01 * tolerance):
            break
        # The next panel ends at a vertex, or where the exponent has grown by a panel's range.
        stop = position + 2.0 * KRONROD_RANGE / (
            slope + math.sqrt(slope * slope + 2.0 * KRONROD_RANGE)
        )
        behind_all = next_break == breaks.size
        if not behind_all and breaks[next_break] <= stop:
            stop = breaks[next_break]
            next_break += 1
            if stop <= position + _CLOSEST_BREAKS:
                continue
        lower, upper = _chord(along, across, gaps, 0.5 * (position + stop))
        if lower < upper:
            pending[0] = stop
            n_pending = 1
            n_panels = 0
            while n_pending > 0:
                end = pending[n_pending - 1]
                if end <= position:
                    n_pending -= 1
                    continue
                error = _panel(along, across, gaps, rho, position, end, sums)
                n_panels += 1
                middle = 0.5 * (position + end)
                found = elsewhere + total[0] + sums[0]
                exhausted = n_pending == _MOST_HALVINGS or n_panels > _MOST_PANELS
                small = error <= max(_PANEL_TOLERANCE * found, 0.1 * tolerance)
                if small or exhausted or middle <= position:
                    for k in range(6):
                        total[k] += sums[k]
                    position = end
                    n_pending -= 1
                else:
                    pending[n_pending] = middle
                    n_pending += 1
        elif behind_all:
            break
        position = stop


@kernel
def integrate_chords(
    along: Floats,
    across: Floats,
    gaps: Floats,
    breaks: Floats,
    rho: float,
    tolerance: float,
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
        Distance of the nearest point; 0 if all is seen from the center.
    tolerance : float
        Absolute error of the mass that the caller can bear, with phi(rho) phi(0) taken out.
    moments : ndarray of shape (5,)
        Filled with the means of s and q, the variance of s, the covariance, the variance of q.

    Returns
    -------
    mass : float
        With the factor exp(-rho^2/2) / (2 pi) taken out.
    """
    total = np.empty(6)
    _integrate_outward(along, across, gaps, breaks, rho, tolerance, 0.0, total)
    if rho == 0.0:
        # The half behind the center, mirrored.  With the center outside there is none.
        behind = np.empty(6)
        mirrored, positions = negated(along, False), negated(breaks, True)
        _integrate_outward(mirrored, across, gaps, positions, rho, tolerance, total[0], behind)
        behind[1] = -behind[1]
        behind[4] = -behind[4]
        for k in range(6):
            total[k] += behind[k]
    if total[0] == 0.0:
        for k in range(5):
            moments[k] = 0.0
        return 0.0
    s, q = total[1] / total[0], total[2] / total[0]
    moments[0] = s
    moments[1] = q
    moments[2] = total[3] / total[0] - s * s
    moments[3] = total[4] / total[0] - s * q
    moments[4] = total[5] / total[0] - q * q
    return total[0]
