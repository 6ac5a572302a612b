"""Build cells from halfspaces and integrate Gaussians over them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skdgn._geometry.integrals import integrate_all
from skdgn._geometry.interface import Cells
from skdgn._geometry.kinds import whole_space

# Tails of polyhedra take long; sums of prior masses do not need them to more than this.
POLYHEDRON_LOG_TOLERANCE = np.log(1e-13)


class Integral(NamedTuple):
    """Log mass of a Gaussian on a cell; mean and covariance of the truncated Gaussian."""

    log_mass: float
    mean: np.ndarray
    covariance: np.ndarray


def integrate_cells(
    cells: Cells,
    centers: ArrayLike,
    factors: ArrayLike,
    log_tolerance: float = -np.inf,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integrate N(centers[r], factors[r] factors[r]') over cell r; full accuracy unless told."""
    centers = np.asarray(centers, dtype=float)
    factors = np.asarray(factors, dtype=float)
    whitened_centers = np.linalg.solve(factors, centers[:, :, None])[:, :, 0]
    log_masses, means, covariances, _ = integrate_all(
        cells.whiten(factors),
        np.ascontiguousarray(whitened_centers),
        np.full(len(cells), log_tolerance),
    )
    return log_masses, means, covariances


def integrate(
    cell: Cells,
    center: ArrayLike | None = None,
    factor: ArrayLike | None = None,
    log_tolerance: float = -np.inf,
    *,
    n_dimensions: int = 2,
) -> Integral:
    """Integrate one Gaussian over a single cell; N(0, I) unless told otherwise."""
    assert len(cell) == 1
    center = np.zeros(n_dimensions) if center is None else np.asarray(center, dtype=float)
    factor = np.eye(len(center)) if factor is None else np.asarray(factor, dtype=float)
    log_masses, means, covariances = integrate_cells(
        cell, center[None], factor[None], log_tolerance
    )
    return Integral(float(log_masses[0]), means[0], covariances[0])


def prior_masses(cells: Cells, n_dimensions: int) -> np.ndarray:
    """Masses of N(0, I) on every cell."""
    factors = np.broadcast_to(np.eye(n_dimensions), (len(cells), n_dimensions, n_dimensions))
    centers = np.zeros((len(cells), n_dimensions))
    log_tolerance = -np.inf if n_dimensions < 3 else POLYHEDRON_LOG_TOLERANCE
    return np.exp(integrate_cells(cells, centers, factors, log_tolerance)[0])


def cut(cell: Cells, normal: ArrayLike, offset: float) -> tuple[Cells | None, Cells | None]:
    """Parts of a single cell on either side of ``normal @ z = offset``; None where it is empty."""
    normal = np.asarray(normal, dtype=float)
    length = np.linalg.norm(normal)
    pieces = cell.split(normal[None] / length, np.array([-offset / length]))
    parts: dict[bool, Cells] = {}
    for index, positive in enumerate(pieces.positive):
        parts[bool(positive)] = pieces.cells.take(np.array([index]))
    return parts.get(True), parts.get(False)


def cell_from_halfspaces(normals: ArrayLike, offsets: ArrayLike, n_dimensions: int = 2) -> Cells:
    """Make the cell where ``normals @ z >= offsets``, which must not be empty."""
    cell = whole_space(n_dimensions)
    for normal, offset in zip(
        np.reshape(normals, (-1, n_dimensions)), np.ravel(offsets), strict=True
    ):
        inside, _ = cut(cell, normal, float(offset))
        assert inside is not None, "the halfspaces have nothing in common"
        cell = inside
    return cell


def combine(parts: list[Integral]) -> Integral:
    """Mass and moments of a union of disjoint cells."""
    log_masses = np.array([part.log_mass for part in parts])
    largest = log_masses.max()
    weights = np.exp(log_masses - largest)
    log_mass = float(largest + np.log(weights.sum()))
    weights /= weights.sum()
    mean = sum(w * part.mean for w, part in zip(weights, parts, strict=True))
    covariance = np.zeros((len(mean), len(mean)))
    for weight, part in zip(weights, parts, strict=True):
        shift = part.mean - mean
        covariance += weight * (part.covariance + np.outer(shift, shift))
    return Integral(log_mass, mean, covariance)
