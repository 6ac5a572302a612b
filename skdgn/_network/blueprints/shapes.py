"""Layers with nothing to learn and nothing to cut: shapes, normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from skdgn._network.blueprints.blueprint import Blueprint, Shape, check_shape, fixed_layer
from skdgn._network.layer import Layer
from skdgn._runtime import check_finite, finite_array


class Reshape(Blueprint):
    """Change the shape of the values without changing their order.

    Parameters
    ----------
    shape : tuple of int
        The new shape: (units,), (channels, length) or (channels, height, width).

    Examples
    --------
    >>> from skdgn.layers import Reshape
    >>> Reshape((2, 3, 3)).output_shape((18,))
    (2, 3, 3)
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = check_shape(shape)

    @property
    def _n_inputs(self) -> int:  # type: ignore[override]  # the shape says it
        return math.prod(self.shape)

    def _shape_behind(self, shape: Shape) -> Shape:
        if math.prod(shape) != self._n_inputs:
            raise ValueError(f"needs {self._n_inputs} inputs, got shape {shape}")
        return self.shape

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        return []  # values are flat anyway


class Flatten(Blueprint):
    """Flatten the values without changing their order.

    Examples
    --------
    >>> from skdgn.layers import Flatten
    >>> Flatten().output_shape((2, 3, 3))
    (18,)
    """

    _keeps_size = True

    def _shape_behind(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        return []


class BatchNorm(Blueprint):
    """Batch normalization in evaluation mode: a factor and a shift for each channel.

    Parameters
    ----------
    mean, variance : array-like of shape (n_channels,)
        Running mean and variance.
    weight, bias : array-like of shape (n_channels,), default=None
        Factors and shifts applied after the normalization; None is 1 and 0.
    eps : float, default=1e-5
        Added to the variance.

    Examples
    --------
    >>> from skdgn.layers import BatchNorm
    >>> BatchNorm([0.5], [4.0], eps=0.0).forward([[4.5]])
    array([[2.]])
    """

    _keeps_size = True

    def __init__(
        self,
        mean: ArrayLike,
        variance: ArrayLike,
        weight: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        *,
        eps: float = 1e-5,
    ) -> None:
        self.mean = finite_array(mean, "mean")
        self.variance = finite_array(variance, "variance")
        self.weight = finite_array(np.ones_like(self.mean) if weight is None else weight, "weight")
        self.bias = finite_array(np.zeros_like(self.mean) if bias is None else bias, "bias")
        self.eps = check_finite(eps, "eps")
        if self.eps < 0:
            raise ValueError(f"eps must not be negative, got {eps}.")
        for name in ("mean", "variance", "weight", "bias"):
            if getattr(self, name).shape != (self.mean.size,):
                raise ValueError(
                    f"{name} must have shape ({self.mean.size},), one entry per channel, "
                    f"got shape {getattr(self, name).shape}."
                )
        if np.any(self.variance + self.eps <= 0):
            raise ValueError(f"variance must be positive, got {self.variance.min()}.")

    def _shape_behind(self, shape: Shape) -> Shape:
        if shape[0] != len(self.mean):
            raise ValueError(f"needs {len(self.mean)} channels, got shape {shape}")
        return shape

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        factors = self.weight / np.sqrt(self.variance + self.eps)
        shifts = self.bias - factors * self.mean
        n_places = math.prod(shape[1:])
        matrix = sparse.diags_array(np.repeat(factors, n_places), format="csr")
        return [fixed_layer(matrix, np.repeat(shifts, n_places))]
