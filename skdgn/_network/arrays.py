"""Arrays from users."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from skdgn._runtime import Floats


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
