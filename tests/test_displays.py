"""What displays draw: the regions, densities and curves that the model has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import LogNorm, to_rgba
from scipy.integrate import trapezoid
from sklearn.exceptions import NotFittedError

from skdgn import (
    DensityDisplay,
    LatentPartitionDisplay,
    LikelihoodCurveDisplay,
    PiecewiseAffineDGN,
    PosteriorDisplay,
)
from skdgn.datasets import make_wave
from tests.networks import random_network

# A sum over a grid of 200 points is an integral to this.
QUADRATURE = 1e-3


def model_of(n_components: int, units: int) -> PiecewiseAffineDGN:
    network = random_network(n_components, (units,), activation="abs", seed=1)
    return PiecewiseAffineDGN.from_network(network.coefs, network.intercepts, 0.1, activation="abs")


@pytest.fixture(scope="module")
def line() -> PiecewiseAffineDGN:
    return model_of(1, 5)


@pytest.fixture(scope="module")
def plane() -> PiecewiseAffineDGN:
    return model_of(2, 6)


@pytest.fixture(scope="module")
def row(plane: PiecewiseAffineDGN) -> np.ndarray:
    return plane.sample(1, random_state=0)[0]


def regions_of(model: PiecewiseAffineDGN, latent: np.ndarray) -> np.ndarray:
    return model._fitted_model().locate(latent)


def area_of(corners: np.ndarray) -> float:
    """Gauss's formula; the length of an interval."""
    if corners.shape[1] == 1:
        return float(corners[1, 0] - corners[0, 0])
    x, y = corners.T
    return 0.5 * float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))


def borders_of(model: PiecewiseAffineDGN) -> np.ndarray:
    lower = model.partition_.cells.lower
    return np.sort(lower[np.isfinite(lower)])


# --- LatentPartitionDisplay


@pytest.mark.parametrize("kind", ["line", "plane"])
def test_all_regions_are_drawn_once_each_in_the_color_of_its_mass(kind, request):
    model = request.getfixturevalue(kind)
    display = LatentPartitionDisplay.from_estimator(model, window=(-100.0, 100.0))
    assert len(display.cells_.get_paths()) == model.n_regions_
    # They tile the window...
    areas = [area_of(corners) for corners in display.corners]
    assert min(areas) > 0.0
    assert sum(areas) == pytest.approx(200.0 ** len(display.window), rel=1e-12)
    # ... each in the place of the region whose mass it shows.
    centers = np.array([corners.mean(axis=0) for corners in display.corners])
    regions = regions_of(model, centers)
    assert sorted(regions) == list(range(model.n_regions_))
    np.testing.assert_array_equal(display.cells_.get_array(), model.weights_[regions])
    scale = model.weights_[regions] / model.weights_.max()
    display.figure_.canvas.draw()
    np.testing.assert_array_equal(display.cells_.get_facecolor(), display.cells_.cmap(scale))
    assert display.colorbar_.ax.get_ylabel() == "prior mass of the region"


def test_polygons_are_drawn_where_their_corners_are(plane):
    display = LatentPartitionDisplay.from_estimator(plane)
    for path, corners in zip(display.cells_.get_paths(), display.corners, strict=True):
        np.testing.assert_array_equal(path.vertices[:-1], corners)
    assert display.ax_.get_xlim() == display.ax_.get_ylim() == (-4.0, 4.0)
    assert display.prior_ is None


def test_intervals_are_bands_under_the_prior_density(line):
    display = LatentPartitionDisplay.from_estimator(line, window=(-2.0, 3.0), lw=2.0)
    borders = borders_of(line)
    borders = borders[(borders > -2.0) & (borders < 3.0)]
    assert len(borders) > 1
    bands = [path.get_extents() for path in display.cells_.get_paths()]
    np.testing.assert_array_equal(sorted(b.x0 for b in bands), [-2.0, *borders])
    np.testing.assert_array_equal(sorted(b.x1 for b in bands), [*borders, 3.0])
    assert display.cells_.get_linewidth()[0] == 2.0
    latent, density = display.prior_.get_data()
    # The area between two borders is the mass that the color shows.
    inner = next(i for i, b in enumerate(bands) if b.x0 == borders[0])
    between = np.linspace(borders[0], borders[1], 200)
    mass = trapezoid(np.interp(between, latent, density), between)
    assert display.values[inner] == pytest.approx(mass, rel=QUADRATURE)


def test_regions_outside_the_window_are_left_out(plane):
    window = np.array([[0.2, 0.9], [-0.7, 0.1]])
    display = LatentPartitionDisplay.from_estimator(plane, window=window)
    axes = [np.linspace(lowest, highest, 300) for lowest, highest in window]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    assert len(display.corners) == len(np.unique(regions_of(plane, grid))) < plane.n_regions_
    assert sum(map(area_of, display.corners)) == pytest.approx(0.7 * 0.8, rel=1e-12)


def test_a_linear_model_has_one_region():
    model = PiecewiseAffineDGN.from_network([np.eye(2)], [[0.0, 0.0]], 1.0, activation="relu")
    (corners,) = LatentPartitionDisplay.from_estimator(model).corners
    assert area_of(corners) == 64.0


@pytest.mark.parametrize(
    ("n_rows", "label"), [(1, "responsibility of"), (3, "mean responsibility of")]
)
def test_regions_in_the_color_of_their_responsibilities(plane, n_rows, label):
    rows = plane.sample(n_rows, random_state=1)[0]
    display = LatentPartitionDisplay.from_estimator(plane, rows, window=(-100.0, 100.0))
    centers = np.array([corners.mean(axis=0) for corners in display.corners])
    expected = plane.predict_proba(rows).mean(axis=0)[regions_of(plane, centers)]
    np.testing.assert_array_equal(display.cells_.get_array(), expected)
    assert display.colorbar_.ax.get_ylabel().startswith(label)


# --- DensityDisplay


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


# --- PosteriorDisplay


def test_the_curve_is_the_posterior_density(line):
    row = line.sample(1, random_state=2)[0]
    posterior = line.posterior(row)
    display = PosteriorDisplay.from_estimator(line, row, window=(-4.0, 4.0), grid_resolution=4000)
    latent, density = display.density_.get_data()
    np.testing.assert_allclose(density, np.exp(posterior.log_density(latent[:, None])[0]))
    assert trapezoid(density, latent) == pytest.approx(1.0, abs=QUADRATURE)
    borders = borders_of(line)
    drawn = [segment[0, 0] for segment in display.borders_.get_segments()]
    np.testing.assert_array_equal(drawn, borders[np.abs(borders) < 4.0])
    (z,), (height,) = display.mean_.get_data()
    assert z == posterior.mean[0, 0]
    assert height == pytest.approx(np.exp(posterior.log_density([[z]])[0, 0]))
    (z,), (height,) = display.mode_.get_data()
    assert z == posterior.mode()[0, 0]
    assert density.max() <= height * (1.0 + 1e-9)


def test_the_map_is_the_posterior_density(plane, row):
    display = PosteriorDisplay.from_estimator(plane, row, window=[(-3.0, 5.0), (-6.0, 3.0)])
    posterior = plane.posterior(row)
    density = display.density_.get_array()
    axes = display.axes_values
    total = trapezoid(trapezoid(density, axes[0]), axes[1])
    assert total == pytest.approx(1.0, abs=QUADRATURE)
    points = np.stack(np.meshgrid(*axes), axis=-1)
    mean = [trapezoid(trapezoid(density * points[..., s], axes[0]), axes[1]) for s in range(2)]
    np.testing.assert_allclose(mean, posterior.mean[0], atol=QUADRATURE)
    np.testing.assert_array_equal(np.ravel(display.mean_.get_data()), posterior.mean[0])
    np.testing.assert_array_equal(np.ravel(display.mode_.get_data()), posterior.mode()[0])
    assert density.max() <= display.mode_density * (1.0 + 1e-9)
    # The borders are those of the regions in the window.
    limits = [display.ax_.get_xlim(), display.ax_.get_ylim()]
    cells = LatentPartitionDisplay.from_estimator(plane, window=limits)
    assert len(display.borders_.get_paths()) == len(cells.corners) > 1
    for path, corners in zip(display.borders_.get_paths(), cells.corners, strict=True):
        np.testing.assert_array_equal(path.vertices[:-1], corners)


def test_without_a_window_almost_all_of_the_posterior_is_drawn(line, plane, row):
    display = PosteriorDisplay.from_estimator(plane, row)
    mass = trapezoid(trapezoid(display.density, display.axes_values[0]), display.axes_values[1])
    assert mass == pytest.approx(1.0, abs=0.01)
    display = PosteriorDisplay.from_estimator(line, [[np.nan] * 3])  # the prior
    assert trapezoid(display.density, display.axes_values[0]) == pytest.approx(1.0, abs=0.01)
    assert display.axes_values[0][0] > -8.0


def test_what_is_outside_the_window_is_not_drawn(line):
    row = line.sample(1, random_state=2)[0]
    mode = line.posterior(row).mode()[0, 0]
    display = PosteriorDisplay.from_estimator(line, row, window=(mode + 1.0, mode + 2.0))
    assert display.mode_.get_clip_on()
    assert not PosteriorDisplay.from_estimator(line, row).mode_.get_clip_on()
    assert display.ax_.get_xlim() == (mode + 1.0, mode + 2.0)


# --- LikelihoodCurveDisplay


@pytest.fixture(scope="module")
def fits() -> dict[str, PiecewiseAffineDGN]:
    rows = make_wave(60, random_state=0)
    return {
        str(units): PiecewiseAffineDGN(
            hidden_layer_sizes=(units,), init_params="pca", tol=0.01, random_state=0
        ).fit(rows)
        for units in (2, 4)
    }


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


# --- all of them


def draw_all(line, plane, row, fits, ax) -> list:
    return [
        LatentPartitionDisplay.from_estimator(plane, ax=ax),
        DensityDisplay.from_estimator(line, grid_resolution=5, ax=ax),
        PosteriorDisplay.from_estimator(plane, row, grid_resolution=5, ax=ax),
        LikelihoodCurveDisplay.from_estimator(fits["2"], ax=ax),
    ]


def test_axes_are_those_given_or_new_ones(line, plane, row, fits):
    figure, ax = plt.subplots()
    displays = draw_all(line, plane, row, fits, ax)
    for display in displays:
        assert display.ax_ is ax
        assert display.figure_ is figure
        assert display.plot() is display
        assert display.figure_ is not figure
        assert display.ax_.figure is display.figure_
    for display in displays[:3]:
        assert display.plot(colorbar=False).colorbar_ is None


UNFITTED = PiecewiseAffineDGN()
SPACE = PiecewiseAffineDGN.from_network([np.eye(3)], [np.zeros(3)], 1.0, activation="relu")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: LatentPartitionDisplay.from_estimator(SPACE), "estimator .* n_components=3"),
        (lambda m: PosteriorDisplay.from_estimator(SPACE, [[0.0] * 3]), "est.* n_components=3"),
        (lambda m: DensityDisplay.from_estimator("model"), "estimator must be .* got 'model'"),
        (lambda m: LikelihoodCurveDisplay.from_estimator([m, 3]), r"estimator\[1\] .* got 3"),
        (lambda m: LikelihoodCurveDisplay.from_estimator({"a": 1}), r"estimator\['a'\] .* got 1"),
        (lambda m: LikelihoodCurveDisplay.from_estimator([]), r"estimator must hold .* got \[\]"),
        (lambda m: LikelihoodCurveDisplay.from_estimator(m), "estimator must .* got n_iter_=0"),
        (lambda m: LatentPartitionDisplay.from_estimator(m, window=1.0), r"window .* got 1\.0"),
        (lambda m: LatentPartitionDisplay.from_estimator(m, window=(1, 0)), r"window .* \(1, 0\)"),
        (lambda m: PosteriorDisplay.from_estimator(m, [[0.0] * 3], window="ab"), "window .* 'ab'"),
        (lambda m: DensityDisplay.from_estimator(m, window=[(0, 1)]), r"window .* got \[\(0, 1\)"),
        (lambda m: DensityDisplay.from_estimator(m, window=(0, np.inf)), "window .* inf"),
        (lambda m: DensityDisplay.from_estimator(m, grid_resolution=1), "grid_resolution .* got 1"),
        (lambda m: DensityDisplay.from_estimator(m, grid_resolution=9.5), r"grid_res.* got 9\.5"),
        (lambda m: DensityDisplay.from_estimator(m, features=[0, 0]), r"features .* got \[0, 0\]"),
        (lambda m: DensityDisplay.from_estimator(m, features=[0, -3]), r"features .* got \[0, -3"),
        (lambda m: DensityDisplay.from_estimator(m, features=[0, 3]), "features .* 3 .* got 3"),
        (
            lambda m: DensityDisplay.from_estimator(m, features="x"),
            "features .* no names .* got 'x'",
        ),
        (lambda m: DensityDisplay.from_estimator(m, features=[0, 1, 2]), "features .* one or two"),
        (lambda m: DensityDisplay.from_estimator(m, features=1.5), r"features .* got 1\.5"),
        (lambda m: DensityDisplay.from_estimator(m, features=[True]), "features .* got True"),
        (lambda m: DensityDisplay.from_estimator(m, plot_method="imshow"), "plot_.* got 'imshow'"),
        (lambda m: DensityDisplay.from_estimator(m, np.empty((0, 3))), "0 sample"),
        (
            lambda m: DensityDisplay.from_estimator(m, [[np.nan, 0.0, 0.0]]),
            r"X must have a sample .* features \[0, 1\]",
        ),
        (lambda m: PosteriorDisplay.from_estimator(m, np.empty((0, 3))), "0 sample"),
        (lambda m: PosteriorDisplay.from_estimator(m, np.zeros((2, 3))), "X must be one .* got 2"),
        (
            lambda m: PosteriorDisplay.from_estimator(m, [[1e200] * 3]),
            "X must .* got -inf in sample 0",
        ),
        (lambda m: LatentPartitionDisplay.from_estimator(m, np.zeros((1, 2))), "2 features"),
        (lambda m: LatentPartitionDisplay.from_estimator(m, ax=3), "ax must be .* got 3"),
        (lambda m: LatentPartitionDisplay.from_estimator(UNFITTED), "not fitted yet"),
        (lambda m: DensityDisplay.from_estimator(UNFITTED), "not fitted yet"),
        (lambda m: PosteriorDisplay.from_estimator(UNFITTED, [[0.0]]), "not fitted yet"),
        (lambda m: LikelihoodCurveDisplay.from_estimator(UNFITTED), "not fitted yet"),
    ],
)
def test_errors(
    line: PiecewiseAffineDGN, call: Callable[[PiecewiseAffineDGN], object], message: str
) -> None:
    with pytest.raises((ValueError, NotFittedError), match=message):
        call(line)


def test_without_matplotlib_an_error_says_what_to_install(monkeypatch, line, plane, row, fits):
    display = LatentPartitionDisplay.from_estimator(line)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = r"requires matplotlib.* `pip install skdgn\[plot\]`"
    for call in (
        lambda: LatentPartitionDisplay.from_estimator(plane),
        lambda: DensityDisplay.from_estimator(line),
        lambda: PosteriorDisplay.from_estimator(plane, row),
        lambda: LikelihoodCurveDisplay.from_estimator(fits["2"]),
        display.plot,
    ):
        with pytest.raises(ImportError, match=message):
            call()


def test_matplotlib_is_imported_when_something_is_drawn():
    code = "import sys, skdgn; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
