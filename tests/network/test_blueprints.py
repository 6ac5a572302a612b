"""Layers as users write them: shapes, what they compute, and what is refused by name."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.signal import correlate

from skdgn import PiecewiseAffineDGN
from skdgn._network import Architecture, Network
from skdgn.layers import (
    Abs,
    AvgPool,
    BatchNorm,
    Concatenate,
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
    Dense,
    Flatten,
    HardTanh,
    LeakyReLU,
    MaxOut,
    MaxPool,
    MaxUpsample,
    PiecewiseAffine,
    PReLU,
    ReLU,
    Reshape,
    Residual,
    Softshrink,
    Upsample,
)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (Dense(3), (2, 4), (3,)),
        (Flatten(), (2, 4), (8,)),
        (Reshape((8,)), (2, 4), (8,)),
        (Conv1d(3, 2, stride=2), (2, 5), (3, 2)),
        (Conv2d(3, (2, 1), padding=(0, 1)), (1, 4, 4), (3, 3, 6)),
        (ConvTranspose1d(2, 3, stride=2, output_padding=1), (1, 3), (2, 8)),
        (ConvTranspose2d(1, 4, stride=2, padding=1), (2, 7, 7), (1, 14, 14)),
        (AvgPool(2), (2, 4, 6), (2, 2, 3)),
        (MaxPool((1, 2), stride=(1, 1)), (2, 4, 6), (2, 4, 5)),
        (MaxOut(2), (4, 3), (2, 3)),
        (Upsample((1, 2)), (1, 3, 3), (1, 3, 6)),
        (MaxUpsample(2), (1, 3), (1, 6)),
        (Residual(Conv1d(2, 3, padding=1), ReLU()), (2, 4), (2, 4)),
        (Concatenate(Conv1d(3, 1), []), (2, 4), (5, 4)),
        (BatchNorm([0.0, 0.0], [1.0, 1.0]), (2, 4), (2, 4)),
        (PReLU("channel", [0.1, 0.2]), (2, 4), (2, 4)),
    ],
)
def test_shapes(layer: Any, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert layer.output_shape(shape) == expected
    layers = layer._build(shape, np.random.default_rng(0))
    outputs = np.zeros((1, int(np.prod(shape))))
    for built in layers:
        outputs = built.forward(outputs)
    assert outputs.size == np.prod(expected)


def test_a_convolution_is_a_correlation() -> None:
    rng = np.random.default_rng(0)
    kernel, image = rng.normal(size=(1, 1, 3, 2)), rng.normal(size=(1, 1, 5, 6))
    found = Conv2d(1, (3, 2), coef=kernel, intercept=[0.5]).forward(image)
    expected = correlate(image[0, 0], kernel[0, 0], mode="valid") + 0.5
    np.testing.assert_allclose(found[0, 0], expected, atol=1e-13)
    # The transposed one is its transpose.
    back = ConvTranspose2d(1, (3, 2), coef=kernel).forward(expected[None, None])
    assert float((back * image).sum()) == pytest.approx(float((expected * (expected - 0.5)).sum()))


def test_no_samples_have_no_outputs() -> None:
    assert Upsample(2).forward(np.empty((0, 2, 3))).shape == (0, 2, 6)


def test_equal_layers_are_equal() -> None:
    assert Dense(2, [[1.0], [2.0]]) == Dense(2, [[1.0], [2.0]])
    assert Dense(2, [[1.0], [2.0]]) != Dense(2, [[1.0], [3.0]])
    assert Dense(2) != ReLU()
    assert LeakyReLU(0.1) != LeakyReLU(0.2)
    assert Residual(Dense(2), ReLU()) == Residual(Dense(2), ReLU())
    assert hash(Dense(2)) == hash(Dense(2, [[1.0], [2.0]]))
    assert pickle.loads(pickle.dumps(Conv1d(2, 3, padding=1))) == Conv1d(2, 3, padding=1)


def test_layers_are_shown_by_what_they_were_made_of() -> None:
    assert repr(Conv1d(2, 3)) == (
        "Conv1d(n_channels=2, kernel_size=(3,), stride=(1,), padding=(0,), dilation=(1,), groups=1)"
    )
    assert repr(PReLU("layer", [0.1])) == "PReLU(shared='layer', slopes=<(1,)>)"
    assert repr(ReLU()) == "ReLU()"


NAN = float("nan")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dense(0), "n_units must be a positive integer, got 0"),
        (lambda: Dense(2, [[1.0]]), r"coef must have shape \(2, n_inputs\), got shape \(1, 1\)"),
        (lambda: Dense(1, [[NAN]]), "coef must be finite, got nan"),
        (lambda: Dense(1, [[1j]]), "coef must be a rectangular array of numbers"),
        (lambda: Dense(1, [[]]), r"coef must not be empty, got shape \(1, 0\)"),
        (lambda: Dense(1, [[1.0]], [1.0, 2.0]), r"intercept must have shape \(1,\), got .*\(2,\)"),
        (lambda: Dense(1, None, [1.0]), "intercept must be None if coef is, got an array"),
        (lambda: Dense(1, [[1.0]], [np.inf]), "intercept must be finite, got inf"),
        (lambda: Conv1d(2.5, 3), "n_channels must be a positive integer, got 2.5"),
        (lambda: Conv2d(2, (1, 2, 3)), r"kernel_size must have 2 entries, got \(1, 2, 3\)"),
        (lambda: Conv2d(2, 0), "kernel_size must be a positive integer, got 0"),
        (lambda: Conv2d(2, 3, stride=(1, 0)), "stride must be a positive integer, got 0"),
        (lambda: Conv2d(2, 3, padding=-1), "padding must be an integer of at least 0, got -1"),
        (lambda: Conv2d(2, 3, dilation="x"), "dilation must be a positive integer, got 'x'"),
        (lambda: Conv1d(3, 1, groups=2), "groups must divide n_channels=3, got 2"),
        (
            lambda: ConvTranspose1d(2, 3, output_padding=1),
            r"output_padding must be smaller than stride or dilation, got \(1,\)",
        ),
        (lambda: MaxPool(()), r"kernel_size must have one or two entries, got \(\)"),
        (lambda: AvgPool(2, stride=0), "stride must be a positive integer, got 0"),
        (lambda: MaxOut(1), "n_pieces must be an integer of at least 2, got 1"),
        (lambda: MaxOut(300), "n_pieces must be at most 255, got 300"),
        (lambda: Upsample(2, "cubic"), r"mode must be one of \('nearest', .*got 'cubic'"),
        (lambda: Upsample(0), "scale_factor must be a positive integer, got 0"),
        (lambda: Upsample(1.5), "scale_factor must be a positive integer, got 1.5"),
        (
            lambda: Upsample(2, "linear", align_corners="yes"),  # type: ignore[arg-type]
            "align_corners must be True or False, got 'yes'",
        ),
        (lambda: MaxUpsample(0), "scale_factor must be a positive integer, got 0"),
        (
            lambda: Reshape((1, 2, 3, 4)),
            r"shape must have one to three entries, got \(1, 2, 3, 4\)",
        ),
        (lambda: Reshape((2, 0)), "shape must be a positive integer, got 0"),
        (lambda: BatchNorm([0.0], [1.0, 2.0]), r"variance must have shape \(1,\), .*got .*\(2,\)"),
        (lambda: BatchNorm([0.0], [-1.0]), "variance must be positive, got -1.0"),
        (lambda: BatchNorm([NAN], [1.0]), "mean must be finite, got nan"),
        (lambda: BatchNorm([0.0], [1.0], eps=NAN), "eps must be a finite number, got nan"),
        (lambda: BatchNorm([0.0], [1.0], eps=-2.0), "eps must not be negative, got -2.0"),
        (lambda: PiecewiseAffine([], [1.0]), "kinks must have 1 to 255 entries, got 0"),
        (lambda: PiecewiseAffine([1.0, 1.0], [0.0, 1.0, 2.0]), r"kinks must increase, got \(1"),
        (lambda: PiecewiseAffine([0.0], [1.0]), "slopes must have 2 entries, .*got 1"),
        (lambda: PiecewiseAffine([0.0], [1.0, NAN]), "slopes must be a finite number, got nan"),
        (lambda: PiecewiseAffine(["a"], [1.0, 2.0]), "kinks must be a finite number, got 'a'"),
        (lambda: PiecewiseAffine(0.0, [1.0, 2.0]), "kinks must be a sequence of numbers, got 0.0"),
        (lambda: PiecewiseAffine([0.0], 1.0), "slopes must be a sequence of numbers, got 1.0"),
        (lambda: LeakyReLU(np.inf), "negative_slope must be a finite number, got inf"),
        (lambda: HardTanh(1.0, 0.0), "max_val must be above min_val=1.0, got 0.0"),
        (lambda: Softshrink(0.0), "lambd must be positive, got 0.0"),
        (lambda: PReLU("all"), 'shared must be "unit", "channel" or "layer", got \'all\''),
        (lambda: PReLU("unit", [NAN]), "slopes must be finite, got nan"),
        (lambda: Residual(), "layers must be at least one, got none"),
        (lambda: Residual(3), "Residual: position 0 must be one of skdgn.layers, got 3"),
        (lambda: Concatenate(ReLU()), "branches must be at least two, got 1"),
        (lambda: Concatenate(ReLU(), "x"), "Concatenate must be a sequence of skdgn.layers, got"),
        (lambda: Concatenate(ReLU(), [1]), "Concatenate: position 0 must be one of skdgn.layers"),
        (lambda: Dense(2).forward([[1.0]]), r"forward needs a layer that has its weights, got D"),
        (lambda: ReLU().forward([[NAN]]), "values must be finite, got nan"),
        (lambda: ReLU().forward(3.0), "values must have one axis for samples and one to three"),
        (lambda: ReLU().output_shape(()), r"shape must have one to three entries, got \(\)"),
    ],
)
def test_what_no_layer_can_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (Dense(1, [[1.0, 2.0]]), (3,), r"Dense needs 2 inputs, got shape \(3,\)"),
        (Conv1d(2, 3), (4,), r"Conv1d needs inputs of shape \(channels, length\), got .*\(4,\)"),
        (Conv2d(2, 3), (2, 4), r"Conv2d needs inputs of shape \(channels, height, width\), got"),
        (Conv1d(2, 1, groups=2), (3, 4), r"Conv1d needs channels in 2 equal groups, got .*\(3, 4"),
        (Conv1d(1, 1, coef=[[[1.0]]]), (2, 4), r"needs coef of shape \(1, 2, 1\) .*\(1, 1, 1\)"),
        (Conv1d(1, 5), (1, 4), r"needs inputs at least as large as its kernel, got .*\(1, 4\)"),
        (MaxPool(5), (1, 4), r"needs inputs at least as large as its kernel, got .*\(1, 4\)"),
        (MaxPool(2, padding=2), (1, 4), r"needs padding of at most half of its kernel, got \(2"),
        (MaxPool(16), (1, 20, 20), "needs windows of at most 255 inputs, got 256"),
        (
            MaxPool((2, 2)),
            (1, 4),
            r"needs inputs of shape \(channels, height, width\), got .*\(1, 4\)",
        ),
        (AvgPool(2), (4,), r"needs inputs of shape \(channels, length\) or \(channels, height"),
        (MaxOut(2), (3,), r"needs a multiple of n_pieces=2 units or channels, got shape \(3,\)"),
        (Upsample(2, "linear"), (1, 2, 2), r"needs inputs of shape \(channels, length\), got"),
        (MaxUpsample(2), (3,), "MaxUpsample needs inputs of shape"),
        (Reshape((2, 2)), (5,), r"Reshape needs 4 inputs, got shape \(5,\)"),
        (BatchNorm([0.0], [1.0]), (2, 3), r"BatchNorm needs 1 channels, got shape \(2, 3\)"),
        (PReLU("unit", [0.1]), (2, 3), r"PReLU needs 6 slopes for inputs of shape \(2, 3\), got"),
        (Residual(Dense(3)), (2,), r"needs outputs of the shape \(2,\) of its inputs, got .*\(3"),
        (
            Residual(ReLU(), Conv1d(1, 1)),
            (2,),
            r"Residual holds: Conv1d at position 1 needs inputs of shape",
        ),
        (Concatenate(Dense(3), Conv1d(1, 2)), (1, 2), "needs branches that differ in channels"),
        (Concatenate([ReLU(), MaxOut(2)], []), (3,), "holds: MaxOut at position 1 needs a multi"),
    ],
)
def test_shapes_that_do_not_fit_are_named(layer: Any, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer.output_shape(shape)


FILLED = [Dense(2, [[1.0], [2.0]]), ReLU()]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (3, "layers must be a sequence of skdgn.layers, got 3"),
        ("Dense", "layers must be a sequence of skdgn.layers, got 'Dense'"),
        ([], "layers must begin with one whose number of inputs is known, .* got 'no layer'"),
        ([ReLU()], "layers must begin with one whose number of inputs is known"),
        ([ReLU(), Conv1d(1, 1)], "layers must begin with one whose number of inputs is known"),
        ([*FILLED, "tanh"], "layers: position 2 must be one of skdgn.layers, got 'tanh'"),
        ([*FILLED, Dense(2)], "layers: position 2 must have weights, got Dense"),
        ([*FILLED, PReLU()], "layers: position 2 must have weights, got PReLU"),
        ([*FILLED, Residual(Dense(2))], "layers: position 2 must have weights, got Residual"),
        (
            [*FILLED, Dense(1, [[1.0, 2.0, 3.0]])],
            r"layers: Dense at position 2 needs 3 inputs, got shape \(2,\)",
        ),
        ([*FILLED, MaxPool(2)], "layers: MaxPool at position 2 needs inputs of shape"),
        (
            [*FILLED, Residual(Dense(2, np.eye(2)), Dense(1, [[1.0, 2.0, 3.0]]))],
            "layers: Residual at position 2 holds: Dense at position 1 needs 3 inputs",
        ),
        ([Reshape((1,)), Flatten()], "layers must hold at least one that computes something"),
        (
            [Dense(1, [[1e300]]), Dense(1, [[1.0]]), Abs(), Dense(1, [[1e300]])],
            r"must have finite products over the layers, got entries as large as 1e\+300",
        ),
        (
            [Dense(2, [[1e300], [1.0]]), MaxOut(2), Dense(1, [[1e300]])],
            r"layers must have finite products over the layers",
        ),
    ],
)
def test_layers_that_make_no_network_are_refused(layers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PiecewiseAffineDGN.from_network(layers=layers, noise_covariance=0.1)


@pytest.mark.parametrize(
    ("name", "value"), [("coefs", []), ("intercepts", []), ("activation", "relu")]
)
def test_layers_replace_what_dense_networks_are_made_of(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be None if layers are given, got"):
        PiecewiseAffineDGN.from_network(layers=FILLED, noise_covariance=0.1, **{name: value})


def test_the_first_layer_may_be_any_whose_inputs_are_known() -> None:
    wide = Concatenate([Dense(2, [[1.0], [2.0]])], [])
    assert PiecewiseAffineDGN.from_network(layers=[wide], noise_covariance=1.0).n_components == 1
    same = Residual(Dense(2, np.eye(2)))
    assert PiecewiseAffineDGN.from_network(layers=[same], noise_covariance=1.0).n_components == 2
    grid = [Reshape((1, 2)), MaxPool(2), Dense(2, [[1.0], [2.0]])]
    assert PiecewiseAffineDGN.from_network(layers=grid, noise_covariance=1.0).n_components == 2
    late = [Abs(), Dense(2, [[1.0], [2.0]])]
    assert PiecewiseAffineDGN.from_network(layers=late, noise_covariance=1.0).n_components == 1


# Architectures


def test_dense_layers_and_rectifiers_by_turns_are_hidden_layer_sizes() -> None:
    dense = Architecture.of_layers(2, [Dense(4), ReLU(), Dense(3), LeakyReLU(0.2)])
    assert dense.blueprints is None
    assert dense.hidden_layer_sizes == (4, 3)
    assert [str(one) for one in dense.activations] == ["relu", "leaky_relu (negative_slope=0.2)"]
    assert str(dense) == "n_components=2 and hidden_layer_sizes=(4, 3)"
    assert not dense.is_linear
    assert dense.ends_dense(7)
    assert dense.check_features(7) == ()
    other = Architecture.of_layers(2, [Dense(4), MaxOut(2)])
    assert other.blueprints == (Dense(4), MaxOut(2))
    assert str(other).startswith("n_components=2 and hidden_layers=[Dense(n_units=4), MaxOut(")
    assert other.without_hidden_layers().is_linear


def test_the_last_layer_is_the_output_layer_if_it_learns_the_features() -> None:
    conv = Architecture.of_layers(1, [Dense(4), ReLU(), Reshape((1, 4)), Conv1d(2, 1), Flatten()])
    assert conv.check_features(8) == conv.blueprints
    assert not conv.ends_dense(8)
    assert conv.check_features(5) == (*conv.blueprints, Dense(5))
    assert conv.ends_dense(5)
    ending = Architecture.of_layers(1, [Dense(4), ReLU()])
    assert ending.ends_dense(4)  # an activation is no output layer
    assert Architecture.of_layers(1, [Dense(4), Abs(), Dense(3)]).check_features(3)[-1] == Dense(3)


def test_memory_of_regions_is_foreseen() -> None:
    architecture = Architecture.of_layers(1, [Dense(4), MaxOut(2)])
    # Maps upstream (2 x (width + 1)) and downstream (features x width) of both layers.
    assert architecture.floats_per_region(3) == 2 * 5 + 3 * 4 + 2 * 3 + 3 * 2


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([Dense(4), Conv1d(2, 1)], "hidden_layers: Conv1d at position 1 needs inputs of shape"),
        ([Dense(4), "relu"], "hidden_layers: position 1 must be one of skdgn.layers, got 'relu'"),
        ([Dense(3, [[1.0]] * 3), ReLU()], r"hidden_layers: Dense at position 0 needs 1 inputs"),
    ],
)
def test_hidden_layers_that_do_not_fit_are_named_before_any_work(layers: Any, message: str) -> None:
    estimator = PiecewiseAffineDGN(2, hidden_layers=layers)
    with pytest.raises(ValueError, match=message):
        estimator.fit(np.random.default_rng(0).normal(size=(20, 3)))
    assert not hasattr(estimator, "n_regions_")


# Features in other units, of networks whose last layer shares weights or has none


@pytest.mark.parametrize(
    "layers",
    [
        [Dense(4), ReLU(), Reshape((2, 2)), Conv1d(2, 1)],  # a factor for all is the kernel's
        [Dense(4), ReLU(), Reshape((2, 2)), Upsample(2)],
        [Dense(4), LeakyReLU(0.1)],
        [Dense(4), ReLU(), Dense(4)],
    ],
)
def test_features_can_be_scaled_and_taken(layers: list[Any]) -> None:
    network = Network.from_blueprints(layers, 2, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    latent, n_features = rng.normal(size=(7, 2)), network.n_features
    values = network.forward(latent)
    order = rng.permutation(n_features)[:3]
    taken = network.take_features(order)
    np.testing.assert_allclose(taken.forward(latent), values[:, order], atol=1e-14)
    factors, before, after = rng.uniform(0.5, 2.0, (3, n_features))
    for scale in ((factors, before, after), (np.full(n_features, 3.0), 0.5, -1.0)):
        scaled = network.scale_features(*scale)
        expected = scale[0] * (values + scale[1]) + scale[2]
        np.testing.assert_allclose(scaled.forward(latent), expected, atol=1e-13)
        (maps,) = [scaled.maps(scaled.patterns(latent))[-1]]
        images = np.einsum("nds,ns->nd", maps.slopes, latent) + maps.offsets
        np.testing.assert_allclose(images, expected, atol=1e-13)
        back = scaled.scale_features(1.0 / scale[0], -np.asarray(scale[2]), -np.asarray(scale[1]))
        assert len(back.layers) == len(network.layers)
        np.testing.assert_allclose(back.forward(latent), values, atol=1e-13)
    largest = np.abs(factors * (np.abs(values).max() + before) + after).max()
    assert np.isfinite(largest)
    network.scale_features(factors, before, after).check_sizes("layers")


def test_units_pass_on_what_is_asked_of_them() -> None:
    network = Network.from_blueprints([Dense(4), ReLU()], 2, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    units = network.scale_features(rng.uniform(1.0, 2.0, 4), 0.1, 0.2).layers[-1]
    behind, maps = rng.normal(size=(3, 2, 4)), rng.normal(size=(3, 4, 5))
    through = units.transpose(behind, np.empty((3, 0), np.uint8)) @ maps
    start = units.forward(np.zeros((1, 4)))
    matrix = (units.forward(np.eye(4)) - start).T
    np.testing.assert_allclose(through, behind @ matrix @ maps, atol=1e-13)
    assert (units.n_inputs, units.n_outputs, units.n_parameters) == (4, 4, 0)
