from __future__ import annotations

import re

import numpy as np
import pytest

from skdgn._network import ACTIVATIONS, Activation, AffineMaps, Network
from tests.networks import NEGATIVE_SLOPE, make_network, random_network

# Sums of at most ten terms of order one, taken in another order.
ROUNDING = 1e-13

HIDDEN = [(), (1,), (5,), (4, 6), (3, 5, 2)]


def plain_activation(name: str, value: float) -> float:
    if name == "relu":
        return max(value, 0.0)
    if name == "abs":
        return abs(value)
    return value if value > 0 else NEGATIVE_SLOPE * value


def plain_forward(network: Network, point: list[float]) -> tuple[list[float], list[bool]]:
    """Value and pattern at one point, unit by unit."""
    values, pattern = list(point), []
    last = len(network.coefs) - 1
    for layer, (coef, intercept) in enumerate(zip(network.coefs, network.intercepts, strict=True)):
        sums = []
        for weights, bias in zip(coef, intercept, strict=True):
            total = float(bias)
            for weight, value in zip(weights, values, strict=True):
                total += float(weight) * value
            sums.append(total)
        if layer < last:
            pattern += [total > 0 for total in sums]
            sums = [plain_activation(network.activations[0].name, total) for total in sums]
        values = sums
    return values, pattern


def maps_of_patterns(network: Network, patterns: np.ndarray) -> AffineMaps:
    """Compose the layers for given sides of all units, one region per pattern."""
    maps = network.maps(patterns)[-1]
    if len(maps.slopes) < len(patterns):  # without hidden layers, one map stands for all regions
        maps = maps.take(np.zeros(len(patterns), dtype=np.intp))
    return maps


@pytest.fixture(params=ACTIVATIONS)
def activation(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("n_components", [1, 2, 4])
def test_forward_and_patterns_equal_a_plain_loop(
    n_components: int, hidden: tuple[int, ...], activation: str
) -> None:
    network = random_network(n_components, hidden, activation=activation, seed=3)
    points = np.random.default_rng(0).normal(size=(20, n_components)) * 3.0
    values, patterns = network.forward(points), network.patterns(points)
    assert values.shape == (20, network.n_features)
    assert patterns.shape == (20, sum(hidden))
    assert patterns.dtype == np.uint8
    for point, value, pattern in zip(points, values, patterns, strict=True):
        expected, expected_pattern = plain_forward(network, point.tolist())
        np.testing.assert_allclose(value, expected, rtol=ROUNDING, atol=10 * ROUNDING)
        assert pattern.tolist() == expected_pattern


@pytest.mark.parametrize("hidden", HIDDEN)
def test_region_maps_equal_forward_at_points_of_the_region(
    hidden: tuple[int, ...], activation: str
) -> None:
    network = random_network(2, hidden, activation=activation, seed=5)
    points = np.random.default_rng(1).normal(size=(50, 2)) * 3.0
    maps = maps_of_patterns(network, network.patterns(points))
    assert maps.slopes.shape == (50, network.n_features, 2)
    values = np.einsum("rds,rs->rd", maps.slopes, points) + maps.offsets
    np.testing.assert_allclose(values, network.forward(points), atol=100 * ROUNDING)


def test_region_maps_equal_forward_throughout_the_region(activation: str) -> None:
    network = random_network(3, (5, 4), activation=activation, seed=6)
    rng = np.random.default_rng(2)
    points = rng.normal(size=(200, 3))
    # Short steps: most of them stay inside, and the map found at one end must hold at the other.
    ends = points + 0.05 * rng.normal(size=points.shape)
    patterns = network.patterns(points)
    stayed = (network.patterns(ends) == patterns).all(axis=1)
    assert stayed.sum() > 50
    maps = maps_of_patterns(network, patterns[stayed])
    values = np.einsum("rds,rs->rd", maps.slopes, ends[stayed]) + maps.offsets
    np.testing.assert_allclose(values, network.forward(ends[stayed]), atol=100 * ROUNDING)


def test_a_unit_at_zero_counts_as_not_positive(activation: str) -> None:
    network = make_network([np.ones((2, 1)), np.ones((1, 2))], [np.zeros(2), np.zeros(1)])
    assert network.patterns(np.zeros((1, 1))).tolist() == [[False, False]]
    assert Activation.from_name(activation, 0.3)(np.zeros(1)).tolist() == [0.0]


def test_slopes_of_each_activation() -> None:
    sides = np.array([True, False])
    assert Activation.from_name("relu", 0.3).slopes(sides).tolist() == [1.0, 0.0]
    assert Activation.from_name("leaky_relu", 0.3).slopes(sides).tolist() == [1.0, 0.3]
    assert Activation.from_name("abs", 0.3).slopes(sides).tolist() == [1.0, -1.0]


def test_magnitudes_bound_the_preactivations_and_show_cancellation() -> None:
    network = make_network(
        [np.array([[3.0], [3.0]]), np.array([[2.0, -2.0]]), np.ones((1, 1))],
        [np.array([1.0, 1.0]), np.array([0.0]), np.zeros(1)],
    )
    _, _, upstream, values, *_ = network.maps(np.array([[1, 1, 1]], dtype=np.uint8))
    scales = network.layers[2].magnitudes(upstream.absolute())
    assert values.slopes.item() == values.offsets.item() == 0.0
    assert scales.slopes.item() == 12.0
    assert scales.offsets.item() == 4.0


def test_sizes_are_read_off_the_weights() -> None:
    network = random_network(2, (5, 4), n_features=7)
    assert network.n_components == 2
    assert network.n_features == 7
    assert network.hidden_layer_sizes == (5, 4)
    assert network.learned == (0, 2, 4)
    assert network.output_layer == 2


@pytest.mark.parametrize("hidden", HIDDEN)
def test_patterns_are_split_by_layer(hidden: tuple[int, ...]) -> None:
    network = random_network(2, hidden, seed=2)
    patterns = network.patterns(np.random.default_rng(3).normal(size=(7, 2)))
    layers = network.split_patterns(patterns)
    assert [layer.shape for layer in layers[1::2]] == [(7, width) for width in hidden]
    assert all(layer.shape == (7, 0) for layer in layers[::2])
    if hidden:
        np.testing.assert_array_equal(np.concatenate(layers, axis=1), patterns)


def test_identifiable_weights_of_a_linear_model_are_those_of_factor_analysis() -> None:
    # D S loadings and D means, less the rotations of S factors.
    assert (
        random_network(3, (), n_features=5).count_identifiable(np.empty((0, 0), dtype=np.uint8))
        == 5 * 3 + 5 - 3
    )
    assert (
        random_network(1, (), n_features=5).count_identifiable(np.empty((0, 0), dtype=np.uint8))
        == 5 + 5
    )


def test_identifiable_weights_lose_one_per_hidden_unit() -> None:
    n_weights = (2 * 4 + 4) + (4 * 3 + 3) + (3 * 5 + 5)
    network = random_network(2, (4, 3), n_features=5)
    assert network.count_identifiable(np.empty((0, 0), dtype=np.uint8)) == n_weights - (4 + 3) - 1


def test_weights_are_copied() -> None:
    coefs, intercepts = [np.ones((2, 1))], [np.zeros(2)]
    network = make_network(coefs, intercepts)
    coefs[0][:] = 5.0
    intercepts[0][:] = 5.0
    assert network.forward(np.array([[1.0]])).tolist() == [[1.0, 1.0]]


def test_lists_and_integers_are_accepted() -> None:
    network = Network.from_arrays([[[1, 2]]], [[3]], Activation.from_name("relu", 0.0))
    assert network.forward(np.array([[1.0, 1.0]])).tolist() == [[6.0]]


# Each case: coefs, intercepts, and what the message must contain: the name, the requirement, the
# value received.
MATRIX, VECTOR = np.ones((2, 1)), np.zeros(2)
BAD_ARRAYS = {
    "empty list": ([], [], ["coefs", "at least the output layer", "an empty list"]),
    "lists of different length": (
        [MATRIX],
        [VECTOR, VECTOR],
        ["coefs and intercepts", "one entry per layer", "1 coefs and 2 intercepts"],
    ),
    "vector for a matrix": ([VECTOR], [VECTOR], ["coefs[0]", "matrix (fan_out, fan_in)", "(2,)"]),
    "scalar for a matrix": ([1.0], [VECTOR], ["coefs[0]", "matrix (fan_out, fan_in)", "()"]),
    "three axes": (
        [np.ones((2, 1, 1))],
        [VECTOR],
        ["coefs[0]", "matrix (fan_out, fan_in)", "(2, 1, 1)"],
    ),
    "no rows": ([np.ones((0, 2))], [np.ones(0)], ["coefs[0]", "non-empty", "(0, 2)"]),
    "no columns": ([np.ones((2, 0))], [VECTOR], ["coefs[0]", "non-empty", "(2, 0)"]),
    "layers that do not fit": (
        [MATRIX, np.ones((4, 3))],
        [VECTOR, np.zeros(4)],
        ["coefs[1]", "2 columns", "coefs[0]", "(4, 3)"],
    ),
    "intercept of another length": (
        [MATRIX],
        [np.zeros(3)],
        ["intercepts[0]", "(2,)", "coefs[0]", "(3,)"],
    ),
    "matrix for an intercept": (
        [MATRIX, np.ones((3, 2))],
        [VECTOR, np.zeros((3, 1))],
        ["intercepts[1]", "(3,)", "coefs[1]", "(3, 1)"],
    ),
    "NaN": ([np.array([[np.nan], [1.0]])], [VECTOR], ["coefs[0]", "finite", "nan"]),
    "infinity": ([MATRIX], [np.array([0.0, -np.inf])], ["intercepts[0]", "finite", "-inf"]),
    "ragged list": ([[[1.0, 2.0], [3.0]]], [VECTOR], ["coefs[0]", "rectangular array of numbers"]),
    "words": ([MATRIX], [["a", "b"]], ["intercepts[0]", "array of numbers", "'a'"]),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_weights_are_named(case: str) -> None:
    coefs, intercepts, parts = BAD_ARRAYS[case]
    with pytest.raises(ValueError, match=".*".join(re.escape(part) for part in parts)):
        Network.from_arrays(coefs, intercepts, Activation.from_name("relu", 0.0))


def test_unknown_activation_is_named() -> None:
    with pytest.raises(ValueError, match=r"activation .*'relu', 'leaky_relu', 'abs'.* got 'tanh'"):
        Activation.from_name("tanh", 0.1)


@pytest.mark.parametrize("slope", [np.nan, np.inf])
def test_negative_slope_must_be_finite(slope: float) -> None:
    with pytest.raises(ValueError, match=rf"negative_slope must be a finite number, got {slope}"):
        Activation.from_name("leaky_relu", slope)


def test_negative_slope_may_be_any_number() -> None:
    assert Activation.from_name("leaky_relu", 10**30).negative_slope == 1e30


def test_negative_slope_counts_for_leaky_relu_only() -> None:
    assert Activation.from_name("relu", np.nan).negative_slope == 0.0
    assert Activation.from_name("abs", 7.0).negative_slope == -1.0
