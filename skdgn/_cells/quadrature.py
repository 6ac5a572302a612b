"""Gauss-Legendre rules on [0, 1] for integrands whose exponent varies little over a panel.

The error of the n-point rule for exp(-x v) on [0, 1] is x^2n (n!)^4 / ((2n + 1) (2n)!^3).  It is
below 1e-16 of the integral as long as the exponent varies by at most the `*_RANGE` given here.
"""

from __future__ import annotations

import numpy as np

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
KRONROD_GAUSS_WEIGHTS[1::2] = np.polynomial.legendre.leggauss(7)[1] / 2.0
# The Kronrod rule is this accurate as long as the exponent varies by at most its range.
KRONROD_RANGE = 7.0

# exp(-44) is 8e-20: what lies beyond cannot change a sum in double precision.
NEGLIGIBLE_EXPONENT = 44.0
