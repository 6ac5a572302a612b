"""Samples with missing values, and models for them."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from skdgn._network import Network


def noise_of(kind: str, n_features: int = 4) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    variances = rng.uniform(0.1, 0.4, n_features)
    if kind == "spherical":
        return np.array(0.2)
    if kind == "diag":
        return variances
    mixing = rng.normal(size=(n_features, n_features))
    if kind == "factor":
        return 0.4 * mixing[:, :2], variances
    return np.diag(variances) + 0.1 * mixing @ mixing.T


def model_of(network: Network, covariance: np.ndarray) -> PiecewiseAffineDGN:
    names = [activation.name for activation in network.activations]
    return PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, covariance, activation=names
    )


def with_missing(rows: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(rows.shape) < share, np.nan, rows)


def make_table() -> np.ndarray:
    """A curve in three features, of another location and scale than what the model works in."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(-2.0, 2.0, 150)
    rows = np.stack([angle, np.sin(2.0 * angle), np.cos(angle)], axis=1)
    return 5.0 + 100.0 * (rows + 0.1 * rng.normal(size=rows.shape))


def fit_quietly(model: PiecewiseAffineDGN, *arguments: object) -> PiecewiseAffineDGN:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few iterations are enough here
        return model.fit(*arguments)
