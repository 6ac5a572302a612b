"""Networks to test with: random ones, and those in which something is degenerate."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from skdgn._network import ACTIVATIONS, Activation, Network
from skdgn._partition.enumeration import Partition

NEGATIVE_SLOPE = 0.1


def random_network(
    n_components: int,
    hidden_layer_sizes: Sequence[int],
    *,
    n_features: int = 3,
    activation: str = "relu",
    seed: int = 0,
) -> Network:
    """Draw weights such that activations neither grow nor shrink from layer to layer."""
    rng = np.random.default_rng(seed)
    widths = [n_components, *hidden_layer_sizes, n_features]
    coefs = [
        rng.normal(size=(fan_out, fan_in)) * np.sqrt(2.0 / fan_in)
        for fan_in, fan_out in itertools.pairwise(widths)
    ]
    intercepts = [rng.normal(size=fan_out) for fan_out in widths[1:]]
    return make_network(coefs, intercepts, activation)


def random_architecture(seed: int) -> tuple[tuple[int, ...], str]:
    """Draw one to three hidden layers and an activation."""
    rng = np.random.default_rng([seed, 1])
    widths = tuple(int(w) for w in rng.integers(1, 9, size=rng.integers(1, 4)))
    return widths, ACTIVATIONS[seed % len(ACTIVATIONS)]


def make_network(
    coefs: Sequence[np.ndarray], intercepts: Sequence[np.ndarray], activation: str = "relu"
) -> Network:
    return Network.from_arrays(coefs, intercepts, Activation.from_name(activation, NEGATIVE_SLOPE))


def replace_layer(
    network: Network,
    layer: int,
    coef: np.ndarray | None = None,
    intercept: np.ndarray | None = None,
) -> Network:
    coefs, intercepts = list(network.coefs), list(network.intercepts)
    if coef is not None:
        coefs[layer] = coef
    if intercept is not None:
        intercepts[layer] = intercept
    return Network.from_arrays(coefs, intercepts, network.activations[0])


def zero_weight_units(n_components: int, activation: str) -> Network:
    """Units that are constant everywhere: positive, negative, zero."""
    network = random_network(n_components, (6, 4), activation=activation)
    coef, intercept = network.coefs[0].copy(), network.intercepts[0].copy()
    coef[:3] = 0.0
    intercept[:3] = [1.5, -1.5, 0.0]
    return replace_layer(network, 0, coef, intercept)


def nearly_dead_units(n_components: int, activation: str) -> Network:
    """Units whose boundary is very far out."""
    network = random_network(n_components, (5, 4), activation=activation)
    intercept = network.intercepts[0].copy()
    intercept[:2] = [-1e5, -1e9]
    return replace_layer(network, 0, intercept=intercept)


def duplicate_units(n_components: int, activation: str) -> Network:
    network = random_network(n_components, (6, 4), activation=activation)
    coef, intercept = network.coefs[0].copy(), network.intercepts[0].copy()
    coef[3:], intercept[3:] = coef[:3], intercept[:3]
    coef[4] *= 3.0  # the same boundary, another length
    intercept[4] *= 3.0
    return replace_layer(network, 0, coef, intercept)


def opposite_units(n_components: int, activation: str) -> Network:
    network = random_network(n_components, (6, 4), activation=activation)
    coef, intercept = network.coefs[0].copy(), network.intercepts[0].copy()
    coef[3:], intercept[3:] = -coef[:3], -intercept[:3]
    coef[4] *= 0.3
    intercept[4] *= 0.3
    return replace_layer(network, 0, coef, intercept)


def parallel_units(n_components: int, activation: str) -> Network:
    network = random_network(n_components, (6, 4), activation=activation)
    coef = np.repeat(network.coefs[0][:2], 3, axis=0)
    coef[1] *= -2.0
    return replace_layer(network, 0, coef)


def zero_layer(n_components: int, activation: str) -> Network:
    """A second layer without weights: everything behind it is constant."""
    network = random_network(n_components, (4, 5, 3), activation=activation)
    return replace_layer(network, 1, np.zeros((5, 4)))


def concurrent_boundaries(n_components: int, activation: str) -> Network:
    """All boundaries of all layers pass through the origin."""
    network = random_network(n_components, (6, 5), activation=activation)
    network = replace_layer(network, 0, intercept=np.zeros(6))
    return replace_layer(network, 1, intercept=np.zeros(5))


def concurrent_elsewhere(n_components: int, activation: str) -> Network:
    """All boundaries of the first layer pass through a point that has no short binary fraction."""
    network = random_network(n_components, (6, 3), activation=activation)
    point = np.full(n_components, 0.7) / np.arange(1, n_components + 1)
    return replace_layer(network, 0, intercept=-network.coefs[0] @ point)


def constant_on_cells(n_components: int, activation: str) -> Network:
    """With ReLU, the second layer is constant wherever the first is switched off."""
    network = random_network(n_components, (3, 5, 4), activation=activation)
    return replace_layer(network, 1, intercept=np.array([-0.5, 0.5, 0.0, -1.0, 1.0]))


def canceled_duplicates(n_components: int, activation: str) -> Network:
    """Duplicates in the first layer cancel in the second, where only rounding errors are left."""
    network = random_network(n_components, (6, 4), activation=activation)
    first, bias = network.coefs[0].copy(), network.intercepts[0].copy()
    second, second_bias = network.coefs[1].copy(), network.intercepts[1].copy()
    # A third of each copy, computed differently, so that the sum is not zero but rounding noise.
    first[3:], bias[3:] = 3.0 * first[:3], 3.0 * bias[:3]
    second[:2, 3:] = -second[:2, :3] / 3.0
    second_bias[:2] = 0.0
    network = replace_layer(network, 0, first, bias)
    return replace_layer(network, 1, second, second_bias)


def boundaries_across_layers(n_components: int, activation: str) -> Network:
    """Second-layer units are multiples of single first-layer units: the same boundaries again."""
    network = random_network(n_components, (4, 4, 3), activation=activation)
    return replace_layer(network, 1, np.diag([0.7, -1.3, 1.0 / 3.0, 2.0]), np.zeros(4))


def single_unit(n_components: int, activation: str) -> Network:
    return random_network(n_components, (1,), activation=activation)


def single_units_in_a_row(n_components: int, activation: str) -> Network:
    return random_network(n_components, (1, 1, 1), activation=activation)


def huge_weights(n_components: int, activation: str) -> Network:
    return _scaled(random_network(n_components, (5, 4), activation=activation), 1e8)


def tiny_weights(n_components: int, activation: str) -> Network:
    return _scaled(random_network(n_components, (5, 4), activation=activation), 1e-8)


def mixed_weights(n_components: int, activation: str) -> Network:
    """Units of one layer on scales from 1e-8 to 1e8, their boundaries where they were."""
    network = random_network(n_components, (5, 4), activation=activation)
    scales = np.array([1e-8, 1e-3, 1.0, 1e3, 1e8])
    network = replace_layer(
        network, 0, scales[:, None] * network.coefs[0], scales * network.intercepts[0]
    )
    return replace_layer(network, 1, network.coefs[1] / scales)


def _scaled(network: Network, scale: float) -> Network:
    coefs = [scale * coef for coef in network.coefs]
    return Network.from_arrays(coefs, network.intercepts, network.activations[0])


DEGENERATE: dict[str, Callable[[int, str], Network]] = {
    make.__name__: make
    for make in (
        zero_weight_units,
        nearly_dead_units,
        duplicate_units,
        opposite_units,
        parallel_units,
        zero_layer,
        concurrent_boundaries,
        concurrent_elsewhere,
        constant_on_cells,
        canceled_duplicates,
        boundaries_across_layers,
        single_unit,
        single_units_in_a_row,
        huge_weights,
        tiny_weights,
        mixed_weights,
    )
}


def preactivations(network: Network, latent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pre-activations of all hidden units at points (n, s), and bounds on their rounding errors."""
    # Each sum of k terms is off by at most k units in the last place of its terms; 100 covers the
    # widths used here with room for the errors of a partition's own, differently ordered, sums.
    unit = 100.0 * np.finfo(float).eps
    values, errors = latent, np.zeros_like(latent)
    all_values, all_errors = [np.empty((len(latent), 0))], [np.empty((len(latent), 0))]
    for coef, intercept, activation in zip(
        network.coefs[:-1], network.intercepts[:-1], network.activations, strict=True
    ):
        size = np.abs(coef)
        errors = errors @ size.T + unit * (np.abs(values) @ size.T + np.abs(intercept))
        values = values @ coef.T + intercept
        all_values.append(values)
        all_errors.append(errors)
        values = activation(values)
    return np.concatenate(all_values, axis=1), np.concatenate(all_errors, axis=1)


def with_weights(
    network: Network,
    coefs: Sequence[np.ndarray] | None = None,
    intercepts: Sequence[np.ndarray] | None = None,
) -> Network:
    """Return the network with other weights, intercepts, or both."""
    return Network.dense(
        network.coefs if coefs is None else coefs,
        network.intercepts if intercepts is None else intercepts,
        network.activations,
    )


def regions_of_patterns(partition: Partition, patterns: np.ndarray) -> np.ndarray:
    """Index of the region with each pattern (n, units), -1 where there is none."""
    index = {row.tobytes(): r for r, row in enumerate(partition.patterns)}
    found = [index.get(row.tobytes(), -1) for row in np.ascontiguousarray(patterns)]
    return np.array(found, dtype=np.intp)


def nearly_concurrent(n_components: int, n_layers: int, seed: int) -> tuple[Network, np.ndarray]:
    """Boundaries that pass within d of one point, two of them nearly equal, d from 1e-14 to 0.1.

    Returns the point, too.
    """
    rng = np.random.default_rng([n_components, n_layers, seed])
    activation = Activation.from_name(ACTIVATIONS[seed % len(ACTIVATIONS)], NEGATIVE_SLOPE)
    distance = 10.0 ** rng.uniform(-14.0, -1.0)
    point = rng.normal(size=n_components)
    image = point
    coefs, intercepts = [], []
    for width in rng.integers(2, (7, 5)[:n_layers]):
        coef = rng.normal(size=(width, len(image)))
        coef[1] = coef[0] + distance * rng.normal(size=len(image))
        coefs.append(coef)
        intercepts.append(-coef @ image + distance * rng.normal(size=width))
        image = activation(coef @ image + intercepts[-1])
    coefs.append(rng.normal(size=(3, len(image))))
    intercepts.append(rng.normal(size=3))
    return Network.from_arrays(coefs, intercepts, activation), point
