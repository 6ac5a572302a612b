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
import warnings
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding
from numba import types
from numba.extending import get_cython_function_address

Decorator = Callable[[Callable[..., Any]], Any]


def _warn_that_nothing_is_kept(reason: object) -> None:
    warnings.warn(
        f"Compiled functions cannot be kept, so that every process compiles them again: {reason}. "
        "Set the environment variable NUMBA_CACHE_DIR to a folder that can be written to.",
        RuntimeWarning,
        stacklevel=3,
    )


def _has_cache() -> bool:
    """Tell whether Numba finds a folder for compiled functions; it refuses them if it does not."""
    try:
        numba.njit(cache=True)(_warn_that_nothing_is_kept)
    except RuntimeError as error:
        _warn_that_nothing_is_kept(error)
        return False
    return True


KERNEL_OPTIONS = {"cache": _has_cache(), "nogil": True, "error_model": "numpy"}


class _Keeping:
    """Whether what was compiled could be written so far: a disk may be full."""

    has_failed = False


def _make_decorator(**options: Any) -> Decorator:
    compile_later = numba.njit(**KERNEL_OPTIONS, **options)

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = compile_later(function)
        if numba.config.DISABLE_JIT:  # then it is the function itself
            return dispatcher
        save = dispatcher._cache.save_overload

        def try_to_save(signature: Any, data: Any) -> None:
            try:
                save(signature, data)
            except OSError as error:
                if not _Keeping.has_failed:
                    _Keeping.has_failed = True
                    _warn_that_nothing_is_kept(error)

        dispatcher._cache.save_overload = try_to_save
        return dispatcher

    return decorate


kernel = _make_decorator()
# For functions with a single caller: compiled as a part of it, not on their own before.
part_kernel = _make_decorator(inline="always")
# For small functions within hot loops.  Where all calls are inlined, Numba does not count
# references to arrays either, which takes longer than many an integral.
inlined_kernel = _make_decorator(forceinline=True)
# Sums over features may be added up in any order, and with fused operations: twice as fast.
sum_kernel = _make_decorator(fastmath={"reassoc", "contract"})

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def _special_function(name: str, n_arguments: int) -> Any:
    """Make ``scipy.special.<name>`` (real arguments) callable inside kernels."""
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
    "KERNEL_OPTIONS",
    "LOG_SQRT_2PI",
    "SQRT_HALF",
    "erfcx",
    "inlined_kernel",
    "kernel",
    "ndtri",
    "owens_t",
    "part_kernel",
    "sum_kernel",
]
