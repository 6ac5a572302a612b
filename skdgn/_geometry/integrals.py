"""One Gaussian, all cells: masses and moments."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skdgn._geometry.interface import Cells, integrate_cell_with_error
from skdgn._runtime import Floats, kernel


class CellIntegrals(NamedTuple):
    """Log mass of every cell, and mean and covariance of the Gaussian truncated to it.

    Errors are relative standard errors of the masses; zero where these are exact to rounding.
    """

    log_masses: Floats  # (R,)
    means: Floats  # (R, S)
    covariances: Floats  # (R, S, S)
    errors: Floats  # (R,)


def integrate_gaussian(
    cells: Cells, mean: Floats, covariance: Floats, log_tolerance: float | Floats = -math.inf
) -> CellIntegrals:
    """Integrate N(mean, covariance) over every cell.

    Masses have full relative accuracy, or the absolute error exp(log_tolerance) if that is larger,
    one for all cells or one for each; those of polytopes have the errors given.
    """
    factor = np.linalg.cholesky(covariance)
    whitened = cells.whiten(np.broadcast_to(factor, (len(cells), *factor.shape)))
    centers = np.tile(np.linalg.solve(factor, mean), (len(cells), 1))
    return CellIntegrals(*integrate_all(whitened, centers, np.full(len(cells), log_tolerance)))


@kernel
def integrate_all(
    cells: Any, centers: Floats, log_tolerances: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Integrate over whitened cells the Gaussians with these centers, one for each."""
    n_cells, n_dimensions = centers.shape
    log_masses = np.empty(n_cells)
    means = np.empty((n_cells, n_dimensions))
    covariances = np.empty((n_cells, n_dimensions, n_dimensions))
    errors = np.empty(n_cells)
    for r in range(n_cells):
        log_masses[r], errors[r] = integrate_cell_with_error(
            cells, r, centers[r], log_tolerances[r], means[r], covariances[r]
        )
    return log_masses, means, covariances, errors
