"""Sizes that are left to the fit."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._fit.sizes import size_choice, size_path
from skdgn.datasets import make_wave
from tests.mixtures import make_clusters

pytestmark = pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning")

LINEAR = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full")


def network_of(**parameters) -> PiecewiseAffineDGN:
    defaults = {"hidden_layer_sizes": "auto", "tol": 1e-2, "random_state": 0}
    return PiecewiseAffineDGN(**(defaults | parameters))


def mixture_of(*arguments, **parameters) -> DGNMixture:
    return DGNMixture(*arguments, **({"n_networks": "auto", "random_state": 0} | parameters))


@pytest.fixture(scope="module")
def wave() -> np.ndarray:
    return make_wave(300, random_state=0)


@pytest.fixture(scope="module")
def bent(wave) -> PiecewiseAffineDGN:
    return network_of(criterion="bic").fit(wave)


@pytest.fixture(scope="module")
def blobs() -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    return np.repeat(centers, 60, axis=0) + rng.normal(size=(180, 2))


def test_a_curve_gets_as_many_units_as_it_needs(bent, wave):
    held_out = make_wave(1000, random_state=1)
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0).fit(wave)
    assert bent.score(held_out) > linear.score(held_out) + 0.5
    fixed = [PiecewiseAffineDGN(hidden_layer_sizes=k, tol=1e-2, random_state=0) for k in (4, 8, 16)]
    assert bent.bic(wave) < min(model.fit(wave).bic(wave) for model in fixed) + 20.0


@pytest.mark.parametrize("seed", [701, 702])
def test_one_network_that_grows_takes_another_way_where_the_first_was_wrong(seed):
    # Units added to what there is keep to the way that four units take, 0.4 nats lower.
    X, _ = make_moons(1000, noise=0.1, random_state=seed)
    held_out, _ = make_moons(1000, noise=0.1, random_state=10_000 + seed)
    grown = network_of(criterion="bic", tol=1e-4).fit(X)
    assert grown.score(held_out) > PiecewiseAffineDGN(random_state=0).fit(X).score(held_out) - 0.05


def test_the_path_is_a_table_and_ends_with_its_best(bent, wave):
    table = pd.DataFrame(bent.path_)
    assert list(table.columns) == [
        "part",
        "n_networks",
        "n_components",
        "hidden_layer_sizes",
        "n_hidden_units",
        "covariance_type",
        "n_parameters",
        "log_likelihood",
        "criterion",
        "seconds",
    ]
    assert (table["n_networks"] == 1).all()
    assert table["n_hidden_units"][0] == 0
    assert (np.diff(table["part"]) >= 0).all()
    assert set(table["part"]) == {0, 1}  # what is linear, and what grows from there
    expected = -2.0 * 300 * table["log_likelihood"] + np.log(300) * table["n_parameters"]
    np.testing.assert_allclose(table["criterion"], expected)
    best = table.loc[table["criterion"].idxmin()]
    assert best["hidden_layer_sizes"] == [(len(bent.intercepts_[0]),)]
    assert best["n_parameters"] == bent.n_parameters_
    # The fit goes on from there.
    assert bent.lower_bound_ >= best["log_likelihood"]
    assert bent.bic(wave) <= best["criterion"] + 1e-6
    assert np.all(np.diff(bent.lower_bounds_) >= 0.0)
    assert bent.converged_


@pytest.mark.parametrize("criterion", ["bic", "aic", "validation"])
def test_as_many_networks_as_clusters(blobs, criterion):
    mixture = mixture_of(LINEAR, criterion=criterion).fit(blobs)
    assert len(mixture.networks_) >= 3
    if criterion == "bic":
        assert len(mixture.networks_) == 3
        np.testing.assert_allclose(mixture.weights_, 1.0 / 3.0, atol=0.02)
        flat = clone(mixture).set_params(noise_prior_weight=0.0, weight_concentration_prior=1.0)
        gaussians = GaussianMixture(3, tol=1e-6, random_state=0).fit(blobs)
        assert flat.fit(blobs).bic(blobs) == pytest.approx(gaussians.bic(blobs), abs=0.5)
    assert not np.any(mixture.path_["n_hidden_units"])


def test_everything_is_open(blobs):
    rng = np.random.default_rng(1)
    angles = rng.uniform(0.0, 3.0, size=200)
    arc = 6.0 * np.column_stack([np.cos(angles), np.sin(angles)]) + [20.0, 0.0]
    X = np.concatenate([blobs, arc + 0.2 * rng.normal(size=(200, 2))])
    mixture = mixture_of(criterion="bic").fit(X)
    path = mixture.path_
    assert set(path["covariance_type"]) == {"full", "diag"}
    assert path["n_networks"].max() >= 8
    assert path["n_hidden_units"].max() >= 4
    sizes = [network.hidden_layer_sizes for network in mixture.networks_]
    assert sizes == path["hidden_layer_sizes"][int(path["criterion"].argmin())]
    for network in mixture.networks_:
        assert network.covariance_type in ("full", "diag")
        assert network.n_components == 1
    by_hand = DGNMixture(LINEAR, n_networks=8, random_state=0).fit(X)
    assert mixture.bic(X) < by_hand.bic(X)


def test_networks_of_a_given_number_and_of_given_sizes(wave):
    fixed = mixture_of(network_of(), n_networks=2, criterion="bic").fit(wave)
    assert set(fixed.path_["n_networks"]) == {2}
    assert fixed.path_["n_hidden_units"].max() > 0
    given = mixture_of(PiecewiseAffineDGN(hidden_layer_sizes=(2,)), criterion="bic").fit(wave)
    assert {width for own in given.path_["hidden_layer_sizes"] for width in own} == {(2,)}


def test_latent_dimensions_are_open(wave):
    model = network_of(n_components="auto", criterion="bic", weight_prior="gaussian").fit(wave)
    assert set(model.path_["n_components"]) == {1, 2}
    assert model.transform(wave).shape == (300, 1)
    assert list(model.get_feature_names_out()) == ["piecewiseaffinedgn0"]


def test_sizes_of_a_sequence_are_tried(wave):
    model = network_of(n_components=(1, 3), covariance_type=["diag", "factor"], n_factors=1)
    model.set_params(criterion="bic", hidden_layer_sizes=(4,), max_iter=3, tol=1.0).fit(wave[:100])
    tried = set(zip(model.path_["n_components"], model.path_["covariance_type"], strict=True))
    assert tried == {(1, "diag"), (1, "factor"), (3, "diag"), (3, "factor")}


@pytest.mark.parametrize("criterion", ["validation", "bic"])
def test_the_best_of_the_path_are_averaged(blobs, criterion):
    single, averaged = (
        mixture_of(LINEAR, criterion=criterion, n_averaged=number).fit(blobs) for number in (1, 3)
    )
    assert averaged.weights_.sum() == pytest.approx(1.0, abs=1e-12)
    if criterion == "bic":
        # Shares of all of the path; of the three largest, those of a thousandth and more are left.
        order = np.argsort(averaged.path_["criterion"], kind="stable")
        criteria = averaged.path_["criterion"][order]
        shares = np.exp(0.5 * (criteria[0] - criteria))
        n_left = min(3, int((shares / shares.sum() >= 1e-3).sum()))
        sizes = averaged.path_["n_networks"][order][:n_left]
        assert len(averaged.networks_) == sizes.sum()
        found = np.add.reduceat(averaged.weights_, np.cumsum(sizes) - sizes)
        np.testing.assert_allclose(found, shares[:n_left] / shares[:n_left].sum(), rtol=1e-6)
        # The first networks are those of the single fit, with its share of the average.
        np.testing.assert_allclose(averaged.weights_[: sizes[0]] / found[0], single.weights_)
    else:
        assert len(averaged.networks_) > len(single.networks_)
    parts = [network.score_samples(blobs) for network in averaged.networks_]
    density = averaged.weights_ @ np.exp(parts)
    np.testing.assert_allclose(averaged.score_samples(blobs), np.log(density), rtol=1e-10)
    # More samples may come.
    assert averaged.partial_fit(blobs).n_iter_ == single.n_iter_ + 1 or criterion == "bic"


def test_mixtures_with_noise_of_several_kinds_are_averaged(wave):
    straight = clone(LINEAR).set_params(covariance_type="auto")
    mixture = mixture_of(straight).fit(wave)
    kinds = [network.covariance_type for network in mixture.networks_]
    assert set(kinds) == {"full", "diag"}
    shapes = {"full": (2, 2), "diag": (2,)}
    for network, kind in zip(mixture.networks_, kinds, strict=True):
        assert network.noise_covariance_.shape == shapes[kind]
    density = mixture.weights_ @ np.exp([own.score_samples(wave) for own in mixture.networks_])
    np.testing.assert_allclose(mixture.score_samples(wave), np.log(density), rtol=1e-10)
    # It predicts better than what either kind alone would have become.
    held_out = make_wave(5000, random_state=1)
    alone = [
        mixture_of(clone(LINEAR).set_params(covariance_type=kind)).fit(wave).score(held_out)
        for kind in shapes
    ]
    assert mixture.score(held_out) > max(alone)
    # More samples may come, and another fit.
    before = mixture.score(wave)
    assert mixture.partial_fit(wave).score(wave) > before - 0.05
    assert mixture.set_params(warm_start=True).fit(wave).score(wave) > before - 0.05


def test_factors_of_an_average_are_zero_where_the_noise_has_none():
    X = make_clusters(100, n_features=4, n_clusters=2)
    straight = PiecewiseAffineDGN(
        hidden_layer_sizes=(), covariance_type=("diag", "factor"), n_factors=1
    )
    mixture = mixture_of(straight).fit(X)
    has_factors = np.array([own.covariance_type == "factor" for own in mixture.networks_])
    assert set(has_factors) == {True, False}
    factors = mixture.transform_factors(X)
    assert factors.shape == (len(X), 1)
    labels = mixture.predict(X)
    assert not factors[~has_factors[labels]].any()
    for number in np.flatnonzero(has_factors):
        own = labels == number
        expected = mixture.networks_[number].transform_factors(X)[own]
        np.testing.assert_allclose(factors[own], expected, atol=1e-12)
    assert factors.any()


def test_the_same_seed_gives_the_same_path(bent, wave):
    again = clone(bent).fit(wave)
    for name in ("n_parameters", "criterion"):
        np.testing.assert_array_equal(again.path_[name], bent.path_[name])
    np.testing.assert_array_equal(again.score_samples(wave), bent.score_samples(wave))
    restored = pickle.loads(pickle.dumps(bent))
    np.testing.assert_array_equal(restored.score_samples(wave), bent.score_samples(wave))
    np.testing.assert_array_equal(restored.path_["criterion"], bent.path_["criterion"])


def test_the_units_of_the_samples_do_not_matter(bent, wave):
    factors = np.array([1000.0, 1e-3])
    scaled = clone(bent).fit(wave * factors)
    volume = np.log(factors).sum()
    np.testing.assert_allclose(
        scaled.path_["log_likelihood"] + volume, bent.path_["log_likelihood"], atol=1e-6
    )
    validated = [clone(bent).set_params(criterion="validation") for _ in range(2)]
    first, second = (
        model.fit(X).path_["criterion"]
        for model, X in zip(validated, (wave, wave * factors), strict=True)
    )
    np.testing.assert_allclose(second - volume, first, atol=1e-6)


def test_missing_values_and_weights():
    X = make_clusters(100, n_features=3, n_clusters=2)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    X = X[~np.isnan(X).all(axis=1)]
    weights = np.ones(len(X))
    weights[:10] = 2.0
    weighted = mixture_of(LINEAR, criterion="bic").fit(X, sample_weight=weights)
    repeated = mixture_of(LINEAR, criterion="bic").fit(np.concatenate([X, X[:10]]))
    np.testing.assert_allclose(
        weighted.path_["criterion"], repeated.path_["criterion"], rtol=1e-6, atol=1e-4
    )
    assert np.isfinite(weighted.score(X))


def test_large_tables_are_chosen_on_a_part(monkeypatch, wave):
    monkeypatch.setattr(size_choice, "_MOST_SAMPLES", 100)
    model = network_of(criterion="bic").fit(wave)
    n_parameters, means = model.path_["n_parameters"], model.path_["log_likelihood"]
    expected = -200.0 * means + np.log(100) * n_parameters
    np.testing.assert_allclose(model.path_["criterion"], expected)
    assert model.converged_


def test_an_interrupt_keeps_the_best_so_far(monkeypatch, wave):
    # Before anything was tried, it leaves the estimator as it was.
    original, n_calls = size_path.climb_briefly, 0

    def climb(*arguments):
        nonlocal n_calls
        n_calls += 1
        if n_calls > n_allowed:
            raise KeyboardInterrupt
        return original(*arguments)

    for module in (size_path, size_choice):
        monkeypatch.setattr(module, "climb_briefly", climb)
    n_allowed, model = 0, network_of(criterion="bic")
    with pytest.raises(KeyboardInterrupt):
        model.fit(wave)
    assert not hasattr(model, "coefs_")
    n_calls, n_allowed = 0, 2
    with pytest.raises(KeyboardInterrupt, match="the best parameters so far were kept"):
        model.fit(wave)
    assert len(model.path_["criterion"]) == 2
    assert model.n_parameters_ == model.path_["n_parameters"][model.path_["criterion"].argmin()]
    assert not model.converged_


def test_a_warm_start_follows_the_path_from_the_last_fit(bent, wave):
    model = pickle.loads(pickle.dumps(bent)).set_params(warm_start=True)
    n_units = len(bent.intercepts_[0])
    again = model.fit(wave)
    assert again.path_["n_hidden_units"][0] == n_units
    assert again.bic(wave) <= bent.bic(wave) + 1e-6
    # Sizes that are given leave no path.
    fixed = again.set_params(hidden_layer_sizes=len(again.intercepts_[0])).fit(wave)
    assert not hasattr(fixed, "path_")


def test_chunks_keep_the_sizes_of_the_first(wave):
    model = network_of(criterion="bic").partial_fit(wave[:200])
    sizes = [coef.shape for coef in model.coefs_]
    model.partial_fit(wave[200:])
    assert [coef.shape for coef in model.coefs_] == sizes
    mixture = mixture_of(LINEAR, criterion="bic").partial_fit(wave[:200])
    n_networks = len(mixture.networks_)
    assert len(mixture.partial_fit(wave[200:]).networks_) == n_networks


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "abs"}, "needs the activation of the last fit"),
        ({"n_components": 2}, "needs the n_components of the last fit, 1, got 2"),
        ({"covariance_type": "full"}, "needs the covariance_type of the last fit, diag"),
    ],
)
def test_what_does_not_fit_the_last_fit_is_refused(bent, wave, change, message):
    model = pickle.loads(pickle.dumps(bent)).set_params(warm_start=True, **change)
    with pytest.raises(ValueError, match=message):
        model.fit(wave)


def test_two_hidden_layers_are_not_on_the_path(wave):
    deep = PiecewiseAffineDGN(hidden_layer_sizes=(2, 2), max_iter=500, tol=1e-2, random_state=0)
    deep.fit(wave).set_params(warm_start=True, hidden_layer_sizes="auto")
    with pytest.raises(ValueError, match="needs the hidden_layer_sizes of the last fit"):
        deep.fit(wave)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (network_of(criterion="aicc"), "The 'criterion' parameter of"),
        (mixture_of(criterion=None), "The 'criterion' parameter of"),
        (mixture_of(n_networks="many"), "The 'n_networks' parameter of"),
        (network_of(n_components="many"), "The 'n_components' parameter of"),
        (network_of(covariance_type="any"), "The 'covariance_type' parameter of"),
        (network_of(n_components=(1, 0)), r"n_components must hold positive integers, got 0 in"),
        (network_of(n_components=[]), r"n_components must not be empty, got \[\]"),
        (
            network_of(covariance_type=("full", "round")),
            "covariance_type must hold some of .*round",
        ),
        (network_of(covariance_type=()), r"covariance_type must hold some of .* in \(\)"),
        (mixture_of(n_averaged=0), "The 'n_averaged' parameter of"),
        (
            mixture_of(LINEAR, n_networks=2, n_averaged=3),
            'n_averaged must be 1 or "auto" if no size is',
        ),
        (network_of(hidden_layer_sizes="any"), "The 'hidden_layer_sizes' parameter of"),
        (mixture_of(init_params=np.zeros(300)), "init_params must be one of .* to be chosen"),
        (mixture_of(init_params="best"), "init_params must be one of .* got 'best'"),
    ],
)
def test_errors(wave, estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(wave)


def test_of_few_different_samples_none_is_held_out(wave):
    few = np.repeat(wave[:8], 4, axis=0)
    validated, by_bic = (
        network_of(criterion=name, max_iter=500).fit(few) for name in ("validation", "bic")
    )
    np.testing.assert_array_equal(validated.path_["criterion"], by_bic.path_["criterion"])
    assert np.isfinite(network_of().fit(np.ones((5, 2))).score(np.ones((1, 2))))


def test_a_search_may_open_sizes(wave):
    grid = {"hidden_layer_sizes": [(), "auto"]}
    search = GridSearchCV(network_of(), grid, cv=2).fit(wave)
    assert search.best_params_ == {"hidden_layer_sizes": "auto"}


def test_a_person_sees_what_is_tried(wave, capsys):
    network_of(criterion="bic", covariance_type="auto", verbose=1).fit(wave)
    printed = capsys.readouterr().out
    number = r"-?\d+(\.\d+)?"
    for sizes in ("hidden units 0, full noise", "hidden units 4, full noise"):
        assert re.search(
            rf"^bic {number}, best {number}  {number} s, about \d+ s left  "
            rf"1 network, {sizes}, 1 latent$",
            printed,
            re.MULTILINE,
        )


def test_a_person_sees_which_of_the_averaged_is_fitted(blobs, capsys):
    mixture = mixture_of(LINEAR, criterion="validation", verbose=1).fit(blobs)
    printed = capsys.readouterr().out
    runs = set(re.findall(r"^run (\d)/(\d)  iteration", printed, re.MULTILINE))
    n_averaged = len(runs)  # those that do not count are left out
    assert 1 < n_averaged <= 8
    assert runs == {(str(k + 1), str(n_averaged)) for k in range(n_averaged)}
    assert len(mixture.networks_) > 3
