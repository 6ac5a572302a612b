"""Samples as a fit reads them: sorted and merged in memory, or by batches from where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._runtime.types import Floats, Integers
from skdgn._runtime.workers import MOST_SAMPLES, Workers, read, sample_batches

# Sorting takes so many times the memory of the table in double precision.
_SORTING_COPIES = 8
# Bytes that a pass over the samples takes for each number in them.
PASS_BYTES = 64
# Keys of columns that agree to so many digits may differ by rounding only.
_DIGITS_OF_KEYS = 9
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, with bits everywhere
_HASH_SHIFT = np.uint64(29)


@dataclass(frozen=True)
class ScaledSamples:
    """A view of a table that centers and scales samples as they are read.

    What is indexed is such a view again; ``np.asarray`` reads it.
    """

    values: Samples  # (n, D), in single or double precision, maybe on disk
    center: Floats  # (D,)
    deviations: Floats  # (D,)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, samples: slice | Integers) -> ScaledSamples:
        return ScaledSamples(self.values[samples], self.center, self.deviations)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        scaled: Floats = np.subtract(np.asarray(self.values), self.center, dtype=np.float64)
        scaled /= self.deviations
        return scaled


@dataclass(frozen=True)
class OrderedColumns:
    """A view of a table whose columns are put in another order as they are read."""

    values: NDArray[Any]  # (n, D)
    order: Integers  # (D,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table."""
        return self.values.shape

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.values.size

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, samples: slice | Integers) -> OrderedColumns:
        return OrderedColumns(self.values[samples], self.order)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.values)[:, self.order]


Samples = NDArray[Any] | OrderedColumns
Table = Samples | ScaledSamples


def fits_into(memory: float, samples: Samples) -> bool:
    """Whether there is enough memory to sort samples (n, D)."""
    return _SORTING_COPIES * 8.0 * samples.size <= memory


def merge_duplicates(samples: Floats, sample_weights: Floats) -> tuple[Floats, Floats]:
    """Sort samples, merge equal ones and drop those without weight.

    A fit then depends neither on the order of the samples nor on whether a sample is repeated or
    weighted.  Samples with the same values missing follow each other.
    """
    kept = np.flatnonzero(sample_weights > 0)
    keys = samples[kept]
    missing = np.isnan(keys)
    if missing.any():
        # NaN equals nothing, not even itself: zeros and the places of missing values stand for it.
        keys = np.concatenate([missing, np.where(missing, 0.0, keys)], axis=1)
    order = np.argsort(keys[:, 0], kind="stable")
    if np.any(np.diff(keys[order, 0]) == 0.0):  # the other columns have a say
        order = np.lexsort(keys.T[::-1])
    keys = keys[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = np.any(keys[1:] != keys[:-1], axis=1)
    firsts, kept = np.flatnonzero(is_first), kept[order]
    return samples[kept[firsts]], np.add.reduceat(sample_weights[kept], firsts)


def split_by_pattern(samples: Floats) -> Iterator[tuple[Integers, Integers]]:
    """Split samples (n, D) by what was observed: indices of samples, and of observed features."""
    patterns, owner = np.unique(~np.isnan(samples), axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield np.flatnonzero(owner.ravel() == number), np.flatnonzero(pattern)


def order_columns(table: Table, sample_weights: Floats, workers: Workers) -> Integers:
    """Put the columns of a scaled table (n, D) in an order that does not depend on theirs.

    They are sorted by how skewed they are, how wide their tails, and how they go with all columns
    together.  What these do not tell apart, but for rounding, differs in its name only.
    """

    def add_up(batch: Table, weights: Floats) -> Floats:
        bounded = np.tanh(np.nan_to_num(read(batch)))
        together = bounded.sum(axis=1, keepdims=True) ** 2
        keys = np.stack([bounded, bounded**2, bounded * together])
        return np.einsum("n,knd->kd", read(weights), keys)

    n_features = table.values.shape[1] if isinstance(table, ScaledSamples) else table.shape[1]
    sums = workers.sum(add_up, PASS_BYTES * n_features, table, sample_weights)
    keys = np.round(sums / sample_weights.sum(), _DIGITS_OF_KEYS)
    return np.lexsort(keys[::-1])


def observed_weights(samples: Samples, sample_weights: Floats, workers: Workers) -> Floats:
    """Sum of the weights of the samples in which each feature was observed, (D,)."""
    return workers.sum(
        lambda batch, weights: read(weights) @ ~np.isnan(np.asarray(batch)),
        PASS_BYTES * samples.shape[1],
        samples,
        sample_weights,
    )


def value_ranges(samples: NDArray[Any], sample_weights: Floats) -> tuple[Floats, Floats]:
    """Smallest and largest value of each feature in samples of positive weight, (D,) each.

    A feature that was never observed has the range of NaN.
    """
    lowest, highest = np.full((2, samples.shape[1]), np.nan)
    for batch in sample_batches(len(samples), MOST_SAMPLES):
        values = read(samples[batch])[sample_weights[batch] > 0]
        lowest = np.fmin(lowest, np.fmin.reduce(values, axis=0, initial=np.nan))
        highest = np.fmax(highest, np.fmax.reduce(values, axis=0, initial=np.nan))
    return lowest, highest


def draw_samples(
    samples: Table, sample_weights: Floats, n_samples: int, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Choose some of the samples at random, and their weights.

    Samples in memory are known to differ.  Those of another table are chosen by a random function
    of their values, the smallest first: whatever their order is, and equal samples as one.
    """
    if not isinstance(samples, ScaledSamples):
        chosen = np.sort(generator.choice(len(samples), n_samples, replace=False))
        return read(samples[chosen]), sample_weights[chosen]
    seeds = generator.integers(2**63, size=samples.values.shape[1] + 1, dtype=np.uint64)
    keys, places, weights = np.empty(0, np.uint64), np.empty(0, np.intp), np.empty(0)
    for batch in sample_batches(len(samples), MOST_SAMPLES):
        heavy = np.flatnonzero(sample_weights[batch] > 0)
        found = _hash_samples(read(samples.values[batch])[heavy], seeds)
        keys, first, inverse = np.unique(
            np.concatenate([keys, found]), return_index=True, return_inverse=True
        )
        places = np.concatenate([places, batch.start + heavy])[first[:n_samples]]
        added = np.concatenate([weights, sample_weights[batch][heavy]])
        weights = np.zeros(len(keys))
        np.add.at(weights, inverse, added)
        keys, weights = keys[:n_samples], weights[:n_samples]
    return read(samples[places]), weights


def _hash_samples(values: Floats, seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Turn samples into random numbers, equal samples into equal ones."""
    # There are two zeros, and many NaN.
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.uint64)
    hashes = np.full(len(values), seeds[-1])
    for column, seed in zip(bits.T, seeds[:-1], strict=True):
        hashes = hashes ^ column ^ seed
        for _ in range(2):
            hashes *= _HASH_FACTOR
            hashes ^= hashes >> _HASH_SHIFT
    return hashes
