"""Posteriors of which regions are explored, compared with those of which they are listed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.special import ndtr
from scipy.stats import multivariate_normal, special_ortho_group
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from skdgn._fit.statistics import expect
from skdgn._network import Activation, Network
from skdgn._noise import Noise
from skdgn._posterior import Explorer, Model
from skdgn._posterior.explored.ascents import ascend, cross_kinks
from skdgn._posterior.explored.importance import _exponential, _quantiles
from skdgn._posterior.explored.likelihoods import Likelihood
from skdgn._posterior.explored.maxima import Maxima
from skdgn._posterior.explored.posterior_search import _Starts
from skdgn._runtime import Workers
from skdgn.layers import Dense, MaxOut
from tests.networks import random_network

VARIANCE = 0.1
# Standard errors that an error may amount to: eight shifts tell them to a quarter.
TIMES_ERROR = 5.0


def models(network: Network, variance: float = VARIANCE, seed: int = 0) -> tuple[Model, Model]:
    """The exact model, and one whose regions are explored."""
    noise = Noise.from_covariance(variance, network.n_features)
    explorer = Explorer.prepare(network, noise, 0.01, seed)
    return Model.build(network, noise), Model(network, noise, explorer.partition, explorer)


def draw(network: Network, n_rows: int = 12, deviation: float = 0.3) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = network.forward(rng.normal(size=(n_rows, network.n_components)))
    return rows + deviation * rng.normal(size=rows.shape)


@pytest.fixture(scope="module")
def network() -> Network:
    return random_network(2, (6,), n_features=4, seed=1)


def test_posteriors_are_the_exact_ones_but_for_the_error_told(network: Network) -> None:
    exact, explored = models(network)
    rows = draw(network)
    rows[-3:] += 4.0  # outliers, too
    rows[0, 1] = rows[1, 1] = rows[2, 0] = np.nan
    ours, theirs = explored.posterior(rows, Workers()), exact.posterior(rows, Workers())
    errors = ours.log_density_error
    assert 0.0 < errors.max() < 0.016
    differences = explored.log_density(rows, Workers()) - exact.log_density(rows, Workers())
    assert np.all(np.abs(differences) < TIMES_ERROR * errors)
    deviations = np.sqrt(np.einsum("nss->ns", theirs.covariance))
    assert np.all(np.abs(ours.mean - theirs.mean) < 0.1 * deviations)
    np.testing.assert_allclose(ours.mode(), theirs.mode(), atol=1e-9)


def test_a_row_has_the_same_posterior_in_any_company(network: Network) -> None:
    _, explored = models(network)
    rows = draw(network)
    together = explored.visitor.visit(rows)
    alone = explored.visitor.visit(rows[5:6])
    assert together.log_density[5] == pytest.approx(alone.log_density[0], abs=1e-12)
    other = models(network, seed=7)[1].visitor.visit(rows[5:6])
    assert other.log_density[0] != alone.log_density[0]
    error = math.hypot(other.log_density_error[0], alone.log_density_error[0])
    assert other.log_density[0] == pytest.approx(alone.log_density[0], abs=TIMES_ERROR * error)


def test_nothing_observed_is_the_prior(network: Network) -> None:
    _, explored = models(network)
    posterior = explored.posterior(np.full((1, 4), np.nan), Workers())
    assert explored.log_density(np.full((1, 4), np.nan), Workers()).tolist() == [0.0]
    assert posterior.log_density_error.tolist() == [0.0]
    np.testing.assert_allclose(posterior.mean, 0.0, atol=0.05)
    np.testing.assert_allclose(posterior.covariance[0], np.eye(2), atol=0.1)


def test_what_is_too_far_out_is_unknown(network: Network) -> None:
    _, explored = models(network)
    visits = explored.visitor.visit(np.array([[1e200, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    assert np.isneginf(visits.log_density[0])
    assert np.isfinite(visits.log_density[1])
    assert np.isnan(visits.means[visits.start[0]]).all()


def test_statistics_of_batches_add_up_by_pattern(network: Network) -> None:
    _, explored = models(network)
    rows, weights = draw(network), np.ones(12)
    whole = expect(explored.visitor, rows, weights, Workers())
    parts = [expect(explored.visitor, part, np.ones(6), Workers()) for part in np.split(rows, 2)]
    added = parts[0] + parts[1]
    assert added.log_likelihood == pytest.approx(whole.log_likelihood)
    keys = [own.tobytes() for own in added.regions.patterns]
    order = [keys.index(own.tobytes()) for own in whole.regions.patterns]
    assert len(keys) == len(order)
    np.testing.assert_allclose(added.second[order], whole.second, atol=1e-10)
    assert whole.weights.sum() == pytest.approx(12.0)


def test_gaussians_are_compared_as_where_regions_are_listed(network: Network) -> None:
    exact, explored = models(network)
    rows = draw(network, 3)
    ours, theirs = explored.posterior(rows, Workers()), exact.posterior(rows, Workers())
    means, covariances = theirs.mean, theirs.covariance
    np.testing.assert_allclose(
        ours.kl_from(means, covariances), theirs.kl_from(means, covariances), rtol=0.1, atol=0.05
    )
    best, _ = ours.best_gaussian(), theirs.best_gaussian()
    assert np.all(theirs.kl_from(*best) < theirs.kl_from(*theirs.best_gaussian()) * 1.2 + 0.03)
    points = theirs.mean
    np.testing.assert_allclose(ours.log_density(points), theirs.log_density(points), atol=0.06)


def test_ascents_end_uphill_with_the_covariance_around(network: Network) -> None:
    likelihood = Likelihood(network, Noise.from_covariance(VARIANCE, 4))
    rows, starts = draw(network), np.zeros((12, 2))
    _, _, before = likelihood.linearize(rows, starts)
    points, heights, factors = ascend(likelihood, rows, starts)
    assert np.all(heights >= before)
    slopes, _, there = likelihood.linearize(rows, points)
    np.testing.assert_allclose(there, heights)
    precisions = np.swapaxes(slopes, 1, 2) @ slopes + np.eye(2)
    covariances = factors @ np.swapaxes(factors, 1, 2)
    np.testing.assert_allclose(
        covariances @ precisions, np.broadcast_to(np.eye(2), precisions.shape), atol=1e-9
    )


def test_one_ascent_starts_from_each_region_of_a_row() -> None:
    starts, keys = _Starts(), np.array([7, 7, 8, 7], dtype=np.uint64)
    owners = np.array([0, 0, 0, 3])
    assert starts.choose(owners, keys).tolist() == [0, 2, 3]
    keys[1] = 9
    assert starts.choose(owners, keys).tolist() == [1]
    assert starts.choose(owners[:0], keys[:0]).size == 0


def test_a_maximum_that_is_found_once_more_is_not_new() -> None:
    def at(height: float, place: float) -> Maxima:
        nobody, factors = np.zeros(1, dtype=np.intp), np.eye(2)[None]
        return Maxima(nobody, nobody, np.full((1, 2), place), np.array([height]), factors)

    again, share = at(-1.0, 0.0).join(at(-0.99, 1e-3), 1)
    assert share.tolist() == [0.0]
    assert again.points.tolist() == [[0.0, 0.0]]
    both, share = again.join(at(-1.0, 3.0), 1)
    assert share == pytest.approx([0.5])
    assert len(both.owners) == 2


def test_maxima_that_few_ascents_lead_to_are_found() -> None:
    # Two networks side by side, of which the density is known exactly.  With little noise, the
    # posterior has many narrow maxima, and the largest of them is not near any of the best draws.
    parts = []
    for seed in (15920, 15921):
        rng = np.random.default_rng(seed)
        coefs = [rng.normal(size=(5, n_inputs)) / np.sqrt(n_inputs) for n_inputs in (3, 5)]
        intercepts = [0.5 * rng.normal(size=5) for _ in coefs]
        parts.append(Network.from_arrays(coefs, intercepts, Activation.from_name("relu", 0.0)))
    turn = special_ortho_group.rvs(6, random_state=992)
    coefs = [block_diag(*pair) for pair in zip(*(part.coefs for part in parts), strict=True)]
    intercepts = [np.concatenate(pair) for pair in zip(*(p.intercepts for p in parts), strict=True)]
    network = Network.from_arrays([coefs[0] @ turn, coefs[1]], intercepts, parts[0].activations[0])
    rng = np.random.default_rng([992, 1])
    rows = network.forward(rng.normal(size=(10, 6)))
    rows += 0.03 * rng.normal(size=rows.shape)
    noise = Noise.from_covariance(0.03**2, 5)
    exact = sum(
        Model.build(part, noise).log_density(np.ascontiguousarray(own), Workers())
        for part, own in zip(parts, np.split(rows, 2, axis=1), strict=True)
    )
    visits = Explorer.prepare(network, Noise.from_covariance(0.03**2, 10), 0.01, 0).visit(rows)
    assert np.all(np.abs(visits.log_density - exact) < TIMES_ERROR * visits.log_density_error)


def test_quantiles_have_eight_digits() -> None:
    uniforms = np.array([1e-12, 0.01, 0.3, 0.5, 0.9, 1.0 - 1e-6])
    normal, room = np.empty((1, 6)), np.empty(7, dtype=np.intp)
    _quantiles(uniforms, 0, 6, normal, room)
    np.testing.assert_allclose(ndtr(normal[0]), uniforms, rtol=1e-7)


@pytest.mark.parametrize("exponent", [0.0, -1e-9, -0.7, -20.0, -300.0])
def test_exponentials_have_ten_digits(exponent: float) -> None:
    assert _exponential(exponent) == pytest.approx(math.exp(exponent), rel=1e-10)


def test_the_best_of_different_maxima_are_kept() -> None:
    kinds = np.array([0, 0, 1, 0])
    points = np.array([[0.0, 0.0], [3.0, 0.0], [9.0, 0.0], [1.0, 1.0]])
    heights, factors = np.array([-1.0, -2.0, -1.5, -4.0]), np.tile(np.eye(2), (4, 1, 1))
    old = Maxima(np.array([0, 0, 0, 1]), kinds, points, heights, factors)
    # Close to one of the first row, far too low, and the best of the second.
    new = old.take(np.array([0, 1, 3]))._replace(
        points=np.array([[0.1, 0.1], [0.0, 5.0], [8.0, 1.0]]), heights=np.array([-1.1, -20.0, -3.0])
    )
    joined, share = old.join(new, 2)
    assert joined.owners.tolist() == [0, 0, 0, 1, 1]
    assert joined.heights.tolist() == [-1.0, -2.0, -1.5, -3.0, -4.0]
    np.testing.assert_allclose(share, [0.0, 1.0 / (1.0 + math.exp(-1.0))])
    np.testing.assert_allclose(np.bincount(joined.owners, joined.shares(2)), 1.0)


def test_points_beyond_kinks_are_in_the_neighboring_regions(network: Network) -> None:
    likelihood = Likelihood(network, Noise.from_covariance(VARIANCE, 4))
    rows, starts = draw(network), np.zeros((12, 2))
    points, _, factors = ascend(likelihood, rows, starts)
    places, beyond, there, _, promised = cross_kinks(likelihood, rows, points, factors, 2)
    assert places.tolist() == np.repeat(np.arange(12), 2).tolist()
    flips = np.sum(
        network.patterns(beyond) != np.repeat(network.patterns(points), 2, axis=0), axis=1
    )
    assert np.all(flips >= 1)
    assert np.mean(flips == 1) > 0.5
    _, _, expected = likelihood.linearize(np.repeat(rows, 2, axis=0), beyond)
    np.testing.assert_allclose(there, expected)
    assert np.all((promised >= 0.0) | np.isneginf(promised))


def test_other_layers_are_explored_too() -> None:
    layers = [Dense(6), MaxOut(2), Dense(3)]
    exact, explored = models(Network.from_blueprints(layers, 2, np.random.default_rng(1)))
    rows = draw(exact.network, 5)
    visits = explored.visitor.visit(rows)
    differences = visits.log_density - exact.log_density(rows, Workers())
    assert np.all(np.abs(differences) < TIMES_ERROR * visits.log_density_error)


def test_networks_without_kinks_have_the_density_of_a_gaussian() -> None:
    slopes = np.random.default_rng(0).normal(size=(3, 4))
    relu = Activation.from_name("relu", 0.0)
    linear = Network.from_arrays([slopes], [np.zeros(3)], relu)
    dead = Network.from_arrays([0.0 * slopes, np.eye(3)], [np.ones(3), np.zeros(3)], relu)
    for network, mean, covariance in (
        (linear, np.zeros(3), slopes @ slopes.T + VARIANCE * np.eye(3)),
        (dead, np.ones(3), VARIANCE * np.eye(3)),
    ):
        rows = draw(network, 3)
        explorer = Explorer.prepare(network, Noise.from_covariance(VARIANCE, 3), 0.01, 0)
        visits = explorer.visit(rows)
        expected = multivariate_normal(mean, covariance).logpdf(rows)
        np.testing.assert_allclose(visits.log_density, expected, atol=0.05)
        assert visits.start.tolist() == [0, 1, 2, 3]


def test_a_fit_never_decreases_on_its_points_and_ends_with_others() -> None:
    rng = np.random.default_rng(0)
    samples = np.abs(rng.normal(size=(60, 4))) @ rng.normal(size=(4, 5))
    samples += 0.3 * rng.normal(size=samples.shape)
    samples[0, 0] = np.nan
    model = PiecewiseAffineDGN(
        4, hidden_layer_sizes=(3,), init_params="pca", max_iter=3, tol=0.0, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        model.fit(samples)
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)
    assert 0.0 < model.lower_bound_error_ < 0.005
    error = TIMES_ERROR * 2.0 * model.lower_bound_error_
    assert model.lower_bound_ == pytest.approx(model.lower_bounds_[-1], abs=error)
    assert model.lower_bound_ == pytest.approx(model.score(samples), abs=error)
    assert model.sample(3, random_state=0)[0].shape == (3, 5)
    assert np.isfinite(model.impute(samples)).all()
    np.testing.assert_allclose(model.predict_proba(samples[:5]).sum(axis=1), 1.0)
