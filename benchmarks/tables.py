"""Tables of 10 features, 10,000 rows unless told, that the benchmarks of whole fits share."""

from __future__ import annotations

import numpy as np

N_ROWS, N_FEATURES = 10_000, 10
N_CLUSTERS = 8


def make_curve(seed: int, n_rows: int = N_ROWS) -> np.ndarray:
    """Draw rows around a smooth curve that turns several times."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n_rows, 1))
    curve = np.cos(1.5 * latent + np.arange(N_FEATURES)) * np.linspace(1.0, 2.0, N_FEATURES)
    return curve + 0.1 * rng.normal(size=curve.shape)


def make_sheet(seed: int, n_rows: int = N_ROWS) -> np.ndarray:
    """Draw rows around a smooth surface."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n_rows, 2))
    phases = np.arange(N_FEATURES)
    sheet = np.cos(latent[:, :1] + phases) + np.sin(0.8 * latent[:, 1:] + 2.0 * phases)
    return sheet + 0.1 * rng.normal(size=sheet.shape)


def make_clusters(seed: int, n_rows: int = N_ROWS) -> np.ndarray:
    """Draw rows from eight Gaussians, correlated each in its own way."""
    fixed = np.random.default_rng(0)
    centers = 3.0 * fixed.normal(size=(N_CLUSTERS, N_FEATURES))
    mixing = 0.5 * fixed.normal(size=(N_CLUSTERS, N_FEATURES, N_FEATURES))
    rng = np.random.default_rng(seed + 1)
    members = rng.integers(N_CLUSTERS, size=n_rows)
    spread = np.einsum("nij,nj->ni", mixing[members], rng.normal(size=(n_rows, N_FEATURES)))
    return centers[members] + spread + 0.3 * rng.normal(size=spread.shape)
