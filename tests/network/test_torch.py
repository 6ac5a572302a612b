"""PyTorch decoders: the same function, exactly, or an error that names the layer."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from skdgn import PiecewiseAffineDGN, layers
from skdgn._network import Network, read_decoder, write_decoder
from skdgn._network.blueprints.sequences import flatten
from skdgn.vae import make_decoder

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

# Rounding of the decoder's own arithmetic, relative to values of order one.
ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12}


def leaky(*sizes: int, slope: float = 0.2, bias: bool = True) -> Any:
    """Linear layers of these sizes with leaky ReLUs between them."""
    layers: list[Any] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out, bias=bias), nn.LeakyReLU(slope)]
    return nn.Sequential(*layers[:-1])


def nested() -> Any:
    return nn.Sequential(
        nn.Sequential(nn.Linear(1, 5), nn.ReLU()),
        nn.Sequential(nn.Sequential(nn.Linear(5, 4, bias=False), nn.ReLU()), nn.Linear(4, 3)),
    )


def merged() -> Any:
    return nn.Sequential(
        nn.Linear(1, 2),
        nn.Linear(2, 5),
        nn.Linear(5, 4),
        nn.ReLU(),
        nn.Linear(4, 4),
        nn.Linear(4, 3),
    )


def shared() -> Any:
    layer, function = nn.Linear(3, 3), nn.LeakyReLU(0.1)
    return nn.Sequential(nn.Linear(1, 3), function, layer, function, layer)


DECODERS: dict[str, Callable[[], Any]] = {
    "leaky": lambda: leaky(1, 4, 3, 3),
    "without bias": lambda: leaky(1, 4, 3, bias=False),
    "affine": lambda: nn.Sequential(nn.Linear(1, 3)),
    "nested": nested,
    "merged": merged,
    "beginning with ReLU": lambda: nn.Sequential(nn.ReLU(), nn.Linear(1, 3)),
    "ending with ReLU": lambda: nn.Sequential(nn.Linear(1, 3), nn.ReLU()),
    "twice": lambda: nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.ReLU(), nn.Linear(3, 3)),
    "shared": shared,
    "without effect": lambda: nn.Sequential(
        nn.Identity(), nn.Linear(1, 4), nn.Sequential(nn.ReLU(), nn.Dropout()), nn.Linear(4, 3)
    ).eval(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", DECODERS)
def test_same_function(name: str, dtype: Any) -> None:
    torch.manual_seed(0)
    decoder = DECODERS[name]().to(dtype)
    model = PiecewiseAffineDGN.from_torch(decoder, 0.1)
    latent = np.linspace(-3.0, 3.0, 41)[:, None]
    with torch.no_grad():
        expected = decoder(torch.from_numpy(latent).to(dtype)).numpy()
    np.testing.assert_allclose(model.inverse_transform(latent), expected, atol=ROUNDING[dtype])


def test_layers_with_nothing_between_them_are_one() -> None:
    model = PiecewiseAffineDGN.from_torch(merged(), 0.1)
    assert model.hidden_layer_sizes == (4,)
    assert [coef.shape for coef in model.coefs_] == [(4, 1), (3, 4)]


def test_activation_and_slope_are_read() -> None:
    model = PiecewiseAffineDGN.from_torch(leaky(1, 4, 2, slope=0.3), 0.1)
    assert (model.activation, model.negative_slope) == ("leaky_relu", 0.3)
    # A leaky ReLU of slope zero is a ReLU, and may stand beside one.
    decoder = nn.Sequential(
        nn.Linear(1, 4), nn.LeakyReLU(0.0), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)
    )
    assert PiecewiseAffineDGN.from_torch(decoder, 0.1).activation == "relu"


def test_weights_are_copies_of_the_decoders() -> None:
    decoder = leaky(1, 4, 2)
    before = decoder[0].weight.detach().double().numpy().copy()
    model = PiecewiseAffineDGN.from_torch(decoder, 0.1)
    np.testing.assert_array_equal(model.coefs_[0], before)
    with torch.no_grad():
        decoder[0].weight.zero_()
    np.testing.assert_array_equal(model.coefs_[0], before)


@pytest.mark.parametrize(
    "noise",
    [0.2, [0.2, 0.3], [[0.2, 0.1], [0.1, 0.3]]],
    ids=["spherical", "diag", "full"],
)
def test_noise_may_be_a_tensor(noise: Any) -> None:
    decoder = leaky(1, 4, 2)
    tensor = torch.tensor(noise, dtype=torch.float64, requires_grad=True)
    model = PiecewiseAffineDGN.from_torch(decoder, tensor)
    same = PiecewiseAffineDGN.from_torch(decoder, noise)
    np.testing.assert_array_equal(model.noise_covariance_, same.noise_covariance_)
    rows = [[0.0, 1.0], [2.0, -1.0]]
    np.testing.assert_array_equal(model.score_samples(rows), same.score_samples(rows))


class Doubled(nn.Linear):
    """A Linear layer that computes something else."""

    def forward(self, rows: Any) -> Any:
        return 2.0 * super().forward(rows)


def hooked() -> Any:
    decoder = leaky(1, 4, 2)
    decoder[2].register_forward_hook(lambda layer, rows, result: 2.0 * result)
    return decoder


def overwritten() -> Any:
    decoder = leaky(1, 4, 2)
    decoder[2].forward = lambda rows: 2.0 * rows[:, :2]
    return decoder


def with_nan() -> Any:
    decoder = leaky(1, 4, 2)
    with torch.no_grad():
        decoder[2].bias[1] = float("nan")
    return decoder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: "a decoder", "decoder must be a torch.nn.Sequential .* got str"),
        (lambda: nn.Linear(1, 2), "decoder must be a torch.nn.Sequential .* got Linear"),
        (lambda: nn.Sequential(), "must begin with a Linear or an Unflatten layer, got no layer"),
        (lambda: nn.Sequential(nn.ReLU()), "must begin with a Linear .* got ReLU.* position 0"),
        (
            lambda: nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 2)),
            "must hold Linear, Conv1d, .* layers only.* got Tanh at position 1",
        ),
        (
            lambda: nn.Sequential(nn.Linear(1, 4), nn.Sequential(nn.ReLU(), nn.GELU())),
            r"got GELU at position 1\.1",
        ),
        (lambda: nn.Sequential(Doubled(1, 2)), "got Doubled at position 0"),
        (hooked, "without hooks, got Linear at position 2"),
        (overwritten, "got Linear at position 2"),
        (lambda: leaky(1, 4, 2).half(), "got torch.float16 at position 0"),
        (with_nan, r"decoder: 2\.bias must be finite, got nan"),
        (
            lambda: nn.Sequential(nn.Linear(1, 4), nn.Linear(3, 2)),
            r"decoder: Linear at position 1 needs 3 inputs.* got shape \(4,\)",
        ),
        (
            lambda: nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(3, 2)),
            r"decoder: Linear at position 2 needs 3 inputs.* got shape \(4,\)",
        ),
    ],
)
def test_what_cannot_be_read_is_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PiecewiseAffineDGN.from_torch(make(), 0.1)


def test_activations_may_differ() -> None:
    torch.manual_seed(0)
    decoder = nn.Sequential(leaky(1, 4, 4, slope=0.2), nn.ReLU(), nn.Linear(4, 2)).double()
    model = PiecewiseAffineDGN.from_torch(decoder, 0.1)
    assert model.activation == ["leaky_relu", "relu"]
    assert model.negative_slope == [0.2, 0.0]
    latent = torch.linspace(-3.0, 3.0, 50, dtype=torch.float64)[:, None]
    expected = decoder(latent).detach().numpy()
    np.testing.assert_allclose(model.inverse_transform(latent.numpy()), expected, rtol=1e-12)


def test_bad_noise_is_named() -> None:
    with pytest.raises(ValueError, match=r"noise_covariance must be positive, got .* -1"):
        PiecewiseAffineDGN.from_torch(leaky(1, 4, 2), torch.tensor(-1.0))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "abs"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_decoder_of_an_estimator_computes_the_same(activation: str, dtype: str) -> None:
    model = PiecewiseAffineDGN.from_network(
        [[[1.0], [-2.0]], [[1.0, 0.5], [0.25, -1.0]]],  # no rounding in either precision
        [[0.5, -0.25], [0.0, 1.0]],
        0.1,
        activation=activation,
        negative_slope=0.25,
    )
    decoder = make_decoder(model, dtype)
    latent = np.linspace(-2.0, 2.0, 9)[:, None]
    with torch.no_grad():
        images = decoder(torch.from_numpy(latent).to(getattr(torch, dtype))).numpy()
    np.testing.assert_array_equal(images, model.inverse_transform(latent))
    back = PiecewiseAffineDGN.from_torch(decoder, 0.1)
    np.testing.assert_array_equal(back.inverse_transform(latent), images)


def test_decoder_needs_an_estimator_and_a_precision() -> None:
    model = PiecewiseAffineDGN.from_network([[[1.0]]], [[0.0]], 1.0, activation="relu")
    with pytest.raises(ValueError, match="estimator must be a PiecewiseAffineDGN, got int"):
        make_decoder(3)  # type: ignore[arg-type] # on purpose
    with pytest.raises(ValueError, match=r"dtype must be .* got 'half'"):
        make_decoder(model, "half")


# Random architectures that cover every module and option

N_ARCHITECTURES, N_POINTS = 40, 1000

# What the options of a module may be, by the number of axes beside the channels.
POINTWISE = {
    "ReLU": {},
    "LeakyReLU": {"negative_slope": [0.0, 0.01, 0.3, -0.5]},
    "PReLU": {},
    "ReLU6": {},
    "Hardtanh": {"min_val": [-1.0, -0.3], "max_val": [1.0, 0.4]},
    "Hardsigmoid": {},
    "Softshrink": {"lambd": [0.5, 0.1]},
    "Identity": {},
    "Dropout": {},
}
CONVOLUTION = {
    "kernel_size": [1, 2, 3, 4],
    "stride": [1, 2, 3],
    "padding": [0, 1, 2],
    "dilation": [1, 2],
    "groups": [1, 2],
    "bias": [True, False],
}
TRANSPOSED = {**CONVOLUTION, "output_padding": [0, 1]}
POOLING = {"kernel_size": [2, 3], "stride": [None, 1, 2], "padding": [0, 1]}
GRIDS: dict[int, dict[str, dict[str, list[Any]]]] = {
    1: {
        "Conv1d": {**CONVOLUTION, "padding": [0, 1, 2, "valid", "same"]},
        "ConvTranspose1d": TRANSPOSED,
        "Upsample": {"scale_factor": [1, 2, 3], "mode": ["nearest", "linear"]},
        "AvgPool1d": POOLING,
        "MaxPool1d": POOLING,
        "BatchNorm1d": {"affine": [True, False]},
        "Dropout1d": {},
    },
    2: {
        "Conv2d": {
            **CONVOLUTION,
            "kernel_size": [1, 3, (2, 3)],
            "padding": [0, 1, (1, 2), "valid", "same"],
            "stride": [1, (1, 2)],
        },
        "ConvTranspose2d": {**TRANSPOSED, "stride": [1, 2, (2, 1)]},
        "Upsample": {
            "scale_factor": [2, (1, 2)],
            "mode": ["nearest", "bilinear"],
            "align_corners": [None, True, False],
        },
        "AvgPool2d": {**POOLING, "kernel_size": [2, (1, 3)]},
        "MaxPool2d": {**POOLING, "kernel_size": [2, (3, 2)]},
        "BatchNorm2d": {"affine": [True, False]},
        "Dropout2d": {},
    },
}


class Drawing:
    """Draws modules that fit, and remembers the options that were drawn."""

    def __init__(self, seed: int) -> None:
        self.rng, self.drawn = np.random.default_rng(seed), set()

    def choose(self, options: list[Any]) -> Any:
        return options[self.rng.integers(len(options))]

    def draw(self, name: str, options: dict[str, list[Any]], values: Any) -> Any:
        """Draw options until the module accepts these values; nothing if it accepts none."""
        for _ in range(100):
            chosen = {option: self.choose(choices) for option, choices in options.items()}
            if chosen.get("mode", "bilinear") == "nearest":
                chosen.pop("align_corners", None)
            given: list[Any] = []
            if name.startswith("Conv"):
                given = [values.shape[1], 2 * int(self.rng.integers(1, 3))]
            elif name.startswith("BatchNorm"):
                given = [values.shape[1]]
            elif name == "PReLU":
                given = [self.choose([1, values.shape[1]])]
            try:
                module = getattr(nn, name)(*given, **chosen).double().eval()
                behind = module(values)
            except (RuntimeError, ValueError, UserWarning):  # PyTorch does not accept it either
                continue
            if behind.numel() == 0 or behind[0].numel() > 400:
                continue
            self.drawn |= {(name, option, repr(value)) for option, value in chosen.items()}
            self.drawn.add((name,))
            return shuffle(module, self.rng)
        return nn.Identity()


def shuffle(module: Any, rng: np.random.Generator) -> Any:
    """Give parameters and buffers other values than those PyTorch starts from."""
    with torch.no_grad():
        for values in module.parameters():
            values.add_(0.3 * torch.from_numpy(np.asarray(rng.normal(size=tuple(values.shape)))))
        if getattr(module, "running_mean", None) is not None:
            module.running_mean.add_(torch.from_numpy(rng.normal(size=len(module.running_mean))))
            module.running_var.mul_(
                torch.from_numpy(rng.uniform(0.5, 2.0, len(module.running_var)))
            )
    return module


def draw_decoder(seed: int) -> tuple[Any, set[tuple[str, ...]]]:
    """Draw a decoder, its last modules nested, and what it is made of."""
    drawing = Drawing(seed)
    torch.manual_seed(seed)
    n_axes, n_components = 1 + seed % 2, 1 + seed % 3
    shape = (2 * (1 + seed % 3), *[int(length) for length in drawing.rng.integers(3, 6, n_axes)])
    n_units = int(np.prod(shape))
    modules = [nn.Linear(n_components, n_units).double(), nn.Unflatten(1, shape)]
    values = modules[1](modules[0](torch.zeros(2, n_components, dtype=torch.float64)))
    # One after the other in turn, and some at random: every kind is there often.
    grids = list(GRIDS[n_axes])
    names = [grids[(seed // 2 + k) % len(grids)] for k in range(6)]
    pointwise = list(POINTWISE)
    names.insert(1, pointwise[seed % len(pointwise)])
    names.append(drawing.choose(pointwise))
    for name in names:
        options = {**GRIDS[n_axes], **POINTWISE}[name]
        modules.append(drawing.draw(name, options, values))
        values = modules[-1](values)
    if seed % 4 > 0:
        modules.append(nn.Flatten())
        n_units = values[0].numel()
        modules.append(nn.Linear(n_units, 5, bias=seed % 3 > 0).double())
        if seed % 5 == 0:
            modules.append(
                drawing.draw("BatchNorm1d", {"affine": [True]}, torch.zeros(2, 5).double())
            )
    split = len(modules) - 2
    decoder = nn.Sequential(*modules[:split], nn.Sequential(nn.Sequential(*modules[split:])))
    return decoder.eval(), drawing.drawn


@pytest.mark.parametrize("seed", range(N_ARCHITECTURES))
def test_random_architectures_compute_the_same(seed: int) -> None:
    decoder, _ = draw_decoder(seed)
    _, n_components, n_features = read_decoder(decoder)
    latent = 2.0 * np.random.default_rng(seed).normal(size=(N_POINTS, n_components))
    for dtype, accuracy in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        own = decoder.to(dtype)
        with torch.no_grad():
            expected = own(torch.from_numpy(latent).to(dtype)).numpy().reshape(N_POINTS, -1)
        assert expected.shape[1] == n_features
        network = Network.from_filled(read_decoder(own).layers, n_components)
        # Points are rounded before PyTorch sees them: errors are those of values of this size.
        tolerance = accuracy * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(network.forward(latent), expected, rtol=0, atol=tolerance)
        written = write_decoder(network, dtype)
        with torch.no_grad():
            back = written(torch.from_numpy(latent).to(dtype)).numpy()
        np.testing.assert_allclose(back, expected, rtol=0, atol=tolerance)
        again = Network.from_filled(read_decoder(written).layers, n_components)
        np.testing.assert_allclose(again.forward(latent), expected, rtol=0, atol=tolerance)


def test_random_architectures_cover_every_module_and_option() -> None:
    drawn = set().union(*(draw_decoder(seed)[1] for seed in range(N_ARCHITECTURES)))
    for modules in (POINTWISE, *GRIDS.values()):
        for name, options in modules.items():
            assert (name,) in drawn
            for option, choices in options.items():
                for value in choices:
                    assert (name, option, repr(value)) in drawn, (name, option, value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_convolutional_decoder_is_an_estimator(dtype: Any) -> None:
    torch.manual_seed(1)
    decoder = nn.Sequential(
        nn.Linear(2, 12),
        nn.ReLU(),
        nn.Unflatten(1, (3, 2, 2)),
        nn.ConvTranspose2d(3, 1, 2, stride=2),
    ).to(dtype)
    model = PiecewiseAffineDGN.from_torch(decoder, 0.1)
    latent = np.random.default_rng(0).normal(size=(5, 2))
    with torch.no_grad():
        images = decoder(torch.from_numpy(latent).to(dtype)).numpy().reshape(5, -1)
    np.testing.assert_allclose(model.inverse_transform(latent), images, atol=ROUNDING[dtype])
    assert model.n_features_in_ == 16
    assert [coef.shape for coef in model.coefs_] == [(12, 2), (3, 1, 2, 2)]
    written = model.to_torch("float64")
    back = PiecewiseAffineDGN.from_torch(written, 0.1)
    np.testing.assert_array_equal(back.score_samples(images), model.score_samples(images))


# What PyTorch has no module for is written, too.
WRITTEN = {
    "dense": [layers.Dense(4), layers.Abs(), layers.Dense(3)],
    "max_out": [layers.Dense(6), layers.MaxOut(3), layers.Dense(3)],
    "max_out_of_channels": [
        layers.Dense(16), layers.Reshape((4, 2, 2)), layers.MaxOut(2), layers.Conv2d(1, 1)
    ],
    "max_upsample": [layers.Dense(4), layers.Reshape((1, 2, 2)), layers.MaxUpsample(2)],
    "slopes_of_units": [layers.Dense(6), layers.Reshape((2, 3)), layers.PReLU(), layers.Flatten()],
    "slopes": [layers.Dense(4), layers.PReLU(), layers.Dense(2), layers.PReLU("layer")],
    "piecewise_affine": [
        layers.Dense(4), layers.PiecewiseAffine([-1.0, 0.5], [0.3, -1.0, 2.0], 0.25),
        layers.Dense(3),
    ],
    "functions": [
        layers.Dense(4), layers.HardTanh(-0.5, 0.7), layers.Dense(4), layers.HardSigmoid(),
        layers.Dense(4), layers.Softshrink(0.1), layers.Dense(4), layers.ReLU6(), layers.Dense(2),
    ],
    "residual": [
        layers.Dense(8), layers.Reshape((2, 4)),
        layers.Residual(layers.Conv1d(2, 3, padding=1), layers.ReLU()), layers.Dense(3),
    ],
    "concatenate": [
        layers.Dense(8), layers.Reshape((2, 2, 2)),
        layers.Concatenate([layers.Conv2d(3, 1), layers.LeakyReLU(0.2)], []), layers.AvgPool(2),
    ],
    "nested": [
        layers.Dense(4), layers.Residual(
            layers.Concatenate(
                [layers.Dense(2), layers.PiecewiseAffine([0.3], [0.2, 1.0])],
                [layers.Dense(4), layers.MaxOut(2)],
            ),
            layers.Residual(layers.Dense(4), layers.PReLU()),
        ), layers.Dense(3),
    ],
    "convolutions": [
        layers.Dense(12), layers.Reshape((2, 6)), layers.Conv1d(4, 3, padding=2, dilation=2),
        layers.PReLU("channel"),
        layers.ConvTranspose1d(2, 3, stride=2, output_padding=1, groups=2), layers.ReLU(),
        layers.Flatten(), layers.Reshape((1, 7, 4)), layers.ConvTranspose2d(2, 3, stride=(1, 2)),
        layers.LeakyReLU(-0.3), layers.Conv2d(1, (3, 2)), layers.Upsample((1, 2)),
    ],
    "enlarged": [
        layers.Dense(4), layers.BatchNorm([0.1] * 4, [2.0] * 4), layers.ReLU(),
        layers.Reshape((1, 2, 2)), layers.Upsample(2, "bilinear"), layers.MaxPool(2),
    ],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", WRITTEN)
def test_layers_are_written(name: str, dtype: Any) -> None:
    network = Network.from_blueprints(WRITTEN[name], 2, np.random.default_rng(1))
    filled = network.filled_blueprints()
    assert [type(layer) for layer in filled] == [type(layer) for layer in WRITTEN[name]]
    latent = np.random.default_rng(0).normal(size=(N_POINTS, 2))
    decoder = write_decoder(network, dtype)
    with torch.no_grad():
        images = decoder(torch.from_numpy(latent).to(dtype)).numpy()
    np.testing.assert_allclose(
        images, network.forward(latent), rtol=0, atol={torch.float32: 1e-5}.get(dtype, 1e-12)
    )
    back = read_decoder(pickle.loads(pickle.dumps(decoder)))
    assert (back.n_components, back.n_features) == (2, network.n_features)
    again = Network.from_filled(back.layers, 2)
    np.testing.assert_allclose(
        again.forward(latent), images, rtol=0, atol={torch.float32: 1e-5}.get(dtype, 1e-10)
    )


def test_every_layer_is_written_and_read() -> None:
    seen = {type(layer).__name__ for own in WRITTEN.values() for layer in flatten(own)}
    assert seen | {"Residual", "Concatenate"} == set(layers.__all__)


def test_a_layer_that_nobody_can_write_is_a_mistake() -> None:
    class Strange(layers.Flatten):
        def _build(self, shape: Any, generator: Any) -> list[Any]:
            return []

    class Other(type(layers.Flatten()).__base__):  # type: ignore[misc]  # any blueprint
        def _shape_behind(self, shape: Any) -> Any:
            return shape

        def _build(self, shape: Any, generator: Any) -> list[Any]:
            return []

    network = Network.from_blueprints([layers.Dense(2), Other()], 1)
    with pytest.raises(TypeError, match="no writer for Other"):
        write_decoder(network, torch.float32)


def begun(*modules: Any, shape: tuple[int, ...] = (2, 4)) -> Any:
    """Modules behind a Linear layer with outputs of this shape."""
    n_units = int(np.prod(shape))
    return nn.Sequential(nn.Linear(1, n_units), nn.Unflatten(1, shape), *modules)


class FromElsewhere(nn.Module):
    def forward(self, values: Any) -> Any:
        return torch.sin(values)


def with_an_unknown_branch() -> Any:
    blueprints = [
        layers.Dense(2),
        layers.Concatenate([layers.Dense(2), layers.ReLU()], []),
        layers.Dense(2),
    ]
    network = Network.from_blueprints(blueprints, 1)
    decoder = write_decoder(network, torch.float64)
    decoder[1].branches[0][1] = nn.Tanh()
    return decoder


def trained() -> Any:
    return begun(nn.BatchNorm1d(2)).train()


def without_statistics() -> Any:
    return begun(nn.BatchNorm1d(2, track_running_stats=False)).eval()


def divided() -> Any:
    return begun(nn.AvgPool2d(2, divisor_override=3), shape=(1, 2, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: begun(nn.Tanh()), "got Tanh at position 2"),
        (lambda: begun(nn.Sequential(nn.Softmax(dim=1))), r"got Softmax at position 2\.0"),
        (lambda: begun(FromElsewhere()), "got FromElsewhere at position 2"),
        (lambda: begun(nn.Softshrink(0.0)), "Softshrink at position 2: lambd must be positive"),
        (with_an_unknown_branch, r"got Tanh at position 1\.branches\.0\.1"),
        (lambda: begun(nn.Conv3d(1, 1, 1)), "got Conv3d at position 2"),
        (
            lambda: begun(nn.Conv1d(2, 2, 3, padding=1, padding_mode="circular")),
            "must have padding_mode='zeros' in Conv1d at position 2, got 'circular'",
        ),
        (
            lambda: begun(nn.Conv1d(2, 2, 2, padding="same")),
            r'kernels of odd reach where padding="same", got Conv1d.* at position 2',
        ),
        (
            lambda: begun(nn.Conv1d(3, 2, 2)),
            r"decoder: Conv1d at position 2 needs coef of shape \(2, 2, 2\).*got shape \(2, 3, 2\)",
        ),
        (
            lambda: begun(nn.Conv2d(2, 2, 2)),
            r"Conv2d at position 2 needs inputs of shape \(channels, height, width\), got .*\(2, 4",
        ),
        (
            lambda: begun(nn.Conv1d(2, 2, 5)),
            r"Conv1d at position 2 needs inputs at least as large as its kernel, got .*\(2, 4\)",
        ),
        (
            lambda: begun(nn.Upsample(scale_factor=1.5)),
            "must have whole scale_factors in Upsample, got .* at position 2",
        ),
        (lambda: begun(nn.Upsample(size=8)), "whole scale_factors in Upsample, got .* position 2"),
        (
            lambda: begun(nn.Upsample(scale_factor=2, mode="bicubic"), shape=(1, 2, 2)),
            '"nearest", "linear" or "bilinear" in Upsample, got \'bicubic\' at position 2',
        ),
        (
            lambda: begun(nn.MaxPool1d(2, ceil_mode=True)),
            "must have ceil_mode=False in MaxPool1d at position 2, got True",
        ),
        (
            lambda: begun(nn.MaxPool1d(2, return_indices=True)),
            "must have return_indices=False in MaxPool1d at position 2, got True",
        ),
        (
            lambda: begun(nn.MaxPool1d(2, dilation=2)),
            "must have dilation=1 in MaxPool1d at position 2, got 2",
        ),
        (
            lambda: begun(nn.MaxPool2d(2, dilation=(1, 2)), shape=(1, 3, 3)),
            r"must have dilation=\(1, 1\) in MaxPool2d at position 2, got \(1, 2\)",
        ),
        # (PyTorch takes these for single samples, and pools over channels.)
        (
            lambda: begun(nn.MaxPool2d(2)),
            r"MaxPool2d at position 2 needs inputs of shape \(channels, height, width\), got",
        ),
        (
            lambda: begun(nn.AvgPool2d(2)),
            r"AvgPool2d at position 2 needs inputs of shape \(channels, height, width\), got",
        ),
        (
            lambda: begun(nn.MaxPool1d(2), shape=(2, 2, 2)),
            r"MaxPool1d at position 2 needs inputs of shape \(channels, length\), got .*\(2, 2, 2",
        ),
        (
            lambda: begun(nn.AvgPool1d(2, count_include_pad=False)),
            "must have count_include_pad=True in AvgPool1d at position 2, got False",
        ),
        (divided, "must have divisor_override=None in AvgPool2d at position 2, got 3"),
        (trained, "must be in eval mode, .* got BatchNorm1d at position 2"),
        (without_statistics, "with running statistics.* got BatchNorm1d at position 2"),
        (
            lambda: begun(nn.Flatten(start_dim=2)),
            "must have start_dim=1 in Flatten at position 2, got 2",
        ),
        (
            lambda: begun(nn.Unflatten(2, (2, 2))),
            "must have dim=1 in Unflatten at position 2, got 2",
        ),
        (
            lambda: nn.Sequential(nn.Linear(1, 4), nn.Unflatten(1, (-1, 2))),
            r"shape of positive integers in Unflatten, got \(-1, 2\) at position 1",
        ),
        (
            lambda: nn.Sequential(nn.Linear(1, 4), nn.Unflatten(1, (3, 2))),
            r"decoder: Unflatten at position 1 needs 6 inputs, got shape \(4,\)",
        ),
        (
            lambda: begun(nn.PReLU(3)),
            r"decoder: PReLU at position 2 needs 2 slopes .*, got shape \(3,\)",
        ),
        (
            lambda: begun(nn.BatchNorm1d(3).eval()),
            r"decoder: BatchNorm1d at position 2 needs 3 channels, got shape \(2, 4\)",
        ),
        (
            lambda: begun(nn.ConvTranspose1d(2, 2, 2, padding=4)),
            "ConvTranspose1d at position 2 needs inputs at least as large",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_options(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PiecewiseAffineDGN.from_torch(make(), 0.1)


def test_without_pytorch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    model = PiecewiseAffineDGN.from_network([[[1.0]]], [[0.0]], 1.0, activation="relu")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "skdgn\[torch\]"'):
        model.to_torch()


def test_the_precision_of_a_written_decoder_is_one_of_two() -> None:
    model = PiecewiseAffineDGN.from_network([[[1.0]]], [[0.0]], 1.0, activation="relu")
    with pytest.raises(ValueError, match=r'dtype must be "float32" or "float64", got .half.'):
        model.to_torch("half")
