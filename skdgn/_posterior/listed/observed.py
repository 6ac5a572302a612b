"""The features that were observed, and the generator's maps to them, in units of the noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from skdgn._network import AffineMaps
from skdgn._noise import Noise
from skdgn._partition import ComposedMaps, Partition
from skdgn._runtime import Floats, Integers


class Observed(NamedTuple):
    """Samples in which the same features were observed, and nothing but these features."""

    indices: Integers  # (k,) of the samples in the table
    features: Integers  # (d,)
    samples: Floats  # (k, d)
    partition: Partition
    noise: Noise


def observed_parts(partition: Partition, noise: Noise, samples: Floats) -> Iterator[Observed]:
    """Split a table with missing values (NaN) into tables without."""
    patterns, owner = np.unique(~np.isnan(samples), axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        indices = np.flatnonzero(owner.ravel() == number)
        features = np.flatnonzero(pattern)
        if pattern.all():
            yield Observed(indices, features, samples[indices], partition, noise)
            continue
        maps = AffineMaps(
            np.ascontiguousarray(partition.maps.slopes[:, features]),
            np.ascontiguousarray(partition.maps.offsets[:, features]),
        )
        yield Observed(
            indices,
            features,
            samples[np.ix_(indices, features)],
            replace(partition, maps=ComposedMaps.of(maps)),
            noise.restrict(features),
        )
