"""Per region, the Gaussian that the posterior would be if the region were all of latent space.

In units of the noise (tildes: multiplied by the inverse noise factor), on region r:

    C_r     = (I + A~' A~)^-1 = F F'             conditional covariance
    y_r(x)  = F' A~' (x~ - b~)                    conditional mean in coordinates z = F y
    log evidence = log_constant_r - (|x~ - b~ - A~ m|^2 + |m|^2) / 2     with m = F y_r(x)

The D x D matrix N + A A' never appears.  The quadratic form is taken from the residual: a
difference of squares loses all digits for outliers.

Where regions have noises of their own, rows, slopes and offsets are in units of the reference, and
only residuals are multiplied by the region's whitener (`skdgn._regional_noise`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skdgn._jit import kernel
from skdgn._network import Floats
from skdgn._partition import Partition
from skdgn._regional_noise import AnyNoise, whiten_relative


class Conditionals(NamedTuple):
    """Whitened maps and conditional Gaussians of all regions (a tuple: kernels read it)."""

    slopes: Floats  # (R, D, S) A~, in units of the reference
    offsets: Floats  # (R, D) b~, in units of the reference
    whiteners: Floats  # (R, D, 1 or D) of residuals; (0, 0, 0) if the noise is shared
    factors: Floats  # (R, S, S) F
    projections: Floats  # (R, S, D) F' A~' for rows in units of the reference
    centers: Floats  # (R, S) conditional mean y of x~ = 0
    log_constants: Floats  # (R,)
    log_determinants: Floats  # (R,) of the noise, in units of the reference
    facet_start: np.ndarray[tuple[int], np.dtype[np.intp]]  # (R + 1,)
    facet_normals: Floats  # (F, S) in coordinates y, unit length
    facet_offsets: Floats  # (F,)


def condition(partition: Partition, noise: AnyNoise) -> Conditionals:
    """Condition every region's affine map on an observation."""
    maps = partition.maps
    n_regions, n_features, n_components = maps.slopes.shape
    reference, whiteners = noise.reference, noise.relative_whiteners
    slopes = np.swapaxes(reference.whiten(np.swapaxes(maps.slopes, 1, 2)), 1, 2)
    offsets = reference.whiten(maps.offsets)
    own_slopes = whiten_relative(whiteners, slopes)

    # QR of [I; A~] rather than Cholesky of I + A~'A~: the condition number is not squared.
    identity = np.broadcast_to(np.eye(n_components), (n_regions, n_components, n_components))
    triangle = np.linalg.qr(np.concatenate([identity, own_slopes], axis=1), mode="r")
    triangle *= np.sign(np.diagonal(triangle, axis1=1, axis2=2))[:, :, None]
    factors = np.linalg.inv(triangle)
    # The whiteners are applied from the other side: to slopes here, instead of to every row.
    transposed = np.swapaxes(whiteners, 1, 2) if whiteners.shape[2] > 1 else whiteners
    projections = np.swapaxes(whiten_relative(transposed, own_slopes @ factors), 1, 2)
    log_determinants = noise.relative_log_determinants(n_regions)
    log_constants = -0.5 * (
        n_features * np.log(2.0 * np.pi) + reference.log_determinant + log_determinants
    ) - np.log(np.diagonal(triangle, axis1=1, axis2=2)).sum(axis=1)

    facets = partition.cells.facets()
    regions = np.repeat(np.arange(n_regions), np.diff(facets.start))
    normals = np.einsum("fts,ft->fs", factors[regions], facets.normals)
    lengths = np.linalg.norm(normals, axis=1)
    return Conditionals(
        slopes=np.ascontiguousarray(slopes),
        offsets=offsets,
        whiteners=whiteners,
        factors=np.ascontiguousarray(factors),
        projections=np.ascontiguousarray(projections),
        centers=-np.einsum("rsd,rd->rs", projections, offsets),
        log_constants=log_constants,
        log_determinants=log_determinants,
        facet_start=facets.start,
        facet_normals=normals / lengths[:, None],
        facet_offsets=facets.offsets / lengths,
    )


@kernel
def whiten_residuals(whiteners: Floats, region: int, residuals: Floats) -> None:
    """Multiply residuals (D,), in units of the reference, by a region's whitener, in place."""
    if whiteners.size > 0:
        for d in range(residuals.size - 1, -1, -1):  # the last first: the others are still needed
            if whiteners.shape[2] == 1:
                residuals[d] *= whiteners[region, d, 0]
            else:
                total = 0.0
                for e in range(d + 1):
                    total += whiteners[region, d, e] * residuals[e]
                residuals[d] = total
