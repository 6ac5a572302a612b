"""Weighted points, grouped by the region they are in."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skdgn._posterior.likelihoods import Keys
from skdgn._runtime import Floats, kernel

Integers = NDArray[np.intp]

# Regions with less than this share of a posterior are left out.
_NO_SHARE = 1e-12
# More regions than this are thinned: a few stand for many.
MOST_VISITS = 256


@kernel
def group_points(
    points: Floats, weights: Floats, keys: Keys
) -> tuple[Integers, Floats, Floats, Floats, Floats, Keys]:
    """Group weighted points (n, p, S) of rows by their keys.

    Returns how many regions each row has, and of all regions: shares, means, covariances, the
    heaviest point, and the key.
    """
    n_rows, n_points, n_components = points.shape
    n_slots = 1
    while n_slots < 2 * n_points:
        n_slots *= 2
    slots = np.empty(n_slots, dtype=np.intp)
    sizes = np.zeros(n_rows, dtype=np.intp)
    capacity, n_visits = n_rows * min(n_points, MOST_VISITS), 0
    shares = np.empty(capacity)
    means = np.empty((capacity, n_components))
    covariances = np.empty((capacity, n_components, n_components))
    seen = np.empty((capacity, n_components))
    region_keys = np.empty(capacity, dtype=np.uint64)
    owner = np.empty(n_points, dtype=np.intp)  # of each point: its region
    heaviest, masses = np.empty(n_points, dtype=np.intp), np.empty(n_points)
    visit, factor = np.empty(n_points, dtype=np.intp), np.empty(n_points)
    for n in range(n_rows):
        # --- Which points are in the same region.
        slots[:] = -1
        n_regions = 0
        for p in range(n_points):
            place = np.int64(keys[n, p] & np.uint64(n_slots - 1))
            while slots[place] >= 0 and keys[n, heaviest[slots[place]]] != keys[n, p]:
                place = (place + 1) & (n_slots - 1)
            if slots[place] < 0:
                slots[place] = n_regions
                heaviest[n_regions], masses[n_regions] = p, 0.0
                n_regions += 1
            r = slots[place]
            owner[p] = r
            masses[r] += weights[n, p]
            if weights[n, p] > weights[n, heaviest[r]]:
                heaviest[r] = p
        # --- If they are too many, some stand for all: those with a large share for themselves.
        limit, position = 1.0 / MOST_VISITS, 0.5
        n_before = n_visits
        for r in range(n_regions):
            visit[r] = -1
            share = masses[r]
            if n_regions > MOST_VISITS and share < limit:
                position += share / limit
                share = math.floor(position) * limit
                position -= math.floor(position)
            if share > _NO_SHARE and n_visits - n_before < MOST_VISITS:
                visit[r] = n_visits
                factor[r] = 1.0 / masses[r]
                shares[n_visits] = share
                region_keys[n_visits] = keys[n, heaviest[r]]
                means[n_visits] = 0.0
                covariances[n_visits] = 0.0
                seen[n_visits] = points[n, heaviest[r]]
                n_visits += 1
        if n_visits == n_before:
            # Nothing is known of the row.
            shares[n_visits], region_keys[n_visits] = 1.0, keys[n, 0]
            means[n_visits] = math.nan
            covariances[n_visits] = math.nan
            seen[n_visits] = points[n, 0]
            n_visits += 1
        sizes[n] = n_visits - n_before
        total = 0.0
        for v in range(n_before, n_visits):
            total += shares[v]
        for v in range(n_before, n_visits):
            shares[v] /= total
        # --- Their means and covariances.
        for p in range(n_points):
            v = visit[owner[p]]
            if v >= 0:
                weight = weights[n, p] * factor[owner[p]]
                for s in range(n_components):
                    means[v, s] += weight * points[n, p, s]
        for p in range(n_points):
            v = visit[owner[p]]
            if v >= 0:
                weight = weights[n, p] * factor[owner[p]]
                for s in range(n_components):
                    here = weight * (points[n, p, s] - means[v, s])
                    for t in range(n_components):
                        covariances[v, s, t] += here * (points[n, p, t] - means[v, t])
    return (
        sizes,
        shares[:n_visits].copy(),
        means[:n_visits].copy(),
        covariances[:n_visits].copy(),
        seen[:n_visits].copy(),
        region_keys[:n_visits].copy(),
    )
