"""Densities of samples whose features are transformed one by one."""

from skdgn._posterior.transformed.column_maps import (
    NAMED_FUNCTIONS,
    ColumnMap,
    ColumnMaps,
    Line,
    NamedFunction,
    NormalScores,
    StraightTails,
    YeoJohnson,
)
from skdgn._posterior.transformed.transformed_model import TransformedModel

__all__ = [
    "NAMED_FUNCTIONS",
    "ColumnMap",
    "ColumnMaps",
    "Line",
    "NamedFunction",
    "NormalScores",
    "StraightTails",
    "TransformedModel",
    "YeoJohnson",
]
