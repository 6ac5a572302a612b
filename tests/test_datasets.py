"""Toy data: what may be asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from skdgn.datasets import make_noisy_circle, make_spiral, make_wave


@pytest.mark.parametrize("make", [make_noisy_circle, make_spiral, make_wave])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_samples": 0}, "n_samples must be a positive integer, got 0"),
        ({"n_samples": True}, "n_samples must be a positive integer, got True"),
        ({"n_samples": 1.5}, r"n_samples must be a positive integer, got 1\.5"),
        ({"noise": -0.1}, r"noise must be a non-negative number, got -0\.1"),
        ({"noise": np.nan}, "noise must be a non-negative number, got nan"),
    ],
)
def test_datasets(make: Callable[..., np.ndarray], arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**arguments)
