"""Maxima of the posteriors of samples: which of those that were found are kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skdgn._runtime import Bools, Floats, Integers, inlined_kernel, kernel

# Of each sample, so many are kept: maxima, and points at kinks.
MOST_MAXIMA = (12, 4)
# Those that are lower than the highest by so many nats do not matter.
_TOO_LOW = 12.0
# A maximum that is found once more is not a new one, even if this ascent came closer to it, or
# rounding makes it look higher.
_SLACK = 0.1


class Maxima(NamedTuple):
    """Points at which ascents ended, or at kinks."""

    owners: Integers  # (m,) samples they belong to
    kinds: Integers  # (m,) 0 for a maximum, 1 for a point at a kink
    points: Floats  # (m, S)
    heights: Floats  # (m,) log p(x, z), up to a constant
    factors: Floats  # (m, S, S) lower triangles of the Gaussians around

    def take(self, chosen: Integers | Bools) -> Maxima:
        """Return these."""
        return Maxima._make(array[chosen] for array in self)

    @classmethod
    def of_nothing(cls, n_components: int) -> Maxima:
        """Return none at all."""
        nobody = np.empty(0, dtype=np.intp)
        points, factors = np.empty((0, n_components)), np.empty((0, n_components, n_components))
        return cls(nobody, nobody, points, np.empty(0), factors)

    @classmethod
    def concatenate(cls, parts: Sequence[Maxima]) -> Maxima:
        """Put several together."""
        return cls._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    @property
    def logs(self) -> Floats:
        """Log of their heights times the volumes of the Gaussians around."""
        diagonals = np.einsum("mss->ms", self.factors)
        return np.asarray(self.heights + np.log(diagonals).sum(axis=1))

    def join(self, new: Maxima, n_samples: int) -> tuple[Maxima, Floats]:
        """Keep the best of these and of new ones; also returns the share (n,) of new maxima.

        Not those that are nearly the same as others, or far too low.
        """
        both = Maxima.concatenate([self, new])
        logs, is_later = both.logs, np.arange(len(both.owners)) >= len(self.owners)
        order = np.lexsort((_SLACK * is_later - logs, both.kinds, both.owners))
        kept = _choose(both, logs, order, n_samples)
        is_new = is_later[kept] & (both.kinds[kept] == 0)
        chosen = both.take(kept)
        shares = chosen.shares(n_samples)
        return chosen, np.bincount(chosen.owners, shares * is_new, n_samples).astype(float)

    def shares(self, n_samples: int) -> Floats:
        """Return the share that each has of what is known of its sample."""
        logs, largest = self.logs, np.full(n_samples, -np.inf)
        np.maximum.at(largest, self.owners, logs)
        shares = np.exp(logs - largest[self.owners])
        return np.asarray(shares / np.bincount(self.owners, shares, n_samples)[self.owners])


@kernel
def _choose(maxima: Maxima, logs: Floats, order: Integers, n_samples: int) -> Integers:
    """Return which are kept, given their order: by sample, by kind, and the best first."""
    points, factors = maxima.points, maxima.factors
    scratch, kept = np.empty(points.shape[1]), np.empty(len(order), dtype=np.intp)
    n_kept, i = 0, 0
    while i < len(order):
        first, sample = n_kept, maxima.owners[order[i]]
        end, largest = i, -math.inf
        while end < len(order) and maxima.owners[order[end]] == sample:
            largest = max(largest, logs[order[end]])
            end += 1
        for kind in range(len(MOST_MAXIMA)):
            left = MOST_MAXIMA[kind]
            while i < end and maxima.kinds[order[i]] == kind:
                new = order[i]
                is_kept = left > 0 and logs[new] > largest - _TOO_LOW
                for k in range(first, n_kept):
                    old = kept[k]
                    if not is_kept:
                        break
                    # Close to each other in units of both.
                    is_kept = (
                        _square(factors[old], points[old], points[new], scratch) >= 1.0
                        or _square(factors[new], points[new], points[old], scratch) >= 1.0
                    )
                if is_kept:
                    kept[n_kept] = new
                    n_kept += 1
                    left -= 1
                i += 1
    return kept[:n_kept]


@inlined_kernel
def _square(factor: Floats, mean: Floats, point: Floats, scratch: Floats) -> float:
    """Squared length of a point minus the mean, in units of a lower factor."""
    square = 0.0
    for s in range(mean.size):
        value = point[s] - mean[s]
        for t in range(s):
            value -= factor[s, t] * scratch[t]
        scratch[s] = value / factor[s, s]
        square += scratch[s] * scratch[s]
    return square
