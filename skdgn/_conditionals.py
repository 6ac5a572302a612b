"""Per region, the Gaussian that the posterior would be if the region were all of latent space.

In units of the noise (tildes: multiplied by the inverse noise factor), on region r:

    [A~; I] = Q T,  Q = [P'; F]                   orthonormal columns, an upper triangle T
    C_r     = (I + A~' A~)^-1 = F F'              conditional covariance, F = T^-1
    y_r(x)  = P (x~ - b~)                         conditional mean in coordinates z = F y
    log evidence = log_constant_r - (|x~ - b~ - P' y|^2 + |F y|^2) / 2

The D x D matrix N + A A' never appears.  The quadratic form is taken from the residual: a
difference of squares loses all digits for outliers.  Nor do I + A~' A~, or P as a product of F and
A~': where A~ has small singular values beside large ones, a conditional mean from these would lose
twice as many digits as the problem does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skdgn._network import Floats
from skdgn._noise import Noise
from skdgn._partition import Partition


class Conditionals(NamedTuple):
    """Whitened maps and conditional Gaussians of all regions (a tuple: kernels read it)."""

    slopes: Floats  # (R, D, S) A~
    offsets: Floats  # (R, D) b~
    factors: Floats  # (R, S, S) F
    projections: Floats  # (R, S, D) P
    log_constants: Floats  # (R,)
    facet_start: np.ndarray[tuple[int], np.dtype[np.intp]]  # (R + 1,)
    facet_normals: Floats  # (F, S) in coordinates y, unit length
    facet_offsets: Floats  # (F,)


def condition(partition: Partition, noise: Noise) -> Conditionals:
    """Condition every region's affine map on an observation."""
    maps = partition.maps
    n_regions, n_features, n_components = maps.slopes.shape
    slopes = noise.whiten_maps(maps.slopes)
    offsets = noise.whiten(maps.offsets)

    # Large rows first: reflections then leave small ones as they are.
    identity = np.broadcast_to(np.eye(n_components), (n_regions, n_components, n_components))
    orthonormal, triangle = np.linalg.qr(np.concatenate([slopes, identity], axis=1))
    signs = np.sign(np.diagonal(triangle, axis1=1, axis2=2))
    triangle *= signs[:, :, None]
    factors = np.linalg.inv(triangle)
    projections = np.swapaxes(orthonormal[:, :n_features] * signs[:, None], 1, 2)
    log_constants = -0.5 * (n_features * np.log(2.0 * np.pi) + noise.log_determinant) - np.log(
        np.diagonal(triangle, axis1=1, axis2=2)
    ).sum(axis=1)

    facets = partition.cells.facets()
    regions = np.repeat(np.arange(n_regions), np.diff(facets.start))
    normals = np.einsum("fts,ft->fs", factors[regions], facets.normals)
    lengths = np.linalg.norm(normals, axis=1)
    return Conditionals(
        slopes=np.ascontiguousarray(slopes),
        offsets=offsets,
        factors=np.ascontiguousarray(factors),
        projections=np.ascontiguousarray(projections),
        log_constants=log_constants,
        facet_start=facets.start,
        facet_normals=normals / lengths[:, None],
        facet_offsets=facets.offsets / lengths,
    )
