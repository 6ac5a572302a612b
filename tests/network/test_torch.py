"""PyTorch decoders: the same function, exactly, or an error that names the layer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from skdgn import PiecewiseAffineDGN
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
