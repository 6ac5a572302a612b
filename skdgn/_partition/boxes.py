"""Boxes of latent space, for networks whose regions are too many to list them all."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from skdgn._geometry import Cells, whole_space
from skdgn._network import Enclosures, Network
from skdgn._runtime import Floats, Integers


class LatentBoxes(NamedTuple):
    """Cubes of latent space."""

    centers: Floats  # (b, S)
    halves: Floats  # (b,) half of their widths

    def take(self, indices: Integers) -> LatentBoxes:
        """Return the boxes with these indices."""
        return LatentBoxes(self.centers[indices], self.halves[indices])

    def divide(self) -> LatentBoxes:
        """Halve every box along all axes: (b 2^S,), the parts of one box behind each other."""
        n_components = self.centers.shape[1]
        signs = np.array(list(itertools.product((-0.5, 0.5), repeat=n_components)))
        centers = self.centers[:, None] + self.halves[:, None, None] * signs
        halves = np.repeat(0.5 * self.halves, len(signs))
        return LatentBoxes(centers.reshape(-1, n_components), halves)

    def log_masses(self) -> Floats:
        """Log of the prior's mass on each box."""
        # By the tail in which no digits cancel.
        middle = np.abs(self.centers)
        low, high = middle - self.halves[:, None], middle + self.halves[:, None]
        log_low, log_high = log_ndtr(-low), log_ndtr(-high)
        return (log_low + np.log1p(-np.exp(log_high - log_low))).sum(axis=1)

    def cells(self) -> Cells:
        """Return the boxes as cells, to be cut."""
        n_boxes, n_components = self.centers.shape
        cells = whole_space(n_components).take(np.zeros(n_boxes, dtype=np.intp))
        for axis in range(n_components):
            for sign in (1.0, -1.0):
                gradients = np.zeros((n_boxes, n_components))
                gradients[:, axis] = sign
                pieces = cells.split(gradients, self.halves - sign * self.centers[:, axis])
                cells = pieces.cells.take(np.flatnonzero(pieces.positive))
        return cells


def join_boxes(parts: list[LatentBoxes]) -> LatentBoxes:
    """Put boxes behind each other."""
    return LatentBoxes(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def enclose_outputs(network: Network, boxes: LatentBoxes) -> Enclosures:
    """Enclose what a network generates on boxes."""
    enclosures = Enclosures.of_boxes(*boxes)
    for layer in network.layers:
        enclosures = layer.enclose(enclosures)
    return enclosures
