"""Posteriors for four latent dimensions and more: regions are explored, not listed.

For every row, ascents from the best of many draws from the prior find the maxima of its posterior;
Gaussians about them are the first proposals, and points drawn from these are weighed
(`skdgn._posterior.importance`).  The weighted points adapt the proposals, tell of places that have
none yet, and how many points the error asked for will take.  The last points are grouped by region:
these are the row's visits, and from there on everything is as it is with fewer dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from skdgn._geometry import CellIntegrals
from skdgn._network import Codes, Network
from skdgn._noise import Noise
from skdgn._partition import Partition, add_regions, explored_partition
from skdgn._posterior.ascents import ascend
from skdgn._posterior.importance import (
    FEWEST_POINTS,
    FIRST_NARROW,
    MOST_POINTS,
    N_SHIFTS,
    Estimates,
    Proposals,
    allocate,
    choose_maxima,
    draw_points,
    seed_rows,
    sobol_points,
    weigh_points,
)
from skdgn._posterior.likelihoods import Keys, Likelihood, observed_likelihoods
from skdgn._posterior.visits import Visitor, Visits, concatenate
from skdgn._runtime import Floats, kernel

Integers = NDArray[np.intp]

# Draws from the prior, from which ascents start: the best in each of so many cones, then the best
# in each of other cones, and so on, a few times at least, and as long as these find anything new.
N_PRIOR_POINTS = 4096
_N_SIDES = 3  # on a side of so many planes each
_N_ASCENTS = 2**_N_SIDES
_N_SURE_SEARCHES = 3
_MOST_SEARCHES = 12
# Powers of two by which draws are multiplied to start from farther out.
_N_SCALES = 12
# Maxima that are proposals at first.
_N_MAXIMA = 8
# Proposals that may be added where points tell of a place without one, one in each round.
_N_SPARE = 4
# Points of each shift, relative to the fewest, while proposals are adapted: the first rounds for
# all rows, the others for those whose weights are still this uneven, or that have new proposals.
_ADAPTIVE_ROUNDS = (1, 2, 2, 3, 4, 4, 4, 4, 4, 4)
_N_SURE_ROUNDS = 2
_UNEVEN = 1.0
# Errors of shifted points, relative to those of independent ones: about so large, at best.
_EXPECTED_GAIN = 0.55
# A last round whose error is so many times that asked for is followed by another one.
_TOO_LARGE, _MOST_ROUNDS = 1.5, 3
# Rows and points that are looked at together: enough of them to be worth the calls.
_ROWS_AT_A_TIME = 256
_POINTS_AT_A_TIME = 1 << 18
# Numbers that the slopes of ascents may take.
_NUMBERS_AT_A_TIME = 1 << 22
# Seeds from this on are those of later rounds.
_MOST_SEEDS = 1 << 32
# Regions with less than this share of a posterior are left out.
_NO_SHARE = 1e-12
# More regions than this are thinned: a few stand for many.
MOST_VISITS = 256


class _Prior(NamedTuple):
    """Draws from the prior, and what is generated there."""

    points: Floats  # (m, S)
    images: Floats  # (m, d) in units of the noise


class _Weighted(NamedTuple):
    """Points of rows."""

    points: Floats  # (n, p, S)
    weights: Floats  # (n, p)
    keys: Keys  # (n, p) of their regions


class _Average(NamedTuple):
    """Averages of estimates from several rounds, for every row."""

    n_points: Integers  # (n,) of each shift
    log_density: Floats  # (n,)
    error: Floats  # (n,)

    @classmethod
    def of_nothing(cls, n_rows: int) -> _Average:
        """Return averages to which nothing has been added."""
        return cls(np.zeros(n_rows, dtype=np.intp), np.full(n_rows, -np.inf), np.zeros(n_rows))

    def add(self, own: Integers, n_points: int, new: Estimates, tolerance: float) -> Estimates:
        """Add estimates of some rows, and return the averages; in place.

        An estimate from before a proposal was added does not count.
        """
        before = self.n_points[own] / (self.n_points[own] + n_points)
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
        self.n_points[own] = np.where(is_blind, 0, self.n_points[own] + n_points)
        self.log_density[own] = np.where(is_blind, -np.inf, log_density)
        self.error[own] = np.where(is_blind, 0.0, error)
        return new._replace(log_density=log_density, error=error)


@dataclass(frozen=True)
class Explorer:
    """Visits regions without a list of them.

    ``partition`` holds those that draws from the prior met.
    """

    network: Network
    noise: Noise
    partition: Partition
    tolerance: float  # standard error of log p(x)
    seed: int  # of the points
    counts: Integers  # (R,): how many draws from the prior met each region

    @classmethod
    def prepare(cls, network: Network, noise: Noise, tolerance: float, seed: int) -> Explorer:
        """Meet the regions in which the prior has most of its mass."""
        points = prior_points(network.n_components, seed)
        patterns = network.patterns(points)
        numbers, new = add_regions(patterns[:0], patterns)
        partition = explored_partition(network, points[new], patterns[new])
        return cls(network, noise, partition, tolerance, seed, np.bincount(numbers))

    def with_noise(self, noise: Noise) -> Explorer:
        """Return the same with other noise."""
        return Explorer(self.network, noise, self.partition, self.tolerance, self.seed, self.counts)

    @property
    def prior(self) -> CellIntegrals:
        """Masses of the prior over the regions met, and their errors."""
        shares = self.counts / self.counts.sum()
        n_regions, n_components = len(shares), self.network.n_components
        return CellIntegrals(
            np.log(shares),
            self.partition.cells.interior_points(),
            np.zeros((n_regions, n_components, n_components)),
            np.sqrt((1.0 - shares) / self.counts),
        )

    @property
    def is_exact(self) -> bool:
        """Whether all regions are listed: they are not."""
        return False

    @property
    def row_bytes(self) -> float:
        """Memory that a row takes while its regions are visited."""
        n_components = self.network.n_components
        return 16.0 * MOST_VISITS * (n_components + 1) ** 2 + 64.0 * self.network.n_features

    def settle(self, visits: Visits) -> Visitor:
        """Return what knows the regions of these visits, by the numbers they have there."""
        return Visitor.prepare(self.explored(visits.patterns, visits.points), self.noise)

    def explored(self, patterns: Codes, points: Floats) -> Partition:
        """Return the regions with these patterns (R, c), and points (R, S) inside."""
        return explored_partition(self.network, points, patterns)

    def locate(self, visits: Visits) -> Integers:
        """Return the known region of each visit, or the most similar one."""
        return self.partition.locate(visits.patterns)[visits.regions]

    def visit(self, rows: Floats) -> Visits:
        """Estimate the posterior of rows (n, D), NaN where a value is missing."""
        parts: list[Visits] = []
        indices: list[Integers] = []
        for chosen, observed, likelihood in observed_likelihoods(self.network, self.noise, rows):
            search = _Search(likelihood, self.tolerance, self.seed)
            for begin in range(0, len(chosen), _ROWS_AT_A_TIME):
                part = slice(begin, begin + _ROWS_AT_A_TIME)
                own, visits = search.visit(np.ascontiguousarray(observed[part]))
                if likelihood.noise.n_features == 0:
                    # Nothing observed: the prior, which sums to one.
                    visits.log_density[:] = 0.0
                    visits.log_density_error[:] = 0.0
                parts.append(visits)
                indices.append(chosen[part][own])
        if not parts:
            return _no_visits(self.network)
        return take_rows(concatenate(parts), np.argsort(np.concatenate(indices)))


def prior_points(n_components: int, seed: int) -> Floats:
    """Draw from the prior, evenly."""
    uniforms = sobol_points(n_components, N_PRIOR_POINTS, 2 * seed + 1)
    return np.asarray(ndtri(np.clip(uniforms, 1e-13, 1.0 - 1e-13)))


def _no_visits(network: Network) -> Visits:
    n_components = network.n_components
    n_codes = sum(layer.n_codes for layer in network.layers)
    return Visits(
        np.empty(0),
        np.zeros(1, dtype=np.intp),
        np.empty(0, dtype=np.intp),
        np.empty(0),
        np.empty((0, n_components)),
        np.empty((0, n_components, n_components)),
        np.empty(0),
        np.empty((0, n_codes), dtype=np.uint8),
        np.empty((0, n_components)),
    )


def take_rows(visits: Visits, order: Integers) -> Visits:
    """Return the visits of these rows, in this order."""
    sizes = np.diff(visits.start)[order]
    start = np.concatenate([[0], np.cumsum(sizes)])
    members = np.arange(start[-1]) + np.repeat(visits.start[order] - start[:-1], sizes)
    return visits._replace(
        log_density=visits.log_density[order],
        start=start,
        regions=visits.regions[members],
        responsibilities=visits.responsibilities[members],
        means=visits.means[members],
        covariances=visits.covariances[members],
        log_density_error=visits.log_density_error[order],
    )


@dataclass
class _Search:
    """The search for the posteriors of rows of which the same features were observed."""

    likelihood: Likelihood
    tolerance: float
    seed: int
    found: list[tuple[Integers, Visits]] = field(default_factory=list)  # rows, and their visits

    @cached_property
    def _prior(self) -> _Prior:
        points = prior_points(self.likelihood.network.n_components, self.seed)
        images = self.likelihood.noise.whiten(self.likelihood.network.forward(points))
        return _Prior(points, images)

    @cached_property
    def _base(self) -> Floats:
        return sobol_points(self.likelihood.network.n_components, MOST_POINTS, 2 * self.seed)

    def visit(self, rows: Floats) -> tuple[Integers, Visits]:
        """Visit the regions of rows (n, d); returns the order in which they come out."""
        self.found.clear()
        log_likelihoods = self._look_around(rows)
        proposals, newest = self._first_proposals(rows, log_likelihoods)
        # --- Adapt the proposals.
        active, sizes = np.arange(len(rows)), np.empty(len(rows), dtype=np.intp)
        for n_rounds, factor in enumerate(_ADAPTIVE_ROUNDS):
            left = []
            for own, n_points in _batches(active, np.full(len(active), factor * FEWEST_POINTS)):
                estimates, _ = self._draw(rows, own, n_points, n_rounds, proposals, log_likelihoods)
                wanted = np.square(_EXPECTED_GAIN * estimates.spread / self.tolerance) / N_SHIFTS
                sizes[own] = _round_up(wanted)
                told = self._add_proposals(rows, own, proposals, estimates)
                is_ready = (estimates.spread < _UNEVEN) & ~told & (n_rounds + 1 >= _N_SURE_ROUNDS)
                left.append(own[~is_ready])
            active = np.concatenate(left) if left else active[:0]
        # --- Integrate: what one round after the other says is averaged.
        active, so_far = np.arange(len(rows)), _Average.of_nothing(len(rows))
        for n_rounds in range(_MOST_ROUNDS):
            left = []
            for own, n_points in _batches(active, sizes[active]):
                number = len(_ADAPTIVE_ROUNDS) + n_rounds
                estimates, weighted = self._draw(
                    rows, own, n_points, number, proposals, log_likelihoods
                )
                estimates = so_far.add(own, n_points, estimates, self.tolerance)
                is_done = estimates.error <= _TOO_LARGE * self.tolerance
                is_done &= estimates.missed <= self.tolerance
                is_done |= (n_rounds == _MOST_ROUNDS - 1) | np.isneginf(estimates.log_density)
                if is_done.any():
                    done = np.flatnonzero(is_done)
                    # What the search found last tells what it may not have found.
                    cautious = estimates._replace(missed=np.hypot(estimates.missed, newest[own]))
                    self.found.append((own[done], self._group(cautious, weighted, done)))
                enough = so_far.n_points[own] * np.square(estimates.error / self.tolerance)
                sizes[own] = _round_up(np.maximum(enough - so_far.n_points[own], n_points))
                self._add_proposals(rows, own, proposals, estimates)
                left.append(own[~is_done])
            active = np.concatenate(left)
            if active.size == 0:
                break
        order = np.concatenate([own for own, _ in self.found])
        return order, concatenate([visits for _, visits in self.found])

    def _look_around(self, rows: Floats) -> Floats:
        """Log p(x | z) of rows at all draws from the prior: (n, m)."""
        whitened, images = self.likelihood.noise.whiten(rows), self._prior.images
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.square(whitened).sum(axis=1)[:, None] + np.square(images).sum(axis=1)
            squares -= 2.0 * whitened @ images.T
        return np.asarray(self.likelihood.log_constant - 0.5 * squares)

    def _first_proposals(self, rows: Floats, log_likelihoods: Floats) -> tuple[Proposals, Floats]:
        """Climb from the best draws of each part, until that finds nothing new.

        Returns the maxima as proposals, and the share (n,) of those that the last ascents found.
        """
        n_rows, n_components = len(rows), self._prior.points.shape[1]
        candidates, scores = self._candidates(rows, log_likelihoods)
        best, n_best = _best_of_cones(candidates, scores), _MOST_SEARCHES
        n_all = n_best * _N_ASCENTS
        points = np.zeros((n_rows, n_all, n_components))
        heights = np.full((n_rows, n_all), -np.inf)
        factors = np.zeros((n_rows, n_all, n_components, n_components))
        active, newest = np.arange(n_rows), np.ones(n_rows)
        proposals = Proposals(*(np.empty(0) for _ in range(4)))
        for number in range(n_best):
            own = slice(number * _N_ASCENTS, (number + 1) * _N_ASCENTS)
            owners = np.repeat(active, _N_ASCENTS)
            ends = self._ascend(rows, owners, candidates[best[active, number].ravel()])
            for array, new in zip((points, heights, factors), ends, strict=True):
                array[active, own] = new.reshape(len(active), _N_ASCENTS, *new.shape[1:])
            shares, means, chosen, new_share = choose_maxima(
                points[active, : own.stop],
                heights[active, : own.stop],
                factors[active, : own.stop],
                own.start,
                _N_MAXIMA,
                _N_SPARE,
            )
            narrow = np.full(len(active), FIRST_NARROW)
            if number == 0:
                proposals = Proposals(shares, means, chosen, narrow)
            else:
                for array, new in zip(proposals, (shares, means, chosen, narrow), strict=True):
                    array[active] = new
            newest[active] = new_share
            if number + 1 >= _N_SURE_SEARCHES:
                active = active[new_share > self.tolerance]
            if active.size == 0:
                break
        return proposals, newest

    def _candidates(self, rows: Floats, log_likelihoods: Floats) -> tuple[Floats, Floats]:
        """Return points from which to climb, and how likely they are to rows.

        Samples far out are explained by z far out, where there are no draws from the prior: these
        are multiplied by numbers.
        """
        points = self._prior.points
        scales = np.repeat(2.0 ** np.arange(1.0, 1.0 + _N_SCALES), _N_ASCENTS)
        far = points * np.resize(scales, len(points))[:, None]
        images = self.likelihood.noise.whiten(self.likelihood.network.forward(far))
        whitened = self.likelihood.noise.whiten(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = whitened @ images.T - 0.5 * np.square(images).sum(axis=1)
            scores -= 0.5 * np.square(far).sum(axis=1)
            squares = 0.5 * np.square(whitened).sum(axis=1)[:, None]
            here = log_likelihoods - self.likelihood.log_constant + squares
        here = here - 0.5 * np.square(points).sum(axis=1)
        return np.concatenate([points, far]), np.concatenate([here, scores], axis=1)

    def _ascend(
        self, rows: Floats, owners: Integers, starts: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Climb from points of the rows they belong to, a few at a time."""
        n_features = max(1, rows.shape[1])
        n_part = max(64, _NUMBERS_AT_A_TIME // (starts.shape[1] * n_features))
        ends = [
            ascend(
                self.likelihood,
                rows[owners[begin : begin + n_part]],
                starts[begin : begin + n_part],
            )
            for begin in range(0, len(starts), n_part)
        ]
        points, heights, factors = (np.concatenate(arrays) for arrays in zip(*ends, strict=True))
        return points, heights, factors

    def _draw(
        self,
        rows: Floats,
        own: Integers,
        n_points: int,
        n_rounds: int,
        proposals: Proposals,
        log_likelihoods: Floats,
    ) -> tuple[Estimates, _Weighted]:
        """Draw and weigh points of some rows, and adapt their proposals.

        Points differ from round to round: proposals are fitted to those of the round before, and
        would suit them too well.
        """
        mine = proposals.take(own)
        counts = allocate(mine.shares, n_points)
        seeds = seed_rows(rows[own], _MOST_SEEDS * n_rounds + self.seed)
        points = draw_points(mine, counts, seeds, self._base, n_points)
        values, keys = self.likelihood.evaluate(rows[own], points)
        adapted = mine.take(np.arange(len(own)))
        estimates, weights = weigh_points(
            mine,
            counts,
            points,
            values,
            self._prior.points,
            log_likelihoods[own],
            self.tolerance,
            adapted,
        )
        for array, new in zip(proposals, adapted, strict=True):
            array[own] = new
        return estimates, _Weighted(points, weights, keys)

    def _add_proposals(
        self,
        rows: Floats,
        own: Integers,
        proposals: Proposals,
        estimates: Estimates,
    ) -> NDArray[np.bool_]:
        """Add a proposal where points tell of a place without one; returns whose."""
        told = ~np.isnan(estimates.suspect[:, 0])
        told &= np.any(proposals.shares[own] == 0.0, axis=1)
        members = own[told]
        if members.size == 0:
            return told
        points, _, factors = ascend(self.likelihood, rows[members], estimates.suspect[told])
        place = np.argmin(proposals.shares[members] > 0.0, axis=1)
        proposals.shares[members] *= 1.0 - _NEW_SHARE
        proposals.shares[members, place] = _NEW_SHARE
        proposals.means[members, place] = points
        proposals.factors[members, place] = factors
        return told

    def _group(self, estimates: Estimates, weighted: _Weighted, done: Integers) -> Visits:
        """Group the weighted points of rows by region."""
        n_components = weighted.points.shape[2]
        arrays = _group_points(*(array[done] for array in weighted))
        sizes, shares, means, covariances, seen, region_keys = arrays
        _, first, regions = np.unique(region_keys, return_index=True, return_inverse=True)
        known = np.isfinite(estimates.log_density[done])
        means[~np.repeat(known, sizes)] = np.nan
        inside = seen[first]
        patterns: Codes = self.likelihood.network.patterns(inside)
        error = np.hypot(estimates.error[done], estimates.missed[done])
        return Visits(
            estimates.log_density[done],
            np.concatenate([[0], np.cumsum(sizes)]),
            regions.ravel(),
            shares,
            means.reshape(-1, n_components),
            covariances,
            error,
            patterns,
            inside,
        )


# Share of the points for a proposal that was added.
_NEW_SHARE = 0.2


def _best_of_cones(points: Floats, scores: Floats) -> Integers:
    """Find the best of the points (m, S) in each cone, by their scores (n, m).

    Returns their places (n, searches, cones).  The best of all are mostly close together, and
    ascents from them end in one place.
    """
    best = np.empty((len(scores), _MOST_SEARCHES, _N_ASCENTS), dtype=np.intp)
    generator = np.random.default_rng(0)
    for number in range(_MOST_SEARCHES):
        sides = points @ generator.standard_normal((points.shape[1], _N_SIDES)) > 0.0
        cones = sides @ (1 << np.arange(_N_SIDES))
        for cone in range(_N_ASCENTS):
            members = np.flatnonzero(cones == cone)
            if members.size == 0:
                members = np.arange(len(points))
            best[:, number, cone] = members[np.argmax(scores[:, members], axis=1)]
    return best


def _round_up(n_points: Floats) -> Integers:
    """Round to a power of two, or half as much again, not beyond the most."""
    wanted = np.clip(n_points, 2 * FEWEST_POINTS, MOST_POINTS)
    powers = 2.0 ** np.floor(np.log2(wanted))
    rounded = np.where(wanted > 1.5 * powers, 2.0, np.where(wanted > powers, 1.5, 1.0)) * powers
    return np.minimum(rounded, MOST_POINTS).astype(np.intp)


def _batches(active: Integers, sizes: Integers) -> Iterator[tuple[Integers, int]]:
    """Put rows with the same number of points together."""
    for n_points in np.unique(sizes):
        members = active[sizes == n_points]
        n_part = max(1, _POINTS_AT_A_TIME // (N_SHIFTS * int(n_points)))
        for begin in range(0, len(members), n_part):
            yield members[begin : begin + n_part], int(n_points)


@kernel
def _group_points(
    points: Floats, weights: Floats, keys: Keys
) -> tuple[Integers, Floats, Floats, Floats, Floats, Keys]:
    """Group weighted points (n, p, S) of rows by their keys.

    Returns how many regions each row has, and of all regions: shares, means, covariances, the
    heaviest point, and the key.
    """
    n_rows, n_points, n_components = points.shape
    n_slots = 1
    while n_slots < 2 * n_points:
        n_slots *= 2
    slots = np.empty(n_slots, dtype=np.intp)
    sizes = np.zeros(n_rows, dtype=np.intp)
    capacity, n_visits = n_rows * min(n_points, MOST_VISITS), 0
    shares = np.empty(capacity)
    means = np.empty((capacity, n_components))
    covariances = np.empty((capacity, n_components, n_components))
    seen = np.empty((capacity, n_components))
    region_keys = np.empty(capacity, dtype=np.uint64)
    owner = np.empty(n_points, dtype=np.intp)  # of each point: its region
    heaviest, masses = np.empty(n_points, dtype=np.intp), np.empty(n_points)
    visit, factor = np.empty(n_points, dtype=np.intp), np.empty(n_points)
    for n in range(n_rows):
        # --- Which points are in the same region.
        slots[:] = -1
        n_regions = 0
        for p in range(n_points):
            place = np.int64(keys[n, p] & np.uint64(n_slots - 1))
            while slots[place] >= 0 and keys[n, heaviest[slots[place]]] != keys[n, p]:
                place = (place + 1) & (n_slots - 1)
            if slots[place] < 0:
                slots[place] = n_regions
                heaviest[n_regions], masses[n_regions] = p, 0.0
                n_regions += 1
            r = slots[place]
            owner[p] = r
            masses[r] += weights[n, p]
            if weights[n, p] > weights[n, heaviest[r]]:
                heaviest[r] = p
        # --- If they are too many, some stand for all: those with a large share for themselves.
        limit, position = 1.0 / MOST_VISITS, 0.5
        n_before = n_visits
        for r in range(n_regions):
            visit[r] = -1
            share = masses[r]
            if n_regions > MOST_VISITS and share < limit:
                position += share / limit
                share = math.floor(position) * limit
                position -= math.floor(position)
            if share > _NO_SHARE and n_visits - n_before < MOST_VISITS:
                visit[r] = n_visits
                factor[r] = 1.0 / masses[r]
                shares[n_visits] = share
                region_keys[n_visits] = keys[n, heaviest[r]]
                means[n_visits] = 0.0
                covariances[n_visits] = 0.0
                seen[n_visits] = points[n, heaviest[r]]
                n_visits += 1
        if n_visits == n_before:
            # Nothing is known of the row.
            shares[n_visits], region_keys[n_visits] = 1.0, keys[n, 0]
            means[n_visits] = math.nan
            covariances[n_visits] = math.nan
            seen[n_visits] = points[n, 0]
            n_visits += 1
        sizes[n] = n_visits - n_before
        total = 0.0
        for v in range(n_before, n_visits):
            total += shares[v]
        for v in range(n_before, n_visits):
            shares[v] /= total
        # --- Their means and covariances.
        for p in range(n_points):
            v = visit[owner[p]]
            if v >= 0:
                weight = weights[n, p] * factor[owner[p]]
                for s in range(n_components):
                    means[v, s] += weight * points[n, p, s]
        for p in range(n_points):
            v = visit[owner[p]]
            if v >= 0:
                weight = weights[n, p] * factor[owner[p]]
                for s in range(n_components):
                    here = weight * (points[n, p, s] - means[v, s])
                    for t in range(n_components):
                        covariances[v, s, t] += here * (points[n, p, t] - means[v, t])
    return (
        sizes,
        shares[:n_visits].copy(),
        means[:n_visits].copy(),
        covariances[:n_visits].copy(),
        seen[:n_visits].copy(),
        region_keys[:n_visits].copy(),
    )
