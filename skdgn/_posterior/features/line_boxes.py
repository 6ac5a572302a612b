"""Boxes, for one latent dimension and independent noise: probabilities, means and draws.

Of each sample some features were observed, others lie between bounds, and of the rest nothing is
known.  Given z features are independent, so the density of what is known is, over each region, a
one-dimensional integral,

    int phi(z) prod_observed N(x_j; g_j(z), s_j^2) prod_bounded (Phi(b_j(z)) - Phi(a_j(z))) dz

with ``a_j`` and ``b_j`` the bounds of feature j, less the generator, in deviations of the noise.
The integrand is a product of log-concave functions, hence has one peak: the integral is cut there,
reaches as far as it counts, and is halved into pieces until nothing changes.  Everything is
relative to the peak, in logs, so that boxes far out keep their digits.

The pieces hold all there is to know of z.  Conditional means are sums over the same Gauss rules.
For a draw a piece is chosen by its mass, and z by rejection: from a peak on, the integrand is
monotone on every piece, hence nowhere larger than at one of its ends.  A weighted sum of such
models has the regions of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from skdgn._geometry import log_integral, quantile, truncated_mean
from skdgn._runtime import LOG_SQRT_2PI, Floats, Integers, RandomSource, kernel, sample_batches

# Logs below the peak at which an integrand counts no more, and how much of logs is rounding.
_NEGLIGIBLE = 44.0
_ROUNDING = 1e-14
# Halvings of the search for a peak, or for where an integrand ends: to rounding.
_N_HALVINGS = 60
# Intervals are halved until both halves together differ by less than this share of the whole.
_TOLERANCE = 1e-11
_MOST_INTERVALS = 400
# A Gauss rule on [0, 1]: for an interval, and for each of its halves.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = 0.5 + 0.5 * _NODES, 0.5 * _WEIGHTS
# Beyond, there are no squares.
_FARTHEST = 1e150
# Bounds are close to each other if this is above their distance times their size, in deviations.
_NARROW = 1e-3
# Samples whose pieces are kept at a time.
_BATCH = 256


class LineRegions(NamedTuple):
    """Intervals of a latent line, each with its map and noise, of one model or of several."""

    ends: Floats  # (R, 2)
    slopes: Floats  # (R, D)
    offsets: Floats  # (R, D)
    deviations: Floats  # (R, D) of the noise
    log_weights: Floats  # (R,) of the model that a region belongs to
    labels: Integers  # (R,) what a draw from a region is said to come from

    @classmethod
    def join(cls, weights: Floats, parts: Sequence[LineRegions]) -> LineRegions:
        """Put the regions of a weighted sum of models together; draws come from a model."""
        weighted = [
            part._replace(
                log_weights=part.log_weights + math.log(weight),
                labels=np.full(len(part.labels), k, dtype=np.intp),
            )
            for k, (weight, part) in enumerate(zip(weights, parts, strict=True))
            if weight > 0.0
        ]
        return cls(*(np.concatenate(arrays) for arrays in zip(*weighted, strict=True)))


class Known(NamedTuple):
    """What is known of samples: values (n, D), NaN where there is none, and bounds (n, D).

    Bounds of features with a value are infinite.
    """

    values: Floats
    lower: Floats
    upper: Floats

    def take(self, samples: Integers | slice) -> Known:
        """Some of the samples."""
        return Known(self.values[samples], self.lower[samples], self.upper[samples])


class Pieces(NamedTuple):
    """Intervals of regions that make up the integrals of samples."""

    start: Integers  # (n + 1,) pieces of each sample
    regions: Integers  # (p,)
    ends: Floats  # (p, 2)
    log_masses: Floats  # (p,)
    errors: Floats  # (n,) relative, of the integrals


def log_probabilities(regions: LineRegions, known: Known) -> tuple[Floats, Floats]:
    """Log density of what is known of each sample, and relative errors: (n,) each."""
    logs, errors = np.empty(len(known.values)), np.empty(len(known.values))
    for batch, pieces in _integrate_batches(regions, known):
        logs[batch] = _sum_up(pieces)
        errors[batch] = pieces.errors
    return logs, errors


def conditional_means(regions: LineRegions, known: Known) -> Floats:
    """Means of all features (n, D), given what is known; NaN for what has no probability."""
    means = np.empty(known.values.shape)
    for batch, pieces in _integrate_batches(regions, known):
        means[batch] = _add_up_means(regions, known.take(batch), pieces, _sum_up(pieces))
    return means


def draw_known(
    regions: LineRegions, known: Known, n_draws: int, generator: RandomSource
) -> tuple[Floats, Integers]:
    """Draw all features (n_draws, n, D), given what is known, and labels of regions (n_draws, n).

    Everything known must have a probability.
    """
    n_samples = len(known.values)
    draws = np.empty((n_draws, *known.values.shape))
    labels = np.empty((n_draws, n_samples), dtype=np.intp)
    for batch, pieces in _integrate_batches(regions, known):
        samples = np.tile(np.arange(batch.stop - batch.start), n_draws)
        chosen = _choose_pieces(pieces, samples, generator)
        latent = _draw_latent(regions, known.take(batch), pieces, samples, chosen, generator)
        drawn = np.empty((len(samples), known.values.shape[1]))
        uniform = generator.uniform(size=drawn.shape)
        own = pieces.regions[chosen]
        _draw_features(regions, known.take(batch), samples, own, latent, uniform, drawn)
        draws[:, batch] = drawn.reshape(n_draws, -1, drawn.shape[1])
        labels[:, batch] = regions.labels[own].reshape(n_draws, -1)
    return draws, labels


def _integrate_batches(regions: LineRegions, known: Known) -> Iterator[tuple[slice, Pieces]]:
    for batch in sample_batches(len(known.values), _BATCH):
        yield batch, _integrate(regions, known.take(batch))


def _sum_up(pieces: Pieces) -> Floats:
    """Logs of the integrals (n,)."""
    logs = np.full(len(pieces.start) - 1, -np.inf)
    filled = np.flatnonzero(np.diff(pieces.start))
    if filled.size > 0:
        logs[filled] = np.logaddexp.reduceat(pieces.log_masses, pieces.start[filled])
    return logs


def _choose_pieces(pieces: Pieces, samples: Integers, generator: RandomSource) -> Integers:
    """Choose a piece for each of the samples, by mass: (m,)."""
    # Masses of all samples one after the other: each adds up to one.
    shares = np.exp(pieces.log_masses - np.repeat(_sum_up(pieces), np.diff(pieces.start)))
    sums = np.concatenate([[0.0], np.cumsum(shares)])
    first, last = pieces.start[samples], pieces.start[samples + 1]
    levels = sums[first] + generator.uniform(size=len(samples)) * (sums[last] - sums[first])
    found = np.searchsorted(sums, levels, side="right") - 1
    return np.asarray(np.clip(found, first, last - 1), dtype=np.intp)


def _draw_latent(
    regions: LineRegions,
    known: Known,
    pieces: Pieces,
    samples: Integers,
    chosen: Integers,
    generator: RandomSource,
) -> Floats:
    """Draw a latent point for each of the samples (m,), from the piece that was chosen for it."""
    own = pieces.regions[chosen]
    begins, ends = np.ascontiguousarray(pieces.ends[chosen].T)
    most = np.maximum(
        _log_integrands(regions, known, samples, own, begins),
        _log_integrands(regions, known, samples, own, ends),
    )
    latent = np.empty(len(samples))
    left = np.arange(len(samples))
    while left.size > 0:
        points = begins[left] + (ends[left] - begins[left]) * generator.uniform(size=left.size)
        heights = _log_integrands(regions, known, samples[left], own[left], points) - most[left]
        accepted = np.log(1.0 - generator.uniform(size=left.size)) <= heights
        latent[left[accepted]] = points[accepted]
        left = left[~accepted]
    return latent


@kernel
def _log_integrand(z: float, n: int, r: int, regions: LineRegions, known: Known) -> float:
    value = -0.5 * z * z - LOG_SQRT_2PI
    for d in range(regions.slopes.shape[1]):
        lower, upper, observed = known.lower[n, d], known.upper[n, d], known.values[n, d]
        deviation = regions.deviations[r, d]
        if not math.isnan(observed):
            residual = (observed - regions.offsets[r, d] - regions.slopes[r, d] * z) / deviation
            value -= 0.5 * residual * residual + LOG_SQRT_2PI + math.log(deviation)
        elif lower > -math.inf or upper < math.inf:
            mean = regions.offsets[r, d] + regions.slopes[r, d] * z
            a, b = (lower - mean) / deviation, (upper - mean) / deviation
            width = (upper - lower) / deviation
            if width * (1.0 + abs(a)) > _NARROW:
                value += log_integral(0.0, a, b) - LOG_SQRT_2PI
            elif width > 0.0:
                # Of b - a, few digits would be left.
                value += math.log(width) + (a * a - 1.0) * width * width / 24.0
                value -= 0.5 * (a + 0.5 * width) ** 2 + LOG_SQRT_2PI
            else:
                return -math.inf
    return value


@kernel
def _log_integrands(
    regions: LineRegions, known: Known, samples: Integers, own: Integers, points: Floats
) -> Floats:
    """Log integrands of samples (m,) at points of regions (m,)."""
    values = np.empty(len(points))
    for i in range(len(points)):
        values[i] = _log_integrand(points[i], samples[i], own[i], regions, known)
    return values


@kernel
def _integrate(regions: LineRegions, known: Known) -> Pieces:
    """Cut the integrals of all samples into pieces."""
    n_samples, n_regions = len(known.values), len(regions.ends)
    start = np.zeros(n_samples + 1, dtype=np.intp)
    errors = np.zeros(n_samples)
    found = [(0, 0.0, 0.0, 0.0) for _ in range(0)]
    for n in range(n_samples):
        total, largest = 0.0, -math.inf
        for r in range(n_regions):
            first = len(found)
            error = _integrate_region(n, r, regions, known, found)
            mass = 0.0
            for i in range(first, len(found)):
                if found[i][3] > largest:
                    total *= math.exp(largest - found[i][3])
                    errors[n] *= math.exp(largest - found[i][3])
                    mass *= math.exp(largest - found[i][3])
                    largest = found[i][3]
                mass += math.exp(found[i][3] - largest)
            total += mass
            errors[n] += error * mass
        if total > 0.0:
            errors[n] /= total
        start[n + 1] = len(found)
    own = np.empty(len(found), dtype=np.intp)
    ends = np.empty((len(found), 2))
    log_masses = np.empty(len(found))
    for i in range(len(found)):
        own[i], ends[i, 0], ends[i, 1], log_masses[i] = found[i]
    return Pieces(start, own, ends, log_masses, errors)


@kernel
def _integrate_region(
    n: int,
    r: int,
    regions: LineRegions,
    known: Known,
    found: list[tuple[int, float, float, float]],
) -> float:
    """Append the pieces of one region, and return the relative error of their sum."""
    begin, end = max(regions.ends[r, 0], -_FARTHEST), min(regions.ends[r, 1], _FARTHEST)
    # The prior is highest here, and the peak where everything else pulls.
    peak = min(max(0.0, begin), end)
    limit = end if _slope(peak, n, r, regions, known) > 0.0 else begin
    peak = _go(peak, limit, math.inf, n, r, regions, known)
    highest = _log_integrand(peak, n, r, regions, known)
    if highest == -math.inf:
        return 0.0
    floor = highest - _NEGLIGIBLE - _ROUNDING * abs(highest)
    begin = _go(peak, begin, floor, n, r, regions, known)
    end = _go(peak, end, floor, n, r, regions, known)
    return _halve(begin, peak, end, highest, n, r, regions, known, found)


@kernel
def _go(
    start: float, limit: float, floor: float, n: int, r: int, regions: LineRegions, known: Known
) -> float:
    """Go as far toward a limit as the log integrand is above a floor; as it rises, if that is inf.

    Steps double until one is too long, which is halved.
    """
    inner, outer, step = start, start, math.copysign(1.0, limit - start)
    is_beyond = False
    while not is_beyond and inner != limit:
        outer = inner + step
        if (limit - outer) * step < 0.0:
            outer = limit
        is_beyond = not _goes_on(outer, step, floor, n, r, regions, known)
        if not is_beyond:
            inner, step = outer, 2.0 * step
    for _ in range(_N_HALVINGS if is_beyond else 0):
        middle = 0.5 * (inner + outer)
        if _goes_on(middle, step, floor, n, r, regions, known):
            inner = middle
        else:
            outer = middle
    return outer


@kernel
def _goes_on(
    z: float, step: float, floor: float, n: int, r: int, regions: LineRegions, known: Known
) -> bool:
    if floor == math.inf:
        return step * _slope(z, n, r, regions, known) > 0.0
    return _log_integrand(z, n, r, regions, known) > floor


@kernel
def _slope(z: float, n: int, r: int, regions: LineRegions, known: Known) -> float:
    """Derivative of the log integrand: all features pull toward what is known of them."""
    value = -z
    for d in range(regions.slopes.shape[1]):
        pull = _deviation_given(z, n, r, d, regions, known)
        value += regions.slopes[r, d] / regions.deviations[r, d] * pull
    return value


@kernel
def _halve(
    begin: float,
    peak: float,
    end: float,
    highest: float,
    n: int,
    r: int,
    regions: LineRegions,
    known: Known,
    found: list[tuple[int, float, float, float]],
) -> float:
    """Integrate from begin to end by halving intervals where that changes anything."""
    begins, ends = np.empty(_MOST_INTERVALS), np.empty(_MOST_INTERVALS)
    values = np.empty(_MOST_INTERVALS)
    n_open = 0
    for left, right in ((begin, peak), (peak, end)):
        begins[n_open], ends[n_open] = left, right
        values[n_open] = _gauss(left, right, highest, n, r, regions, known)
        n_open += 1
    guess = values[0] + values[1]
    total, error, n_used = 0.0, 0.0, 2
    while n_open > 0:
        n_open -= 1
        left, right, whole = begins[n_open], ends[n_open], values[n_open]
        middle = 0.5 * (left + right)
        one = _gauss(left, middle, highest, n, r, regions, known)
        two = _gauss(middle, right, highest, n, r, regions, known)
        change = abs(one + two - whole)
        n_used += 2
        is_done = change <= _TOLERANCE * max(guess, total)
        if is_done or n_open + 2 > _MOST_INTERVALS or n_used > 20 * _MOST_INTERVALS:
            total += one + two
            error += change
            scale = highest + regions.log_weights[r]
            if one > 0.0:
                found.append((r, left, middle, scale + math.log(one)))
            if two > 0.0:
                found.append((r, middle, right, scale + math.log(two)))
        else:
            begins[n_open], ends[n_open], values[n_open] = left, middle, one
            begins[n_open + 1], ends[n_open + 1], values[n_open + 1] = middle, right, two
            n_open += 2
    return error / total if total > 0.0 else 0.0


@kernel
def _gauss(
    begin: float, end: float, highest: float, n: int, r: int, regions: LineRegions, known: Known
) -> float:
    """Integrate over one interval, relative to the peak."""
    total = 0.0
    for i in range(_NODES.size):
        z = begin + (end - begin) * _NODES[i]
        # Nothing is above the peak, but for rounding far out.
        height = min(_log_integrand(z, n, r, regions, known) - highest, 0.0)
        total += _WEIGHTS[i] * math.exp(height)
    return (end - begin) * total


@kernel
def _add_up_means(regions: LineRegions, known: Known, pieces: Pieces, log_totals: Floats) -> Floats:
    """Means of features (n, D), given logs of the integrals (n,)."""
    n_samples, n_features = known.values.shape
    means = np.full((n_samples, n_features), math.nan)
    for n in range(n_samples):
        first, last = pieces.start[n], pieces.start[n + 1]
        if first < last:
            for d in range(n_features):
                means[n, d] = 0.0
        for p in range(first, last):
            r, begin, end = pieces.regions[p], pieces.ends[p, 0], pieces.ends[p, 1]
            for i in range(_NODES.size):
                z = begin + (end - begin) * _NODES[i]
                height = _log_integrand(z, n, r, regions, known) + regions.log_weights[r]
                weight = (end - begin) * _WEIGHTS[i] * math.exp(height - log_totals[n])
                for d in range(n_features):
                    noise = regions.deviations[r, d] * _deviation_given(z, n, r, d, regions, known)
                    mean = regions.offsets[r, d] + regions.slopes[r, d] * z + noise
                    means[n, d] += weight * min(max(mean, known.lower[n, d]), known.upper[n, d])
    return means


@kernel
def _deviation_given(z: float, n: int, r: int, d: int, regions: LineRegions, known: Known) -> float:
    """Mean of the noise of a feature, given z, in its deviations."""
    mean, deviation = regions.offsets[r, d] + regions.slopes[r, d] * z, regions.deviations[r, d]
    lower, upper, observed = known.lower[n, d], known.upper[n, d], known.values[n, d]
    if not math.isnan(observed):
        return (observed - mean) / deviation
    if lower == -math.inf and upper == math.inf:
        return 0.0
    a, b = (lower - mean) / deviation, (upper - mean) / deviation
    width = (upper - lower) / deviation
    if width * (1.0 + abs(a)) > _NARROW:
        return truncated_mean(a, b)
    return a + 0.5 * width - a * width * width / 12.0


@kernel
def _draw_features(
    regions: LineRegions,
    known: Known,
    samples: Integers,
    own: Integers,
    latent: Floats,
    uniform: Floats,
    drawn: Floats,
) -> None:
    """Fill in features (m, D) of samples, given points of regions (m,), by uniform numbers."""
    for i in range(len(latent)):
        n, r = samples[i], own[i]
        for d in range(drawn.shape[1]):
            if not math.isnan(known.values[n, d]):
                drawn[i, d] = known.values[n, d]
                continue
            mean = regions.offsets[r, d] + regions.slopes[r, d] * latent[i]
            deviation = regions.deviations[r, d]
            lower, upper = known.lower[n, d], known.upper[n, d]
            a, b = (lower - mean) / deviation, (upper - mean) / deviation
            value = mean + deviation * quantile(0.0, a, b, uniform[i, d])
            drawn[i, d] = min(max(value, lower), upper)
