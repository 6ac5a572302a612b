"""The Gaussian integral over a polytope by sequential conditioning, and its error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skdgn._geometry.interface import LOG_NEGLIGIBLE_SHARE, register_estimate
from skdgn._geometry.polytopes.cells import WhitenedPolytopes
from skdgn._geometry.polytopes.point_sums import REACH, integrate_by_points
from skdgn._geometry.polytopes.proposals import Proposals, approximate, choose_axes, look_ahead
from skdgn._geometry.polytopes.quadratic_program import dot, nearest_point
from skdgn._runtime import LOG_SQRT_2PI, Floats, kernel

_TINY = 1e-300


@kernel
def _facets_within_reach(
    normals: Floats, bounds: Floats, nearest: Floats, multipliers: Floats
) -> tuple[Floats, Floats, Floats]:
    """Facets near the nearest point: their normals, distances from the point, multipliers."""
    n_near = 0
    near_normals, gaps = np.empty_like(normals), np.empty_like(bounds)
    near_multipliers = np.empty_like(bounds)
    for k in range(bounds.size):
        gap = max(0.0, dot(normals[k], nearest) - bounds[k])
        if multipliers[k] > 0.0:
            gap = 0.0
        if gap < REACH:
            for s in range(nearest.size):
                near_normals[n_near, s] = normals[k, s]
            gaps[n_near], near_multipliers[n_near] = gap, multipliers[k]
            n_near += 1
    return near_normals[:n_near], gaps[:n_near], near_multipliers[:n_near]


@kernel
def _transform(
    factor: Floats, origin: Floats, shift: Floats, spread: Floats, mean: Floats, covariance: Floats
) -> None:
    """Fill mean and covariance in coordinates ``z = factor @ y``."""
    n_dimensions = origin.size
    for s in range(n_dimensions):
        mean[s] = dot(factor[s], origin) + dot(factor[s], shift)
        for t in range(n_dimensions):
            covariance[s, t] = 0.0
    for s in range(n_dimensions):
        for t in range(n_dimensions):
            half = 0.0
            for u in range(n_dimensions):
                half += factor[s, u] * spread[u, t]
            for u in range(n_dimensions):
                covariance[s, u] += half * factor[u, t]


@kernel
def integrate_with_error(
    cells: Any, region: int, center: Floats, log_tolerance: float, mean: Floats, covariance: Floats
) -> tuple[float, float]:
    """Integrate N(center, I) over a whitened polytope; return the log mass and its relative error.

    Arguments are those of `integrate_cell`.  The error is a standard error of the mass.  Effort
    is adapted to the tolerance; without one, it is known to two or three digits.  A product of
    intervals, in any directions, comes out exactly.

    Notes
    -----
    Sequential conditioning: in coordinates along the facets' orthogonalized normals, draw one after
    the other from truncated normals, and weight each point by what the truncations have left.
    Four things make this accurate for polytopes, and in the tail:

    - Displacements are measured from the cell's nearest point, where no large numbers cancel.
    - The last coordinate, which sees all facets not decided before, is integrated.
    - Points are quasi-random.
    - Each coordinate is drawn in view of the facets that only later ones will decide.  These are
      represented by their sites in an approximation of the truncated Gaussian by expectation
      propagation; far in the tail, by the multipliers of the nearest point (exponential tilting).

    Moments come from the same points, with conditional moments as control variates.

    References
    ----------
    Genz, *Numerical computation of multivariate normal probabilities*, 1992.
    Cunningham, Hennig and Lacoste-Julien, *Gaussian probabilities and expectation propagation*,
    2011.
    Botev, *The normal law under linear restrictions: simulation and estimation via minimax
    tilting*, 2017.
    """
    n_dimensions = center.size
    first = cells.start[region]
    n_facets = cells.start[region + 1] - first
    normals, bounds = np.empty((n_facets, n_dimensions)), np.empty(n_facets)
    for k in range(n_facets):
        for s in range(n_dimensions):
            normals[k, s] = cells.normals[first + k, s]
        bounds[k] = cells.offsets[first + k] - dot(normals[k], center)
    # The mass is at most exp(-distance^2 / 2).
    log_negligible = log_tolerance + LOG_NEGLIGIBLE_SHARE
    farthest = math.sqrt(-2.0 * log_negligible) if log_negligible < 0.0 else -1.0
    nearest, multipliers = np.empty(n_dimensions), np.empty(bounds.size)
    distance = nearest_point(normals, bounds, farthest, nearest, multipliers)
    spread = np.zeros((n_dimensions, n_dimensions))
    if distance == math.inf:
        for s in range(n_dimensions):
            nearest[s] = 0.0
        _transform(cells.factors[region], center, nearest, spread, mean, covariance)
        return -math.inf, 0.0

    normals, gaps, site_slopes = _facets_within_reach(normals, bounds, nearest, multipliers)
    # Coordinates along the nearest facets' normals, for the approximation: thin cells keep their
    # digits.  Then along the normals of those that cut most, for the points.
    site_precisions, location = np.empty(gaps.size), np.empty(n_dimensions)
    for k in range(gaps.size):
        site_precisions[k] = 1.0 / (gaps[k] + _TINY)
    decided = np.empty(gaps.size, dtype=np.intp)
    axes, coordinates = choose_axes(normals, site_precisions, decided)
    approximate(coordinates, gaps, site_slopes, site_precisions, location[: len(axes)])
    turn, coefficients = choose_axes(coordinates, site_precisions, decided)
    rank = len(turn)
    basis = np.zeros((rank, n_dimensions))
    for i in range(rank):
        for j in range(len(axes)):
            for s in range(n_dimensions):
                basis[i, s] += turn[i, j] * axes[j, s]

    log_mass, error = 0.0, 0.0
    if rank < n_dimensions:  # what no facet depends on has variance 1
        for s in range(n_dimensions):
            spread[s, s] = 1.0
            for t in range(n_dimensions):
                for i in range(rank):
                    spread[s, t] -= basis[i, s] * basis[i, t]
    if rank > 0:
        proposals = Proposals(
            coefficients, gaps, decided, np.empty(rank), np.empty((rank, rank)), np.empty(rank)
        )
        turned_mean, turned_covariance = np.empty(rank), np.zeros((rank, rank))
        for i in range(rank):
            proposals.pull[i] = dot(basis[i], nearest)
            turned_mean[i] = dot(turn[i], location[: len(axes)])
        look_ahead(proposals, site_slopes, site_precisions, turned_mean)
        log_scale = -0.5 * distance * distance - rank * LOG_SQRT_2PI
        log_integral, error = integrate_by_points(
            proposals, region, log_tolerance - log_scale, turned_mean, turned_covariance
        )
        log_mass = log_integral + log_scale
        for i in range(rank):
            for s in range(n_dimensions):
                nearest[s] += turned_mean[i] * basis[i, s]
                for t in range(n_dimensions):
                    for j in range(rank):
                        spread[s, t] += turned_covariance[i, j] * basis[i, s] * basis[j, t]
    _transform(cells.factors[region], center, nearest, spread, mean, covariance)
    return log_mass, error


register_estimate(WhitenedPolytopes, integrate_with_error)
