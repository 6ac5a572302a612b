"""Per region, the Gaussian that the posterior would be if the region were all of latent space.

In units of the noise (tildes: multiplied by the inverse noise factor), on region r:

    C_r     = (I + A~' A~)^-1 = F F'             conditional covariance
    y_r(x)  = F' A~' (x~ - b~)                    conditional mean in coordinates z = F y
    log evidence = log_constant_r - (|x~ - b~ - A~ m|^2 + |m|^2) / 2     with m = F y_r(x)

The D x D matrix N + A A' never appears.  The quadratic form is taken from the residual: a
difference of squares loses all digits for outliers.
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
    projections: Floats  # (R, S, D) F' A~'
    centers: Floats  # (R, S) conditional mean y of x~ = 0
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

    # QR of [I; A~] rather than Cholesky of I + A~'A~: the condition number is not squared.
    identity = np.broadcast_to(np.eye(n_components), (n_regions, n_components, n_components))
    triangle = np.linalg.qr(np.concatenate([identity, slopes], axis=1), mode="r")
    triangle *= np.sign(np.diagonal(triangle, axis1=1, axis2=2))[:, :, None]
    factors = np.linalg.inv(triangle)
    projections = np.swapaxes(slopes @ factors, 1, 2)
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
        centers=-np.einsum("rsd,rd->rs", projections, offsets),
        log_constants=log_constants,
        facet_start=facets.start,
        facet_normals=normals / lengths[:, None],
        facet_offsets=facets.offsets / lengths,
    )
