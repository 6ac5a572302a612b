"""What all displays have in common: axes, errors, and matplotlib only where it is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skdgn import (
    DensityDisplay,
    LatentPartitionDisplay,
    LikelihoodCurveDisplay,
    PiecewiseAffineDGN,
    PosteriorDisplay,
    SizePathDisplay,
)


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
        (lambda m: SizePathDisplay.from_estimator(UNFITTED), "not fitted yet"),
        (lambda m: SizePathDisplay.from_estimator(m), "estimator must have .* left to it"),
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
    message = r"requires matplotlib.* `pip install \"skdgn\[plot\]\"`"
    for call in (
        lambda: LatentPartitionDisplay.from_estimator(plane),
        lambda: DensityDisplay.from_estimator(line),
        lambda: PosteriorDisplay.from_estimator(plane, row),
        lambda: LikelihoodCurveDisplay.from_estimator(fits["2"]),
        lambda: SizePathDisplay.from_estimator(line),
        display.plot,
    ):
        with pytest.raises(ImportError, match=message):
            call()
