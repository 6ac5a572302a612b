"""Networks of other layers that compute what dense ones do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skdgn._fit.starts.counterparts import dense_counterparts, imitate
from skdgn._network import Architecture, Network
from skdgn.layers import Conv1d, Dense, HardTanh, MaxOut, PReLU, Reshape
from tests.networks import random_network


@pytest.mark.parametrize(
    ("layers", "widths"),
    [
        ([Dense(4), PReLU()], (4,)),
        ([Dense(4), PReLU("layer"), Dense(6), MaxOut(2)], (4, 3)),
        ([Dense(6), MaxOut(2), Dense(4), PReLU("channel"), Dense(3)], (3, 4)),
    ],
)
def test_an_imitation_computes_the_same(layers: list[Any], widths: tuple[int, ...]) -> None:
    architecture = Architecture.of_layers(2, layers)
    latent = np.random.default_rng(0).normal(size=(50, 2))
    random = random_network(2, widths, activation="leaky_relu")
    counterparts = dense_counterparts(architecture, 3)
    assert [own.activations[0].negative_slope for own in counterparts] == [0.1, -1.0]
    for counterpart in counterparts:
        assert counterpart.hidden_layer_sizes == widths
        dense = Network.dense(random.coefs, random.intercepts, counterpart.activations)
        other = imitate(dense, architecture, latent)
        np.testing.assert_allclose(other.forward(latent), dense.forward(latent), atol=1e-12)
        assert other.architecture.outline(3) == architecture.outline(3)


def test_more_pieces_round_the_kinks_off() -> None:
    architecture = Architecture.of_layers(1, [Dense(4), MaxOut(4), Dense(3)])
    dense = random_network(1, (1,), activation="leaky_relu")
    latent = np.linspace(-5.0, 5.0, 500)[:, None]
    other = imitate(dense, architecture, latent)
    assert len(np.unique(other.patterns(latent), axis=0)) == 4
    differences = np.abs(other.forward(latent) - dense.forward(latent)).max(axis=1)
    assert 0.0 < differences.max() < 0.2 * np.abs(dense.forward(latent)).max()
    # Away from the kink, nothing has changed.
    np.testing.assert_allclose(differences[[0, -1]], 0.0, atol=1e-12)


@pytest.mark.parametrize(
    "layers",
    [
        [Dense(3)],
        [Dense(4), HardTanh()],
        [Dense(4), PReLU("layer", [0.3])],
        [Dense(2, [[1.0], [2.0]]), MaxOut(2)],
        [Dense(4), Reshape((2, 2)), Conv1d(2, 1)],
        [Dense(4), Dense(4), PReLU()],
    ],
)
def test_others_have_no_counterpart(layers: list[Any]) -> None:
    assert dense_counterparts(Architecture.of_layers(1, layers), 3) == []
