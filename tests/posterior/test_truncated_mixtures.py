"""Draws from truncated Gaussians and from posteriors, against their densities and moments."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from skdgn._estimators.network import PiecewiseAffineDGN
from skdgn._geometry.integrals import integrate_gaussian
from skdgn._geometry.kinds import whole_space
from skdgn._posterior.posterior import Posterior
from skdgn._posterior.truncated_mixtures import draw_truncated
from tests.geometry.helpers import cell_from_halfspaces
from tests.networks import random_network

# Seeds are fixed: a correct sampler fails a test at this level for one seed in a thousand, and the
# seeds below are the first that were tried.
SIGNIFICANCE = 1e-3
STANDARD_ERRORS = 4.0


def make_model(n_components: int) -> PiecewiseAffineDGN:
    network = random_network(n_components, (6, 4), activation="relu", seed=3)
    return PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, 0.3, activation="relu"
    )


@pytest.fixture(scope="module", params=[1, 2, 3])
def posterior(request: pytest.FixtureRequest) -> Posterior:
    model = make_model(request.param)
    return model.posterior(model.sample(2, random_state=0)[0])


CELLS = {
    "plane": whole_space(2),
    "half-plane 50 away": cell_from_halfspaces([[1.0, 0.3]], [50.0]),
    "wedge 50 away": cell_from_halfspaces([[1.0, 1.0], [1.0, -1.0]], [50.0, 50.0]),
    "sharp wedge": cell_from_halfspaces([[1.0, 1e3], [1.0, -1e3]], [50.0, 50.0]),
    "sliver": cell_from_halfspaces(
        [[1.0, 1.0], [-1.0, -1.0], [1.0, 0.0], [-1.0, 0.0]], [1.0, -1.0 - 1e-6, -3.0, -3.0]
    ),
    "triangle": cell_from_halfspaces([[1.0, 1.0], [-1.0, 0.1], [0.0, -1.0]], [0.5, -0.7, -0.3]),
    "half-space 50 away": cell_from_halfspaces([[1.0, 0.0, 0.2]], [50.0], 3),
    "corner 50 away": cell_from_halfspaces(
        [[1.0, 1.0, 0.0], [1.0, -1.0, 0.3], [0.5, 0.0, 1.0]], [30.0, 40.0, 50.0], 3
    ),
    "needle": cell_from_halfspaces(
        np.concatenate([np.eye(3), -np.eye(3)]), [1.0, 1.0, 1.0, -1.5, -1.0001, -1.00001], 3
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_draws_have_the_moments_of_the_truncated_gaussian(name: str) -> None:
    cell = CELLS[name]
    n_dimensions = cell.facets().normals.shape[1]
    mean, covariance = np.full(n_dimensions, 0.1), np.eye(n_dimensions) + 0.2
    n_draws = 50_000
    draws = draw_truncated(cell, mean, covariance, n_draws, np.random.default_rng(0))
    facets = cell.facets()
    assert np.all(draws @ facets.normals.T >= facets.offsets - 1e-9)
    exact = integrate_gaussian(cell, mean, covariance)
    # In units of the exact deviations along the exact axes.
    variances, axes = np.linalg.eigh(exact.covariances[0])
    standard = (draws - exact.means[0]) @ axes / np.sqrt(variances)
    errors = standard.mean(axis=0) * np.sqrt(n_draws)
    assert np.abs(errors).max() < STANDARD_ERRORS
    products = np.einsum("ns,nt->nst", standard, standard)
    deviations = products.std(axis=0) / np.sqrt(n_draws)
    assert np.all(
        np.abs(products.mean(axis=0) - np.eye(n_dimensions)) < STANDARD_ERRORS * deviations
    )


@pytest.mark.parametrize("seed", [0, 16])
def test_small_cells_a_thousand_deviations_away(seed: int) -> None:
    # Seed 16 is a cell along whose edge many boxes are needed.
    rng = np.random.default_rng(seed)
    normals = rng.normal(size=(8, 3))
    offsets = normals @ [1000.0, 0.5, 0.5] - 0.2 * rng.random(8)
    cell = cell_from_halfspaces(normals, offsets, 3)
    draws = draw_truncated(cell, np.zeros(3), np.eye(3), 20_000, rng)
    exact = integrate_gaussian(cell, np.zeros(3), np.eye(3))
    variances, axes = np.linalg.eigh(exact.covariances[0])
    standard = (draws - exact.means[0]) @ axes / np.sqrt(variances)
    assert np.abs(standard.mean(axis=0)).max() < STANDARD_ERRORS / np.sqrt(20_000)


def test_four_dimensions() -> None:
    # An orthant: coordinates are independent.
    cell = cell_from_halfspaces(np.eye(4), np.full(4, 1.5), 4)
    draws = draw_truncated(cell, np.zeros(4), np.eye(4), 5_000, np.random.default_rng(0))
    for s in range(4):
        assert scipy.stats.kstest(draws[:, s], scipy.stats.truncnorm(1.5, np.inf).cdf).pvalue > (
            SIGNIFICANCE
        )


def test_posterior_moments(posterior: Posterior) -> None:
    n_draws = 300_000
    draws = posterior.sample(n_draws, random_state=0)
    for n in range(len(posterior)):
        deviations = draws[:, n] - posterior.mean[n]
        errors = deviations.std(axis=0) / np.sqrt(n_draws)
        assert np.all(np.abs(deviations.mean(axis=0)) < STANDARD_ERRORS * errors)
        products = np.einsum("is,it->ist", deviations, deviations)
        errors = products.std(axis=0) / np.sqrt(n_draws)
        difference = np.abs(products.mean(axis=0) - posterior.covariance[n])
        assert np.all(difference < STANDARD_ERRORS * errors)


def test_kolmogorov_smirnov_in_one_dimension() -> None:
    model = make_model(1)
    posterior = model.posterior(model.sample(3, random_state=1)[0])
    draws = posterior.sample(20_000, random_state=2)
    grid = np.linspace(-9.0, 9.0, 200_001)
    densities = np.exp(posterior.log_density(grid[:, None]))
    steps = 0.5 * (densities[:, 1:] + densities[:, :-1]) * np.diff(grid)
    for n in range(3):
        cumulative = np.concatenate([[0.0], np.cumsum(steps[n])])
        assert cumulative[-1] == pytest.approx(1.0, abs=1e-6)
        test = scipy.stats.kstest(
            draws[:, n, 0], lambda z, cumulative=cumulative: np.interp(z, grid, cumulative)
        )
        assert test.pvalue > SIGNIFICANCE


@pytest.mark.parametrize(("n_components", "n_bins", "n_nodes"), [(2, 12, 20), (3, 5, 12)])
def test_binned_draws(n_components: int, n_bins: int, n_nodes: int) -> None:
    model = make_model(n_components)
    posterior = model.posterior(model.sample(1, random_state=0)[0])
    n_draws = 100_000
    draws = posterior.sample(n_draws, random_state=3)[:, 0]
    deviations = np.sqrt(np.diagonal(posterior.covariance[0]))
    lower, upper = posterior.mean[0] - 3.0 * deviations, posterior.mean[0] + 3.0 * deviations
    edges = [np.linspace(lower[s], upper[s], n_bins + 1) for s in range(n_components)]
    counts, _ = np.histogramdd(draws, edges)
    # Midpoint rule, bin by bin.
    fine = n_bins * n_nodes
    axes = [
        lower[s] + (np.arange(fine) + 0.5) / fine * (upper[s] - lower[s])
        for s in range(n_components)
    ]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, n_components)
    density = np.exp(posterior.log_density(points))[0].reshape((n_bins, n_nodes) * n_components)
    volume = np.prod((upper - lower) / fine)
    expected = n_draws * volume * density.sum(axis=tuple(range(1, 2 * n_components, 2)))
    large = expected > 10.0
    rest_expected = n_draws - expected[large].sum()
    rest = n_draws - counts[large].sum()
    statistic = ((counts[large] - expected[large]) ** 2 / expected[large]).sum()
    statistic += (rest - rest_expected) ** 2 / rest_expected
    assert scipy.stats.chi2.sf(statistic, large.sum()) > SIGNIFICANCE


def test_draws_are_reproducible(posterior: Posterior) -> None:
    first = posterior.sample(5, random_state=7)
    np.testing.assert_array_equal(first, posterior.sample(5, random_state=7))
    assert not np.array_equal(first, posterior.sample(5, random_state=8))
    np.testing.assert_array_equal(first, posterior.sample(5, np.random.default_rng(7)))
    by_state = [posterior.sample(5, np.random.RandomState(7)) for _ in range(2)]
    np.testing.assert_array_equal(*by_state)
    assert first.shape == (5, *posterior.mean.shape)


def test_draws_of_rows_with_holes() -> None:
    model = make_model(2)
    rows = model.sample(3, random_state=0)[0]
    rows[0, 1] = np.nan
    rows[2] = np.nan
    posterior = model.posterior(rows)
    draws = posterior.sample(20_000, random_state=0)
    errors = draws.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - posterior.mean) < STANDARD_ERRORS * errors)


@pytest.mark.parametrize("n_draws", [0, -1, 1.5, True])
def test_number_of_draws_must_be_positive(posterior: Posterior, n_draws: object) -> None:
    with pytest.raises(ValueError, match="n_draws must be a positive integer, got"):
        posterior.sample(n_draws)  # type: ignore[arg-type]  # that is the point


def test_random_state_must_be_one(posterior: Posterior) -> None:
    with pytest.raises(ValueError, match=r"random_state must be .* got 'seed'"):
        posterior.sample(1, random_state="seed")
