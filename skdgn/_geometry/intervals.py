"""Cells of a one-dimensional latent space: intervals, possibly unbounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skdgn._geometry.interface import (
    LOG_NEGLIGIBLE_SHARE,
    THINNEST_PIECE,
    Corners,
    Facets,
    Pieces,
    register_integral,
    register_whitening,
)
from skdgn._geometry.quadrature import (
    FULL_ACCURACY,
    GAUSS_NODES,
    GAUSS_WEIGHTS,
    MOST_NODES,
    nodes_needed,
)
from skdgn._runtime import (
    LOG_SQRT_2PI,
    SQRT_HALF,
    Bools,
    Floats,
    Integers,
    erfcx,
    inlined_kernel,
    kernel,
)

_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)

# Exponents and widths so small that a rule of few nodes is as good as exact.
_SMALL_EXPONENT, _SMALL_WIDTH, _FEW_NODES = 0.4, 0.2, 5
_NARROW, _NARROW_NODES = 1.0, 8
# More nodes than this cost more than the closed form.
_MANY_NODES = 10
# Exponents that exceed the accuracy by this are of no account, nor are their moments.
_EXPONENT_MARGIN = 4.0
# Beyond this distance the closed form of the variance loses four digits to cancellation, and seven
# beyond the second one: no harm where not more accuracy (-log) than this is wanted.
_FAR = 6.0
_COARSE, _COARSE_FAR = 18.0, 40.0


class WhitenedIntervals(NamedTuple):
    """Intervals in units of each region's conditional deviation."""

    lower: Floats  # (R,)
    upper: Floats  # (R,)
    deviations: Floats  # (R,)


@dataclass(frozen=True)
class Intervals:
    """Intervals ``lower[r] <= z <= upper[r]``."""

    lower: Floats
    upper: Floats

    @classmethod
    def whole_space(cls, n_dimensions: int) -> Intervals:
        """Return one cell: the whole line."""
        if n_dimensions != 1:
            raise ValueError(f"intervals need one latent dimension, got {n_dimensions}.")
        return cls(np.array([-np.inf]), np.array([np.inf]))

    def __len__(self) -> int:
        return len(self.lower)

    def take(self, indices: Integers) -> Intervals:
        """Return the cells with these indices."""
        return Intervals(self.lower[indices], self.upper[indices])

    def split(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut interval r where ``gradients[r] * z + values[r]`` changes sign."""
        pieces = self.split_all(gradients, values[:, None])
        return pieces._replace(positive=pieces.positive[:, 0])

    def split_all(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut interval r where any of the functions ``gradients[r] * z + values[r]`` changes sign.

        As if one after the other; pieces know their sides of all of them.
        """
        # Of one kind for the kernel, which would be compiled for each.
        gradients, values = np.ascontiguousarray(gradients), np.ascontiguousarray(values)
        n_units = gradients.shape[1]
        n_pieces, capacity = 2 * (len(self) + n_units + 1), 0
        while n_pieces > capacity:
            capacity = n_pieces
            lower, upper = np.empty((2, capacity))
            parents = np.empty(capacity, dtype=np.intp)
            sides = np.empty((capacity, n_units), dtype=bool)
            n_pieces = _cut(self.lower, self.upper, gradients, values, lower, upper, parents, sides)
        cells = Intervals(lower[:n_pieces].copy(), upper[:n_pieces].copy())
        return Pieces(cells, parents[:n_pieces].copy(), sides[:n_pieces].copy())

    def facets(self) -> Facets:
        """List the finite ends of every interval."""
        ends = np.stack([self.lower, -self.upper], axis=1)
        finite = np.isfinite(ends)
        start = np.concatenate([[0], np.cumsum(finite.sum(axis=1))])
        normals = np.broadcast_to([1.0, -1.0], ends.shape)[finite]
        return Facets(start, normals[:, None], ends[finite])

    def corners(self) -> Corners:
        """List the ends of every bounded interval."""
        bounded = np.isfinite(self.lower) & np.isfinite(self.upper)
        start = np.concatenate([[0], np.cumsum(2 * bounded)])
        ends = np.stack([self.lower[bounded], self.upper[bounded]], axis=1)
        return Corners(start, ends.reshape(-1, 1))

    def interior_points(self) -> Floats:
        """Return a point inside every interval."""
        # An unbounded interval reaches as far again as its finite end is away from zero.
        reach = 2.0 * (1.0 + np.abs(np.where(np.isfinite(self.lower), self.lower, self.upper)))
        reach = np.where(np.isfinite(reach), reach, 2.0)
        upper = np.where(np.isfinite(self.upper), self.upper, self.lower + reach)
        upper = np.where(np.isfinite(upper), upper, 1.0)
        lower = np.where(np.isfinite(self.lower), self.lower, upper - reach)
        return (0.5 * lower + 0.5 * upper)[:, None]

    def whiten(self, factors: Floats) -> WhitenedIntervals:
        """Measure interval r in units of ``factors[r]``."""
        deviations = np.ascontiguousarray(factors[:, 0, 0])
        return WhitenedIntervals(self.lower / deviations, self.upper / deviations, deviations)


@kernel
def _cut(
    lower: Floats,
    upper: Floats,
    slopes: Floats,
    values: Floats,
    new_lower: Floats,
    new_upper: Floats,
    parents: Integers,
    sides: Bools,
) -> int:
    """Cut intervals (R,) by functions (R, u); return how many pieces there are.

    Fills in ends, parents and sides of as many pieces as there is room for.
    """
    n_units = slopes.shape[1]
    # Of one interval: its pieces so far.
    lows, highs = np.empty(n_units + 1), np.empty(n_units + 1)
    on_right = np.empty((n_units + 1, n_units), dtype=np.bool_)
    n_pieces = 0
    for r in range(len(lower)):
        lows[0], highs[0], n_own = lower[r], upper[r], 1
        for unit in range(n_units):
            slope, value = slopes[r, unit], values[r, unit]
            rising, cut = slope > 0.0, -value / slope
            thin = THINNEST_PIECE * (1.0 + abs(cut))
            i = 0
            while i < n_own:
                low, high = lows[i], highs[i]
                if slope == 0.0:
                    on_right[i, unit] = value > 0.0
                elif cut - low > thin and high - cut > thin:
                    for j in range(n_own, i, -1):
                        lows[j], highs[j] = lows[j - 1], highs[j - 1]
                        for k in range(unit):
                            on_right[j, k] = on_right[j - 1, k]
                    highs[i], lows[i + 1] = cut, cut
                    on_right[i, unit], on_right[i + 1, unit] = not rising, rising
                    n_own += 1
                    i += 1
                else:
                    # The cut misses the piece, which lies to its right or to its left.
                    is_right = low > cut - thin if math.isfinite(low) else high > cut + thin
                    on_right[i, unit] = is_right == rising
                i += 1
        for i in range(n_own):
            if n_pieces < len(parents):
                new_lower[n_pieces], new_upper[n_pieces] = lows[i], highs[i]
                parents[n_pieces] = r
                for unit in range(n_units):
                    sides[n_pieces, unit] = on_right[i, unit]
            n_pieces += 1
    return n_pieces


@kernel
def gaussian_integrals(lower: float, upper: float) -> tuple[float, float, float, float]:
    """Integrate exp(-t^2/2) and its first two moments over [lower, upper].

    Returns the point ``nearest`` to zero in the interval and the integrals of 1, v and v^2 times
    exp(-nearest v - v^2/2) over ``v = t - nearest``.  With the large factor exp(-nearest^2/2)
    taken out and moments about the nearest point, slivers and tails keep their relative accuracy.
    """
    return tolerant_integrals(lower, upper, FULL_ACCURACY)


@inlined_kernel
def tolerant_integrals(
    lower: float, upper: float, accuracy: float
) -> tuple[float, float, float, float]:
    """`gaussian_integrals` of which the first may have an error of exp(-accuracy)."""
    if lower > 0.0:
        nearest = lower
        zeroth, first, second = _one_sided(lower, upper, accuracy)
    elif upper < 0.0:
        nearest = upper
        zeroth, first, second = _one_sided(-upper, -lower, accuracy)
        first = -first
    else:
        nearest = 0.0
        zeroth, first, second = _two_sided(lower, upper)
    return nearest, zeroth, first, second


@inlined_kernel
def _two_sided(lower: float, upper: float) -> tuple[float, float, float]:
    """Integrate (1, v, v^2) exp(-v^2/2) for v in [lower, upper], with 0 between them."""
    width = upper - lower
    if width < _NARROW:
        return _quadrature(0.0, lower, width, _NARROW_NODES)
    at_lower = math.exp(-0.5 * lower * lower)
    at_upper = math.exp(-0.5 * upper * upper)
    zeroth = _SQRT_HALF_PI * (math.erf(upper * SQRT_HALF) - math.erf(lower * SQRT_HALF))
    second = zeroth
    if at_lower > 0.0:
        second += lower * at_lower
    if at_upper > 0.0:
        second -= upper * at_upper
    return zeroth, at_lower - at_upper, second


@inlined_kernel
def _one_sided(start: float, stop: float, accuracy: float) -> tuple[float, float, float]:
    """Integrate (1, v, v^2) exp(-start v - v^2/2) for v in [0, stop - start], start > 0."""
    width = stop - start
    exponent = width * (start + 0.5 * width)
    n_nodes = _FEW_NODES
    if exponent > _SMALL_EXPONENT or width > _SMALL_WIDTH:
        # Beyond this exponent nothing counts any more.
        limit = max(1.0, accuracy + _EXPONENT_MARGIN)
        if exponent > limit:
            width = 2.0 * limit / (start + math.sqrt(start * start + 2.0 * limit))
        half = 0.5 * width
        n_nodes = nodes_needed(start + half, half, math.inf, max(1.0, accuracy))
    far = _FAR if accuracy > _COARSE else _COARSE_FAR
    if n_nodes <= _MANY_NODES or (start > far and n_nodes <= MOST_NODES):
        return _quadrature(start, 0.0, width, n_nodes)
    width = stop - start
    at_stop = math.exp(-exponent)
    zeroth = _SQRT_HALF_PI * erfcx(start * SQRT_HALF)
    beyond = 0.0
    if at_stop > 0.0:
        beyond = at_stop * width
        zeroth -= _SQRT_HALF_PI * at_stop * erfcx(stop * SQRT_HALF)
    first = 1.0 - at_stop - start * zeroth
    second = zeroth - beyond - start * first
    return zeroth, first, second


@inlined_kernel
def _quadrature(
    start: float, begin: float, width: float, n_nodes: int
) -> tuple[float, float, float]:
    """Integrate (1, v, v^2) exp(-start v - v^2/2) over [begin, begin + width]."""
    zeroth, first, second = 0.0, 0.0, 0.0
    for i in range(n_nodes):
        v = begin + width * GAUSS_NODES[n_nodes, i]
        weight = GAUSS_WEIGHTS[n_nodes, i] * math.exp(-v * (start + 0.5 * v))
        zeroth += weight
        first += weight * v
        second += weight * v * v
    return width * zeroth, width * first, width * second


@inlined_kernel
def integrate_interval(
    lower: float, upper: float, origin: float, log_tolerance: float
) -> tuple[float, float, float]:
    """Integrate N(origin, 1) over an interval as `integrate_cell`: log mass, mean, variance."""
    # The nearest end is known better than origin + (end - origin) would be.
    anchor = min(max(origin, lower), upper)
    distance = anchor - origin
    log_scale = -0.5 * distance * distance - LOG_SQRT_2PI
    accuracy = min(log_scale - log_tolerance, FULL_ACCURACY)
    offset, variance, log_mass = 0.0, 0.0, -math.inf
    # The integral is below sqrt(pi / 2) once the factor is taken out, or else there is none.
    if accuracy > LOG_NEGLIGIBLE_SHARE or distance == 0.0:
        _, zeroth, first, second = tolerant_integrals(lower - origin, upper - origin, accuracy)
        if zeroth > 0.0:
            offset = first / zeroth
            variance = second / zeroth - offset * offset
            log_mass = math.log(zeroth) + log_scale
    return log_mass, anchor + offset, variance


@inlined_kernel
def _integrate_interval(
    cells: Any, region: int, center: Floats, log_tolerance: float, mean: Floats, covariance: Floats
) -> float:
    lower, upper = cells.lower[region], cells.upper[region]
    log_mass, middle, variance = integrate_interval(lower, upper, center[0], log_tolerance)
    deviation = cells.deviations[region]
    mean[0] = deviation * middle
    covariance[0, 0] = deviation * deviation * variance
    return log_mass


register_integral(WhitenedIntervals, _integrate_interval)


def _make_room(cells: Any) -> Any:
    return WhitenedIntervals(np.empty(1), np.empty(1), np.empty(1))


@kernel
def _whiten_interval(cells: Any, region: int, factor: Floats, room: Any) -> None:
    deviation = factor[0, 0]
    room.lower[0] = cells.lower[region] / deviation
    room.upper[0] = cells.upper[region] / deviation
    room.deviations[0] = deviation


register_whitening(WhitenedIntervals, _make_room, _whiten_interval)
