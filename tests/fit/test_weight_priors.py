"""Priors of the weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from skdgn import PiecewiseAffineDGN
from skdgn._fit.m_step.weight_priors import PRIORS, Density, PriorTerms, WeightPrior
from skdgn._network import Network
from skdgn.datasets import make_noisy_circle
from tests.networks import random_network, with_weights

UNITS = np.array([1.0, 10.0, 0.1])


def make_network(size: float = 1.0) -> Network:
    network = random_network(2, (4, 5), activation="leaky_relu")
    return with_weights(network, [size * coef for coef in network.coefs])


@pytest.mark.parametrize(
    ("kind", "distribution"),
    [
        ("gaussian", stats.norm(scale=0.7)),
        ("laplace", stats.laplace(scale=0.7)),
        ("uniform", stats.uniform(-0.7, 1.4)),
    ],
)
def test_log_density_is_that_of_the_weights_in_original_units(kind, distribution):
    prior = WeightPrior(kind, 0.7, UNITS)
    network = prior.admit(make_network())
    original = [*network.coefs[:-1], UNITS[:, None] * network.coefs[-1]]
    # The bound itself, scaled back, may have rounded outwards.
    inside = [np.clip(coef, -0.7, 0.7) if kind == "uniform" else coef for coef in original]
    expected = sum(distribution.logpdf(coef).sum() for coef in inside)
    assert prior.log_density(network) == pytest.approx(expected, rel=1e-13)


def test_no_prior_changes_nothing():
    prior = WeightPrior(None, 1.0, UNITS)
    network = make_network()
    assert prior.admit(network) is network
    assert prior.log_density(network) == 0.0


@pytest.mark.parametrize("kind", PRIORS)
def test_balancing_keeps_the_generator_and_raises_the_density(kind):
    # A box wide enough for all: only the scales of the units put weights outside.
    prior = WeightPrior(kind, {"uniform": 60.0}.get(kind, 1.0), UNITS)
    network = make_network()
    factors = np.array([1e-3, 10.0, 1e4, 1.0])
    unbalanced = with_weights(
        network,
        (network.coefs[0] * factors[:, None], network.coefs[1] / factors, network.coefs[2]),
        (network.intercepts[0] * factors, *network.intercepts[1:]),
    )
    balanced = prior.admit(unbalanced)
    latent = np.random.default_rng(1).normal(size=(20, 2))
    np.testing.assert_allclose(balanced.forward(latent), network.forward(latent), rtol=1e-9)
    if kind == "uniform":
        assert np.abs(unbalanced.coefs[0]).max() > 60.0
        assert max(np.abs(coef).max() for coef in balanced.coefs[:-1]) <= 60.0
    else:
        assert prior.log_density(balanced) > prior.log_density(unbalanced)
        # The result does not depend on the scales at the beginning.
        assert prior.log_density(balanced) == pytest.approx(
            prior.log_density(prior.admit(network)), rel=1e-3
        )


def test_a_network_outside_the_box_is_moved_inside_and_one_inside_is_left_alone():
    prior = WeightPrior("uniform", 0.5, UNITS)
    admitted = prior.admit(make_network(3.0))
    for place in admitted.learned:
        bounds = prior.scales(admitted, place)
        assert np.all(np.abs(admitted.layers[place].parameters) <= bounds)
        assert np.isinf(bounds).sum() == admitted.layers[place].n_outputs
    assert prior.admit(admitted) is admitted


@pytest.mark.parametrize("kind", PRIORS)
def test_units_that_are_cut_off_are_left_alone(kind):
    prior = WeightPrior(kind, 1e3, UNITS)
    network = make_network()
    first, second = network.coefs[0].copy(), network.coefs[1].copy()
    first[0], second[:, 1] = 0.0, 0.0
    cut = with_weights(network, (first, second, network.coefs[2]))
    balanced = prior.admit(cut)
    np.testing.assert_array_equal(balanced.coefs[0][0], 0.0)
    np.testing.assert_array_equal(balanced.coefs[1][:, 1], 0.0)
    assert all(np.all(np.isfinite(coef)) for coef in balanced.coefs)


class Logistic(Density):
    """Density ``1 / cosh(r / 2)^2``."""

    volume = 4.0

    def energy(self, ratios):
        return float((2.0 * np.log(np.cosh(0.5 * ratios))).sum())

    def sizes(self, ratios, axis):
        return np.abs(ratios).sum(axis=axis)

    def terms(self, weights, gradient, scales):
        unbounded = np.full_like(weights, np.inf)
        slope = gradient - np.tanh(0.5 * weights / scales) / scales
        return PriorTerms(slope, 0.5 * scales**-2.0, -unbounded, unbounded)


def test_a_new_prior_needs_a_class_and_its_registration(monkeypatch):
    monkeypatch.setitem(PRIORS, "logistic", Logistic())
    constraints = PiecewiseAffineDGN._parameter_constraints
    monkeypatch.setitem(constraints, "weight_prior", [None, str])
    X = make_noisy_circle(100, random_state=0)
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,), weight_prior="logistic", prior_scale=0.1, tol=1e-2, random_state=0
    ).fit(X)
    free = PiecewiseAffineDGN(hidden_layer_sizes=(4,), tol=1e-2, random_state=0).fit(X)
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)
    sizes = [sum(np.abs(coef).sum() for coef in own.coefs_) for own in (model, free)]
    assert sizes[0] < sizes[1]
