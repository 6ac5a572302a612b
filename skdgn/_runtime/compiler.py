"""How this package compiles its hot loops, and the special functions they call.

Every kernel is compiled by Numba with the options below: ``nogil`` so that joblib threads run in
parallel, ``cache`` so that a machine compiles once (where it has a folder for that), NumPy's error
model because a division by zero has a meaning in our formulas (an unbounded edge, a distance of
zero).

SciPy's special functions are reached by their addresses.  They are registered as named symbols
rather than as ctypes pointers, since Numba refuses to cache a function that holds a pointer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding
from numba import types
from numba.extending import get_cython_function_address
from scipy import special

from skdgn._runtime.linking import Kernel, KernelCompiler, warn_that_nothing_is_kept

Decorator = Callable[[Callable[..., Any]], Any]


def _has_cache() -> bool:
    """Tell whether Numba finds a folder for compiled functions; it refuses them if it does not."""
    try:
        numba.njit(cache=True)(warn_that_nothing_is_kept)
    except RuntimeError as error:
        warn_that_nothing_is_kept(error)
        return False
    return True


_HAS_CACHE = _has_cache()
_OPTIONS = {"nopython": True, "nogil": True, "error_model": "numpy"}
# For overloads, which only kernels call.
PART_OPTIONS = _OPTIONS | {"pipeline_class": KernelCompiler}


def _make_decorator(**options: Any) -> Decorator:
    def decorate(function: Callable[..., Any]) -> Any:
        if numba.config.DISABLE_JIT:
            return function
        dispatcher = Kernel(function, targetoptions=_OPTIONS | options)
        if _HAS_CACHE:
            dispatcher.enable_caching()
        return dispatcher

    return decorate


kernel = _make_decorator()
# For functions with a single caller: compiled as a part of it, not on their own before.
part_kernel = _make_decorator(inline="always")
# For small functions within hot loops.
inlined_kernel = _make_decorator(forceinline=True)
# Sums over features may be added up in any order, and with fused operations: twice as fast.
_ANY_ORDER = {"reassoc", "contract"}
sum_kernel = _make_decorator(fastmath=_ANY_ORDER)
inlined_sum_kernel = _make_decorator(fastmath=_ANY_ORDER, forceinline=True)

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def _special_function(name: str, n_arguments: int) -> Any:
    """Make ``scipy.special.<name>`` (real arguments) callable inside kernels."""
    if numba.config.DISABLE_JIT:
        return getattr(special, name)
    # Fused functions (float and double) carry the prefix of their double version.
    for mangled in (name, f"__pyx_fuse_1{name}"):
        try:
            address = get_cython_function_address("scipy.special.cython_special", mangled)
        except ValueError:
            continue
        break
    else:
        raise ImportError(f"scipy.special.cython_special has no function {name}")
    symbol = f"skdgn_{name}"
    binding.add_symbol(symbol, address)
    signature = types.float64(*(types.float64,) * n_arguments)
    return types.ExternalFunction(symbol, signature)


owens_t = _special_function("owens_t", 2)
erfcx = _special_function("erfcx", 1)
ndtri = _special_function("ndtri", 1)


__all__ = [
    "INV_SQRT_2PI",
    "LOG_SQRT_2PI",
    "PART_OPTIONS",
    "SQRT_HALF",
    "erfcx",
    "inlined_kernel",
    "inlined_sum_kernel",
    "kernel",
    "ndtri",
    "owens_t",
    "part_kernel",
    "sum_kernel",
]
