"""Imputation and conditional densities: tables in, tables out, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skdgn import PiecewiseAffineDGN
from tests.missing_values import fit_quietly, make_table, model_of, noise_of, with_missing
from tests.networks import random_network


@pytest.fixture(scope="module")
def wave() -> np.ndarray:
    return make_table()


@pytest.fixture(scope="module")
def fitted(wave: np.ndarray) -> PiecewiseAffineDGN:
    model = PiecewiseAffineDGN(hidden_layer_sizes=(4,), max_iter=15, random_state=0)
    frame = pd.DataFrame(with_missing(wave, 0.2), columns=["angle", "sine", "cosine"])
    return fit_quietly(model, frame)


def test_observed_entries_come_back_bit_for_bit(
    fitted: PiecewiseAffineDGN, wave: np.ndarray
) -> None:
    holed = with_missing(wave, 0.4, seed=3)
    holed[0, 0] = -0.0
    before = holed.copy()
    for imputed in (fitted.impute(pd.DataFrame(holed, columns=fitted.feature_names_in_)),):
        values = imputed.to_numpy()
        assert not np.isnan(values).any()
        kept = ~np.isnan(holed)
        np.testing.assert_array_equal(values.view(np.int64)[kept], holed.view(np.int64)[kept])
    np.testing.assert_array_equal(holed, before)


def test_frames_come_back_as_frames(fitted: PiecewiseAffineDGN, wave: np.ndarray) -> None:
    holed = with_missing(wave[:10], 0.4, seed=3)
    names = list(fitted.feature_names_in_)
    pandas = pd.DataFrame(holed, columns=names, index=np.arange(10) * 3)
    expected = fitted.impute(pandas)
    assert isinstance(expected, pd.DataFrame)
    pd.testing.assert_index_equal(expected.index, pandas.index)
    pd.testing.assert_index_equal(expected.columns, pandas.columns)
    polars = fitted.impute(pl.DataFrame(dict(zip(names, holed.T, strict=True)), nan_to_null=True))
    assert isinstance(polars, pl.DataFrame)
    assert polars.columns == names
    np.testing.assert_array_equal(polars.to_numpy(), expected.to_numpy())
    single = pandas.astype({"sine": np.float32})
    assert list(fitted.impute(single).dtypes) == [np.float64, np.float32, np.float64]
    # A column without holes keeps its type, whatever it is.
    integers = pandas.assign(angle=np.arange(10))
    assert fitted.impute(integers)["angle"].dtype == integers["angle"].dtype
    nullable = pandas.assign(angle=pd.array([1, None] * 5, dtype="Int64"))
    assert fitted.impute(nullable)["angle"].dtype == np.float64


def test_arrays_keep_their_precision() -> None:
    model = model_of(random_network(1, (3,)), noise_of("diag", 3))
    rows = np.array([[1.0, np.nan, 0.1]], dtype=np.float32)
    imputed = model.impute(rows)
    assert imputed.dtype == np.float32
    assert imputed[0, 2] == rows[0, 2]
    assert model.impute([[1.0, None, 0.5]]).dtype == np.float64
    complete = np.ones((2, 3))
    np.testing.assert_array_equal(model.impute(complete), complete)


def test_features_may_be_given_by_name(fitted: PiecewiseAffineDGN, wave: np.ndarray) -> None:
    frame = pd.DataFrame(wave[:5], columns=fitted.feature_names_in_)
    by_name = fitted.conditional_score_samples(frame, given=["sine", "angle"])
    np.testing.assert_array_equal(fitted.conditional_score_samples(frame, given=[0, 1]), by_name)
    np.testing.assert_array_equal(
        fitted.conditional_score_samples(frame, given="angle"),
        fitted.conditional_score_samples(frame, given=-3),
    )
    np.testing.assert_array_equal(
        fitted.conditional_score_samples(frame, given=[]), fitted.score_samples(frame)
    )
    np.testing.assert_array_equal(fitted.conditional_score_samples(frame, given=range(3)), 0.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tangent", r"given must hold names of features seen in fit, .*'cosine'\], got 'tangent'"),
        ([3], "given must hold indices of the 3 features, got 3"),
        ([0.5], "given must hold indices or names of features, got 0.5"),
    ],
)
def test_bad_features_are_refused(
    fitted: PiecewiseAffineDGN, wave: np.ndarray, given: object, message: str
) -> None:
    frame = pd.DataFrame(wave[:2], columns=fitted.feature_names_in_)
    with pytest.raises(ValueError, match=message):
        fitted.conditional_score_samples(frame, given=given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "median"}, r"method must be one of \('mean', 'sample'\), got 'median'"),
        ({"n_draws": 3}, 'n_draws must be None unless method="sample", got 3'),
        ({"method": "sample", "n_draws": 0}, "n_draws must be a positive integer or None, got 0"),
        ({"method": "sample", "n_draws": 1.5}, "n_draws must be a positive integer .* got 1.5"),
    ],
)
def test_bad_arguments_of_impute_are_refused(arguments: dict, message: str) -> None:
    model = model_of(random_network(1, (3,)), noise_of("diag", 3))
    with pytest.raises(ValueError, match=message):
        model.impute([[1.0, np.nan, 0.1]], **arguments)


def test_columns_without_values_are_named() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": np.nan, "c": [np.nan, np.nan, 1.0]})
    with pytest.raises(ValueError, match=r"got none in 1 of 3 columns: \['b'\]"):
        PiecewiseAffineDGN().fit(frame)
    with pytest.raises(ValueError, match=r"got none in 2 of 3 columns: \[1, 2\]"):
        PiecewiseAffineDGN().fit(frame.to_numpy(), sample_weight=[1.0, 1.0, 0.0])


def test_infinite_values_are_refused() -> None:
    rows = np.array([[1.0, np.nan], [np.inf, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="infinity"):
        PiecewiseAffineDGN().fit(rows)
    model = model_of(random_network(1, (3,), n_features=2), noise_of("diag", 2))
    for method in (model.impute, model.score_samples, model.transform):
        with pytest.raises(ValueError, match="infinity"):
            method(rows)
