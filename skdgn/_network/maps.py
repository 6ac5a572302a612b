"""Affine maps of latent space, one per region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._runtime import Floats, Integers

Codes = NDArray[np.uint8]

# Numbers that are multiplied at a time: they stay in the processor's cache.
_NUMBERS_AT_A_TIME = 1 << 17
_FEW_NUMBERS = 1 << 11


def multiply(matrix: Any, blocks: Floats) -> Floats:
    """Multiply blocks (r, i, k) by one matrix (u, i), dense or sparse: (r, u, k).

    By few products of large matrices: that takes a fourth of the time of many small ones, unless
    there are few.
    """
    n_blocks, n_inputs, n_columns = blocks.shape
    if isinstance(matrix, np.ndarray) and blocks.size <= _FEW_NUMBERS:
        return np.asarray(matrix @ blocks)
    n_outputs = matrix.shape[0]
    product = np.empty((n_blocks, n_outputs, n_columns))
    n_part = max(1, _NUMBERS_AT_A_TIME // (max(n_inputs, n_outputs) * max(n_columns, 1)))
    for begin in range(0, n_blocks, n_part):
        part = np.swapaxes(blocks[begin : begin + n_part], 1, 2)
        rows = part.reshape(len(part) * n_columns, n_inputs) @ matrix.T
        product[begin : begin + n_part] = rows.reshape(*part.shape[:2], n_outputs).swapaxes(1, 2)
    return product


def sum_by(groups: Integers, values: Floats, n_groups: int) -> Floats:
    """Sum values (n,) over the groups (n,) they belong to: (n_groups,)."""
    return np.bincount(groups, weights=values, minlength=n_groups).astype(np.float64, copy=False)


@dataclass(frozen=True)
class AffineMaps:
    """One affine map ``z -> slopes @ z + offsets`` per region."""

    slopes: Floats  # (r, u, s)
    offsets: Floats  # (r, u)

    @classmethod
    def identity(cls, n_dimensions: int) -> AffineMaps:
        """Return the identity on one region."""
        return cls(np.eye(n_dimensions)[None], np.zeros((1, n_dimensions)))

    def take(self, regions: Integers) -> AffineMaps:
        """Return the maps of these regions."""
        return AffineMaps(self.slopes[regions], self.offsets[regions])

    def first(self, n_units: int) -> AffineMaps:
        """Return the maps to so many units."""
        return AffineMaps(self.slopes[:, :n_units], self.offsets[:, :n_units])

    def absolute(self) -> AffineMaps:
        """Return the absolute values of all entries."""
        return AffineMaps(np.abs(self.slopes), np.abs(self.offsets))

    def homogeneous(self, n_regions: int) -> Floats:
        """Return ``[slopes offsets; 0 1]`` of every region: (r, u + 1, s + 1).

        One map may stand for all regions.
        """
        _, n_units, n_dimensions = self.slopes.shape
        matrix = np.zeros((n_regions, n_units + 1, n_dimensions + 1))
        matrix[:, :-1, :-1] = self.slopes
        matrix[:, :-1, -1] = self.offsets
        matrix[:, -1, -1] = 1.0
        return matrix
