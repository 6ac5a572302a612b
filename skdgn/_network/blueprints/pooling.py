"""Averages and maxima over windows and groups; enlargement."""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

from skdgn._network.blueprints.blueprint import (
    LARGEST_CODE,
    Blueprint,
    PerAxis,
    Shape,
    check_axes,
    matrix_per_channel,
    one_per_axis,
)
from skdgn._network.blueprints.convolutions import windows
from skdgn._network.layer import Layer
from skdgn._network.maxima import MaximumLayer
from skdgn._runtime import Floats, Integers, check_integer


class _Pooling(Blueprint):
    """What pooling layers have in common."""

    def __init__(
        self,
        kernel_size: PerAxis,
        *,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
    ) -> None:
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self._sizes(None)

    def _sizes(self, n_axes: int | None) -> tuple[Shape, Shape, Shape]:
        return (
            one_per_axis("kernel_size", self.kernel_size, n_axes),
            one_per_axis("stride", self.stride, n_axes),
            one_per_axis("padding", self.padding, n_axes, 0),
        )

    def _shape_behind(self, shape: Shape) -> Shape:
        size = self.kernel_size
        n_axes = check_axes(shape, (len(size),) if isinstance(size, tuple | list) else (1, 2))
        kernel, stride, padding = self._sizes(n_axes)
        if any(2 * pad > size for pad, size in zip(padding, kernel, strict=True)):
            raise ValueError(f"needs padding of at most half of its kernel, got {padding}")
        lengths = tuple(
            (length + 2 * pad - size) // step + 1
            for length, size, step, pad in zip(shape[1:], kernel, stride, padding, strict=True)
        )
        if min(lengths) < 1:
            raise ValueError(f"needs inputs at least as large as its kernel, got shape {shape}")
        return (shape[0], *lengths)

    def _windows(self, shape: Shape) -> Integers:
        """Places of one channel in every window: (n, k), -1 outside."""
        near, n_axes = self._shape_behind(shape)[1:], len(shape) - 1
        return windows(near, shape[1:], *self._sizes(n_axes), dilation=(1,) * n_axes)


class AvgPool(_Pooling):
    """Averages over windows of (channels, length) or (channels, height, width).

    Parameters
    ----------
    kernel_size : int or tuple of int
        Size of the windows.
    stride : int or tuple of int, default=None
        Distance between windows; None is their size.
    padding : int or tuple of int, default=0
        Number of zeros added on either side, which are included in averages.

    Examples
    --------
    >>> from skdgn.layers import AvgPool
    >>> AvgPool(2).forward([[[1.0, 3.0, 2.0, 0.0]]])
    array([[[2., 1.]]])
    """

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        places = self._windows(shape)
        rows, entries = np.nonzero(places >= 0)
        data = np.full(len(rows), 1.0 / places.shape[1])
        size = (len(places), math.prod(shape[1:]))
        matrix = sparse.csr_array((data, (rows, places[rows, entries])), shape=size)
        return matrix_per_channel(matrix, shape[0])


class MaxPool(_Pooling):
    """The largest value of every window of (channels, length) or (channels, height, width).

    Parameters
    ----------
    kernel_size : int or tuple of int
        Size of the windows.
    stride : int or tuple of int, default=None
        Distance between windows; None is their size.
    padding : int or tuple of int, default=0
        Number of positions by which windows may extend beyond the edge, which are ignored.

    Examples
    --------
    >>> from skdgn.layers import MaxPool
    >>> MaxPool(2).forward([[[1.0, 3.0, 2.0, 0.0]]])
    array([[[3., 2.]]])
    """

    def _shape_behind(self, shape: Shape) -> Shape:
        behind = super()._shape_behind(shape)
        n_inputs = math.prod(self._sizes(len(shape) - 1)[0])
        if n_inputs > LARGEST_CODE:
            raise ValueError(f"needs windows of at most {LARGEST_CODE} inputs, got {n_inputs}")
        return behind

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        return _maxima_per_channel(self._windows(shape), shape)


def _maxima_per_channel(places: Integers, shape: Shape) -> list[Layer]:
    """Take the maximum over groups of places (n, k) in every channel; -1 is nobody."""
    # Those that are there come first, and the first again instead of those that are not.
    places = np.take_along_axis(places, np.argsort(places < 0, axis=1, kind="stable"), axis=1)
    places = np.where(places < 0, places[:, :1], places)
    n_places = math.prod(shape[1:])
    groups = np.concatenate([places + channel * n_places for channel in range(shape[0])])
    return [MaximumLayer(groups, math.prod(shape))]


class MaxOut(Blueprint):
    """Maxima over groups of consecutive units or channels.

    Parameters
    ----------
    n_pieces : int
        Number of units or channels in each group.

    Examples
    --------
    >>> from skdgn.layers import MaxOut
    >>> MaxOut(3).forward([[1.0, 3.0, 2.0, -1.0, -3.0, -2.0]])
    array([[ 3., -1.]])
    """

    def __init__(self, n_pieces: int) -> None:
        self.n_pieces = check_integer(n_pieces, "n_pieces", 2)
        if self.n_pieces > LARGEST_CODE:
            raise ValueError(f"n_pieces must be at most {LARGEST_CODE}, got {n_pieces}.")

    def _shape_behind(self, shape: Shape) -> Shape:
        if shape[0] % self.n_pieces:
            raise ValueError(
                f"needs a multiple of n_pieces={self.n_pieces} units or channels, got shape {shape}"
            )
        return (shape[0] // self.n_pieces, *shape[1:])

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        units = np.arange(math.prod(shape)).reshape(-1, self.n_pieces, math.prod(shape[1:]))
        return [MaximumLayer(units.swapaxes(1, 2).reshape(-1, self.n_pieces), math.prod(shape))]


class Upsample(Blueprint):
    """Enlarge (channels, length) or (channels, height, width).

    Parameters
    ----------
    scale_factor : int or tuple of int
        Factor by which every axis is enlarged.
    mode : {"nearest", "linear", "bilinear"}, default="nearest"
        Copies of the nearest input, or interpolation between them along one axis or two.
    align_corners : bool, default=False
        Whether interpolation keeps the first and the last value of every axis, as in PyTorch.

    Examples
    --------
    >>> from skdgn.layers import Upsample
    >>> Upsample(2).forward([[[1.0, 3.0]]])
    array([[[1., 1., 3., 3.]]])
    """

    def __init__(
        self, scale_factor: PerAxis, mode: str = "nearest", *, align_corners: bool = False
    ) -> None:
        one_per_axis("scale_factor", scale_factor, None)
        if mode not in _AXES_OF_MODE:
            raise ValueError(f"mode must be one of {tuple(_AXES_OF_MODE)}, got {mode!r}.")
        if not isinstance(align_corners, bool | np.bool_):
            raise ValueError(f"align_corners must be True or False, got {align_corners!r}.")
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners

    def _factors(self, shape: Shape) -> Shape:
        n_axes = check_axes(shape, _AXES_OF_MODE[self.mode])
        return one_per_axis("scale_factor", self.scale_factor, n_axes)

    def _shape_behind(self, shape: Shape) -> Shape:
        factors = self._factors(shape)
        return (shape[0], *(n * factor for n, factor in zip(shape[1:], factors, strict=True)))

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        matrix = interpolation(shape, self._factors(shape), self.mode, self.align_corners)
        return matrix_per_channel(matrix, shape[0])


# How many axes beside the channels may be interpolated.
_AXES_OF_MODE = {"nearest": (1, 2), "linear": (1,), "bilinear": (2,)}


def interpolation(
    shape: Shape, factors: Shape, mode: str, align_corners: bool = False
) -> sparse.csr_array:
    """Matrix that enlarges one channel of this shape."""
    matrix = sparse.csr_array(np.ones((1, 1)))
    for length, factor in zip(shape[1:], factors, strict=True):
        axis = sparse.csr_array(_interpolate_axis(length, factor, mode, align_corners))
        matrix = sparse.csr_array(sparse.kron(matrix, axis, format="csr"))
    return matrix


def _interpolate_axis(length: int, factor: int, mode: str, align_corners: bool) -> Floats:
    places = np.arange(length * factor)
    weights = np.zeros((length * factor, length))
    if mode == "nearest":
        weights[places, places // factor] = 1.0
        return weights
    if align_corners:
        spots = places * ((length - 1) / max(length * factor - 1, 1))
    else:
        spots = np.maximum((places + 0.5) / factor - 0.5, 0.0)
    below = np.minimum(spots.astype(np.intp), length - 1)
    above = np.minimum(below + 1, length - 1)
    np.add.at(weights, (places, below), 1.0 - (spots - below))
    np.add.at(weights, (places, above), spots - below)
    return weights


class MaxUpsample(Blueprint):
    """Enlarge by maxima: the largest of the inputs that interpolation would average.

    Parameters
    ----------
    scale_factor : int or tuple of int
        Factor by which every axis is enlarged.

    Examples
    --------
    >>> from skdgn.layers import MaxUpsample
    >>> MaxUpsample(2).forward([[[1.0, 3.0]]])
    array([[[1., 3., 3., 3.]]])
    """

    def __init__(self, scale_factor: PerAxis) -> None:
        one_per_axis("scale_factor", scale_factor, None)
        self.scale_factor = scale_factor

    def _shape_behind(self, shape: Shape) -> Shape:
        return Upsample(self.scale_factor)._shape_behind(shape)

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        factors = one_per_axis("scale_factor", self.scale_factor, len(shape) - 1)
        matrix = interpolation(shape, factors, "linear")
        rows, members = matrix.nonzero()
        counts = np.bincount(rows)
        places = np.full((len(counts), counts.max()), -1)
        # Rows come in order: entries of each are numbered from its first on.
        places[rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)] = members
        return _maxima_per_channel(places, shape)
