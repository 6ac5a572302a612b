"""Networks with far too many regions are refused before any are listed."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from skdgn import PiecewiseAffineDGN
from skdgn._partition import build_partition, refuse_hopeless
from skdgn._partition.foresight import estimate_regions
from skdgn.layers import Conv2d, Dense, LeakyReLU, MaxOut, ReLU, Reshape
from tests.networks import random_network


@pytest.mark.parametrize("widths", [(), (5,), (12, 6), (30, 20)])
def test_estimates_are_not_far_above_what_there_is(widths: tuple[int, ...]) -> None:
    network = random_network(2, widths)
    n_regions = len(build_partition(network))
    estimate = estimate_regions(network, 20_000)
    assert 0.3 * n_regions <= estimate <= 1.1 * n_regions


def test_only_what_is_hopeless_is_refused() -> None:
    network = random_network(2, (30, 20))
    n_regions = len(build_partition(network))
    refuse_hopeless(network, n_regions)
    with pytest.raises(MemoryError, match=r"has more than 100 regions .* \(about [\d,]+, by .*\)"):
        refuse_hopeless(network, 100)
    refuse_hopeless(random_network(1, (300, 300)), 1)  # a line is cut at once


@pytest.mark.parametrize("n_components", [2, 3])
def test_regions_of_a_hopeless_network_are_not_listed(n_components: int, monkeypatch) -> None:
    monkeypatch.setattr("skdgn._posterior.model.build_partition", never)
    rng = np.random.default_rng(0)
    sizes = [n_components, 900, 900, 10]
    coefs = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in itertools.pairwise(sizes)]
    intercepts = [0.5 * rng.normal(size=size) for size in sizes[1:]]
    began = time.process_time()
    model = PiecewiseAffineDGN.from_network(coefs, intercepts, 0.1, activation="relu")
    assert not hasattr(model, "n_regions_")
    assert time.process_time() - began < 20.0


def test_hopeless_layers_are_refused_before_a_fit(monkeypatch) -> None:
    monkeypatch.setattr("skdgn._fit.network_fit.starting_network", never)
    rows = np.random.default_rng(0).normal(size=(30, 16))
    for layers in (
        [Dense(1600), MaxOut(2)],
        [Dense(400), ReLU(), Reshape((1, 20, 20)), Conv2d(3, 3), LeakyReLU(0.1)],
    ):
        with pytest.raises(MemoryError, match=r"hidden_layers=\[Dense.* has more than"):
            PiecewiseAffineDGN(2, hidden_layers=layers).fit(rows)


def never(*_: object) -> None:
    raise AssertionError("refused before any work")
