"""Activations: functions of every unit, affine between their kinks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skdgn._network.activations import Activation, ActivationLayer, LearnedSlopeLayer
from skdgn._network.blueprints.blueprint import LARGEST_CODE, Blueprint, Shape
from skdgn._network.layer import Layer
from skdgn._runtime import check_finite, finite_array


class Unitwise(Blueprint):
    """A function that is applied to every unit."""

    _keeps_size = True

    @property
    @abstractmethod
    def _function(self) -> Activation:
        """The function."""

    def _shape_behind(self, shape: Shape) -> Shape:
        return shape

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        return [ActivationLayer(self._function, math.prod(shape))]


def _numbers(values: Any, name: str) -> tuple[float, ...]:
    """Refuse what is not a sequence of finite numbers."""
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str):
        raise ValueError(f"{name} must be a sequence of numbers, got {values!r}.")
    return tuple(check_finite(value, name) for value in values)


class PiecewiseAffine(Unitwise):
    """A continuous function of every unit that is affine between its kinks.

    Parameters
    ----------
    kinks : sequence of float
        Points at which the slope changes, in increasing order.
    slopes : sequence of float
        Slopes below the first kink, between each two kinks, and above the last; one more than
        kinks.
    value_at_zero : float, default=0.0
        Value of the function at zero.

    Examples
    --------
    >>> from skdgn.layers import PiecewiseAffine
    >>> PiecewiseAffine([-1.0, 1.0], [0.0, 1.0, 0.5]).forward([[-3.0, 0.5, 3.0]])
    array([[-1. ,  0.5,  2. ]])
    """

    def __init__(
        self, kinks: Sequence[float], slopes: Sequence[float], value_at_zero: float = 0.0
    ) -> None:
        self.kinks = _numbers(kinks, "kinks")
        self.slopes = _numbers(slopes, "slopes")
        self.value_at_zero = check_finite(value_at_zero, "value_at_zero")
        if not 1 <= len(self.kinks) <= LARGEST_CODE:
            raise ValueError(f"kinks must have 1 to {LARGEST_CODE} entries, got {len(self.kinks)}.")
        if any(np.diff(self.kinks) <= 0):
            raise ValueError(f"kinks must increase, got {self.kinks}.")
        if len(self.slopes) != len(self.kinks) + 1:
            raise ValueError(
                f"slopes must have {len(self.kinks) + 1} entries, one more than kinks, "
                f"got {len(self.slopes)}."
            )

    @property
    def _function(self) -> Activation:
        return Activation("piecewise_affine", self.kinks, self.slopes, self.value_at_zero)


class ReLU(Unitwise):
    """The positive part of every unit.

    Examples
    --------
    >>> from skdgn.layers import ReLU
    >>> ReLU().forward([[-2.0, 3.0]])
    array([[0., 3.]])
    """

    @property
    def _function(self) -> Activation:
        return Activation.from_name("relu", 0.0)


class Abs(Unitwise):
    """The absolute value of every unit.

    Examples
    --------
    >>> from skdgn.layers import Abs
    >>> Abs().forward([[-2.0, 3.0]])
    array([[2., 3.]])
    """

    @property
    def _function(self) -> Activation:
        return Activation.from_name("abs", 0.0)


class LeakyReLU(Unitwise):
    """Units unchanged if positive, multiplied by a slope if negative.

    Parameters
    ----------
    negative_slope : float, default=0.01
        The slope.

    Examples
    --------
    >>> from skdgn.layers import LeakyReLU
    >>> LeakyReLU(0.1).forward([[-2.0, 3.0]])
    array([[-0.2,  3. ]])
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = check_finite(negative_slope, "negative_slope")

    @property
    def _function(self) -> Activation:
        return Activation.from_name("leaky_relu", self.negative_slope)


class HardTanh(Unitwise):
    """Units clipped to an interval.

    Parameters
    ----------
    min_val, max_val : float, default=-1.0, 1.0
        The smallest and the largest value.

    Examples
    --------
    >>> from skdgn.layers import HardTanh
    >>> HardTanh().forward([[-2.0, 0.5, 3.0]])
    array([[-1. ,  0.5,  1. ]])
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val = check_finite(min_val, "min_val")
        self.max_val = check_finite(max_val, "max_val")
        if self.min_val >= self.max_val:
            raise ValueError(f"max_val must be above min_val={min_val}, got {max_val}.")

    @property
    def _function(self) -> Activation:
        at_zero = min(max(0.0, self.min_val), self.max_val)
        return Activation("hard_tanh", (self.min_val, self.max_val), (0.0, 1.0, 0.0), at_zero)


class ReLU6(Unitwise):
    """Units clipped to the interval from 0 to 6.

    Examples
    --------
    >>> from skdgn.layers import ReLU6
    >>> ReLU6().forward([[-2.0, 3.0, 7.0]])
    array([[0., 3., 6.]])
    """

    @property
    def _function(self) -> Activation:
        return Activation("relu6", (0.0, 6.0), (0.0, 1.0, 0.0))


class HardSigmoid(Unitwise):
    """``x / 6 + 1 / 2``, clipped to the interval from 0 to 1.

    Examples
    --------
    >>> from skdgn.layers import HardSigmoid
    >>> HardSigmoid().forward([[-4.0, 0.0, 4.0]])
    array([[0. , 0.5, 1. ]])
    """

    @property
    def _function(self) -> Activation:
        return Activation("hard_sigmoid", (-3.0, 3.0), (0.0, 1.0 / 6.0, 0.0), 0.5)


class Softshrink(Unitwise):
    """Units moved toward zero by a constant, and zero within this distance.

    Parameters
    ----------
    lambd : float, default=0.5
        The constant, positive.

    Examples
    --------
    >>> from skdgn.layers import Softshrink
    >>> Softshrink(0.5).forward([[-2.0, 0.25, 2.0]])
    array([[-1.5,  0. ,  1.5]])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = check_finite(lambd, "lambd")
        if self.lambd <= 0:
            raise ValueError(f"lambd must be positive, got {lambd}.")

    @property
    def _function(self) -> Activation:
        return Activation("softshrink", (-self.lambd, self.lambd), (1.0, 0.0, 1.0))


class PReLU(Blueprint):
    """Leaky ReLU whose slopes for negative inputs are learned.

    Parameters
    ----------
    shared : {"unit", "channel", "layer"}, default="unit"
        Whether there is a slope for every unit, for every channel, or one for the whole layer.
    slopes : array-like of shape (n_slopes,), default=None
        The slopes; None if they are to be learned, starting from 0.25.

    Examples
    --------
    >>> from skdgn.layers import PReLU
    >>> PReLU("layer", [0.25]).forward([[-2.0, 3.0]])
    array([[-0.5,  3. ]])
    """

    _learned = ("slopes",)
    _keeps_size = True

    def __init__(self, shared: str = "unit", slopes: ArrayLike | None = None) -> None:
        if shared not in ("unit", "channel", "layer"):
            raise ValueError(f'shared must be "unit", "channel" or "layer", got {shared!r}.')
        self.shared = shared
        self.slopes = None if slopes is None else finite_array(slopes, "slopes")

    def _n_slopes(self, shape: Shape) -> int:
        return {"unit": math.prod(shape), "channel": shape[0], "layer": 1}[self.shared]

    def _shape_behind(self, shape: Shape) -> Shape:
        if self.slopes is not None and self.slopes.shape != (self._n_slopes(shape),):
            raise ValueError(
                f"needs {self._n_slopes(shape)} slopes for inputs of shape {shape}, "
                f"got shape {self.slopes.shape}"
            )
        return shape

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        n_slopes, n_units = self._n_slopes(shape), math.prod(shape)
        slopes = np.full(n_slopes, 0.25) if self.slopes is None else self.slopes
        return [LearnedSlopeLayer(slopes, np.arange(n_units) // (n_units // n_slopes))]

    def _with_weights(self, layer: Layer) -> Self:
        return self._replace(slopes=layer.parameters)
