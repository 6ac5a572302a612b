"""Which regions matter for a row, and the Gaussian integrals over them.

The share of region r in p(x) is its evidence times the Gaussian's mass on it, and
``log mass <= -max(0, c)^2 / 2`` with ``c`` the largest distance by which the conditional mean
lies outside a facet: a bound that costs a few products.  Groups of regions are dismissed together
where they can be; the others are visited by descending bound until the bound is below rounding.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._cells import integrate_cell
from skdgn._conditionals import Conditionals, condition
from skdgn._groups import Groups, group_regions
from skdgn._jit import kernel
from skdgn._network import Floats
from skdgn._noise import Noise
from skdgn._partition import Partition

# Regions whose share is at most exp(-37) = 9e-17 of the density are not visited.
_NEGLIGIBLE = 37.0
# Error allowed to one region's share, relative to the density.
_LOG_SHARE_ERROR = math.log(1e-14)


class Visits(NamedTuple):
    """The posterior of each row as a sparse mixture: row n visits ``start[n]:start[n + 1]``."""

    log_density: Floats  # (n,)
    start: NDArray[np.intp]  # (n + 1,)
    regions: NDArray[np.intp]  # (v,)
    responsibilities: Floats  # (v,)
    means: Floats  # (v, S) of z within the region
    covariances: Floats  # (v, S, S)


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
        log_constant = -0.5 * (noise.n_features * math.log(2.0 * math.pi) + noise.log_determinant)
        return cls(
            noise,
            conditionals,
            group_regions(partition, conditionals, log_constant),
            partition.cells.whiten(conditionals.factors),
        )

    def visit(self, rows: Floats) -> Visits:
        """Compute the exact posterior of rows (n, D)."""
        whitened = np.ascontiguousarray(self.noise.whiten(rows))
        return Visits(*_visit_rows(whitened, self.conditionals, self.groups, self.whitened_cells))


@kernel
def _outside(conditionals: Any, region: int, center: Floats) -> float:
    """Largest distance by which a point lies outside a facet of the region (0 if inside)."""
    farthest = 0.0
    for f in range(conditionals.facet_start[region], conditionals.facet_start[region + 1]):
        distance = conditionals.facet_offsets[f]
        for s in range(center.size):
            distance -= conditionals.facet_normals[f, s] * center[s]
        farthest = max(farthest, distance)
    return farthest


@kernel
def _condition_on(
    conditionals: Any, region: int, row: Floats, center: Floats, latent: Floats
) -> float:
    """Fill the conditional mean (whitened: center); return the log evidence of the region."""
    n_components = center.size
    for s in range(n_components):
        center[s] = conditionals.centers[region, s]
        for d in range(row.size):
            center[s] += conditionals.projections[region, s, d] * row[d]
    square = 0.0
    for s in range(n_components):
        latent[s] = 0.0
        for t in range(n_components):
            latent[s] += conditionals.factors[region, s, t] * center[t]
        square += latent[s] * latent[s]
    for d in range(row.size):
        residual = row[d] - conditionals.offsets[region, d]
        for s in range(n_components):
            residual -= conditionals.slopes[region, d, s] * latent[s]
        square += residual * residual
    return conditionals.log_constants[region] - 0.5 * square


@kernel
def _group_bound(groups: Any, group: int, row: Floats) -> float:
    """Upper bound on the log of the sum of the shares of a group's regions."""
    if groups.radii[group] == math.inf:
        return math.inf
    square = 0.0
    for d in range(row.size):
        square += (row[d] - groups.centers[group, d]) ** 2
    distance = max(0.0, math.sqrt(square) - groups.radii[group])
    return groups.log_constant - 0.5 * distance * distance


@kernel
def _visit_rows(rows: Floats, conditionals: Any, groups: Any, cells: Any) -> tuple[Any, ...]:
    n_rows = len(rows)
    n_regions, n_components = conditionals.centers.shape
    n_groups = groups.radii.size
    group_bounds = np.empty(n_groups)
    latent = np.empty(n_components)
    # Candidates of one row: region, bound, evidence, conditional mean.
    candidates = np.empty(n_regions, dtype=np.intp)
    bounds = np.empty(n_regions)
    evidences = np.empty(n_regions)
    centers = np.empty((n_regions, n_components))

    log_density = np.empty(n_rows)
    start = np.zeros(n_rows + 1, dtype=np.intp)
    capacity = 16 * n_rows + n_regions
    regions = np.empty(capacity, dtype=np.intp)
    shares = np.empty(capacity)
    means = np.empty((capacity, n_components))
    covariances = np.empty((capacity, n_components, n_components))
    n_visits = 0
    for n in range(n_rows):
        row = rows[n]
        # Open the unbounded regions' group and the likeliest of the others.
        likeliest = 0
        for g in range(n_groups):
            group_bounds[g] = _group_bound(groups, g, row)
            if g == 1 or (g > 1 and group_bounds[g] > group_bounds[likeliest]):
                likeliest = g
        n_candidates = 0
        for opened in range(1 if likeliest == 0 else 2):
            g = opened * likeliest
            for i in range(groups.start[g], groups.start[g + 1]):
                r = groups.regions[i]
                evidence = _condition_on(conditionals, r, row, centers[n_candidates], latent)
                distance = _outside(conditionals, r, centers[n_candidates])
                candidates[n_candidates] = r
                evidences[n_candidates] = evidence
                bounds[n_candidates] = evidence - 0.5 * distance * distance
                n_candidates += 1

        if n_visits + n_regions > capacity:
            capacity = 2 * capacity + n_regions
            regions = _grow(regions, capacity)
            shares = _grow(shares, capacity)
            means = _grow(means, capacity)
            covariances = _grow(covariances, capacity)

        # The sum of the shares, relative to the first of them.
        first = np.argmax(bounds[:n_candidates])
        share = evidences[first] + integrate_cell(
            cells,
            candidates[first],
            centers[first],
            -math.inf,
            means[n_visits],
            covariances[n_visits],
        )
        base = share
        total = 1.0
        log_total = share
        regions[n_visits] = candidates[first]
        shares[n_visits] = share
        n_visits += 1
        bounds[first] = -math.inf

        # Only what is not negligible beside it.
        n_kept = 0
        for k in range(n_candidates):
            if bounds[k] > log_total - _NEGLIGIBLE:
                candidates[n_kept] = candidates[k]
                evidences[n_kept] = evidences[k]
                bounds[n_kept] = bounds[k]
                centers[n_kept] = centers[k]
                n_kept += 1
        for g in range(1, n_groups):
            if g == likeliest or group_bounds[g] < log_total - _NEGLIGIBLE:
                continue
            for i in range(groups.start[g], groups.start[g + 1]):
                r = groups.regions[i]
                evidence = _condition_on(conditionals, r, row, centers[n_kept], latent)
                if evidence < log_total - _NEGLIGIBLE:
                    continue
                distance = _outside(conditionals, r, centers[n_kept])
                bound = evidence - 0.5 * distance * distance
                if bound > log_total - _NEGLIGIBLE:
                    candidates[n_kept] = r
                    evidences[n_kept] = evidence
                    bounds[n_kept] = bound
                    n_kept += 1

        order = np.argsort(-bounds[:n_kept])
        for k in order:
            if bounds[k] < log_total - _NEGLIGIBLE:
                break
            log_tolerance = _LOG_SHARE_ERROR + log_total - evidences[k]
            log_mass = integrate_cell(
                cells,
                candidates[k],
                centers[k],
                log_tolerance,
                means[n_visits],
                covariances[n_visits],
            )
            if log_mass == -math.inf:
                continue
            share = evidences[k] + log_mass
            regions[n_visits] = candidates[k]
            shares[n_visits] = share
            n_visits += 1
            if share - base > 600.0:
                total = total * math.exp(base - share) + 1.0
                base = share
            else:
                total += math.exp(share - base)
            log_total = base + math.log(total)
        start[n + 1] = n_visits
        log_density[n] = _normalize(shares[start[n] : n_visits])
    return (
        log_density,
        start,
        regions[:n_visits].copy(),
        shares[:n_visits].copy(),
        means[:n_visits].copy(),
        covariances[:n_visits].copy(),
    )


@kernel
def _normalize(shares: Floats) -> float:
    """Turn log shares into responsibilities; return the log of their sum.

    They are summed relative to the largest: a log density of -1e11 has no digits left for
    their differences.
    """
    largest = shares.max()
    if largest == -math.inf:
        return largest
    total = 0.0
    for v in range(shares.size):
        shares[v] = math.exp(shares[v] - largest)
        total += shares[v]
    for v in range(shares.size):
        shares[v] /= total
    return largest + math.log(total)


@kernel
def _grow(array: Any, capacity: int) -> Any:
    larger = np.empty((capacity, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
