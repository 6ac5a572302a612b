"""What this package uses of scikit-learn that is private, or is not in all versions of it.

The one place to look at when a new version comes out.  Everything else is imported from where
scikit-learn's reference says it is.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context as fit_context
from sklearn.utils import _safe_indexing as take_samples
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils._set_output import ADAPTERS_MANAGER, _get_output_config
from sklearn.utils.metaestimators import _BaseComposition as NamedParts
from sklearn.utils.validation import _check_feature_names_in
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef] # the same name, without callbacks
        """Stands for the class of the same name that newer versions of scikit-learn have."""


# What all estimators may be told of how they work.
WORK_CONSTRAINTS: dict[str, list[Any]] = {
    "n_jobs": [
        None,
        Interval(Integral, 1, None, closed="left"),
        Interval(Integral, None, -1, closed="right"),
    ],
    "random_state": ["random_state", np.random.Generator],
    # scikit-learn's own kind has no -1, which silences everything
    "verbose": [Interval(Integral, -1, None, closed="left"), "boolean"],
}


def name_columns(estimator: Any, values: NDArray[Any]) -> Any:
    """Return values (n, D) as the kind of table that ``set_output`` asked of `transform`."""
    kind = _get_output_config("transform", estimator)["dense"]
    if kind == "default":
        return values
    names = _check_feature_names_in(estimator)
    return ADAPTERS_MANAGER.adapters[kind].create_container(values, values, names)


def scaler_of_power_transformer(transformer: Any) -> Any:
    """Return the fitted scaler that `PowerTransformer(standardize=True)` ends with."""
    return transformer._scaler


__all__ = [
    "WORK_CONSTRAINTS",
    "CallbackSupportMixin",
    "HasMethods",
    "Interval",
    "NamedParts",
    "StrOptions",
    "check_sample_weight",
    "fit_context",
    "name_columns",
    "scaler_of_power_transformer",
    "take_samples",
]
