"""Visits for rows with holes, each with a posterior covariance of its own.

What `skdgn._conditionals` prepares for all regions depends on which features were observed.  Here
it is computed for one row and one region at a time, when it is needed: a QR decomposition of
``[I; A~_o]``, with the observed part of the row as one more column, gives factor, conditional mean
and quadratic form at once.  Groups of regions are dismissed by boxes along the features: the
distance from such a box is known for any subset of them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skdgn._cells import Cells, Facets, integrate_cell_with_error, make_room, whiten_cell
from skdgn._groups import Groups, cut_corners
from skdgn._jit import LOG_SQRT_2PI, kernel
from skdgn._missing import (
    Holes,
    Integers,
    NoiseUnits,
    find_holes,
    log_deviation,
    make_holes,
    whiten_observed,
)
from skdgn._network import Floats
from skdgn._noise import Noise
from skdgn._partition import Partition
from skdgn._visits import (
    LARGE,
    LOG_ESTIMATE_ERROR,
    LOG_SMALLEST_ESTIMATE,
    NEGLIGIBLE,
    ROUNDING,
    SEARCH_MARGIN,
    Visits,
    collect_visits,
    loop_settings,
    normalize_shares,
    sort_candidates,
    sum_kernel,
)


class RegionMaps(NamedTuple):
    """Affine maps of all regions, in units of the noise deviations, and their facets."""

    slopes: Floats  # (R, D, S)
    offsets: Floats  # (R, D)
    facets: Facets


class Boxes(NamedTuple):
    """Boxes along the features around the images of regions, and of groups of them.

    Groups form the tree of `skdgn._groups`; region r follows as entry ``2 n_leaves + r``.
    """

    n_leaves: int
    start: Integers
    regions: Integers
    lower: Floats  # (2 n_leaves + R, D)
    upper: Floats
    squares: Floats  # (2 n_leaves + R,) what was cut off counts as if at this squared distance
    largest_spread: float  # of the noise, in units of its deviations


def enclose_regions(partition: Partition, maps: RegionMaps, groups: Groups, spread: float) -> Boxes:
    """Find the boxes around the images of all regions and groups."""
    corners, squares = cut_corners(partition.cells)
    n_regions, n_features = maps.offsets.shape
    n_nodes = 2 * groups.n_leaves
    owner = np.repeat(np.arange(n_regions), np.diff(corners.start))
    images = maps.offsets[owner] + np.einsum("pds,ps->pd", maps.slopes[owner], corners.points)
    lower = np.full((n_nodes + n_regions, n_features), np.inf)
    upper = np.full((n_nodes + n_regions, n_features), -np.inf)
    some = np.flatnonzero(np.diff(corners.start))
    if some.size > 0:
        lower[n_nodes + some] = np.minimum.reduceat(images, corners.start[some])
        upper[n_nodes + some] = np.maximum.reduceat(images, corners.start[some])
    all_squares = np.concatenate([np.full(n_nodes, np.inf), squares])
    first = n_nodes + groups.regions
    leaves = slice(groups.n_leaves, n_nodes)
    lower[leaves] = np.minimum.reduceat(lower[first], groups.start[:-1])
    upper[leaves] = np.maximum.reduceat(upper[first], groups.start[:-1])
    all_squares[leaves] = np.minimum.reduceat(all_squares[first], groups.start[:-1])
    n_parents = groups.n_leaves // 2
    while n_parents > 0:
        children = slice(2 * n_parents, 4 * n_parents)
        parents = slice(n_parents, 2 * n_parents)
        shape = (n_parents, 2, n_features)
        lower[parents] = lower[children].reshape(shape).min(axis=1)
        upper[parents] = upper[children].reshape(shape).max(axis=1)
        all_squares[parents] = all_squares[children].reshape(shape[:2]).min(axis=1)
        n_parents //= 2
    return Boxes(groups.n_leaves, groups.start, groups.regions, lower, upper, all_squares, spread)


class IncompleteVisitor(NamedTuple):
    """All that is needed to visit the regions of a partition for rows with holes."""

    units: NoiseUnits
    maps: RegionMaps
    boxes: Boxes
    cells: Any  # whitened with identity matrices

    @classmethod
    def prepare(cls, partition: Partition, noise: Noise, groups: Groups) -> IncompleteVisitor:
        """Compute what depends neither on the rows nor on their holes."""
        units = NoiseUnits.of(noise)
        maps = RegionMaps(
            np.ascontiguousarray(partition.maps.slopes / units.deviations[:, None]),
            np.ascontiguousarray(partition.maps.offsets / units.deviations),
            partition.cells.facets(),
        )
        boxes = enclose_regions(partition, maps, groups, units.largest_spread)
        return cls(units, maps, boxes, _in_latent_coordinates(partition.cells, maps.slopes.shape))

    def visit(self, rows: Floats) -> Visits:
        """Compute the exact posterior of rows (n, D), given their observed entries."""
        rows = np.ascontiguousarray(rows)
        n_regions, _, n_components = self.maps.slopes.shape
        axes, log_share_error = loop_settings(n_components)
        visits = collect_visits(
            lambda first, visits: _visit_rows(
                rows,
                axes,
                self.units,
                self.maps,
                self.boxes,
                self.cells,
                log_share_error,
                first,
                visits,
            ),
            len(rows),
            n_regions,
            n_components,
        )
        # Nothing observed: the prior masses sum to one, but for rounding.
        is_empty = np.isnan(rows).all(axis=1)
        visits.log_density[is_empty] = 0.0
        visits.log_density_error[is_empty] = 0.0
        return visits

    def condition(self, rows: Floats, visits: Visits) -> tuple[Floats, Floats]:
        """Compute the conditional Gaussian of every visit: factors (v, S, S), centers (v, S).

        Truncated to its region, N(factor @ center, factor @ factor') is the posterior there.  Rows
        (n, D) may be complete, too.
        """
        n_components = self.maps.slopes.shape[2]
        factors = np.empty((len(visits.regions), n_components, n_components))
        centers = np.empty((len(visits.regions), n_components))
        _condition_visits(
            np.ascontiguousarray(rows),
            loop_settings(n_components)[0],
            self.units,
            self.maps,
            visits.start,
            visits.regions,
            factors,
            centers,
        )
        return factors, centers


def _in_latent_coordinates(cells: Cells, shape: tuple[int, ...]) -> Any:
    n_regions, _, n_components = shape
    identity = np.broadcast_to(np.eye(n_components), (n_regions, n_components, n_components))
    return cells.whiten(np.ascontiguousarray(identity))


class _Candidates(NamedTuple):
    """Regions that may matter for a row, and groups where there may be more of them."""

    regions: Integers
    evidences: Floats  # logs
    bounds: Floats  # on the log shares
    factors: Floats  # (k, S, S) of the conditional covariances
    centers: Floats  # (k, S) whitened conditional means
    order: Integers  # in which they are visited
    nodes: Integers
    node_bounds: Floats


class _Row(NamedTuple):
    """The observed part of a row, and room for its QR decompositions."""

    scaled: Floats  # (D,) observed values first, in units of the noise deviations
    whitened: Floats  # (D,) the same, multiplied by L_oo^-1
    columns: Floats  # (S, S + D) columns of [I; A~_o]
    remainder: Floats  # (S + D,) [0; x~_o - b~_o], then what the columns do not explain
    triangle: Floats  # (S, S)


@kernel
def make_candidates(n_regions: int, n_components: int, n_nodes: int) -> _Candidates:
    """Make room for all regions."""
    return _Candidates(
        np.empty(n_regions, dtype=np.intp),
        np.empty(n_regions),
        np.empty(n_regions),
        np.empty((n_regions, n_components, n_components)),
        np.empty((n_regions, n_components)),
        np.empty(n_regions, dtype=np.intp),
        np.empty(n_nodes, dtype=np.intp),
        np.empty(n_nodes),
    )


@kernel
def make_row(n_components: int, n_features: int) -> _Row:
    """Make room for a row."""
    return _Row(
        np.empty(n_features),
        np.empty(n_features),
        np.empty((n_components, n_components + n_features)),
        np.empty(n_components + n_features),
        np.empty((n_components, n_components)),
    )


@kernel
def read_row(values: Floats, units: NoiseUnits, holes: Holes, row: _Row) -> tuple[int, float]:
    """Whiten what was observed; return how much that is, and the log constant of its density."""
    n_observed = find_holes(values, units, holes)
    for i in range(n_observed):
        d = holes.order[i]
        row.scaled[i] = values[d] / units.deviations[d]
        row.whitened[i] = row.scaled[i]
    whiten_observed(holes, n_observed, row.whitened)
    return n_observed, -n_observed * LOG_SQRT_2PI - log_deviation(units, holes, n_observed)


@sum_kernel
def condition_region(
    region: int,
    axes: Any,
    n_observed: int,
    maps: RegionMaps,
    holes: Holes,
    row: _Row,
    factor: Floats,
    center: Floats,
) -> tuple[float, float]:
    """Condition one region's map on the observed part of a row.

    Fills in factor (S, S) and whitened mean (S,) of the conditional Gaussian.  Returns the
    quadratic form, from the residual, and the log determinant of the factor.
    """
    n_components = len(axes)
    slopes, offsets = maps.slopes, maps.offsets
    order, correlated = holes.order, holes.factor
    whitened, columns, remainder = row.whitened, row.columns, row.remainder
    triangle = row.triangle
    for s in range(n_components):
        remainder[s] = 0.0
        for t in range(n_components):
            columns[s, t] = 1.0 if s == t else 0.0
    for i in range(n_observed):
        d = order[i]
        remainder[n_components + i] = offsets[region, d]
        for s in range(n_components):
            columns[s, n_components + i] = slopes[region, d, s]
    if correlated.size > 0:
        for i in range(n_observed):
            scale = 1.0 / correlated[i, i]
            rest = remainder[n_components + i]
            for j in range(i):
                rest -= correlated[i, j] * remainder[n_components + j]
            remainder[n_components + i] = rest * scale
            for s in range(n_components):
                rest = columns[s, n_components + i]
                for j in range(i):
                    rest -= correlated[i, j] * columns[s, n_components + j]
                columns[s, n_components + i] = rest * scale
    for i in range(n_observed):
        remainder[n_components + i] = whitened[i] - remainder[n_components + i]

    # Modified Gram-Schmidt, the row as the last column: as accurate as reflections.
    log_determinant = 0.0
    size = n_components + n_observed
    for s in range(n_components):
        square = 0.0
        for i in range(size):
            square += columns[s, i] * columns[s, i]
        length = math.sqrt(square)
        triangle[s, s] = length
        log_determinant -= math.log(length)
        scale = 1.0 / length
        for i in range(size):
            columns[s, i] *= scale
        for t in range(s + 1, n_components):
            along = 0.0
            for i in range(size):
                along += columns[s, i] * columns[t, i]
            triangle[s, t] = along
            for i in range(size):
                columns[t, i] -= along * columns[s, i]
        along = 0.0
        for i in range(size):
            along += columns[s, i] * remainder[i]
        center[s] = along
        for i in range(size):
            remainder[i] -= along * columns[s, i]
    square = 0.0
    for i in range(size):
        square += remainder[i] * remainder[i]

    # The factor is the inverse of the triangle.
    for t in range(n_components):
        for s in range(n_components):
            factor[s, t] = 0.0
        factor[t, t] = 1.0 / triangle[t, t]
        for s in range(t - 1, -1, -1):
            rest = 0.0
            for u in range(s + 1, t + 1):
                rest -= triangle[s, u] * factor[u, t]
            factor[s, t] = rest / triangle[s, s]
    return square, log_determinant


@kernel
def _condition_visits(
    rows: Floats,
    axes: Any,
    units: NoiseUnits,
    maps: RegionMaps,
    start: Integers,
    regions: Integers,
    factors: Floats,
    centers: Floats,
) -> None:
    holes, row = make_holes(units), make_row(len(axes), rows.shape[1])
    for n in range(len(rows)):
        n_observed, _ = read_row(rows[n], units, holes, row)
        for v in range(start[n], start[n + 1]):
            condition_region(regions[v], axes, n_observed, maps, holes, row, factors[v], centers[v])


@sum_kernel
def _bound_box(boxes: Boxes, box: int, n_observed: int, order: Integers, scaled: Floats) -> float:
    """Bound the squared distance of a row from whatever a box contains, from below."""
    square = 0.0
    size = 0.0
    for i in range(n_observed):
        d = order[i]
        below = boxes.lower[box, d] - scaled[i]
        above = scaled[i] - boxes.upper[box, d]
        outside = max(0.0, below, above)
        square += outside * outside
        size += scaled[i] * scaled[i]
    return min((square - ROUNDING * size) / boxes.largest_spread, boxes.squares[box])


@kernel
def _search(
    axes: Any,
    n_observed: int,
    log_constant: float,
    maps: RegionMaps,
    boxes: Boxes,
    holes: Holes,
    row: _Row,
    lowest: float,
    below: float,
    candidates: _Candidates,
) -> tuple[int, float]:
    """Find the regions whose bound lies in a range, as for complete rows."""
    n_components = len(axes)
    n_leaves = boxes.n_leaves
    start, normals, offsets = maps.facets.start, maps.facets.normals, maps.facets.offsets
    found, evidences, bounds = candidates.regions, candidates.evidences, candidates.bounds
    nodes, node_bounds = candidates.nodes, candidates.node_bounds
    order, scaled = holes.order, row.scaled
    n_candidates = 0
    n_nodes = 1
    nodes[0], node_bounds[0] = 1, log_constant
    while n_nodes > 0:
        n_nodes -= 1
        node, upper = nodes[n_nodes], node_bounds[n_nodes]
        if upper < lowest:
            continue
        if node < n_leaves:
            for child in range(2 * node, 2 * node + 2):
                distance = _bound_box(boxes, child, n_observed, order, scaled)
                nodes[n_nodes] = child
                node_bounds[n_nodes] = min(upper, log_constant - 0.5 * distance)
                n_nodes += 1
            # The better one is looked into first.
            if node_bounds[n_nodes - 1] < node_bounds[n_nodes - 2]:
                first, first_bound = nodes[n_nodes - 2], node_bounds[n_nodes - 2]
                nodes[n_nodes - 2] = nodes[n_nodes - 1]
                node_bounds[n_nodes - 2] = node_bounds[n_nodes - 1]
                nodes[n_nodes - 1], node_bounds[n_nodes - 1] = first, first_bound
            continue
        for i in range(boxes.start[node - n_leaves], boxes.start[node - n_leaves + 1]):
            region = boxes.regions[i]
            distance = _bound_box(boxes, 2 * n_leaves + region, n_observed, order, scaled)
            if log_constant - 0.5 * distance < lowest:
                continue
            factor, center = candidates.factors[n_candidates], candidates.centers[n_candidates]
            square, log_determinant = condition_region(
                region, axes, n_observed, maps, holes, row, factor, center
            )
            evidence = log_constant + log_determinant - 0.5 * square
            if evidence < lowest:
                continue
            outside = 0.0
            for f in range(start[region], start[region + 1]):
                distance = offsets[f]
                square = 0.0
                for t in range(n_components):
                    normal = 0.0
                    for s in range(n_components):
                        normal += factor[s, t] * normals[f, s]
                    distance -= normal * center[t]
                    square += normal * normal
                if distance > 0.0:
                    outside = max(outside, distance * distance / square)
            bound = min(upper, evidence - 0.5 * outside)
            if lowest <= bound < below:
                found[n_candidates] = region
                evidences[n_candidates] = evidence
                bounds[n_candidates] = bound
                n_candidates += 1
                lowest = max(lowest, bound - SEARCH_MARGIN)
    return n_candidates, lowest


@kernel
def _visit_rows(
    rows: Floats,
    axes: Any,
    units: NoiseUnits,
    maps: RegionMaps,
    boxes: Boxes,
    cells: Any,
    log_share_error: float,
    first: int,
    visits: Visits,
) -> int:
    """Fill in the visits of rows, beginning with the first, until there might be too many."""
    n_components = len(axes)
    n_regions = len(maps.offsets)
    candidates = make_candidates(n_regions + 1, n_components, 2 * boxes.n_leaves + 1)
    holes, row, room = make_holes(units), make_row(n_components, rows.shape[1]), make_room(cells)
    bounds, evidences, found = candidates.bounds, candidates.evidences, candidates.regions
    order = candidates.order
    log_density, start, regions = visits.log_density, visits.start, visits.regions
    shares, means, covariances = visits.responsibilities, visits.means, visits.covariances
    mean, covariance = np.empty(n_components), np.empty((n_components, n_components))
    errors = np.empty(n_regions)  # relative, of the row's visits
    n_visits = 0
    n = first
    while n < len(rows) and n_visits + n_regions <= len(regions):
        n_observed, log_constant = read_row(rows[n], units, holes, row)
        n_before = n_visits
        log_total, log_sum = -math.inf, -math.inf
        lowest, below = -math.inf, math.inf
        while True:
            n_candidates, lowest = _search(
                axes, n_observed, log_constant, maps, boxes, holes, row, lowest, below, candidates
            )
            n_candidates = sort_candidates(candidates, n_candidates, lowest)
            k = order[0]
            if n_candidates == 0 or bounds[k] == -math.inf:
                break
            if n_visits == n_before:
                whiten_cell(cells, found[k], candidates.factors[k], room)
                # The first region's share, to about two digits.
                log_bound = bounds[k] - evidences[k]
                log_tolerance = log_bound + LOG_ESTIMATE_ERROR
                while True:
                    log_mass, error = integrate_cell_with_error(
                        room, 0, candidates.centers[k], log_tolerance, mean, covariance
                    )
                    log_total = evidences[k] + log_mass
                    if log_mass >= log_bound + LOG_SMALLEST_ESTIMATE or log_tolerance == -math.inf:
                        break
                    log_tolerance = -math.inf
            for i in range(n_candidates):
                k = order[i]
                if bounds[k] < log_total - NEGLIGIBLE:
                    continue
                whiten_cell(cells, found[k], candidates.factors[k], room)
                log_tolerance = log_share_error + log_total - evidences[k]
                log_mass, error = integrate_cell_with_error(
                    room, 0, candidates.centers[k], log_tolerance, mean, covariance
                )
                if log_mass == -math.inf:
                    continue
                share = evidences[k] + log_mass
                regions[n_visits] = found[k]
                shares[n_visits] = share
                errors[n_visits - n_before] = error
                for s in range(n_components):
                    means[n_visits, s] = mean[s]
                    for t in range(n_components):
                        covariances[n_visits, s, t] = covariance[s, t]
                n_visits += 1
                # The sum is for comparison only: small shares need not be added.
                if share > log_sum - LARGE:
                    largest = max(share, log_sum)
                    log_sum = largest + math.log1p(math.exp(min(share, log_sum) - largest))
                    log_total = max(log_total, log_sum)
            if not lowest > log_total - NEGLIGIBLE:
                break
            # The largest bound exceeded the density by far: search again for what seemed too small.
            lowest, below = log_total - NEGLIGIBLE, lowest
        if n_visits == n_before:
            # So far out that the log density is not a floating-point number: nothing is known.
            regions[n_visits] = 0
            shares[n_visits] = -math.inf
            errors[0] = 0.0
            for s in range(n_components):
                means[n_visits, s] = math.nan
                for t in range(n_components):
                    covariances[n_visits, s, t] = math.nan
            n_visits += 1
        log_density[n] = normalize_shares(shares, n_before, n_visits)
        square = 0.0
        for v in range(n_before, n_visits):
            square += (shares[v] * errors[v - n_before]) ** 2
        visits.log_density_error[n] = math.sqrt(square)
        start[n + 1] = start[n] + n_visits - n_before
        n += 1
    return n
