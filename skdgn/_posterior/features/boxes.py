"""The probability of boxes, of all features lying between bounds at once, and draws from them.

For one latent dimension and independent noise both are exact (`line_boxes`).  For other models
features are conditioned on one after the other: points are drawn in the box, each coordinate from
its exact distribution given those before it, truncated to its bounds, and the probability is the
mean of the products of what the bounds hold.  That is an estimate with a standard error; exact for
bounds on one feature.  Draws from a box are draws that happen to lie in it, which are exact, too,
but there are no such draws in boxes far out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy.special import logsumexp
from scipy.stats import qmc

from skdgn._posterior.features.feature_distributions import FeatureDistributions
from skdgn._posterior.features.line_boxes import Known, LineRegions, log_probabilities
from skdgn._posterior.features.quantiles import find_roots
from skdgn._runtime import Floats, Integers

# A coordinate is drawn to this share of its standard deviation.
_DRAW_TOLERANCE = 1e-9
# Independent sets of quasi-random points, which tell the error.
_N_SHIFTS = 8
# Draws are made so many at a time, from first to last.
_PROPOSALS = (1000, 32_000)
# A box is given up after so many draws if no more than this share of them lies in it.
_PATIENCE = 100_000
_SMALLEST_SHARE = 1e-4


class Conditional(Protocol):
    """What is asked of a density whose features are conditioned on one after the other."""

    @property
    def line_regions(self) -> LineRegions | None:
        """Its regions, if there is one latent dimension and noise is independent."""
        ...

    def feature_distributions(self, samples: Floats, features: Integers) -> FeatureDistributions:
        """Distributions of features given samples (n, D), in which these are missing."""
        ...


def box_log_probabilities(
    density: Conditional,
    bounds: tuple[Floats, Floats],
    n_draws: int,
    generator: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Log probabilities of boxes between bounds (n, D), and standard errors of them: (n,) each."""
    lower, upper = bounds
    if density.line_regions is not None:
        known = Known(np.full_like(lower, np.nan), *bounds)
        logs, errors = log_probabilities(density.line_regions, known)
        return np.minimum(logs, 0.0), errors
    found = [
        condition_in_turn(density, low, high, n_draws, generator)
        for low, high in zip(lower, upper, strict=True)
    ]
    return np.array([log for log, _ in found]), np.array([error for _, error in found])


def keep_inside(
    propose: Callable[[int], tuple[Floats, Integers]],
    lower: Floats,
    upper: Floats,
    n_wanted: int,
) -> tuple[Floats, Integers]:
    """Keep those of proposed draws (n, D), with their labels, that lie between bounds (D,).

    Fewer than wanted are returned if less than one in ten thousand does.
    """
    samples, labels = np.empty((n_wanted, len(lower))), np.empty(n_wanted, dtype=np.intp)
    n_found, n_proposed, size = 0, 0, _PROPOSALS[0]
    while n_found < n_wanted:
        if n_proposed >= _PATIENCE and n_found < _SMALLEST_SHARE * n_proposed:
            break
        drawn, numbers = propose(size)
        inside = np.flatnonzero(np.all((drawn >= lower) & (drawn <= upper), axis=1))
        inside = inside[: n_wanted - n_found]
        samples[n_found : n_found + len(inside)] = drawn[inside]
        labels[n_found : n_found + len(inside)] = numbers[inside]
        n_found, n_proposed = n_found + len(inside), n_proposed + size
        size = min(2 * size, _PROPOSALS[1])
    return samples[:n_found], labels[:n_found]


def condition_in_turn(
    density: Conditional,
    lower: Floats,
    upper: Floats,
    n_draws: int,
    generator: np.random.Generator,
) -> tuple[float, float]:
    """Estimate the log probability of one box (D,), and its standard error."""
    bounded = np.flatnonzero((lower > -np.inf) | (upper < np.inf))
    if bounded.size == 0:
        return 0.0, 0.0
    n_draws = max(1, n_draws // _N_SHIFTS) * _N_SHIFTS
    if bounded.size == 1:
        n_draws = 1  # nothing has to be drawn
    samples = np.full((n_draws, len(lower)), np.nan)
    uniform = _uniform_points(n_draws, bounded.size, generator)
    logs = np.zeros(n_draws)
    for place, feature in enumerate(bounded):
        distributions = density.feature_distributions(samples, np.array([feature]))
        low, high = (np.full((n_draws, 1), bound[feature]) for bound in (lower, upper))
        at_low, at_high = (_cdf(distributions, ends) for ends in (low, high))
        with np.errstate(divide="ignore"):
            logs += np.log(np.maximum(at_high - at_low, 0.0))[:, 0]
        if np.isneginf(logs).all():
            return -math.inf, 0.0
        if place + 1 < bounded.size:
            wanted = at_low + uniform[:, [place]] * (at_high - at_low)
            samples[:, feature] = _draw(distributions, wanted, low, high)[:, 0]
    log_probability = float(logsumexp(logs) - math.log(n_draws))
    sets = np.exp(logs - log_probability).reshape(-1, _N_SHIFTS if n_draws > 1 else 1).mean(axis=0)
    error = float(sets.std(ddof=1) / math.sqrt(_N_SHIFTS)) if n_draws > 1 else 0.0
    return log_probability, error


def _uniform_points(n_points: int, n_dimensions: int, generator: np.random.Generator) -> Floats:
    """Points (n, d) in the unit cube, in independent sets of quasi-random ones, set after set."""
    if n_points == 1:
        return np.full((1, n_dimensions), 0.5)
    size = n_points // _N_SHIFTS
    sets = [qmc.Halton(n_dimensions, rng=generator).random(size) for _ in range(_N_SHIFTS)]
    return np.stack(sets, axis=1).reshape(n_points, n_dimensions)


def _cdf(distributions: FeatureDistributions, ends: Floats) -> Floats:
    finite = np.where(np.isinf(ends), 0.0, ends)
    return np.where(np.isinf(ends), (ends > 0.0).astype(float), distributions.cdf(finite))


def _draw(distributions: FeatureDistributions, wanted: Floats, low: Floats, high: Floats) -> Floats:
    """Find where distribution functions reach probabilities (n, 1), between bounds."""
    mean, deviation = distributions.mean, np.sqrt(distributions.variance)
    # Cantelli's inequality, as for quantiles.
    safe = np.clip(wanted, 1e-12, 1.0 - 1e-12)
    below = np.maximum(low, mean - 1.01 * deviation * np.sqrt((1.0 - safe) / safe))
    above = np.minimum(high, mean + 1.01 * deviation * np.sqrt(safe / (1.0 - safe)))
    found = find_roots(
        lambda values: distributions.cdf(values) - wanted,
        np.minimum(below, above),
        np.maximum(below, above),
        _DRAW_TOLERANCE * deviation,
    )
    return np.clip(found, low, high)
