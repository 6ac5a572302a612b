"""DGNMixture: what it contains, that its likelihood never decreases, and what users may ask."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._fit import mixture_fit as _mixture_fitting
from skdgn._fit.mixture_em import MixtureProblem, NetworkVisits, log_density_bounds, log_of
from skdgn._fit.mixture_starts import analyze_factors, split_covariance, write_linear_network
from skdgn._network.network import ACTIVATIONS, Activation
from skdgn._noise.floors import bound_below
from skdgn._posterior.model import Model
from skdgn._runtime.seeds import draw_seed
from skdgn._runtime.workers import Workers
from tests.reference.factor_analyzers import FactorAnalyzers

pytestmark = [
    pytest.mark.filterwarnings("ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning"),  # rounded tables
]
# The same sums in another order.
ROUNDING = 1e-9
FLAT_PRIORS = {"noise_prior_weight": 0.0, "weight_concentration_prior": 1.0}


def make_clusters(n_samples=150, n_features=3, n_clusters=3, seed=0, spread=4.0) -> np.ndarray:
    """Bent clusters, so that there is something for networks to do."""
    rng = np.random.default_rng(seed)
    members = rng.integers(n_clusters, size=n_samples)
    centers = spread * rng.normal(size=(n_clusters, n_features))
    directions = rng.normal(size=(2, n_clusters, n_features))
    latent = rng.normal(size=(n_samples, 1))
    curves = latent * directions[0, members] + (latent**2 - 1.0) * directions[1, members]
    return centers[members] + curves + 0.2 * rng.normal(size=(n_samples, n_features))


def short_mixture(n_networks=3, **parameters) -> DGNMixture:
    defaults = {"max_iter": 4, "refine": False, "random_state": 0}
    return DGNMixture(n_networks=n_networks, **(defaults | parameters))


@parametrize_with_checks([DGNMixture()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# What it contains


def test_full_noise_without_hidden_layers_is_a_gaussian_mixture():
    X = make_clusters(400, spread=1.5)
    labels = np.random.default_rng(1).integers(3, size=len(X))
    groups = [X[labels == k] for k in range(3)]
    theirs = GaussianMixture(
        3,
        reg_covar=0.0,
        tol=1e-13,
        max_iter=5000,
        weights_init=[len(group) / len(X) for group in groups],
        means_init=[group.mean(axis=0) for group in groups],
        precisions_init=[np.linalg.inv(np.cov(group.T, bias=True)) for group in groups],
    ).fit(X)
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full", reg_covar=1e-12)
    ours = DGNMixture(linear, 3, init_params=labels, tol=1e-13, max_iter=5000, **FLAT_PRIORS).fit(X)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(ours.weights_, theirs.weights_, atol=1e-6)
    assert ours.n_parameters_ >= theirs._n_parameters()  # a latent variable that says nothing
    assert ours.bic(X) == pytest.approx(
        -2.0 * theirs.score_samples(X).sum() + ours.n_parameters_ * np.log(len(X))
    )


@pytest.mark.parametrize("n_components", [1, 2])
def test_diagonal_noise_without_hidden_layers_is_a_mixture_of_factor_analyzers(n_components):
    X = make_clusters(200, n_features=5)
    linear = PiecewiseAffineDGN(n_components, hidden_layer_sizes=(), reg_covar=1e-10)
    ours = short_mixture(estimator=linear, max_iter=2, tol=0.0, warm_start=True, **FLAT_PRIORS)
    ours.fit(X)
    reference = FactorAnalyzers(
        ours.weights_,
        [network.intercepts_[-1] for network in ours.networks_],
        [network.coefs_[-1] for network in ours.networks_],
        [network.noise_covariance_ for network in ours.networks_],
    )
    assert reference.log_likelihood(X) == pytest.approx(ours.score(X), abs=1e-9)
    ours.set_params(max_iter=10).fit(X)
    for bound in ours.lower_bounds_:
        reference.iterate(X)
        assert reference.log_likelihood(X) == pytest.approx(bound, abs=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X), reference.responsibilities(X), atol=1e-5)


def test_one_network_is_that_network():
    X = make_clusters(80, n_clusters=1)
    mixture = short_mixture(1).fit(X)
    assert mixture.weights_.tolist() == [1.0]
    network = mixture.networks_[0]
    np.testing.assert_allclose(mixture.score_samples(X), network.score_samples(X), rtol=1e-12)
    np.testing.assert_allclose(mixture.transform(X), network.transform(X), rtol=1e-12)


# Its likelihood


@pytest.mark.parametrize("seed", range(200))
def test_random_fits_never_decrease(seed):
    rng = np.random.default_rng(seed)
    n_samples, n_features = int(rng.integers(12, 70)), int(rng.integers(1, 5))
    X = make_clusters(n_samples, n_features, seed=seed, spread=rng.choice([0.5, 4.0]))
    if seed % 4 == 1:
        X = np.round(X)  # ties
    if seed % 2:
        X[rng.random(X.shape) < 0.2] = np.nan
        X[: 2 * n_features] = np.nan_to_num(X[: 2 * n_features])
    estimator = PiecewiseAffineDGN(
        int(rng.integers(1, 3)),
        hidden_layer_sizes=[(), (1,), (3,), (2, 2)][rng.integers(4)],
        activation=ACTIVATIONS[rng.integers(3)],
        covariance_type=["spherical", "diag", "full"][rng.integers(3)],
        weight_prior=[None, None, "gaussian", "laplace", "uniform"][rng.integers(5)],
        prior_scale=3.0,
        m_step=["joint", "joint", "layerwise"][rng.integers(3)],
    )
    mixture = DGNMixture(
        estimator,
        int(rng.integers(1, 5)),
        init_params=["gaussian_mixture", "kmeans", "random"][rng.integers(3)],
        weight_concentration_prior=rng.choice([1.0, 2.0]),
        noise_prior_weight=rng.choice([0.0, 1.0]),
        refine=seed % 5 == 0,
        max_iter=6,
        tol=0.0,
        random_state=seed,
    )
    weights = rng.choice([0.0, 0.5, 1.0, 2.3], size=n_samples) if seed % 3 == 0 else None
    if weights is not None:
        weights[: 2 * n_features] = 1.0
    mixture.fit(X, sample_weight=weights)
    assert np.all(np.isfinite(mixture.lower_bounds_))
    assert np.all(np.diff(mixture.lower_bounds_) >= 0.0)
    assert np.all(np.isfinite(mixture.score_samples(X)))
    assert mixture.weights_.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(mixture.predict_proba(X).sum(axis=1), 1.0)
    has_prior = mixture.noise_prior_weight > 0.0 or mixture.weight_concentration_prior > 1.0
    if not has_prior and estimator.weight_prior is None:
        score = mixture.score(X, sample_weight=weights)
        assert mixture.lower_bound_ == pytest.approx(score, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("covariance_type", ["spherical", "diag", "full"])
@pytest.mark.parametrize("seed", range(5))
def test_never_below_the_gaussian_mixture_it_starts_from(covariance_type, seed):
    X = np.unique(make_clusters(200, 4, n_clusters=4, seed=seed, spread=2.0), axis=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    generator = np.random.default_rng(draw_seed(seed))
    gaussians = GaussianMixture(
        4,
        covariance_type=covariance_type,
        random_state=int(generator.integers(2**31 - 1)),
    ).fit(X)
    estimator = PiecewiseAffineDGN(hidden_layer_sizes=(4,), covariance_type=covariance_type)
    mixture = DGNMixture(
        estimator, 4, max_iter=1, refine=False, random_state=seed, **FLAT_PRIORS
    ).fit(X)
    assert mixture.score(X) >= gaussians.score(X) - 1e-9


def start_of(X, n_networks=3, weights=None, **parameters):
    """Where EM begins for a table: the problem, and the state."""
    caught = {}

    def catch(problem, settings, generator):
        caught["problem"] = problem
        caught["state"] = original(problem, settings, generator)
        return caught["state"]

    original = _mixture_fitting.start_mixture
    _mixture_fitting.start_mixture = catch
    try:
        short_mixture(n_networks, max_iter=1, **parameters).fit(X, sample_weight=weights)
    finally:
        _mixture_fitting.start_mixture = original
    return caught["problem"], caught["state"]


def shaken(model: Model, seed: int) -> Model:
    """Another network, not far away."""
    rng = np.random.default_rng(seed)
    network = replace(
        model.network,
        coefs=tuple(coef + 0.3 * rng.normal(size=coef.shape) for coef in model.network.coefs),
    )
    return Model.build(network, model.noise)


@pytest.mark.parametrize("n_missing", [0, 60])
def test_gains_of_the_networks_bound_the_gain_of_the_mixture(n_missing):
    X = make_clusters(spread=1.0)
    X.ravel()[np.random.default_rng(0).permutation(X.size)[:n_missing]] = np.nan
    problem, state = start_of(X)
    for seed in range(5):
        models = [shaken(model, seed) for model in state.models]
        models[seed % 3] = state.models[seed % 3]
        gains = problem.gains(state, models)
        assert gains[seed % 3] == 0.0
        after = problem.evaluate(state.weights, models)
        change = after.total_weight * (after.lower_bound - state.lower_bound)
        assert change >= gains.sum() - ROUNDING
        assert np.any(gains < 0.0)


def test_networks_that_are_passed_over_do_not_matter():
    X = make_clusters(300, spread=3.0)
    problem, state = start_of(X)
    visited = NetworkVisits(state.models, log_of(state.weights), problem.network.rows)
    every = np.stack(
        [
            np.log(weight) + model.log_density(problem.network.rows, Workers())
            for weight, model in zip(state.weights, state.models, strict=True)
        ],
        axis=1,
    )
    bounds = np.stack(
        [log_density_bounds(model.visitor, problem.network.rows) for model in state.models]
    )
    assert np.all(bounds.T + np.log(state.weights) >= every)
    assert np.isinf(visited.log_joint).any()
    np.testing.assert_allclose(visited.log_density, logsumexp(every, axis=1), rtol=1e-13)
    np.testing.assert_allclose(
        visited.responsibilities.T,
        np.exp(every - logsumexp(every, axis=1, keepdims=True)),
        atol=1e-13,
    )


# Starts


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("n_components", [1, 2])
@pytest.mark.parametrize("widths", [(), (1,), (2,), (5,), (4, 4), (3, 1), (2, 6, 4)])
def test_a_linear_map_is_written_as_a_network_exactly(activation, n_components, widths):
    rng = np.random.default_rng(0)
    slopes, mean = rng.normal(size=(3, n_components)), rng.normal(size=3)
    if widths:  # no more dimensions than the narrowest layer has units get through
        slopes[:, min(widths) :] = 0.0
    network = write_linear_network(slopes, mean, widths, Activation.from_name(activation, 0.1))
    assert network.hidden_layer_sizes == widths
    latent = rng.normal(size=(100, n_components))
    np.testing.assert_allclose(network.forward(latent), latent @ slopes.T + mean, atol=1e-13)


@pytest.mark.parametrize("n_components", [1, 3, 5])
def test_a_covariance_is_split_into_slopes_and_noise(n_components):
    rng = np.random.default_rng(n_components)
    root = rng.normal(size=(4, 4))
    floors = np.array([0.5, 1e-6, 1e-6, 1e-6])
    covariance = bound_below(root @ root.T, floors)
    slopes = split_covariance(covariance, n_components, floors)
    assert slopes.shape == (4, n_components)
    assert np.any(slopes)
    rest = (covariance - slopes @ slopes.T) / np.sqrt(np.outer(floors, floors))
    assert np.linalg.eigvalsh(rest)[0] >= 1.0 - 1e-8


@pytest.mark.parametrize("is_spherical", [True, False])
def test_factors_are_at_least_as_likely_as_none(is_spherical):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(5, 5)) * rng.lognormal(size=5)
        covariance, floors = root @ root.T, np.full(5, 1e-9)
        slopes, noise = analyze_factors(covariance, 2, is_spherical, floors)
        model = slopes @ slopes.T + noise * np.eye(5)
        plain = np.diag(
            np.full(5, np.trace(covariance) / 5) if is_spherical else covariance.diagonal()
        )
        with_factors, without = (
            -np.linalg.slogdet(matrix)[1] - np.trace(np.linalg.solve(matrix, covariance))
            for matrix in (model, plain)
        )
        assert with_factors >= without - ROUNDING


@pytest.mark.parametrize("init_params", ["kmeans", "random", "labels", "responsibilities"])
def test_other_starts(init_params):
    X = make_clusters(spread=3.0)
    labels = np.arange(len(X)) % 3
    start = {"labels": labels, "responsibilities": np.full((len(X), 3), 1.0 / 3.0)}
    mixture = short_mixture(init_params=start.get(init_params, init_params)).fit(X)
    assert np.all(np.diff(mixture.lower_bounds_) >= 0.0)
    assert np.all(np.isfinite(mixture.score_samples(X)))


def test_responsibilities_of_a_fit_are_where_it_was():
    X = make_clusters(spread=1.5)
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full")
    first = short_mixture(estimator=linear, max_iter=50, tol=1e-9, **FLAT_PRIORS).fit(X)
    shares = first.predict_proba(X)
    again = clone(first).set_params(init_params=shares, max_iter=1).fit(X)
    assert again.lower_bound_ == pytest.approx(first.lower_bound_, abs=1e-6)


def test_weights_and_missing_values_start_from_linear_networks():
    X = make_clusters(spread=3.0)
    X[::7, 1] = np.nan
    _, state = start_of(X, weights=np.linspace(0.5, 1.5, len(X)), **FLAT_PRIORS)
    _, clusters = start_of(
        X, weights=np.linspace(0.5, 1.5, len(X)), init_params="kmeans", **FLAT_PRIORS
    )
    assert state.lower_bound > clusters.lower_bound


# Small components


def test_a_network_that_nobody_needs():
    X = make_clusters(60, n_clusters=2)
    labels = np.arange(len(X)) % 2  # none of the third
    for concentration in (1.0, 2.0):
        mixture = short_mixture(
            init_params=labels, weight_concentration_prior=concentration, max_iter=20
        ).fit(X)
        assert np.all(np.isfinite(mixture.score_samples(X)))
        assert np.all(np.diff(mixture.lower_bounds_) >= 0.0)
    empty = short_mixture(init_params=labels, weight_concentration_prior=1.0).fit(X)
    assert empty.weights_[2] == 0.0
    assert np.all(empty.predict_proba(X)[:, 2] == 0.0)


def test_networks_do_not_shrink_onto_tied_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 0] = np.where(rng.random(200) < 0.82, 0.0, rng.exponential(size=200))
    X[:, 1] = np.round(X[:, 1])
    held_out = rng.normal(size=(100, 3))
    with pytest.warns(UserWarning, match="The noise of feature"):
        mixture = DGNMixture(n_networks=4, random_state=0).fit(X[:150])
    gaussians = GaussianMixture(4, random_state=0).fit(X[:150])
    # Exponential values: some surprise is due, but no more than to a Gaussian mixture.
    assert mixture.score(X[150:]) > gaussians.score(X[150:]) - 5.0
    assert mixture.score(held_out) > -1e4


def test_a_split_takes_the_place_of_a_merge():
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    members = np.repeat(np.arange(3), 60)
    X = centers[members] + rng.normal(size=(180, 2))
    # Two networks share the first cluster, one has the others.
    labels = np.where(members == 0, np.arange(180) % 2, 2)
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full")
    stuck = short_mixture(estimator=linear, init_params=labels, max_iter=100).fit(X)
    revived = clone(stuck).set_params(refine=True).fit(X)
    assert revived.lower_bound_ > stuck.lower_bound_ + 0.2
    assert len(set(zip(members, revived.predict(X), strict=True))) < 10
    np.testing.assert_allclose(np.sort(revived.weights_), 1.0 / 3.0, atol=0.05)
    assert np.all(np.diff(revived.lower_bounds_) >= 0.0)


# What users may ask


@pytest.fixture(scope="module")
def clusters() -> np.ndarray:
    return make_clusters(120, spread=3.0)


@pytest.fixture(scope="module")
def fitted(clusters) -> DGNMixture:
    return short_mixture().fit(clusters)


def test_reads_like_a_gaussian_mixture(fitted, clusters):
    shares = fitted.predict_proba(clusters)
    assert shares.shape == (120, 3)
    np.testing.assert_array_equal(fitted.predict(clusters), shares.argmax(axis=1))
    X, labels = fitted.sample(50, random_state=0)
    assert X.shape == (50, 3)
    assert set(labels) <= {0, 1, 2}
    members = np.stack([network.score_samples(clusters) for network in fitted.networks_], axis=1)
    expected = logsumexp(members + np.log(fitted.weights_), axis=1)
    np.testing.assert_allclose(fitted.score_samples(clusters), expected, rtol=1e-12)
    assert fitted.score(clusters) == pytest.approx(expected.mean())
    n_parameters = 2 + sum(network.n_parameters_ for network in fitted.networks_)
    assert fitted.n_parameters_ == n_parameters
    assert fitted.aic(clusters) == pytest.approx(-2.0 * expected.sum() + 2.0 * n_parameters)
    assert len(fitted.lower_bounds_) == fitted.n_iter_
    assert fitted.lower_bound_ == fitted.lower_bounds_[-1]


def test_latent_points_are_those_of_the_likeliest_network(fitted, clusters):
    latent, labels = fitted.transform(clusters), fitted.predict(clusters)
    for number, network in enumerate(fitted.networks_):
        mine = labels == number
        np.testing.assert_allclose(latent[mine], network.transform(clusters[mine]))
    assert list(fitted.get_feature_names_out()) == ["dgnmixture0"]


def test_missing_values_everywhere(fitted, clusters):
    holed = clusters.copy()
    holed[::3, 0] = np.nan
    holed[1] = np.nan
    assert fitted.score_samples(holed)[1] == pytest.approx(0.0, abs=1e-12)
    assert not np.isnan(fitted.impute(holed)).any()
    assert np.all(np.isfinite(fitted.conditional_score_samples(holed, given=[1])))
    assert np.all(np.isfinite(fitted.transform(holed)))


def test_a_weight_of_two_is_a_sample_twice(clusters):
    weights = 1.0 + (np.arange(len(clusters)) % 2)
    weighted = short_mixture().fit(clusters, sample_weight=weights)
    repeated = short_mixture().fit(np.repeat(clusters, weights.astype(int), axis=0))
    np.testing.assert_allclose(weighted.lower_bounds_, repeated.lower_bounds_, rtol=ROUNDING)


def test_order_and_workers_do_not_matter(fitted, clusters):
    shuffled = clusters[np.random.default_rng(0).permutation(len(clusters))]
    np.testing.assert_allclose(
        short_mixture().fit(shuffled).lower_bounds_, fitted.lower_bounds_, rtol=ROUNDING
    )
    with config_context(working_memory=0.4):  # several batches, still in memory
        parallel = short_mixture(n_jobs=2).fit(clusters)
    np.testing.assert_allclose(parallel.lower_bounds_, fitted.lower_bounds_, rtol=ROUNDING)


def test_tables_larger_than_memory(clusters):
    table = np.tile(clusters, (10, 1)) + np.random.default_rng(0).normal(size=(1200, 3))
    with config_context(working_memory=0.1):
        mixture = short_mixture(refine=True).fit(table)
        labels = mixture.predict(table)
        again = short_mixture(init_params=labels).fit(table)
    assert np.all(np.diff(mixture.lower_bounds_) >= 0.0)
    assert again.score(table) == pytest.approx(mixture.score(table), abs=0.3)


def test_warm_start_goes_on(clusters):
    mixture = short_mixture(warm_start=True, tol=0.0).fit(clusters)
    before = mixture.lower_bound_
    mixture.fit(clusters)
    assert mixture.lower_bounds_[0] >= before - ROUNDING
    with pytest.raises(ValueError, match="warm_start=True needs the n_networks of the last fit, 3"):
        mixture.set_params(n_networks=2).fit(clusters)
    assert len(mixture.networks_) == 3


def test_partial_fit_learns_from_chunks():
    # Every fifth is held out: another call would place the clusters elsewhere.
    *chunks, held_out = (make_clusters(250, seed=0)[i::5] for i in range(5))
    mixture = DGNMixture(n_networks=3, random_state=0, refine=False)
    first = mixture.partial_fit(chunks[0]).score(held_out)
    for _ in range(5):
        for chunk in chunks[1:]:
            chunk = chunk.copy()
            chunk[0, 0] = np.nan
            mixture.partial_fit(chunk, sample_weight=np.full(len(chunk), 1.5))
    assert mixture.score(held_out) > first
    assert mixture.n_iter_ > 15
    revived = pickle.loads(pickle.dumps(mixture)).partial_fit(chunks[0])
    assert np.isfinite(revived.lower_bound_)


def test_interrupted_fits_keep_the_best(clusters, monkeypatch):
    calls = []

    def evaluate(self, *arguments):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(self, *arguments)

    original = MixtureProblem.evaluate
    monkeypatch.setattr(MixtureProblem, "evaluate", evaluate)
    mixture = short_mixture(max_iter=50)
    with pytest.raises(KeyboardInterrupt):
        mixture.fit(clusters)
    monkeypatch.undo()
    assert mixture.n_iter_ == 2
    assert mixture.score(clusters) > short_mixture(max_iter=1).fit(clusters).lower_bounds_[0] - 1.0


def test_verbose_fits_say_how_they_go(clusters, capsys):
    short_mixture(verbose=2, max_iter=2).fit(clusters)
    output = capsys.readouterr().out
    assert output.count("log-posterior") == 2
    short_mixture(verbose=2, max_iter=1, **FLAT_PRIORS).fit(clusters)
    assert "log-likelihood" in capsys.readouterr().out


def test_a_fit_that_does_not_converge_warns(clusters):
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        short_mixture(max_iter=2, tol=0.0).fit(clusters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_networks": 0}, "The 'n_networks' parameter .* Got 0"),
        ({"n_networks": 2.5}, "The 'n_networks' parameter .* Got 2.5"),
        ({"n_networks": 200}, "n_networks must be at most the number of samples .* 120, got 200"),
        ({"estimator": GaussianMixture()}, "The 'estimator' parameter .*PiecewiseAffineDGN"),
        ({"estimator": PiecewiseAffineDGN}, "The 'estimator' parameter"),
        ({"estimator": PiecewiseAffineDGN(0)}, "The 'n_components' parameter"),
        (
            {"estimator": PiecewiseAffineDGN(hidden_layer_sizes=(0,))},
            "hidden_layer_sizes must hold positive integers",
        ),
        ({"init_params": "best"}, "init_params must be one of"),
        ({"init_params": np.zeros(7, int)}, r"init_params must be labels of shape \(120,\)"),
        ({"init_params": np.full(120, 3)}, "labels from 0 to 2, got 3"),
        ({"init_params": np.full((120, 3), 0.5)}, "add up to 1"),
        ({"init_params": np.full((120, 3), np.nan)}, "add up to 1"),
        ({"weight_concentration_prior": 0.5}, "weight_concentration_prior"),
        ({"noise_prior_weight": -1.0}, "noise_prior_weight"),
        ({"tol": -1.0}, "tol"),
    ],
)
def test_bad_parameters_are_named_and_nothing_is_lost(clusters, parameters, message):
    mixture = short_mixture().fit(clusters)
    before = mixture.score(clusters)
    mixture.set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        mixture.fit(clusters)
    assert mixture.score(clusters) == before


def test_bad_samples_are_named(clusters):
    holed = clusters.copy()
    holed[:, 1] = np.nan
    with pytest.raises(ValueError, match="in every column, got none in 1 of 3 columns"):
        short_mixture().fit(holed)
    with pytest.raises(ValueError, match="at most the number of samples of positive weight, 2"):
        short_mixture().fit(clusters, sample_weight=np.arange(120) < 2)


def test_the_order_of_the_columns_does_not_matter(fitted, clusters):
    order = [2, 0, 1]
    other = short_mixture().fit(clusters[:, order])
    np.testing.assert_allclose(other.lower_bounds_, fitted.lower_bounds_, rtol=1e-6)
    np.testing.assert_allclose(
        other.score_samples(clusters[:, order]), fitted.score_samples(clusters), rtol=1e-5
    )
