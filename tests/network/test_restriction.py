"""Networks on boxes equal the whole network there, with fewer units."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._network import Network, restrict_network
from skdgn.layers import ConvTranspose2d, Dense, ReLU, Reshape
from tests.network.test_layers import CUTTING, random_network

HALVES = [2.0, 0.3, 1e-3]


def points_in(center: np.ndarray, half: float, seed: int) -> np.ndarray:
    return center + half * np.random.default_rng(seed).uniform(-1.0, 1.0, (500, len(center)))


def count_codes(network: Network) -> int:
    return sum(layer.n_codes for layer in network.layers)


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("name", CUTTING)
def test_a_restricted_network_is_the_same_on_its_box(name: str, n_components: int) -> None:
    network = random_network(name, n_components)
    center = np.random.default_rng(1).normal(size=n_components)
    for half in HALVES:
        local = restrict_network(network, center, half)
        latent = points_in(center, half, seed=2)
        np.testing.assert_allclose(local.forward(latent), network.forward(latent), atol=1e-12)
        assert count_codes(local) <= count_codes(network)
        # A smaller box within it.
        inner = restrict_network(local, center + 0.25 * half, half / 2.0)
        latent = points_in(center + 0.25 * half, half / 2.0, seed=3)
        np.testing.assert_allclose(inner.forward(latent), network.forward(latent), atol=1e-12)
    assert count_codes(local) < count_codes(network)


def test_what_does_not_bend_is_one_affine_layer() -> None:
    layers = [Dense(36), ReLU(), Reshape((4, 3, 3)), ConvTranspose2d(1, 4, stride=2, padding=1)]
    network = Network.from_blueprints(layers, 2)
    bending = []
    for half in (1.0, 0.1, 1e-9):
        local = restrict_network(network, np.array([0.4, -0.3]), half)
        bending.append(count_codes(local))
        assert len(local.layers) == (3 if bending[-1] else 1)
        assert local.layers[-1].n_inputs == bending[-1] + 2
    assert bending[0] > bending[1] > bending[2] == 0
