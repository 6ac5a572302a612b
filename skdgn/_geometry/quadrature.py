"""Gauss rules on [0, 1] for Gaussian integrands, and how many nodes such an integrand needs.

The error of the n-point Gauss-Legendre rule for exp(-x v) on [0, 1] is x^2n (n!)^4 / ((2n + 1)
(2n)!^3).  It is below 1e-16 of the integral as long as the exponent varies by at most the `*_RANGE`
given here.  Where less accuracy will do, or a pole is near, `nodes_needed` tells how many nodes.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from skdgn._runtime import inlined_kernel

# Row n holds the nodes and weights of the n-point Gauss-Legendre rule on [0, 1].  They are stored,
# not computed: NumPy's weights lose two digits at the ends, where the largest values of our
# integrands are, and not every system has numbers that are longer than double precision.
MOST_NODES = 40
GAUSS_NODES = np.zeros((MOST_NODES + 1, MOST_NODES))
GAUSS_WEIGHTS = np.zeros((MOST_NODES + 1, MOST_NODES))
_first_halves = iter(np.loadtxt(Path(__file__).with_name("gauss_legendre.txt")))
for _n in range(1, MOST_NODES + 1):
    for _k in range((_n + 1) // 2):
        _node, _weight = next(_first_halves)
        GAUSS_NODES[_n, [_k, _n - 1 - _k]] = _node, 1.0 - _node
        GAUSS_WEIGHTS[_n, [_k, _n - 1 - _k]] = _weight

SHORT_NODES, SHORT_WEIGHTS = GAUSS_NODES[8, :8], GAUSS_WEIGHTS[8, :8]
SHORT_RANGE = 2.5

LONG_NODES, LONG_WEIGHTS = GAUSS_NODES[16, :16], GAUSS_WEIGHTS[16, :16]
LONG_RANGE = 12.0

# Gauss-Kronrod, 15 points on [0, 1]; every second node belongs to the 7-point Gauss rule.
_KRONROD = np.array(
    [
        [0.9914553711208126, 0.0229353220105292],
        [0.9491079123427585, 0.0630920926299786],
        [0.8648644233597691, 0.1047900103222502],
        [0.7415311855993944, 0.1406532597155259],
        [0.5860872354676911, 0.1690047266392679],
        [0.4058451513773972, 0.1903505780647854],
        [0.2077849550078985, 0.2044329400752989],
        [0.0000000000000000, 0.2094821410847278],
    ]
)
KRONROD_NODES = np.concatenate([-_KRONROD[:, 0], _KRONROD[-2::-1, 0]]) / 2.0 + 0.5
KRONROD_WEIGHTS = np.concatenate([_KRONROD[:, 1], _KRONROD[-2::-1, 1]]) / 2.0
KRONROD_GAUSS_WEIGHTS = np.zeros(15)
KRONROD_GAUSS_WEIGHTS[1::2] = GAUSS_WEIGHTS[7, :7]
# The Kronrod rule is this accurate as long as the exponent varies by at most its range.
KRONROD_RANGE = 7.0

# exp(-44) is 8e-20: what lies beyond cannot change a sum in double precision.
NEGLIGIBLE_EXPONENT = 44.0

# -log of the accuracy at which a rule leaves nothing but rounding errors.
FULL_ACCURACY = 40.0
# Covers the constants of the error bound, and that an integral is less than its length times the
# largest value.
_ACCURACY_MARGIN = 4.0
# 2 n over the accuracy, roughly, for which the ellipse is chosen.
_EFFORT = 1.25
# The ellipse may come this close to that through the pole, as a share of its sum of half-axes.
_POLE_SHARE = 0.85


@inlined_kernel
def nodes_needed(distance: float, half_length: float, pole: float, accuracy: float) -> int:
    """Number of Gauss-Legendre nodes for exp(-t^2/2), or that over a polynomial, on an interval.

    Parameters
    ----------
    distance : float
        Distance of the interval's middle from zero.
    half_length : float
    pole : float
        Mean distance of the nearest pole (in the complex plane) from the interval's two ends.
    accuracy : float
        -log of the error wanted, relative to the largest value times the length.

    Returns
    -------
    n_nodes : int
        May exceed MOST_NODES.

    Notes
    -----
    If the integrand is analytic within the ellipse with foci at the interval's ends and half-axes a
    and b (in half-lengths), and grows there by at most a factor e^g, the n-point rule's error is
    e^g (a + b)^-2n but for a constant (Trefethen, *Is Gauss quadrature better than
    Clenshaw-Curtis?*, 2008, theorem 4.5).  Any ellipse will do; the one chosen is nearly the best
    as long as n is not much smaller than the accuracy.
    """
    accuracy += _ACCURACY_MARGIN
    square = half_length * half_length
    slope = 0.5 * distance * half_length
    r = 2.0 * _EFFORT * accuracy / (slope + math.sqrt(slope * slope + square * _EFFORT * accuracy))
    # The ellipse through the pole has this half-axis.
    a = pole / half_length
    r = min(r, _POLE_SHARE * (a + math.sqrt(max(0.0, a * a - 1.0))))
    n_nodes = MOST_NODES + 1
    if r > 1.1:
        a = 0.5 * (r + 1.0 / r)
        b_square = a * a - 1.0
        sum_square = a * a + b_square
        if distance * a > half_length * sum_square:
            growth = distance * half_length * (a - 1.0) - 0.5 * square * b_square
        else:
            growth = 0.5 * b_square * (square - distance * distance / sum_square)
            apart = max(0.0, distance - half_length)
            growth += 0.5 * apart * apart
        n_nodes = math.ceil((accuracy + growth) / (2.0 * math.log(r)))
    return n_nodes
