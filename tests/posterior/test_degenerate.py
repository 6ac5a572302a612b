"""Densities of networks whose boundaries nearly coincide, nearly meet, or are out of reach."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._network import ACTIVATIONS, Network
from skdgn._noise.gaussian import Noise
from skdgn._partition.composed_maps import ComposedMaps
from skdgn._partition.enumeration import Partition, build_partition
from skdgn._posterior.listed.visits import Visitor
from skdgn._posterior.model import Model
from skdgn._runtime.workers import Workers
from tests.networks import make_network, nearly_concurrent
from tests.portions import usually
from tests.reference.latent_integral import integrate_over_latent_space

# What the quadrature is asked for; it is not as good as the package.
QUADRATURE_ACCURACY = 1e-8
VARIANCE = 0.1
# Log densities have a relative error of rounding, and so has the reference.
ACCURACY = 1e-11


def draw_rows(network: Network, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    rows = network.forward(rng.normal(size=(n_rows, network.n_components)))
    return rows + np.sqrt(VARIANCE) * rng.normal(size=rows.shape)


@pytest.mark.parametrize("seed", usually((1, 0), 1))  # a quadrature may take some seconds
@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("n_components", [2, 3])
def test_densities_of_nearly_concurrent_boundaries_equal_quadrature(
    n_components: int, n_layers: int, seed: int
) -> None:
    noise = Noise.from_covariance(VARIANCE, 3)
    network, _ = nearly_concurrent(n_components, n_layers, seed)
    (row,) = draw_rows(network, 1, np.random.default_rng(seed))
    (found,) = Model.build(network, noise).log_density(row[None], Workers())
    # The reference has three latent dimensions; the first ones may do nothing.
    expected = integrate_over_latent_space(
        [np.pad(network.coefs[0], ((0, 0), (3 - n_components, 0))), *network.coefs[1:]],
        list(network.intercepts),
        network.activations[0].negative_slope,
        VARIANCE * np.eye(3),
        row,
        tolerance=QUADRATURE_ACCURACY,
    )
    assert found == pytest.approx(expected.log_density, abs=3 * QUADRATURE_ACCURACY)


def network_with_units_out_of_reach(
    n_components: int, seed: int
) -> tuple[Network, np.ndarray, np.ndarray]:
    """Draw a network some of whose boundaries are 1e3 to 1e12 away; rows; which are not."""
    rng = np.random.default_rng([n_components, seed])
    width = int(rng.integers(3, 6))
    coef, bias = rng.normal(size=(width, n_components)), rng.normal(size=width)
    output, offset = rng.normal(size=(3, width)), rng.normal(size=3)
    far = rng.random(width) < 0.5
    far[0], far[-1] = True, False
    scales = 10.0 ** rng.uniform(3.0, 12.0, size=width)
    if seed % 2:
        coef[far] /= scales[far, None]
        bias[far] += np.sign(bias[far])
    else:
        bias[far] = np.sign(bias[far]) * scales[far]
        output[:, far] /= scales[far]
    activation = ACTIVATIONS[seed % len(ACTIVATIONS)]
    network = make_network([coef, output], [bias, offset], activation)
    return network, draw_rows(network, 10, rng), ~far


def partition_within_reach(network: Network, within: np.ndarray) -> Partition:
    """Cut by the units within reach only; the others are on the side of the origin everywhere."""
    near = Network.from_arrays(
        [network.coefs[0][within], network.coefs[1][:, within]],
        [network.intercepts[0][within], network.intercepts[1]],
        network.activations[0],
    )
    partition = build_partition(near)
    sides = np.tile((network.intercepts[0] > 0).astype(np.uint8), (len(partition), 1))
    sides[:, within] = partition.patterns
    return Partition(partition.cells, sides, ComposedMaps.of(network.maps(sides)[-1]))


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_boundaries_out_of_reach_cost_no_digits(n_components: int) -> None:
    noise = Noise.from_covariance(VARIANCE, 3)
    for seed in range(60):
        network, rows, within = network_with_units_out_of_reach(n_components, seed)
        found = Model.build(network, noise).log_density(rows, Workers())
        visitor = Visitor.prepare(partition_within_reach(network, within), noise)
        expected = visitor.visit(rows).log_density
        np.testing.assert_allclose(found, expected, rtol=ACCURACY, atol=ACCURACY, err_msg=str(seed))
