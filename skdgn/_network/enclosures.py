"""What the units of a layer may be over boxes of latent space: affine, but for a remainder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdgn._network.maps import AffineMaps
from skdgn._runtime import Floats, Integers


@dataclass(frozen=True)
class Enclosures:
    """On box n, with coordinates v in [-1, 1]^S, unit u is within a radius of an affine function.

    ``|unit - maps.slopes @ v - maps.offsets| <= radii``.  On a box that no boundary of a network
    crosses, its radii are zero.
    """

    maps: AffineMaps  # (n, u, S) and (n, u)
    radii: Floats  # (n, u)
    n_cuts: Integers  # (n,): how many boundaries may cross each box, so far

    @classmethod
    def of_boxes(cls, centers: Floats, halves: Floats) -> Enclosures:
        """Enclose latent points themselves, of boxes with centers (n, S) and half-widths (n,)."""
        slopes = halves[:, None, None] * np.eye(centers.shape[1])
        n_cuts = np.zeros(len(halves), dtype=np.intp)
        return cls(AffineMaps(slopes, centers), np.zeros(centers.shape), n_cuts)

    def ranges(self) -> tuple[Floats, Floats]:
        """Return the least and the largest that units may be: (n, u) each."""
        reach = np.abs(self.maps.slopes).sum(axis=2) + self.radii
        return self.maps.offsets - reach, self.maps.offsets + reach
