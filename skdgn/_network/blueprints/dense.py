"""Dense layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from skdgn._network.blueprints.blueprint import Blueprint, Shape, check_weights, draw_weights
from skdgn._network.dense import Dense as DenseLayer
from skdgn._network.layer import Layer
from skdgn._runtime import check_integer


class Dense(Blueprint):
    """Dense layer, which connects every input to every output: ``coef @ x + intercept``.

    Inputs of any shape are flattened first.

    Parameters
    ----------
    n_units : int
        Number of outputs.
    coef : array-like of shape (n_units, n_inputs), default=None
        Weights; None if they are to be learned.
    intercept : array-like of shape (n_units,), default=None
        Intercepts; zero if only weights are given.

    Examples
    --------
    >>> from skdgn.layers import Dense
    >>> layer = Dense(2, [[1.0], [2.0]])
    >>> layer
    Dense(n_units=2, coef=<(2, 1)>, intercept=<(2,)>)
    >>> layer.forward([[3.0]])
    array([[3., 6.]])
    """

    _learned = ("coef", "intercept")

    def __init__(
        self, n_units: int, coef: ArrayLike | None = None, intercept: ArrayLike | None = None
    ) -> None:
        self.n_units = check_integer(n_units, "n_units")
        self.coef, self.intercept = check_weights(coef, intercept, self.n_units)
        if self.coef is not None and (self.coef.ndim != 2 or len(self.coef) != n_units):
            raise ValueError(
                f"coef must have shape ({n_units}, n_inputs), got shape {self.coef.shape}."
            )

    @property
    def _n_inputs(self) -> int | None:  # type: ignore[override]  # read off the weights
        return None if self.coef is None else int(self.coef.shape[1])

    def _shape_behind(self, shape: Shape) -> Shape:
        if self._n_inputs not in (None, math.prod(shape)):
            raise ValueError(f"needs {self._n_inputs} inputs, got shape {shape}")
        return (self.n_units,)

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        if self.coef is not None and self.intercept is not None:
            return [DenseLayer(self.coef, self.intercept)]
        n_inputs = math.prod(shape)
        size = (self.n_units, n_inputs)
        return [DenseLayer(*draw_weights(size, n_inputs, self.n_units, generator))]

    def _with_weights(self, layer: Layer) -> Self:
        assert isinstance(layer, DenseLayer)
        return self._replace(coef=layer.coef, intercept=layer.intercept)


def merge_dense(blueprints: Sequence[Blueprint]) -> list[Blueprint]:
    """Let one dense layer do what several do that follow each other, with their weights."""
    merged: list[Blueprint] = []
    for layer in blueprints:
        last = merged[-1] if merged else None
        if isinstance(layer, Dense) and isinstance(last, Dense):
            coef, intercept = np.asarray(layer.coef), np.asarray(layer.intercept)
            intercept = coef @ np.asarray(last.intercept) + intercept
            merged[-1] = Dense(layer.n_units, coef @ np.asarray(last.coef), intercept)
        else:
            merged.append(layer)
    return merged
