"""DGNImputer among scikit-learn's transformers."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from skdgn import DGNImputer, PiecewiseAffineDGN


def small_model(**parameters: object) -> PiecewiseAffineDGN:
    defaults = {
        "hidden_layer_sizes": (2,),
        "init_params": "pca",
        "tol": 1e-2,
        "random_state": 0,
    }
    return PiecewiseAffineDGN(**{**defaults, **parameters})


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    angle = rng.uniform(-2.0, 2.0, 120)
    rows = np.stack([angle, np.sin(2.0 * angle), np.cos(angle)], axis=1)
    rows += 0.05 * rng.normal(size=rows.shape)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    table = pd.DataFrame(rows, columns=["angle", "sine", "cosine"])
    table["angle"] = table["angle"].fillna(0.0)
    return table


def test_it_is_the_models_conditional_mean(frame: pd.DataFrame) -> None:
    imputer = DGNImputer(small_model()).fit(frame)
    expected = small_model().fit(frame).impute(frame)
    imputed = imputer.transform(frame)
    assert isinstance(imputed, np.ndarray)
    np.testing.assert_array_equal(imputed, expected.to_numpy())
    kept = frame.notna().to_numpy()
    np.testing.assert_array_equal(imputed[kept], frame.to_numpy()[kept])
    assert list(imputer.get_feature_names_out()) == list(frame.columns)
    assert imputer.indicator_ is None


def test_indicator_and_frames(frame: pd.DataFrame) -> None:
    imputer = DGNImputer(small_model(), add_indicator=True).set_output(transform="pandas")
    imputed = imputer.fit_transform(frame)
    names = ["angle", "sine", "cosine", "missingindicator_sine", "missingindicator_cosine"]
    assert list(imputed.columns) == names == list(imputer.get_feature_names_out())
    pd.testing.assert_index_equal(imputed.index, frame.index)
    holes = frame[["sine", "cosine"]].isna().to_numpy()
    np.testing.assert_array_equal(imputed.iloc[:, 3:].to_numpy(), holes)
    polars = imputer.set_output(transform="polars").transform(frame)
    np.testing.assert_array_equal(polars.to_numpy(), imputed.to_numpy())
    # A hole where there was none in `fit`: filled in, without a column of its own.
    new = frame.iloc[:2].assign(angle=np.nan)
    assert imputer.set_output(transform="default").transform(new).shape == (2, 5)


def test_weights_reach_the_model(frame: pd.DataFrame) -> None:
    weights = np.where(np.arange(len(frame)) < 60, 1.0, 0.0)
    weighted = DGNImputer(small_model()).fit(frame, sample_weight=weights)
    part = DGNImputer(small_model()).fit(frame.iloc[:60])
    np.testing.assert_allclose(weighted.transform(frame), part.transform(frame), rtol=1e-9)


def test_in_a_pipeline_before_a_model_that_knows_no_holes(frame: pd.DataFrame) -> None:
    target = frame["angle"]
    features = frame[["sine", "cosine"]]
    pipeline = make_pipeline(DGNImputer(small_model()), Ridge())
    assert np.isfinite(pipeline.fit(features, target).predict(features)).all()
    names = pipeline[:-1].get_feature_names_out()
    assert list(names) == ["sine", "cosine"]
    pipeline.set_params(dgnimputer__estimator__hidden_layer_sizes=())
    assert pipeline.fit(features, target)[0].estimator_.n_regions_ == 1


def test_bad_input_is_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="'estimator' parameter of DGNImputer must be"):
        DGNImputer(Ridge()).fit(frame)
    with pytest.raises(ValueError, match=r"got none in 1 of 3 columns: \['sine'\]"):
        DGNImputer(small_model()).fit(frame.assign(sine=np.nan))
    with pytest.raises(NotFittedError):
        DGNImputer().transform(frame)


def test_parameters_reach_the_estimator(
    frame: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
    imputer = DGNImputer(linear, random_state=3, n_jobs=2, verbose=2).fit(frame)
    assert "iteration" in capsys.readouterr().out
    fitted = imputer.estimator_
    assert (fitted.random_state, fitted.n_jobs, fitted.verbose) == (3, 2, 2)
    untouched = DGNImputer(linear).fit(frame).estimator_
    assert (untouched.random_state, untouched.n_jobs, untouched.verbose) == (0, None, 0)
    assert (linear.random_state, linear.n_jobs, linear.verbose) == (0, None, 0)


def test_a_seed_of_its_own_makes_the_default_repeatable(frame: pd.DataFrame) -> None:
    few = frame[["sine", "cosine"]].iloc[:30]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 16 units for 30 samples
        first, second = (DGNImputer(random_state=0).fit(few).transform(few) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_parameters_of_an_estimator_need_one() -> None:
    with pytest.raises(ValueError, match=r"estimator__tol needs an estimator .* estimator=None"):
        DGNImputer().set_params(estimator__tol=0.1)
    assert DGNImputer().set_params(estimator=small_model(), estimator__tol=0.1).estimator.tol == 0.1


def test_a_failed_fit_leaves_the_imputer_as_it_was() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3))
    imputer = DGNImputer(PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)).fit(rows)
    before = dict(vars(imputer))
    with pytest.raises(ValueError, match="X must have an observed value"):
        imputer.fit(np.full((3, 2), np.nan))
    assert vars(imputer) == before
