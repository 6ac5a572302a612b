"""Integrals over all of latent space by weighted points, drawn from a mixture of Gaussians.

Each sample has proposals of its own: Gaussians q_k about the maxima of its posterior, later those
that fit its weighted points best.  Of each, as many points are taken as its share asks for, and all
count by ``p(x, z) / sum_k n_k q_k(z)`` (the balance heuristic: Veach and Guibas, 1995), which is
unbiased, whatever the proposals.  A few points of each are drawn from a wider Gaussian: tails of
the posterior that are heavier than those of a proposal are not missed.

Points are those of a Sobol sequence, shifted at random, several times: the results of the shifts
tell the error.  What is random is a function of the sample and of a seed, and of nothing else.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.stats import qmc

from skdgn._partition import Keys, scramble
from skdgn._posterior.explored.maxima import MOST_MAXIMA, Maxima
from skdgn._runtime import Floats, Integers, inlined_kernel, inlined_sum_kernel, kernel, sum_kernel

# Shifts of the points.
N_SHIFTS = 8
# Points of a shift: these, or half as many again.
FEWEST_POINTS, MOST_POINTS = 32, 4096
# Of the points of a proposal, a share is drawn with deviations twice as large.
_WIDE_SHARE = 0.12
# Proposals whose share is below this are given up; others have at least a few points.
_SMALLEST_SHARE = 1e-3
_LEAST_POINTS_SHARE = 0.03
# Proposals are fitted to what counts as so many points or more, for each latent dimension.
_FITTED_POINTS = 6.0
_N_HALVINGS = 12
# The Gaussian about a maximum is worth so many points, for each latent dimension and two more.
_WORTH_OF_MAXIMA = 2.0
# What earlier points said of a proposal counts for less than what the next ones say.
_MEMORY = 0.5
# Variances of proposals, in units of those fitted to n points, are 1 plus this times
# (S + 2) / n: they are not known better than that.
_DOUBT = 0.9
# Points that are looked at together: they stay in the processor's cache.
_CHUNK = 256
# Probability of a tail for which another formula holds.
_TAIL = 0.02425
# Exponents below this are as good as none.
_LOWEST = -700.0
# Where p(x, z) is so many times what proposals expect, they do not know of the place.
_UNCOVERED = 100.0
# What has no such share of the density is not looked for.
_SMALLEST_MISSED = 1e-3
# A share of all points by itself tells that proposals do not know of the place either.
_HEAVY = 0.05

# Share of the error that comes from the spread of the weights, as if points were independent.  It
# is larger than the error, and known better.
_SPREAD_SHARE = 0.25


class Proposals(NamedTuple):
    """Mixtures of Gaussians, one for each sample, with room for K of them."""

    shares: Floats  # (n, K), zero where there is none
    means: Floats  # (n, K, S)
    factors: Floats  # (n, K, S, S) lower triangles
    seen: Floats  # (n, K) number of points to which they were fitted

    def take(self, samples: Integers) -> Proposals:
        """Return the proposals of these samples."""
        return Proposals(*(array[samples] for array in self))

    @classmethod
    def about(cls, maxima: Maxima, n_samples: int, n_spare: int) -> Proposals:
        """Return the Gaussians about the maxima of samples, with room for some more."""
        n_components, n_places = maxima.points.shape[1], sum(MOST_MAXIMA) + n_spare
        shares, means = (
            np.zeros((n_samples, n_places)),
            np.zeros((n_samples, n_places, n_components)),
        )
        factors = np.tile(np.eye(n_components), (n_samples, n_places, 1, 1))
        sizes = np.bincount(maxima.owners, minlength=n_samples)
        # So far out that nothing is known: the prior will do.
        shares[sizes == 0, 0] = 1.0
        places = np.arange(len(maxima.owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        at = maxima.owners, places
        shares[at], means[at], factors[at] = maxima.shares(n_samples), maxima.points, maxima.factors
        seen = np.full(shares.shape, _WORTH_OF_MAXIMA * (n_components + 2.0))
        return cls(shares, means, factors, seen)

    def add(self, samples: Integers, share: float, points: Floats, factors: Floats) -> None:
        """Add a proposal to each of these samples, in place; there must be room for it."""
        at = samples, np.argmin(self.shares[samples] > 0.0, axis=1)
        self.shares[samples] *= 1.0 - share
        self.shares[at], self.means[at], self.factors[at] = share, points, factors
        self.seen[at] = _WORTH_OF_MAXIMA * (points.shape[1] + 2.0)


class Estimates(NamedTuple):
    """What weighted points say of samples."""

    log_density: Floats  # (n,)
    error: Floats  # (n,) standard error of it
    spread: Floats  # (n,) deviation of the weights, relative to their mean
    missed: Floats  # (n,) share of the density where there should be a proposal, and is none
    suspect: Floats  # (n, S) the point that says so, or has a large share itself; NaN if none


@lru_cache(maxsize=8)
def sobol_points(n_dimensions: int, n_points: int, seed: int) -> Floats:
    """Return points of the unit cube, the same ones each time."""
    return np.asarray(qmc.Sobol(n_dimensions, scramble=True, seed=seed).random(n_points))


@kernel
def seed_samples(samples: Floats, seed: int) -> Keys:
    """Return 64 bits for each sample (n, d), a function of its values."""
    bits = samples.view(np.uint64)
    seeds = np.empty(len(samples), dtype=np.uint64)
    for n in range(len(samples)):
        state = scramble(np.uint64(seed))
        for d in range(samples.shape[1]):
            state = scramble(state ^ bits[n, d])
        seeds[n] = state
    return seeds


@kernel
def allocate(shares: Floats, n_points: int) -> Integers:
    """Share out points among proposals: (n, K, 2), the narrow ones and the wide ones of each."""
    n_samples, n_places = shares.shape
    counts = np.zeros((n_samples, n_places, 2), dtype=np.intp)
    for n in range(n_samples):
        total = 0.0
        for k in range(n_places):
            if shares[n, k] > 0.0:
                total += max(shares[n, k], _LEAST_POINTS_SHARE)
        left, largest = n_points, 0
        for k in range(n_places):
            if shares[n, k] > 0.0:
                wanted = max(shares[n, k], _LEAST_POINTS_SHARE) / total * n_points
                count = max(1, int(wanted))
                counts[n, k, 1] = int(_WIDE_SHARE * count + 0.5)
                counts[n, k, 0] = count - counts[n, k, 1]
                left -= count
                if shares[n, k] > shares[n, largest]:
                    largest = k
        # The largest has what is left; all together are as many as there is space for.
        count = counts[n, largest, 0] + counts[n, largest, 1] + left
        counts[n, largest, 1] = max(1, int(_WIDE_SHARE * count + 0.5))
        counts[n, largest, 0] = count - counts[n, largest, 1]
    return counts


@inlined_sum_kernel
def _quantiles(uniform: Floats, s: int, count: int, normal: Floats, tails: Integers) -> None:
    """Fill in quantiles of the normal distribution, to nine digits (the functions of Acklam)."""
    for i in range(count):
        q = uniform[i] - 0.5
        r = q * q
        top = (-3.969683028665376e01 * r + 2.209460984245205e02) * r - 2.759285104469687e02
        top = ((top * r + 1.383577518672690e02) * r - 3.066479806614716e01) * r + 2.506628277459239
        bottom = (-5.447609879822406e01 * r + 1.615858368580409e02) * r - 1.556989798598866e02
        bottom = ((bottom * r + 6.680131188771972e01) * r - 1.328068155288572e01) * r + 1.0
        normal[s, i] = top * q / bottom
    # Tails are few: they are found first, and another formula holds.
    n_tails = 0
    for i in range(count):
        tails[n_tails] = i
        n_tails += 1 if abs(uniform[i] - 0.5) > 0.5 - _TAIL else 0
    for j in range(n_tails):
        i = tails[j]
        u = uniform[i]
        q = math.sqrt(-2.0 * math.log(max(min(u, 1.0 - u), 1e-16)))
        top = -7.784894002430293e-03 * q - 3.223964580411365e-01
        top = ((top * q - 2.400758277161838) * q - 2.549732539343734) * q + 4.374664141464968
        top = top * q + 2.938163982698783
        bottom = (7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996
        bottom = (bottom * q + 3.754408661907416) * q + 1.0
        normal[s, i] = top / bottom if u < 0.5 else -top / bottom


@inlined_kernel
def _scale(proposals: Proposals, n: int, k: int) -> float:
    """Deviations of a proposal, in units of its factor."""
    n_components = proposals.means.shape[2]
    return math.sqrt(1.0 + _DOUBT * (n_components + 2.0) / proposals.seen[n, k])


@sum_kernel
def draw_points(
    proposals: Proposals, counts: Integers, seeds: Keys, base: Floats, n_points: int
) -> Floats:
    """Draw points from the proposals of every sample: (S, samples times shifts times points).

    ``base`` (S, p) are points of the unit cube.  Those of a proposal are together, shift by shift.
    """
    n_samples, n_places, n_components = proposals.means.shape
    n_all = N_SHIFTS * n_points
    points = np.empty((n_components, n_samples * n_all))
    uniform, normal = np.empty(n_all), np.empty((n_components, n_all))
    tails = np.empty(n_all + 1, dtype=np.intp)
    p = 0
    for n in range(n_samples):
        for k in range(n_places):
            mean, factor = proposals.means[n, k], proposals.factors[n, k]
            for kind in range(2):
                count = counts[n, k, kind]
                if count == 0:
                    continue
                scale, size = _scale(proposals, n, k) * (1.0 + kind), N_SHIFTS * count
                state = scramble(seeds[n] ^ np.uint64(k * 2 + kind))
                for s in range(n_components):
                    for number in range(N_SHIFTS):
                        state = scramble(state)
                        shift = (np.int64(state >> np.uint64(11))) * (0.5**53)
                        for i in range(count):
                            u = base[s, i] + shift
                            uniform[number * count + i] = u - 1.0 if u >= 1.0 else u
                    _quantiles(uniform, s, size, normal, tails)
                    center = mean[s]
                    for i in range(size):
                        points[s, p + i] = center
                    for t in range(s + 1):
                        rate = scale * factor[s, t]
                        for i in range(size):
                            points[s, p + i] += rate * normal[t, i]
                p += size
    return points


class _Densities(NamedTuple):
    """The proposals of one sample, ready to be evaluated: those that have points."""

    places: Integers  # (K,)
    means: Floats  # (K, S)
    inverses: Floats  # (K, S, S) of the factors
    heights: Floats  # (K, 2) number of points times density at the mean, but for a common factor
    log_unit: Floats  # (1,) log of that factor
    shifted: Floats  # (S, chunk) room
    image: Floats  # (chunk,) room
    squares: Floats  # (chunk,) room


@kernel
def _make_densities(n_places: int, n_components: int) -> _Densities:
    return _Densities(
        np.empty(n_places, dtype=np.intp),
        np.empty((n_places, n_components)),
        np.empty((n_places, n_components, n_components)),
        np.empty((n_places, 2)),
        np.empty(1),
        np.empty((n_components, _CHUNK)),
        np.empty(_CHUNK),
        np.empty(_CHUNK),
    )


@kernel
def _prepare_densities(
    proposals: Proposals, counts: Integers, n: int, densities: _Densities
) -> int:
    """Fill in the densities of a sample; return how many there are."""
    n_places, n_components = proposals.means.shape[1:]
    n_used, smallest = 0, math.inf
    for k in range(n_places):
        if counts[n, k, 0] + counts[n, k, 1] > 0:
            factor, inverse = proposals.factors[n, k], densities.inverses[n_used]
            scale, log_volume = _scale(proposals, n, k), 0.0
            for s in range(n_components):
                log_volume += math.log(scale * factor[s, s])
                inverse[s, s] = 1.0 / (scale * factor[s, s])
                for t in range(s):
                    value = 0.0
                    for u in range(t, s):
                        value += factor[s, u] * inverse[u, t]
                    inverse[s, t] = -value / factor[s, s]
            densities.places[n_used] = k
            densities.means[n_used] = proposals.means[n, k]
            densities.heights[n_used, 0] = log_volume
            smallest = min(smallest, log_volume)
            n_used += 1
    for j in range(n_used):
        k = densities.places[j]
        height = math.exp(smallest - densities.heights[j, 0])
        densities.heights[j, 0] = counts[n, k, 0] * height
        densities.heights[j, 1] = counts[n, k, 1] * height * 0.5**n_components
    densities.log_unit[0] = -smallest
    return n_used


@inlined_sum_kernel
def _mix(
    densities: _Densities,
    n_used: int,
    points: Floats,
    first: int,
    n_points: int,
    parts: Floats,
    totals: Floats,
) -> None:
    """Fill in ``n_k q_k(z)`` at points from the first on, (K, p), and their sums (p,).

    But for the common factor.  Innermost loops are over points: several are computed at once.
    """
    n_components = points.shape[0]
    means, inverses, heights = densities.means, densities.inverses, densities.heights
    shifted, image, squares = densities.shifted, densities.image, densities.squares
    for begin in range(0, n_points, _CHUNK):
        size = min(_CHUNK, n_points - begin)
        for i in range(size):
            totals[begin + i] = 0.0
        for j in range(n_used):
            for i in range(size):
                squares[i] = 0.0
            for s in range(n_components):
                mean, rate = means[j, s], inverses[j, s, s]
                for i in range(size):
                    shifted[s, i] = points[s, first + begin + i] - mean
                    image[i] = rate * shifted[s, i]
                for t in range(s):
                    rate = inverses[j, s, t]
                    for i in range(size):
                        image[i] += rate * shifted[t, i]
                for i in range(size):
                    squares[i] += image[i] * image[i]
            narrow_height, wide_height = heights[j, 0], heights[j, 1]
            for i in range(size):
                wide = _exponential(-0.125 * squares[i])
                squares[i] = wide * (narrow_height * wide * wide * wide + wide_height)
            for i in range(size):
                parts[j, begin + i] = squares[i]
                totals[begin + i] += squares[i]


@inlined_sum_kernel
def _exponential(exponent: float) -> float:
    """Exponential function of a number that is not positive, to ten digits.

    The Taylor series of a 2,048th of it, squared eleven times: no branches.
    """
    x = max(exponent, _LOWEST) * (1.0 / 2048.0)
    value = 1.0 + x * (1.0 / 8.0) * (1.0 + x * (1.0 / 9.0) * (1.0 + x * (1.0 / 10.0)))
    value = 1.0 + x * (1.0 / 5.0) * (1.0 + x * (1.0 / 6.0) * (1.0 + x * (1.0 / 7.0) * value))
    value = 1.0 + x * (1.0 + x * 0.5 * (1.0 + x * (1.0 / 3.0) * (1.0 + x * 0.25 * value)))
    value *= value
    value *= value
    value *= value
    value *= value
    value *= value
    value *= value
    value *= value
    value *= value
    value *= value
    value *= value
    value *= value
    return value


@sum_kernel
def weigh_points(
    proposals: Proposals,
    counts: Integers,
    points: Floats,
    log_likelihoods: Floats,
    prior_points: Floats,
    prior_log_likelihoods: Floats,
    tolerance: float,
    enough: Floats,
    most_power: float,
    adapted: Proposals,
) -> tuple[Estimates, Floats]:
    """Weigh the points (S, n p) of every sample; fill in proposals that fit them better.

    Returns estimates, and the weights (n, p), which sum to 1.  Draws from the prior (S, m) tell
    where there should be a proposal, if more than the tolerance is at stake.  Proposals of samples
    whose error (n,) is small enough are left as they are.
    """
    n_samples, n_points = log_likelihoods.shape
    n_components, n_places, n_each = points.shape[0], counts.shape[1], n_points // N_SHIFTS
    n_prior = prior_points.shape[1]
    estimates = Estimates(
        np.empty(n_samples),
        np.empty(n_samples),
        np.empty(n_samples),
        np.zeros(n_samples),
        np.full((n_samples, n_components), np.nan),
    )
    densities = _make_densities(n_places, n_components)
    weights = np.empty((n_samples, n_points))
    parts, totals = np.zeros((n_places, n_points)), np.empty(n_points)
    logs, tempered = np.empty(n_points), np.empty(n_points)
    likely, sums = np.empty(_CHUNK, dtype=np.intp), np.empty(N_SHIFTS)
    gathered = np.empty((n_components, _CHUNK))
    own_parts, own_totals = np.empty((n_places, _CHUNK)), np.empty(_CHUNK)
    log_smallest = math.log(_SMALLEST_MISSED * n_prior)
    for n in range(n_samples):
        n_used = _prepare_densities(proposals, counts, n, densities)
        log_unit, first = densities.log_unit[0], n * n_points
        # --- Weights, relative to the largest.
        _mix(densities, n_used, points, first, n_points, parts, totals)
        largest = -math.inf
        for p in range(n_points):
            logs[p] = log_likelihoods[n, p] - log_unit - math.log(totals[p])
        for s in range(n_components):
            for p in range(n_points):
                logs[p] -= 0.5 * points[s, first + p] * points[s, first + p]
        for p in range(n_points):
            largest = max(largest, logs[p])
        if not -math.inf < largest < math.inf:
            # So far out that the log density is not a floating-point number: nothing is known.
            estimates.log_density[n], estimates.error[n] = -math.inf, 0.0
            estimates.spread[n] = 0.0
            weights[n] = 0.0
            continue
        squares, heaviest = 0.0, 0
        for p in range(n_points):
            logs[p] -= largest
            weights[n, p] = _exponential(logs[p])
            squares += weights[n, p] * weights[n, p]
        sums[:], p = 0.0, 0
        for j in range(n_used):
            for kind in range(2):
                for number in range(N_SHIFTS):
                    for _ in range(counts[n, densities.places[j], kind]):
                        sums[number] += weights[n, p]
                        p += 1
        total = sums.sum()
        log_density = largest + math.log(total / N_SHIFTS)
        estimates.log_density[n] = log_density
        # --- The error, by the shifts, and a little by the spread of the weights.
        deviation = 0.0
        for number in range(N_SHIFTS):
            deviation += (sums[number] / total - 1.0 / N_SHIFTS) ** 2
        spread = max(squares / (total * total) * n_points - 1.0, 0.0)
        by_shifts = deviation * N_SHIFTS / (N_SHIFTS - 1.0)
        estimates.error[n] = math.sqrt(
            (1.0 - _SPREAD_SHARE) * by_shifts + _SPREAD_SHARE * spread / n_points
        )
        estimates.spread[n] = math.sqrt(spread)
        for p in range(n_points):
            weights[n, p] /= total
            if logs[p] == 0.0:
                heaviest = p
        # --- Where there should be proposals.
        if weights[n, heaviest] > _HEAVY:
            for s in range(n_components):
                estimates.suspect[n, s] = points[s, first + heaviest]
        worst, place, m = -math.inf, 0, 0
        while m < n_prior:
            n_likely = 0
            while m < n_prior and n_likely < _CHUNK:
                if prior_log_likelihoods[n, m] - log_density > log_smallest:
                    likely[n_likely] = m
                    for s in range(n_components):
                        gathered[s, n_likely] = prior_points[s, m]
                    n_likely += 1
                m += 1
            _mix(densities, n_used, gathered, 0, n_likely, own_parts, own_totals)
            for i in range(n_likely):
                square = 0.0
                for s in range(n_components):
                    square += gathered[s, i] * gathered[s, i]
                excess = prior_log_likelihoods[n, likely[i]] - log_density
                log_expected = log_unit + math.log(own_totals[i]) - math.log(n_each)
                if excess - 0.5 * square - log_expected > math.log(_UNCOVERED):
                    estimates.missed[n] += math.exp(excess) / n_prior
                    if excess > worst:
                        worst, place = excess, likely[i]
        if estimates.missed[n] > tolerance:
            for s in range(n_components):
                estimates.suspect[n, s] = prior_points[s, place]
        elif estimates.error[n] <= enough[n]:
            continue
        # --- Proposals that fit the points (population Monte Carlo: Cappe et al., 2008).
        kept = 0.0
        _temper(logs, _FITTED_POINTS * (n_components + 2.0), most_power, tempered)
        for p in range(n_points):
            tempered[p] /= totals[p]
        for j in range(n_used):
            k = densities.places[j]
            share = _fit_proposal(points, first, tempered, parts, j, n, k, adapted)
            adapted.shares[n, k] = share if share >= _SMALLEST_SHARE else 0.0
            kept += adapted.shares[n, k]
        for k in range(n_places):
            adapted.shares[n, k] /= kept
    return estimates, weights


@sum_kernel
def _temper(logs: Floats, n_wanted: float, most_power: float, tempered: Floats) -> None:
    """Fill in powers of weights, given by their logs: the largest that leave enough points.

    Where proposals are far from what they should be, all weight is on a single point, which tells
    where to go, but not how far.  With a power below 1, others have their say.
    """
    low, high = 0.0, most_power
    for number in range(_N_HALVINGS):
        power = most_power if number == 0 else 0.5 * (low + high)
        total, squares = 0.0, 0.0
        for p in range(logs.size):
            tempered[p] = _exponential(power * logs[p])
            total += tempered[p]
            squares += tempered[p] * tempered[p]
        is_enough = total * total >= n_wanted * squares
        if is_enough and number == 0:
            break
        if is_enough:
            low = power
        else:
            high = power
    for p in range(logs.size):
        tempered[p] /= total


@sum_kernel
def _fit_proposal(
    points: Floats,
    first: int,
    weights: Floats,
    parts: Floats,
    j: int,
    n: int,
    k: int,
    adapted: Proposals,
) -> float:
    """Fit proposal k of sample n to weighted points from the first on; return its share of them.

    Of a point, it has ``weights[p] parts[j, p]``.
    """
    n_components, n_points = points.shape[0], weights.size
    mean, factor = adapted.means[n, k], adapted.factors[n, k]
    # --- Moments about the old mean.
    own, along = np.empty(_CHUNK), np.empty(_CHUNK)
    shifted = np.empty((n_components, _CHUNK))
    move, matrix = np.zeros(n_components), np.zeros((n_components, n_components))
    total, squares = 0.0, 0.0
    for begin in range(0, n_points, _CHUNK):
        size = min(_CHUNK, n_points - begin)
        for i in range(size):
            own[i] = weights[begin + i] * parts[j, begin + i]
            total += own[i]
            squares += own[i] * own[i]
        for s in range(n_components):
            center, value = mean[s], 0.0
            for i in range(size):
                shifted[s, i] = points[s, first + begin + i] - center
                along[i] = own[i] * shifted[s, i]
                value += along[i]
            move[s] += value
            for t in range(s + 1):
                value = 0.0
                for i in range(size):
                    value += along[i] * shifted[t, i]
                matrix[s, t] += value
    if not total > 0.0:
        return 0.0
    # --- As if the old covariance had been seen in some points.
    n_effective = total * total / squares
    before = _MEMORY * adapted.seen[n, k]
    adapted.seen[n, k] = before + n_effective
    new, kept = n_effective / adapted.seen[n, k], before / adapted.seen[n, k]
    for s in range(n_components):
        move[s] *= new / total
        for t in range(s + 1):
            # Both are about their common mean then.
            matrix[s, t] *= new / total
            matrix[s, t] -= move[s] * move[t]
            for u in range(t + 1):
                matrix[s, t] += kept * factor[s, u] * factor[t, u]
    for s in range(n_components):
        mean[s] += move[s]
        for t in range(s + 1):
            value = matrix[s, t]
            for u in range(t):
                value -= factor[s, u] * factor[t, u]
            factor[s, t] = math.sqrt(value) if s == t else value / factor[t, t]
    return total
