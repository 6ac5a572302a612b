"""Means and variances of increasing functions of variables whose distribution functions are known.

The integral of f over dF is a sum over intervals, in each of which f is taken for uniform between
its values at the ends.  The interval in which F and f rise most, multiplied, is halved next.  So
nothing that matters can be missed, however narrow it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skdgn._runtime import Floats

# Intervals are halved until errors are so small, in standard deviations, or there are so many.
_TOLERANCE = 1e-3
_MOST_INTERVALS = 256
# Errors are looked at whenever there are so many more intervals.
_STRIDE = 16
# Probabilities below this are rounding errors.
_ROUNDING = 1e-13


class Expectations(NamedTuple):
    """What is expected of f(Y), one for each of n samples and k features."""

    mean: Floats  # (n, k)
    variance: Floats  # (n, k)
    error: Floats  # (n, k) of the mean, an estimate: what intervals twice as long would change


def expect(
    cdf: Callable[[Floats], Floats],
    function: Callable[[Floats], Floats],
    low: Floats,
    high: Floats,
) -> Expectations:
    """Integrate an increasing function between ends (n, k) that hold nearly all probability."""

    def evaluate(points: Floats) -> Floats:
        with np.errstate(over="ignore"):  # the largest number stands for infinity
            return np.stack([points, cdf(points), np.nan_to_num(function(points), nan=np.nan)])

    nodes = np.stack([evaluate(low), evaluate(high)], axis=1)  # (3, N, n, k)
    for n_intervals in range(2, _MOST_INTERVALS + 1):
        points, probabilities, values = nodes
        # In logs: values may be as large as any number.
        with np.errstate(divide="ignore"):
            log_masses = np.log(_probabilities_between(probabilities))
            log_rises = np.log(np.diff(0.5 * values, axis=0))
        worst = np.argmax(log_masses + 2.0 * log_rises, axis=0)[None]
        ends = (np.take_along_axis(points, worst + side, axis=0)[0] for side in (0, 1))
        nodes = np.concatenate([nodes, evaluate(0.5 * sum(ends))[:, None]], axis=1)
        nodes = np.take_along_axis(nodes, np.argsort(nodes[0], axis=0)[None], axis=1)
        if n_intervals % _STRIDE == 0:
            # Squares overflow as long as intervals reach from where something is to very far out.
            with np.errstate(over="ignore", invalid="ignore"):
                found = _summarize(*nodes[1:])
            if np.all(found.error <= _TOLERANCE * np.sqrt(found.variance)):
                break
    return found


def _summarize(probabilities: Floats, values: Floats) -> Expectations:
    """Sum over intervals, by what is known at their ends (N, n, k); N is odd."""
    mean, _ = _integrate(probabilities, values)
    _, variance = _integrate(probabilities, values - mean)
    coarse, _ = _integrate(probabilities[::2], values[::2])
    return Expectations(mean, np.maximum(variance, 0.0), np.abs(mean - coarse))


def _integrate(probabilities: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Integrate values and their squares over probabilities, by monotone cubic interpolation."""
    masses = _probabilities_between(probabilities)
    is_used = np.pad(masses > 0.0, ((1, 1), (0, 0), (0, 0)))
    values = np.where(is_used[:-1] | is_used[1:], values, 0.0)
    rises = np.diff(values, axis=0)
    # Slopes at nodes are harmonic means of those beside them (Fritsch and Butland), zero at ends.
    inverse = np.divide(masses, rises, out=np.full(masses.shape, np.inf), where=rises > 0.0)
    slopes = np.zeros(values.shape)
    sums = inverse[:-1] + inverse[1:]
    np.divide(2.0, sums, out=slopes[1:-1], where=sums > 0.0)
    integrals = []
    for function, slope in ((values, slopes), (values**2, 2.0 * values * slopes)):
        trapezoids = masses * 0.5 * (function[:-1] + function[1:])
        corrections = -(masses**2) * np.diff(slope, axis=0) / 12.0
        integrals.append((trapezoids + corrections).sum(axis=0) / masses.sum(axis=0))
    return integrals[0], integrals[1]


def _probabilities_between(probabilities: Floats) -> Floats:
    between = np.diff(probabilities, axis=0)
    return np.where(between > _ROUNDING, between, 0.0)
