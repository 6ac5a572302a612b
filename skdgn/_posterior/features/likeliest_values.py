"""The likeliest values of single features, given others: modes, and sets of highest density.

Both begin with a grid of each distribution: points evenly spaced, then points evenly spaced in
probability, so that a narrow peak has its share of them however wide the rest is.  From there on
densities and probabilities are exact, those of the ends of a set included; the grid only decides
which peaks are seen.

Shapes: ``n`` samples, ``k`` features, ``m`` points of a grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skdgn._posterior.features.feature_distributions import FeatureDistributions
from skdgn._posterior.features.quantiles import find_roots
from skdgn._runtime import Floats

# Probability beyond each end of what is evenly spaced.
_TAIL = 1e-6
# Points of a grid that are evenly spaced, and those that each of the rounds after them adds.
_FIRST_POINTS = 35
_MORE_POINTS = 32
_N_ROUNDS = 3
# How far the level of a set may be below the peak, in logs: what is left out then is nothing.
_LOWEST_LEVEL = 100.0
# Absolute error of the log of a level: that of the probability is smaller.
_LEVEL_TOLERANCE = 1e-6
# Error of an end of a set, in gaps of the grid.
_END_TOLERANCE = 1e-9
# Golden sections of the interval around a mode: to 1e-8 of it, more is below rounding.
_N_SECTIONS = 40
# Intervals of a set at most: one around every other point of the grid.
MOST_INTERVALS = (_FIRST_POINTS + _N_ROUNDS * _MORE_POINTS + 1) // 2
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class _Grid:
    """Distributions at points of their own, in ascending order."""

    points: Floats  # (m, n, k)
    log_densities: Floats  # (m, n, k)

    @classmethod
    def lay_out(cls, distributions: FeatureDistributions) -> _Grid:
        low, high = (distributions.quantile(share) for share in (_TAIL, 1.0 - _TAIL))
        # Beyond either end there is one more, where the density is next to nothing.
        inner = np.linspace(low, high, _FIRST_POINTS - 2)
        points = np.concatenate([[2.0 * low - high], inner, [2.0 * high - low]])
        probabilities = _evaluate(distributions.cdf, points)
        levels = (np.arange(_MORE_POINTS) + 0.5) / _MORE_POINTS
        for _ in range(_N_ROUNDS):
            added = _invert(points, probabilities, levels)
            points = np.concatenate([points, added])
            probabilities = np.concatenate([probabilities, _evaluate(distributions.cdf, added)])
            order = np.argsort(points, axis=0, kind="stable")
            points = np.take_along_axis(points, order, axis=0)
            probabilities = np.take_along_axis(probabilities, order, axis=0)
            # Rounding may have them fall by a last digit.
            probabilities = np.maximum.accumulate(probabilities, axis=0)
        return cls(points, _evaluate(distributions.log_pdf, points))


def feature_modes(distributions: FeatureDistributions) -> Floats:
    """Find the value of highest density of each distribution: (n, k)."""
    grid = _Grid.lay_out(distributions)
    best = grid.log_densities.argmax(axis=0)[None]
    last = len(grid.points) - 1
    low = np.take_along_axis(grid.points, np.maximum(best - 1, 0), axis=0)[0]
    high = np.take_along_axis(grid.points, np.minimum(best + 1, last), axis=0)[0]
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = distributions.log_pdf(left), distributions.log_pdf(right)
    for _ in range(_N_SECTIONS):
        falls = at_left > at_right
        low, high = np.where(falls, low, left), np.where(falls, right, high)
        new = np.where(falls, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        at_new = distributions.log_pdf(new)
        left, right = np.where(falls, new, right), np.where(falls, left, new)
        at_left, at_right = np.where(falls, at_new, at_right), np.where(falls, at_left, at_new)
    return 0.5 * (low + high)


def highest_density_sets(distributions: FeatureDistributions, coverage: float | Floats) -> Floats:
    """Find the smallest sets of a probability, or one of each feature (k,).

    Returns ends of intervals, (n, MOST_INTERVALS, 2, k).

    NaN stands for intervals that a set does not have.
    """
    grid = _Grid.lay_out(distributions)
    highest = grid.log_densities.max(axis=0)

    def excess(log_level: Floats) -> Floats:
        sets = _find_ends(grid, log_level, distributions)
        return _probability(sets, distributions) - coverage

    log_level = find_roots(
        excess,
        highest - _LOWEST_LEVEL,
        highest,
        np.full(highest.shape, _LEVEL_TOLERANCE),
    )
    return np.moveaxis(_find_ends(grid, log_level, distributions), 2, 0)


def smallest_coverages(distributions: FeatureDistributions, values: Floats) -> Floats:
    """Find the probability of the smallest set of highest density that holds each value: (n, k)."""
    grid = _Grid.lay_out(distributions)
    # Whatever is farther out than the grid reaches, which is nearly nothing.
    lowest = grid.log_densities[[1, -2]].max(axis=0)
    log_level = np.maximum(distributions.log_pdf(values), lowest)
    return _probability(_find_ends(grid, log_level, distributions), distributions)


def _find_ends(grid: _Grid, log_level: Floats, distributions: FeatureDistributions) -> Floats:
    """Find where the log density is at a level (n, k): (MOST_INTERVALS, 2, n, k).

    It rises through the level at the first end of an interval, and falls at the second.
    """
    is_above = grid.log_densities >= log_level
    nowhere = np.zeros((1, *log_level.shape), dtype=bool)
    padded = np.concatenate([nowhere, is_above, nowhere])
    changes = padded[1:] != padded[:-1]  # (m + 1, n, k): before each point, and after the last
    numbers = np.cumsum(changes, axis=0) - 1
    ends = np.full((2 * MOST_INTERVALS, *log_level.shape), np.nan)
    last = len(grid.points) - 1

    def excess(values: Floats) -> Floats:
        return distributions.log_pdf(values) - log_level

    for number in range(int(numbers.max()) + 1):
        has_end = changes & (numbers == number)
        place = has_end.argmax(axis=0)[None]
        low = np.take_along_axis(grid.points, np.maximum(place - 1, 0), axis=0)[0]
        high = np.take_along_axis(grid.points, np.minimum(place, last), axis=0)[0]
        tolerances = _END_TOLERANCE * (high - low)
        # The density may be above the level as far out as the grid reaches.
        found = np.where(low < high, find_roots(excess, low, high, tolerances), low)
        ends[number] = np.where(has_end.any(axis=0), found, np.nan)
    return ends.reshape(MOST_INTERVALS, 2, *log_level.shape)


def _probability(sets: Floats, distributions: FeatureDistributions) -> Floats:
    """Probability (n, k) of sets (MOST_INTERVALS, 2, n, k)."""
    total = np.zeros(sets.shape[2:])
    for interval in sets:
        is_there = ~np.isnan(interval[0])
        if is_there.any():
            low, high = (distributions.cdf(np.where(is_there, end, 0.0)) for end in interval)
            total += np.where(is_there, high - low, 0.0)
    return total


def _evaluate(function: Callable[[Floats], Floats], points: Floats) -> Floats:
    return np.stack([function(values) for values in points])


def _invert(points: Floats, probabilities: Floats, levels: Floats) -> Floats:
    """Interpolate points (m, n, k) where their probabilities reach levels (l,): (l, n, k)."""
    found = np.empty((len(levels), *points.shape[1:]))
    for place in np.ndindex(points.shape[1:]):
        own = (slice(None), *place)
        found[own] = np.interp(levels, probabilities[own], points[own])
    return found
