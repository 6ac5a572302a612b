"""The affine maps of regions, composed layer by layer.

Of a wide network with many features they take gigabytes.  So they are composed when somebody asks,
of the maps of the cells that the last layer with cuts has divided, a few regions at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from skdgn._network import AffineMaps, Codes, Layer
from skdgn._runtime import Floats

# Maps of so many regions stay in the processor's cache: memory is slow.
_REGIONS_AT_A_TIME = 512


class LazyMaps(ABC):
    """One affine map ``z -> slopes @ z + offsets`` per region, composed when somebody asks."""

    layers: Sequence[Layer]  # the last layers of all maps, if they have them in common

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """Numbers of regions, features and latent dimensions."""

    @abstractmethod
    def take(self, regions: NDArray[np.intp] | slice) -> AffineMaps:
        """Return the maps of these regions."""

    @cached_property
    def composed(self) -> AffineMaps:
        """The maps of all regions."""
        return gather_maps(self.shape[0], self.take)

    @property
    def slopes(self) -> Floats:
        """Slopes of all regions: (R, D, S)."""
        return self.composed.slopes

    @property
    def offsets(self) -> Floats:
        """Offsets of all regions: (R, D)."""
        return self.composed.offsets


@dataclass(frozen=True)
class ComposedMaps(LazyMaps):
    """Maps of regions that cells have been divided into, by the layers from there on."""

    layers: Sequence[Layer]
    before: AffineMaps  # of the cells that it divides
    parents: NDArray[np.intp]  # (R,): the cell that each region comes from
    codes: Codes  # (R, c) of all these layers

    @classmethod
    def of(cls, maps: AffineMaps) -> ComposedMaps:
        """Return maps that need not be composed."""
        n_regions = len(maps.offsets)
        return cls((), maps, np.arange(n_regions), np.empty((n_regions, 0), dtype=np.uint8))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of regions, features and latent dimensions."""
        n_features = self.layers[-1].n_outputs if self.layers else self.before.offsets.shape[1]
        return len(self.parents), n_features, self.before.slopes.shape[2]

    def take(self, regions: NDArray[np.intp] | slice) -> AffineMaps:
        """Return the maps of these regions."""
        maps, codes, begin = self.before.take(self.parents[regions]), self.codes[regions], 0
        for layer in self.layers:
            maps = layer.apply(maps, codes[:, begin : begin + layer.n_codes])
            begin += layer.n_codes
        return maps


@dataclass(frozen=True)
class JoinedMaps(LazyMaps):
    """Maps of the regions of several partitions, one behind the other."""

    parts: Sequence[LazyMaps]
    layers: Sequence[Layer] = ()

    @cached_property
    def _start(self) -> NDArray[np.intp]:
        return np.cumsum([0, *(part.shape[0] for part in self.parts)])

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of regions, features and latent dimensions."""
        return (int(self._start[-1]), *self.parts[0].shape[1:])

    def take(self, regions: NDArray[np.intp] | slice) -> AffineMaps:
        """Return the maps of these regions."""
        n_regions, n_features, n_components = self.shape
        if isinstance(regions, slice):
            regions = np.arange(n_regions)[regions]
        slopes = np.empty((len(regions), n_features, n_components))
        offsets = np.empty((len(regions), n_features))
        owner = np.searchsorted(self._start, regions, side="right") - 1
        for number in np.unique(owner):
            own = np.flatnonzero(owner == number)
            maps = self.parts[number].take(regions[own] - self._start[number])
            slopes[own], offsets[own] = maps.slopes, maps.offsets
        return AffineMaps(slopes, offsets)


def gather(n_regions: int, compute: Callable[[slice], tuple[Floats, ...]]) -> tuple[Floats, ...]:
    """Compute arrays for a few regions at a time, and put them behind each other."""
    if n_regions <= _REGIONS_AT_A_TIME:
        return tuple(map(np.ascontiguousarray, compute(slice(0, n_regions))))
    gathered: tuple[Floats, ...] = ()
    for begin in range(0, n_regions, _REGIONS_AT_A_TIME):
        part = slice(begin, begin + _REGIONS_AT_A_TIME)
        arrays = compute(part)
        gathered = gathered or tuple(np.empty((n_regions, *own.shape[1:])) for own in arrays)
        for array, own in zip(gathered, arrays, strict=True):
            array[part] = own
    return gathered


def gather_maps(n_regions: int, take: Callable[[slice], AffineMaps]) -> AffineMaps:
    """Compose the maps of all regions, a few at a time."""

    def compute(part: slice) -> tuple[Floats, ...]:
        maps = take(part)
        return maps.slopes, maps.offsets

    return AffineMaps(*gather(n_regions, compute))


def compose(
    layers: Sequence[Layer], maps: AffineMaps, parents: NDArray[np.intp], codes: Codes
) -> tuple[AffineMaps, AffineMaps]:
    """Compose maps of cells, that regions come from, with layers of which the first has codes.

    Returns maps, and the sums of the sizes of the terms in them.
    """

    def compute(part: slice) -> tuple[Floats, ...]:
        own, sizes = maps.take(parents[part]), None
        for layer in layers:
            if layer.n_codes == 0:
                sizes = layer.magnitudes(sizes or own.absolute())
            own = layer.apply(own, codes[part])
        sizes = sizes or own.absolute()
        return own.slopes, own.offsets, sizes.slopes, sizes.offsets

    arrays = gather(len(parents), compute)
    return AffineMaps(*arrays[:2]), AffineMaps(*arrays[2:])
