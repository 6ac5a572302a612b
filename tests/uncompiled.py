"""Kernels as plain Python (``NUMBA_DISABLE_JIT=1``), with the arithmetic of compiled code.

There, logarithms of zero, divisions by zero and overflows have values; Python's `math` raises.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
from scipy import special

import skdgn

IS_COMPILED = not numba.config.DISABLE_JIT

_ARITHMETIC = SimpleNamespace(
    **{name: getattr(math, name) for name in dir(math) if not name.startswith("_")}
    | {name: getattr(np, name) for name in ("cosh", "exp", "expm1", "log", "log1p", "sqrt")}
    | {"asinh": np.arcsinh, "erf": special.erf, "erfc": special.erfc}
)


def use_compiled_arithmetic() -> None:
    """Let every module of the package compute as its kernels do when they are compiled."""
    np.seterr(all="ignore")
    for package in pkgutil.walk_packages(skdgn.__path__, "skdgn."):
        module: Any = importlib.import_module(package.name)
        if getattr(module, "math", None) is math:
            module.math = _ARITHMETIC
