"""scikit-learn's transformers of columns, read as functions whose slopes are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

from skdgn._estimators.sklearn_parts import scaler_of_power_transformer
from skdgn._posterior import NAMED_FUNCTIONS, ColumnMap, Line, NamedFunction, YeoJohnson

Chains = list[tuple[ColumnMap, ...]]  # one for each feature


def _lines(offsets: Any, scales: Any, n_features: int) -> Chains:
    offsets = np.zeros(n_features) if offsets is None else offsets
    scales = np.ones(n_features) if scales is None else scales
    return [(Line(float(a), float(b)),) for a, b in zip(offsets, scales, strict=True)]


def _read_standard_scaler(scaler: Any, names: list[Any]) -> Chains:
    return _lines(scaler.mean_ if scaler.with_mean else None, scaler.scale_, len(names))


def _read_robust_scaler(scaler: Any, names: list[Any]) -> Chains:
    return _lines(
        scaler.center_ if scaler.with_centering else None,
        scaler.scale_ if scaler.with_scaling else None,
        len(names),
    )


def _read_max_abs_scaler(scaler: Any, names: list[Any]) -> Chains:
    _refuse_clipping(scaler)
    return _lines(None, scaler.scale_, len(names))


def _read_min_max_scaler(scaler: Any, names: list[Any]) -> Chains:
    _refuse_clipping(scaler)
    return _lines(-scaler.min_ / scaler.scale_, 1.0 / scaler.scale_, len(names))


def _refuse_clipping(scaler: Any) -> None:
    if getattr(scaler, "clip", False):
        raise ValueError(
            f"transformer must be strictly increasing, got {scaler!r}: clip must be False."
        )


def _read_power_transformer(transformer: Any, names: list[Any]) -> Chains:
    if transformer.method != "yeo-johnson":
        raise ValueError(
            "transformer must reach every real number, which the method "
            f"{transformer.method!r} of PowerTransformer does not: use 'yeo-johnson', or "
            "FunctionTransformer(np.log)."
        )
    for name, exponent in zip(names, transformer.lambdas_, strict=True):
        if not 0.0 <= exponent <= 2.0:
            raise ValueError(
                "transformer must reach every real number, for which lambdas_ of PowerTransformer "
                f"must be from 0 to 2, got {exponent:.4g} for feature {name!r}; "
                "transformer='power' keeps them there."
            )
    powers: Chains = [(YeoJohnson(float(exponent)),) for exponent in transformer.lambdas_]
    if not transformer.standardize:
        return powers
    return _join(powers, _read_standard_scaler(scaler_of_power_transformer(transformer), names))


def _read_function_transformer(transformer: Any, names: list[Any]) -> Chains:
    if transformer.func is None:
        return [() for _ in names]
    name = getattr(transformer.func, "__name__", "")
    if not isinstance(transformer.func, np.ufunc) or name not in NAMED_FUNCTIONS:
        raise ValueError(
            "transformer must be a function whose slope is known: FunctionTransformer with one of "
            f"{', '.join(NAMED_FUNCTIONS)} of NumPy and SciPy, got {transformer!r}."
        )
    return [(NamedFunction(name),) for _ in names]


def _read_pipeline(pipeline: Any, names: list[Any]) -> Chains:
    chains: Chains = [() for _ in names]
    for _, step in pipeline.steps:
        if step is not None and step != "passthrough":
            chains = _join(chains, read_transformer(step, names))
    return chains


def _join(first: Chains, second: Chains) -> Chains:
    return [(*a, *b) for a, b in zip(first, second, strict=True)]


_READERS: dict[type, Callable[[Any, list[Any]], Chains]] = {
    FunctionTransformer: _read_function_transformer,
    MaxAbsScaler: _read_max_abs_scaler,
    MinMaxScaler: _read_min_max_scaler,
    Pipeline: _read_pipeline,
    PowerTransformer: _read_power_transformer,
    RobustScaler: _read_robust_scaler,
    StandardScaler: _read_standard_scaler,
}


def read_transformer(transformer: Any, names: list[Any]) -> Chains:
    """Return what a fitted transformer does to each feature; refuse what is not known."""
    for kind, reader in _READERS.items():
        if isinstance(transformer, kind):
            return reader(transformer, names)
    raise ValueError(
        f"transformer must be 'power', 'normal_scores' or one of scikit-learn's "
        f"{', '.join(kind.__name__ for kind in _READERS)}, whose slopes are known, "
        f"got {transformer!r}."
    )
