"""SizePathDisplay: what was tried, and what was chosen."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from skdgn import DGNMixture, SizePathDisplay
from skdgn.datasets import make_wave


@pytest.fixture(scope="module")
def mixture() -> DGNMixture:
    X = make_wave(80, random_state=0)
    return DGNMixture(n_networks="auto", criterion="bic", random_state=0).fit(X)


def test_every_size_is_a_point_and_the_best_is_marked(mixture):
    figure, ax = plt.subplots()
    display = SizePathDisplay.from_estimator(mixture, ax=ax, lw=3.0)
    assert display.ax_ is ax
    assert display.figure_ is figure
    path = mixture.path_
    for line, kind in zip(display.lines_, ("full", "diag"), strict=True):
        own = path["covariance_type"] == kind
        drawn = ~np.isnan(line.get_xdata())
        np.testing.assert_array_equal(line.get_xdata()[drawn], path["n_parameters"][own])
        np.testing.assert_array_equal(line.get_ydata()[drawn], path["criterion"][own])
        # Parts of the search do not go on from each other.
        assert (~drawn).sum() == len(set(path["part"][own])) - 1
        assert line.get_linewidth() == 3.0
    assert len(set(path["part"])) > 2
    assert display.best_.get_ydata() == [path["criterion"].min()]
    assert ax.get_ylabel() == "BIC"
    figure.canvas.draw()
    ticks = [label.get_text() for label in ax.get_xticklabels(which="both") if label.get_text()]
    assert len(ticks) > 1
    assert all(text.isdigit() for text in ticks)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["full noise", "diag noise", "chosen"]
    assert display.plot().figure_ is not figure


def test_latent_dimensions_are_named_if_they_differ():
    path = {
        "n_parameters": [5, 9],
        "n_components": [1, 2],
        "covariance_type": ["diag", "diag"],
        "criterion": [1.0, 2.0],
    }
    labels = [line.get_label() for line in SizePathDisplay(path=path).plot().lines_]
    assert labels == ["diag noise, n_components=1", "diag noise, n_components=2"]
