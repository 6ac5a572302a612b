"""Estimators that fit another one: interrupts of that fit."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn import DGNImputer, DGNRegressor, PiecewiseAffineDGN, TransformedDensity

LINE = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
X = np.random.default_rng(0).normal(size=(50, 2))
ASKED = {
    DGNImputer: lambda model: model.transform([[0.0, np.nan]]),
    DGNRegressor: lambda model: model.predict_interval(X[:3, :1], 0.9),
    TransformedDensity: lambda model: model.score_samples(X),
}


def fit(model):
    return model.fit(X[:, :1], X[:, 1]) if isinstance(model, DGNRegressor) else model.fit(X)


@pytest.mark.parametrize("kind", ASKED)
def test_an_interrupted_fit_keeps_its_best(kind, monkeypatch):
    expected = ASKED[kind](fit(kind(LINE)))
    complete = PiecewiseAffineDGN.fit

    def interrupted(self, X, y=None, sample_weight=None):
        complete(self, X, y, sample_weight)
        raise KeyboardInterrupt

    monkeypatch.setattr(PiecewiseAffineDGN, "fit", interrupted)
    model = kind(LINE)
    with pytest.raises(KeyboardInterrupt):
        fit(model)
    np.testing.assert_array_equal(ASKED[kind](model), expected)


@pytest.mark.parametrize("kind", ASKED)
def test_an_interrupt_before_there_is_a_best_changes_nothing(kind, monkeypatch):
    def interrupted(self, X, y=None, sample_weight=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(PiecewiseAffineDGN, "fit", interrupted)
    model = kind(LINE)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        fit(model)
    assert vars(model) == before


@pytest.mark.parametrize("n_complete", [1, 2])
def test_without_held_out_samples_intervals_are_not_calibrated(n_complete, monkeypatch):
    """So a regressor that was interrupted before it had them stays what it was."""
    complete, n_fits = PiecewiseAffineDGN.fit, 0

    def interrupted(self, X, y=None, sample_weight=None):
        nonlocal n_fits
        n_fits += 1
        complete(self, X, y, sample_weight)
        if n_fits == n_complete:
            raise KeyboardInterrupt
        return self

    monkeypatch.setattr(PiecewiseAffineDGN, "fit", interrupted)
    model = DGNRegressor(LINE, cv=2)
    with pytest.raises(KeyboardInterrupt):
        fit(model)
    assert not hasattr(model, "estimator_")
