"""What every blueprint answers, and checks of what users pass to one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from skdgn._network.layer import Layer
from skdgn._network.sparse import FixedLayer
from skdgn._runtime import Floats, check_integer, finite_array

# (units,), (channels, length) or (channels, height, width)
Shape = tuple[int, ...]
PerAxis = int | tuple[int, ...]

# Maxima and kinks are numbered by single bytes.
LARGEST_CODE = 255


class Blueprint(ABC):
    """Description of one or several layers, independent of a network.

    Attributes are the arguments of the constructor.  Weights that were not given are drawn when the
    layer is built.
    """

    #: Names of the attributes that hold what is learned.
    _learned: tuple[str, ...] = ()
    #: Number of inputs if it is known without being told a shape.
    _n_inputs: int | None = None
    #: Whether there are as many outputs as inputs.
    _keeps_size: bool = False
    #: Layers that it is made of: paths from its inputs to its outputs.
    _branches: tuple[tuple[Blueprint, ...], ...] = ()

    @abstractmethod
    def _shape_behind(self, shape: Shape) -> Shape:
        """Return the shape of the outputs; ValueError, "needs ...", if the inputs do not fit."""

    @abstractmethod
    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        """Build the layers for inputs of this shape, which fit."""

    def _filled(self, layers: Iterator[Layer]) -> Self:
        """Return the same with the parameters of built layers, of which it takes its own."""
        return self._with_weights(next(layers)) if self._learned else self

    def _with_weights(self, layer: Layer) -> Self:
        raise NotImplementedError("asked of blueprints with weights only")

    def _replace(self, **changes: Any) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update({**self.__dict__, **changes})
        return other

    def _emptied(self) -> Self:
        """Return the same without weights."""
        return self._replace(**dict.fromkeys(self._learned))

    @property
    def _is_filled(self) -> bool:
        """Whether all weights were given."""
        own = all(getattr(self, name) is not None for name in self._learned)
        return own and all(layer._is_filled for branch in self._branches for layer in branch)

    def output_shape(self, shape: Sequence[int]) -> Shape:
        """Return the shape of the outputs.

        Parameters
        ----------
        shape : tuple of int
            Shape of the inputs: (units,), (channels, length) or (channels, height, width).

        Returns
        -------
        shape : tuple of int
            Shape of the outputs.

        Examples
        --------
        >>> from skdgn.layers import ConvTranspose2d
        >>> ConvTranspose2d(8, 4, stride=2, padding=1).output_shape((16, 7, 7))
        (8, 14, 14)
        """
        checked = check_shape(shape)
        try:
            return self._shape_behind(checked)
        except ValueError as error:
            raise ValueError(f"{type(self).__name__} {error}.") from error

    def forward(self, values: ArrayLike) -> Floats:
        """Compute the outputs.

        Parameters
        ----------
        values : array-like of shape (n_samples, ...)
            Inputs, of shape (units,), (channels, length) or (channels, height, width) per sample.

        Returns
        -------
        outputs : ndarray of shape (n_samples, ...)
            Outputs, of the shape returned by `output_shape` per sample.

        Examples
        --------
        >>> from skdgn.layers import MaxPool
        >>> MaxPool(2).forward([[[1.0, 3.0, 2.0, 0.0]]])
        array([[[3., 2.]]])
        """
        inputs = finite_array(values, "values")
        if not 2 <= inputs.ndim <= 4:
            raise ValueError(
                "values must have one axis for samples and one to three for their shape, "
                f"got shape {inputs.shape}."
            )
        if not self._is_filled:
            raise ValueError(f"forward needs a layer that has its weights, got {self!r}.")
        shape = self.output_shape(inputs.shape[1:])
        outputs = inputs.reshape(len(inputs), math.prod(inputs.shape[1:]))
        for layer in self._build(inputs.shape[1:], np.random.default_rng(0)):
            outputs = layer.forward(outputs)
        return outputs.reshape(len(inputs), *shape)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        ours, theirs = self.__dict__, other.__dict__
        return ours.keys() == theirs.keys() and all(
            np.array_equal(ours[name], theirs[name])
            if isinstance(ours[name], np.ndarray)
            else ours[name] == theirs[name]
            for name in ours
        )

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        parts = [
            f"{name}=<{value.shape}>" if isinstance(value, np.ndarray) else f"{name}={value!r}"
            for name, value in self.__dict__.items()
            if value is not None
        ]
        return f"{type(self).__name__}({', '.join(parts)})"


def one_per_axis(name: str, value: Any, n_axes: int | None, least: int = 1) -> Shape:
    """Check one number for all axes, or one for each; None is any number of axes."""
    is_single = not isinstance(value, tuple | list)
    values = (value,) * (n_axes or 1) if is_single else value
    if len(values) != (n_axes or len(values)) or not values:
        raise ValueError(f"{name} must have {n_axes or 'one or two'} entries, got {value!r}.")
    return tuple(check_integer(entry, name, least) for entry in values)


def check_axes(shape: Shape, allowed: tuple[int, ...] = (1, 2)) -> int:
    """Return the number of axes beside the channels; ValueError if it is not allowed."""
    names = {1: "(channels, length)", 2: "(channels, height, width)"}
    if len(shape) - 1 not in allowed:
        wanted = " or ".join(names[n_axes] for n_axes in allowed)
        raise ValueError(f"needs inputs of shape {wanted}, got shape {shape}")
    return len(shape) - 1


def check_shape(shape: Any) -> Shape:
    """Refuse what is not a shape."""
    given = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if not 1 <= len(given) <= 3:
        raise ValueError(f"shape must have one to three entries, got {shape!r}.")
    return tuple(check_integer(size, "shape") for size in given)


def check_weights(
    coef: ArrayLike | None, intercept: ArrayLike | None, n_outputs: int
) -> tuple[Floats | None, Floats | None]:
    """Check weights and intercepts; both are there, or neither."""
    if coef is None:
        if intercept is not None:
            raise ValueError("intercept must be None if coef is, got an array.")
        return None, None
    weights = finite_array(coef, "coef")
    if weights.size == 0:
        raise ValueError(f"coef must not be empty, got shape {weights.shape}.")
    biases = np.zeros(n_outputs) if intercept is None else finite_array(intercept, "intercept")
    if biases.shape != (n_outputs,):
        raise ValueError(f"intercept must have shape ({n_outputs},), got shape {biases.shape}.")
    return weights, biases


def draw_weights(
    shape: Shape, fan_in: int, n_outputs: int, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw weights that keep the size of values, and intercepts."""
    weights = generator.standard_normal(shape) * math.sqrt(2.0 / fan_in)
    return weights, 0.5 * generator.standard_normal(n_outputs)


def fixed_layer(matrix: Any, intercept: Floats | None = None) -> FixedLayer:
    """Make a layer of a sparse matrix."""
    shift = np.zeros(matrix.shape[0]) if intercept is None else intercept
    return FixedLayer(sparse.csr_array(matrix), shift)


def matrix_per_channel(matrix: Any, n_channels: int) -> list[Layer]:
    """Apply a matrix to every channel."""
    return [fixed_layer(sparse.kron(sparse.eye_array(n_channels), matrix, format="csr"))]
