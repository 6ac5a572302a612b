"""The outlier detector, with scikit-learn's checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdgn.datasets import make_noisy_circle
from skdgn.estimator import PiecewiseAffineDGN
from skdgn.outliers import DGNOutlierDetector


def small_network(**parameters: Any) -> PiecewiseAffineDGN:
    """A network whose fit takes no time; checks do not ask for a good one."""
    return PiecewiseAffineDGN(
        hidden_layer_sizes=(3,), init_params="pca", max_iter=20, tol=1.0, **parameters
    )


@parametrize_with_checks([DGNOutlierDetector(small_network(random_state=0))])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return make_noisy_circle(300, random_state=0)


@pytest.fixture(scope="module")
def detector(rows: np.ndarray) -> DGNOutlierDetector:
    return DGNOutlierDetector(
        PiecewiseAffineDGN(hidden_layer_sizes=(16,), tol=1e-3, random_state=0), contamination=0.05
    ).fit(rows)


def test_contamination_is_the_share_of_outliers(
    detector: DGNOutlierDetector, rows: np.ndarray
) -> None:
    labels = detector.predict(rows)
    assert set(labels) == {-1, 1}
    assert np.mean(labels == -1) == pytest.approx(0.05, abs=1.0 / len(rows))
    np.testing.assert_array_equal(
        detector.decision_function(rows), detector.score_samples(rows) - detector.offset_
    )


def test_far_rows_are_ranked_by_distance(detector: DGNOutlierDetector) -> None:
    deviation = np.sqrt(np.max(detector.estimator_.noise_covariance_))
    # (nearer by, the ends of the generator's curve, which go on for ever, come close to the ray)
    distances = deviation * np.geomspace(1e3, 1e6, 200)
    direction = np.array([0.6, -0.8])
    scores = detector.score_samples(distances[:, None] * direction)
    assert np.all(np.isfinite(scores))
    assert np.all(np.diff(scores) < 0.0)
    # Neighbours differ even at the far end.
    near = detector.score_samples(1e6 * deviation * np.array([[1.0], [1.0 + 1e-6]]) * direction)
    assert near[1] < near[0]


def test_rows_with_holes_are_judged_by_what_was_observed(detector: DGNOutlierDetector) -> None:
    scores = detector.score_samples([[1.0, np.nan], [1e3, np.nan], [np.nan, np.nan]])
    assert scores[1] < scores[0]
    assert scores[2] == 0.0
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
