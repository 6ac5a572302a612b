"""Weighted sums of exact densities, against sums written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from skdgn import DGNEnsemble, PiecewiseAffineDGN
from skdgn._posterior.weighted_sums import WeightedSum, draw_labels
from skdgn._runtime.workers import MOST_SAMPLES, Workers
from tests.networks import random_network

WORKERS = Workers()
WEIGHTS = np.array([0.5, 0.2, 0.3])


def make_members(n_features=3, n_members=3):
    covariances = [0.1, np.arange(1.0, n_features + 1) / 10, 0.2 * np.eye(n_features) + 0.1]
    members = []
    for k in range(n_members):
        network = random_network(1 + k % 2, (4,), n_features=n_features, seed=k)
        members.append(
            PiecewiseAffineDGN.from_network(
                network.coefs,
                network.intercepts,
                covariances[k % 3],
                activation=network.activations[0].name,
            )
        )
    return members


def make_sum(members, weights=WEIGHTS):
    return WeightedSum(weights, [member._fitted_model() for member in members])


def make_rows(members, n_rows=60, missing=0.3):
    generator = np.random.default_rng(0)
    rows = np.concatenate([member.sample(n_rows // 3, random_state=1)[0] for member in members])
    rows[generator.random(rows.shape) < missing] = np.nan
    rows[0] = np.nan
    return rows


def terms(members, rows, weights=WEIGHTS):
    """log w_k + log p_k(x), by the members' public methods."""
    columns = [member.score_samples(rows) for member in members]
    return np.stack(columns, axis=1) + np.log(weights)


@pytest.fixture(scope="module")
def members():
    return make_members()


@pytest.fixture(scope="module")
def rows(members):
    return make_rows(members)


def test_log_density_and_responsibilities(members, rows):
    total, expected = make_sum(members), terms(members, rows)
    np.testing.assert_allclose(
        total.log_density(rows, WORKERS), logsumexp(expected, axis=1), rtol=1e-13, atol=1e-13
    )
    shares = total.responsibilities(rows, WORKERS)
    np.testing.assert_allclose(shares, softmax(expected, axis=1), rtol=1e-12)
    # Nothing observed: nothing learned.
    np.testing.assert_allclose(shares[0], WEIGHTS, rtol=1e-14)
    assert total.log_density(rows[:1], WORKERS) == pytest.approx(0.0, abs=1e-15)


def test_far_samples_have_log_densities_and_responsibilities(members):
    total = make_sum(members)
    far = np.array([[1e3, 0.0, 0.0], [-1e8, 1e8, 0.0], [1e100, np.nan, -1e120]])
    expected = terms(members, far)
    assert np.all(np.exp(expected) == 0.0)  # all densities underflow
    np.testing.assert_allclose(total.log_density(far, WORKERS), expected.max(axis=1), rtol=1e-14)
    shares = total.responsibilities(far, WORKERS)
    np.testing.assert_allclose(shares, softmax(expected, axis=1))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-14)


def test_where_squares_overflow_nothing_is_known(members):
    total = make_sum(members)
    overflowing = np.array([[1e200, 1e200, 1e200]])
    assert total.log_density(overflowing, WORKERS) == -np.inf
    assert np.isnan(total.responsibilities(overflowing, WORKERS)).all()
    features = np.array([True, False, False])
    assert np.isnan(total.conditional_log_density(overflowing, features, WORKERS)).all()


def test_members_without_weight_do_not_count(members, rows):
    weights = np.array([0.6, 0.0, 0.4])
    total, others = make_sum(members, weights), make_sum(members[::2], weights[::2])
    np.testing.assert_array_equal(
        total.log_density(rows, WORKERS), others.log_density(rows, WORKERS)
    )
    assert np.all(total.responsibilities(rows, WORKERS)[:, 1] == 0.0)
    np.testing.assert_array_equal(total.impute(rows, WORKERS), others.impute(rows, WORKERS))
    _, labels = total.draw(1000, np.random.default_rng(0))
    assert set(labels) == {0, 2}


def test_sums_of_sums_are_sums(members, rows):
    inner = make_sum(members[:2], np.array([0.25, 0.75]))
    nested = WeightedSum(np.array([0.8, 0.2]), [inner, members[2]._fitted_model()])
    flat = make_sum(members, np.array([0.2, 0.6, 0.2]))
    np.testing.assert_allclose(
        nested.log_density(rows, WORKERS), flat.log_density(rows, WORKERS), rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(
        nested.impute(rows, WORKERS), flat.impute(rows, WORKERS), rtol=1e-11, atol=1e-13
    )


@pytest.mark.parametrize("n_features", [1, 2])
def test_the_density_integrates_to_one(n_features):
    total = make_sum(make_members(n_features))
    # Of densities blurred by noise of deviation s, the error is about exp(-2 (pi s / step) ** 2).
    nodes = np.linspace(-25.0, 25.0, 201)
    grid = np.stack(np.meshgrid(*[nodes] * n_features), axis=-1).reshape(-1, n_features)
    mass = np.exp(total.log_density(grid, WORKERS)).sum() * (nodes[1] - nodes[0]) ** n_features
    assert mass == pytest.approx(1.0, abs=1e-10)


def test_conditional_densities_are_ratios_and_integrate_to_one(members, rows):
    total = make_sum(members)
    features = np.array([False, True, False])
    conditions = np.where(features, np.nan, rows)
    expected = logsumexp(terms(members, rows), axis=1) - logsumexp(
        terms(members, conditions), axis=1
    )
    np.testing.assert_allclose(
        total.conditional_log_density(rows, features, WORKERS), expected, rtol=1e-11, atol=1e-12
    )
    nodes = np.linspace(-25.0, 25.0, 2001)
    table = np.tile([0.3, 0.0, -0.2], (nodes.size, 1))
    table[:, 1] = nodes
    density = np.exp(total.conditional_log_density(table, features, WORKERS))
    assert density.sum() * (nodes[1] - nodes[0]) == pytest.approx(1.0, abs=1e-10)


def test_distributions_of_single_features_by_quadrature(members):
    ensemble = DGNEnsemble.from_estimators(members, WEIGHTS)
    nodes = np.linspace(-25.0, 25.0, 2001)
    row = np.array([[0.5, 1.2, np.nan]])
    table = np.tile([0.5, np.nan, np.nan], (nodes.size, 1))
    table[:, 1] = nodes
    shares = softmax(ensemble.score_samples(table))
    mean = ensemble.conditional_mean(row, given=0)[0, 0]
    assert mean == pytest.approx(shares @ nodes, rel=1e-9)
    middle = 0.5 * (nodes[1:] + nodes[:-1])
    for place in (900, 1000, 1040, 1100):
        row[0, 1] = middle[place]
        below = ensemble.conditional_cdf(row, given=0)[0, 0]
        assert below == pytest.approx(shares[: place + 1].sum(), abs=1e-4)  # midpoints
    quantile = ensemble.conditional_quantiles(row, given=0, q=[0.1, 0.9])[:, 0, 0]
    for value, level in zip(quantile, (0.1, 0.9), strict=True):
        row[0, 1] = value
        assert ensemble.conditional_cdf(row, given=0)[0, 0] == pytest.approx(level, abs=1e-11)
    # The responsibility-weighted sum of what the members say.
    row = np.array([[0.5, 1.2, -0.3], [3.0, np.nan, 0.1]])
    given = np.where([True, False, True], row, np.nan)
    weights = ensemble.predict_proba(given)
    of_members = [member.conditional_cdf(row[:1], given=[0, 2])[0, 0] for member in members]
    below = ensemble.conditional_cdf(row, given=[0, 2])
    assert below[0, 0] == pytest.approx(weights[0] @ of_members, abs=1e-12)
    assert np.isnan(below[1, 0])


def test_imputed_means_by_quadrature(members):
    total = make_sum(members)
    nodes = np.linspace(-25.0, 25.0, 2001)
    for row in ([0.5, np.nan, -0.3], [np.nan, 2.0, np.nan]):
        given = np.array([row])
        imputed = total.impute(given, WORKERS)[0][0]
        for d in np.flatnonzero(np.isnan(row)):
            table = np.tile(row, (nodes.size, 1))
            table[:, d] = nodes
            log_joint = total.log_density(table, WORKERS)
            mean = softmax(log_joint) @ nodes
            assert imputed[d] == pytest.approx(mean, rel=1e-10, abs=1e-12)
        np.testing.assert_array_equal(imputed[~np.isnan(row)], given[0][~np.isnan(row)])


def test_imputed_draws_follow_the_conditional_distribution(members):
    total = make_sum(members)
    rows = np.array([[0.5, np.nan, -0.3], [np.nan, 2.0, np.nan], [1.0, 1.0, 1.0]])
    n_draws = 20_000
    draws = total.draw_missing(rows, n_draws, np.random.default_rng(0), WORKERS)
    assert draws.shape == (n_draws, 3, 3)
    observed = ~np.isnan(rows)
    assert np.all(draws[:, observed] == rows[observed])
    means, _ = total.impute(rows, WORKERS)
    errors = draws.std(axis=0) / np.sqrt(n_draws)
    np.testing.assert_array_less(
        np.abs(draws.mean(axis=0) - means)[~observed], 4 * errors[~observed]
    )
    # The whole distribution, by its distribution function at the quartiles of the draws.
    nodes = np.linspace(-25.0, 25.0, 4001)
    table = np.tile(rows[0], (nodes.size, 1))
    table[:, 1] = nodes
    cumulative = np.cumsum(softmax(total.log_density(table, WORKERS)))
    for level in (0.25, 0.5, 0.75):
        quantile = np.quantile(draws[:, 0, 1], level)
        reached = np.interp(quantile, nodes, cumulative)
        assert abs(reached - level) < 4 * np.sqrt(level * (1 - level) / n_draws) + 1e-3


def test_draws_choose_members_by_responsibility():
    # Two members far apart in the second feature, told apart by the first.
    low, high = (
        PiecewiseAffineDGN.from_network(
            [[[0.0], [0.0]]], [[first, second]], 0.01, activation="relu"
        )
        for first, second in [(0.0, -10.0), (0.1, 10.0)]
    )
    total = make_sum([low, high], np.array([0.3, 0.7]))
    rows = np.array([[0.05, np.nan], [np.nan, np.nan], [-0.1, np.nan]])
    draws = total.draw_missing(rows, 4000, np.random.default_rng(3), WORKERS)
    shares = (draws[:, :, 1] > 0.0).mean(axis=0)
    expected = total.responsibilities(rows, WORKERS)[:, 1]
    np.testing.assert_allclose(expected[:2], 0.7, rtol=1e-12)
    assert np.all(np.abs(shares - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000))


def test_samples_and_labels(members):
    total = make_sum(members)
    rows, labels = total.draw(30_000, np.random.RandomState(0))
    frequencies = np.bincount(labels, minlength=3) / len(labels)
    assert np.all(
        np.abs(frequencies - WEIGHTS) < 4 * np.sqrt(WEIGHTS * (1 - WEIGHTS) / len(labels))
    )
    for k, member in enumerate(members):
        own, _ = member.sample(30_000, random_state=1)
        of_member = rows[labels == k]
        error = np.hypot(of_member.std(axis=0) / np.sqrt(len(of_member)), own.std(axis=0) / 173.0)
        assert np.all(np.abs(of_member.mean(axis=0) - own.mean(axis=0)) < 4 * error)
    assert not np.array_equal(labels, np.sort(labels))  # independent, not in blocks


def test_labels_never_are_impossible():
    class Extremes:
        def uniform(self, size):
            return np.array([0.0, np.nextafter(1.0, 0.0)])

    shares = np.array([[0.0, 0.5, 0.5, 0.0]] * 2)
    np.testing.assert_array_equal(draw_labels(shares, Extremes()), [1, 2])


def test_results_do_not_depend_on_the_memory_or_the_workers(members, rows):
    total = make_sum(members)
    many = np.tile(rows, (-(-3 * MOST_SAMPLES // len(rows)), 1))
    frugal = Workers(2, 1e5)  # less than a column of the table
    features = np.array([True, False, False])
    for compute in (
        total.log_density,
        total.responsibilities,
        total.impute,
        lambda table, workers: total.conditional_log_density(table, features, workers),
    ):
        np.testing.assert_allclose(
            compute(many, frugal), compute(many, WORKERS), rtol=1e-13, atol=1e-14
        )
