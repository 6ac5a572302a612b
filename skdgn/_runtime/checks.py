"""Numbers and arrays as users pass them, refused by name."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdgn._runtime.types import Floats


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, which True and False are not."""
    # NumPy's booleans are not registered as integers, but Python's are.
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_integer(value: Any, name: str, smallest: int = 1, or_none: str = "") -> int:
    """Refuse what is not an integer of at least so many; ``or_none`` is " or None" if that is."""
    if not is_integer(value) or value < smallest:
        kind = "a positive integer" if smallest == 1 else f"an integer of at least {smallest}"
        raise ValueError(f"{name} must be {kind}{or_none}, got {value!r}.")
    return int(value)


def check_nonnegative(value: Any, name: str) -> float:
    """Refuse what is not a finite number of at least zero."""
    if not isinstance(value, Real) or not 0.0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be a non-negative number, got {value!r}.")
    return float(value)


def check_finite(value: Any, name: str) -> float:
    """Refuse what is not a finite number, which True and False are not."""
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}.")
    return float(value)


def finite_array(values: ArrayLike, name: str) -> Floats:
    """Copy to float64 and refuse what is not a finite number."""
    try:
        array = np.array(values)
        # NumPy would drop imaginary parts, with no more than a warning.
        if np.iscomplexobj(array):
            raise TypeError("complex numbers have no place here")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}.") from error
    if not np.all(np.isfinite(array)):
        bad = array[~np.isfinite(array)].flat[0]
        raise ValueError(f"{name} must be finite, got {bad}.")
    return array
