"""What is asked of rows and of parameters before any work, beyond scikit-learn's own checks."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._batches import Workers
from skdgn._network import Floats
from skdgn._rows import largest_sizes, observed_weights

# Sums of squares of rows must not overflow.
_LARGEST_VALUE = 1e150


def check_observed(
    rows: NDArray[Any], row_weights: Floats, names: list[Any], workers: Workers
) -> None:
    """Refuse rows (n, D) of which a column is empty."""
    weights = observed_weights(rows, row_weights, workers)
    empty = [name for name, weight in zip(names, weights, strict=True) if weight == 0.0]
    if empty:
        raise ValueError(
            "X must have an observed value of positive weight in every column, "
            f"got none in {len(empty)} of {rows.shape[1]} columns: {empty}."
        )


def check_sizes(rows: NDArray[Any], row_weights: Floats, names: list[Any]) -> None:
    """Refuse rows (n, D) with values too large to be squared."""
    largest = largest_sizes(rows, row_weights)
    if largest.max() > _LARGEST_VALUE:
        raise ValueError(
            f"X must hold values of at most {_LARGEST_VALUE}, whose squares are finite, "
            f"got {largest.max()} in column {names[largest.argmax()]!r}. Rescale it."
        )


def check_hidden_layer_sizes(
    sizes: Sequence[int], name: str = "hidden_layer_sizes"
) -> tuple[int, ...]:
    """Refuse widths that are not positive integers."""
    for size in sizes:
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} must hold positive integers, got {size!r} in {sizes!r}.")
    return tuple(int(size) for size in sizes)


def index_of_feature(feature: Any, names: list[str], n_features: int, parameter: str) -> int:
    """Find a feature given by index or by name; ``names`` is empty if there are none."""
    if isinstance(feature, str):
        if not names:
            raise ValueError(
                f"{parameter} must hold indices, since fit has seen no names of features, "
                f"got {feature!r}."
            )
        if feature not in names:
            raise ValueError(
                f"{parameter} must hold names of features seen in fit, {names}, got {feature!r}."
            )
        return names.index(feature)
    if isinstance(feature, Integral) and not isinstance(feature, bool | np.bool_):
        if not -n_features <= int(feature) < n_features:
            raise ValueError(
                f"{parameter} must hold indices of the {n_features} features, got {feature}."
            )
        return int(feature) % n_features
    raise ValueError(f"{parameter} must hold indices or names of features, got {feature!r}.")
