"""LatentPartitionDisplay: every region, once, where it is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import trapezoid

from skdgn import (
    LatentPartitionDisplay,
    PiecewiseAffineDGN,
)

# A sum over a grid of 200 points is an integral to this.
QUADRATURE = 1e-3


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
