"""Coordinates in which complete samples are compared with the images of regions.

The last layer ``W h + b`` maps all that comes before it to a plane.  If this has far fewer
dimensions than there are features, a sample is known by its projection onto the plane and by its
distance from it: in units of the noise (tildes), with ``W~ = Q T`` and orthonormal columns of Q,

    |x~ - W~ h - b~|^2 = |Q' (x~ - b~) - T h|^2 + |(I - Q Q') (x~ - b~)|^2.

The distance is one more coordinate, in which all images are 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skdgn._network import AffineMaps, Dense, Layer
from skdgn._noise import Noise
from skdgn._partition import ComposedMaps, LazyMaps, gather_maps
from skdgn._runtime import Floats

# A plane is worth its while if it saves so many coordinates: to find them takes time, too.
_FEWEST_SAVED = 64


@dataclass(frozen=True)
class Frame(ABC):
    """Coordinates in units of the noise."""

    maps: LazyMaps
    noise: Noise

    @property
    def log_constant(self) -> float:
        """Largest log density of the noise."""
        n_features = self.noise.n_features
        return -0.5 * (n_features * math.log(2.0 * math.pi) + self.noise.log_determinant)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of regions, coordinates and latent dimensions."""
        return self.maps.shape

    @abstractmethod
    def take(self, regions: NDArray[np.intp] | slice) -> AffineMaps:
        """Return the maps of these regions to the coordinates."""

    def compose(self) -> AffineMaps:
        """Return the maps of all regions."""
        return gather_maps(self.shape[0], self.take)

    @abstractmethod
    def whiten(self, samples: Floats) -> Floats:
        """Return the coordinates of complete samples (n, D)."""

    @abstractmethod
    def compare(self, samples: Floats, residuals: Floats) -> tuple[Floats, Floats, Floats]:
        """Prepare differences of squared distances, without large numbers that cancel.

        Given samples (n, D) and vectors in units of the noise (n, D), such as their residuals from
        other images, returns coordinates of both, (n, C) each, and the difference of their squares
        that is none of images in this frame, (n,).
        """


def count_coordinates(last: Layer) -> int:
    """Return how many coordinates the images of a network have, by its last layer."""
    if isinstance(last, Dense) and last.n_outputs - last.n_inputs > _FEWEST_SAVED:
        return last.n_inputs + 1
    return last.n_outputs


def choose_frame(maps: LazyMaps, noise: Noise) -> Frame:
    """Return few coordinates for all that maps draw."""
    last = maps.layers[-1] if maps.layers else None
    if (
        isinstance(maps, ComposedMaps)
        and isinstance(last, Dense)
        and count_coordinates(last) < last.n_outputs
    ):
        return _PlaneFrame.of(maps, last, noise)
    return _FeatureFrame(maps, noise)


class _FeatureFrame(Frame):
    """The features themselves."""

    def take(self, regions: NDArray[np.intp] | slice) -> AffineMaps:
        maps = self.maps.take(regions)
        return AffineMaps(self.noise.whiten_maps(maps.slopes), self.noise.whiten(maps.offsets))

    def whiten(self, samples: Floats) -> Floats:
        return self.noise.whiten(samples)

    def compare(self, samples: Floats, residuals: Floats) -> tuple[Floats, Floats, Floats]:
        return self.noise.whiten(samples), residuals, np.zeros(len(samples))


@dataclass(frozen=True)
class _PlaneFrame(Frame):
    """Along the plane of all images, and across it; maps lead to coordinates."""

    origin: Floats  # (D,)
    basis: Floats  # (D, w) orthonormal, in units of the noise

    @classmethod
    def of(cls, maps: ComposedMaps, last: Dense, noise: Noise) -> _PlaneFrame:
        """Turn the last layer such that its outputs are coordinates."""
        basis, triangle = np.linalg.qr(noise.whiten_maps(last.coef[None])[0])
        matrix = np.concatenate([triangle, np.zeros((1, last.n_inputs))])
        turned = replace(maps, layers=(*maps.layers[:-1], Dense(matrix, np.zeros(len(matrix)))))
        return cls(turned, noise, last.intercept, basis)

    def take(self, regions: NDArray[np.intp] | slice) -> AffineMaps:
        return self.maps.take(regions)

    def whiten(self, samples: Floats) -> Floats:
        # What overflows is so far out that nothing is known of it.
        with np.errstate(over="ignore", invalid="ignore"):
            along, across = self._divide(self.noise.whiten(samples - self.origin))
            return np.column_stack([along, np.sqrt(np.square(across).sum(axis=1))])

    def _divide(self, vectors: Floats) -> tuple[Floats, Floats]:
        """Divide vectors (n, D) into coordinates along the plane (n, w), and the rest (n, D)."""
        along = vectors @ self.basis
        return along, vectors - along @ self.basis.T

    def compare(self, samples: Floats, residuals: Floats) -> tuple[Floats, Floats, Floats]:
        along, across = self._divide(self.noise.whiten(samples - self.origin))
        other_along, other_across = self._divide(residuals)
        excess = ((across - other_across) * (across + other_across)).sum(axis=1)
        nothing = np.zeros((len(samples), 1))  # the last coordinate is in the excess
        return np.hstack([along, nothing]), np.hstack([other_along, nothing]), excess
