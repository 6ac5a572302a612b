"""Quadrature rules: the tables, by the polynomials they integrate exactly."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from skdgn._geometry import quadrature

# Sums of fifteen products of numbers with sixteen digits.
ROUNDING = 2e-15

# Nodes and weights on [0, 1], and the highest degree that is integrated exactly.
RULES = {
    "short": (quadrature.SHORT_NODES, quadrature.SHORT_WEIGHTS, 15),
    "long": (quadrature.LONG_NODES, quadrature.LONG_WEIGHTS, 31),
    "Kronrod": (quadrature.KRONROD_NODES, quadrature.KRONROD_WEIGHTS, 22),
    "Gauss inside Kronrod": (quadrature.KRONROD_NODES, quadrature.KRONROD_GAUSS_WEIGHTS, 13),
}


def legendre(n_nodes: int, x: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """Value and slope of a Legendre polynomial, by its recurrence."""
    before, value = mp.mpf(1), x
    for k in range(2, n_nodes + 1):
        before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
    return value, n_nodes * (before - x * value) / (1 - x * x)


@pytest.mark.parametrize("n_nodes", range(1, quadrature.MOST_NODES + 1))
def test_stored_rules_are_those_of_gauss_and_legendre(n_nodes: int) -> None:
    nodes, weights = quadrature.GAUSS_NODES[n_nodes], quadrature.GAUSS_WEIGHTS[n_nodes]
    assert not nodes[n_nodes:].any()
    assert not weights[n_nodes:].any()
    assert np.all(np.diff(nodes[:n_nodes]) > 0.0)
    with mp.workdps(40):
        for node, weight in zip(nodes[:n_nodes], weights[:n_nodes], strict=True):
            x = 2 * mp.mpf(float(node)) - 1
            for _ in range(3):  # Newton's method, from sixteen digits
                value, slope = legendre(n_nodes, x)
                x -= value / slope
            # To half a unit in the last place; above 1/2, nodes are one minus another.
            error = abs(mp.mpf(float(node)) - (1 + x) / 2)
            assert error <= np.spacing(node) * (0.5 if node <= 0.5 else 1.0)
            assert weight == float(1 / ((1 - x * x) * legendre(n_nodes, x)[1] ** 2))


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
