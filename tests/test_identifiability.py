"""The number of identifiable parameters is the rank of the derivatives of the density."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from skdgn._batches import Workers
from skdgn._model import Model
from skdgn._network import ACTIVATIONS, Network
from skdgn._noise import Noise
from tests.networks import make_network

# From the latent space to the features: bottlenecks, more latent dimensions than units, no layer.
ARCHITECTURES = [
    (1, 3),
    (2, 3),
    (3, 2),
    (2, 4),
    (1, 2, 2),
    (1, 3, 2),
    (2, 1, 2),
    (2, 2, 2),
    (2, 3, 2),
    (3, 1, 3),
    (3, 2, 3),
    (2, 1, 1, 2),
]  # Behind (2, 2, 1), the count is too high: bottlenecks further up are not looked for.
N_NETWORKS = len(ARCHITECTURES)
N_ROWS = 80

# Central differences of sixth order: their error is 1e-12 or so.
STEP = 2e-3
DIFFERENCES = {1: 3.0 / 4.0, 2: -3.0 / 20.0, 3: 1.0 / 60.0}
# Singular values of a matrix with columns of length 1: rounding is below the first, and what is
# identified is above the second.
NOISE_LEVEL, SMALLEST = 1e-9, 1e-7


def draw_network(widths: Sequence[int], seed: int) -> Network:
    """Draw weights until every hidden unit has either sign on a fair share of latent space."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(1000, widths[0]))
    while True:
        network = make_network(
            [rng.normal(size=(n_out, n_in)) for n_in, n_out in itertools.pairwise(widths)],
            [0.5 * rng.normal(size=width) for width in widths[1:]],
            ACTIVATIONS[seed % len(ACTIVATIONS)],
        )
        shares = network.patterns(latent).mean(axis=0)
        if np.all((shares > 0.15) & (shares < 0.85)):
            return network


def covariance_of(parameters: np.ndarray, covariance_type: str, n_features: int) -> np.ndarray:
    if covariance_type == "spherical":
        return np.exp(parameters[0])
    if covariance_type == "diag":
        return np.exp(parameters)
    factor = np.zeros((n_features, n_features))
    factor[np.tril_indices(n_features)] = parameters
    return factor @ factor.T


def noise_parameters(covariance_type: str, n_features: int) -> np.ndarray:
    if covariance_type == "spherical":
        return np.log([0.1])
    if covariance_type == "diag":
        return np.log(np.linspace(0.05, 0.2, n_features))
    covariance = 0.03 + np.diag(np.linspace(0.05, 0.2, n_features))
    return np.linalg.cholesky(covariance)[np.tril_indices(n_features)]


def singular_values(network: Network, covariance_type: str, seed: int) -> tuple[int, np.ndarray]:
    """Count parameters, and differentiate the log density by all of them at many points."""
    arrays = [*network.coefs, *network.intercepts]
    ends = np.cumsum([array.size for array in arrays])
    n_features = network.n_features
    noise = noise_parameters(covariance_type, n_features)

    def build(parameters: np.ndarray) -> Model:
        *flat, rest = np.split(parameters, ends)
        layers = [part.reshape(array.shape) for part, array in zip(flat, arrays, strict=True)]
        changed = Network.from_arrays(
            layers[: len(network.coefs)], layers[len(network.coefs) :], network.activation
        )
        covariance = covariance_of(rest, covariance_type, n_features)
        return Model.build(changed, Noise.from_covariance(covariance, n_features))

    center = np.concatenate([*(array.ravel() for array in arrays), noise])
    rng = np.random.default_rng(seed)
    rows = network.forward(rng.normal(size=(N_ROWS, network.n_components)))
    rows = rows + 0.4 * rng.normal(size=rows.shape)
    derivatives = np.zeros((N_ROWS, center.size))
    for k, (n_steps, weight) in itertools.product(range(center.size), DIFFERENCES.items()):
        for sign in (1.0, -1.0):
            moved = center.copy()
            moved[k] += sign * n_steps * STEP
            derivatives[:, k] += sign * weight / STEP * build(moved).log_density(rows, Workers())
    derivatives /= np.maximum(np.linalg.norm(derivatives, axis=0), 1e-300)
    return build(center).n_parameters, np.linalg.svd(derivatives, compute_uv=False)


@pytest.mark.parametrize("covariance_type", ["spherical", "diag", "full"])
def test_as_many_parameters_are_counted_as_the_density_tells_apart(covariance_type: str) -> None:
    for seed in range(N_NETWORKS):
        widths = ARCHITECTURES[seed % len(ARCHITECTURES)]
        n_parameters, values = singular_values(draw_network(widths, seed), covariance_type, seed)
        assert values[n_parameters - 1] > SMALLEST, (widths, seed)
        assert np.all(values[n_parameters:] < NOISE_LEVEL), (widths, seed)
