"""Tables and weights as users pass them, turned into arrays by scikit-learn, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import (
    validate_data,
)

from skdgn._estimators.sklearn_parts import check_sample_weight
from skdgn._runtime import Floats

# Sums of log densities with these weights, and shares of one weight in all, must be numbers.
_SMALLEST_TOTAL, _LARGEST_TOTAL = 1e-200, 1e200


def validate_samples(
    estimator: Any, X: Any, *, reset: bool, min_samples: int = 1, **checks: Any
) -> NDArray[Any]:
    """Check a table (n, D); return it in single or double precision, NaN where a value is missing.

    It is not copied if it holds floating-point numbers already; masked entries are missing values.
    If ``reset``, the estimator remembers number and names of the features, else it compares them.
    More is asked by ``checks``.
    """
    samples: NDArray[Any] = _validate(
        estimator, X, reset=reset, ensure_min_samples=min_samples, **checks
    )
    return samples


def validate_samples_and_targets(
    estimator: Any, X: Any, y: Any, **checks: Any
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Check a table (n, D) and as many targets, before a fit; more is asked by ``checks``."""
    samples, targets = _validate(estimator, X, y=y, reset=True, **checks)
    return samples, targets


def _validate(estimator: Any, X: Any, **checks: Any) -> Any:
    X = fill_masked(X)
    _refuse_repeated_names(X)
    checks = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan", **checks}
    try:
        return validate_data(estimator, X, **checks)
    except (TypeError, ValueError) as error:
        name = _column_without_numbers(X)
        if name is None:
            raise
        raise type(error)(f"X must hold numbers, which column {name!r} does not: {error}") from None


def fill_masked(X: Any) -> Any:
    """Return a table with NaN in place of masked entries; refuse one that is not in memory."""
    if hasattr(X, "collect_schema") and not hasattr(X, "__array__"):
        raise TypeError(
            f"X must be a table in memory, got a {type(X).__name__}. Pass X.collect() instead."
        )
    if not isinstance(X, np.ma.MaskedArray):
        return X
    if X.dtype.kind not in "fc":
        # Text is left for scikit-learn to refuse.
        X = X.astype(np.float64 if X.dtype.kind in "biu" else object)
    return X.filled(np.nan)


def _refuse_repeated_names(X: Any) -> None:
    """Refuse a frame with two columns of one name; only those of pandas can have them."""
    columns: Any = getattr(X, "columns", None)
    if not getattr(columns, "is_unique", True):
        repeated = columns[columns.duplicated()].unique().tolist()
        raise ValueError(f"X must have different names of columns, got {repeated} more than once.")


def check_weights(
    sample_weight: ArrayLike | None, samples: NDArray[Any], min_samples: int = 1
) -> Floats:
    """Check the weights of samples; None gives ones that take no memory.

    So many samples must have a positive one.
    """
    if sample_weight is None:
        return np.broadcast_to(np.float64(1.0), (len(samples),))
    if np.ma.is_masked(sample_weight):
        raise ValueError("sample_weight must have no masked entries: weigh such samples by zero.")
    try:
        weights: Floats = check_sample_weight(
            sample_weight, samples, dtype=np.float64, ensure_non_negative=True
        )
    except (TypeError, ValueError) as error:
        if "sample_weight" in str(error):
            raise
        raise ValueError(f"sample_weight must hold a weight for each sample: {error}") from error
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not total > 0.0:
        raise ValueError("sample_weight must have a positive sum, got only zeros.")
    if not _SMALLEST_TOTAL <= total <= _LARGEST_TOTAL:
        raise ValueError(
            f"sample_weight must have a sum from {_SMALLEST_TOTAL} to {_LARGEST_TOTAL}, "
            f"got {total}. Rescale it."
        )
    n_heavy = int(np.count_nonzero(weights))
    if n_heavy < min_samples:
        raise ValueError(
            f"sample_weight must be positive for at least {min_samples} samples, got {n_heavy} of "
            f"{len(weights)}."
        )
    return weights


def _column_without_numbers(X: Any) -> Any:
    """Find the first column that cannot be read as numbers; None if all can."""
    is_frame = hasattr(X, "columns") and hasattr(X, "__getitem__")
    if not is_frame:
        try:
            X = np.asarray(X, dtype=object)
        except ValueError:  # ragged
            return None
        if X.ndim != 2:
            return None
    for place in range(X.shape[1]):
        column = X.iloc[:, [place]] if hasattr(X, "iloc") else X[:, [place]]
        try:
            check_array(column, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)
            # Times are numbers only while they are on their own.
            has_numbers = np.asarray(column).dtype.kind not in "mM"
        except (TypeError, ValueError):
            has_numbers = False
        if not has_numbers:
            return X.columns[place] if is_frame else place
    return None
