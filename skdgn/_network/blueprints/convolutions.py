"""Convolutions and transposed convolutions: few weights, shared by many connections."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from skdgn._network.blueprints.blueprint import (
    Blueprint,
    PerAxis,
    Shape,
    check_axes,
    check_weights,
    draw_weights,
    one_per_axis,
)
from skdgn._network.layer import Layer
from skdgn._network.sparse import SharedLayer
from skdgn._runtime import Integers, check_integer


class _Convolution(Blueprint):
    """What convolutions have in common."""

    _learned = ("coef", "intercept")
    _n_axes: int

    def __init__(
        self,
        n_channels: int,
        kernel_size: PerAxis,
        *,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
        coef: ArrayLike | None = None,
        intercept: ArrayLike | None = None,
    ) -> None:
        self.n_channels = check_integer(n_channels, "n_channels")
        self.kernel_size = one_per_axis("kernel_size", kernel_size, self._n_axes)
        self.stride = one_per_axis("stride", stride, self._n_axes)
        self.padding = one_per_axis("padding", padding, self._n_axes, 0)
        self.dilation = one_per_axis("dilation", dilation, self._n_axes)
        self.groups = check_integer(groups, "groups")
        if self.n_channels % self.groups:
            raise ValueError(f"groups must divide n_channels={self.n_channels}, got {self.groups}.")
        self.coef, self.intercept = check_weights(coef, intercept, self.n_channels)

    def _coef_shape(self, n_inputs: int) -> Shape:
        return (self.n_channels, n_inputs // self.groups, *self.kernel_size)

    def _owners(self, groups: Integers, n_in: int) -> Integers:
        """Number the kernels, (outputs, inputs of their group), as ``coef`` does."""
        return np.arange(groups.size * n_in).reshape(-1, n_in)

    def _length(self, length: int, axis: int) -> int:
        """Length of an axis of the output."""
        return (length + 2 * self.padding[axis] - self._reach(axis)) // self.stride[axis] + 1

    def _reach(self, axis: int) -> int:
        return self.dilation[axis] * (self.kernel_size[axis] - 1) + 1

    def _shape_behind(self, shape: Shape) -> Shape:
        check_axes(shape, (self._n_axes,))
        if shape[0] % self.groups:
            raise ValueError(f"needs channels in {self.groups} equal groups, got shape {shape}")
        if self.coef is not None and self.coef.shape != self._coef_shape(shape[0]):
            raise ValueError(
                f"needs coef of shape {self._coef_shape(shape[0])} for inputs of shape {shape}, "
                f"got shape {self.coef.shape}"
            )
        lengths = [self._length(length, axis) for axis, length in enumerate(shape[1:])]
        if min(lengths) < 1:
            raise ValueError(f"needs inputs at least as large as its kernel, got shape {shape}")
        return (self.n_channels, *lengths)

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        lengths = self._shape_behind(shape)[1:]
        n_in, n_out = shape[0] // self.groups, self.n_channels // self.groups
        rows, columns, entries = self._connections(shape[1:], lengths)
        coef, intercept = self.coef, self.intercept
        if coef is None or intercept is None:
            fan_in = max(1, round(n_in * len(rows) / math.prod(lengths)))
            size = self._coef_shape(shape[0])
            coef, intercept = draw_weights(size, fan_in, self.n_channels, generator)
        outs = np.arange(self.n_channels)
        groups = outs // n_out
        ins = groups[:, None] * n_in + np.arange(n_in)  # (outputs, inputs of their group)
        kernels = self._owners(groups, n_in) * math.prod(self.kernel_size)
        # (outputs, inputs of their group, connections between places)
        all_rows = outs[:, None, None] * math.prod(lengths) + rows
        all_rows = np.broadcast_to(all_rows, (*ins.shape, len(rows))).ravel()
        order = np.argsort(all_rows, kind="stable")
        return [
            SharedLayer(
                coef.ravel(),
                intercept,
                (self.n_channels * math.prod(lengths), math.prod(shape)),
                all_rows[order],
                (ins[:, :, None] * math.prod(shape[1:]) + columns).ravel()[order],
                (kernels[:, :, None] + entries).ravel()[order],
                outs.repeat(math.prod(lengths)),
            )
        ]

    def _connections(self, inputs: Shape, outputs: Shape) -> tuple[Integers, ...]:
        """Connect places of one channel: outputs, inputs and entries of the kernel, (n,) each."""
        return self._windows(outputs, inputs)

    def _windows(self, near: Shape, far: Shape) -> tuple[Integers, ...]:
        """Pair places of a grid with those of another that their windows cover."""
        covered = windows(near, far, self.kernel_size, self.stride, self.padding, self.dilation)
        places, entries = np.nonzero(covered >= 0)
        return places, covered[places, entries], entries

    def _with_weights(self, layer: Layer) -> Self:
        assert isinstance(layer, SharedLayer)
        n_kernel = math.prod(self.kernel_size)
        n_inputs = len(layer.weights) * self.groups // (self.n_channels * n_kernel)
        return self._replace(
            coef=layer.weights.reshape(self._coef_shape(n_inputs)), intercept=layer.biases
        )


class _TransposedConvolution(_Convolution):
    """It sends where a convolution reads."""

    def __init__(
        self,
        n_channels: int,
        kernel_size: PerAxis,
        *,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        output_padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
        coef: ArrayLike | None = None,
        intercept: ArrayLike | None = None,
    ) -> None:
        super().__init__(
            n_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            coef=coef,
            intercept=intercept,
        )
        self.output_padding = one_per_axis("output_padding", output_padding, self._n_axes, 0)
        limits = map(max, self.stride, self.dilation)
        if any(extra >= limit for extra, limit in zip(self.output_padding, limits, strict=True)):
            raise ValueError(
                "output_padding must be smaller than stride or dilation, "
                f"got {self.output_padding}."
            )

    def _coef_shape(self, n_inputs: int) -> Shape:
        return (n_inputs, self.n_channels // self.groups, *self.kernel_size)

    def _owners(self, groups: Integers, n_in: int) -> Integers:
        n_out = self.n_channels // self.groups
        inputs = groups[:, None] * n_in + np.arange(n_in)
        return inputs * n_out + (np.arange(self.n_channels) % n_out)[:, None]

    def _length(self, length: int, axis: int) -> int:
        ends = (length - 1) * self.stride[axis] - 2 * self.padding[axis]
        return ends + self._reach(axis) + self.output_padding[axis]

    def _connections(self, inputs: Shape, outputs: Shape) -> tuple[Integers, ...]:
        columns, rows, entries = self._windows(inputs, outputs)
        return rows, columns, entries


def windows(
    near: Shape, far: Shape, kernel_size: Shape, stride: Shape, padding: Shape, dilation: Shape
) -> Integers:
    """List places (n, k) of a grid that the window of each place of another covers; -1 is none."""
    corners = np.indices(near).reshape(len(near), -1).T
    offsets = np.indices(kernel_size).reshape(len(kernel_size), -1).T
    places = corners[:, None] * np.array(stride) - np.array(padding) + offsets * np.array(dilation)
    inside = ((places >= 0) & (places < np.array(far))).all(axis=2)
    flat = np.ravel_multi_index(tuple(np.moveaxis(places, 2, 0)), far, mode="clip")
    return np.where(inside, flat, -1)


_PARAMETERS = """

    Parameters
    ----------
    n_channels : int
        Number of channels of the outputs.
    kernel_size : int or tuple of int
        Size of the kernel: one number for all axes or one for each, as for the next parameters.
    stride, padding, dilation{extra} : int or tuple of int
        As in the PyTorch layer of the same name.
    groups : int, default=1
        Number of groups of channels that are not connected to each other.
    coef : array-like of shape {shape}, default=None
        Weights; None if they are to be learned.
    intercept : array-like of shape (n_channels,), default=None
        Intercepts; zero if only weights are given.

    Examples
    --------
    >>> from skdgn.layers import {name}
    >>> {name}(4, 3, stride=2).output_shape({inputs})
    {outputs}
"""


class Conv1d(_Convolution):
    __doc__ = "Convolution of (channels, length)." + _PARAMETERS.format(
        extra="",
        shape="(n_channels, n_inputs / groups, kernel)",
        name="Conv1d",
        inputs="(2, 9)",
        outputs="(4, 4)",
    )
    _n_axes = 1


class Conv2d(_Convolution):
    __doc__ = "Convolution of (channels, height, width)." + _PARAMETERS.format(
        extra="",
        shape="(n_channels, n_inputs / groups, height, width)",
        name="Conv2d",
        inputs="(2, 9, 9)",
        outputs="(4, 4, 4)",
    )
    _n_axes = 2


class ConvTranspose1d(_TransposedConvolution):
    __doc__ = "Transposed convolution of (channels, length)." + _PARAMETERS.format(
        extra=", output_padding",
        shape="(n_inputs, n_channels / groups, kernel)",
        name="ConvTranspose1d",
        inputs="(2, 4)",
        outputs="(4, 9)",
    )
    _n_axes = 1


class ConvTranspose2d(_TransposedConvolution):
    __doc__ = "Transposed convolution of (channels, height, width)." + _PARAMETERS.format(
        extra=", output_padding",
        shape="(n_inputs, n_channels / groups, height, width)",
        name="ConvTranspose2d",
        inputs="(2, 4, 4)",
        outputs="(4, 9, 9)",
    )
    _n_axes = 2
