"""Averages of exact densities."""

from __future__ import annotations

import pickle
import signal
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from skdgn import (
    DensityDisplay,
    DGNEnsemble,
    DGNImputer,
    DGNMixture,
    DGNOutlierDetector,
    LatentPartitionDisplay,
    LikelihoodCurveDisplay,
    PiecewiseAffineDGN,
    PosteriorDisplay,
    TransformedDensity,
)
from skdgn._estimators.ensembles.members import default_members
from skdgn.datasets import make_wave

pytestmark = [
    pytest.mark.filterwarnings("ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning"),  # rounded tables
]


def small_network(width=3, **parameters):
    sizes = (width,) if width else ()
    defaults = {"hidden_layer_sizes": sizes, "init_params": "pca", "max_iter": 5}
    return PiecewiseAffineDGN(**(defaults | parameters))


def known_network(mean, names=None):
    model = PiecewiseAffineDGN.from_network(
        [np.ones((len(mean), 1))], [mean], 1.0, activation="relu"
    )
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    return model


@pytest.fixture(scope="module")
def wave() -> np.ndarray:
    return make_wave(60, random_state=0)


@pytest.fixture(scope="module")
def ensemble(wave) -> DGNEnsemble:
    """A plain average: no copies with wider noise."""
    return DGNEnsemble(small_network(), n_estimators=4, noise_scales=(1.0,), random_state=0).fit(
        wave
    )


@pytest.fixture(scope="module")
def widened(wave) -> DGNEnsemble:
    members = small_network(8, max_iter=20)
    return DGNEnsemble(members, n_estimators=4, random_state=0).fit(wave)


# --- the average


def test_it_is_the_average_of_its_members(ensemble, wave):
    rows = np.concatenate([wave, [[np.nan, 0.3], [0.1, np.nan], [np.nan, np.nan], [1e9, -1e9]]])
    terms = np.stack([member.score_samples(rows) for member in ensemble.estimators_], axis=1)
    expected = logsumexp(terms, axis=1) - np.log(4.0)
    np.testing.assert_allclose(ensemble.score_samples(rows), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(ensemble.predict_proba(rows), softmax(terms, axis=1), rtol=1e-11)
    np.testing.assert_array_equal(ensemble.predict(rows[:60]), terms[:60].argmax(axis=1))
    assert ensemble.score(wave) == pytest.approx(expected[:60].mean(), rel=1e-13)
    weights = np.arange(60.0)
    assert ensemble.score(wave, sample_weight=weights) == pytest.approx(
        np.average(expected[:60], weights=weights), rel=1e-13
    )
    # Averaging densities is never worse than averaging logs.
    assert np.all(expected >= terms.mean(axis=1))


def test_it_offers_what_a_density_offers(ensemble, wave):
    given = np.where(np.arange(2) == 1, np.nan, wave)
    conditional = ensemble.conditional_score_samples(wave, given=0)
    np.testing.assert_allclose(
        conditional, ensemble.score_samples(wave) - ensemble.score_samples(given), rtol=1e-11
    )
    members = [member.impute(given)[:, 1] for member in ensemble.estimators_]
    expected = (ensemble.predict_proba(given) * np.stack(members, axis=1)).sum(axis=1)
    np.testing.assert_allclose(ensemble.impute(given)[:, 1], expected, rtol=1e-12)
    draws = ensemble.impute(given, method="sample", n_draws=7, random_state=0)
    assert draws.shape == (7, 60, 2)
    np.testing.assert_array_equal(draws[:, :, 0], np.tile(wave[:, 0], (7, 1)))
    samples, labels = ensemble.sample(500, random_state=0)
    assert samples.shape == (500, 2)
    assert set(labels) == set(range(4))
    np.testing.assert_array_equal(ensemble.sample(500, random_state=0)[0], samples)
    assert not hasattr(ensemble, "bic")
    assert not hasattr(ensemble, "aic")


def test_frames_come_back_as_frames_and_names_reach_the_members(wave):
    frame = pd.DataFrame(wave, columns=["time", "height"])
    ensemble = DGNEnsemble(small_network(0), n_estimators=2, random_state=0).fit(frame)
    frame.iloc[3, 1] = np.nan
    assert list(ensemble.impute(frame).columns) == ["time", "height"]
    assert len(ensemble.impute(frame, method="sample", n_draws=2)) == 2
    by_name = ensemble.conditional_score_samples(frame, given="time")
    np.testing.assert_array_equal(by_name, ensemble.conditional_score_samples(frame, given=0))
    assert ensemble.estimators_[0].score_samples(frame).shape == (60,)  # without a warning


def test_the_standard_error_is_the_jackknifes(ensemble, wave):
    rows = np.concatenate([wave[:5], [[np.nan, 1.0], [50.0, 50.0]]])
    left_out = np.stack(
        [
            DGNEnsemble.from_estimators(
                [member for j, member in enumerate(ensemble.estimators_) if j != k]
            ).score_samples(rows)
            for k in range(4)
        ]
    )
    squares = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    np.testing.assert_allclose(
        ensemble.log_density_std(rows), np.sqrt(3 / 4 * squares), rtol=1e-10, atol=1e-14
    )


def test_the_standard_error_of_members_of_different_weight(ensemble, wave):
    members, weights = ensemble.estimators_[:3], np.array([0.5, 0.3, 0.2])
    weighted = DGNEnsemble.from_estimators([*members, members[0]], [*weights, 0.0])
    left_out = np.stack(
        [
            DGNEnsemble.from_estimators(
                members, np.where(np.arange(3) == k, 0.0, weights)
            ).score_samples(wave)
            for k in range(3)
        ]
    )
    expected = np.sqrt(2.0) * left_out.std(axis=0)
    np.testing.assert_allclose(weighted.log_density_std(wave), expected, rtol=1e-9, atol=1e-14)
    alone = DGNEnsemble.from_estimators(members[:2], [1.0, 0.0])
    with pytest.raises(ValueError, match="two members of positive weight to compare, got 1"):
        alone.log_density_std(wave)


def test_ensembles_of_ensembles(ensemble, wave):
    alone = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0).fit(wave)
    nested = DGNEnsemble.from_estimators([ensemble, alone], [4, 1])
    flat = DGNEnsemble.from_estimators([*ensemble.estimators_, alone])
    np.testing.assert_allclose(nested.score_samples(wave), flat.score_samples(wave), rtol=1e-13)
    fitted = DGNEnsemble(
        DGNEnsemble(small_network(0), n_estimators=2), n_estimators=2, random_state=0
    ).fit(wave)
    assert [len(member.estimators_) for member in fitted.estimators_] == [2, 2]


# --- wider copies of the members


def test_members_are_averaged_with_wider_copies(widened, wave):
    rows = np.concatenate([wave[:9], [[np.nan, 0.3], [np.nan, np.nan], [1e9, -1e9]]])
    copies, weights = [], []
    for member, weight in zip(widened.estimators_, widened.weights_, strict=True):
        for scale, share in zip(widened.noise_scales_, widened.scale_weights_, strict=True):
            copies.append(
                PiecewiseAffineDGN.from_network(
                    member.coefs_,
                    member.intercepts_,
                    scale * member.noise_covariance_,
                    activation="leaky_relu",
                )
            )
            weights.append(weight * share)
    average = DGNEnsemble.from_estimators(copies, weights)
    np.testing.assert_allclose(
        widened.score_samples(rows), average.score_samples(rows), rtol=1e-12, atol=1e-13
    )
    np.testing.assert_allclose(widened.impute(rows[9:10]), average.impute(rows[9:10]), rtol=1e-12)
    responsibilities = average.predict_proba(rows).reshape(len(rows), 4, -1).sum(axis=2)
    np.testing.assert_allclose(widened.predict_proba(rows), responsibilities, rtol=1e-9, atol=1e-12)
    again = pickle.loads(pickle.dumps(widened))
    np.testing.assert_array_equal(again.score_samples(rows), widened.score_samples(rows))


def test_wider_copies_count_where_members_are_too_sure_of_themselves(widened, wave):
    np.testing.assert_array_equal(widened.noise_scales_, [1.0, 3.0, 10.0, 100.0])
    assert widened.scale_weights_.sum() == pytest.approx(1.0)
    assert widened.scale_weights_[1:].sum() > 0.1  # of 60 samples, and networks of 8 units
    assert np.all(widened.scale_weights_ > 0.0)
    far = [[6.0, 6.0]]
    plain = clone(widened).set_params(noise_scales=[1.0]).fit(wave)
    assert widened.score_samples(far) > plain.score_samples(far) + 10.0
    # Gaussians that have seen a thousand samples are right.
    lines = DGNEnsemble(small_network(0), n_estimators=5, random_state=0)
    lines.fit(np.random.default_rng(0).normal(size=(1000, 2)))
    assert lines.scale_weights_[0] > 0.97


def test_noise_stays_as_it_was_where_nothing_is_held_out(wave):
    line = small_network(0)
    for parameters in ({"max_samples": 1.0}, {"weights": "bic"}, {"n_best": 1}):
        ensemble = DGNEnsemble(line, n_estimators=2, random_state=0, **parameters).fit(wave)
        np.testing.assert_array_equal(ensemble.noise_scales_, 1.0)
        np.testing.assert_array_equal(ensemble.scale_weights_, 1.0)
    stacked = DGNEnsemble(line, 2, max_samples=1.0, weights="stacked", random_state=0).fit(wave)
    assert len(stacked.scale_weights_) == 4


# --- the fit


def test_members_differ_by_seed_and_samples_and_a_seed_repeats_them(ensemble, wave):
    scores = [member.score(wave) for member in ensemble.estimators_]
    assert len(set(scores)) == 4
    again = clone(ensemble).fit(wave)
    np.testing.assert_array_equal(again.score_samples(wave), ensemble.score_samples(wave))
    seeds = [member.random_state for member in ensemble.estimators_]
    assert len(set(seeds)) == 4
    together = clone(ensemble).set_params(max_samples=1.0, estimator=small_network(0)).fit(wave)
    # A linear model has one likeliest fit, whatever the seed.
    assert np.ptp([member.score(wave) for member in together.estimators_]) < 1e-6


def test_fits_in_parallel_are_the_same(ensemble, wave):
    for backend in ("loky", "threading"):
        with joblib.parallel_config(backend):
            parallel = clone(ensemble).set_params(n_jobs=2, n_estimators=3).fit(wave)
        for member, other in zip(parallel.estimators_, ensemble.estimators_, strict=False):
            np.testing.assert_array_equal(member.coefs_[0], other.coefs_[0])


def test_a_list_has_a_member_for_each_template(wave):
    templates = [small_network(0), small_network(2), small_network(0, covariance_type="full")]
    ensemble = DGNEnsemble(templates, n_estimators=77, random_state=0).fit(wave)
    assert [member.hidden_layer_sizes for member in ensemble.estimators_] == [(), (2,), ()]
    assert ensemble.estimators_[2].noise_covariance_.shape == (2, 2)
    assert not hasattr(templates[0], "coefs_")
    assert not hasattr(ensemble, "named_estimators_")
    pairs = list(zip(["line", "bent", "full"], templates, strict=True))
    named = DGNEnsemble(pairs, random_state=0).fit(wave)
    assert named.named_estimators_["bent"] is named.estimators_[1]
    np.testing.assert_array_equal(named.score_samples(wave), ensemble.score_samples(wave))
    clone(named).fit(wave)


def test_parameters_of_members_are_reached_by_their_names(wave):
    ensemble = DGNEnsemble([("line", small_network(0)), ("bent", small_network(2))])
    assert ensemble.get_params()["bent__hidden_layer_sizes"] == (2,)
    assert "bent" not in ensemble.get_params(deep=False)
    ensemble.set_params(bent__hidden_layer_sizes=(3,), line=small_network(1), n_jobs=1)
    assert [member.hidden_layer_sizes for _, member in ensemble.estimator] == [(1,), (3,)]
    with pytest.raises(ValueError, match="Invalid parameter 'curved'"):
        ensemble.set_params(curved__tol=0.1)
    search = GridSearchCV(ensemble, {"bent__tol": [0.1, 1.0]}, cv=2).fit(wave)
    assert set(search.best_params_) == {"bent__tol"}
    # Without names there is nothing to reach.
    assert list(DGNEnsemble([small_network(0)]).get_params()) == list(DGNEnsemble().get_params())
    one = DGNEnsemble(small_network(0)).set_params(estimator__tol=0.5)
    assert one.estimator.tol == 0.5


@pytest.mark.parametrize("name", ["weights", "estimator", "a__b"])
def test_names_that_cannot_be_told_from_parameters_are_refused(wave, name):
    with pytest.raises(ValueError, match=f"names without '__' that are no .* got '{name}'"):
        DGNEnsemble([(name, small_network(0))]).fit(wave)


def describe(member: DGNMixture | TransformedDensity) -> tuple:
    """What is done to the columns, number of networks and their hidden layers."""
    transformer = None
    if isinstance(member, TransformedDensity):
        member, transformer = member.estimator, member.transformer
    layers = None if member.estimator is None else member.estimator.hidden_layer_sizes
    return transformer, member.n_networks, layers


def test_members_of_no_estimator_are_of_different_sizes(wave):
    ensemble = DGNEnsemble(n_estimators=5, random_state=0).fit(wave)  # 48 samples each
    assert [describe(member) for member in ensemble.estimators_[1:]] == [
        ("power", 2, (4,)),
        ("normal_scores", 1, (4,)),
        (None, 6, ()),
        (None, 1, ()),
    ]
    columns, n_networks, _ = zip(*map(describe, default_members(13, 1e9)), strict=True)
    assert n_networks[:5] == ("auto", 64, 32, 64, "auto")
    assert n_networks[-1] == 1
    # Each kind with each transformation of the columns.
    assert len(set(zip(columns[:12], [0, 1, 2, 3] * 3, strict=True))) == 12
    assert describe(default_members(1, 1e9)[0])[:2] == (None, "auto")


def test_weights_by_bic(wave):
    templates = [small_network(width) for width in (0, 1, 3)]
    ensemble = DGNEnsemble(templates, weights="bic", random_state=0).fit(wave)
    bics = np.array([member.bic(wave) for member in ensemble.estimators_])
    np.testing.assert_allclose(ensemble.bics_, bics, rtol=1e-12)
    np.testing.assert_allclose(ensemble.weights_, softmax(-0.5 * bics), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("weights", ["equal", "bic", "stacked", [1.0, 2.0, 3.0, 4.0]])
def test_the_best_by_bic_are_kept_in_their_order(wave, weights):
    templates = [small_network(width) for width in (0, 1, 3, 2)]
    everything = DGNEnsemble(templates, weights="bic", random_state=0).fit(wave)
    ensemble = DGNEnsemble(
        [(str(k), template) for k, template in enumerate(templates)],
        n_best=2,
        weights=weights,
        random_state=0,
    ).fit(wave)
    best = np.sort(np.argsort(everything.bics_)[:2])
    np.testing.assert_array_equal(ensemble.bics_, everything.bics_[best])
    assert list(ensemble.named_estimators_) == [str(k) for k in best]
    if weights == "equal":
        np.testing.assert_array_equal(ensemble.weights_, 0.5)
    elif isinstance(weights, list):
        expected = np.array(weights)[best] / np.array(weights)[best].sum()
        np.testing.assert_allclose(ensemble.weights_, expected, rtol=1e-15)
    assert ensemble.weights_.sum() == pytest.approx(1.0, abs=1e-15)
    assert not hasattr(ensemble.set_params(n_best=None, weights="equal").fit(wave), "bics_")


@pytest.mark.parametrize(
    ("parameters", "n_copies"),
    [({"max_samples": 1.0}, 1), ({"bootstrap": True}, 10), ({"max_samples": 0.7}, 10)],
)
def test_stacking_finds_the_member_that_is_good(wave, parameters, n_copies):
    rigid = small_network(0, covariance_type="spherical")
    templates = [rigid, small_network(4, max_iter=30)] * n_copies
    ensemble = DGNEnsemble(templates, weights="stacked", random_state=0, **parameters)
    weights = ensemble.fit(wave).weights_
    assert weights.sum() == pytest.approx(1.0)
    assert weights[1::2].sum() > 0.8


def test_weights_given_are_normalized(wave):
    ensemble = DGNEnsemble(small_network(0), n_estimators=3, weights=[1, 0, 3], random_state=0).fit(
        wave
    )
    np.testing.assert_array_equal(ensemble.weights_, [0.25, 0.0, 0.75])


def test_missing_values_and_weights(wave):
    rows = wave.copy()
    rows[::3, 1] = np.nan
    rows[1::7, 0] = np.nan
    counts = np.arange(60) % 3
    template = DGNEnsemble(small_network(), n_estimators=2, weights="stacked", random_state=0)
    weighted = clone(template).fit(rows, sample_weight=counts)
    repeated = clone(template).fit(np.repeat(rows, counts, axis=0)[::-1])
    np.testing.assert_allclose(
        weighted.score_samples(rows), repeated.score_samples(rows), rtol=1e-9, atol=1e-12
    )


def test_tables_too_large_to_be_sorted_are_fitted_as_they_are(wave):
    from sklearn import config_context

    template = DGNEnsemble(small_network(0), n_estimators=2, random_state=0)
    with config_context(working_memory=1e-3):
        ensemble = clone(template).fit(wave, sample_weight=np.arange(60.0))
    assert np.isfinite(ensemble.score(wave))


def test_warnings_of_members_are_given_once(wave):
    rows = wave.copy()
    rows[:50, 1] = 0.0
    members = [DGNMixture(small_network(3, max_iter=1), 4, max_iter=1) for _ in range(3)]
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        DGNEnsemble(members, random_state=0).fit(rows)
    messages = [str(warning.message) for warning in given]
    assert len(messages) == 2
    assert messages[0].startswith("EM did not converge in 3 fits of members.")
    assert messages[1].startswith("The noise of feature 1 is as small as tied values allow")
    assert {warning.filename for warning in given} == {__file__}


# --- what is refused, and what is not lost


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"estimator": "kde"}, "estimator must be an exact density .*, got 'kde'"),
        ({"estimator": []}, "a list of them or a list of .*, got an empty list"),
        ({"estimator": [small_network(), 3]}, "estimator must be an exact density .*, got 3"),
        (
            {"estimator": [("a", small_network()), ("a", small_network())]},
            r"estimator must have different names, got \['a', 'a'\]",
        ),
        ({"estimator": small_network(max_iter=0)}, "'max_iter' parameter of PiecewiseAffineDGN"),
        ({"n_estimators": 0}, "'n_estimators' parameter of DGNEnsemble must be an int"),
        ({"n_estimators": 2.5}, "'n_estimators' parameter of DGNEnsemble must be an int"),
        ({"weights": "best"}, "weights must be one of .* got 'best'"),
        ({"weights": [1.0, 2.0]}, "3 non-negative numbers with a positive sum"),
        ({"weights": [1.0, -2.0, 1.0]}, "3 non-negative numbers with a positive sum"),
        ({"weights": [0.0, 0.0, 0.0]}, "3 non-negative numbers with a positive sum"),
        ({"weights": [np.nan, 1.0, 1.0]}, "3 non-negative numbers with a positive sum"),
        ({"weights": None}, "3 non-negative numbers with a positive sum"),
        ({"weights": {"a": 1}}, "3 non-negative numbers with a positive sum"),
        (
            {"weights": "bic", "bootstrap": True},
            'weights="bic" compares .* bootstrap must be False, got True',
        ),
        (
            {"weights": "bic", "max_samples": 0.5},
            'weights="bic" compares .* max_samples must be None or 1.0, got 0.5',
        ),
        ({"n_best": 2, "bootstrap": True}, "n_best=2 compares .* must be False, got True"),
        ({"n_best": 4}, "n_best must be at most .* 3, got 4"),
        ({"n_best": 0}, "'n_best' parameter of DGNEnsemble"),
        ({"noise_scales": []}, r"noise_scales must be positive numbers, the first .* got \[\]"),
        ({"noise_scales": [2.0, 4.0]}, "noise_scales must be positive numbers, the first of which"),
        (
            {"noise_scales": [1.0, -4.0]},
            "noise_scales must be positive numbers, the first of which",
        ),
        ({"noise_scales": [1.0, np.inf]}, "noise_scales must be positive numbers, the first"),
        ({"noise_scales": ["a"]}, r"noise_scales must be positive numbers, .* got \['a'\]"),
        ({"noise_scales": 4.0}, "'noise_scales' parameter of DGNEnsemble must be an array-like"),
        ({"max_samples": 0.0}, "'max_samples' parameter of DGNEnsemble must be"),
        ({"max_samples": 1.5}, "'max_samples' parameter of DGNEnsemble must be"),
        (
            {"estimator": DGNEnsemble(), "weights": "bic"},
            r'weights="bic" needs members with a bic, got DGNEnsemble\(\)',
        ),
    ],
)
def test_bad_parameters_are_named_before_any_fit(ensemble, wave, parameters, message):
    defaults = {"estimator": small_network(0), "n_estimators": 3, "random_state": 0}
    bad = DGNEnsemble(**(defaults | parameters))
    with pytest.raises(ValueError, match=message):
        bad.fit(wave)
    assert not hasattr(bad, "n_features_in_")
    # An ensemble that was fitted before stays as it was.
    before = clone(ensemble).set_params(n_estimators=2).fit(wave)
    score = before.score(wave)
    before.set_params(**(defaults | parameters))
    with pytest.raises(ValueError, match=message):
        before.fit(wave[:, :1])
    assert before.score(wave) == score


def test_columns_without_values_are_named(wave):
    frame = pd.DataFrame(wave, columns=["time", "height"])
    frame["height"] = np.nan
    with pytest.raises(ValueError, match=r"in every column, .* \['height'\]"):
        DGNEnsemble(small_network(0), n_estimators=2).fit(frame)


@pytest.mark.parametrize(
    ("members", "weights", "message"),
    [
        ([], None, "sequence of fitted exact densities, got \\[\\]"),
        (3, None, "sequence of fitted exact densities, got 3"),
        ([known_network([0.0]), "b"], None, r"estimators\[1\] must be a fitted exact density"),
        (
            [known_network([0.0]), known_network([0.0, 1.0])],
            None,
            r"same features, got 1 in estimators\[0\] and 2 in estimators\[1\]",
        ),
        (
            [known_network([0.0], ["a"]), known_network([0.0], ["b"])],
            None,
            r"same names of features, got \['a'\] in estimators\[0\] and \['b'\]",
        ),
        ([known_network([0.0])], [1.0, 2.0], "1 non-negative numbers with a positive sum"),
    ],
)
def test_members_that_do_not_fit_together(members, weights, message):
    with pytest.raises(ValueError, match=message):
        DGNEnsemble.from_estimators(members, weights)


def test_unfitted_members_are_refused(wave):
    with pytest.raises(NotFittedError, match="PiecewiseAffineDGN"):
        DGNEnsemble.from_estimators([small_network()])
    with pytest.raises(NotFittedError, match="DGNEnsemble"):
        DGNEnsemble().score_samples(wave)


class Failing(PiecewiseAffineDGN):
    """Fails, or is interrupted, on every fit."""

    def fit(self, X, y=None, sample_weight=None):
        if self.n_init == 2:
            raise np.linalg.LinAlgError("no luck")
        if self.n_init == 3:
            signal.raise_signal(signal.SIGINT)
        return super().fit(X, y, sample_weight)


@pytest.fixture
def ears():
    """Hear signals, even if the tests run where they are ignored (in the background)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def failing(n_init):
    return Failing(hidden_layer_sizes=(), n_init=n_init)


def test_a_member_that_fails_is_left_out_with_a_warning(wave):
    templates = [("a", small_network(0)), ("b", failing(2)), ("c", small_network(2))]
    ensemble = DGNEnsemble(templates, weights=[1, 5, 3], random_state=0)
    with pytest.warns(FitFailedWarning, match=r"1 of 3 .* left out: \[1\]. .* was: no luck"):
        ensemble.fit(wave)
    assert list(ensemble.named_estimators_) == ["a", "c"]
    np.testing.assert_array_equal(ensemble.weights_, [0.25, 0.75])
    with pytest.raises(np.linalg.LinAlgError, match="no luck"):
        DGNEnsemble(failing(2), n_estimators=2).fit(wave)
    with (
        pytest.warns(FitFailedWarning),
        pytest.raises(ValueError, match="weights must be positive for a member that is kept"),
    ):
        DGNEnsemble(templates, weights=[0, 1, 0], random_state=0).fit(wave)


@pytest.mark.usefixtures("ears")
def test_an_interrupted_fit_keeps_the_members_it_has(wave):
    templates = [small_network(0), small_network(2), failing(3), small_network(2)]
    ensemble = DGNEnsemble(templates, random_state=0)
    with pytest.raises(KeyboardInterrupt, match="2 of 4 members were kept"):
        ensemble.fit(wave)
    assert len(ensemble.estimators_) == 2
    np.testing.assert_array_equal(ensemble.weights_, 0.5)
    assert np.isfinite(ensemble.score(wave))


@pytest.mark.usefixtures("ears")
def test_an_interrupt_before_the_first_member_changes_nothing(ensemble, wave):
    before = clone(ensemble).set_params(n_estimators=2).fit(wave)
    score = before.score(wave)
    before.set_params(estimator=[failing(3), small_network(0)])
    with pytest.raises(KeyboardInterrupt):
        before.fit(wave[:, :1])
    assert before.score(wave) == score


def test_warnings_that_are_errors_are_not_swallowed(wave):
    ensemble = DGNEnsemble(small_network(max_iter=1, tol=0.0), n_estimators=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises(ConvergenceWarning, match="EM did not converge"):
            ensemble.fit(wave)


# --- among others


def test_it_lives_among_other_estimators(ensemble, wave):
    loaded = pickle.loads(pickle.dumps(ensemble))
    np.testing.assert_array_equal(loaded.score_samples(wave), ensemble.score_samples(wave))
    quick = DGNEnsemble(small_network(0), n_estimators=2, random_state=0)
    assert np.isfinite(cross_val_score(quick, wave, cv=2)).all()
    rows = wave.copy()
    rows[::5, 1] = np.nan
    imputer = DGNImputer(quick).fit(rows)
    np.testing.assert_array_equal(imputer.transform(rows), imputer.estimator_.impute(rows))
    detector = DGNOutlierDetector(quick, contamination=0.1).fit(rows)
    assert detector.predict([[1e6, -1e6], [np.nan, 1e9]]).tolist() == [-1, -1]


def test_progress(wave, capsys):
    DGNEnsemble(small_network(0), n_estimators=2, random_state=0, verbose=1).fit(wave)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["fit 1/2", "fit 2/2"]
    talkative = small_network(0).set_params(verbose=1)
    DGNEnsemble(talkative, n_estimators=2, random_state=0).fit(wave)
    lines = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    headings = [line for line in lines if line.startswith("fit of member")]
    assert headings == ["fit of member 1/2", "fit of member 2/2"]
    assert lines[0] == headings[0]
    assert len(lines) > 4  # and what the members say


def test_displays(ensemble, wave):
    display = DensityDisplay.from_estimator(ensemble, wave, grid_resolution=5)
    points = np.stack(np.meshgrid(*display.axes_values), axis=-1).reshape(-1, 2)
    expected = ensemble.score_samples(points).reshape(5, 5)
    np.testing.assert_array_equal(display.log_density, expected)
    curves = LikelihoodCurveDisplay.from_estimator(ensemble.estimators_)
    assert len(curves.lines_) == 4
    with pytest.raises(
        ValueError, match="Pass what it has fitted, estimators_ or estimator_, instead of DGNEns"
    ):
        LikelihoodCurveDisplay.from_estimator(ensemble)
    for kind, arguments in ((LatentPartitionDisplay, ()), (PosteriorDisplay, (wave[:1],))):
        with pytest.raises(ValueError, match=r"single network, .* part of it, estimators_\[k\]"):
            kind.from_estimator(ensemble, *arguments)


def test_one_sample_many_times_is_a_table():
    network = PiecewiseAffineDGN(hidden_layer_sizes=())
    ensemble = DGNEnsemble(network, n_estimators=2, random_state=0)
    table = np.repeat([[1.0, 2.0]], 20, axis=0)
    assert np.isfinite(ensemble.fit(table).score(table))
