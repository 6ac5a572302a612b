"""Sums over weighted quasi-random points of a polytope: its mass and moments, and the error."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skdgn._geometry.polytopes.cells import MOST_DIMENSIONS
from skdgn._geometry.polytopes.proposals import Proposals
from skdgn._geometry.truncated_normal import integrate_along, quantile
from skdgn._runtime import Floats, kernel

# Within this distance of its nearest point, a cell has all of its mass but 4e-13 in four dimensions
# and 8e-11 in eight: facets farther away do not count.
REACH = 8.0

# Points are those of a lattice, with random shifts whose spread tells the error.  Their number is
# doubled until the error is small enough; small errors of few points may be coincidence.
# The coordinate before the last is drawn more often than the others, one draw per stratum: it costs
# little more, and its interplay with the last is what makes weights differ most.
_N_SHIFTS = 8
_N_STRATA = 2
_FEWEST_POINTS = 4
_ENOUGH_POINTS = 16
_MOST_POINTS = 32
_RELATIVE_ERROR = 2e-3


def _make_lattice(n_points: int, n_dimensions: int) -> Floats:
    """List a lattice's points in [0, 1)^d in an order in which the first 2^k form a lattice, too.

    Component by component, the generating vector is chosen that minimizes the worst-case error for
    smooth periodic functions, with weights 1/j^2.  The number of points is a power of two.
    """
    index = np.arange(n_points)
    candidates = np.arange(1, n_points, 2)
    positions = np.outer(candidates, index) % n_points / n_points
    errors = 2.0 * np.pi**2 * (positions * (positions - 1.0) + 1.0 / 6.0)
    product = np.ones(n_points)
    generators = np.empty(n_dimensions, dtype=np.intp)
    for j in range(n_dimensions):
        factors = 1.0 + errors / (j + 1) ** 2
        best = np.argmin(factors @ product)
        generators[j] = candidates[best]
        product *= factors[best]
    reversed_bits = np.zeros(n_points, dtype=np.intp)
    for bit in range(n_points.bit_length() - 1):
        reversed_bits = 2 * reversed_bits + (index >> bit) % 2
    return np.outer(reversed_bits, generators) % n_points / n_points


_POINTS = _make_lattice(_MOST_POINTS, MOST_DIMENSIONS - 1)
_SHIFTS = np.random.default_rng(0).random((_N_SHIFTS, MOST_DIMENSIONS - 1))
# Equal shifts in all regions would let their errors add up.
_REGION_STEPS = np.random.default_rng(1).random(MOST_DIMENSIONS - 1)


class _Draw(NamedTuple):
    """One point, and what is known of each of its coordinates before it is drawn."""

    point: Floats  # (d,)
    means: Floats  # (d,)
    variances: Floats  # (d,)
    reach: Floats  # (d, k) distances to the facets, as far as decided before the coordinate


class _Sums(NamedTuple):
    """Sums over points: weights, and what makes up the first and second moments (d (d + 3) / 2).

    A moment's control is what it would change by if the last of its coordinates had not been
    drawn.  Its expectation is zero, so its mean tells part of the moment's error.
    """

    totals: Floats  # (shifts,) of weights w
    moments: Floats  # of w f
    controls: Floats  # of h
    products: Floats  # of w f h
    squares: Floats  # of h^2


@kernel
def _bounds_along(proposals: Proposals, i: int, reach: Floats) -> tuple[float, float]:
    """Range of a coordinate within the facets that it decides, given their ``reach``."""
    lower, upper = -REACH, REACH
    for k in range(reach.size):
        if proposals.decided[k] == i:
            along = proposals.coefficients[k, i]
            if along > 0.0:
                lower = max(lower, -reach[k] / along)
            elif along < 0.0:
                upper = min(upper, -reach[k] / along)
            elif reach[k] < 0.0:
                return 1.0, 0.0
    return lower, upper


@kernel
def _draw_coordinate(
    proposals: Proposals, draw: _Draw, i: int, uniform: float, log_weight: float
) -> float:
    """Draw coordinate i, given those before it and their log weight; return the new log weight.

    The last coordinate is not drawn but integrated: it becomes its mean.
    """
    rank = draw.point.size
    lower, upper = _bounds_along(proposals, i, draw.reach[i])
    slope, precision = proposals.slopes[i, i], proposals.precisions[i]
    for a in range(i):
        slope += proposals.slopes[i, a] * draw.point[a]
    log_integral, anchor, excess, variance = integrate_along(lower, upper, slope, precision)
    log_weight += log_integral
    draw.means[i] = anchor + excess
    draw.variances[i] = variance
    if i == rank - 1 or log_weight == -math.inf:
        draw.point[i] = draw.means[i]
        return log_weight
    root = math.sqrt(precision)
    v = anchor + quantile(root * lower - slope / root, root * upper - slope / root, uniform) / root
    draw.point[i] = v
    for k in range(proposals.gaps.size):
        draw.reach[i + 1, k] = draw.reach[i, k] + proposals.coefficients[k, i] * v
    return log_weight - v * (slope + proposals.pull[i] + 0.5 * (1.0 - precision) * v)


@kernel
def _draw_coordinates(
    proposals: Proposals, draw: _Draw, begin: int, end: int, uniforms: Floats, log_weight: float
) -> tuple[int, float]:
    """Draw some coordinates; stop, with log weight -inf, where the facets have left nothing.

    Returns the number of coordinates drawn so far and the new log weight.
    """
    n_drawn = begin
    while n_drawn < end and log_weight > -math.inf:
        log_weight = _draw_coordinate(proposals, draw, n_drawn, uniforms[n_drawn], log_weight)
        if log_weight > -math.inf:
            n_drawn += 1
    return n_drawn, log_weight


@kernel
def _add_point(sums: _Sums, location: Floats, draw: _Draw, n_drawn: int, weight: float) -> None:
    """Add a point's moments about the location, and their controls.

    If the weight is zero, not all coordinates may have been drawn.
    """
    last = draw.point.size - 1
    m = 0
    for i in range(n_drawn):
        x = draw.point[i] - location[i]
        surprise = 0.0
        if i < last:
            surprise = draw.point[i] - draw.means[i]
        _add_moment(sums, m, weight, x, surprise)
        for j in range(i):
            y = draw.point[j] - location[j]
            _add_moment(sums, m + 1 + j, weight, x * y, surprise * y)
        square, expected = x * x, (x - surprise) ** 2 + draw.variances[i]
        if i == last:
            square = expected
        _add_moment(sums, m + 1 + i, weight, square, square - expected)
        m += i + 2


@kernel
def _add_moment(sums: _Sums, m: int, weight: float, value: float, control: float) -> None:
    sums.moments[m] += weight * value
    sums.controls[m] += control
    sums.products[m] += weight * value * control
    sums.squares[m] += control * control


@kernel
def _rescale(sums: _Sums, factor: float) -> None:
    """Change the scale of weights."""
    for shift in range(sums.totals.size):
        sums.totals[shift] *= factor
    for m in range(sums.moments.size):
        sums.moments[m] *= factor
        sums.products[m] *= factor


@kernel
def _moment(sums: _Sums, m: int, n_points: int) -> float:
    """Mean of a weighted moment, less what its control explains of its error (a regression)."""
    mean = sums.moments[m] / n_points
    control = sums.controls[m] / n_points
    variance = sums.squares[m] / n_points - control * control
    if variance > 0.0:
        mean -= control * (sums.products[m] / n_points - mean * control) / variance
    return mean


@kernel
def integrate_by_points(
    proposals: Proposals, region: int, log_tolerance: float, mean: Floats, covariance: Floats
) -> tuple[float, float]:
    """Integrate ``exp(-pull @ v - v @ v / 2)`` over the cell by weighted points.

    Fills mean and covariance of v; returns the log of the integral and its relative error.
    """
    # --- Room for sums.
    n_facets, rank = proposals.coefficients.shape
    n_moments = rank * (rank + 3) // 2
    # With one coordinate, nothing is drawn.
    n_shifts, n_points, n_strata = _N_SHIFTS, _FEWEST_POINTS, _N_STRATA
    if rank == 1:
        n_shifts, n_points, n_strata = 1, 1, 1
    sums = _Sums(
        np.zeros(n_shifts),
        np.zeros(n_moments),
        np.zeros(n_moments),
        np.zeros(n_moments),
        np.zeros(n_moments),
    )
    draw = _Draw(np.empty(rank), np.empty(rank), np.empty(rank), np.empty((rank, n_facets)))
    for k in range(n_facets):
        draw.reach[0, k] = proposals.gaps[k]
    # Moments are taken about the conditional means along the median path: near their mean, exactly
    # so if the coordinates are independent.
    uniforms, location = np.full(rank, 0.5), np.zeros(rank)
    n_drawn, _ = _draw_coordinates(proposals, draw, 0, rank, uniforms, 0.0)
    for i in range(n_drawn):
        location[i] = draw.means[i]

    middle = max(rank - 2, 0)
    total, log_integral, error = 0.0, -math.inf, math.inf
    log_scale = -math.inf  # weights are relative to this
    n_done = 0

    # --- Twice as many points each time, until the error is small.
    while True:
        for shift in range(n_shifts):
            for index in range(n_done, n_points):
                for i in range(rank - 1):
                    x = _POINTS[index, i] + _SHIFTS[shift, i] + region * _REGION_STEPS[i]
                    uniforms[i] = x - math.floor(x)
                position = uniforms[middle]
                n_outer, log_outer = _draw_coordinates(proposals, draw, 0, middle, uniforms, 0.0)
                for stratum in range(n_strata):
                    uniforms[middle] = (stratum + position) / n_strata
                    n_drawn, log_weight = _draw_coordinates(
                        proposals, draw, n_outer, rank, uniforms, log_outer
                    )
                    weight = 0.0
                    if log_weight > -math.inf:
                        if log_weight > log_scale:
                            _rescale(sums, math.exp(log_scale - log_weight))
                            log_scale = log_weight
                        weight = math.exp(log_weight - log_scale)
                    sums.totals[shift] += weight
                    _add_point(sums, location, draw, n_drawn, weight)
        n_done = n_points
        n_all = n_shifts * n_points * n_strata
        total = sums.totals.sum()
        if total > 0.0:
            # The shifts' standard error, but not less than what the last doubling suggests.
            square = 0.0
            for shift in range(n_shifts):
                square += (sums.totals[shift] / total - 1.0 / n_shifts) ** 2
            error = math.sqrt(square * n_shifts / max(1, n_shifts - 1))
            previous = log_integral
            log_integral = log_scale + math.log(total / n_all)
            if rank > 1:
                error = max(error, 0.5 * abs(math.expm1(min(previous - log_integral, 1.0))))
            if error < math.exp(min(0.0, log_tolerance - log_integral)) or (
                error < _RELATIVE_ERROR and n_points >= _ENOUGH_POINTS
            ):
                break
        if rank == 1 or n_points == _MOST_POINTS:
            break
        n_points *= 2

    # --- Moments, about zero again.
    if total == 0.0:
        # No point has hit the cell, which is thinner than the approximation has digits.
        for i in range(rank):
            mean[i] = 0.0
        return -math.inf, 1.0
    m = 0
    for i in range(rank):
        mean[i] = _moment(sums, m, n_all) * n_all / total
        for j in range(i + 1):
            second = _moment(sums, m + 1 + j, n_all) * n_all / total
            covariance[i, j] = second - mean[i] * mean[j]
            covariance[j, i] = covariance[i, j]
        m += i + 2
    for i in range(rank):
        mean[i] += location[i]
    return log_integral, error
