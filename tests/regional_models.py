"""Models whose noise differs from region to region."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from skdgn._network import Network

D = 3


def covariances_of(kind: str, n_regions: int, n_features: int = D, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    # (smaller ones would be too much for the quadrature)
    variances = rng.uniform(0.25, 1.0, (n_regions, n_features))
    if kind == "spherical":
        return variances[:, 0]
    if kind == "diag":
        return variances
    mixing = rng.normal(size=(n_regions, n_features, n_features))
    return variances[:, :, None] * np.eye(n_features) + 0.2 * mixing @ np.swapaxes(mixing, 1, 2)


def model_of(network: Network, covariance: object, noise: str = "regional") -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN.from_network(
        network.coefs,
        network.intercepts,
        covariance,
        activation=network.activation.name,
        noise=noise,
    )


def fit_quietly(model: PiecewiseAffineDGN, rows: np.ndarray) -> PiecewiseAffineDGN:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few iterations are enough here
        return model.fit(rows)
