"""LikelihoodCurveDisplay: what EM recorded."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgba

from skdgn import (
    LikelihoodCurveDisplay,
    PiecewiseAffineDGN,
)
from skdgn.datasets import make_wave


def test_likelihood_curves_are_the_lower_bounds(fits):
    rows = make_wave(50, random_state=1)
    display = LikelihoodCurveDisplay.from_estimator(fits, rows, lw=3.0)
    for line, level, model in zip(display.lines_, display.score_lines_, fits.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), model.lower_bounds_)
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, model.n_iter_ + 1))
        assert set(level.get_ydata()) == {model.score(rows)}
        assert to_rgba(line.get_color()) == to_rgba(level.get_color())
        assert line.get_linewidth() == 3.0
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["2", "4", "held-out samples"]
    assert display.ax_.get_ylabel() == "mean log-likelihood"


def test_one_curve_needs_no_legend(fits):
    display = LikelihoodCurveDisplay.from_estimator(fits["2"])
    assert len(display.lines_) == 1
    assert display.ax_.get_legend() is None
    several = LikelihoodCurveDisplay.from_estimator(list(fits.values()))
    assert several.names == ["fit 0", "fit 1"]


def test_a_prior_is_part_of_the_label(fits):
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(2,), init_params="pca", weight_prior="gaussian", max_iter=30, tol=0.1
    ).fit(make_wave(60, random_state=0))
    label = LikelihoodCurveDisplay.from_estimator([fits["2"], model]).ax_.get_ylabel()
    assert label == "mean log-likelihood and log prior"
