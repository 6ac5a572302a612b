"""Regions that were met, compared with a list of all."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._network import Network
from skdgn._partition import add_regions, build_partition, explored_partition
from skdgn.layers import Dense, MaxOut, ReLU
from tests.networks import random_network


def explore(network: Network, n_points: int = 4000, seed: int = 0):
    points = 2.0 * np.random.default_rng(seed).normal(size=(n_points, network.n_components))
    patterns = network.patterns(points)
    _, new = add_regions(patterns[:0], patterns)
    return points, explored_partition(network, points[new], patterns[new])


def networks() -> list[Network]:
    layers = [Dense(4), ReLU(), Dense(6), MaxOut(2), Dense(3)]
    return [
        random_network(4, (5,)),
        random_network(4, (4, 3), activation="leaky_relu"),
        Network.from_blueprints(layers, 4, np.random.default_rng(1)),
    ]


@pytest.mark.parametrize("network", networks())
def test_regions_are_those_of_the_list(network: Network) -> None:
    points, explored = explore(network)
    listed = build_partition(network)
    places = listed.locate(explored.patterns)
    assert len(np.unique(places)) == len(explored)
    np.testing.assert_array_equal(listed.patterns[places], explored.patterns)
    np.testing.assert_allclose(explored.maps.slopes, listed.maps.slopes[places], atol=1e-12)
    np.testing.assert_allclose(explored.maps.offsets, listed.maps.offsets[places], atol=1e-12)
    # Half-spaces: a point is in its own region and in no other one.
    inside = np.array([_contains(explored, r, points[:300]) for r in range(len(explored))])
    np.testing.assert_array_equal(inside.argmax(axis=0), explored.locate(explored_codes(network)))
    np.testing.assert_array_equal(inside.sum(axis=0), 1)


def explored_codes(network: Network) -> np.ndarray:
    points, _ = explore(network)
    return network.patterns(points[:300])


def _contains(partition, region: int, points: np.ndarray) -> np.ndarray:
    start, normals, offsets = partition.cells.facets()
    own = slice(start[region], start[region + 1])
    return np.all(points @ normals[own].T >= offsets[own], axis=1)


def test_known_regions_keep_their_numbers() -> None:
    known = np.array([[0, 1], [1, 1]], dtype=np.uint8)
    met = np.array([[1, 0], [1, 1], [1, 0], [0, 0]], dtype=np.uint8)
    numbers, new = add_regions(known, met)
    assert numbers.tolist() == [2, 1, 2, 3]
    assert new.tolist() == [0, 3]
