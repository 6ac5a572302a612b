"""Models that displays show."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn import (
    PiecewiseAffineDGN,
)
from skdgn.datasets import make_wave
from tests.networks import random_network


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


@pytest.fixture(scope="module")
def fits() -> dict[str, PiecewiseAffineDGN]:
    rows = make_wave(60, random_state=0)
    return {
        str(units): PiecewiseAffineDGN(
            hidden_layer_sizes=(units,), init_params="pca", tol=0.01, random_state=0
        ).fit(rows)
        for units in (2, 4)
    }
