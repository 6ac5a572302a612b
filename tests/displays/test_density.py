"""DensityDisplay: the marginal density of one or two features."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import LogNorm, to_rgba
from scipy.integrate import trapezoid

from skdgn import (
    DensityDisplay,
    LatentPartitionDisplay,
    PiecewiseAffineDGN,
    PosteriorDisplay,
)
from skdgn.datasets import make_wave

# A sum over a grid of 200 points is an integral to this.
QUADRATURE = 1e-3


@pytest.mark.parametrize("kind", ["line", "plane"])
def test_the_map_is_the_marginal_density_of_two_features(kind, request):
    model = request.getfixturevalue(kind)
    rows = model.sample(1000, random_state=0)[0][:, [2, 0]]
    window = np.stack([rows.min(axis=0) - 2.0, rows.max(axis=0) + 2.0], axis=1)
    display = DensityDisplay.from_estimator(
        model, features=[2, 0], window=window, grid_resolution=81, log=False
    )
    across, upward = display.axes_values
    density = display.density_.get_array()
    assert trapezoid(trapezoid(density, across), upward) == pytest.approx(1.0, abs=QUADRATURE)
    # The first feature runs to the right.
    i, j = np.unravel_index(np.argmax(density), density.shape)
    point = [[upward[i], np.nan, across[j]]]
    assert np.log(density[i, j]) == pytest.approx(model.score_samples(point)[0], rel=1e-12)
    assert display.ax_.get_xlabel() == "feature 2"
    assert display.ax_.get_ylabel() == "feature 0"


@pytest.mark.parametrize("plot_method", ["pcolormesh", "contourf", "contour"])
def test_a_log_density_is_colored_down_to_12_nats_below_its_peak(line, plot_method):
    display = DensityDisplay.from_estimator(line, grid_resolution=30, plot_method=plot_method)
    rows = np.stack(np.meshgrid(*display.axes_values), axis=-1).reshape(-1, 2)
    rows = np.column_stack([rows, np.full(len(rows), np.nan)])
    expected = line.score_samples(rows).reshape(30, 30)
    np.testing.assert_array_equal(display.log_density, expected)
    if plot_method == "pcolormesh":
        np.testing.assert_array_equal(display.density_.get_array(), expected)
        assert display.density_.get_clim()[0] == expected.max() - 12.0
    else:
        levels = display.density_.levels
        assert levels[0] == np.floor(expected.max() - 12.0)
        assert levels[-1] == np.ceil(expected.max())
    assert display.colorbar_.ax.get_ylabel() == "log density (nats)"


def test_style_is_the_users(line):
    display = DensityDisplay.from_estimator(
        line, grid_resolution=10, log=False, plot_method="contour", colors="black", colorbar=False
    )
    assert {to_rgba(color) for color in display.density_.get_edgecolor()} == {to_rgba("black")}
    assert display.density_.levels[0] == 0.0
    norm = LogNorm(1e-3, 1.0)
    assert LatentPartitionDisplay.from_estimator(line, norm=norm).cells_.norm is norm
    line_width = PosteriorDisplay.from_estimator(line, [[0.0] * 3], lw=3.0).density_.get_linewidth()
    assert line_width == 3.0


def test_without_rows_the_window_covers_the_model(line):
    display = DensityDisplay.from_estimator(line, features=(0, 1), grid_resolution=60, log=False)
    mass = trapezoid(trapezoid(np.exp(display.log_density), display.axes_values[0]))
    step = display.axes_values[1][1] - display.axes_values[1][0]
    assert mass * step == pytest.approx(1.0, abs=0.02)


def test_rows_without_holes_are_drawn_over_the_map(line):
    rows = line.sample(20, random_state=0)[0]
    rows[:5, 1], rows[5, 2] = np.nan, np.nan
    display = DensityDisplay.from_estimator(
        line, rows, features=(0, 1), grid_resolution=5, data_kwargs={"c": np.arange(15.0), "lw": 2}
    )
    np.testing.assert_array_equal(display.data_.get_offsets(), rows[5:, :2])
    np.testing.assert_array_equal(display.data_.get_array(), np.arange(15.0))
    assert display.data_.get_linewidth()[0] == 2
    far = DensityDisplay.from_estimator(line, [[50.0, -60.0, 0.0]], grid_resolution=5)
    assert far.axes_values[0][-1] > 50.0
    assert far.axes_values[1][0] < -60.0


def test_one_feature_is_a_curve_over_a_histogram_or_over_marks(line):
    rows = line.sample(500, random_state=0)[0]
    plain = DensityDisplay.from_estimator(line, rows, features=-1, window=(-20.0, 20.0))
    latent, density = plain.density_.get_data()
    assert trapezoid(density, latent) == pytest.approx(1.0, abs=QUADRATURE)
    assert plain.ax_.get_xlabel() == "feature 2"
    values, edges, _ = plain.data_.get_data()
    assert np.sum(values * np.diff(edges)) == pytest.approx(1.0)
    assert edges[0] == rows[:, 2].min()
    assert plain.colorbar_ is None
    log = DensityDisplay.from_estimator(line, rows, features=[2], window=(-20.0, 20.0), log=True)
    np.testing.assert_array_equal(np.exp(log.density_.get_ydata()), density)
    np.testing.assert_array_equal(log.data_.get_xdata(), rows[:, 2])


def test_features_by_name():
    frame = pd.DataFrame(make_wave(40, random_state=0), columns=["time", "height"])
    model = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0).fit(frame)
    display = DensityDisplay.from_estimator(
        model, frame, features=["height", "time"], grid_resolution=4
    )
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("height", "time")
    np.testing.assert_array_equal(display.data_.get_offsets(), frame[["height", "time"]])
    assert DensityDisplay.from_estimator(model, grid_resolution=4).feature_names == [
        "time",
        "height",
    ]
    with pytest.raises(ValueError, match=r"features must hold names .*'time', 'height'\], got 'x'"):
        DensityDisplay.from_estimator(model, features=["x", "time"])
