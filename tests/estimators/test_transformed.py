"""TransformedDensity."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit, logsumexp
from scipy.stats import lognorm
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from skdgn import DGNEnsemble, DGNRegressor, PiecewiseAffineDGN, TransformedDensity
from skdgn._runtime import Workers

LINE = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
CURVE = PiecewiseAffineDGN(hidden_layer_sizes=(3,), tol=0.01, random_state=0)
TRANSFORMERS = {
    "power": "power",
    "normal scores": "normal_scores",
    "standard": StandardScaler(),
    "not centered": make_pipeline(StandardScaler(with_mean=False), RobustScaler()),
    "range": make_pipeline("passthrough", MinMaxScaler((-3.0, 2.0)), MaxAbsScaler()),
    "logs": FunctionTransformer(np.log),
    "powers of logs": make_pipeline(
        FunctionTransformer(np.log), StandardScaler(), PowerTransformer()
    ),
    "identity": FunctionTransformer(),
}


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    rng = np.random.default_rng(0)
    first = np.exp(rng.normal(size=150))
    return np.column_stack([first, first + rng.gamma(2.0, size=150)])


@pytest.mark.parametrize("transformer", TRANSFORMERS.values(), ids=TRANSFORMERS)
def test_it_is_a_density_in_the_units_of_the_samples(samples, transformer):
    model = TransformedDensity(CURVE, transformer).fit(samples)
    if model.transformer_ is not None:
        transformed = model.transformer_.transform(samples)
        expected = model.estimator_.score_samples(transformed)
        gap = model.score_samples(samples) - expected  # logs of the slopes
        steps = 1e-6 * samples
        slopes = (
            model.transformer_.transform(samples + steps)
            - model.transformer_.transform(samples - steps)
        ) / (2.0 * steps)
        np.testing.assert_allclose(gap, np.log(slopes).sum(axis=1), atol=1e-5)
    # Gauss's rule on pieces between these ends.
    ends = np.array([-40.0, 0.0, 1e-3, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0, 10_000.0])
    nodes, weights = np.polynomial.legendre.leggauss(40)
    halves = 0.5 * np.diff(ends)[:, None]
    values = (ends[:-1, None] + halves * (1.0 + nodes)).ravel()
    marginal = np.column_stack([values, np.full(values.size, np.nan)])
    densities = np.exp(model.score_samples(marginal))
    assert densities @ (halves * weights).ravel() == pytest.approx(1.0, abs=1e-5)


def test_logs_of_a_gaussian():
    samples = np.exp(np.random.default_rng(0).normal(1.0, 0.5, size=(200, 1)))
    model = TransformedDensity(LINE, FunctionTransformer(np.log)).fit(samples)
    logs = np.log(samples)
    exact = lognorm(logs.std(), scale=np.exp(logs.mean()))
    values = np.array([0.01, 1.0, 3.0, 50.0])
    np.testing.assert_allclose(
        model.score_samples(values[:, None]), exact.logpdf(values), rtol=1e-10
    )
    nothing = np.full((1, 1), np.nan)
    median = model.conditional_quantiles(nothing, given=[], q=0.5)
    assert median[0, 0] == pytest.approx(exact.median(), rel=1e-10)
    mean, error = model.impute(nothing, return_error=True)
    assert abs(mean[0, 0] - exact.mean()) < 4.0 * error[0, 0] < 0.5
    box = model.log_probability([[-1.0]], [[2.0]])
    assert box[0] == pytest.approx(exact.logcdf(2.0), rel=1e-8)
    assert model.conditional_cdf([[-1.0]], given=[])[0, 0] == 0.0
    assert model.score_samples([[0.0], [-1.0]]).tolist() == [-np.inf, -np.inf]
    assert model.sample(100, random_state=0)[0].min() > 0.0
    assert model.n_parameters_ == 2


def test_impossible_values_tell_nothing(samples):
    model = TransformedDensity(LINE, FunctionTransformer(np.log)).fit(samples)
    impossible = np.array([[-1.0, np.nan]])
    assert np.isnan(model.conditional_score_samples([[-1.0, 1.0]], given=0)).all()
    for ask in (
        model.impute,
        lambda X: model.impute(X, method="sample", random_state=0),
        lambda X: model.conditional_mean(X, given=0),
    ):
        with pytest.raises(ValueError, match=r"X must hold values .* Got -1.0 in column 0"):
            ask(impossible)


def test_bad_transformers_are_refused_by_name(samples):
    frame = pd.DataFrame(samples, columns=["width", "height"])
    before = TransformedDensity(LINE).fit(samples)
    state = before.__dict__.copy()
    for transformer, message in (
        ("sqrt", "'transformer' parameter"),
        (QuantileTransformer(n_quantiles=10), "transformer must be .* got QuantileTransformer"),
        (PowerTransformer("box-cox"), "method 'box-cox' of PowerTransformer does not"),
        (MinMaxScaler(clip=True), "strictly increasing, got .*: clip must be False"),
        (FunctionTransformer(np.sqrt), r"FunctionTransformer with one of arcsinh, log, .* got"),
        (FunctionTransformer(logit), r"X must hold values .* got .* in column 'width'"),
        (make_pipeline(StandardScaler(), PowerTransformer()), r"got -.* for feature 'width'"),
    ):
        with pytest.raises(ValueError, match=message):
            before.set_params(transformer=transformer).fit(frame)
        state["transformer"] = transformer
        assert before.__dict__ == state
    with pytest.raises(ValueError, match="'estimator' parameter"):
        TransformedDensity(StandardScaler()).fit(samples)


def test_missing_values_weights_names_and_files(samples):
    incomplete = samples.copy()
    incomplete[::4, 1] = np.nan
    counts = np.random.default_rng(1).integers(0, 3, size=len(samples))
    for transformer in ("power", "normal_scores", StandardScaler()):
        template = TransformedDensity(LINE, transformer)
        weighted = template.fit(incomplete, sample_weight=counts).score_samples(samples)
        repeated = template.fit(np.repeat(incomplete, counts, axis=0)).score_samples(samples)
        np.testing.assert_allclose(weighted, repeated, rtol=1e-5)
    frame = pd.DataFrame(incomplete, columns=["width", "height"])
    model = TransformedDensity(LINE).fit(frame)
    assert model.estimator_.feature_names_in_.tolist() == ["width", "height"]
    assert model.impute(frame).columns.tolist() == ["width", "height"]
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.score_samples(frame), model.score_samples(frame))


def test_members_of_an_ensemble_may_be_transformed(samples):
    ensemble = DGNEnsemble([LINE, TransformedDensity(LINE)], random_state=0).fit(samples)
    plain, transformed = (
        logsumexp(
            [
                member._fitted_model().widen(scale).log_density(samples, Workers())
                for scale in ensemble.noise_scales_
            ],
            axis=0,
            b=ensemble.scale_weights_[:, None],
        )
        for member in ensemble.estimators_
    )
    expected = np.logaddexp(plain, transformed) - np.log(2.0)
    np.testing.assert_allclose(ensemble.score_samples(samples), expected, rtol=1e-12)
    holes = np.where([True, False], samples[:3], np.nan)
    means, errors = ensemble.impute(holes, return_error=True)
    assert np.isfinite(means).all()
    assert (errors[:, 1] > 0.0).all()
    medians = ensemble.conditional_quantiles(holes, given=0, q=0.5)
    at_medians = np.column_stack([holes[:, 0], medians])
    np.testing.assert_allclose(ensemble.conditional_cdf(at_medians, given=0), 0.5, atol=1e-10)


def test_sets_of_highest_density_hold_what_they_promise():
    """Tails are heavier than those of the grid on which sets are looked for, and never end it."""
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(60, 1)))
    y = X[:, 0] * np.exp(0.3 * rng.normal(size=60))
    for transformer, line in (("power", CURVE), ("normal_scores", LINE)):
        regressor = DGNRegressor(TransformedDensity(line, transformer)).fit(X, y)
        sets = regressor.predict_interval(X[:5], 0.8, kind="highest_density")
        # Intervals, ends, samples; of intervals that are not there, both ends are zero.
        ends = np.nan_to_num(np.moveaxis(sets, 0, -1))
        probability = sum(
            regressor.cdf(X[:5], high) - regressor.cdf(X[:5], low) for low, high in ends
        )
        np.testing.assert_allclose(probability, 0.8, atol=1e-6)


def test_far_out_nothing_overflows(samples):
    for transformer in ("power", "normal_scores"):
        model = TransformedDensity(CURVE, transformer).fit(samples)
        far = model.score_samples([[1e100, 1.0], [1e160, 1.0], [1e308, -1e308]])
        assert far[0] < -1e100
        assert np.all(np.isneginf(far[1:]))
        extreme = model.conditional_quantiles([[np.nan, 1.0]], given=1, q=[1e-9, 1.0 - 1e-9])
        assert np.isfinite(extreme).all()
        assert np.ptp(extreme) < 1000.0 * np.ptp(samples[:, 0])
    with pytest.raises(ValueError, match="X must hold values of at most"):
        TransformedDensity(CURVE).fit(samples * 1e155)
    with pytest.raises(ValueError, match="transformer must be a transformer, not a class"):
        TransformedDensity(CURVE, StandardScaler).fit(samples)


def test_a_constant_table_is_what_it_is_without_a_transformation():
    table = np.full((20, 1), 0.1)  # whose mean is rounded
    expected = clone(LINE).fit(table).score_samples(table)
    for transformer in ("power", "normal_scores"):
        found = TransformedDensity(LINE, transformer).fit(table).score_samples(table)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
