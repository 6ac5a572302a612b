"""Tables as users pass them: masked arrays, frames, text; weights; frames that come back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, clone

from skdgn import (
    DGNClassifier,
    DGNEnsemble,
    DGNImputer,
    DGNMixture,
    DGNOutlierDetector,
    DGNRegressor,
    PiecewiseAffineDGN,
    TransformedDensity,
)
from skdgn.datasets import make_noisy_circle

ROWS = make_noisy_circle(40, random_state=0)
MISSING = np.random.default_rng(0).random(ROWS.shape) < 0.2
MISSING[MISSING.all(axis=1)] = False
HOLES = np.where(MISSING, np.nan, ROWS)
# Whatever is behind the mask must not matter.
MASKED = np.ma.array(np.where(MISSING, -1e6, ROWS), mask=MISSING)


def make_estimator() -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN(hidden_layer_sizes=4, tol=1e-2, random_state=0)


@pytest.fixture(scope="module")
def fitted() -> PiecewiseAffineDGN:
    return make_estimator().fit(HOLES)


def test_masked_entries_are_missing_in_fit(fitted: PiecewiseAffineDGN) -> None:
    masked = make_estimator().fit(MASKED)
    assert masked.lower_bound_ == fitted.lower_bound_
    masked.partial_fit(MASKED)
    other = make_estimator().fit(HOLES).partial_fit(HOLES)
    assert masked.lower_bound_ == other.lower_bound_


@pytest.mark.parametrize(
    "read",
    [
        lambda model, X: model.score_samples(X),
        lambda model, X: model.score(X),
        lambda model, X: model.transform(X),
        lambda model, X: model.impute(X),
        lambda model, X: model.impute(X, method="sample", random_state=0),
        lambda model, X: model.posterior(X).mean,
        lambda model, X: model.conditional_score_samples(X, given=0),
        lambda model, X: model.conditional_mean(X, given=0),
        lambda model, X: model.conditional_cdf(X, given=0),
    ],
)
def test_masked_entries_are_missing_everywhere(
    fitted: PiecewiseAffineDGN, read: Callable[[PiecewiseAffineDGN, object], object]
) -> None:
    found = read(fitted, MASKED)
    assert not isinstance(found, np.ma.MaskedArray)
    np.testing.assert_array_equal(found, read(fitted, HOLES))


def test_masked_entries_are_missing_in_imputer_and_detector() -> None:
    for masked, plain in ((MASKED, HOLES), (MASKED.astype(np.float32), HOLES.astype(np.float32))):
        imputer = DGNImputer(make_estimator(), add_indicator=True)
        np.testing.assert_array_equal(imputer.fit_transform(masked), imputer.fit_transform(plain))
    detector = DGNOutlierDetector(make_estimator(), cv=2)
    np.testing.assert_array_equal(
        detector.fit(MASKED).decision_function(MASKED), detector.fit(HOLES).decision_function(HOLES)
    )


@pytest.mark.filterwarnings("ignore:The noise of feature")  # counts are tied
def test_masks_of_other_types() -> None:
    counts = np.ma.masked_equal(np.random.default_rng(0).integers(0, 5, size=(30, 2)), 3)
    expected = make_estimator().fit(counts.astype(float).filled(np.nan))
    assert make_estimator().fit(counts).lower_bound_ == expected.lower_bound_
    text = np.ma.array([["a", "1"], ["2", "3"]], mask=[[False, True], [False, False]])
    with pytest.raises(ValueError, match="column 0 does not: could not convert string to float"):
        make_estimator().fit(text)
    with pytest.raises(ValueError, match="sample_weight must have no masked entries"):
        make_estimator().fit(ROWS, sample_weight=np.ma.array(np.ones(40), mask=ROWS[:, 0] > 0))


def test_lazy_frames_are_refused() -> None:
    lazy = pl.DataFrame(ROWS, schema=["a", "b"]).lazy()
    for call in (make_estimator().fit, DGNImputer().fit, DGNOutlierDetector().fit):
        with pytest.raises(TypeError, match=r"X must be .* got a LazyFrame\. Pass X\.collect\(\)"):
            call(lazy)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_columns_of_text_are_named(kind: type) -> None:
    columns = {"size": ROWS[:, 0], "color": ["red", "blue"] * 20, "weight": ROWS[:, 1]}
    message = "X must hold numbers, which column 'color' does not: .*'red'"
    for call in (make_estimator().fit, DGNImputer().fit):
        with pytest.raises(ValueError, match=message):
            call(kind(columns))
    numbers = [list(row) for row in zip(*columns.values(), strict=True)]
    with pytest.raises(ValueError, match=r"which column 1 does not: .*'red'"):
        make_estimator().fit(numbers)


@pytest.mark.parametrize("names", [["a", "b", "a"], [0, 1, 0]])
def test_columns_of_one_name_are_refused(names: list[object]) -> None:
    frame = pd.DataFrame(np.column_stack([ROWS, ROWS[:, 0]]), columns=names)
    fitted = DGNImputer(make_estimator()).fit(np.asarray(frame))
    message = rf"X must have different names of columns, got \[{names[0]!r}\] more than once"
    for call in (make_estimator().fit, DGNOutlierDetector().fit, fitted.transform):
        with pytest.raises(ValueError, match=message):
            call(frame)


def test_columns_with_missing_values_are_not_taken_for_text() -> None:
    frame = pd.DataFrame({"a": pd.array([1, None, 3, 4], dtype="Int64"), "b": ["u", "v", "w", "x"]})
    with pytest.raises(ValueError, match="which column 'b' does not"):
        make_estimator().fit(frame)
    dates = pd.DataFrame({"a": [1.0, 2.0], "day": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    with pytest.raises(TypeError, match="which column 'day' does not"):
        make_estimator().fit(dates)


def test_weights_of_scores(fitted: PiecewiseAffineDGN) -> None:
    repetitions = np.arange(len(ROWS)) % 3
    repeated = np.repeat(HOLES, repetitions, axis=0)
    for method in ("score", "aic", "bic"):
        call = getattr(fitted, method)
        assert call(HOLES, sample_weight=repetitions) == pytest.approx(call(repeated), rel=1e-13)
        assert call(HOLES, sample_weight=np.ones(40)) == pytest.approx(call(HOLES), rel=1e-15)
        with pytest.raises(ValueError, match=r"positive sum|non-zero number"):
            call(HOLES, sample_weight=np.zeros(40))
        with pytest.raises(ValueError, match="shape"):
            call(HOLES, sample_weight=np.ones(39))
    # A sample without weight does not count, even if it is impossible.
    impossible = np.append(HOLES, [[1e200, 0.0]], axis=0)
    weights = np.append(np.ones(40), 0.0)
    assert fitted.score(impossible, sample_weight=weights) == fitted.score(HOLES)
    assert fitted.score(impossible) == -np.inf


ALL = [
    make_estimator(),
    DGNMixture(make_estimator(), 2, random_state=0),
    DGNEnsemble(make_estimator(), 2, random_state=0),
    TransformedDensity(make_estimator()),
    DGNImputer(),
    DGNOutlierDetector(make_estimator(), cv=2),
    DGNRegressor(),
    DGNClassifier(),
]


@pytest.mark.parametrize("model", ALL, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("a", "sample_weight must hold a weight for each sample: could not convert"),
        (np.ones(40) + 1j, "sample_weight must hold a weight for each sample: Complex data"),
        (np.full(40, 1.7e308), r"sample_weight must have a sum from 1e-200 to 1e\+200, got inf"),
        (np.full(40, 5e-324), r"sample_weight must have a sum from .*, got 2e-322\. Rescale it"),
        (np.eye(40)[3], "sample_weight must be positive for at least 2 samples, got 1 of 40"),
    ],
)
def test_weights_that_cannot_be_used(model: BaseEstimator, weights: object, message: str) -> None:
    targets = np.arange(40) % 2
    with pytest.raises(ValueError, match=message):
        clone(model).fit(ROWS, targets, sample_weight=weights)


@pytest.mark.parametrize("model", ALL[:4], ids=lambda model: type(model).__name__)
def test_large_weights_of_large_values(model: BaseEstimator) -> None:
    scale, weights = 2.0**460, np.full(40, 1e100)  # 3e138
    scaled = clone(model).fit(scale * ROWS, sample_weight=weights)
    expected = clone(model).fit(ROWS, sample_weight=weights).score(ROWS)
    assert scaled.score(scale * ROWS) + 2.0 * np.log(scale) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("output", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_samples_are_frames_where_they_are_asked_for(output: str, kind: type) -> None:
    model = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
    model.fit(kind({"a": ROWS[:, 0], "b": ROWS[:, 1]}))
    plain = model.sample(3, random_state=0)[0]
    assert isinstance(plain, np.ndarray)
    model.set_output(transform=output)
    samples, regions = model.sample(3, random_state=0)
    assert isinstance(samples, kind)
    assert list(samples.columns) == ["a", "b"]
    assert isinstance(regions, np.ndarray)
    np.testing.assert_array_equal(np.asarray(samples), plain)
    model.fit(ROWS)
    assert list(model.sample(1)[0].columns) == ["x0", "x1"]


def test_one_number_is_one_hidden_layer() -> None:
    by_number = PiecewiseAffineDGN(hidden_layer_sizes=3, tol=1e-2, random_state=0).fit(ROWS)
    by_tuple = PiecewiseAffineDGN(hidden_layer_sizes=(3,), tol=1e-2, random_state=0).fit(ROWS)
    assert by_number.lower_bound_ == by_tuple.lower_bound_
    assert by_number.get_params()["hidden_layer_sizes"] == 3
    for bad in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="hidden_layer_sizes"):
            PiecewiseAffineDGN(hidden_layer_sizes=bad).fit(ROWS)
