"""Independent draws from mixtures of truncated Gaussians, one mixture per sample.

The part of each draw is chosen first; then all draws of a part are made at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skdgn._geometry import Cells, Facets, integrate_gaussian
from skdgn._posterior.draws import MOST_REJECTIONS, Cell, choose, draw_in_boxes, draw_plainly
from skdgn._runtime import MOST_SAMPLES, Floats, Integers, Reporter, kernel, sample_batches

# Deviations smaller than this are rounding errors; they only decide how boxes are cut.
_SMALLEST_DEVIATION = 1e-12


class Mixtures(NamedTuple):
    """Mixtures of truncated Gaussians; sample n has parts ``start[n]:start[n + 1]``.

    Part v is N(factor @ center, factor @ factor') truncated to its region.
    """

    start: Integers  # (n + 1,)
    regions: Integers  # (v,)
    weights: Floats  # (v,) of sum 1 in each sample
    factors: Floats  # (v, S, S)
    centers: Floats  # (v, S)
    means: Floats  # (v, S) of the truncated Gaussians
    covariances: Floats  # (v, S, S)


class Frames(NamedTuple):
    """Coordinates v along the principal axes of truncated Gaussians, the shortest one last.

    They begin at the truncated Gaussian's mean, ``z = origin + transform @ v``, and are as long as
    those in which the Gaussian, not truncated, is N(slopes, I).
    """

    origins: Floats  # (v, S)
    transforms: Floats  # (v, S, S)
    slopes: Floats  # (v, S)
    deviations: Floats  # (v, S) of the truncated Gaussian


def principal_frames(mixtures: Mixtures) -> Frames:
    """Find the frames of all parts.

    Their moments need not be exact: they only decide how fast draws are.
    """
    inverses = np.linalg.inv(mixtures.factors)
    whitened = np.einsum("vst,vt->vs", inverses, mixtures.means)
    spread = inverses @ mixtures.covariances @ np.swapaxes(inverses, 1, 2)
    variances, axes = np.linalg.eigh(spread)
    variances, axes = variances[:, ::-1], axes[:, :, ::-1]
    return Frames(
        np.einsum("vst,vt->vs", mixtures.factors, whitened),
        np.ascontiguousarray(mixtures.factors @ axes),
        np.einsum("vts,vt->vs", axes, mixtures.centers - whitened),
        np.sqrt(np.maximum(variances, _SMALLEST_DEVIATION**2)),
    )


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


def draw_mixtures(
    facets: Facets,
    mixtures: Mixtures,
    n_draws: int,
    generator: np.random.Generator,
    reporter: Reporter | None = None,
) -> Floats:
    """Draw independent points from every mixture: (n_draws, n, S)."""
    frames = principal_frames(mixtures)
    n_samples, n_dimensions = len(mixtures.start) - 1, mixtures.means.shape[1]
    facets = facets._replace(normals=np.ascontiguousarray(facets.normals))
    choices = _choose_parts(
        mixtures.start, mixtures.weights, generator.random((n_samples, n_draws))
    )
    order = np.argsort(choices, kind="stable")
    parts, begins = np.unique(choices[order], return_index=True)
    begins = np.append(begins, len(choices))
    points = np.empty((len(choices), n_dimensions))
    regions = mixtures.regions[parts]
    with (reporter or Reporter()).count(len(choices), "draws") as advance:
        for batch in sample_batches(len(parts), MOST_SAMPLES):
            bounds = begins[batch.start : batch.stop + 1]
            n_done = _draw_plainly(
                facets, frames, parts[batch], regions[batch], bounds, generator, points
            )
            for i in np.flatnonzero(n_done < np.diff(bounds)):
                region = regions[batch][i]
                cell = make_cell(facets, frames, parts[batch][i], region)
                rest = points[bounds[i] + n_done[i] : bounds[i + 1]]
                if draw_in_boxes(cell, generator, rest) < len(rest):
                    raise RuntimeError(
                        f"Region {region} is too thin to draw from: no point was accepted in "
                        f"{MOST_REJECTIONS} trials. Try another random_state, or more noise."
                    )
            advance(int(bounds[-1]))
    draws = np.empty((n_samples * n_draws, n_dimensions))
    own = choices[order]
    for s in range(n_dimensions):
        coordinate = frames.origins[own, s]
        for t in range(n_dimensions):
            coordinate += frames.transforms[own, s, t] * points[:, t]
        draws[order, s] = coordinate
    return np.swapaxes(draws.reshape(n_samples, n_draws, n_dimensions), 0, 1)


@kernel
def _choose_parts(start: Integers, weights: Floats, uniform: Floats) -> Integers:
    """Choose the part of every draw: (n * m,), given numbers (n, m) between 0 and 1."""
    n_samples, n_draws = uniform.shape
    cumulative = weights.copy()
    choices = np.empty(n_samples * n_draws, dtype=np.intp)
    for n in range(n_samples):
        for v in range(start[n] + 1, start[n + 1]):
            cumulative[v] += cumulative[v - 1]
        own = cumulative[start[n] : start[n + 1]]
        for i in range(n_draws):
            choices[n * n_draws + i] = start[n] + choose(own, own.size, uniform[n, i])
    return choices


@kernel
def make_cell(facets: Facets, frames: Frames, part: int, region: int) -> Cell:
    """Express a region in the frame of a part."""
    origin, transform = frames.origins[part], frames.transforms[part]
    first, n_dimensions = facets.start[region], origin.size
    n_facets = facets.start[region + 1] - first
    normals, bounds = np.empty((n_facets, n_dimensions)), np.empty(n_facets)
    for f in range(n_facets):
        square, bound = 0.0, facets.offsets[first + f]
        for s in range(n_dimensions):
            bound -= facets.normals[first + f, s] * origin[s]
            normals[f, s] = 0.0
            for t in range(n_dimensions):
                normals[f, s] += transform[t, s] * facets.normals[first + f, t]
            square += normals[f, s] * normals[f, s]
        length = math.sqrt(square)
        bounds[f] = bound / length
        for s in range(n_dimensions):
            normals[f, s] /= length
    return Cell(normals, bounds, frames.slopes[part], frames.deviations[part])


@kernel
def _draw_plainly(
    facets: Facets,
    frames: Frames,
    parts: Integers,
    regions: Integers,
    begins: Integers,
    generator: Any,
    points: Floats,
) -> Integers:
    """Fill points (n, S) with draws from each part, as long as that is easy; count them."""
    n_done = np.empty(parts.size, dtype=np.intp)
    for i in range(parts.size):
        cell = make_cell(facets, frames, parts[i], regions[i])
        n_done[i] = draw_plainly(cell, generator, points[begins[i] : begins[i + 1]])
    return n_done
