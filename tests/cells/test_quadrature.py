"""Quadrature rules: the tables, by the polynomials they integrate exactly."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._cells import quadrature

# Sums of fifteen products of numbers with sixteen digits.
ROUNDING = 2e-15

# Nodes and weights on [0, 1], and the highest degree that is integrated exactly.
RULES = {
    "short": (quadrature.SHORT_NODES, quadrature.SHORT_WEIGHTS, 15),
    "long": (quadrature.LONG_NODES, quadrature.LONG_WEIGHTS, 31),
    "Kronrod": (quadrature.KRONROD_NODES, quadrature.KRONROD_WEIGHTS, 22),
    "Gauss inside Kronrod": (quadrature.KRONROD_NODES, quadrature.KRONROD_GAUSS_WEIGHTS, 13),
}


@pytest.mark.parametrize("rule", RULES)
def test_polynomials_are_integrated_exactly(rule: str) -> None:
    nodes, weights, highest = RULES[rule]
    for degree in range(highest + 1):
        # About the middle, where powers do not cancel; odd powers vanish.
        integral = weights @ (2.0 * nodes - 1.0) ** degree
        expected = 1.0 / (degree + 1) if degree % 2 == 0 else 0.0
        assert integral == pytest.approx(expected, abs=ROUNDING)


@pytest.mark.parametrize("rule", RULES)
def test_the_next_even_power_is_not(rule: str) -> None:
    """The degrees above are the highest ones, so that a wrong table cannot pass."""
    nodes, weights, highest = RULES[rule]
    degree = highest + 2 - highest % 2
    error = weights @ (2.0 * nodes - 1.0) ** degree - 1.0 / (degree + 1)
    assert abs(error) > np.finfo(float).eps
