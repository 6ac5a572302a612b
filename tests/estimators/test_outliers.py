"""The outlier detector, with scikit-learn's checks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgn._estimators import outliers as outliers
from skdgn._estimators.mixture import DGNMixture
from skdgn._estimators.network import PiecewiseAffineDGN
from skdgn._estimators.outliers import DGNOutlierDetector
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
    folds = outliers._assign_folds(with_holes, 5)
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
