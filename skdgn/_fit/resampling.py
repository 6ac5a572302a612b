"""Random samples of samples, as weights: one that was drawn twice has twice the weight."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._runtime import Floats, Integers, value_ranges

# Of one minus a share.
_ROUNDING = 1e-9


def bootstrap_weights(
    samples: NDArray[Any], sample_weights: Floats, share: float, generator: np.random.Generator
) -> Floats:
    """Draw a share of samples (n, D) with replacement; return how often each was drawn, (n,).

    They are drawn in proportion to their weights: as many as their share, if weights are whole
    numbers, which count samples.  Of other weights only the proportions are known; there are
    ``share * n`` draws then, and the weights add up to their share of what they did.

    A feature that would not vary any more keeps the samples of its smallest and its largest value.
    """
    total = float(sample_weights.sum())
    are_counts = bool(np.all(sample_weights == np.round(sample_weights)))
    n_draws = max(round(share * (total if are_counts else len(samples))), 1)
    counts = generator.multinomial(n_draws, sample_weights / total).astype(np.float64)
    extremes = _lost_extremes(samples, sample_weights, counts)
    counts[extremes] = np.maximum(counts[extremes], 1)
    return counts if are_counts else counts * (share * total / n_draws)


def subsample_weights(
    samples: NDArray[Any],
    sample_weights: Floats,
    share: float,
    generator: np.random.Generator,
    turn: int = 0,
) -> Floats:
    """Draw a share of samples (n, D) without replacement; return weights (n,), 0 of the others.

    Those that are left out take turns: of the same generator, other turns leave out others, until
    all have been.  A feature that would not vary any more keeps the samples of its smallest and its
    largest value.
    """
    candidates = generator.permutation(np.flatnonzero(sample_weights > 0.0))
    n_left_out = min(math.floor((1.0 - share) * len(candidates) + _ROUNDING), len(candidates) - 2)
    weights = sample_weights.copy()
    if n_left_out > 0:
        first = n_left_out * (turn % (len(candidates) // n_left_out))
        weights[candidates[first : first + n_left_out]] = 0.0
    extremes = _lost_extremes(samples, sample_weights, weights)
    weights[extremes] = sample_weights[extremes]
    return weights


def _lost_extremes(samples: NDArray[Any], sample_weights: Floats, kept_weights: Floats) -> Integers:
    """Return the samples of the smallest and largest values of features that vary no more."""
    lowest, highest = value_ranges(samples, sample_weights)
    kept_lowest, kept_highest = value_ranges(samples, kept_weights)
    extremes = []
    for d in np.flatnonzero((lowest < highest) & ~(kept_lowest < kept_highest)):
        column = np.where(sample_weights > 0, samples[:, d], np.nan)
        extremes += [np.nanargmin(column), np.nanargmax(column)]
    return np.array(extremes, dtype=np.intp)
