"""DGNMixture: what it contains, and what users may ask."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import skdgn._fit.em.steps
from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._fit.em.mixture import MixtureProblem
from tests.mixtures import FLAT_PRIORS, ROUNDING, make_clusters, short_mixture
from tests.reference.factor_analyzers import FactorAnalyzers

pytestmark = [
    pytest.mark.filterwarnings("ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning"),  # rounded tables
]


# What it contains


def test_full_noise_without_hidden_layers_is_a_gaussian_mixture():
    X = make_clusters(400, spread=1.5)
    # Not from anywhere: steps that are longer than EM's may end in another maximum then.  Both to
    # the last digits of the likelihood, which is flat around its maximum.
    labels = KMeans(3, n_init=1, random_state=0).fit(X).labels_
    groups = [X[labels == k] for k in range(3)]
    theirs = GaussianMixture(
        3,
        reg_covar=0.0,
        tol=1e-15,
        max_iter=5000,
        weights_init=[len(group) / len(X) for group in groups],
        means_init=[group.mean(axis=0) for group in groups],
        precisions_init=[np.linalg.inv(np.cov(group.T, bias=True)) for group in groups],
    ).fit(X)
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full", reg_covar=1e-12)
    ours = DGNMixture(linear, 3, init_params=labels, tol=1e-15, max_iter=5000, **FLAT_PRIORS).fit(X)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(ours.weights_, theirs.weights_, atol=1e-6)
    assert ours.n_parameters_ >= theirs._n_parameters()  # a latent variable that says nothing
    assert ours.bic(X) == pytest.approx(
        -2.0 * theirs.score_samples(X).sum() + ours.n_parameters_ * np.log(len(X))
    )


@pytest.mark.parametrize("n_components", [1, 2])
def test_diagonal_noise_without_hidden_layers_is_a_mixture_of_factor_analyzers(
    n_components, monkeypatch
):
    monkeypatch.setattr(skdgn._fit.em.steps, "_BEYOND", 1.0)  # the steps of EM, one by one
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


def make_tied_clusters() -> np.ndarray:
    rng = np.random.default_rng(0)
    centers, mixing = 4.0 * rng.normal(size=(3, 4)), 0.7 * rng.normal(size=(4, 4))
    return centers[rng.integers(3, size=150)] + rng.normal(size=(150, 4)) @ mixing.T


def test_tied_noise_without_hidden_layers_is_scikit_learns_tied_mixture():
    X = make_tied_clusters()
    network = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full", reg_covar=1e-12)
    ours = DGNMixture(
        network, 3, tied_noise=True, weight_concentration_prior=1.0, tol=1e-8, random_state=0
    ).fit(X)
    theirs = GaussianMixture(3, covariance_type="tied", tol=1e-10, max_iter=1000, random_state=0)
    assert ours.score(X) == pytest.approx(theirs.fit(X).score(X), abs=1e-6)
    assert not ours._has_prior()


@pytest.mark.parametrize("covariance_type", ["spherical", "diag", "full", "factor"])
def test_networks_can_share_their_noise(covariance_type):
    X = make_tied_clusters()
    network = PiecewiseAffineDGN(
        hidden_layer_sizes=(2,), covariance_type=covariance_type, n_factors=1
    )
    mixture = DGNMixture(network, 3, tied_noise=True, tol=1e-2, random_state=0).fit(X)
    X[::9, 1] = np.nan
    holed = clone(mixture).fit(X)
    for own in (mixture, holed):
        assert np.all(np.diff(own.lower_bounds_) >= 0.0)
        matrices = [network._fitted_model().noise.matrix for network in own.networks_]
        np.testing.assert_array_equal(matrices[0], matrices[1])
        np.testing.assert_array_equal(matrices[0], matrices[2])
    # Weights of three networks (a slope, two kinks, three coefficients and more), one noise.
    n_noise = {"spherical": 1, "diag": 4, "full": 10, "factor": 8}[covariance_type]
    n_weights = 2 * 2 + 3 * 4 - 2
    assert mixture.n_parameters_ == 2 + 3 * n_weights + n_noise
    mixture.partial_fit(X[:50])
    first, second, _ = (network._fitted_model().noise.matrix for network in mixture.networks_)
    np.testing.assert_array_equal(first, second)


def test_tied_noise_goes_on_from_noises_of_their_own():
    X = make_tied_clusters()
    network = PiecewiseAffineDGN(hidden_layer_sizes=(2,))
    mixture = DGNMixture(network, 3, tol=1e-2, refine=False, random_state=0).fit(X)
    mixture.set_params(tied_noise=True, warm_start=True).fit(X)
    variances = [network.noise_covariance_ for network in mixture.networks_]
    np.testing.assert_array_equal(variances[0], variances[1])


def test_noise_may_be_called_tied_as_in_scikit_learn():
    X = make_tied_clusters()
    network = PiecewiseAffineDGN(hidden_layer_sizes=(2,), covariance_type="tied", random_state=0)
    tied = DGNMixture(network, 2, tol=1e-2, random_state=0).fit(X)
    full = clone(network).set_params(covariance_type="full")
    same = DGNMixture(full, 2, tied_noise=True, tol=1e-2, random_state=0).fit(X)
    np.testing.assert_array_equal(tied.score_samples(X), same.score_samples(X))
    assert tied.n_parameters_ == same.n_parameters_
    np.testing.assert_array_equal(network.fit(X).score_samples(X), full.fit(X).score_samples(X))
    tied.set_params(warm_start=True, max_iter=1).fit(X).partial_fit(X[:20])


def test_tied_noise_is_refused_where_sizes_are_to_be_found():
    for mixture, got in (
        (DGNMixture(n_networks="auto", tied_noise=True), "got True"),
        (DGNMixture(PiecewiseAffineDGN(covariance_type="tied")), "covariance_type='tied'"),
    ):
        with pytest.raises(ValueError, match=rf"tied_noise must be False if sizes .* {got}"):
            mixture.fit(make_tied_clusters())


@pytest.mark.parametrize("weight", [1e-100, 1e-6, 1e12, 1e100])
def test_weights_of_any_size(weight: float) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    network = PiecewiseAffineDGN(hidden_layer_sizes=(2,), max_iter=4, tol=0.1, random_state=0)
    for model in (network, DGNMixture(network, 2, max_iter=4, tol=0.1, random_state=0)):
        assert np.isfinite(model.fit(rows, sample_weight=np.full(30, weight)).score(rows))
