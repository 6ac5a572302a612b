"""What is asked of samples and of parameters before any work, beyond scikit-learn's own checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._noise import KINDS
from skdgn._runtime import Floats, Workers, is_integer, observed_weights

# Sums of squares of samples must not overflow.
_LARGEST_VALUE = 1e150
# Variances of the noise must keep their digits, which those below 2e-308 do not.
_SMALLEST_VARIANCE = 1e-300
# Squares of weights, in units of their prior, must not overflow, nor their sums over regions.
_SMALLEST_PRIOR_SCALE = 1e-100
# In deviations, how far from a model samples may be for it to go on from: at 1e7 fits still ended,
# at 1e8 the systems of an M-step overflowed.
_FARTHEST = 1e6
# A column whose values differ by less, relative to their size, is constant but for rounding.
_ROUNDING = 8.0 * np.finfo(np.float64).eps


def check_observed(
    samples: NDArray[Any], sample_weights: Floats, names: list[Any], workers: Workers
) -> None:
    """Refuse samples (n, D) of which a column is empty."""
    weights = observed_weights(samples, sample_weights, workers)
    empty = [name for name, weight in zip(names, weights, strict=True) if weight == 0.0]
    if empty:
        raise ValueError(
            "X must have an observed value of positive weight in every column, "
            f"got none in {len(empty)} of {samples.shape[1]} columns: {empty}."
        )


def check_sizes(ranges: tuple[Floats, Floats], names: list[Any]) -> None:
    """Refuse values too large to be squared; ``ranges`` holds the smallest and the largest (D,)."""
    largest = np.fmax(*np.nan_to_num(np.abs(ranges)))
    if largest.max() > _LARGEST_VALUE:
        raise ValueError(
            f"X must hold values of at most {_LARGEST_VALUE}, whose squares are finite, "
            f"got {largest.max()} in column {names[largest.argmax()]!r}. Rescale it."
        )


def check_spreads(
    ranges: tuple[Floats, Floats], covariance_type: str, reg_covar: float, names: list[Any]
) -> None:
    """Refuse columns that vary so little that the variance of their noise might not be a number."""
    smallest = math.sqrt(_SMALLEST_VARIANCE / reg_covar)
    spreads = ranges[1] - ranges[0]
    varying = spreads > _ROUNDING * np.fmax(*np.abs(ranges))
    varying &= KINDS[covariance_type].sets_unit(spreads)
    small = np.flatnonzero(varying & (spreads < smallest))
    if small.size > 0:
        raise ValueError(
            f"X must vary by at least {smallest:.2g} in a column that is not constant, so that "
            f"reg_covar={reg_covar} times its variance is a number, got values from "
            f"{ranges[0][small[0]]} to {ranges[1][small[0]]} in column {names[small[0]]!r}. "
            "Rescale it."
        )


def check_prior_scale(prior_scale: float, ranges: tuple[Floats, Floats], names: list[Any]) -> None:
    """Refuse a scale of weights so small beside the columns that its square is not a number."""
    spreads = np.append(np.nan_to_num(ranges[1] - ranges[0]), 1.0)
    widest = int(spreads.argmax())
    if prior_scale < _SMALLEST_PRIOR_SCALE * spreads[widest]:
        what = "1.0" if widest == len(names) else f"that of column {names[widest]!r}"
        raise ValueError(
            f"prior_scale must be at least {_SMALLEST_PRIOR_SCALE} of the widest range of values, "
            f"{what} ({spreads[widest]}), got {prior_scale}. weight_prior=None has no scale."
        )


def check_continuation(
    ranges: tuple[Floats, Floats],
    mean: Floats,
    deviations: Floats,
    reason: str,
    names: list[Any],
    sets_units: bool,
) -> None:
    """Refuse to go on from a model with this mean and deviations (D,) on quite another scale.

    A chunk of samples may vary as little as it likes if others before it have set the units.
    """
    far = np.fmax(*np.nan_to_num(np.abs(np.asarray(ranges) - mean))) > _FARTHEST * deviations
    spreads = np.nan_to_num(ranges[1] - ranges[0])
    narrow = sets_units & (spreads > 0.0) & (_FARTHEST * spreads < deviations)
    if (far | narrow).any():
        column = int((far | narrow).argmax())
        raise ValueError(
            f"{reason} needs samples on the scale of the model that it goes on from, got values "
            f"from {ranges[0][column]} to {ranges[1][column]} in column {names[column]!r}, where "
            f"the model has mean {mean[column]:.4g} and standard deviation "
            f"{deviations[column]:.4g}. Begin with a new estimator, or rescale X."
        )


def check_integers(sizes: int | Sequence[int], name: str) -> tuple[int, ...]:
    """Refuse sizes that are not positive integers; one stands for a tuple of one."""
    widths = (sizes,) if isinstance(sizes, int | Integral) else tuple(sizes)
    for size in widths:
        if not is_integer(size) or size < 1:
            raise ValueError(f"{name} must hold positive integers, got {size!r} in {sizes!r}.")
    return tuple(int(size) for size in widths)


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
    if is_integer(feature):
        if not -n_features <= int(feature) < n_features:
            raise ValueError(
                f"{parameter} must hold indices of the {n_features} features, got {feature}."
            )
        return int(feature) % n_features
    raise ValueError(f"{parameter} must hold indices or names of features, got {feature!r}.")
