"""Missing values filled in: conditional means, and conditional draws."""

from __future__ import annotations

import math

import numpy as np

from skdgn._noise import NoiseUnits, Observation, fill_missing, make_observation
from skdgn._posterior.explored import Explorer
from skdgn._posterior.listed import ListedRegions, RegionMaps, Visits
from skdgn._runtime import Floats, Workers, kernel


def fill_with_means(visitor: ListedRegions | Explorer, samples: Floats, workers: Workers) -> Floats:
    """Replace what is missing from samples (n, D) by E[x_m | x_o]."""

    def fill_batch(batch: Floats) -> Floats:
        filled = np.array(batch, dtype=np.float64, order="C")
        visits = visitor.visit(filled)
        regions = visitor.settle(visits)
        buffers = np.empty((3, samples.shape[1]))
        observation = make_observation(regions.units)
        _fill_with_means(filled, visits, regions.units, regions.region_maps, observation, buffers)
        return filled

    return workers.fill(np.empty(samples.shape), fill_batch, visitor.sample_bytes, samples)


@kernel
def _fill_with_means(
    samples: Floats,
    visits: Visits,
    units: NoiseUnits,
    maps: RegionMaps,
    observation: Observation,
    buffers: Floats,
) -> None:
    n_features, n_components = maps.slopes.shape[1:]
    generated, filled, expected = buffers[0], buffers[1], buffers[2]
    for n in range(len(samples)):
        for d in range(n_features):
            expected[d] = 0.0
        for v in range(visits.start[n], visits.start[n + 1]):
            r = visits.regions[v]
            for d in range(n_features):
                value = maps.offsets[r, d]
                for s in range(n_components):
                    value += maps.slopes[r, d, s] * visits.means[v, s]
                generated[d] = units.deviations[d] * value
            fill_missing(samples[n], generated, units, observation, filled)
            for d in range(n_features):
                expected[d] += visits.responsibilities[v] * filled[d]
        for d in range(n_features):
            if math.isnan(samples[n, d]):
                samples[n, d] = expected[d]


def fill_with_draws(samples: Floats, generated: Floats, units: NoiseUnits) -> None:
    """Replace what is missing from samples (n, D), given draws from g(z) + noise, z | x_o."""
    _fill_with_draws(samples, generated, units, make_observation(units), np.empty(samples.shape[1]))


@kernel
def _fill_with_draws(
    samples: Floats, generated: Floats, units: NoiseUnits, observation: Observation, filled: Floats
) -> None:
    for n in range(len(samples)):
        fill_missing(samples[n], generated[n], units, observation, filled)
        for d in range(filled.size):
            samples[n, d] = filled[d]
