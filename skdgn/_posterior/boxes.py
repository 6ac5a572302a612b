"""The probability of boxes: of all features lying between bounds at once.

For one latent dimension and independent noise it is a one-dimensional integral over each region,

    P(lower <= x <= upper, z in region) = int phi(z) prod_j (Phi(b_j(z)) - Phi(a_j(z))) dz

with ``a_j`` and ``b_j`` the bounds of feature j, less the generator, in deviations of the noise.
The integrand is a product of log-concave functions, hence has one peak: it is integrated around
it, as far as it counts, by halving intervals until nothing changes.  Everything is relative to
the peak, in logs, so that boxes far out keep their digits.

For other models features are conditioned on one after the other: points are drawn in the box, each
coordinate from its exact distribution given those before it, truncated to its bounds, and the
probability is the mean of the products of what the bounds hold.  That is an estimate with a
standard error; exact for bounds on one feature.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import qmc

from skdgn._geometry import Intervals, log_integral
from skdgn._noise import Independent, Noise
from skdgn._partition import Partition
from skdgn._posterior.feature_distributions import FeatureDistributions, find_roots
from skdgn._runtime import LOG_SQRT_2PI, Floats, kernel

# Logs below the peak at which an integrand counts no more.
_NEGLIGIBLE = 44.0
# Sections of the search for a peak: to rounding, from as far out as numbers are.
_N_SECTIONS = 120
_N_HALVINGS = 60
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
# Intervals are halved until both halves together differ by less than this share of the whole.
_TOLERANCE = 1e-11
_MOST_INTERVALS = 400
# A Gauss rule on [0, 1]: for an interval, and for each of its halves.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = 0.5 + 0.5 * _NODES, 0.5 * _WEIGHTS
# Bounds within which the deviations of noise put nearly all of it.
_WIDEST = 40.0
# A coordinate is drawn to this share of its standard deviation.
_DRAW_TOLERANCE = 1e-9
# Independent sets of quasi-random points, which tell the error.
_N_SHIFTS = 8


class Conditional(Protocol):
    """What is asked of a density whose features are conditioned on one after the other."""

    def feature_distributions(
        self, rows: Floats, features: NDArray[np.intp]
    ) -> FeatureDistributions:
        """Distributions of features given samples (n, D), in which these are missing."""
        ...


def box_log_probabilities(
    density: Conditional,
    partition: Partition,
    noise: Noise,
    bounds: tuple[Floats, Floats],
    n_draws: int,
    generator: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Log probabilities of boxes between bounds (n, D), and standard errors of them: (n,) each."""
    lower, upper = bounds
    result, errors = np.empty(len(lower)), np.empty(len(lower))
    cells = partition.cells
    if isinstance(cells, Intervals) and isinstance(noise, Independent):
        maps = partition.maps.take(np.arange(len(partition)))
        ends = np.stack([cells.lower, cells.upper], axis=1)
        slopes = np.ascontiguousarray(maps.slopes[:, :, 0])
        offsets = np.ascontiguousarray(maps.offsets)
        deviations = np.ascontiguousarray(noise.deviations)
        _integrate_boxes(ends, slopes, offsets, deviations, lower, upper, result, errors)
        return result, errors
    for n in range(len(lower)):
        result[n], errors[n] = condition_in_turn(density, lower[n], upper[n], n_draws, generator)
    return result, errors


@kernel
def _integrate_boxes(
    ends: Floats,
    slopes: Floats,
    offsets: Floats,
    deviations: Floats,
    lower: Floats,
    upper: Floats,
    log_probabilities: Floats,
    errors: Floats,
) -> None:
    """Fill in log probabilities of boxes (n, D), and relative errors, for one latent dimension.

    Regions are between ``ends`` (R, 2), with maps of ``slopes`` and ``offsets`` (R, D).
    """
    n_regions = len(ends)
    logs, shares = np.empty(n_regions), np.empty(n_regions)
    for n in range(len(lower)):
        largest = -math.inf
        for r in range(n_regions):
            logs[r], shares[r] = _integrate_region(
                ends[r, 0], ends[r, 1], slopes[r], offsets[r], deviations, lower[n], upper[n]
            )
            largest = max(largest, logs[r])
        total, error = 0.0, 0.0
        if largest > -math.inf:
            for r in range(n_regions):
                mass = math.exp(logs[r] - largest)
                total += mass
                error += mass * shares[r]
            log_probabilities[n] = min(largest + math.log(total), 0.0)
            errors[n] = error / total
        else:
            log_probabilities[n], errors[n] = -math.inf, 0.0


@kernel
def _log_integrand(
    z: float, slopes: Floats, offsets: Floats, deviations: Floats, lower: Floats, upper: Floats
) -> float:
    value = -0.5 * z * z - LOG_SQRT_2PI
    for d in range(slopes.size):
        if lower[d] > -math.inf or upper[d] < math.inf:
            mean = offsets[d] + slopes[d] * z
            a, b = (lower[d] - mean) / deviations[d], (upper[d] - mean) / deviations[d]
            value += log_integral(0.0, a, b) - LOG_SQRT_2PI
    return value


@kernel
def _integrate_region(
    begin: float,
    end: float,
    slopes: Floats,
    offsets: Floats,
    deviations: Floats,
    lower: Floats,
    upper: Floats,
) -> tuple[float, float]:
    """Log of the integral over one region, and its relative error."""
    # The peak is not farther out than where the prior is, or a bound is reached.
    farthest = _WIDEST
    for d in range(slopes.size):
        if slopes[d] != 0.0:
            for bound in (lower[d], upper[d]):
                if math.isfinite(bound):
                    reach = abs(bound - offsets[d]) + _WIDEST * deviations[d]
                    farthest = max(farthest, reach / abs(slopes[d]))
    low, high = max(begin, -farthest), min(end, farthest)
    if begin > farthest:
        low, high = begin, begin + _WIDEST
    if end < -farthest:
        low, high = end - _WIDEST, end
    high, low = min(high, end), max(low, begin)
    first, last = low, high
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left = _log_integrand(left, slopes, offsets, deviations, lower, upper)
    at_right = _log_integrand(right, slopes, offsets, deviations, lower, upper)
    for _ in range(_N_SECTIONS):
        if at_left > at_right or (at_left == at_right and abs(left) < abs(right)):
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = _log_integrand(left, slopes, offsets, deviations, lower, upper)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = _log_integrand(right, slopes, offsets, deviations, lower, upper)
    peak = 0.5 * (low + high)
    highest = _log_integrand(peak, slopes, offsets, deviations, lower, upper)
    if highest == -math.inf:
        return -math.inf, 0.0
    # As far on either side as it counts.
    limits = np.array([first, last])
    for side in range(2):
        outer, inner = limits[side], peak
        value = _log_integrand(outer, slopes, offsets, deviations, lower, upper)
        if value < highest - _NEGLIGIBLE:
            for _ in range(_N_HALVINGS):
                middle = 0.5 * (outer + inner)
                value = _log_integrand(middle, slopes, offsets, deviations, lower, upper)
                if value < highest - _NEGLIGIBLE:
                    outer = middle
                else:
                    inner = middle
            limits[side] = outer
    return _halve(limits[0], peak, limits[1], highest, slopes, offsets, deviations, lower, upper)


@kernel
def _halve(
    begin: float,
    peak: float,
    end: float,
    highest: float,
    slopes: Floats,
    offsets: Floats,
    deviations: Floats,
    lower: Floats,
    upper: Floats,
) -> tuple[float, float]:
    """Integrate from begin to end by halving intervals where that changes anything."""
    begins, ends = np.empty(_MOST_INTERVALS), np.empty(_MOST_INTERVALS)
    values = np.empty(_MOST_INTERVALS)
    n_open = 0
    for left, right in ((begin, peak), (peak, end)):
        begins[n_open], ends[n_open] = left, right
        values[n_open] = _gauss(left, right, highest, slopes, offsets, deviations, lower, upper)
        n_open += 1
    guess = values[0] + values[1]
    total, error, n_used = 0.0, 0.0, 2
    while n_open > 0:
        n_open -= 1
        left, right, whole = begins[n_open], ends[n_open], values[n_open]
        middle = 0.5 * (left + right)
        one = _gauss(left, middle, highest, slopes, offsets, deviations, lower, upper)
        two = _gauss(middle, right, highest, slopes, offsets, deviations, lower, upper)
        change = abs(one + two - whole)
        n_used += 2
        is_done = change <= _TOLERANCE * max(guess, total)
        if is_done or n_open + 2 > _MOST_INTERVALS or n_used > 20 * _MOST_INTERVALS:
            total += one + two
            error += change
        else:
            begins[n_open], ends[n_open], values[n_open] = left, middle, one
            begins[n_open + 1], ends[n_open + 1], values[n_open + 1] = middle, right, two
            n_open += 2
    if total <= 0.0:
        return -math.inf, 0.0
    return highest + math.log(total), error / total


@kernel
def _gauss(
    begin: float,
    end: float,
    highest: float,
    slopes: Floats,
    offsets: Floats,
    deviations: Floats,
    lower: Floats,
    upper: Floats,
) -> float:
    """Integrate over one interval, relative to the peak."""
    total = 0.0
    for i in range(_NODES.size):
        z = begin + (end - begin) * _NODES[i]
        value = _log_integrand(z, slopes, offsets, deviations, lower, upper)
        total += _WEIGHTS[i] * math.exp(value - highest)
    return (end - begin) * total


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
    rows = np.full((n_draws, len(lower)), np.nan)
    uniform = _uniform_points(n_draws, bounded.size, generator)
    logs = np.zeros(n_draws)
    for place, feature in enumerate(bounded):
        distributions = density.feature_distributions(rows, np.array([feature]))
        low, high = (np.full((n_draws, 1), bound[feature]) for bound in (lower, upper))
        at_low, at_high = (_cdf(distributions, ends) for ends in (low, high))
        with np.errstate(divide="ignore"):
            logs += np.log(np.maximum(at_high - at_low, 0.0))[:, 0]
        if np.isneginf(logs).all():
            return -math.inf, 0.0
        if place + 1 < bounded.size:
            wanted = at_low + uniform[:, [place]] * (at_high - at_low)
            rows[:, feature] = _draw(distributions, wanted, low, high)[:, 0]
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
