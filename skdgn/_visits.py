"""Which regions matter for a row, and the Gaussian integrals over them.

The share of region r in p(x) is its evidence times the Gaussian's mass on it, and
``log mass <= -max(0, c)^2 / 2`` with ``c`` the largest distance by which the conditional mean
lies outside a facet: a bound that costs a few products.  Groups of regions are dismissed together
where they can be; the others are visited, large bounds first, unless the bound is below rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from skdgn._cells import MOST_EXACT_DIMENSIONS, integrate_cell_with_error
from skdgn._conditionals import Conditionals, condition
from skdgn._groups import Groups, group_regions
from skdgn._jit import kernel
from skdgn._network import Floats
from skdgn._noise import Noise
from skdgn._partition import Partition

Integers = NDArray[np.intp]

# Regions whose share is at most exp(-37) = 9e-17 of the density are not visited.
NEGLIGIBLE = 37.0
# Regions are searched down to this distance from the largest bound.  The bound may exceed the
# density, for far outliers by thousands: then again, each time down to twice the distance.
SEARCH_MARGIN = NEGLIGIBLE + 4.0
# With a bound this near to the largest possible one, it does not matter where to search next.
_NEAR = 20.0
# Bounds and shares count as large within this distance of the largest one, of their sum.
LARGE = 3.0
# Error allowed to one region's share, relative to the density.  Where integrals are estimates,
# the largest shares are known to two or three digits, and the others need not be known better.
_LOG_SHARE_ERROR = math.log(1e-14)
_LOG_ESTIMATED_SHARE_ERROR = math.log(1e-5)
# Error allowed to the first estimate of a share, relative to its bound, and the smallest to trust.
LOG_ESTIMATE_ERROR = math.log(1e-3)
LOG_SMALLEST_ESTIMATE = math.log(3e-2)
# Relative rounding error of a squared distance.
ROUNDING = 1e-14
# Space for so many visits per row is made at first.
USUAL_VISITS = 16
# A kernel cannot be interrupted.  So it is given space for so many visits at first, and for more as
# long as it takes fewer seconds than this.
_FIRST_VISITS = 1024
_SECONDS_AT_A_TIME = 0.1

# Sums over features may be added up in any order, and with fused operations: twice as fast.
sum_kernel: Callable[[Callable[..., Any]], Any] = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"}
)


class Visits(NamedTuple):
    """The posterior of each row as a sparse mixture: row n visits ``start[n]:start[n + 1]``."""

    log_density: Floats  # (n,)
    start: Integers  # (n + 1,)
    regions: Integers  # (v,)
    responsibilities: Floats  # (v,)
    means: Floats  # (v, S) of z within the region
    covariances: Floats  # (v, S, S)
    log_density_error: Floats  # (n,) standard error; 0 where integrals are exact to rounding


class Visitor(NamedTuple):
    """All that is needed to visit the regions of a partition under a noise."""

    noise: Noise
    conditionals: Conditionals
    groups: Groups
    whitened_cells: Any

    @classmethod
    def prepare(cls, partition: Partition, noise: Noise) -> Visitor:
        """Compute what does not depend on the rows."""
        conditionals = condition(partition, noise)
        return cls(
            noise,
            conditionals,
            group_regions(partition, conditionals, noise),
            partition.cells.whiten(conditionals.factors),
        )

    def visit(self, rows: Floats) -> Visits:
        """Compute the exact posterior of rows (n, D)."""
        whitened = np.ascontiguousarray(self.noise.whiten(rows))
        n_regions, n_components = self.conditionals.centers.shape
        axes, log_share_error = loop_settings(n_components)
        return collect_visits(
            lambda first, visits: _visit_rows(
                whitened,
                axes,
                self.conditionals,
                self.groups,
                self.whitened_cells,
                log_share_error,
                first,
                visits,
            ),
            len(whitened),
            n_regions,
            n_components,
        )


def loop_settings(n_components: int) -> tuple[Any, float]:
    """Return what kernels loop over, and the log error allowed to one region's share."""
    # The length of a tuple is known to the compiler, which unrolls loops over it.  That of an
    # array is not: one compiled function does for all dimensions whose integrals take longer.
    if n_components > MOST_EXACT_DIMENSIONS:
        return np.arange(n_components), _LOG_ESTIMATED_SHARE_ERROR
    return tuple(range(n_components)), _LOG_SHARE_ERROR


def collect_visits(
    visit: Callable[[int, Visits], int], n_rows: int, n_regions: int, n_components: int
) -> Visits:
    """Make space for the visits of all rows and have it filled.

    ``visit(first, visits)`` fills in the visits of rows from the first on while there is space for
    one per region, and returns the number of the row to go on with.
    """
    log_density, log_density_error = np.empty(n_rows), np.empty(n_rows)
    start = np.zeros(n_rows + 1, dtype=np.intp)
    chunks: list[tuple[Any, ...]] = []
    n_done, most_visits = 0, _FIRST_VISITS
    while n_done < n_rows or not chunks:
        # The number of visits is not known: when these arrays are full, go on in new ones.
        n_expected = (USUAL_VISITS << len(chunks)) * (n_rows - n_done)
        capacity = min(n_expected, most_visits) + n_regions
        chunk = (
            np.empty(capacity, dtype=np.intp),
            np.empty(capacity),
            np.empty((capacity, n_components)),
            np.empty((capacity, n_components, n_components)),
        )
        n_before, began = n_done, time.perf_counter()
        n_done = visit(n_before, Visits(log_density, start, *chunk, log_density_error))
        if time.perf_counter() - began < _SECONDS_AT_A_TIME:
            most_visits *= 4
        n_visits = start[n_done] - start[n_before]
        chunks.append(tuple(array[:n_visits] for array in chunk))
    regions, responsibilities, means, covariances = (
        np.concatenate(arrays) for arrays in zip(*chunks, strict=True)
    )
    return Visits(
        log_density, start, regions, responsibilities, means, covariances, log_density_error
    )


class _Candidates(NamedTuple):
    """Regions that may matter for a row, and groups where there may be more of them."""

    regions: Integers
    evidences: Floats  # logs
    bounds: Floats  # on the log shares
    centers: Floats  # (k, S) whitened conditional means
    order: Integers  # in which they are visited
    nodes: Integers
    node_bounds: Floats


@kernel
def _make_candidates(n_regions: int, n_components: int, n_nodes: int) -> _Candidates:
    return _Candidates(
        np.empty(n_regions, dtype=np.intp),
        np.empty(n_regions),
        np.empty(n_regions),
        np.empty((n_regions, n_components)),
        np.empty(n_regions, dtype=np.intp),
        np.empty(n_nodes, dtype=np.intp),
        np.empty(n_nodes),
    )


@sum_kernel
def _search(
    row: Floats,
    axes: Any,
    conditionals: Conditionals,
    groups: Groups,
    lowest: float,
    below: float,
    margin: float,
    candidates: _Candidates,
) -> tuple[int, float]:
    """Find the regions whose bound lies in a range.

    Parameters
    ----------
    row : ndarray of shape (D,)
    axes : tuple or ndarray of length S
    conditionals : Conditionals
    groups : Groups
    lowest, below : float
        Regions have ``lowest <= bound < below``.
    margin : float
        As larger bounds are found, ``lowest`` is raised to this distance from them.
    candidates : _Candidates
        Filled with these regions, and maybe with others of smaller bounds.

    Returns
    -------
    n_candidates : int
    lowest : float

    Notes
    -----
    The bound of a region is not larger than those of the groups it belongs to.

    All is in one function, with all arrays at hand: Numba counts the references to each array
    passed to a function, which takes longer than to compute a bound.
    """
    n_leaves, start, regions = groups.n_leaves, groups.start, groups.regions
    node_centers, node_axes, widths = groups.centers, groups.axes, groups.widths
    radii, squares, log_constant = groups.radii, groups.squares, groups.log_constant
    projections, centers = conditionals.projections, conditionals.centers
    factors, slopes, offsets = conditionals.factors, conditionals.slopes, conditionals.offsets
    log_constants, facet_start = conditionals.log_constants, conditionals.facet_start
    normals, facet_offsets = conditionals.facet_normals, conditionals.facet_offsets
    found, evidences, bounds = candidates.regions, candidates.evidences, candidates.bounds
    found_centers = candidates.centers
    nodes, node_bounds = candidates.nodes, candidates.node_bounds
    latent = np.empty(len(axes))

    n_candidates = 0
    n_nodes = 1
    nodes[0], node_bounds[0] = 1, log_constant
    # Nodes are kept in a heap, that of the largest bound first, until a large bound has been found.
    is_heap = True
    while n_nodes > 0:
        n_nodes -= 1
        node, upper = nodes[n_nodes], node_bounds[n_nodes]
        if is_heap:
            last, last_bound = node, upper
            node, upper = nodes[0], node_bounds[0]
            hole, k = 0, 1
            while k < n_nodes:
                if k + 1 < n_nodes and node_bounds[k + 1] > node_bounds[k]:
                    k += 1
                if node_bounds[k] <= last_bound:
                    break
                nodes[hole], node_bounds[hole] = nodes[k], node_bounds[k]
                hole, k = k, 2 * k + 1
            nodes[hole], node_bounds[hole] = last, last_bound
        if upper < lowest:
            continue

        if node < n_leaves:
            for child in range(2 * node, 2 * node + 2):
                square = 0.0
                for d in range(row.size):
                    difference = row[d] - node_centers[child, d]
                    square += difference * difference
                # Squared distance from the box: along its axes and across them.
                distance = -ROUNDING * square
                across = square
                for s in range(len(axes)):
                    along = 0.0
                    for d in range(row.size):
                        along += (row[d] - node_centers[child, d]) * node_axes[child, s, d]
                    across -= along * along
                    outside = max(0.0, abs(along) - widths[child, s])
                    distance += outside * outside
                outside = max(0.0, math.sqrt(max(0.0, across)) - radii[child])
                distance += outside * outside
                distance = min(distance, squares[child])
                bound = min(upper, log_constant - 0.5 * distance)
                if bound >= lowest:
                    hole = n_nodes
                    while is_heap and hole > 0 and node_bounds[(hole - 1) // 2] < bound:
                        k = (hole - 1) // 2
                        nodes[hole], node_bounds[hole] = nodes[k], node_bounds[k]
                        hole = k
                    nodes[hole], node_bounds[hole] = child, bound
                    n_nodes += 1
            continue

        for i in range(start[node - n_leaves], start[node - n_leaves + 1]):
            region = regions[i]
            # The conditional mean, whitened and not, and the log evidence.
            for s in range(len(axes)):
                mean = centers[region, s]
                for d in range(row.size):
                    mean += projections[region, s, d] * row[d]
                found_centers[n_candidates, s] = mean
            square = 0.0
            for s in range(len(axes)):
                mean = 0.0
                for t in range(len(axes)):
                    mean += factors[region, s, t] * found_centers[n_candidates, t]
                latent[s] = mean
                square += mean * mean
            for d in range(row.size):
                residual = row[d] - offsets[region, d]
                for s in range(len(axes)):
                    residual -= slopes[region, d, s] * latent[s]
                square += residual * residual
            evidence = log_constants[region] - 0.5 * square
            if evidence < lowest:
                continue
            outside = 0.0
            for f in range(facet_start[region], facet_start[region + 1]):
                distance = facet_offsets[f]
                for s in range(len(axes)):
                    distance -= normals[f, s] * found_centers[n_candidates, s]
                outside = max(outside, distance)
            bound = min(upper, evidence - 0.5 * outside * outside)
            if lowest <= bound < below:
                found[n_candidates] = region
                evidences[n_candidates] = evidence
                bounds[n_candidates] = bound
                n_candidates += 1
                lowest = max(lowest, bound - margin)
                is_heap = is_heap and bound < log_constant - _NEAR
    return n_candidates, lowest


@kernel
def sort_candidates(candidates: _Candidates, n_candidates: int, lowest: float) -> int:
    """List candidates, large bounds first: the others are then compared with most of the sum."""
    bounds, order = candidates.bounds, candidates.order
    largest = -math.inf
    for k in range(n_candidates):
        largest = max(largest, bounds[k])
    n_listed = 0
    for k in range(n_candidates):
        if bounds[k] >= largest - LARGE:
            order[n_listed] = k
            # The very first is the likeliest.
            if bounds[k] == largest:
                order[0], order[n_listed] = k, order[0]
            n_listed += 1
    for k in range(n_candidates):
        if lowest <= bounds[k] < largest - LARGE:
            order[n_listed] = k
            n_listed += 1
    return n_listed


@kernel
def _visit_rows(
    rows: Floats,
    axes: Any,
    conditionals: Conditionals,
    groups: Groups,
    cells: Any,
    log_share_error: float,
    first: int,
    visits: Visits,
) -> int:
    """Fill in the visits of rows, beginning with the first, until there might be too many.

    Returns the number of the row to go on with.  Only ``start`` and ``log_density`` have entries
    for rows before the first.
    """
    n_regions = len(conditionals.centers)
    candidates = _make_candidates(n_regions, len(axes), 2 * groups.n_leaves)
    bounds, evidences, centers = candidates.bounds, candidates.evidences, candidates.centers
    order, found = candidates.order, candidates.regions
    log_density, start, regions = visits.log_density, visits.start, visits.regions
    shares, means, covariances = visits.responsibilities, visits.means, visits.covariances
    center, mean = np.empty(len(axes)), np.empty(len(axes))
    covariance = np.empty((len(axes), len(axes)))
    errors = np.empty(n_regions)  # relative, of the row's visits
    n_visits = 0
    n = first
    while n < len(rows) and n_visits + n_regions <= len(regions):
        n_before = n_visits
        log_total, log_sum = -math.inf, -math.inf
        lowest, below, margin = -math.inf, math.inf, SEARCH_MARGIN
        while True:
            n_candidates, lowest = _search(
                rows[n], axes, conditionals, groups, lowest, below, margin, candidates
            )
            n_candidates = sort_candidates(candidates, n_candidates, lowest)
            k = order[0]
            if n_candidates == 0 or bounds[k] == -math.inf:
                break
            if n_visits == n_before:
                for s in range(len(axes)):
                    center[s] = centers[k, s]
                # The first region's share, to about two digits.
                log_bound = bounds[k] - evidences[k]
                log_tolerance = log_bound + LOG_ESTIMATE_ERROR
                while True:
                    log_mass, error = integrate_cell_with_error(
                        cells, found[k], center, log_tolerance, mean, covariance
                    )
                    log_total = evidences[k] + log_mass
                    if log_mass >= log_bound + LOG_SMALLEST_ESTIMATE or log_tolerance == -math.inf:
                        break
                    log_tolerance = -math.inf
            for i in range(n_candidates):
                k = order[i]
                if bounds[k] < log_total - NEGLIGIBLE:
                    continue
                for s in range(len(axes)):
                    center[s] = centers[k, s]
                log_tolerance = log_share_error + log_total - evidences[k]
                log_mass, error = integrate_cell_with_error(
                    cells, found[k], center, log_tolerance, mean, covariance
                )
                if log_mass == -math.inf:
                    continue
                share = evidences[k] + log_mass
                regions[n_visits] = found[k]
                shares[n_visits] = share
                errors[n_visits - n_before] = error
                for s in range(len(axes)):
                    means[n_visits, s] = mean[s]
                    for t in range(len(axes)):
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
            lowest, below, margin = log_total - NEGLIGIBLE, lowest, 2.0 * margin
        if n_visits == n_before:
            # So far out that the log density is not a floating-point number: nothing is known.
            regions[n_visits] = 0
            shares[n_visits] = -math.inf
            errors[0] = 0.0
            for s in range(len(axes)):
                means[n_visits, s] = math.nan
                for t in range(len(axes)):
                    covariances[n_visits, s, t] = math.nan
            n_visits += 1
        log_density[n] = normalize_shares(shares, n_before, n_visits)
        # Points differ from region to region, hence errors are independent.
        square = 0.0
        for v in range(n_before, n_visits):
            square += (shares[v] * errors[v - n_before]) ** 2
        visits.log_density_error[n] = math.sqrt(square)
        start[n + 1] = start[n] + n_visits - n_before
        n += 1
    return n


@kernel
def normalize_shares(shares: Floats, begin: int, end: int) -> float:
    """Turn log shares into responsibilities; return the log of their sum.

    They are summed relative to the largest: a log density of -1e11 has no digits left for
    their differences.
    """
    largest = -math.inf
    for v in range(begin, end):
        largest = max(largest, shares[v])
    total = 0.0
    for v in range(begin, end):
        shares[v] = math.exp(shares[v] - largest) if shares[v] < largest else 1.0
        total += shares[v]
    for v in range(begin, end):
        shares[v] /= total
    return largest + math.log(total)
