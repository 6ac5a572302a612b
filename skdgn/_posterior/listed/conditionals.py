"""Per region, the Gaussian that the posterior would be if the region were all of latent space.

In units of the noise (tildes: multiplied by the inverse noise factor), on region r:

    [A~; I] = Q T,  Q = [P'; F]                   orthonormal columns, F = T^-1
    C_r     = (I + A~' A~)^-1 = F F'              conditional covariance
    y_r(x)  = P (x~ - b~)                         conditional mean in coordinates z = F y
    log evidence = log_constant_r - (|x~ - b~ - P' y|^2 + |F y|^2) / 2

The D x D matrix N + A A' never appears.  The quadratic form is taken from the residual: a
difference of squares loses all digits for outliers.  Nor do I + A~' A~, or P as a product of F and
A~': where A~ has small singular values beside large ones, a conditional mean from these would lose
twice as many digits as the problem does.  T is a triangle with permuted columns, that of which most
is left always first: its inverse then has no larger entries than it must.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skdgn._partition import Partition, gather
from skdgn._posterior.listed.frames import Frame
from skdgn._runtime import Floats


class Conditionals(NamedTuple):
    """Conditional Gaussians of all regions (a tuple: kernels read it)."""

    offsets: Floats  # (R, D) b~; D is the number of coordinates, if these are fewer than features
    factors: Floats  # (R, S, S) F
    projections: Floats  # (R, S, D) P
    log_constants: Floats  # (R,)
    facet_start: np.ndarray[tuple[int], np.dtype[np.intp]]  # (R + 1,)
    facet_normals: Floats  # (F, S) in coordinates y, unit length
    facet_offsets: Floats  # (F,)


def condition(partition: Partition, frame: Frame) -> Conditionals:
    """Condition every region's affine map on an observation."""
    n_regions, n_coordinates, n_components = frame.shape

    def compute(part: slice) -> tuple[Floats, ...]:
        maps = frame.take(part)
        slopes, offsets = maps.slopes, maps.offsets
        if n_components == 1:
            lengths = np.sqrt(1.0 + np.square(slopes).sum(axis=1))
            orthonormal, factors = slopes / lengths[:, None], 1.0 / lengths[:, None]
        else:
            identity = np.broadcast_to(np.eye(n_components), (len(slopes), *(n_components,) * 2))
            orthonormal, lengths, factors = _factorize(np.concatenate([slopes, identity], axis=1))
        projections = np.swapaxes(orthonormal[:, :n_coordinates], 1, 2)
        return offsets, np.ascontiguousarray(projections), factors, lengths

    offsets, projections, factors, lengths = gather(n_regions, compute)

    facets = partition.cells.facets()
    regions = np.repeat(np.arange(n_regions), np.diff(facets.start))
    normals = np.einsum("fts,ft->fs", factors[regions], facets.normals)
    sizes = np.linalg.norm(normals, axis=1)
    return Conditionals(
        offsets=offsets,
        factors=factors,
        projections=projections,
        log_constants=frame.log_constant - np.log(lengths).sum(axis=1),
        facet_start=facets.start,
        facet_normals=normals / sizes[:, None],
        facet_offsets=facets.offsets / sizes,
    )


def _factorize(stacked: Floats) -> tuple[Floats, Floats, Floats]:
    """Factorize matrices (R, D + S, S) as ``Q T``.

    Returns Q, the factors of T's determinant up to its sign, (R, S), and T's inverse, of positive
    determinant.
    """
    n_matrices, _, n_columns = stacked.shape
    every = np.arange(n_matrices)
    columns = np.moveaxis(stacked, 2, 0).copy()  # (S, R, D + S)
    triangles = np.zeros((n_columns, n_matrices, n_columns))  # by columns, too
    order = np.repeat(np.arange(n_columns)[:, None], n_matrices, axis=1)
    signs = np.ones(n_matrices)
    for s in range(n_columns):
        # Of what the columns before do not explain, the largest.
        largest = s + np.square(columns[s:]).sum(axis=2).argmax(axis=0)
        for array in (columns, triangles, order):
            array[s], array[largest, every] = array[largest, every], array[s].copy()
        signs[largest != s] *= -1.0
        # Once more: what is left of a long column has rounding errors along those before.
        for t in range(s):
            along = np.einsum("rd,rd->r", columns[t], columns[s])
            columns[s] -= along[:, None] * columns[t]
            triangles[s, :, t] += along
        triangles[s, :, s] = np.sqrt(np.square(columns[s]).sum(axis=1))
        columns[s] /= triangles[s, :, s, None]
        for t in range(s + 1, n_columns):
            along = np.einsum("rd,rd->r", columns[s], columns[t])
            columns[t] -= along[:, None] * columns[s]
            triangles[t, :, s] = along
    inverses = np.empty((n_matrices, n_columns, n_columns))
    inverses[every[:, None], order.T] = np.linalg.inv(np.moveaxis(triangles, 0, 2))
    orthonormal = np.moveaxis(columns, 0, 2).copy()
    inverses[:, :, -1] *= signs[:, None]
    orthonormal[:, :, -1] *= signs[:, None]
    return orthonormal, np.diagonal(triangles, axis1=0, axis2=2), inverses
