"""What every kind of cell offers.

A *kind* (intervals, polygons, polyhedra, polytopes) is a frozen collection of convex cells of one
latent dimension, unbounded cells included.  Sign convention, once and for all: a cell is where
``normals @ z >= offsets`` for all its facets, with inward unit normals.

Two things happen to cells: a partition *splits* them, and a posterior *integrates* a Gaussian over
them.  For the second, cells are first whitened: in coordinates ``y`` with ``z = factor @ y`` the
Gaussian has the identity covariance, and only its center differs from sample to sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numba import types
from numba.extending import overload

from skdgn._runtime import PART_OPTIONS, Bools, Floats, Integers

# Pieces thinner than this, relative to 1 + the distance from the origin of latent space, are not
# cut off: their boundaries cannot be told from rounding errors.  The generator is continuous, so
# leaving such a piece with its neighbor changes it by as little.
THINNEST_PIECE = 1e-12

# A cell whose mass is below this share of the error its caller can bear counts as empty.
LOG_NEGLIGIBLE_SHARE = math.log(0.01)


# What the four functions below call for each type of whitened cells where kernels are not compiled
# (``NUMBA_DISABLE_JIT=1``); compiled code has overloads in their place.
_PLAIN: dict[tuple[str, type], Any] = {}


class Facets(NamedTuple):
    """Facets of all cells; those of cell r are ``start[r]:start[r + 1]``."""

    start: Integers  # (R + 1,)
    normals: Floats  # (F, S) inward, unit length
    offsets: Floats  # (F,)


class Corners(NamedTuple):
    """Vertices of the bounded cells; those of cell r are ``start[r]:start[r + 1]``, or none."""

    start: Integers  # (R + 1,)
    points: Floats  # (V, S)


class Pieces(NamedTuple):
    """Cells after a split: each piece, the cell it comes from, its side of the cut."""

    cells: Any
    parents: Integers
    positive: Bools


class Cells(Protocol):
    """A collection of convex cells."""

    @classmethod
    def whole_space(cls, n_dimensions: int) -> Self:
        """Return one cell: all of latent space."""

    def __len__(self) -> int: ...

    def take(self, indices: Integers) -> Self:
        """Return the cells with these indices."""

    def split(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut every cell r by the hyperplane ``gradients[r] @ z + values[r] = 0``.

        Gradients have unit length, or are zero where the function is constant on the cell.
        """

    def facets(self) -> Facets:
        """List the facets of every cell."""

    def corners(self) -> Corners:
        """List the vertices of every bounded cell."""

    def interior_points(self) -> Floats:
        """Return a point strictly inside every cell, (R, S)."""

    def whiten(self, factors: Floats) -> Any:
        """Express cell r in coordinates y with ``z = factors[r] @ y``, for `integrate_cell`."""


def join_cells(parts: Sequence[Any]) -> Any:
    """Put collections of cells of one kind behind each other.

    Kinds are dataclasses of arrays.  Those whose names end in "start" say where the parts of every
    cell begin; the others hold what there is of every cell, or of its parts.
    """
    joined = {}
    for name in (field.name for field in fields(parts[0])):
        arrays = [getattr(part, name) for part in parts]
        if name.endswith("start"):
            sizes = np.concatenate([np.diff(array) for array in arrays])
            joined[name] = np.concatenate([[0], np.cumsum(sizes)])
        else:
            joined[name] = np.concatenate(arrays)
    return type(parts[0])(**joined)


def integrate_cell(
    cells: Any, region: int, center: Floats, log_tolerance: float, mean: Floats, covariance: Floats
) -> float:
    """Integrate N(center, I) over a whitened cell (one function per kind).

    Parameters
    ----------
    cells : named tuple made by ``Cells.whiten``
    region : int
    center : ndarray of shape (S,)
        Center of the Gaussian, in whitened coordinates.
    log_tolerance : float
        Log of the absolute error of the mass that the caller can bear.  With -inf the mass has full
        relative accuracy, however small it is; a larger value allows faster formulas.
    mean, covariance : ndarray of shape (S,) and (S, S)
        Filled with the moments of the truncated Gaussian, in latent coordinates ``z``.

    Returns
    -------
    log_mass : float
    """
    return _PLAIN["integral", type(cells)](cells, region, center, log_tolerance, mean, covariance)


def make_room(cells: Any) -> Any:
    """Make whitened cells of one cell, with room for the largest of these, for kernels to fill."""
    return _PLAIN["room", type(cells)](cells)


def whiten_cell(cells: Any, region: int, factor: Floats, room: Any) -> None:
    """Express one cell in coordinates y with ``z = factor @ y``.

    Where every row has a covariance of its own, cells are whitened one by one, when they are
    visited.

    Parameters
    ----------
    cells : named tuple made by ``Cells.whiten`` with identity matrices
    region : int
    factor : ndarray of shape (S, S)
        Of positive determinant.
    room : named tuple made by `make_room`
        Filled with the whitened cell, as its region 0.
    """
    _PLAIN["whitening", type(cells)](cells, region, factor, room)


def integrate_cell_with_error(
    cells: Any, region: int, center: Floats, log_tolerance: float, mean: Floats, covariance: Floats
) -> tuple[float, float]:
    """`integrate_cell` that also returns the relative standard error of the mass.

    It is zero for kinds of cells whose integrals are exact to rounding.
    """
    return _PLAIN["estimate", type(cells)](cells, region, center, log_tolerance, mean, covariance)


def _is_whitened(cells: Any, whitened: type) -> bool:
    return isinstance(cells, types.BaseTuple) and cells.instance_class is whitened


def register_whitening(whitened: type, room_maker: Any, whitening: Any) -> None:
    """Let `make_room` call a function, and `whiten_cell` a kernel, for cells of this type."""
    _PLAIN["room", whitened] = room_maker
    _PLAIN["whitening", whitened] = whitening

    @overload(whiten_cell, jit_options=PART_OPTIONS)
    def choose_whitening(cells: Any, region: Any, factor: Any, room: Any) -> Any:
        if not _is_whitened(cells, whitened):
            return None

        def call(cells: Any, region: Any, factor: Any, room: Any) -> Any:
            return whitening(cells, region, factor, room)

        return call


def register_integral(whitened: type, integral: Any) -> None:
    """Let `integrate_cell` call a kernel for cells whitened to this type."""
    _PLAIN["integral", whitened] = integral
    _PLAIN["estimate", whitened] = lambda *arguments: (integral(*arguments), 0.0)

    @overload(integrate_cell, jit_options=PART_OPTIONS)
    def choose(
        cells: Any, region: Any, center: Any, log_tolerance: Any, mean: Any, covariance: Any
    ) -> Any:
        if not _is_whitened(cells, whitened):
            return None

        def call(
            cells: Any, region: Any, center: Any, log_tolerance: Any, mean: Any, covariance: Any
        ) -> Any:
            return integral(cells, region, center, log_tolerance, mean, covariance)

        return call

    @overload(integrate_cell_with_error, jit_options=PART_OPTIONS)
    def choose_with_error(
        cells: Any, region: Any, center: Any, log_tolerance: Any, mean: Any, covariance: Any
    ) -> Any:
        if not _is_whitened(cells, whitened):
            return None

        def call(
            cells: Any, region: Any, center: Any, log_tolerance: Any, mean: Any, covariance: Any
        ) -> Any:
            return integral(cells, region, center, log_tolerance, mean, covariance), 0.0

        return call


def register_estimate(whitened: type, estimate: Any) -> None:
    """Let them call a kernel that returns the log mass and its relative error."""
    _PLAIN["integral", whitened] = lambda *arguments: estimate(*arguments)[0]
    _PLAIN["estimate", whitened] = estimate

    @overload(integrate_cell, jit_options=PART_OPTIONS)
    def choose(
        cells: Any, region: Any, center: Any, log_tolerance: Any, mean: Any, covariance: Any
    ) -> Any:
        if not _is_whitened(cells, whitened):
            return None

        def call(
            cells: Any, region: Any, center: Any, log_tolerance: Any, mean: Any, covariance: Any
        ) -> Any:
            return estimate(cells, region, center, log_tolerance, mean, covariance)[0]

        return call

    @overload(integrate_cell_with_error, jit_options=PART_OPTIONS)
    def choose_with_error(
        cells: Any, region: Any, center: Any, log_tolerance: Any, mean: Any, covariance: Any
    ) -> Any:
        if not _is_whitened(cells, whitened):
            return None

        def call(
            cells: Any, region: Any, center: Any, log_tolerance: Any, mean: Any, covariance: Any
        ) -> Any:
            return estimate(cells, region, center, log_tolerance, mean, covariance)

        return call
