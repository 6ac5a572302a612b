"""Networks fitted to latent coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._fit.starts import least_squares as _least_squares
from skdgn._fit.starts.initialization import (
    starting_network,
)
from skdgn._fit.starts.least_squares import Pairs, _smooth, fit_to_coordinates
from skdgn._network import Activation, Architecture
from tests.curves import (
    ACTIVATIONS,
    RELU,
    circle,
    standardize,
)


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=lambda a: a.name)
def test_fit_recovers_what_a_network_can_represent(activation: Activation) -> None:
    z = np.random.default_rng(0).standard_normal((500, 1))
    rows = np.column_stack([np.abs(z), np.abs(z - 1.0) - z])
    network = fit_to_coordinates(
        z, rows, Architecture.alike(1, (6,), activation), np.random.default_rng(0)
    )
    # Up to neighbors averaged across a kink, and the ridge.
    assert np.all(np.mean((rows - network.forward(z)) ** 2, axis=0) < 1e-3 * rows.var(axis=0))


def test_hopeless_search_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    n_steps = []
    improve = _least_squares._improve
    monkeypatch.setattr(
        _least_squares,
        "_improve",
        lambda fit, pairs, steps: n_steps.append(steps) or improve(fit, pairs, steps),
    )
    rows = standardize(circle(0, 300))
    arguments = (rows, Architecture.alike(1, (8, 8), RELU), "pca")
    full = starting_network(*arguments, np.random.default_rng(0))
    n_full = sum(n_steps)
    # Another start that explains almost all: principal scores of a circle never will.
    early = starting_network(*arguments, np.random.default_rng(0), 0.01)
    assert sum(n_steps) - n_full < 0.6 * n_full
    # The same as without a rival while there is hope.
    hopeful = starting_network(
        *arguments, np.random.default_rng(0), float(full.residual_variances.mean())
    )
    assert early.network.hidden_layer_sizes == full.network.hidden_layer_sizes
    np.testing.assert_array_equal(hopeful.network.coefs[0], full.network.coefs[0])


def test_smoothing_keeps_what_is_linear() -> None:
    generator = np.random.default_rng(0)
    for n_components, n_pairs in ((1, 40), (2, 60), (3, 5), (2, 1)):
        latent = generator.standard_normal((n_pairs, n_components))
        weights = generator.standard_normal((n_components, 3))
        smooth = _smooth(Pairs(latent, latent @ weights + 1.0))
        np.testing.assert_allclose(smooth.targets, smooth.latent @ weights + 1.0, atol=1e-12)


def test_smoothing_takes_out_noise() -> None:
    generator = np.random.default_rng(0)
    latent = np.sort(generator.standard_normal((200, 1)), axis=0)
    noise = generator.standard_normal((200, 1))
    smooth = _smooth(Pairs(latent, noise))
    # Weights 1/2, 1/4, 1/4, twice: about 0.3 of the variance is left.
    assert smooth.targets.var() < 0.5 * noise.var()


@pytest.mark.parametrize("widths", [(5,), (4, 3)])
def test_steps_follow_the_derivatives_that_the_output_layer_leaves(widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(40, 2))
    pairs = Pairs(latent, np.column_stack([np.sin(latent[:, 0]), latent[:, 1] ** 2, latent[:, 1]]))
    activations = (Activation.from_name("leaky_relu", 0.1),) * len(widths)
    hidden = _least_squares._random_hidden_layers(latent, widths, activations, rng)
    # Kinks drawn at a pair are moved off it: there is no derivative.
    hidden = tuple(layer + 0.01 * rng.normal(size=layer.shape) for layer in hidden)
    fit = _least_squares._fit_output_layer(hidden, activations, pairs)

    def outputs(step: np.ndarray) -> np.ndarray:
        values = latent
        for layer, activation in zip(_least_squares._add(hidden, step), activations, strict=True):
            values = activation(values @ layer[:, :-1].T + layer[:, -1])
        return values @ fit.output[:, :-1].T

    steps = 1e-6 * np.eye(sum(layer.size for layer in hidden))
    slopes = np.array([(outputs(step) - outputs(-step)) / 2e-6 for step in steps])  # (p, m, k)
    slopes -= slopes.mean(axis=1, keepdims=True)
    slopes -= np.einsum("mu,nu,pnk->pmk", fit.basis, fit.basis, slopes)
    matrix, descent = _least_squares._step_system(fit)
    np.testing.assert_allclose(matrix, np.einsum("pmk,qmk->pq", slopes, slopes), atol=1e-6)
    np.testing.assert_allclose(descent, np.einsum("pmk,mk->p", slopes, fit.residuals), atol=1e-6)
