"""Visits for rows with holes, each with a posterior covariance of its own.

What `skdgn._conditionals` prepares for all regions depends on which features were observed.  Here
it is computed for one row and one region at a time, when it is needed.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skdgn._boxes import Boxes, bound_box, enclose_regions
from skdgn._cells import Cells, integrate_cell_with_error, make_room, whiten_cell
from skdgn._groups import Groups
from skdgn._jit import kernel
from skdgn._missing import Holes, Integers, NoiseUnits, make_holes
from skdgn._network import Floats
from skdgn._noise import Noise
from skdgn._partition import Partition
from skdgn._row_conditionals import (
    ObservedRow,
    RegionMaps,
    condition_region,
    make_row,
    read_row,
)
from skdgn._visits import (
    LARGE,
    LOG_ESTIMATE_ERROR,
    LOG_SMALLEST_ESTIMATE,
    NEGLIGIBLE,
    SEARCH_MARGIN,
    Visits,
    collect_visits,
    loop_settings,
    normalize_shares,
    sort_candidates,
)


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
        boxes = enclose_regions(partition, maps, groups, units)
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


@kernel
def _make_candidates(n_regions: int, n_components: int, n_nodes: int) -> _Candidates:
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
        n_observed = read_row(rows[n], units, holes, row)
        for v in range(start[n], start[n + 1]):
            condition_region(regions[v], axes, n_observed, maps, holes, row, factors[v], centers[v])


@kernel
def _search(
    axes: Any,
    n_observed: int,
    maps: RegionMaps,
    boxes: Boxes,
    holes: Holes,
    row: ObservedRow,
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
    log_constant = holes.log_constant[0]
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
                distance = bound_box(boxes, child, n_observed, order, scaled)
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
            distance = bound_box(boxes, 2 * n_leaves + region, n_observed, order, scaled)
            if log_constant - 0.5 * distance < lowest:
                continue
            factor, center = candidates.factors[n_candidates], candidates.centers[n_candidates]
            evidence = condition_region(region, axes, n_observed, maps, holes, row, factor, center)
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
    candidates = _make_candidates(n_regions + 1, n_components, 2 * boxes.n_leaves + 1)
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
        n_observed = read_row(rows[n], units, holes, row)
        n_before = n_visits
        log_total, log_sum = -math.inf, -math.inf
        lowest, below = -math.inf, math.inf
        while True:
            n_candidates, lowest = _search(
                axes, n_observed, maps, boxes, holes, row, lowest, below, candidates
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
