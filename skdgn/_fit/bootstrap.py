"""Bootstrap samples, as weights: a sample that was drawn twice has the weight 2."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._runtime import Floats, value_ranges


def bootstrap_weights(
    rows: NDArray[Any], row_weights: Floats, generator: np.random.Generator
) -> Floats:
    """Draw samples (n, D) with replacement; return how often each was drawn, (n,).

    They are drawn in proportion to their weights: as many as there are, if weights are whole
    numbers, which count samples.  Of other weights only the proportions are known; there are n
    draws then, and the weights add up to what they did.

    A feature that would not vary any more keeps the samples of its smallest and its largest value.
    """
    total = float(row_weights.sum())
    are_counts = bool(np.all(row_weights == np.round(row_weights)))
    n_draws = round(total) if are_counts else len(rows)
    counts = generator.multinomial(n_draws, row_weights / total).astype(np.float64)
    lowest, highest = value_ranges(rows, row_weights)
    drawn_lowest, drawn_highest = value_ranges(rows, counts)
    for d in np.flatnonzero((lowest < highest) & ~(drawn_lowest < drawn_highest)):
        column = np.where(row_weights > 0, rows[:, d], np.nan)
        extremes = [np.nanargmin(column), np.nanargmax(column)]
        counts[extremes] = np.maximum(counts[extremes], 1)
    return counts * (total / n_draws)
