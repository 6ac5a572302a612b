"""Integrals over all of latent space by weighted points, drawn from a mixture of Gaussians.

Each row has proposals of its own: Gaussians q_k about the maxima of its posterior, later those that
fit its weighted points best.  Of each, as many points are taken as its share asks for, and all
count by ``p(x, z) / sum_k n_k q_k(z)`` (the balance heuristic: Veach and Guibas, 1995), which is
unbiased, whatever the proposals.  A few points of each are drawn from a wider Gaussian: tails of
the posterior that are heavier than those of a proposal are not missed.

Points are those of a Sobol sequence, shifted at random, several times: the results of the shifts
tell the error.  What is random is a function of the row and of a seed, and of nothing else.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from skdgn._posterior.likelihoods import Keys, scramble
from skdgn._runtime import Floats, inlined_kernel, inlined_sum_kernel, kernel, sum_kernel

Integers = NDArray[np.intp]

# Shifts of the points.
N_SHIFTS = 8
# Points of a shift: these, or half as many again.
FEWEST_POINTS, MOST_POINTS = 32, 4096
# Deviations of proposals, in units of those fitted to weighted points or to the maximum; those of
# the wide ones are twice as large.  A share of the points is drawn from them.
_NARROW, FIRST_NARROW = 1.1, 1.2
_WIDE_SHARE = 0.12
# Proposals whose share is below this are given up; others have at least a few points.
_SMALLEST_SHARE = 1e-3
_LEAST_POINTS_SHARE = 0.03
# Proposals are fitted to what counts as so many points or more, for each latent dimension.
_FITTED_POINTS = 6.0
_N_HALVINGS = 12
# The old covariance of a proposal weighs as much as so many points per latent dimension.
_POINTS_PER_DIMENSION = 2.0
# Where p(x, z) is so many times what proposals expect, they do not know of the place.
_UNCOVERED = 100.0
# What has no such share of the density is not looked for.
_SMALLEST_MISSED = 1e-3
# A share of all points by itself tells that proposals do not know of the place either.
_HEAVY = 0.05

# Share of the error that comes from the spread of the weights, as if points were independent.  It
# is larger than the error, and known better.
_SPREAD_SHARE = 0.25


# Maxima that are lower than the highest by so many nats do not matter.
_TOO_LOW = 12.0


class Proposals(NamedTuple):
    """Mixtures of Gaussians, one for each row, with room for K of them."""

    shares: Floats  # (n, K), zero where there is none
    means: Floats  # (n, K, S)
    factors: Floats  # (n, K, S, S) lower triangles
    narrow: Floats  # (n,) units of the factors

    def take(self, rows: NDArray[np.intp]) -> Proposals:
        """Return the proposals of these rows."""
        return Proposals(*(array[rows] for array in self))


class Estimates(NamedTuple):
    """What weighted points say of rows."""

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
def seed_rows(rows: Floats, seed: int) -> Keys:
    """Return 64 bits for each row (n, d), a function of its values."""
    bits = rows.view(np.uint64)
    seeds = np.empty(len(rows), dtype=np.uint64)
    for n in range(len(rows)):
        state = scramble(np.uint64(seed))
        for d in range(rows.shape[1]):
            state = scramble(state ^ bits[n, d])
        seeds[n] = state
    return seeds


@kernel
def choose_maxima(
    points: Floats, heights: Floats, factors: Floats, n_before: int, n_maxima: int, n_spare: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Make proposals of the points (n, J, S) at which ascents ended: shares, means, factors.

    By their heights and the volume of the Gaussians around, without those that are nearly the same,
    or far too low.  There is room for so many maxima, and some more.  The last result is the share
    (n,) of those that the first ``n_before`` ascents had not found.
    """
    n_rows, n_ascents, n_components = points.shape
    n_places = n_maxima + n_spare
    shares, newest = np.zeros((n_rows, n_places)), np.zeros(n_rows)
    means = np.zeros((n_rows, n_places, n_components))
    chosen = np.zeros((n_rows, n_places, n_components, n_components))
    scratch, logs = np.empty(n_components), np.empty(n_ascents)
    is_new = np.empty(n_maxima, dtype=np.bool_)
    for n in range(n_rows):
        largest = -math.inf
        for j in range(n_ascents):
            logs[j] = heights[n, j]
            if logs[j] > -math.inf:
                for s in range(n_components):
                    logs[j] += math.log(factors[n, j, s, s])
            largest = max(largest, logs[j])
        k = 0
        for _ in range(n_ascents):
            best = int(np.argmax(logs))
            if not logs[best] > largest - _TOO_LOW:
                break
            same = -1
            for other in range(k):
                square = _solve(chosen[n, other], means[n, other], points[n, best], scratch)
                if square < 1.0:
                    same = other
                    break
            if same >= 0:
                is_new[same] = is_new[same] and best >= n_before
            elif k < n_maxima:
                shares[n, k] = math.exp(logs[best] - largest)
                is_new[k] = best >= n_before
                means[n, k] = points[n, best]
                chosen[n, k] = factors[n, best]
                k += 1
            logs[best] = -math.inf
        if k == 0:
            # So far out that nothing is known: the prior will do.
            shares[n, 0], is_new[0] = 1.0, False
            for s in range(n_components):
                chosen[n, 0, s, s] = 1.0
        shares[n] /= shares[n].sum()
        for other in range(k):
            if is_new[other]:
                newest[n] += shares[n, other]
    return shares, means, chosen, newest


@inlined_kernel
def _solve(factor: Floats, mean: Floats, point: Floats, scratch: Floats) -> float:
    """Squared length of a point minus the mean, in units of a lower factor."""
    square = 0.0
    for s in range(mean.size):
        value = point[s] - mean[s]
        for t in range(s):
            value -= factor[s, t] * scratch[t]
        scratch[s] = value / factor[s, s]
        square += scratch[s] * scratch[s]
    return square


@kernel
def allocate(shares: Floats, n_points: int) -> Integers:
    """Share out points among proposals: (n, K, 2), the narrow ones and the wide ones of each."""
    n_rows, n_places = shares.shape
    counts = np.zeros((n_rows, n_places, 2), dtype=np.intp)
    for n in range(n_rows):
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
def _quantile(uniform: float) -> float:
    """Quantile of the normal distribution, to nine digits (the rational functions of Acklam)."""
    tail = min(uniform, 1.0 - uniform)
    if tail < 0.02425:
        q = math.sqrt(-2.0 * math.log(max(tail, 1e-16)))
        top = -7.784894002430293e-03 * q - 3.223964580411365e-01
        top = ((top * q - 2.400758277161838) * q - 2.549732539343734) * q + 4.374664141464968
        top = top * q + 2.938163982698783
        bottom = (7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996
        bottom = (bottom * q + 3.754408661907416) * q + 1.0
        value = top / bottom
        return value if uniform < 0.5 else -value
    q = uniform - 0.5
    r = q * q
    top = (-3.969683028665376e01 * r + 2.209460984245205e02) * r - 2.759285104469687e02
    top = ((top * r + 1.383577518672690e02) * r - 3.066479806614716e01) * r + 2.506628277459239
    bottom = (-5.447609879822406e01 * r + 1.615858368580409e02) * r - 1.556989798598866e02
    bottom = ((bottom * r + 6.680131188771972e01) * r - 1.328068155288572e01) * r + 1.0
    return top * q / bottom


@sum_kernel
def draw_points(
    proposals: Proposals, counts: Integers, seeds: Keys, base: Floats, n_points: int
) -> Floats:
    """Draw points (n, shifts times points, S) from the proposals of every row."""
    n_rows, n_places, n_components = proposals.means.shape
    points = np.empty((n_rows, N_SHIFTS * n_points, n_components))
    shift, normal = np.empty(n_components), np.empty(n_components)
    for n in range(n_rows):
        p = 0
        for number in range(N_SHIFTS):
            for k in range(n_places):
                mean, factor = proposals.means[n, k], proposals.factors[n, k]
                for kind in range(2):
                    if counts[n, k, kind] == 0:
                        continue
                    scale = proposals.narrow[n] * (1.0 + kind)
                    state = scramble(seeds[n] ^ np.uint64((number * n_places + k) * 2 + kind))
                    for s in range(n_components):
                        state = scramble(state)
                        shift[s] = (np.int64(state >> np.uint64(11))) * (0.5**53)
                    for i in range(counts[n, k, kind]):
                        for s in range(n_components):
                            u = base[i, s] + shift[s]
                            u -= math.floor(u)
                            normal[s] = scale * _quantile(u)
                        for s in range(n_components):
                            value = mean[s]
                            for t in range(s + 1):
                                value += factor[s, t] * normal[t]
                            points[n, p, s] = value
                        p += 1
    return points


class _Densities(NamedTuple):
    """The proposals of one row, ready to be evaluated: those that have points."""

    places: Integers  # (K,)
    means: Floats  # (K, S)
    inverses: Floats  # (K, S, S) of the factors
    heights: Floats  # (K, 2) number of points times density at the mean, but for a common factor
    log_unit: Floats  # (1,) log of that factor


@kernel
def _prepare_densities(
    proposals: Proposals, counts: Integers, n: int, densities: _Densities
) -> int:
    """Fill in the densities of a row; return how many there are."""
    n_places, n_components = proposals.means.shape[1:]
    n_used, smallest = 0, math.inf
    for k in range(n_places):
        if counts[n, k, 0] + counts[n, k, 1] > 0:
            factor, inverse = proposals.factors[n, k], densities.inverses[n_used]
            log_volume = 0.0
            for s in range(n_components):
                log_volume += math.log(factor[s, s])
                inverse[s, s] = 1.0 / factor[s, s]
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
    narrow = proposals.narrow[n] ** -n_components
    wide = narrow * 0.5**n_components
    for j in range(n_used):
        k = densities.places[j]
        height = math.exp(smallest - densities.heights[j, 0])
        densities.heights[j, 0] = counts[n, k, 0] * narrow * height
        densities.heights[j, 1] = counts[n, k, 1] * wide * height
    for j in range(n_used, n_places):
        densities.places[j] = -1
    densities.log_unit[0] = -smallest
    return n_used


@inlined_sum_kernel
def _log_proposal(
    places: Integers,
    means: Floats,
    inverses: Floats,
    heights: Floats,
    narrow: float,
    points: Floats,
    p: int,
    shifted: Floats,
    parts: Floats,
    q: int,
) -> float:
    """Log of ``sum_k n_k q_k(z)`` at a point, but for the common factor; fills parts[q].

    No views of arrays are made here: they would take longer than all the rest.
    """
    total, scale = 0.0, -0.125 / (narrow * narrow)
    for j in range(places.size):
        if places[j] < 0:
            break
        for s in range(shifted.size):
            shifted[s] = points[p, s] - means[j, s]
        square = 0.0
        for s in range(shifted.size):
            value = 0.0
            for t in range(s + 1):
                value += inverses[j, s, t] * shifted[t]
            square += value * value
        wide = math.exp(scale * square)
        inner = (wide * wide) * (wide * wide)
        parts[q, j] = heights[j, 0] * inner + heights[j, 1] * wide
        total += parts[q, j]
    return math.log(total)


@sum_kernel
def weigh_points(
    proposals: Proposals,
    counts: Integers,
    points: Floats,
    log_likelihoods: Floats,
    prior_points: Floats,
    prior_log_likelihoods: Floats,
    tolerance: float,
    most_power: float,
    adapted: Proposals,
) -> tuple[Estimates, Floats]:
    """Weigh the points of every row; fill in proposals that fit them better.

    Returns estimates, and the weights (n, p), which sum to 1.  Draws from the prior (m, S) tell
    where there should be a proposal, if more than the tolerance is at stake.  Proposals of rows
    whose error is below the tolerance are left as they are.
    """
    n_rows, n_points, n_components = points.shape
    n_places, n_each = proposals.shares.shape[1], n_points // N_SHIFTS
    estimates = Estimates(
        np.empty(n_rows),
        np.empty(n_rows),
        np.empty(n_rows),
        np.zeros(n_rows),
        np.full((n_rows, n_components), np.nan),
    )
    densities = _Densities(
        np.empty(n_places, dtype=np.intp),
        np.empty((n_places, n_components)),
        np.empty((n_places, n_components, n_components)),
        np.empty((n_places, 2)),
        np.empty(1),
    )
    weights = np.empty((n_rows, n_points))
    parts, scratch = np.zeros((n_points, n_places)), np.empty(n_components)
    logs, tempered = np.empty(n_points), np.empty(n_points)
    own, sums = np.empty((1, n_places)), np.empty(N_SHIFTS)
    places, means = densities.places, densities.means
    inverses, heights = densities.inverses, densities.heights
    log_smallest = math.log(_SMALLEST_MISSED * len(prior_points))
    for n in range(n_rows):
        n_used, narrow = _prepare_densities(proposals, counts, n, densities), proposals.narrow[n]
        parts[:, n_used:] = 0.0
        log_unit, row_points = densities.log_unit[0], points[n]
        # --- Weights, relative to the largest.
        largest = -math.inf
        for p in range(n_points):
            square = 0.0
            for s in range(n_components):
                square += points[n, p, s] * points[n, p, s]
            log_weight = log_likelihoods[n, p] - 0.5 * square - log_unit
            log_weight -= _log_proposal(
                places, means, inverses, heights, narrow, row_points, p, scratch, parts, p
            )
            weights[n, p] = log_weight
            largest = max(largest, log_weight)
        if not -math.inf < largest < math.inf:
            # So far out that the log density is not a floating-point number: nothing is known.
            estimates.log_density[n], estimates.error[n] = -math.inf, 0.0
            estimates.spread[n] = 0.0
            continue
        squares, heaviest = 0.0, 0
        for number in range(N_SHIFTS):
            sums[number] = 0.0
            for p in range(number * n_each, (number + 1) * n_each):
                logs[p] = weights[n, p] - largest
                weights[n, p] = math.exp(logs[p])
                sums[number] += weights[n, p]
                squares += weights[n, p] * weights[n, p]
                if weights[n, p] > weights[n, heaviest]:
                    heaviest = p
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
        # --- Where there should be proposals.
        if weights[n, heaviest] > _HEAVY:
            for s in range(n_components):
                estimates.suspect[n, s] = points[n, heaviest, s]
        worst, place = -math.inf, 0
        for m in range(len(prior_points)):
            excess = prior_log_likelihoods[n, m] - log_density
            if excess > log_smallest:
                square = 0.0
                for s in range(n_components):
                    square += prior_points[m, s] * prior_points[m, s]
                log_expected = log_unit + _log_proposal(
                    places, means, inverses, heights, narrow, prior_points, m, scratch, own, 0
                )
                ratio = excess - 0.5 * square - log_expected + math.log(n_each)
                if ratio > math.log(_UNCOVERED):
                    estimates.missed[n] += math.exp(excess) / len(prior_points)
                    if excess > worst:
                        worst, place = excess, m
        if estimates.missed[n] > tolerance:
            for s in range(n_components):
                estimates.suspect[n, s] = prior_points[place, s]
        elif estimates.error[n] <= tolerance and most_power == 1.0:
            continue
        # --- Proposals that fit the points (population Monte Carlo: Cappe et al., 2008).
        kept = 0.0
        _temper(logs, _FITTED_POINTS * (n_components + 2.0), most_power, tempered)
        for j in range(n_used):
            k = densities.places[j]
            share = _fit_proposal(
                proposals.factors[n, k],
                points[n],
                tempered,
                parts,
                j,
                scratch,
                adapted.means[n, k],
                adapted.factors[n, k],
            )
            adapted.shares[n, k] = share if share >= _SMALLEST_SHARE else 0.0
            kept += adapted.shares[n, k]
        adapted.narrow[n] = _NARROW
        for k in range(n_places):
            adapted.shares[n, k] /= kept
    return estimates, weights


@kernel
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
            tempered[p] = math.exp(power * logs[p])
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
    old: Floats,
    points: Floats,
    weights: Floats,
    parts: Floats,
    place: int,
    scratch: Floats,
    mean: Floats,
    factor: Floats,
) -> float:
    """Fill mean and factor of the Gaussian that fits weighted points; return its share of them.

    Of a point, it has ``parts[point, place]`` over the sum of all parts.
    """
    n_points, n_components = points.shape
    total, squares = 0.0, 0.0
    own = np.empty(n_points)
    for s in range(n_components):
        mean[s] = 0.0
    for p in range(n_points):
        whole = 0.0
        for j in range(parts.shape[1]):
            whole += parts[p, j]
        weight = weights[p] * parts[p, place] / whole
        own[p] = weight
        total += weight
        squares += weight * weight
        for s in range(n_components):
            mean[s] += weight * points[p, s]
    if not total > 0.0:
        return 0.0
    for s in range(n_components):
        mean[s] /= total
    # As if the old covariance had been seen in a few points.
    n_effective = total * total / squares
    old_weight = _POINTS_PER_DIMENSION * (n_components + 2.0)
    new, kept = n_effective / (n_effective + old_weight), old_weight / (n_effective + old_weight)
    for s in range(n_components):
        for t in range(s + 1):
            value = 0.0
            for u in range(t + 1):
                value += old[s, u] * old[t, u]
            factor[s, t] = kept * value
    for p in range(n_points):
        weight = new * own[p] / total
        if weight > 0.0:
            for s in range(n_components):
                scratch[s] = points[p, s] - mean[s]
                for t in range(s + 1):
                    factor[s, t] += weight * scratch[s] * scratch[t]
    for s in range(n_components):
        for t in range(s + 1):
            value = factor[s, t]
            for u in range(t):
                value -= factor[s, u] * factor[t, u]
            factor[s, t] = math.sqrt(value) if s == t else value / factor[t, t]
        for t in range(s + 1, n_components):
            factor[s, t] = 0.0
    return total
