"""Cells of a one-dimensional latent space: intervals, possibly unbounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skdgn._cells._interface import (
    LOG_NEGLIGIBLE_SHARE,
    THINNEST_PIECE,
    Corners,
    Facets,
    Floats,
    Integers,
    Pieces,
    register_integral,
    register_whitening,
)
from skdgn._cells.quadrature import (
    FULL_ACCURACY,
    GAUSS_NODES,
    GAUSS_WEIGHTS,
    MOST_NODES,
    nodes_needed,
)
from skdgn._jit import LOG_SQRT_2PI, SQRT_HALF, erfcx, inlined_kernel, kernel

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
        rising = gradients[:, 0] > 0
        constant = gradients[:, 0] == 0
        cut = -values * gradients[:, 0]  # gradients are -1, 0 or 1
        thin = THINNEST_PIECE * (1.0 + np.abs(cut))
        crossed = ~constant & (cut - self.lower > thin) & (self.upper - cut > thin)
        # Where the cut misses the cell, the cell lies to its right or to its left.
        cell_is_right = np.where(
            np.isfinite(self.lower), self.lower > cut - thin, self.upper > cut + thin
        )
        positive = np.where(constant, values > 0, cell_is_right == rising)

        parents = np.repeat(np.arange(len(self)), 1 + crossed)
        is_second = np.zeros(len(parents), dtype=bool)
        is_second[1:] = parents[1:] == parents[:-1]
        is_first = np.zeros(len(parents), dtype=bool)
        is_first[:-1] = is_second[1:]
        lower = np.where(is_second, cut[parents], self.lower[parents])
        upper = np.where(is_first, cut[parents], self.upper[parents])
        sides = positive[parents]
        sides[is_second] = rising[parents[is_second]]
        sides[is_first] = ~rising[parents[is_first]]
        return Pieces(Intervals(lower, upper), parents, sides)

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
def _integrate_interval(
    cells: Any, region: int, center: Floats, log_tolerance: float, mean: Floats, covariance: Floats
) -> float:
    origin = center[0]
    lower, upper = cells.lower[region], cells.upper[region]
    deviation = cells.deviations[region]
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
    mean[0] = deviation * (anchor + offset)
    covariance[0, 0] = deviation * deviation * variance
    return log_mass


register_integral(WhitenedIntervals, _integrate_interval)


@kernel
def _make_room(cells: Any) -> Any:
    return WhitenedIntervals(np.empty(1), np.empty(1), np.empty(1))


@kernel
def _whiten_interval(cells: Any, region: int, factor: Floats, room: Any) -> None:
    deviation = factor[0, 0]
    room.lower[0] = cells.lower[region] / deviation
    room.upper[0] = cells.upper[region] / deviation
    room.deviations[0] = deviation


register_whitening(WhitenedIntervals, _make_room, _whiten_interval)
