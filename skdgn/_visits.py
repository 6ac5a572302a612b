"""Which regions matter for a row, and the Gaussian integrals over them.

For every region ``log mass <= -max(0, c)^2 / 2``, with ``c`` the largest distance by which the conditional
mean lies outside a facet, so an upper bound on each region's share of p(x) costs two matrix products.
Regions are visited by descending bound until the bound is below rounding.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skdgn._cells import integrate_cell
from skdgn._conditionals import Conditionals
from skdgn._jit import kernel
from skdgn._network import Floats
from skdgn._partition import Partition

# Regions whose share is at most exp(-37) = 9e-17 of the density are not visited.
_NEGLIGIBLE = 37.0
# Error allowed to one region's share, relative to the density.
_SHARE_ERROR = 1e-14
# Above this squared distance, in noise deviations, the matrix products lose the bounds' digits.
_FAR_SQUARED = 1e10
# Numbers in a block of bounds; it should stay in the processor's cache.
_BLOCK_SIZE = 1 << 18


class Visits(NamedTuple):
    """The posterior of each row as a sparse mixture: row n visits ``start[n]:start[n + 1]``."""

    log_density: Floats  # (n,)
    start: np.ndarray[tuple[int], np.dtype[np.intp]]  # (n + 1,)
    regions: np.ndarray[tuple[int], np.dtype[np.intp]]  # (v,)
    responsibilities: Floats  # (v,)
    means: Floats  # (v, S) of z within the region
    covariances: Floats  # (v, S, S)


def visit_regions(
    rows: Floats, partition: Partition, conditionals: Conditionals, whitened_cells: Any
) -> Visits:
    """Compute the exact posterior of whitened rows (n, D), measured from the origin."""
    n_regions, n_components = conditionals.centers.shape
    n_features = rows.shape[1]
    # Columns: b~ of all regions, then F'A~' of all regions.
    columns = np.concatenate(
        [
            conditionals.offsets,
            conditionals.projections.reshape(n_regions * n_components, n_features),
        ]
    ).T
    offset_squares = np.einsum("rd,rd->r", conditionals.offsets, conditionals.offsets)
    block = max(1, _BLOCK_SIZE // columns.shape[1])
    parts = []
    for first in range(0, len(rows), block):
        batch = rows[first : first + block]
        parts.append(
            _visit_rows(batch, batch @ columns, offset_squares, conditionals, whitened_cells)
        )
    if len(parts) == 1:
        return Visits(*parts[0])
    return _concatenate([Visits(*part) for part in parts])


def _concatenate(parts: list[Visits]) -> Visits:
    sizes = np.concatenate([np.diff(part.start) for part in parts])
    return Visits(
        log_density=np.concatenate([part.log_density for part in parts]),
        start=np.concatenate([[0], np.cumsum(sizes)]),
        regions=np.concatenate([part.regions for part in parts]),
        responsibilities=np.concatenate([part.responsibilities for part in parts]),
        means=np.concatenate([part.means for part in parts]),
        covariances=np.concatenate([part.covariances for part in parts]),
    )


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
def _log_evidence(conditionals: Any, region: int, row: Floats, center: Floats) -> float:
    """Log density of the row if the region were all of latent space, from the residual.

    Squared residual plus squared mean; the difference of squares would cancel for outliers.
    """
    n_components = center.size
    square = 0.0
    latent = np.empty(n_components)
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
def _bounds(
    conditionals: Any,
    row: Floats,
    products: Floats,
    offset_squares: Floats,
    centers: Floats,
    bounds: Floats,
) -> None:
    """Fill the conditional means and an upper bound on the log share of every region."""
    n_regions, n_components = centers.shape
    row_square = 0.0
    for d in range(row.size):
        row_square += row[d] * row[d]
    for r in range(n_regions):
        center_square = 0.0
        for s in range(n_components):
            center = conditionals.centers[r, s] + products[n_regions + r * n_components + s]
            centers[r, s] = center
            center_square += center * center
        if row_square > _FAR_SQUARED:
            log_evidence = _log_evidence(conditionals, r, row, centers[r])
        else:
            square = row_square - 2.0 * products[r] + offset_squares[r] - center_square
            log_evidence = conditionals.log_constants[r] - 0.5 * square
        distance = _outside(conditionals, r, centers[r])
        bounds[r] = log_evidence - 0.5 * distance * distance


@kernel
def _visit_rows(
    rows: Floats,
    products: Floats,
    offset_squares: Floats,
    conditionals: Any,
    cells: Any,
) -> tuple[Any, ...]:
    n_rows = len(rows)
    n_regions, n_components = conditionals.centers.shape
    centers = np.empty((n_regions, n_components))
    bounds = np.empty(n_regions)
    candidates = np.empty(n_regions, dtype=np.intp)
    log_density = np.empty(n_rows)
    start = np.zeros(n_rows + 1, dtype=np.intp)
    capacity = 16 * n_rows + n_regions
    regions = np.empty(capacity, dtype=np.intp)
    shares = np.empty(capacity)
    means = np.empty((capacity, n_components))
    covariances = np.empty((capacity, n_components, n_components))
    n_visits = 0
    for n in range(n_rows):
        if n_visits + n_regions > capacity:
            capacity = 2 * capacity + n_regions
            regions = _grow(regions, capacity)
            shares = _grow(shares, capacity)
            means = _grow(means, capacity)
            covariances = _grow(covariances, capacity)
        _bounds(conditionals, rows[n], products[n], offset_squares, centers, bounds)
        # The likeliest region first; then only those whose bound is not negligible beside it.
        candidates[0] = np.argmax(bounds)
        n_candidates = 1
        total = -math.inf
        position = 0
        while position < n_candidates:
            r = candidates[position]
            if bounds[r] < total - _NEGLIGIBLE:
                break
            log_evidence = _log_evidence(conditionals, r, rows[n], centers[r])
            tolerance = _SHARE_ERROR * math.exp(min(700.0, total - log_evidence))
            log_mass = integrate_cell(
                cells, r, centers[r], tolerance, means[n_visits], covariances[n_visits]
            )
            share = log_evidence + log_mass
            if share > -math.inf:
                regions[n_visits] = r
                shares[n_visits] = share
                n_visits += 1
                if share > total:
                    total = share + math.log1p(math.exp(total - share))
                else:
                    total += math.log1p(math.exp(share - total))
            if position == 0:
                for other in range(n_regions):
                    if other != r and bounds[other] > total - _NEGLIGIBLE:
                        candidates[n_candidates] = other
                        n_candidates += 1
                order = np.argsort(-bounds[candidates[1:n_candidates]])
                candidates[1:n_candidates] = candidates[1:n_candidates][order]
            position += 1
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
    if shares.size == 0:
        return -math.inf
    largest = shares.max()
    total = 0.0
    for v in range(shares.size):
        shares[v] = math.exp(shares[v] - largest)
        total += shares[v]
    for v in range(shares.size):
        shares[v] /= total
    return largest + math.log(total)


@kernel
def _grow(array: Any, capacity: int) -> Any:
    larger = np.empty((capacity,) + array.shape[1:], dtype=array.dtype)
    larger[: len(array)] = array
    return larger
