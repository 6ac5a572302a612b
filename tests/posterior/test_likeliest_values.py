"""Modes and sets of highest density, against those of Gaussians and against quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from skdgn import DGNEnsemble, PiecewiseAffineDGN
from skdgn._posterior import FeatureDistributions, feature_modes, highest_density_sets
from tests.networks import random_network

# As the documentation of `predict_interval` says.
COVERAGE_ERROR = 1e-6


def gaussian(mean: float, deviation: float) -> PiecewiseAffineDGN:
    """(x, y) with x of mean zero, y independent of it."""
    return PiecewiseAffineDGN.from_network(
        [[[1e-3], [0.6 * deviation]]],
        [[0.0, mean]],
        [1.0, (0.8 * deviation) ** 2],
        activation="relu",
    )


def given_zero(model: DGNEnsemble | PiecewiseAffineDGN) -> FeatureDistributions:
    return model._fitted_model().feature_distributions(np.array([[0.0, np.nan]]), np.array([1]))


def test_one_gaussian() -> None:
    distributions = given_zero(gaussian(3.0, 2.0))
    np.testing.assert_allclose(feature_modes(distributions), [[3.0]], atol=1e-6)
    sets = highest_density_sets(distributions, 0.9)[0, :, :, 0]
    assert np.isnan(sets[1:]).all()
    np.testing.assert_allclose(sets[0], 3.0 + 2.0 * norm.ppf([0.05, 0.95]), atol=1e-5)


@pytest.mark.parametrize("coverage", [0.3, 0.9, 0.999])
def test_two_peaks_of_very_different_widths(coverage: float) -> None:
    # Apart from each other, so that their densities do not mix: the level is where both together
    # have the coverage.
    means, deviations, weights = np.array([0.0, 50.0]), np.array([0.01, 4.0]), np.array([0.4, 0.6])
    parts = [gaussian(m, s) for m, s in zip(means, deviations, strict=True)]
    distributions = given_zero(DGNEnsemble.from_estimators(parts, weights))
    assert feature_modes(distributions)[0, 0] == pytest.approx(0.0, abs=1e-6)
    sets = highest_density_sets(distributions, coverage)[0, :, :, 0]
    sets = sets[~np.isnan(sets[:, 0])]
    assert len(sets) == (1 if coverage == 0.3 else 2)
    probability = sum(
        weights @ (norm.cdf(high, means, deviations) - norm.cdf(low, means, deviations))
        for low, high in sets
    )
    assert probability == pytest.approx(coverage, abs=COVERAGE_ERROR)
    # All ends have the same density: no other set is smaller.
    densities = [weights @ norm.pdf(end, means, deviations) for end in sets.ravel()]
    np.testing.assert_allclose(densities, densities[0], rtol=1e-4)


@pytest.mark.parametrize("n_components", [1, 2])
def test_a_bent_network_by_quadrature(n_components: int) -> None:
    network = random_network(n_components, (5,), n_features=3, activation="leaky_relu", seed=4)
    noise = np.array([0.3, 0.05, 0.2])
    model = PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, noise, activation="leaky_relu"
    )
    rows = model.sample(4, random_state=0)[0]
    rows[0, 2] = np.nan  # which is not conditioned on
    conditions = rows.copy()
    conditions[:, 1] = np.nan
    distributions = model._fitted_model().feature_distributions(conditions, np.array([1]))
    # Densities are those of `conditional_score_samples`.
    values = rows[:, [1]]
    expected = model.conditional_score_samples(rows, given=[0, 2])
    np.testing.assert_allclose(distributions.log_pdf(values)[:, 0], expected, atol=1e-10)
    sets = highest_density_sets(distributions, 0.8)[:, :, :, 0]
    found = feature_modes(distributions)[:, 0]
    for n in range(len(rows)):
        own = sets[n][~np.isnan(sets[n, :, 0])]
        ends = np.tile(conditions[n], (own.size, 1))
        ends[:, 1] = own.ravel()
        probability = np.diff(model.conditional_cdf(ends, given=[0, 2])[:, 0].reshape(-1, 2))
        assert probability.sum() == pytest.approx(0.8, abs=COVERAGE_ERROR)

        def falling(values: np.ndarray, n: int = n) -> np.ndarray:
            table = np.tile(conditions[n], (np.size(values), 1))
            table[:, 1] = values
            return -model.score_samples(table)

        grid = np.linspace(own.min(), own.max(), 400)
        best = grid[np.argmin(falling(grid))]
        width = grid[1] - grid[0]
        exact = minimize_scalar(
            lambda value: falling(value)[0], bounds=(best - width, best + width), method="bounded"
        )
        assert falling(found[n])[0] == pytest.approx(exact.fun, abs=1e-6)


def test_samples_of_which_nothing_is_known_have_the_distribution_of_all() -> None:
    model = gaussian(3.0, 2.0)
    ensemble = DGNEnsemble.from_estimators([model, model])
    for estimator in (model, ensemble):
        far = np.array([[1e200, np.nan]])
        distributions = estimator._fitted_model().feature_distributions(far, np.array([1]))
        expected = norm.logpdf([[3.5]], 3.0, 2.0)
        np.testing.assert_allclose(distributions.log_pdf(np.array([[3.5]])), expected, rtol=1e-6)
