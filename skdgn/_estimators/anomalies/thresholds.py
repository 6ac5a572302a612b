"""Thresholds of log densities: quantiles, and one that assumes no share of outliers."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import gamma

from skdgn._runtime import Floats

# Share of normal samples beyond the threshold that assumes no share of outliers.
_FALSE_ALARMS = 0.01
# Shapes of gamma distributions: from far more skewed than log densities are to next to symmetric.
_SHAPES = (0.05, 1e4)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """Return NumPy's default quantile of values repeated as often as their weights (n,) say."""
    order = np.argsort(values)
    ends = np.cumsum(weights[order])
    place = share * max(0.0, ends[-1] - 1.0)
    # Rounding of the sums must not take a value for its neighbor.
    slack = 1e-9 * ends[-1]
    below, above = (
        values[order[min(int(np.searchsorted(ends - slack, at, side="right")), len(order) - 1)]]
        for at in (math.floor(place), math.floor(place) + 1.0)
    )
    part = place - math.floor(place)
    return float(below if part == 0.0 else (1.0 - part) * below + part * above)


def natural_threshold(scores: Floats, weights: Floats) -> float:
    """Return the log density that one normal sample in a hundred would fall below.

    Log densities of Gaussian samples have a gamma distribution, mirrored, and those of others are
    not unlike it.  So that outliers do not matter, its shape, scale and location are those that
    give it the quartiles of the log densities.
    """
    first, median, third = (weighted_quantile(-scores, weights, q) for q in (0.25, 0.5, 0.75))
    if not third > first:
        return float(scores[weights > 0.0].min())
    wanted = (third - median) / (third - first)

    def share_above(log_shape: float) -> float:
        quartiles = np.asarray(gamma.ppf([0.25, 0.5, 0.75], math.exp(log_shape)))
        return float((quartiles[2] - quartiles[1]) / (quartiles[2] - quartiles[0]))

    low, high = (math.log(shape) for shape in _SHAPES)
    if wanted >= share_above(low):
        log_shape = low
    elif wanted <= share_above(high):
        log_shape = high
    else:
        log_shape = float(brentq(lambda value: share_above(value) - wanted, low, high))
    quartiles = np.asarray(gamma.ppf([0.25, 0.5, 0.75], math.exp(log_shape)))
    scale = (third - first) / (quartiles[2] - quartiles[0])
    limit = float(gamma.ppf(1.0 - _FALSE_ALARMS, math.exp(log_shape)))
    return float(-(median + scale * (limit - quartiles[1])))
