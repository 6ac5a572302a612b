"""Fits to samples with missing values: the likelihood is that of what was observed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdgn import PiecewiseAffineDGN
from skdgn._fit.em.loop import Problem
from skdgn._fit.m_step.maximization import gradient, linearize, maximize_noise
from skdgn._fit.m_step.weight_priors import PRIORS, WeightPrior
from skdgn._network import Network
from skdgn._noise import COVARIANCE_TYPES, Noise
from skdgn._runtime.workers import Workers
from tests.missing_values import fit_quietly, make_table, model_of, noise_of, with_missing
from tests.networks import random_network, replace_layer
from tests.portions import portions
from tests.reference import quadrature

D = 4


def problem_of(rows: np.ndarray, weights: np.ndarray, kind: str) -> Problem:
    prior = WeightPrior(None, 1.0, np.ones(rows.shape[1]))
    floors = np.full(rows.shape[1], 1e-6)
    return Problem(rows, weights, kind, 2, floors, prior, 10_000, Workers())


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_statistics_give_the_gradient_of_the_observed_likelihood(kind: str) -> None:
    network = random_network(1, (3,), n_features=D, activation="leaky_relu", seed=4)
    noise = Noise.from_covariance(noise_of(kind), D)
    rows = with_missing(model_of(network, noise_of(kind)).sample(30, random_state=0)[0] + 0.3, 0.4)
    rows[:3] = [[0.1, 0.2, 0.3, 0.4], [np.nan, 1.0, 1.0, np.nan], [np.nan] * D]
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(rows))
    problem = problem_of(rows, weights, kind)
    state = problem.evaluate(network, noise)

    def likelihood(network: Network, noise: Noise) -> float:
        return problem.evaluate(network, noise).statistics.log_likelihood

    step = 1e-5
    linearization = linearize(state.statistics, network, noise, state.partition.patterns)
    for layer in range(2):
        slope = gradient(linearization, layer).reshape(len(network.coefs[layer]), -1)
        if layer == 1:  # of the whitened layer
            slope = np.linalg.solve(noise.color(np.eye(D)), slope)
        for i, j in [(0, 0), (2, 0), (1, slope.shape[1] - 1)]:
            values = []
            for sign in (1.0, -1.0):
                coef, bias = network.coefs[layer].copy(), network.intercepts[layer].copy()
                if j < coef.shape[1]:
                    coef[i, j] += sign * step
                else:
                    bias[i] += sign * step
                values.append(likelihood(replace_layer(network, layer, coef, bias), noise))
            assert slope[i, j] == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)

    # d/dN log p = n/2 N^-1 (best N - N) N^-1, in the directions that the noise can take.
    if kind == "factor":
        return  # its M-step is a step of EM, see tests/noise/test_factor.py
    best = maximize_noise(
        state.statistics, network, state.partition.patterns, noise, np.full(D, 1e-12)
    )
    precision = np.linalg.inv(quadrature.as_matrix(noise.covariance, D))
    change = quadrature.as_matrix(best.covariance, D) - quadrature.as_matrix(noise.covariance, D)
    slope = 0.5 * weights.sum() * precision @ change @ precision
    rng = np.random.default_rng(0)
    for _ in range(3):
        direction = rng.normal(size=noise.covariance.shape)
        if kind == "full":
            direction = direction + direction.T
        values = [
            likelihood(
                network, Noise.from_covariance(noise.covariance + sign * step * direction, D)
            )
            for sign in (1.0, -1.0)
        ]
        expected = np.sum(slope * quadrature.as_matrix(direction, D))
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(expected, rel=1e-5)


@pytest.mark.no_cover
@pytest.mark.parametrize("first", portions(72, 24))
def test_random_fits_never_decrease_and_never_fail(first: int) -> None:
    priors = [None, *[prior for prior in PRIORS if prior is not None]]
    for seed in range(first, first + 24):
        rng = np.random.default_rng(seed)
        n_components = 1 + seed % 2
        n_features = 2 + seed % 4
        hidden_layer_sizes = [(3,), (), (2, 2)][seed % 3]
        network = random_network(n_components, (4,), n_features=n_features, seed=seed)
        rows = network.forward(rng.normal(size=(40, n_components)))
        rows += 0.1 * rng.normal(size=rows.shape)
        holed = with_missing(rows, rng.uniform(0.1, 0.7), seed)
        # A value in every column, which chance may have removed.
        holed[np.arange(n_features), np.arange(n_features)] = np.arange(n_features)
        model = PiecewiseAffineDGN(
            n_components,
            hidden_layer_sizes=hidden_layer_sizes,
            covariance_type=COVARIANCE_TYPES[seed % 4 if seed < 36 else (seed // 3) % 4],
            weight_prior=priors[(seed // 2) % len(priors)],
            prior_scale=3.0,
            init_params=["pca", "random"][(seed // 4) % 2],
            max_iter=4,
            random_state=seed,
        )
        weights = rng.uniform(0.0, 2.0, len(rows)) if seed % 5 == 0 else None
        if weights is not None:
            weights[:n_features] = 1.0
        fit_quietly(model, holed, None, weights)
        assert np.all(np.isfinite(model.lower_bounds_)), seed
        assert np.all(np.diff(model.lower_bounds_) >= 0.0), seed
        assert np.all(np.isfinite(model.score_samples(holed))), seed
        assert np.all(np.isfinite(model.impute(holed))), seed


@pytest.fixture(scope="module")
def wave() -> np.ndarray:
    return make_table()


@pytest.fixture(scope="module")
def fitted(wave: np.ndarray) -> PiecewiseAffineDGN:
    model = PiecewiseAffineDGN(hidden_layer_sizes=(4,), max_iter=15, random_state=0)
    frame = pd.DataFrame(with_missing(wave, 0.2), columns=["angle", "sine", "cosine"])
    return fit_quietly(model, frame)


def test_lower_bound_is_in_the_units_of_the_rows(
    fitted: PiecewiseAffineDGN, wave: np.ndarray
) -> None:
    frame = pd.DataFrame(with_missing(wave, 0.2), columns=["angle", "sine", "cosine"])
    assert fitted.score(frame) == pytest.approx(fitted.lower_bound_, abs=1e-9)
    log_density = fitted.score_samples(frame)
    expected = -2.0 * log_density.sum() + np.log(len(frame)) * fitted.n_parameters_
    assert fitted.bic(frame) == pytest.approx(expected)


def test_weights_repetition_and_order_of_rows_with_missing(wave: np.ndarray) -> None:
    rows = with_missing(wave[:40], 0.3)
    weights = np.random.default_rng(0).integers(0, 3, len(rows))
    weights[:3] = 1
    order = np.random.default_rng(1).permutation(weights.sum())
    model = PiecewiseAffineDGN(hidden_layer_sizes=(3,), max_iter=5, random_state=0)
    weighted = fit_quietly(model, rows, None, weights).score_samples(rows)
    repeated = fit_quietly(model, np.repeat(rows, weights, axis=0)[order]).score_samples(rows)
    np.testing.assert_allclose(repeated, weighted, rtol=1e-9)


def test_holes_are_filled_in_better_than_by_a_linear_model(wave: np.ndarray) -> None:
    holed = with_missing(wave, 0.3)
    errors = []
    for hidden_layer_sizes in [(), (8,)]:
        model = PiecewiseAffineDGN(
            hidden_layer_sizes=hidden_layer_sizes, max_iter=60, random_state=0
        )
        imputed = fit_quietly(model, holed).impute(holed)
        errors.append(np.mean((imputed - wave)[np.isnan(holed)] ** 2))
    assert errors[1] < 0.6 * errors[0]
