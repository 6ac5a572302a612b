"""Gaussians q(z | x) that a user gives, one for each sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from skdgn._runtime import Floats, finite_array

# A covariance computed by its user is symmetric to rounding only.
_ROUNDING_ASYMMETRY = 1e-8


def check_gaussians(
    means: ArrayLike | None, covariances: ArrayLike | None, n_samples: int, n_components: int
) -> tuple[Floats, Floats]:
    """Check Gaussians; return their means and the lower factors of their covariances."""
    if means is None or covariances is None:
        names = ("means", "covariances")
        missing, other = names if means is None else names[::-1]
        raise ValueError(f"{missing} must be given together with {other}, got None.")
    checked = finite_array(means, "means")
    if checked.shape != (n_samples, n_components):
        raise ValueError(
            f"means must have shape {(n_samples, n_components)}, got shape {checked.shape}."
        )
    matrices = finite_array(covariances, "covariances")
    if matrices.shape != (n_samples, n_components, n_components):
        raise ValueError(
            f"covariances must have shape {(n_samples, n_components, n_components)}, "
            f"got shape {matrices.shape}."
        )
    mirrored = np.swapaxes(matrices, 1, 2)
    asymmetry = np.abs(matrices - mirrored).max(axis=(1, 2))
    if np.any(asymmetry > _ROUNDING_ASYMMETRY * np.abs(matrices).max(axis=(1, 2))):
        raise ValueError(
            "covariances must be symmetric, "
            f"got entries that differ from their mirror image by up to {asymmetry.max()}."
        )
    matrices = 0.5 * (matrices + mirrored)
    try:
        return checked, np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(matrices)[:, 0].min()
        raise ValueError(
            "covariances must be positive definite, "
            f"got a matrix with smallest eigenvalue {smallest}."
        ) from None
