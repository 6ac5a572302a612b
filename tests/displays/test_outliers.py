"""OutlierDisplay: a sample against the conditional densities of its features."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid
from sklearn.mixture import GaussianMixture

from skdgn import DGNOutlierDetector, OutlierDisplay, PiecewiseAffineDGN

SAMPLE = np.array([0.3, -0.2, 6.0])


def test_panels_show_conditional_densities_the_largest_contribution_first(line):
    display = OutlierDisplay.from_estimator(line, SAMPLE)
    contributions = line.explain(SAMPLE[None], standardize=True)[0]
    np.testing.assert_allclose(display.contributions, contributions)
    np.testing.assert_array_equal(display.features, np.argsort(-contributions))
    for feature, grid, density, value in zip(
        display.features, display.grids, display.densities, display.values_, strict=True
    ):
        assert trapezoid(density, grid) == pytest.approx(1.0, abs=0.01)
        rows = np.tile(SAMPLE, (len(grid), 1))
        rows[:, feature] = grid
        given = np.delete(np.arange(3), feature)
        expected = np.exp(line.conditional_score_samples(rows, given))
        np.testing.assert_allclose(density, expected, rtol=1e-9)
        assert value.get_xdata()[0] == SAMPLE[feature]
        assert grid[0] < SAMPLE[feature] < grid[-1]
    plt.close("all")


def test_missing_values_are_predicted(line):
    sample = np.array([[0.3, np.nan, 6.0]])
    display = OutlierDisplay.from_estimator(line, sample)
    place = display.features.tolist().index(1)
    assert display.values_[place] is None
    assert display.axes_[place].get_title() == "feature 1: missing"
    plt.close("all")


def test_detectors_names_and_axes():
    rows = np.random.default_rng(0).normal(size=(60, 6))
    frame = pd.DataFrame(rows, columns=list("abcdef"))
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
    detector = DGNOutlierDetector(linear, cv=None).fit(frame)
    odd = np.array([0.0, 9.0, 0.0, 0.0, 0.0, 0.0])
    display = OutlierDisplay.from_estimator(detector, odd, n_panels=5, color="tab:green")
    assert len(display.axes_) == 5
    assert display.axes_[0].get_title().startswith("b: +")
    assert display.densities_[0].get_color() == "tab:green"
    figure, axes = plt.subplots(1, 5)
    assert display.plot(axes=axes).figure_ is figure
    with pytest.raises(ValueError, match="axes must be 5 matplotlib Axes"):
        display.plot(axes=axes[:2])
    plt.close("all")


def test_bad_input_is_refused(line):
    with pytest.raises(ValueError, match="sample must be one sample of 3 features"):
        OutlierDisplay.from_estimator(line, [0.0, 1.0])
    with pytest.raises(ValueError, match="n_panels"):
        OutlierDisplay.from_estimator(line, SAMPLE, n_panels=0)
    detector = DGNOutlierDetector(GaussianMixture(), cv=None)
    detector.fit(np.random.default_rng(0).normal(size=(30, 3)))
    with pytest.raises(ValueError, match="OutlierDisplay needs marginals"):
        OutlierDisplay.from_estimator(detector, SAMPLE)
