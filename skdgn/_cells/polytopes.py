"""Cells of a latent space of any dimension, made for four and more: convex polytopes as halfspaces.

Vertices are of no use here: their number explodes with the dimension, and whether two of them are
one cannot be decided in floating point.  All geometry is one question instead, answered by one
small quadratic program (`nearest_point`): which point with ``rows @ x >= bounds`` is nearest to the
origin?

**Splitting.** A cell ``{z : n . z >= o}`` is the slice at height 1 of a cone in one dimension more,
``{(z, h) : n . z - o h >= 0, h >= 0}``.  With rows scaled to unit length, the shortest ``x`` with
``rows @ x >= 1`` points to the centre of the widest ball in the cone, and the ball's radius is
``1 / |x|``, as a share of the distance of its centre from the apex (``sqrt(1 + |z|^2)`` at height
1). What contains no ball of radius `THINNEST_PIECE` counts as empty, and that is all there is to
it: a hyperplane crosses a cell if neither side is empty; a facet is redundant if nothing lies
beyond it and within the others.  Hence the guarantee, whatever the degeneracies (parallel, equal
or concurrent hyperplanes, unbounded cells, cells that contain lines): every piece that contains
such a ball is found, no piece is found twice, none is empty, and what is thinner stays with its
neighbour.  (cddlib in floating point takes 1e-7 for zero, and a hundred times as long.)

**Integrals** are sums over weighted quasi-random points and come with an estimate of their error:
see `integrate_with_error`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skdgn._cells._interface import (
    LOG_NEGLIGIBLE_SHARE,
    THINNEST_PIECE,
    Bools,
    Corners,
    Facets,
    Floats,
    Integers,
    Pieces,
    register_integral,
    register_whitening,
)
from skdgn._cells.intervals import gaussian_integrals
from skdgn._jit import LOG_SQRT_2PI, SQRT_HALF, erfcx, kernel, ndtri

_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)
_TINY = 1e-300

# A row nearer to the span of other rows depends on them: ten times less than what counts as a
# piece, a hundred times more than rounding.
_DEPENDENT = 0.1 * THINNEST_PIECE
# A halfspace is violated by more than this, relative to the terms of its inequality, or not at all.
_ROUNDING = 1e-14
# Each step of the quadratic program adds a row or replaces some: a handful per dimension.  Only
# rounding errors could make it go round in circles.
_MOST_STEPS = 1000

# Within this distance of its nearest point, a cell has all of its mass but 4e-13 in four dimensions
# and 8e-11 in eight: facets farther away do not count.
_REACH = 8.0

# Expectation propagation ends when no site's precision changes by more than this, relative to the
# approximation's, or after so many sweeps.  It only has to give good proposals.
_SITE_CHANGE = 0.01
_MOST_SWEEPS = 50
# A site that cuts off less than 1e-9 is left out.
_NO_CUT = -6.0
# Beyond this distance the asymptotic form of the normal tail is good enough for a site.
_FAR_CUT = 50.0
# Share of the sites' precision that proposals have.  With all of it, their tails would be lighter
# than what they are to stand for.  (Measured: 0.5 to 1 make little difference, less is worse.)
_DAMPING = 0.7

# Closed forms for the truncated normal lose digits farther out than this, and on narrow intervals:
# those for the moments, those for the quantiles.
_TAIL = 5.0
_NARROW = 0.3
_HAIR = 1e-6

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
_MOST_DIMENSIONS = 33


def _make_lattice(n_points: int, n_dimensions: int) -> Floats:
    """List a lattice's points in [0, 1)^d in an order in which the first 2^k form a lattice, too.

    Component by component, the generating vector is chosen that minimises the worst-case error for
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


_POINTS = _make_lattice(_MOST_POINTS, _MOST_DIMENSIONS - 1)
_SHIFTS = np.random.default_rng(0).random((_N_SHIFTS, _MOST_DIMENSIONS - 1))
# Equal shifts in all regions would let their errors add up.
_REGION_STEPS = np.random.default_rng(1).random(_MOST_DIMENSIONS - 1)


class WhitenedPolytopes(NamedTuple):
    """Polytopes in coordinates in which each region's conditional covariance is the identity."""

    start: Integers  # (R + 1,)
    normals: Floats  # (F, S)
    offsets: Floats  # (F,)
    factors: Floats  # (R, S, S)


@dataclass(frozen=True)
class Polytopes:
    """Convex polytopes; the facets of cell r are ``start[r]:start[r + 1]``."""

    start: Integers
    normals: Floats  # (F, S) inward, unit length
    offsets: Floats  # (F,)

    @classmethod
    def whole_space(cls, n_dimensions: int) -> Polytopes:
        """Return one cell: all of space."""
        if not 1 <= n_dimensions <= _MOST_DIMENSIONS:
            raise ValueError(
                f"polytopes need 1 to {_MOST_DIMENSIONS} latent dimensions, got {n_dimensions}."
            )
        return cls(np.zeros(2, dtype=np.intp), np.empty((0, n_dimensions)), np.empty(0))

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, indices: Integers) -> Polytopes:
        """Return the cells with these indices."""
        indices = np.asarray(indices, dtype=np.intp)
        sizes = self.start[indices + 1] - self.start[indices]
        start = np.concatenate([[0], np.cumsum(sizes)])
        members = np.arange(start[-1]) + np.repeat(self.start[indices] - start[:-1], sizes)
        return Polytopes(start, self.normals[members], self.offsets[members])

    def split(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut cell r by the hyperplane ``gradients[r] @ z + values[r] = 0``."""
        has_positive, has_negative = _find_sides(
            self.start, self.normals, self.offsets, gradients, values
        )
        crossed = has_positive & has_negative
        parents = np.repeat(np.arange(len(self)), 1 + crossed)
        positive = has_positive[parents]
        positive[1:] &= parents[1:] != parents[:-1]  # of two pieces, the second is negative
        start, normals, offsets = _cut(
            self.start, self.normals, self.offsets, gradients, values, parents, positive, crossed
        )
        return Pieces(Polytopes(start, normals, offsets), parents, positive)

    def facets(self) -> Facets:
        """List the facets of every polytope."""
        return Facets(self.start, self.normals, self.offsets)

    def corners(self) -> Corners:
        """List no vertices: all polytopes count as unbounded."""
        return Corners(np.zeros(len(self) + 1, dtype=np.intp), np.empty((0, self.normals.shape[1])))

    def interior_points(self) -> Floats:
        """Return the centre of the widest ball in every polytope."""
        return _interior_points(self.start, self.normals, self.offsets)

    def whiten(self, factors: Floats) -> WhitenedPolytopes:
        """Express cell r in coordinates y with ``z = factors[r] @ y``."""
        regions = np.repeat(np.arange(len(self)), np.diff(self.start))
        normals = np.einsum("fts,ft->fs", factors[regions], self.normals)
        lengths = np.linalg.norm(normals, axis=1)
        return WhitenedPolytopes(
            self.start,
            normals / lengths[:, None],
            self.offsets / lengths,
            np.ascontiguousarray(factors),
        )


@kernel
def _dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for s in range(x.size):
        total += x[s] * y[s]
    return total


@kernel
def _orthogonalize(
    row: Floats, basis: Floats, n_basis: int, coordinates: Floats, across: Floats
) -> float:
    """Write row = ``coordinates @ basis[:n_basis] + across``; return the length of the latter."""
    for s in range(row.size):
        across[s] = row[s]
    for i in range(n_basis):
        coordinates[i] = 0.0
    for _ in range(2):  # the second time removes what rounding left
        for i in range(n_basis):
            along = _dot(basis[i], across)
            coordinates[i] += along
            for s in range(row.size):
                across[s] -= along * basis[i, s]
    return math.sqrt(_dot(across, across))


@kernel
def nearest_point(
    rows: Floats, bounds: Floats, farthest: float, point: Floats, multipliers: Floats
) -> float:
    """Find the point with ``rows @ point >= bounds`` that is nearest to the origin.

    Goldfarb and Idnani's dual method: start at the origin, step to the most violated
    halfspace, keep those that hold the point where it is.  The distance grows with each step, so
    the search can end as soon as it is too large.

    Parameters
    ----------
    rows : ndarray of shape (k, n)
        Unit normals of the halfspaces.
    bounds : ndarray of shape (k,)
    farthest : float
        Largest distance of interest.
    point, multipliers : ndarray of shape (n,) and (k,)
        Filled with the point and with numbers >= 0 such that ``point = multipliers @ rows``;
        those of halfspaces with the point in their interior are zero.

    Returns
    -------
    distance : float
        Infinite if there is no such point, or none as near as ``farthest``.

    References
    ----------
    Goldfarb and Idnani, *A numerically stable dual method for solving strictly convex quadratic
    programs*, 1983.
    """
    n_rows, n = rows.shape
    active = np.empty(n, dtype=np.intp)
    weights = np.empty(n)  # multipliers of the active rows
    basis = np.empty((n, n))  # active rows, orthogonalised: row i is triangle[i, :i + 1] @ basis
    triangle = np.empty((n, n))
    along, across = np.empty(n), np.empty(n)
    n_active = 0
    for s in range(n):
        point[s] = 0.0
    for k in range(n_rows):
        multipliers[k] = 0.0
    distance = 0.0
    for _ in range(_MOST_STEPS):
        distance = math.sqrt(_dot(point, point))
        if distance > farthest:
            return math.inf
        violation, entering = 0.0, -1
        for k in range(n_rows):
            missing = bounds[k] - _dot(rows[k], point)
            if missing > max(violation, _ROUNDING * (abs(bounds[k]) + distance)):
                violation, entering = missing, k
        if entering < 0:
            break
        weight = 0.0
        while True:
            # Moving the point along the row's part across the active rows keeps it on these; their
            # multipliers then change by minus the row's coordinates in terms of them.
            length = _orthogonalize(rows[entering], basis, n_active, along, across)
            independent = length > _DEPENDENT and n_active < n
            if independent:
                for i in range(n_active):
                    triangle[n_active, i] = along[i]
                triangle[n_active, n_active] = length
            for i in range(n_active - 1, -1, -1):
                for j in range(i + 1, n_active):
                    along[i] -= triangle[j, i] * along[j]
                along[i] /= triangle[i, i]
            step, leaving = math.inf, -1
            if independent:
                step = violation / (length * length)
            for i in range(n_active):
                if along[i] > 0.0 and weights[i] < step * along[i]:
                    step, leaving = weights[i] / along[i], i
            if step == math.inf:
                return math.inf
            weight += step
            for i in range(n_active):
                weights[i] -= step * along[i]
            if independent:
                violation -= step * length * length
                for s in range(n):
                    point[s] += step * across[s]
            if leaving < 0:
                active[n_active], weights[n_active] = entering, weight
                for s in range(n):
                    basis[n_active, s] = across[s] / length
                n_active += 1
                break
            # A multiplier has become zero: its row holds the point no longer.
            n_active -= 1
            for i in range(leaving, n_active):
                active[i], weights[i] = active[i + 1], weights[i + 1]
                length = _orthogonalize(rows[active[i]], basis, i, triangle[i], across)
                triangle[i, i] = length
                for s in range(n):
                    basis[i, s] = across[s] / length
    for i in range(n_active):
        multipliers[active[i]] = weights[i]
    return distance


@kernel
def _fill_row(row: Floats, normal: Floats, offset: float, sign: float) -> None:
    """Write the halfspace ``sign * (normal . z - offset) >= 0`` as a unit row of the cone."""
    scale = sign / math.sqrt(1.0 + offset * offset)
    for s in range(normal.size):
        row[s] = scale * normal[s]
    row[normal.size] = -scale * offset


@kernel
def _fill_cone(normals: Floats, offsets: Floats, rows: Floats) -> None:
    """Fill the rows of a cell's cone: the height, then the facets."""
    n_dimensions = normals.shape[1]
    for s in range(n_dimensions):
        rows[0, s] = 0.0
    rows[0, n_dimensions] = 1.0
    for k in range(offsets.size):
        _fill_row(rows[k + 1], normals[k], offsets[k], 1.0)


@kernel
def _widest_ball(rows: Floats, center: Floats) -> float:
    """Radius of the widest ball ``rows @ x >= radius`` about a unit vector; 0 if it is too small.

    Fills the centre, not scaled.
    """
    reach = nearest_point(
        rows, np.ones(len(rows)), 1.0 / THINNEST_PIECE, center, np.empty(len(rows))
    )
    return 1.0 / reach


@kernel
def _largest_size(start: Integers) -> int:
    largest = 0
    for r in range(start.size - 1):
        largest = max(largest, start[r + 1] - start[r])
    return largest


@kernel
def _interior_points(start: Integers, normals: Floats, offsets: Floats) -> Floats:
    n_cells, n_dimensions = start.size - 1, normals.shape[1]
    cone = np.empty((_largest_size(start) + 1, n_dimensions + 1))
    center = np.empty(n_dimensions + 1)
    points = np.empty((n_cells, n_dimensions))
    for r in range(n_cells):
        rows = cone[: start[r + 1] - start[r] + 1]
        _fill_cone(normals[start[r] : start[r + 1]], offsets[start[r] : start[r + 1]], rows)
        _widest_ball(rows, center)
        for s in range(n_dimensions):
            points[r, s] = center[s] / center[n_dimensions]
    return points


@kernel
def _find_sides(
    start: Integers, normals: Floats, offsets: Floats, gradients: Floats, values: Floats
) -> tuple[Bools, Bools]:
    """Tell which sides of its cut each cell has points on: one of them, or both."""
    n_cells, n_dimensions = gradients.shape
    cone = np.empty((_largest_size(start) + 2, n_dimensions + 1))
    center = np.empty(n_dimensions + 1)
    has_positive = np.empty(n_cells, dtype=np.bool_)
    has_negative = np.empty(n_cells, dtype=np.bool_)
    for r in range(n_cells):
        if _dot(gradients[r], gradients[r]) == 0.0:
            has_positive[r] = values[r] > 0.0
            has_negative[r] = not has_positive[r]
            continue
        last = start[r + 1] - start[r] + 1
        rows = cone[: last + 1]
        _fill_cone(normals[start[r] : start[r + 1]], offsets[start[r] : start[r + 1]], rows)
        _fill_row(rows[last], gradients[r], -values[r], 1.0)
        has_positive[r] = _widest_ball(rows, center) > 0.0
        _fill_row(rows[last], gradients[r], -values[r], -1.0)
        has_negative[r] = _widest_ball(rows, center) > 0.0
        if not (has_positive[r] or has_negative[r]):
            # The cell is hardly wider than what counts as empty: it is where its middle is.
            _widest_ball(rows[:last], center)
            has_positive[r] = _dot(rows[last], center) < 0.0
            has_negative[r] = not has_positive[r]
    return has_positive, has_negative


@kernel
def _cut(
    start: Integers,
    normals: Floats,
    offsets: Floats,
    gradients: Floats,
    values: Floats,
    parents: Integers,
    positive: Bools,
    crossed: Bools,
) -> tuple[Integers, Floats, Floats]:
    """List the facets of every piece: of the parent's those that are not redundant, and the cut."""
    n_pieces, n_dimensions = parents.size, normals.shape[1]
    most_facets = 0
    for i in range(n_pieces):
        most_facets += start[parents[i] + 1] - start[parents[i]] + 1
    new_start = np.zeros(n_pieces + 1, dtype=np.intp)
    new_normals = np.empty((most_facets, n_dimensions))
    new_offsets = np.empty(most_facets)
    cone = np.empty((_largest_size(start) + 2, n_dimensions + 1))
    center = np.empty(n_dimensions + 1)
    n_facets = 0
    for i in range(n_pieces):
        r = parents[i]
        sign = 1.0 if positive[i] else -1.0
        n_rows = start[r + 1] - start[r] + 2
        if crossed[r]:
            _fill_cone(normals[start[r] : start[r + 1]], offsets[start[r] : start[r + 1]], cone[1:])
            _fill_row(cone[0], gradients[r], -values[r], sign)
        k = 2  # rows before are the cut, the height and the facets found so far
        for f in range(start[r], start[r + 1]):
            if crossed[r]:
                # A facet is redundant if nothing is left beyond it and within the others.
                _fill_row(cone[k], normals[f], offsets[f], -1.0)
                if _widest_ball(cone[:n_rows], center) == 0.0:
                    n_rows -= 1
                    for j in range(k, n_rows):
                        for s in range(n_dimensions + 1):
                            cone[j, s] = cone[j + 1, s]
                    continue
                _fill_row(cone[k], normals[f], offsets[f], 1.0)
                k += 1
            for s in range(n_dimensions):
                new_normals[n_facets, s] = normals[f, s]
            new_offsets[n_facets] = offsets[f]
            n_facets += 1
        if crossed[r]:
            for s in range(n_dimensions):
                new_normals[n_facets, s] = sign * gradients[r, s]
            new_offsets[n_facets] = -sign * values[r]
            n_facets += 1
        new_start[i + 1] = n_facets
    return new_start, new_normals[:n_facets].copy(), new_offsets[:n_facets].copy()


class _Proposals(NamedTuple):
    """How to draw points of a cell, coordinate after coordinate.

    Coordinates are displacements v from the cell's nearest point, along an orthonormal basis.
    Facet k is ``coefficients[k] @ v >= -gaps[k]``; its coefficients beyond ``decided[k]`` are
    zero. The Gaussian is ``exp(-pull @ v - v @ v / 2)``, up to a factor; coordinate i is drawn
    from ``exp(slope v[i] - precisions[i] v[i]^2 / 2)``, ``slope = slopes[i, :i] @ v[:i] +
    slopes[i, i]``, truncated to the facets that it decides.
    """

    coefficients: Floats  # (k, d)
    gaps: Floats  # (k,)
    decided: Integers  # (k,)
    pull: Floats  # (d,)
    slopes: Floats  # (d, d)
    precisions: Floats  # (d,)


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
def _approximate(
    normals: Floats,
    gaps: Floats,
    slopes: Floats,
    precisions: Floats,
    location: Floats,
) -> None:
    """Approximate a truncated Gaussian by expectation propagation.

    The density is ``exp(-p . v - v . v / 2)`` where all ``normals @ v >= -gaps``.  Each of the
    halfspaces is replaced by ``exp(slope t - precision t^2 / 2)`` of its ``t = normal . v`` (its
    *site*) such that mean and variance of ``t`` do not change when any one site is replaced by
    its halfspace.

    Parameters
    ----------
    normals, gaps : ndarray of shape (k, S) and (k,)
    slopes, precisions : ndarray of shape (k,)
        The sites.  On entry, slopes are the multipliers of the nearest point, ``p = slopes @
        normals``, which is what they are in the far tail; precisions need no value.
    location : ndarray of shape (S,)
        Filled with the mean of the approximation.
    """
    n_facets, n_dimensions = normals.shape
    spread = np.zeros((n_dimensions, n_dimensions))  # covariance
    product = np.empty(n_dimensions)
    for s in range(n_dimensions):
        location[s] = 0.0
        spread[s, s] = 1.0
    for k in range(n_facets):
        precisions[k] = 0.0
    for _ in range(_MOST_SWEEPS):
        largest_change = 0.0
        for k in range(n_facets):
            for s in range(n_dimensions):
                product[s] = _dot(spread[s], normals[k])
            mean, variance = _dot(location, normals[k]), _dot(product, normals[k])
            # Without this site ...
            precision = 1.0 / variance - precisions[k]
            if not precision > 0.0:
                continue  # rounding
            slope = mean / variance - slopes[k]
            deviation = 1.0 / math.sqrt(precision)
            # ... but with its halfspace.
            cut = (-gaps[k] - slope / precision) / deviation
            new_slope, new_precision = 0.0, 0.0
            if cut > _NO_CUT:
                excess, share = _truncate(cut)
                new_precision = max(0.0, precision / share - precision)
                new_slope = (excess * deviation - gaps[k]) * (precision + new_precision) - slope
            change = new_precision - precisions[k]
            shift = new_slope - slopes[k] - change * mean
            precisions[k], slopes[k] = new_precision, new_slope
            scale = 1.0 / (1.0 + change * variance)
            largest_change = max(largest_change, abs(change) * variance)
            for s in range(n_dimensions):
                location[s] += scale * shift * product[s]
                for t in range(n_dimensions):
                    spread[s, t] -= scale * change * product[s] * product[t]
        if largest_change < _SITE_CHANGE:
            break


@kernel
def _truncate(cut: float) -> tuple[float, float]:
    """Mean beyond the cut and variance of the standard normal truncated to [cut, inf)."""
    if cut > _FAR_CUT:
        return 1.0 / cut, 1.0 / (cut * cut)
    hazard = 1.0 / (_SQRT_HALF_PI * erfcx(cut * SQRT_HALF))
    return hazard - cut, 1.0 - hazard * (hazard - cut)


@kernel
def _choose_axes(normals: Floats, urgencies: Floats, decided: Integers) -> tuple[Floats, Floats]:
    """Orthogonalise the normals of the facets, the most urgent first.

    Returns orthonormal axes, as many as the facets depend on, and the coefficients of the normals
    along them; fills the last axis that each facet depends on.
    """
    n_facets, n_dimensions = normals.shape
    axes = np.empty((n_dimensions, n_dimensions))
    coefficients = np.zeros((n_facets, n_dimensions))
    rest = normals.copy()
    scratch = np.empty(n_dimensions)
    for k in range(n_facets):
        decided[k] = -1
    rank = 0
    while rank < n_dimensions:
        most, chosen = -1.0, -1
        for k in range(n_facets):
            score = urgencies[k] * math.sqrt(_dot(rest[k], rest[k]))
            if decided[k] < 0 and score > most:
                most, chosen = score, k
        if chosen < 0:
            break
        length = _orthogonalize(normals[chosen], axes, rank, scratch, axes[rank])
        for s in range(n_dimensions):
            axes[rank, s] /= length
        for k in range(n_facets):
            if decided[k] < 0:
                along = _dot(axes[rank], normals[k])
                coefficients[k, rank] = along
                for s in range(n_dimensions):
                    rest[k, s] -= along * axes[rank, s]
                if k == chosen or _dot(rest[k], rest[k]) < _DEPENDENT * _DEPENDENT:
                    decided[k] = rank
        rank += 1
    for k in range(n_facets):
        if decided[k] < 0:
            decided[k] = rank - 1
    return axes[:rank].copy(), coefficients[:, :rank].copy()


@kernel
def _look_ahead(
    proposals: Any, site_slopes: Floats, site_precisions: Floats, location: Floats
) -> None:
    """Fill slopes and precisions of the proposals.

    A coordinate is drawn within the facets that it decides.  Those decided later are represented by
    their sites, and the coordinates drawn later are integrated out.
    """
    n_facets, rank = proposals.coefficients.shape
    matrix = np.empty((rank, rank))
    vector = np.empty(rank)
    for i in range(rank):
        for a in range(rank):
            vector[a] = -proposals.pull[a]
            for b in range(rank):
                matrix[a, b] = 1.0 if a == b else 0.0
        for k in range(n_facets):
            if proposals.decided[k] > i:
                for a in range(rank):
                    along = proposals.coefficients[k, a]
                    vector[a] += site_slopes[k] * along
                    for b in range(rank):
                        matrix[a, b] += site_precisions[k] * along * proposals.coefficients[k, b]
        for last in range(rank - 1, i, -1):
            for a in range(last):
                ratio = matrix[a, last] / matrix[last, last]
                vector[a] -= ratio * vector[last]
                for b in range(last):
                    matrix[a, b] -= ratio * matrix[last, b]
        # Less curvature, with the same slope at the mean.
        removed = (1.0 - _DAMPING) * (matrix[i, i] - 1.0)
        proposals.precisions[i] = max(1.0, matrix[i, i] - removed)  # but for rounding
        proposals.slopes[i, i] = vector[i] - removed * location[i]
        for a in range(i):
            proposals.slopes[i, a] = -matrix[i, a]


@kernel
def _quantile(lower: float, upper: float, uniform: float) -> float:
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
def _bounds_along(proposals: Any, i: int, reach: Floats) -> tuple[float, float]:
    """Range of a coordinate within the facets that it decides, given their ``reach``."""
    lower, upper = -_REACH, _REACH
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
def _integrate_along(
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


@kernel
def _draw_coordinate(proposals: Any, draw: Any, i: int, uniform: float, log_weight: float) -> float:
    """Draw coordinate i, given those before it and their log weight; return the new log weight.

    The last coordinate is not drawn but integrated: it becomes its mean.
    """
    rank = draw.point.size
    lower, upper = _bounds_along(proposals, i, draw.reach[i])
    slope, precision = proposals.slopes[i, i], proposals.precisions[i]
    for a in range(i):
        slope += proposals.slopes[i, a] * draw.point[a]
    log_integral, anchor, excess, variance = _integrate_along(lower, upper, slope, precision)
    log_weight += log_integral
    draw.means[i] = anchor + excess
    draw.variances[i] = variance
    if i == rank - 1 or log_weight == -math.inf:
        draw.point[i] = draw.means[i]
        return log_weight
    root = math.sqrt(precision)
    v = anchor + _quantile(root * lower - slope / root, root * upper - slope / root, uniform) / root
    draw.point[i] = v
    for k in range(proposals.gaps.size):
        draw.reach[i + 1, k] = draw.reach[i, k] + proposals.coefficients[k, i] * v
    return log_weight - v * (slope + proposals.pull[i] + 0.5 * (1.0 - precision) * v)


@kernel
def _draw_coordinates(
    proposals: Any, draw: Any, begin: int, end: int, uniforms: Floats, log_weight: float
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
def _add_point(sums: Any, location: Floats, draw: Any, n_drawn: int, weight: float) -> None:
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
def _add_moment(sums: Any, m: int, weight: float, value: float, control: float) -> None:
    sums.moments[m] += weight * value
    sums.controls[m] += control
    sums.products[m] += weight * value * control
    sums.squares[m] += control * control


@kernel
def _rescale(sums: Any, factor: float) -> None:
    """Change the scale of weights."""
    for shift in range(sums.totals.size):
        sums.totals[shift] *= factor
    for m in range(sums.moments.size):
        sums.moments[m] *= factor
        sums.products[m] *= factor


@kernel
def _moment(sums: Any, m: int, n_points: int) -> float:
    """Mean of a weighted moment, less what its control explains of its error (a regression)."""
    mean = sums.moments[m] / n_points
    control = sums.controls[m] / n_points
    variance = sums.squares[m] / n_points - control * control
    if variance > 0.0:
        mean -= control * (sums.products[m] / n_points - mean * control) / variance
    return mean


@kernel
def _integrate_by_points(
    proposals: Any, region: int, log_tolerance: float, mean: Floats, covariance: Floats
) -> tuple[float, float]:
    """Integrate ``exp(-pull @ v - v @ v / 2)`` over the cell by weighted points.

    Fills mean and covariance of v; returns the log of the integral and its relative error.
    """
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


@kernel
def _facets_within_reach(
    normals: Floats, bounds: Floats, nearest: Floats, multipliers: Floats
) -> tuple[Floats, Floats, Floats]:
    """Facets near the nearest point: their normals, distances from the point, multipliers."""
    n_near = 0
    near_normals, gaps = np.empty_like(normals), np.empty_like(bounds)
    near_multipliers = np.empty_like(bounds)
    for k in range(bounds.size):
        gap = max(0.0, _dot(normals[k], nearest) - bounds[k])
        if multipliers[k] > 0.0:
            gap = 0.0
        if gap < _REACH:
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
        mean[s] = _dot(factor[s], origin) + _dot(factor[s], shift)
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
    Sequential conditioning: in coordinates along the facets' orthogonalised normals, draw one after
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
    facets = slice(cells.start[region], cells.start[region + 1])
    normals, bounds = cells.normals[facets], cells.offsets[facets].copy()
    for k in range(bounds.size):
        bounds[k] -= _dot(normals[k], center)
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
    axes, coordinates = _choose_axes(normals, site_precisions, decided)
    _approximate(coordinates, gaps, site_slopes, site_precisions, location[: len(axes)])
    turn, coefficients = _choose_axes(coordinates, site_precisions, decided)
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
        proposals = _Proposals(
            coefficients, gaps, decided, np.empty(rank), np.empty((rank, rank)), np.empty(rank)
        )
        turned_mean, turned_covariance = np.empty(rank), np.zeros((rank, rank))
        for i in range(rank):
            proposals.pull[i] = _dot(basis[i], nearest)
            turned_mean[i] = _dot(turn[i], location[: len(axes)])
        _look_ahead(proposals, site_slopes, site_precisions, turned_mean)
        log_scale = -0.5 * distance * distance - rank * LOG_SQRT_2PI
        log_integral, error = _integrate_by_points(
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


@kernel
def polytope_error(cells: Any, region: int, center: Floats) -> float:
    """Relative standard error of the mass of N(center, I) on a whitened polytope."""
    n_dimensions = center.size
    mean, covariance = np.empty(n_dimensions), np.empty((n_dimensions, n_dimensions))
    return integrate_with_error(cells, region, center, -math.inf, mean, covariance)[1]


@kernel
def _integrate_polytope(
    cells: Any, region: int, center: Floats, log_tolerance: float, mean: Floats, covariance: Floats
) -> float:
    return integrate_with_error(cells, region, center, log_tolerance, mean, covariance)[0]


register_integral(WhitenedPolytopes, _integrate_polytope)


@kernel
def _make_room(cells: Any) -> Any:
    most_facets, n_dimensions = _largest_size(cells.start), cells.normals.shape[1]
    return WhitenedPolytopes(
        np.zeros(2, dtype=np.intp),
        np.empty((most_facets, n_dimensions)),
        np.empty(most_facets),
        np.empty((1, n_dimensions, n_dimensions)),
    )


@kernel
def _whiten_polytope(cells: Any, region: int, factor: Floats, room: Any) -> None:
    n_dimensions = len(factor)
    first = cells.start[region]
    room.start[1] = cells.start[region + 1] - first
    for k in range(room.start[1]):
        square = 0.0
        for s in range(n_dimensions):
            room.normals[k, s] = 0.0
            for t in range(n_dimensions):
                room.normals[k, s] += factor[t, s] * cells.normals[first + k, t]
            square += room.normals[k, s] * room.normals[k, s]
        length = math.sqrt(square)
        for s in range(n_dimensions):
            room.normals[k, s] /= length
        room.offsets[k] = cells.offsets[first + k] / length
    for s in range(n_dimensions):
        for t in range(n_dimensions):
            room.factors[0, s, t] = factor[s, t]


register_whitening(WhitenedPolytopes, _make_room, _whiten_polytope)
