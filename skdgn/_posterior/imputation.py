"""Holes filled in: conditional means, and conditional draws."""

from __future__ import annotations

import math

import numpy as np

from skdgn._noise import NoiseUnits, fill_holes, make_holes
from skdgn._posterior.explored import Explorer
from skdgn._posterior.listed import RegionMaps, Visitor, Visits
from skdgn._runtime import Floats, Workers, kernel


def fill_with_means(visitor: Visitor | Explorer, rows: Floats, workers: Workers) -> Floats:
    """Replace what is missing from rows (n, D) by E[x_m | x_o]."""

    def fill_batch(batch: Floats) -> Floats:
        filled = np.array(batch, dtype=np.float64, order="C")
        visits = visitor.visit(filled)
        regions = visitor.settle(visits).incomplete
        _fill_with_means(filled, visits, regions.units, regions.maps)
        return filled

    return workers.fill(np.empty(rows.shape), fill_batch, visitor.row_bytes, rows)


@kernel
def _fill_with_means(rows: Floats, visits: Visits, units: NoiseUnits, maps: RegionMaps) -> None:
    n_features, n_components = maps.slopes.shape[1:]
    holes = make_holes(units)
    generated, filled, expected = np.empty(n_features), np.empty(n_features), np.empty(n_features)
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


@kernel
def fill_with_draws(rows: Floats, generated: Floats, units: NoiseUnits) -> None:
    """Replace what is missing from rows (n, D), given draws from g(z) + noise, z | x_o."""
    holes = make_holes(units)
    filled = np.empty(rows.shape[1])
    for n in range(len(rows)):
        fill_holes(rows[n], generated[n], units, holes, filled)
        for d in range(filled.size):
            rows[n, d] = filled[d]
