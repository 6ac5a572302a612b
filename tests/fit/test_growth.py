"""Units added to networks and removed from them."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._fit.starts.growth import (
    LatentPoints,
    add_units,
    halve_latent_space,
    remove_units,
    write_linear_network,
)
from skdgn._network import Activation, Architecture, Dense
from skdgn._noise import KINDS
from tests.networks import random_network

LEAKY = Activation.from_name("leaky_relu", 0.1)


def points_of(network, target, n_points=400) -> LatentPoints:
    latent = np.random.default_rng(0).standard_normal((n_points, network.n_components))
    return LatentPoints(latent, target(latent) - network.forward(latent), np.ones(n_points))


@pytest.mark.parametrize("n_components", [1, 2])
def test_added_units_change_nothing_yet_and_have_their_kinks_where_they_are_missed(n_components):
    network = random_network(n_components, (3,), activation="leaky_relu", seed=0)

    def target(latent):
        # A kink at 0.5, which the network does not have.
        return network.forward(latent) + np.maximum(latent[:, :1] - 0.5, 0.0)

    points = points_of(network, target)
    grown = add_units(network, points, 2, np.random.default_rng(0))
    assert grown.hidden_layer_sizes == (5,)
    np.testing.assert_allclose(grown.forward(points.latent), network.forward(points.latent))
    direction, bias = grown.coefs[0][3], grown.intercepts[0][3]
    kink = -bias * direction / (direction @ direction)
    assert abs(kink[0] - 0.5) < 0.3


def test_no_unit_is_added_that_others_can_stand_in_for():
    network = write_linear_network(np.ones((2, 1)), np.zeros(2), Architecture.alike(1, (2,), LEAKY))
    # All latent points are on one side of all kinks there may be.
    points = LatentPoints(np.full((50, 1), 3.0), np.ones((50, 2)), np.ones(50))
    assert add_units(network, points, 2, np.random.default_rng(0)).hidden_layer_sizes == (2,)


def test_removed_units_are_those_that_nobody_misses():
    network = random_network(1, (4,), activation="leaky_relu", seed=0)
    points = points_of(network, network.forward)
    grown = add_units(network, points, 3, np.random.default_rng(0))
    noise = KINDS["diag"].from_variances(np.ones(network.n_features))
    shrunk = remove_units(grown, noise, points, 3)
    assert shrunk.hidden_layer_sizes == (4,)
    # Those without any output were as good as absent.
    np.testing.assert_allclose(
        shrunk.forward(points.latent), network.forward(points.latent), atol=1e-6
    )
    linear = remove_units(grown, noise, points, 7)
    assert linear.is_affine
    basis = np.column_stack([points.latent, np.ones(len(points.latent))])
    expected = basis @ np.linalg.lstsq(basis, network.forward(points.latent), rcond=None)[0]
    np.testing.assert_allclose(linear.forward(points.latent), expected, atol=1e-8)


def test_a_unit_that_is_zero_everywhere_is_removed_first():
    network = random_network(1, (3,), activation="relu", seed=0)
    dead = network.replace_layers(
        [0], [Dense(np.array([[1.0], [1.0], [-1.0]]), np.array([-50.0, 0.3, 0.2]))]
    )
    points = points_of(dead, dead.forward)
    noise = KINDS["diag"].from_variances(np.ones(dead.n_features))
    smaller = remove_units(dead, noise, points, 1)
    assert smaller.hidden_layer_sizes == (2,)
    np.testing.assert_allclose(smaller.forward(points.latent), dead.forward(points.latent))


def test_halves_meet_in_the_middle():
    architecture = Architecture.alike(2, (4,), LEAKY)
    slopes = np.array([[3.0, 0.0], [0.0, 1.0]])
    network = write_linear_network(slopes, np.array([1.0, 2.0]), architecture)
    means = np.array([half.forward(np.zeros((1, 2)))[0] for half in halve_latent_space(network)])
    # Across the direction along which the output varies the most.
    distance = 3.0 * np.sqrt(2.0 / np.pi)
    np.testing.assert_allclose(np.sort(means[:, 0]), [1.0 - distance, 1.0 + distance])
    np.testing.assert_allclose(means[:, 1], 2.0)
