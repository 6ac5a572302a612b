"""The search for posteriors in all of latent space, without a list of regions.

For every sample, ascents from the best of many draws from the prior find the maxima of its
posterior; Gaussians about them are the first proposals, and points drawn from these are weighed
(`skdgn._posterior.explored.importance`).  The weighted points adapt the proposals, tell of places
that have none yet, and how many points the error asked for will take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from skdgn._network import Codes
from skdgn._partition import Keys
from skdgn._posterior.explored.ascents import ascend, cross_kinks
from skdgn._posterior.explored.importance import (
    FEWEST_POINTS,
    MOST_POINTS,
    N_SHIFTS,
    Estimates,
    Proposals,
    allocate,
    draw_points,
    seed_samples,
    sobol_points,
    weigh_points,
)
from skdgn._posterior.explored.likelihoods import Likelihood
from skdgn._posterior.explored.maxima import MOST_MAXIMA, Maxima
from skdgn._posterior.explored.point_groups import Groups, group_points, join_groups
from skdgn._posterior.listed import Visits
from skdgn._runtime import Bools, Floats, Integers, kernel

# Draws from the prior, from which ascents start: the best in each of so many cones, then the best
# in each of other cones, and so on, a few times at least, and as long as these find anything new.
N_PRIOR_POINTS = 4096
_N_SIDES = 3  # on a side of so many planes each
_N_ASCENTS = 2**_N_SIDES
# The kinks that are nearest to a maximum, and the best starts beyond.
_N_NEAR_KINKS, _N_KINK_ASCENTS = 16, 8
_N_SURE_SEARCHES = 4
_MOST_SEARCHES = 12
# Powers of two by which draws are multiplied to start from farther out.
_N_SCALES = 12
# Proposals that may be added where points tell of a place without one, one in each round.
_N_SPARE = 4
# Power of the weights to which proposals are fitted first: they are wider than the weights ask for,
# so that what is beyond a kink is seen.
_FIRST_POWER = 0.5
# Rounds that only adapt the proposals; what the others say is averaged.
_N_ADAPTIVE_ROUNDS = 2
_MOST_ROUNDS = 12
# A round has so many times the points of the one before, at most.
_GROWTH = 2.0
# Errors of shifted points, relative to those of independent ones: about so large with five or six
# latent dimensions.
_EXPECTED_GAIN = 0.7
# An error that is so many times what was asked for is small enough.
_SMALL_ENOUGH = 1.1
# Points that are looked at together: enough of them to be worth the calls.
_POINTS_AT_A_TIME = 1 << 16
# Numbers that the slopes of ascents may take.
_NUMBERS_AT_A_TIME = 1 << 22
# Spreads below this are taken for it.
_SMALLEST_SPREAD = 0.1
# Seeds from this on are those of later rounds.
_MOST_SEEDS = 1 << 32
# Odd, and without a pattern: samples in the same region do not have the same mark.
_MARK_STEP = np.uint64(0x9E3779B97F4A7C15)
# Share of the points for a proposal that was added.
_NEW_SHARE = 0.2


class _Prior(NamedTuple):
    """Draws from the prior, and what is generated there."""

    points: Floats  # (m, S)
    columns: Floats  # (S, m) the same
    images: Floats  # (m, d) in units of the noise


class _Candidates(NamedTuple):
    """Points from which ascents may start."""

    points: Floats  # (m, S)
    images: Floats  # (m, d) in units of the noise
    heights: Floats  # (m,) log of what does not depend on the sample, up to a constant
    keys: Keys  # (m,) of their regions


class _Starts:
    """Regions from which ascents started, for each sample.

    Within a region, all ascents have one and the same goal: one of them will do.
    """

    def __init__(self) -> None:
        self._marks = np.empty(0, dtype=np.uint64)

    def choose(self, owners: Integers, keys: Keys) -> Integers:
        """Return the places of the first in each region from which none has started yet."""
        marks, first = np.unique(keys + _MARK_STEP * owners.astype(np.uint64), return_index=True)
        is_new = ~np.isin(marks, self._marks)
        self._marks = np.concatenate([self._marks, marks[is_new]])
        return np.asarray(np.sort(first[is_new]))


class _Weighted(NamedTuple):
    """Points of samples."""

    points: Floats  # (S, n p)
    weights: Floats  # (n, p)
    keys: Keys  # (n, p) of their regions


class _Average(NamedTuple):
    """Averages of estimates from several rounds, for every sample."""

    weight: Floats  # (n,)
    log_density: Floats  # (n,)
    error: Floats  # (n,)

    @classmethod
    def of_nothing(cls, n_samples: int) -> _Average:
        """Return averages to which nothing has been added."""
        return cls(np.zeros(n_samples), np.full(n_samples, -np.inf), np.zeros(n_samples))

    def error_allowed(self, own: Integers, weight: Floats, error: float) -> Floats:
        """Return the error that new estimates may have, if that of the averages is to be this."""
        before = self.weight[own] / (self.weight[own] + weight)
        square = error**2 - np.square(before * self.error[own])
        return np.asarray(np.sqrt(np.maximum(square, 0.0)) / (1.0 - before))

    def add(self, own: Integers, weight: Floats, new: Estimates) -> Estimates:
        """Add estimates of some samples, and return the averages; in place.

        An estimate from before a proposal was added does not count.
        """
        before = self.weight[own] / (self.weight[own] + weight)
        with np.errstate(invalid="ignore", divide="ignore"):
            old_log = self.log_density[own] + np.log(before)
            new_log = new.log_density + np.log1p(-before)
            log_density = np.logaddexp(old_log, new_log)
            error = np.hypot(
                self.error[own] * np.exp(old_log - log_density),
                new.error * np.exp(new_log - log_density),
            )
        error = np.where(before > 0.0, error, new.error)
        is_blind = ~np.isnan(new.suspect[:, 0])
        self.weight[own] = np.where(is_blind, 0.0, self.weight[own] + weight)
        self.log_density[own] = np.where(is_blind, -np.inf, log_density)
        self.error[own] = np.where(is_blind, 0.0, error)
        return new._replace(log_density=log_density, error=error)


class _Found(NamedTuple):
    """Groups of points of one round after the other, all of which stand for the posteriors."""

    parts: list[Groups]
    log_weights: list[Floats]  # of all groups of a part
    rounds: list[Integers]  # the same

    def add(
        self,
        own: Integers,
        log_weights: Floats,
        number: int,
        weighted: _Weighted,
        counts: Bools,
    ) -> None:
        """Group the points of those samples (n,) that count; weights are those of rounds."""
        chosen = np.flatnonzero(counts)
        if chosen.size > 0:
            groups = group_points(*weighted, chosen)
            places = chosen[groups.owners]
            self.parts.append(groups._replace(owners=own[places]))
            self.log_weights.append(log_weights[places])
            self.rounds.append(np.full(len(places), number))

    def groups(self, first_round: Integers) -> Groups:
        """Join the groups of samples; rounds before the first that counts (n,) are left out."""
        joined = Groups(*(np.concatenate(arrays) for arrays in zip(*self.parts, strict=True)))
        log_weights, n_samples = np.concatenate(self.log_weights), len(first_round)
        counts = np.concatenate(self.rounds) >= first_round[joined.owners]
        largest = np.full(n_samples, -np.inf)
        np.maximum.at(largest, joined.owners[counts], log_weights[counts])
        with np.errstate(invalid="ignore"):
            factors = np.exp(log_weights - largest[joined.owners])
        # Of a sample far out, nothing is known at all.
        joined.shares[:] *= np.where(np.isneginf(log_weights), 1.0, factors)
        order = np.lexsort((joined.keys, joined.owners))
        return join_groups(joined, order[counts[order]])


@dataclass
class PosteriorSearch:
    """The search for the posteriors of samples of which the same features were observed."""

    likelihood: Likelihood
    tolerance: float
    seed: int

    @cached_property
    def _prior(self) -> _Prior:
        points = prior_points(self.likelihood.network.n_components, self.seed)
        images = self.likelihood.noise.whiten(self.likelihood.network.forward(points))
        return _Prior(points, np.ascontiguousarray(points.T), images)

    @cached_property
    def _base(self) -> Floats:
        n_components = self.likelihood.network.n_components
        return np.ascontiguousarray(sobol_points(n_components, MOST_POINTS, 2 * self.seed).T)

    def visit(self, samples: Floats) -> Visits:
        """Visit the regions of samples (n, d)."""
        scores, log_likelihoods = self._look_around(samples)
        maxima, newest = self._find_maxima(samples, scores)
        proposals = Proposals.about(maxima, len(samples), _N_SPARE)
        # --- One round after the other: proposals adapt to its points.
        active, so_far = np.arange(len(samples)), _Average.of_nothing(len(samples))
        sizes, spreads = np.full(len(samples), FEWEST_POINTS), np.ones(len(samples))
        log_density, error = np.empty(len(samples)), np.empty(len(samples))
        found, first_round = _Found([], [], []), np.zeros(len(samples), dtype=np.intp)
        for number in range(_MOST_ROUNDS):
            left, counts = [], number >= _N_ADAPTIVE_ROUNDS
            for own, n_points in _batches(active, sizes[active]):
                # By what was known of the proposals before: the average has no bias.
                weight, enough = n_points / np.square(spreads[own]), np.zeros(len(own))
                if counts:
                    enough = so_far.error_allowed(own, weight, _SMALL_ENOUGH * self.tolerance)
                new, weighted = self._draw(
                    samples, own, n_points, number, proposals, log_likelihoods, enough
                )
                estimates = so_far.add(own, weight, new) if counts else new
                is_done = estimates.error <= _SMALL_ENOUGH * self.tolerance
                is_done &= (estimates.missed <= self.tolerance) & counts
                is_done |= (number == _MOST_ROUNDS - 1) | np.isneginf(estimates.log_density)
                # What the search found last tells what it may not have found.
                log_density[own] = estimates.log_density
                error[own] = np.hypot(estimates.error, np.hypot(estimates.missed, newest[own]))
                found.add(own, np.log(weight) + new.log_density, number, weighted, counts | is_done)
                is_blind = ~is_done & ~np.isnan(estimates.suspect[:, 0])
                first_round[own[is_blind]] = number + 1
                self._add_proposals(samples, own, proposals, estimates)
                spreads[own] = np.maximum(estimates.spread, _SMALLEST_SPREAD)
                sizes[own] = self._next_sizes(own, n_points, so_far, spreads[own])
                left.append(own[~is_done])
            active = np.concatenate(left)
            if active.size == 0:
                break
        return self._join(log_density, error, found.groups(first_round))

    def _next_sizes(
        self, own: Integers, n_points: int, so_far: _Average, spreads: Floats
    ) -> Integers:
        """Tell how many points of each shift will do, given the spreads of the weights."""
        variances = np.square(_EXPECTED_GAIN * spreads / self.tolerance) / N_SHIFTS
        with np.errstate(divide="ignore"):
            known = np.square(self.tolerance / so_far.error[own])
        missing = np.where(so_far.weight[own] > 0.0, 1.0 - np.minimum(known, 1.0), 1.0)
        return _round_up(np.minimum(missing * variances, _GROWTH * n_points))

    def _look_around(self, samples: Floats) -> tuple[Floats, Floats]:
        """Log p(x, z) of samples at all candidates (n, m), up to a constant of each sample.

        Also log p(x | z) at the draws from the prior among them.
        """
        candidates, n_prior = self._candidates, len(self._prior.points)
        whitened = self.likelihood.noise.whiten(samples)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = whitened @ candidates.images.T + candidates.heights
            constants = self.likelihood.noise.log_constant - 0.5 * np.square(whitened).sum(axis=1)
            log_likelihoods = scores[:, :n_prior] + constants[:, None]
        log_likelihoods += 0.5 * np.square(self._prior.points).sum(axis=1)
        return scores, log_likelihoods

    def _find_maxima(self, samples: Floats, scores: Floats) -> tuple[Maxima, Floats]:
        """Climb from the best draws in cones, and from beyond kinks, until nothing new is found.

        Also returns the share (n,) of the maxima that were found last.
        """
        n_samples, candidates = len(samples), self._candidates
        active, newest = np.arange(n_samples), np.zeros((2, n_samples))
        maxima, starts = Maxima.of_nothing(candidates.points.shape[1]), _Starts()
        for number in range(_MOST_SEARCHES):
            best = np.empty((len(active), _N_ASCENTS), dtype=np.intp)
            _best_of_cones(scores, _make_cones(candidates.points, number), active, best)
            owners, places = np.repeat(active, _N_ASCENTS), best.ravel()
            chosen = starts.choose(owners, candidates.keys[places])
            found = self._ascend(samples, owners[chosen], candidates.points[places[chosen]])
            maxima, share = maxima.join(found, n_samples)
            newest[0, active] = share[active]
            if number + 1 >= _N_SURE_SEARCHES:
                active = active[share[active] > self.tolerance]
        active, crossed = np.arange(n_samples), _Starts()
        for _ in range(_MOST_SEARCHES):
            if active.size == 0:
                break
            beyond = self._cross_kinks(samples, active, maxima, starts, crossed)
            maxima, share = maxima.join(beyond, n_samples)
            newest[1, active] = share[active]
            active = active[share[active] > self.tolerance]
        return maxima, newest.sum(axis=0)

    @cached_property
    def _candidates(self) -> _Candidates:
        """Draws from the prior, and others farther out.

        Samples far out are explained by z far out, where there are no draws from the prior: these
        are multiplied by numbers.
        """
        scales = np.repeat(2.0 ** np.arange(1.0, 1.0 + _N_SCALES), _N_ASCENTS)
        near, network = self._prior.points, self.likelihood.network
        far = near * np.resize(scales, len(near))[:, None]
        points = np.concatenate([near, far])
        images = np.concatenate(
            [self._prior.images, self.likelihood.noise.whiten(network.forward(far))]
        )
        with np.errstate(over="ignore"):
            heights = -0.5 * (np.square(images).sum(axis=1) + np.square(points).sum(axis=1))
        return _Candidates(points, images, heights, self.likelihood.locate(points))

    def _cross_kinks(
        self, samples: Floats, active: Integers, maxima: Maxima, starts: _Starts, crossed: _Starts
    ) -> Maxima:
        """Look just beyond the kinks around new maxima of samples, and climb from there.

        A region may have much of the density without a maximum inside, hence the best points at
        kinks are returned, too.
        """
        own = maxima.take((maxima.kinds == 0) & np.isin(maxima.owners, active))
        own = own.take(crossed.choose(own.owners, self.likelihood.locate(own.points)))
        near, promises = [Maxima.of_nothing(maxima.points.shape[1])], [np.empty(0)]
        for part in self._parts(len(own.owners)):
            points, owners = own.points[part], own.owners[part]
            places, *arrays, promised = cross_kinks(
                self.likelihood, samples[owners], points, own.factors[part], _N_NEAR_KINKS
            )
            near.append(Maxima(owners[places], np.ones(len(places), dtype=np.intp), *arrays))
            promises.append(promised)
        kinks, promised = Maxima.concatenate(near), np.concatenate(promises)
        scores = kinks.logs + promised
        chosen = _best_of_each(kinks.owners, scores, _N_KINK_ASCENTS)
        new = kinks.take(chosen[scores[chosen] > -np.inf])
        new = new.take(starts.choose(new.owners, self.likelihood.locate(new.points)))
        ends = self._ascend(samples, new.owners, new.points)
        best = kinks.take(_best_of_each(kinks.owners, kinks.logs, MOST_MAXIMA[1]))
        return Maxima.concatenate([best, ends])

    def _ascend(self, samples: Floats, owners: Integers, starts: Floats) -> Maxima:
        """Climb from points of the samples they belong to, a few at a time."""
        found = [Maxima.of_nothing(starts.shape[1])]
        for part in self._parts(len(starts)):
            kinds = np.zeros(len(owners[part]), dtype=np.intp)
            ends = ascend(self.likelihood, samples[owners[part]], starts[part])
            found.append(Maxima(owners[part], kinds, *ends))
        joined = Maxima.concatenate(found)
        return joined.take(joined.heights > -np.inf)

    def _parts(self, n_points: int) -> Iterator[slice]:
        """Yield a few points at a time: their slopes take memory."""
        network = self.likelihood.network
        widest = max(layer.n_outputs for layer in network.layers)
        n_part = max(64, _NUMBERS_AT_A_TIME // (network.n_components * widest))
        for begin in range(0, n_points, n_part):
            yield slice(begin, begin + n_part)

    def _draw(
        self,
        samples: Floats,
        own: Integers,
        n_points: int,
        n_rounds: int,
        proposals: Proposals,
        log_likelihoods: Floats,
        enough: Floats,
    ) -> tuple[Estimates, _Weighted]:
        """Draw and weigh points of some samples; adapt proposals whose error is not small enough.

        Points differ from round to round: proposals are fitted to those of the round before, and
        would suit them too well.
        """
        mine = proposals.take(own)
        counts = allocate(mine.shares, n_points)
        seeds = seed_samples(samples[own], _MOST_SEEDS * n_rounds + self.seed)
        points = draw_points(mine, counts, seeds, self._base, n_points)
        values, keys = self.likelihood.evaluate(samples[own], points)
        adapted = mine.take(np.arange(len(own)))
        estimates, weights = weigh_points(
            mine,
            counts,
            points,
            values,
            self._prior.columns,
            log_likelihoods[own],
            self.tolerance,
            enough,
            _FIRST_POWER if n_rounds == 0 else 1.0,
            adapted,
        )
        for array, new in zip(proposals, adapted, strict=True):
            array[own] = new
        return estimates, _Weighted(points, weights, keys)

    def _add_proposals(
        self,
        samples: Floats,
        own: Integers,
        proposals: Proposals,
        estimates: Estimates,
    ) -> None:
        """Add a proposal where points tell of a place without one."""
        told = ~np.isnan(estimates.suspect[:, 0])
        told &= np.any(proposals.shares[own] == 0.0, axis=1)
        members = own[told]
        if members.size == 0:
            return
        points, _, factors = ascend(self.likelihood, samples[members], estimates.suspect[told])
        proposals.add(members, _NEW_SHARE, points, factors)

    def _join(self, log_density: Floats, error: Floats, groups: Groups) -> Visits:
        """Turn groups of weighted points into visits."""
        _, first, regions = np.unique(groups.keys, return_index=True, return_inverse=True)
        inside = groups.points[first]
        patterns: Codes = self.likelihood.network.patterns(inside)
        sizes = np.bincount(groups.owners, minlength=len(log_density))
        means = np.where(np.isfinite(log_density)[groups.owners, None], groups.means, np.nan)
        return Visits(
            log_density,
            np.concatenate([[0], np.cumsum(sizes)]),
            regions.ravel(),
            groups.shares,
            means,
            _fill_triangles(groups.covariances, means.shape[1]),
            error,
            patterns,
            inside,
        )


def prior_points(n_components: int, seed: int) -> Floats:
    """Draw from the prior, evenly."""
    uniforms = sobol_points(n_components, N_PRIOR_POINTS, 2 * seed + 1)
    return np.asarray(ndtri(np.clip(uniforms, 1e-13, 1.0 - 1e-13)))


def _fill_triangles(lower: Floats, n_components: int) -> Floats:
    """Turn the entries of lower triangles (g, S (S + 1) / 2) into symmetric matrices."""
    places = np.empty((n_components, n_components), dtype=np.intp)
    rows, columns = np.tril_indices(n_components)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    return np.take(lower, places, axis=1)


@kernel
def _best_of_cones(scores: Floats, cones: Integers, active: Integers, best: Integers) -> None:
    """Fill in the places (n, cones) of the best scores (n, m) in each cone, for active samples."""
    for i in range(len(active)):
        n = active[i]
        for cone in range(best.shape[1]):
            best[i, cone] = -1
        for m in range(cones.size):
            cone = cones[m]
            if best[i, cone] < 0 or scores[n, m] > scores[n, best[i, cone]]:
                best[i, cone] = m
        for cone in range(best.shape[1]):
            # Planes may leave nothing between them: then anything will do.
            best[i, cone] = max(best[i, cone], 0)


def _make_cones(points: Floats, number: int) -> Integers:
    """Number the cones in which points (m, S) are; each search has cones of its own.

    The best of all points are mostly close together, and ascents from them end in one place.
    """
    planes = np.random.default_rng(number).standard_normal((points.shape[1], _N_SIDES))
    return np.asarray((points @ planes > 0.0) @ (1 << np.arange(_N_SIDES)))


def _best_of_each(owners: Integers, scores: Floats, number: int) -> Integers:
    """Return the places of the best scores of each owner, not more than so many."""
    order = np.lexsort((-scores, owners))
    sizes = np.unique(owners, return_counts=True)[1]
    ranks = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray(order[ranks < number])


def _round_up(n_points: Floats) -> Integers:
    """Round to a power of two, or half as much again, not beyond the most."""
    wanted = np.clip(n_points, 2 * FEWEST_POINTS, MOST_POINTS)
    powers = 2.0 ** np.floor(np.log2(wanted))
    rounded = np.where(wanted > 1.5 * powers, 2.0, np.where(wanted > powers, 1.5, 1.0)) * powers
    return np.minimum(rounded, MOST_POINTS).astype(np.intp)


def _batches(active: Integers, sizes: Integers) -> Iterator[tuple[Integers, int]]:
    """Put samples with the same number of points together."""
    for n_points in np.unique(sizes):
        members = active[sizes == n_points]
        n_part = max(1, _POINTS_AT_A_TIME // (N_SHIFTS * int(n_points)))
        for begin in range(0, len(members), n_part):
            yield members[begin : begin + n_part], int(n_points)
