"""Gauss rules for Gaussian integrands, and how many nodes such an integrand needs.

The error of the n-point Gauss-Legendre rule for exp(-x v) on [0, 1] is x^2n (n!)^4 / ((2n + 1) (2n)!^3).
It is below 1e-16 of the integral as long as the exponent varies by at most the `*_RANGE` given
here.  Where less accuracy will do, `nodes_needed` finds a shorter rule.
"""

from __future__ import annotations

import math

import numpy as np

from skdgn._jit import kernel

_SHORT, _LONG = np.polynomial.legendre.leggauss(8), np.polynomial.legendre.leggauss(16)

SHORT_NODES, SHORT_WEIGHTS = (_SHORT[0] + 1.0) / 2.0, _SHORT[1] / 2.0
SHORT_RANGE = 2.5

LONG_NODES, LONG_WEIGHTS = (_LONG[0] + 1.0) / 2.0, _LONG[1] / 2.0
LONG_RANGE = 12.0

# Gauss-Kronrod, 15 points on [0, 1]; every second node belongs to the 7-point Gauss rule.
_KRONROD = np.array(
    [
        [0.9914553711208126, 0.0229353220105292],
        [0.9491079123427585, 0.0630920926299786],
        [0.8648644233597691, 0.1047900103222502],
        [0.7415311855993944, 0.1406532597159259],
        [0.5860872354676911, 0.1690047266392679],
        [0.4058451513773972, 0.1903505780647854],
        [0.2077849550078985, 0.2044329400752989],
        [0.0000000000000000, 0.2094821410847278],
    ]
)
KRONROD_NODES = np.concatenate([-_KRONROD[:, 0], _KRONROD[-2::-1, 0]]) / 2.0 + 0.5
KRONROD_WEIGHTS = np.concatenate([_KRONROD[:, 1], _KRONROD[-2::-1, 1]]) / 2.0
KRONROD_GAUSS_WEIGHTS = np.zeros(15)
KRONROD_GAUSS_WEIGHTS[1::2] = np.polynomial.legendre.leggauss(7)[1] / 2.0
# The Kronrod rule is this accurate as long as the exponent varies by at most its range.
KRONROD_RANGE = 7.0

# exp(-44) is 8e-20: what lies beyond cannot change a sum in double precision.
NEGLIGIBLE_EXPONENT = 44.0

# Gauss-Legendre on [-1, 1]; row n holds the nodes and weights of the n-point rule.
MOST_NODES = 24
GAUSS_NODES = np.zeros((MOST_NODES + 1, MOST_NODES))
GAUSS_WEIGHTS = np.zeros((MOST_NODES + 1, MOST_NODES))
for _n in range(1, MOST_NODES + 1):
    GAUSS_NODES[_n, :_n], GAUSS_WEIGHTS[_n, :_n] = np.polynomial.legendre.leggauss(_n)

# -log of the accuracy at which a rule leaves nothing but rounding errors.
FULL_ACCURACY = 37.0
# Covers the constants of the error bound, and that an integral is less than its length times the largest value.
_ACCURACY_MARGIN = 4.0
# The ellipse may come this close to a pole, as a share of the pole's distance.
_POLE_SHARE = 0.8


@kernel
def nodes_needed(slope: float, half_length: float, pole: float, accuracy: float) -> int:
    """Number of Gauss-Legendre nodes for exp(-t^2/2), or that over a polynomial, on an interval.

    Parameters
    ----------
    slope : float
        Distance of the interval's middle from zero.
    half_length : float
    pole : float
        Distance of the nearest pole (in the complex plane) from the interval's middle.
    accuracy : float
        -log of the relative error wanted.

    Returns
    -------
    n_nodes : int
        May exceed MOST_NODES.

    Notes
    -----
    If the integrand is analytic within the ellipse with foci at the interval's ends and sum of half-axes
    r half-lengths, and grows there by at most a factor e^g, the n-point rule's error is e^g / r^2n but for a
    constant (Trefethen, *Is Gauss quadrature better than Clenshaw-Curtis?*, 2008, theorem 4.5).  Here
    g <= slope half_length ((r + 1/r) / 2 - 1) + (half_length r)^2 / 8.  Any r will do; this one
    is nearly the best where about accuracy / 4 nodes are needed.
    """
    accuracy += _ACCURACY_MARGIN
    x = slope * half_length
    square = half_length * half_length
    r = accuracy / (0.5 * x + math.sqrt(0.25 * x * x + 0.5 * square * accuracy))
    r = min(r, 2.0 * _POLE_SHARE * pole / half_length)
    if r < 1.1:
        return MOST_NODES + 1
    growth = x * (0.5 * (r + 1.0 / r) - 1.0) + 0.125 * square * r * r
    return int(math.ceil((accuracy + growth) / (2.0 * math.log(r))))
