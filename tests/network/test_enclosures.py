"""Enclosures of what layers of every kind compute on boxes, compared with points of these boxes."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._network import Enclosures
from tests.network.test_layers import CUTTING, random_network


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("name", CUTTING)
def test_layers_stay_within_what_encloses_them(name: str, n_components: int) -> None:
    network = random_network(name, n_components)
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(12, n_components))
    halves = 10.0 ** rng.uniform(-3.0, 0.5, size=12)
    places = rng.uniform(-1.0, 1.0, size=(200, n_components))
    places[: 2**n_components] = np.sign(places[: 2**n_components])  # corners, some of them twice
    values = (centers[:, None] + halves[:, None, None] * places).reshape(-1, n_components)
    enclosures = Enclosures.of_boxes(centers, halves)
    for layer in network.layers:
        values, enclosures = layer.forward(values), layer.enclose(enclosures)
        affine = np.einsum("nus,ps->npu", enclosures.maps.slopes, places)
        affine += enclosures.maps.offsets[:, None]
        errors = np.abs(values.reshape(affine.shape) - affine)
        assert np.all(errors <= enclosures.radii[:, None] + 1e-12)


@pytest.mark.parametrize("name", CUTTING)
def test_on_boxes_within_a_region_nothing_remains(name: str) -> None:
    network = random_network(name, 2)
    centers = np.random.default_rng(1).normal(size=(40, 2))
    enclosures = Enclosures.of_boxes(centers, np.full(40, 1e-9))
    for layer in network.layers:
        enclosures = layer.enclose(enclosures)
    whole = enclosures.n_cuts == 0
    assert whole.sum() > 30
    assert np.all(enclosures.radii[whole] == 0.0)
    maps = network.maps(network.patterns(centers[whole]))[-1]
    np.testing.assert_allclose(
        enclosures.maps.slopes[whole], 1e-9 * maps.slopes, rtol=1e-9, atol=1e-20
    )
