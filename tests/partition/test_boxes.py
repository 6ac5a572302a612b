"""Boxes of latent space: their masses, their parts, and the regions within them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from skdgn._geometry import integrate_gaussian
from skdgn._partition import LatentBoxes, build_partition, enclose_outputs, join_boxes
from tests.networks import random_network


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_parts_and_cells_have_the_mass_of_their_box(n_components: int) -> None:
    rng = np.random.default_rng(n_components)
    boxes = LatentBoxes(rng.normal(size=(4, n_components)), rng.uniform(0.1, 2.0, 4))
    low, high = boxes.centers - boxes.halves[:, None], boxes.centers + boxes.halves[:, None]
    expected = np.log(norm.cdf(high) - norm.cdf(low)).sum(axis=1)
    np.testing.assert_allclose(boxes.log_masses(), expected, rtol=0, atol=1e-13)
    parts = boxes.divide().log_masses().reshape(4, -1)
    np.testing.assert_allclose(np.logaddexp.reduce(parts, axis=1), expected, rtol=0, atol=1e-13)
    masses = integrate_gaussian(boxes.cells(), np.zeros(n_components), np.eye(n_components))
    np.testing.assert_allclose(masses.log_masses, expected, rtol=0, atol=1e-10)


def test_masses_far_out_keep_their_digits() -> None:
    boxes = LatentBoxes(np.array([[50.0], [-50.0]]), np.array([0.5, 0.5]))
    expected = norm.logsf(49.5) + np.log1p(-np.exp(norm.logsf(50.5) - norm.logsf(49.5)))
    np.testing.assert_allclose(boxes.log_masses(), expected, rtol=1e-14)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_regions_within_boxes_are_those_of_points_there(n_components: int) -> None:
    network = random_network(n_components, (6, 4), activation="leaky_relu")
    rng = np.random.default_rng(0)
    first = LatentBoxes(np.full((1, n_components), -1.5), np.array([1.0]))
    boxes = join_boxes([first, LatentBoxes(np.full((1, n_components), 1.0), np.array([0.5]))])
    partition = build_partition(network, within=boxes.cells())
    points = boxes.centers[:, None] + boxes.halves[:, None, None] * rng.uniform(
        -1.0, 1.0, size=(2, 2000, n_components)
    )
    points = points.reshape(-1, n_components)
    known = {pattern.tobytes() for pattern in partition.patterns}
    assert {pattern.tobytes() for pattern in network.patterns(points)} <= known
    regions = partition.locate(network.patterns(points))
    images = np.einsum("nds,ns->nd", partition.maps.slopes[regions], points)
    images += partition.maps.offsets[regions]
    np.testing.assert_allclose(images, network.forward(points), rtol=0, atol=1e-12)
    total = integrate_gaussian(partition.cells, np.zeros(n_components), np.eye(n_components))
    assert np.exp(total.log_masses).sum() == pytest.approx(np.exp(boxes.log_masses()).sum(), 1e-11)


def test_boundaries_that_cross_a_box_are_counted() -> None:
    network = random_network(2, (6,))
    boxes = LatentBoxes(np.array([[0.0, 0.0], [0.4, -0.3]]), np.array([100.0, 1e-6]))
    assert enclose_outputs(network, boxes).n_cuts.tolist() == [6, 0]
