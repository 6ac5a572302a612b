"""Independent draws from mixtures of truncated Gaussians, one mixture per row.

The part of each draw is chosen first; then all draws of a part are made at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._cells import Cells, Facets, integrate_gaussian
from skdgn._draws import MOST_REJECTIONS, choose, draw_cell
from skdgn._jit import kernel
from skdgn._network import Floats

Integers = NDArray[np.intp]

# Deviations smaller than this are rounding errors; they only decide how boxes are cut.
_SMALLEST_DEVIATION = 1e-12


class Frames(NamedTuple):
    """Principal axes of truncated Gaussians, in whitened coordinates, the shortest one last."""

    means: Floats  # (v, S)
    axes: Floats  # (v, S, S) rows are the axes
    deviations: Floats  # (v, S) along them


def principal_frames(factors: Floats, means: Floats, covariances: Floats) -> Frames:
    """Find the axes of truncated Gaussians with these moments, given in latent coordinates.

    Factors (v, S, S) are those of the whitened coordinates y, with ``z = factor @ y``.  Moments
    need not be exact: they only decide how fast draws are.
    """
    inverses = np.linalg.inv(factors)
    whitened = np.einsum("vst,vt->vs", inverses, means)
    spread = inverses @ covariances @ np.swapaxes(inverses, 1, 2)
    variances, columns = np.linalg.eigh(spread)
    deviations = np.sqrt(np.maximum(variances[:, ::-1], _SMALLEST_DEVIATION**2))
    axes = np.swapaxes(columns, 1, 2)[:, ::-1]
    return Frames(whitened, np.ascontiguousarray(axes), np.ascontiguousarray(deviations))


def draw_truncated(
    cells: Cells,
    mean: Floats,
    covariance: Floats,
    n_draws: int,
    generator: np.random.Generator,
) -> Floats:
    """Draw from N(mean, covariance) truncated to the first of some cells: (n_draws, S)."""
    cell = cells.take(np.zeros(1, dtype=np.intp))
    factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    moments = integrate_gaussian(cell, mean, covariance)
    mixture = Mixtures(
        np.array([0, 1]),
        np.zeros(1, dtype=np.intp),
        np.ones(1),
        factor[None],
        np.asarray(np.linalg.solve(factor, mean), dtype=np.float64)[None],
        moments.means,
        moments.covariances,
    )
    return draw_mixtures(cell.facets(), mixture, n_draws, generator)[:, 0]


class Mixtures(NamedTuple):
    """Mixtures of truncated Gaussians, one per row; row n has parts ``start[n]:start[n + 1]``.

    Part v is N(factor @ center, factor @ factor') truncated to its region.
    """

    start: Integers  # (n + 1,)
    regions: Integers  # (v,)
    weights: Floats  # (v,) of sum 1 in each row
    factors: Floats  # (v, S, S)
    centers: Floats  # (v, S)
    means: Floats  # (v, S) of the truncated Gaussians
    covariances: Floats  # (v, S, S)


def draw_mixtures(
    facets: Facets, mixtures: Mixtures, n_draws: int, generator: np.random.Generator
) -> Floats:
    """Draw independent points from every mixture: (n_draws, n, S)."""
    frames = principal_frames(mixtures.factors, mixtures.means, mixtures.covariances)
    n_rows, n_dimensions = len(mixtures.start) - 1, mixtures.means.shape[1]
    draws = np.empty((n_rows, n_draws, n_dimensions))
    facets = facets._replace(normals=np.ascontiguousarray(facets.normals))
    failed = _draw_mixtures(facets, mixtures, frames, generator, draws)
    if failed >= 0:
        raise RuntimeError(
            f"Region {failed} is too thin to draw from: no point was accepted in "
            f"{MOST_REJECTIONS} trials. Try another random_state, or more noise."
        )
    return np.swapaxes(draws, 0, 1)


@kernel
def _draw_mixtures(
    facets: Facets, mixtures: Mixtures, frames: Frames, generator: Any, draws: Floats
) -> int:
    """Fill draws (n, m, S); return -1, or the region that failed."""
    n_draws, n_dimensions = draws.shape[1:]
    most_parts, most_facets = 0, 0
    for n in range(len(draws)):
        most_parts = max(most_parts, mixtures.start[n + 1] - mixtures.start[n])
    for r in range(facets.start.size - 1):
        most_facets = max(most_facets, facets.start[r + 1] - facets.start[r])
    choices, positions = np.empty(n_draws, dtype=np.intp), np.empty(n_draws, dtype=np.intp)
    cumulative, counts = np.empty(most_parts), np.empty(most_parts + 1, dtype=np.intp)
    all_normals, all_offsets = np.empty((most_facets, n_dimensions)), np.empty(most_facets)
    points = np.empty((n_draws, n_dimensions))
    for n in range(len(draws)):
        first = mixtures.start[n]
        n_parts = mixtures.start[n + 1] - first
        # The parts of all draws; then the draws in the order of their parts.
        total = 0.0
        for v in range(n_parts):
            total += mixtures.weights[first + v]
            cumulative[v] = total
            counts[v] = 0
        counts[n_parts] = 0
        for i in range(n_draws):
            choices[i] = choose(cumulative, n_parts, generator.random())
            counts[choices[i] + 1] += 1
        for v in range(n_parts):
            counts[v + 1] += counts[v]
        for i in range(n_draws):
            positions[counts[choices[i]]] = i
            counts[choices[i]] += 1
        begin = 0
        for v in range(n_parts):
            end = counts[v]  # by now, where the next part begins
            if end == begin:
                continue
            part, region = first + v, mixtures.regions[first + v]
            factor = mixtures.factors[part]
            n_facets = 0
            for f in range(facets.start[region], facets.start[region + 1]):
                square = 0.0
                for s in range(n_dimensions):
                    normal = 0.0
                    for t in range(n_dimensions):
                        normal += factor[t, s] * facets.normals[f, t]
                    all_normals[n_facets, s] = normal
                    square += normal * normal
                length = math.sqrt(square)
                for s in range(n_dimensions):
                    all_normals[n_facets, s] /= length
                all_offsets[n_facets] = facets.offsets[f] / length
                n_facets += 1
            n_done = draw_cell(
                all_normals[:n_facets],
                all_offsets[:n_facets],
                mixtures.centers[part],
                frames.means[part],
                frames.axes[part],
                frames.deviations[part],
                generator,
                points[begin:end],
            )
            if n_done < end - begin:
                return region
            for i in range(begin, end):
                for s in range(n_dimensions):
                    value = 0.0
                    for t in range(n_dimensions):
                        value += factor[s, t] * points[i, t]
                    draws[n, positions[i], s] = value
            begin = end
    return -1
