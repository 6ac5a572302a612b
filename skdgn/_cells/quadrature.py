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

# exp(-44) is 8e-20: what lies beyond cannot change a sum in double precision.
NEGLIGIBLE_EXPONENT = 44.0
