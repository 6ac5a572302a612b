"""Holes filled in: conditional means, and conditional draws."""

from __future__ import annotations

import math

import numpy as np

from skdgn._noise import Holes, NoiseUnits, fill_holes, make_holes
from skdgn._posterior.explored import Explorer
from skdgn._posterior.listed import RegionMaps, Visitor, Visits
from skdgn._runtime import Floats, Workers, kernel


def fill_with_means(visitor: Visitor | Explorer, rows: Floats, workers: Workers) -> Floats:
    """Replace what is missing from rows (n, D) by E[x_m | x_o]."""

    def fill_batch(batch: Floats) -> Floats:
        filled = np.array(batch, dtype=np.float64, order="C")
        visits = visitor.visit(filled)
        regions = visitor.settle(visits).incomplete
        buffers = np.empty((3, rows.shape[1]))
        holes = make_holes(regions.units)
        _fill_with_means(filled, visits, regions.units, regions.maps, holes, buffers)
        return filled

    return workers.fill(np.empty(rows.shape), fill_batch, visitor.row_bytes, rows)


@kernel
def _fill_with_means(
    rows: Floats,
    visits: Visits,
    units: NoiseUnits,
    maps: RegionMaps,
    holes: Holes,
    buffers: Floats,
) -> None:
    n_features, n_components = maps.slopes.shape[1:]
    generated, filled, expected = buffers[0], buffers[1], buffers[2]
    for n in range(len(rows)):
        for d in range(n_features):
            expected[d] = 0.0
        for v in range(visits.start[n], visits.start[n + 1]):
            r = visits.regions[v]
            for d in range(n_features):
                value = maps.offsets[r, d]
                for s in range(n_components):
                    value += maps.slopes[r, d, s] * visits.means[v, s]
                generated[d] = units.deviations[d] * value
            fill_holes(rows[n], generated, units, holes, filled)
            for d in range(n_features):
                expected[d] += visits.responsibilities[v] * filled[d]
        for d in range(n_features):
            if math.isnan(rows[n, d]):
                rows[n, d] = expected[d]


def fill_with_draws(rows: Floats, generated: Floats, units: NoiseUnits) -> None:
    """Replace what is missing from rows (n, D), given draws from g(z) + noise, z | x_o."""
    _fill_with_draws(rows, generated, units, make_holes(units), np.empty(rows.shape[1]))


@kernel
def _fill_with_draws(
    rows: Floats, generated: Floats, units: NoiseUnits, holes: Holes, filled: Floats
) -> None:
    for n in range(len(rows)):
        fill_holes(rows[n], generated[n], units, holes, filled)
        for d in range(filled.size):
            rows[n, d] = filled[d]
