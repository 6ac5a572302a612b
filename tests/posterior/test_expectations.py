"""Means of increasing functions, by distribution functions."""

import numpy as np
import pytest
from scipy.special import ndtr

from skdgn._posterior.transformed.expectations import expect


@pytest.mark.parametrize("deviation", [0.01, 1.0, 2.0])
def test_mean_and_variance_of_a_lognormal_variable(deviation: float) -> None:
    low, high = np.full((2, 1), -1e4), np.full((2, 1), 1e4)  # where exp is beyond all numbers
    found = expect(lambda y: ndtr(y / deviation), np.exp, low, high)
    mean = np.exp(deviation**2 / 2.0)
    spread = mean * np.sqrt(np.expm1(deviation**2))
    assert np.all(found.error < 2e-3 * spread)
    assert np.all(np.abs(found.mean - mean) < np.maximum(found.error, 1e-3 * spread))
    np.testing.assert_allclose(np.sqrt(found.variance), spread, rtol=0.05)


def test_a_narrow_peak_is_not_missed() -> None:
    peak = 0.1234567

    def cdf(y: np.ndarray) -> np.ndarray:
        return 0.5 * ndtr(y) + 0.5 * ndtr((y - peak) / 1e-9)

    found = expect(cdf, np.arcsinh, np.full((1, 1), -1e4), np.full((1, 1), 1e4))
    assert found.mean[0, 0] == pytest.approx(0.5 * np.arcsinh(peak), abs=1e-3)


def test_a_constant_has_no_variance() -> None:
    found = expect(lambda y: (y >= 2.0) * 1.0, lambda y: y, np.zeros((1, 2)), np.full((1, 2), 3.0))
    np.testing.assert_allclose(found.mean, 2.0, atol=1e-9)
    np.testing.assert_allclose(found.variance, 0.0, atol=1e-9)
