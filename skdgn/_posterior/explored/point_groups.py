"""Weighted points, grouped by the region they are in."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skdgn._partition import Keys
from skdgn._runtime import Floats, Integers, inlined_kernel, kernel

# Regions with less than this share of a posterior are left out.
_NO_SHARE = 1e-5
# Masses below this are not divided by.
_LEAST = 1e-300
# More regions than this are thinned: a few stand for many.
MOST_VISITS = 256


class Groups(NamedTuple):
    """Groups of weighted points of samples, each in one region."""

    owners: Integers  # (g,) samples they belong to
    keys: Keys  # (g,) of their regions
    shares: Floats  # (g,) of the weight of a sample
    means: Floats  # (g, S)
    covariances: Floats  # (g, S (S + 1) / 2) lower triangles, one row after the other
    points: Floats  # (g, S) one of them


@inlined_kernel
def _thin(masses: Floats, n_regions: int) -> None:
    """If regions are too many, some stand for all: those with a large share for themselves."""
    if n_regions <= MOST_VISITS:
        return
    limit, position = 1.0 / MOST_VISITS, 0.5
    for r in range(n_regions):
        if masses[r] < limit:
            position += masses[r] / limit
            masses[r] = math.floor(position) * limit
            position -= math.floor(position)


@kernel
def group_points(points: Floats, weights: Floats, keys: Keys, chosen: Integers) -> Groups:
    """Group weighted points (S, n p) of chosen samples by their keys; points told are the heaviest.

    Samples are numbered as they are chosen.
    """
    n_samples, n_points, n_components = len(chosen), weights.shape[1], points.shape[0]
    n_slots = 1
    while n_slots < 2 * n_points:
        n_slots *= 2
    slots = np.empty(n_slots, dtype=np.intp)
    capacity, n_visits = n_samples * min(n_points, MOST_VISITS), 0
    samples, shares = np.empty(capacity, dtype=np.intp), np.empty(capacity)
    means = np.empty((capacity, n_components))
    covariances = np.empty((capacity, n_components * (n_components + 1) // 2))
    seen = np.empty((capacity, n_components))
    region_keys = np.empty(capacity, dtype=np.uint64)
    owner = np.empty(n_points, dtype=np.intp)  # of each point: its region
    heaviest, masses = np.empty(n_points, dtype=np.intp), np.empty(n_points)
    visit, factor = np.empty(n_points, dtype=np.intp), np.empty(n_points)
    for i in range(n_samples):
        n = chosen[i]
        first = n * n_points
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
        for r in range(n_regions):
            factor[r] = 1.0 / max(masses[r], _LEAST)
        _thin(masses, n_regions)
        n_before = n_visits
        for r in range(n_regions):
            visit[r], share = -1, masses[r]
            if share > _NO_SHARE and n_visits - n_before < MOST_VISITS:
                visit[r] = n_visits
                samples[n_visits], shares[n_visits] = i, share
                region_keys[n_visits] = keys[n, heaviest[r]]
                means[n_visits] = 0.0
                covariances[n_visits] = 0.0
                seen[n_visits] = points[:, first + heaviest[r]]
                n_visits += 1
        if n_visits == n_before:
            # Nothing is known of the sample.
            samples[n_visits], shares[n_visits], region_keys[n_visits] = i, 1.0, keys[n, 0]
            means[n_visits] = math.nan
            covariances[n_visits] = math.nan
            seen[n_visits] = points[:, first]
            n_visits += 1
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
                    means[v, s] += weight * points[s, first + p]
        for p in range(n_points):
            v = visit[owner[p]]
            if v >= 0:
                weight = weights[n, p] * factor[owner[p]]
                entry = 0
                for s in range(n_components):
                    here = weight * (points[s, first + p] - means[v, s])
                    for t in range(s + 1):
                        covariances[v, entry] += here * (points[t, first + p] - means[v, t])
                        entry += 1
    return Groups(
        samples[:n_visits].copy(),
        region_keys[:n_visits].copy(),
        shares[:n_visits].copy(),
        means[:n_visits].copy(),
        covariances[:n_visits].copy(),
        seen[:n_visits].copy(),
    )


@kernel
def join_groups(groups: Groups, order: Integers) -> Groups:
    """Join groups of the same samples and regions, given their order: by sample and by key.

    Shares of a sample sum to 1 then.
    """
    n_components = groups.means.shape[1]
    owners, keys = groups.owners[order], groups.keys[order]
    shares, means = groups.shares[order], groups.means[order]
    covariances, points = groups.covariances[order], groups.points[order]
    n_joined, i = 0, 0
    while i < len(order):
        first, sample, total = n_joined, owners[i], 0.0
        while i < len(order) and owners[i] == sample:
            # --- Moments of what has the same key.
            own, heaviest = n_joined, i
            keys[own], share = keys[i], shares[i]
            means[own], covariances[own] = means[i], covariances[i]
            i += 1
            while i < len(order) and owners[i] == sample and keys[i] == keys[own]:
                if groups.shares[order[i]] > groups.shares[order[heaviest]]:
                    heaviest = i
                share += shares[i]
                new = shares[i] / share
                entry = 0
                for s in range(n_components):
                    for t in range(s + 1):
                        square = (means[i, s] - means[own, s]) * (means[i, t] - means[own, t])
                        there = covariances[i, entry] + (1.0 - new) * square
                        covariances[own, entry] += new * (there - covariances[own, entry])
                        entry += 1
                for s in range(n_components):
                    means[own, s] += new * (means[i, s] - means[own, s])
                i += 1
            owners[own], shares[own] = sample, share
            points[own] = groups.points[order[heaviest]]
            total += share
            n_joined += 1
        # --- Not too many of them.
        shares[first:n_joined] /= total
        _thin(shares[first:n_joined], n_joined - first)
        n_all, n_joined, total = n_joined, first, 0.0
        for j in range(first, n_all):
            if shares[j] > 0.0:
                keys[n_joined], shares[n_joined] = keys[j], shares[j]
                means[n_joined], covariances[n_joined] = means[j], covariances[j]
                points[n_joined] = points[j]
                total += shares[j]
                n_joined += 1
        shares[first:n_joined] /= total
    return Groups(
        owners[:n_joined],
        keys[:n_joined],
        shares[:n_joined],
        means[:n_joined],
        covariances[:n_joined],
        points[:n_joined],
    )
