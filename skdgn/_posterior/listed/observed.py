"""The features that were observed, and the generator's maps to them, in units of the noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from skdgn._network import AffineMaps
from skdgn._noise import Noise
from skdgn._partition import ComposedMaps, LazyMaps, Partition
from skdgn._runtime import Floats, Integers


class Observed(NamedTuple):
    """Samples in which the same features were observed, and nothing but these features."""

    indices: Integers  # (k,) of the samples in the table
    features: Integers  # (d,)
    samples: Floats  # (k, d)
    partition: Partition
    noise: Noise


def group_by_observed(samples: Floats) -> Iterator[tuple[Integers, Integers]]:
    """Group samples (n, D) by what was observed of them: yield samples and features."""
    patterns, owner = np.unique(~np.isnan(samples), axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield np.flatnonzero(owner.ravel() == number), np.flatnonzero(pattern)


def restrict_features(maps: LazyMaps, features: Integers) -> LazyMaps:
    """Return the maps to some features."""
    if len(features) == maps.shape[1]:
        return maps
    return ComposedMaps.of(
        AffineMaps(
            np.ascontiguousarray(maps.slopes[:, features]),
            np.ascontiguousarray(maps.offsets[:, features]),
        )
    )


def restrict_noise(noise: Noise, features: Integers) -> Noise:
    """Return the noise of some features."""
    return noise if len(features) == noise.n_features else noise.restrict(features)


def observed_parts(partition: Partition, noise: Noise, samples: Floats) -> Iterator[Observed]:
    """Split a table with missing values (NaN) into tables without."""
    for indices, features in group_by_observed(samples):
        yield Observed(
            indices,
            features,
            samples[np.ix_(indices, features)],
            replace(partition, maps=restrict_features(partition.maps, features)),
            restrict_noise(noise, features),
        )
