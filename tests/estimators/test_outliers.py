"""The outlier detector, with scikit-learn's checks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, ks_2samp
from sklearn import config_context
from sklearn.base import BaseEstimator, DensityMixin, clone
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgn._estimators import folds as _folds
from skdgn._estimators.anomalies import thresholds
from skdgn._estimators.anomalies.outliers import DGNOutlierDetector
from skdgn._estimators.mixture import DGNMixture
from skdgn._estimators.network import PiecewiseAffineDGN
from skdgn._estimators.regressor import DGNRegressor
from skdgn.datasets import make_noisy_circle

# The default's 16 units and 200 iterations are not made for tables this small.
pytestmark = pytest.mark.filterwarnings(
    "ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"
)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return make_noisy_circle(300, random_state=0)


@pytest.fixture(scope="module")
def detector(rows: np.ndarray) -> DGNOutlierDetector:
    mixture = DGNMixture(PiecewiseAffineDGN(hidden_layer_sizes=(4,)), n_networks=2, refine=False)
    return DGNOutlierDetector(mixture, contamination=0.05, cv=2, random_state=0).fit(rows)


def test_contamination_is_the_share_of_outliers(rows: np.ndarray) -> None:
    detector = DGNOutlierDetector(contamination=0.05, cv=None, random_state=0).fit(rows)
    labels = detector.predict(rows)
    assert set(labels) == {-1, 1}
    assert np.mean(labels == -1) == pytest.approx(0.05, abs=1.0 / len(rows))
    np.testing.assert_array_equal(
        detector.decision_function(rows), detector.score_samples(rows) - detector.offset_
    )


def test_far_rows_are_ranked_by_distance(detector: DGNOutlierDetector) -> None:
    networks = detector.estimator_.networks_
    deviation = np.sqrt(max(np.max(network.noise_covariance_) for network in networks))
    # (nearer by, the ends of the generator's curve, which go on for ever, come close to the ray)
    distances = deviation * np.geomspace(1e3, 1e6, 200)
    direction = np.array([0.6, -0.8])
    scores = detector.score_samples(distances[:, None] * direction)
    assert np.all(np.isfinite(scores))
    assert np.all(np.diff(scores) < 0.0)
    # Neighbors differ even at the far end.
    near = detector.score_samples(1e6 * deviation * np.array([[1.0], [1.0 + 1e-6]]) * direction)
    assert near[1] < near[0]


def test_rows_with_holes_are_judged_by_what_was_observed(detector: DGNOutlierDetector) -> None:
    scores = detector.score_samples([[1.0, np.nan], [1e3, np.nan], [np.nan, np.nan]])
    assert scores[1] < scores[0]
    # The weights of the networks sum to 1 but for rounding.
    assert scores[2] == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_array_equal(detector.predict([[1e3, np.nan]]), [-1])


def test_any_density_estimator_will_do(rows: np.ndarray) -> None:
    pipeline = make_pipeline(StandardScaler(), GaussianMixture(4, random_state=0))
    detector = DGNOutlierDetector(pipeline).fit(rows)
    assert detector.predict([[0.0, 0.0]]) == [-1]
    with pytest.raises(ValueError, match="NaN"):
        detector.predict([[0.0, np.nan]])


def test_contamination_is_checked(rows: np.ndarray) -> None:
    with pytest.raises(ValueError, match="contamination"):
        DGNOutlierDetector(contamination=0.7).fit(rows)


# The threshold. A narrow kernel learns every sample by heart, in no time.

HEART = KernelDensity(bandwidth=0.15)


def false_alarms(detector: DGNOutlierDetector, n_samples: int) -> float:
    rng = np.random.default_rng(1)
    detector.fit(rng.normal(size=(n_samples, 3)))
    return float(np.mean(detector.predict(rng.normal(size=(4000, 3))) == -1))


def standard_error(n_samples: int) -> float:
    return float(np.sqrt(0.1 * 0.9 / n_samples))


@pytest.mark.parametrize("n_samples", [60, 400, 1500])
def test_what_was_learned_by_heart_raises_no_false_alarms(n_samples: int) -> None:
    assert false_alarms(DGNOutlierDetector(HEART, cv=None), n_samples) > 0.3
    # Within two standard errors of the quantile of so many samples.
    error = standard_error(min(n_samples, 500))
    assert false_alarms(DGNOutlierDetector(HEART), n_samples) == pytest.approx(0.1, abs=2 * error)


def test_the_default_raises_few_false_alarms_on_a_small_table() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(13, 13))
    training, others = (rng.normal(size=(n, 13)) @ mixing for n in (59, 2000))
    shares = [
        np.mean(DGNOutlierDetector(cv=cv, random_state=0).fit(training).predict(others) == -1)
        for cv in (None, 5)
    ]
    assert shares[0] > 0.3
    assert shares[1] == pytest.approx(0.1, abs=2 * standard_error(59))


def test_the_threshold_is_that_of_samples_fitted_to_where_these_are_no_different() -> None:
    rows = np.random.default_rng(0).normal(size=(400, 2))
    gaussian = DGNOutlierDetector(GaussianMixture()).fit(rows)
    assert gaussian.offset_ == DGNOutlierDetector(GaussianMixture(), cv=None).fit(rows).offset_
    assert np.sum(gaussian.predict(rows) == -1) == 40


class CountedDensity(KernelDensity):
    """Counts the samples of each fit, and those it has seen before where it gives densities."""

    sizes: list[int]
    repeated: list[int]

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> CountedDensity:
        self.sizes.append(len(X))
        self.seen_ = {row.tobytes() for row in np.asarray(X) + 0.0}
        super().fit(X)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        self.repeated.append(sum(row.tobytes() in self.seen_ for row in np.asarray(X) + 0.0))
        return super().score_samples(X)


@pytest.fixture
def counted() -> type[CountedDensity]:
    CountedDensity.sizes, CountedDensity.repeated = [], []
    return CountedDensity


@pytest.mark.parametrize(
    ("n_samples", "cv", "n_fits"), [(100, 5, 6), (100, 3, 4), (1000, 5, 4), (4000, 5, 2)]
)
def test_large_tables_are_folded_less_often(
    counted: type[CountedDensity], n_samples: int, cv: int, n_fits: int
) -> None:
    rows = np.random.default_rng(0).normal(size=(n_samples, 2))
    DGNOutlierDetector(counted(), cv=cv).fit(rows)
    assert counted.sizes[0] == n_samples
    assert len(counted.sizes) == n_fits
    for size in counted.sizes[1:]:
        assert n_samples - size == pytest.approx(n_samples / cv, abs=1.0)
    assert counted.repeated == [n_samples] + [0] * (n_fits - 1)


def test_equal_samples_share_a_fold(counted: type[CountedDensity]) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2)).round(1)
    rows[:3] = [[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0]]
    repeated = np.repeat(rows, 4, axis=0)
    detector = DGNOutlierDetector(counted()).fit(repeated)
    assert counted.repeated == [160, 0, 0, 0, 0, 0]
    # The order does not matter.
    order = np.random.default_rng(1).permutation(len(repeated))
    shuffled = DGNOutlierDetector(counted()).fit(repeated[order])
    assert shuffled.offset_ == pytest.approx(detector.offset_, rel=1e-12)
    with_holes = np.where(np.arange(2) == 1, np.nan, np.arange(30.0)[:, None] // 2)
    folds = _folds.assign_folds(with_holes, 5)
    np.testing.assert_array_equal(folds[::2], folds[1::2])
    np.testing.assert_array_equal(np.bincount(folds[::2]), [3] * 5)


def test_tables_too_small_or_too_large_are_not_folded(counted: type[CountedDensity]) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 700))
    DGNOutlierDetector(counted()).fit(rows[:9])
    with config_context(working_memory=1):  # MiB
        DGNOutlierDetector(counted()).fit(rows)
    assert counted.sizes == [9, 200]
    # More folds than samples: each is left out in turn.
    DGNOutlierDetector(counted(), cv=100).fit(rows[:12])
    assert counted.sizes[2:] == [12] + [11] * 12


def test_frames_keep_their_names_in_every_fold() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=["a", "b", "c"])
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
    named = DGNOutlierDetector(linear).fit(frame)
    assert list(named.estimator_.feature_names_in_) == ["a", "b", "c"]
    assert named.offset_ == DGNOutlierDetector(linear).fit(frame.to_numpy()).offset_


def test_a_fold_that_cannot_be_left_out_is_named() -> None:
    rows = np.random.default_rng(0).normal(size=(12, 2))
    rows[1:, 1] = np.nan  # the only value of a feature
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
    with pytest.raises(ValueError, match=r"cv=5 needs an estimator .* Use fewer folds, or cv=None"):
        DGNOutlierDetector(linear).fit(rows)
    assert DGNOutlierDetector(linear, cv=None).fit(rows).n_features_in_ == 2


def test_folds_do_not_repeat_a_warning() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(80, 2)), rng.integers(3, size=80)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DGNOutlierDetector(PiecewiseAffineDGN(hidden_layer_sizes=(2,)), random_state=0).fit(rows)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 1
    assert messages[0].startswith("The noise of feature 2 is")


# Parameters of the estimator.


def test_parameters_reach_the_default_and_every_part_of_a_given_estimator(
    rows: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    default = DGNOutlierDetector(random_state=3, n_jobs=2, cv=None, verbose=2).fit(rows[:40])
    assert "iteration" in capsys.readouterr().out
    expected = {"random_state": 3, "n_jobs": 2, "verbose": 2}
    parameters = default.estimator_.get_params()
    assert {name: parameters[name] for name in expected} == expected
    pipeline = make_pipeline(StandardScaler(), PCA(2), GaussianMixture(random_state=5))
    fitted = DGNOutlierDetector(pipeline, random_state=3, verbose=1, cv=None).fit(rows).estimator_
    assert (fitted[1].random_state, fitted[2].random_state, fitted[2].verbose) == (3, 3, 1)
    assert fitted.verbose is False  # a switch, not a level
    # Nothing given changes nothing, and the estimator that was given stays as it is.
    untouched = DGNOutlierDetector(pipeline, cv=None).fit(rows).estimator_
    assert (untouched[1].random_state, untouched[2].random_state) == (None, 5)
    assert pipeline[2].random_state == 5


def test_the_same_seed_gives_the_same_detector(rows: np.ndarray) -> None:
    first, second = (DGNOutlierDetector(random_state=0, cv=2).fit(rows[:40]) for _ in range(2))
    np.testing.assert_array_equal(first.decision_function(rows), second.decision_function(rows))


def test_parameters_of_an_estimator_need_one() -> None:
    with pytest.raises(
        ValueError, match=r"estimator__tol needs an estimator .* got estimator=None"
    ):
        DGNOutlierDetector().set_params(estimator__tol=0.1)
    network = PiecewiseAffineDGN()
    both = DGNOutlierDetector().set_params(estimator=network, estimator__tol=0.1, cv=3)
    assert (both.estimator.tol, both.cv) == (0.1, 3)


def test_every_fit_has_a_heading(rows, capsys):
    network = PiecewiseAffineDGN(hidden_layer_sizes=(2,), max_iter=2, tol=1e3, random_state=0)
    DGNOutlierDetector(network, cv=3, verbose=1).fit(rows)
    lines = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    headings = [line for line in lines if line.startswith("fit ")]
    folds = [f"fit {k}/3 to all but a fold, for the threshold" for k in (1, 2, 3)]
    assert headings == ["fit to all samples", *folds]
    assert lines[0] == headings[0]
    assert len(lines) > 2 * len(headings)  # and what the fits say


# Explanations.

LINEAR = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full", random_state=0)


def test_explanations_are_those_of_the_density_and_add_up(
    detector: DGNOutlierDetector, rows: np.ndarray
) -> None:
    odd = np.array([[0.0, 0.0], [3.0, np.nan], [1.0, 0.0]])
    found = detector.explain(odd)
    np.testing.assert_allclose(found.sum(axis=1), -detector.score_samples(odd), rtol=1e-10)
    np.testing.assert_array_equal(found, detector.estimator_.explain(odd))
    values, errors = detector.explain(odd, method="leave_one_out", return_error=True)
    assert values[1, 1] == 0.0
    assert np.all(errors == 0.0)
    frame = pd.DataFrame(rows[:60], columns=["a", "b"])
    named = DGNOutlierDetector(LINEAR, cv=None).fit(frame)
    assert named.explain(frame).shape == (60, 2)
    with pytest.warns(UserWarning, match="X has feature names, but DGNOutlierDetector") as warned:
        detector.explain(frame)
    assert len(warned) == 1


def test_what_has_no_marginals_cannot_explain(rows: np.ndarray) -> None:
    mixture = DGNOutlierDetector(GaussianMixture(), cv=None).fit(rows)
    for call in (mixture.explain, lambda X: mixture.p_values(X, method="model")):
        with pytest.raises(ValueError, match="the estimator must be an exact density"):
            call(rows)


# p-values.


def make_normal(seed: int, n_samples: int, missing: float = 0.0) -> np.ndarray:
    """Samples of a distribution that depends on the seed, values missing at random."""
    mixing = np.random.default_rng(seed).normal(size=(4, 4))
    rng = np.random.default_rng([seed, n_samples])
    rows = rng.normal(size=(n_samples, 4)) @ mixing
    rows[rng.random(rows.shape) < missing] = np.nan
    return rows


def exact_p_value(p_values: np.ndarray, n_compared: int) -> float:
    """P-value of Kolmogorov and Smirnov's exact test for two samples, from conformal p-values.

    These say between which of the scores they were compared with new scores lie; and ranks are all
    that the test asks for.  It is valid for every estimator and any number of samples: given the
    estimator, scores of both sides are independent draws from one distribution.
    """
    counts = p_values * (n_compared + 1) - 1.0
    return float(ks_2samp(counts + 0.5, np.arange(1, n_compared + 1), method="exact").pvalue)


METHODS = ("split", "model")
DETECTORS = {
    "linear": LINEAR,
    "network": PiecewiseAffineDGN(hidden_layer_sizes=(2,), max_iter=2, random_state=0),
    "mixture": DGNMixture(
        PiecewiseAffineDGN(hidden_layer_sizes=(2,)),
        n_networks=2,
        refine=False,
        max_iter=2,
        random_state=0,
    ),
}


@pytest.mark.parametrize(
    ("kind", "n_tables", "missing", "method"),
    [
        *[("linear", 5, missing, method) for missing in (0.0, 0.5) for method in METHODS],
        ("network", 5, 0.5, "split"),
        ("mixture", 5, 0.5, "model"),
        *[
            pytest.param(kind, 20, missing, method, marks=pytest.mark.thorough)
            for kind in DETECTORS
            for missing in (0.0, 0.5)
            for method in METHODS
        ],
    ],
)
def test_p_values_of_normal_samples_are_uniform(
    kind: str, n_tables: int, missing: float, method: str
) -> None:
    """Curved data, models that are far from right, half of the values missing."""
    n_fit, n_new, n_draws = 1000, 100, 300
    found = []
    for seed in range(n_tables):
        rng = np.random.default_rng(seed)
        table = make_noisy_circle(n_fit + n_new, random_state=seed)
        table[rng.random(table.shape) < missing] = np.nan
        detector = DGNOutlierDetector(DETECTORS[kind], cv=2).fit(table[:n_fit])
        new = table[n_fit:]
        if method == "model":  # valid for samples of the model
            new = detector.estimator_.sample(n_new, random_state=seed)[0]
            new[rng.random(new.shape) < missing] = np.nan
        p_values = detector.p_values(new, method=method, n_draws=n_draws, random_state=seed)
        patterns, own = np.unique(np.isnan(new), axis=0, return_inverse=True)
        of_patterns = []
        for number, pattern in enumerate(patterns):
            if not pattern.all():
                n_compared = n_draws
                if method == "split":
                    (calibration,) = detector._calibrations
                    n_compared = int(calibration.have(~pattern).sum())
                    if n_compared < 99:  # completed by the model, which is wrong
                        continue
                of_patterns.append(exact_p_value(p_values[own.ravel() == number], n_compared))
        # Patterns share what they are compared with: Bonferroni's bound holds all the same.
        found.append(min(1.0, len(of_patterns) * min(of_patterns)))
    # Tables are independent: at level alpha, the number of those that fail is at most binomial.
    for level in (0.01, 0.2):
        assert np.sum(np.array(found) < level) <= binom.ppf(0.995, n_tables, level)


def test_split_p_values_are_valid_for_finite_samples() -> None:
    """Marginally, over tables: P(p <= alpha) <= alpha, whatever the estimator."""
    p_values = []
    for seed in range(150):
        table = np.random.default_rng(seed).standard_t(3, size=(31, 2))
        detector = DGNOutlierDetector(HEART, cv=3).fit(table[:30])
        p_values.append(detector.p_values(table[30:], method="split")[0])
    for alpha in (0.1, 0.2, 0.5):
        error = np.sqrt(alpha * (1.0 - alpha) / 150)
        assert np.mean(np.array(p_values) <= alpha) <= alpha + 2.6 * error


def test_p_values_compare_what_was_observed() -> None:
    rows = make_normal(0, 200)
    detector = DGNOutlierDetector(LINEAR, cv=2).fit(rows)
    sample = np.array([[5.0, np.nan, 0.0, np.nan]])
    count = 0
    for part in detector._calibrations:
        reduced = np.where(np.isnan(sample), np.nan, part.samples)
        count += np.sum(
            part.estimator.score_samples(reduced) <= part.estimator.score_samples(sample)
        )
    assert detector.p_values(sample) == pytest.approx((1.0 + count) / 201.0)
    assert detector.p_values([[np.nan] * 4]) == 1.0
    # With weights, samples count as often as they say.
    weighted = DGNOutlierDetector(LINEAR, cv=2).fit(rows, sample_weight=np.full(200, 3.0))
    assert weighted.p_values(sample) == pytest.approx((1.0 + 3.0 * count) / 601.0)


class Wrapped(DensityMixin, BaseEstimator):
    """A density with missing values that is none of ours."""

    def fit(self, X: Any, y: None = None) -> Wrapped:
        self.names_ = list(getattr(X, "columns", []))
        self.density_ = clone(LINEAR).fit(np.asarray(X))
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        assert list(getattr(X, "columns", [])) == self.names_
        return self.density_.score_samples(np.asarray(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def test_p_values_of_any_estimator_and_of_frames(rows: np.ndarray) -> None:
    frame = pd.DataFrame(rows, columns=["a", "b"])
    pipeline = make_pipeline(StandardScaler(), GaussianMixture(4, random_state=0))
    found = DGNOutlierDetector(pipeline).fit(frame).p_values(frame[:5])
    expected = DGNOutlierDetector(pipeline).fit(rows).p_values(rows[:5])
    np.testing.assert_allclose(found, expected)
    holes = frame.copy()
    holes.iloc[::3, 1] = np.nan
    inside = DGNOutlierDetector(Wrapped(), cv=2).fit(holes)
    direct = DGNOutlierDetector(LINEAR, cv=2).fit(holes)
    np.testing.assert_allclose(inside.p_values(holes[:9]), direct.p_values(holes[:9]))
    # None of the samples to compare with has both, and not every estimator can draw the rest.
    nothing = np.column_stack([rows[:40, 0], np.full(40, np.nan)])
    nothing[20:] = nothing[20:, ::-1]
    assert DGNOutlierDetector(Wrapped(), cv=2).fit(nothing).p_values([[50.0, 50.0]]) == 1.0
    assert DGNOutlierDetector(LINEAR, cv=2).fit(nothing).p_values([[50.0, 50.0]]) < 0.05


def test_folds_may_be_given(rows: np.ndarray) -> None:
    splits = [(np.arange(0, 200), np.arange(200, 300)), (np.arange(100, 300), np.arange(0, 100))]
    weights = np.where(np.arange(300) < 10, 0.0, 1.0)
    detector = DGNOutlierDetector(LINEAR, cv=splits).fit(rows, sample_weight=weights)
    np.testing.assert_array_equal(detector._calibrations[0].samples, rows[200:])
    np.testing.assert_array_equal(detector._calibrations[1].samples, rows[10:100])
    folded = DGNOutlierDetector(LINEAR, cv=KFold(3)).fit(rows)
    assert len(folded._calibrations) == 3


@pytest.mark.parametrize(
    "cv", [[], [1, 2], [[2]], b"x", [([0, 1], [10**6])], [([0.5], [1])], StratifiedKFold(2)]
)
@pytest.mark.parametrize("model", [DGNOutlierDetector(LINEAR), DGNRegressor(LINEAR)])
def test_splits_that_are_none_are_refused(model: BaseEstimator, cv: object) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=r"cv must be an integer of at least 2, .* got"):
        clone(model).set_params(cv=cv).fit(rows, rows[:, 0])


def test_p_values_need_samples_that_were_held_out(rows: np.ndarray) -> None:
    detector = DGNOutlierDetector(LINEAR, cv=None).fit(rows)
    with pytest.raises(ValueError, match=r"no samples were held out\. cv must not be None"):
        detector.p_values(rows)
    assert detector.p_values(rows[:3], method="model", random_state=0).shape == (3,)
    with pytest.raises(ValueError, match=r"method must be one of .* got 'exact'"):
        detector.p_values(rows, method="exact")
    with pytest.raises(ValueError, match="n_draws"):
        detector.p_values(rows, n_draws=0)


def test_the_false_discovery_rate_is_at_most_the_nominal_one() -> None:
    rates, found = [], []
    for seed in range(10):
        normal = make_normal(seed, 400)
        detector = DGNOutlierDetector(LINEAR, cv=2, fdr=0.2).fit(normal)
        new = make_normal(seed, 180)
        outliers = make_normal(seed, 20) * 6.0
        labels = detector.predict(np.concatenate([new, outliers]))
        n_false, n_true = np.sum(labels[:180] == -1), np.sum(labels[180:] == -1)
        rates.append(n_false / max(1, n_false + n_true))
        found.append(n_true / 20)
    assert np.mean(rates) <= 0.2
    assert np.mean(found) > 0.8
    assert set(DGNOutlierDetector(LINEAR, fdr=0.01).fit(normal).predict(new)) == {1}


# Contamination that nobody knows, weights, trimming.


@pytest.mark.parametrize("n_features", [1, 4, 12])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_threshold_without_a_share_of_outliers(n_features: int, share: float) -> None:
    rng = np.random.default_rng(n_features)
    normal = rng.normal(size=(900, n_features))
    outliers = rng.normal(size=(int(share * 900), n_features)) + 20.0
    table = np.concatenate([normal, outliers])
    detector = DGNOutlierDetector(LINEAR, "auto", cv=2, trim=share).fit(table)
    false_alarms = np.mean(detector.predict(rng.normal(size=(4000, n_features))) == -1)
    assert false_alarms < 0.03
    # Outliers among the samples make it cautious.
    assert share > 0.0 or false_alarms > 0.003
    assert np.all(detector.predict(normal[:20] + 20.0) == -1)


def test_a_threshold_without_folds_or_without_spread(rows: np.ndarray) -> None:
    detector = DGNOutlierDetector(LINEAR, "auto", cv=None).fit(rows)
    assert 0.0 <= np.mean(detector.predict(rows) == -1) < 0.1
    assert thresholds.natural_threshold(np.ones(9), np.ones(9)) == 1.0
    # Log densities that are skewed the other way, and those with an endless tail.
    scores = np.random.default_rng(0).exponential(size=500)
    assert np.mean(scores < thresholds.natural_threshold(scores, np.ones(500))) < 0.01
    heavy = -np.exp(6.0 * np.random.default_rng(0).normal(size=500))
    assert np.isfinite(thresholds.natural_threshold(heavy, np.ones(500)))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.5, 1.0])
def test_weighted_quantiles_are_those_of_repeated_values(share: float) -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=40), rng.integers(1, 5, 40).astype(float)
    expected = np.quantile(np.repeat(values, weights.astype(int)), share)
    assert thresholds.weighted_quantile(values, weights, share) == pytest.approx(expected)
    assert thresholds.weighted_quantile(values[:1], np.array([0.5]), share) == values[0]


def test_weights_count_samples(rows: np.ndarray) -> None:
    weights = np.random.default_rng(0).integers(0, 3, len(rows)).astype(float)
    weighted = DGNOutlierDetector(LINEAR, cv=2).fit(rows, sample_weight=weights)
    repeated = DGNOutlierDetector(LINEAR, cv=2).fit(np.repeat(rows, weights.astype(int), axis=0))
    assert weighted.offset_ == pytest.approx(repeated.offset_, rel=1e-9)
    np.testing.assert_allclose(weighted.p_values(rows), repeated.p_values(rows))
    pipeline = make_pipeline(StandardScaler(), LINEAR)
    assert DGNOutlierDetector(pipeline, cv=None).fit(rows, None, weights).n_features_in_ == 2
    for estimator in (GaussianMixture(), make_pipeline(StandardScaler(), GaussianMixture())):
        with pytest.raises(ValueError, match="sample_weight needs an estimator with weights"):
            DGNOutlierDetector(estimator).fit(rows, sample_weight=weights)


def test_trimming_leaves_outliers_out_and_never_lowers_its_objective(rows: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    normal, outliers = rng.normal(size=(270, 3)), rng.normal(size=(30, 3)) * 0.3 + [12.0, 0.0, 0.0]
    table = np.concatenate([normal, outliers])
    plain = DGNOutlierDetector(LINEAR, cv=None).fit(table)
    robust = DGNOutlierDetector(LINEAR, cv=None, trim=0.1).fit(table)
    assert len(robust.trimmed_likelihoods_) > 1
    assert np.all(np.diff(robust.trimmed_likelihoods_) > 0.0)
    kept = np.sort(robust.score_samples(table))[30:]
    assert kept.mean() == pytest.approx(robust.trimmed_likelihoods_[-1])
    assert plain.score_samples(normal).mean() < robust.score_samples(normal).mean() - 0.5
    # As if the outliers had never been there.
    clean = DGNOutlierDetector(LINEAR, cv=None).fit(normal)
    np.testing.assert_allclose(robust.score_samples(normal), clean.score_samples(normal), atol=1e-6)
    assert plain.trimmed_likelihoods_.size == 0
    # Estimators without weights, too.
    mixture = DGNOutlierDetector(GaussianMixture(random_state=0), cv=2, trim=0.1).fit(table)
    assert np.all(mixture.predict(outliers) == -1)


def test_a_cluster_of_outliers_is_no_component() -> None:
    rng = np.random.default_rng(0)
    normal, cluster = rng.normal(size=(180, 3)), rng.normal(size=(20, 3)) * 0.1 + [6.0, 0.0, 0.0]
    table = pd.DataFrame(np.concatenate([normal, cluster]), columns=list("abc"))
    mixture = DGNMixture(LINEAR, n_networks=2, refine=False, random_state=0)
    plain = DGNOutlierDetector(mixture, cv=None).fit(table)
    robust = DGNOutlierDetector(mixture, cv=2, smallest_component=0.15, random_state=0).fit(table)
    typical = plain.score_samples(table[:180]).mean()
    assert plain.score_samples(table[180:]).mean() > typical
    assert np.all(robust.predict(table[180:]) == -1)
    assert list(robust.estimator_.feature_names_in_) == list("abc")
    assert np.all(robust.p_values(table[180:], method="model") < 0.01)
    np.testing.assert_allclose(
        robust.explain(table[180:]).sum(axis=1), -robust.score_samples(table[180:])
    )
    # Components that hold enough stay, and so does the largest one.
    assert (
        len(clone(robust).set_params(smallest_component=0.05).fit(table).estimator_.weights_) == 2
    )
    many = clone(mixture).set_params(n_networks=4)
    most = DGNOutlierDetector(many, cv=None, smallest_component=0.49).fit(normal)
    assert len(most.estimator_.weights_) == 1
    with pytest.raises(ValueError, match="smallest_component must be 0 unless the estimator is a"):
        DGNOutlierDetector(LINEAR, smallest_component=0.1).fit(table)


def test_a_failed_fit_of_the_detector_changes_nothing(rows: np.ndarray) -> None:
    detector = DGNOutlierDetector(LINEAR, cv=None).fit(rows)
    expected = detector.score_samples(rows)
    with pytest.raises(ValueError, match="observed value"):
        detector.fit(np.full((20, 3), np.nan))
    np.testing.assert_array_equal(detector.score_samples(rows), expected)


def test_rounds_of_trimming_warn_once(rows: np.ndarray) -> None:
    short = PiecewiseAffineDGN(hidden_layer_sizes=(4,), max_iter=1, tol=0.0, random_state=0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        detector = DGNOutlierDetector(short, cv=None, trim=0.1).fit(rows)
    assert len(detector.trimmed_likelihoods_) > 1
    (warning,) = warned
    assert str(warning.message).startswith("EM did not converge in the fit to all samples.")
    assert warning.filename == __file__
