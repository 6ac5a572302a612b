"""Quantiles of a truncated normal variable."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._geometry.truncated_draws import log_integral, quantile


@pytest.mark.parametrize(
    ("lower", "upper"), [(-1.0, 2.0), (5.0, 6.0), (50.0, np.inf), (-9.0, -8.9)]
)
def test_quantiles_invert_integrals(lower: float, upper: float) -> None:
    slope = 0.5
    whole = log_integral(slope, lower, upper)
    for uniform in (1e-6, 0.1, 0.5, 0.9):
        part = log_integral(slope, lower, quantile(slope, lower, upper, uniform))
        assert np.exp(part - whole) == pytest.approx(uniform, rel=1e-9)
