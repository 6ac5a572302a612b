"""PosteriorDisplay: the density of the latent point, given a sample."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import trapezoid

from skdgn import (
    LatentPartitionDisplay,
    PiecewiseAffineDGN,
    PosteriorDisplay,
)

# A sum over a grid of 200 points is an integral to this.
QUADRATURE = 1e-3


def borders_of(model: PiecewiseAffineDGN) -> np.ndarray:
    lower = model.partition_.cells.lower
    return np.sort(lower[np.isfinite(lower)])


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
