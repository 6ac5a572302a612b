"""The search for posteriors in all of latent space, without a list of regions.

For every row, ascents from the best of many draws from the prior find the maxima of its posterior;
Gaussians about them are the first proposals, and points drawn from these are weighed
(`skdgn._posterior.importance`).  The weighted points adapt the proposals, tell of places that have
none yet, and how many points the error asked for will take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from skdgn._network import Codes
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
from skdgn._posterior.likelihoods import Keys, Likelihood
from skdgn._posterior.point_groups import group_points
from skdgn._posterior.visits import Visits, concatenate
from skdgn._runtime import Floats

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
# Power of the weights to which proposals are fitted first: they are wider than the weights ask for,
# so that what is beyond a kink is seen.
_FIRST_POWER = 0.5
_UNEVEN = 1.0
# Errors of shifted points, relative to those of independent ones: about so large, at best.
_EXPECTED_GAIN = 0.55
# A last round whose error is so many times that asked for is followed by another one.
_TOO_LARGE, _MOST_ROUNDS = 1.5, 3
# Points that are looked at together: enough of them to be worth the calls.
_POINTS_AT_A_TIME = 1 << 18
# Numbers that the slopes of ascents may take.
_NUMBERS_AT_A_TIME = 1 << 22
# Seeds from this on are those of later rounds.
_MOST_SEEDS = 1 << 32
# Share of the points for a proposal that was added.
_NEW_SHARE = 0.2


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

    def add(self, own: Integers, n_points: int, new: Estimates) -> Estimates:
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


@dataclass
class PosteriorSearch:
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
                estimates = so_far.add(own, n_points, estimates)
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
        """Climb from the best draws in cones, until that finds nothing new.

        Returns the maxima as proposals, and the share (n,) of those that the last ascents found.
        """
        n_rows, n_components = len(rows), self._prior.points.shape[1]
        candidates, scores = self._candidates(rows, log_likelihoods)
        n_all = _MOST_SEARCHES * _N_ASCENTS
        points = np.zeros((n_rows, n_all, n_components))
        heights = np.full((n_rows, n_all), -np.inf)
        factors = np.zeros((n_rows, n_all, n_components, n_components))
        active, newest = np.arange(n_rows), np.ones(n_rows)
        proposals = Proposals(*(np.empty(0) for _ in range(4)))
        for number in range(_MOST_SEARCHES):
            own = slice(number * _N_ASCENTS, (number + 1) * _N_ASCENTS)
            owners = np.repeat(active, _N_ASCENTS)
            best = _best_of_cones(candidates, scores[active], number)
            ends = self._ascend(rows, owners, candidates[best.ravel()])
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
            _FIRST_POWER if n_rounds == 0 else 1.0,
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
        arrays = group_points(*(array[done] for array in weighted))
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


def prior_points(n_components: int, seed: int) -> Floats:
    """Draw from the prior, evenly."""
    uniforms = sobol_points(n_components, N_PRIOR_POINTS, 2 * seed + 1)
    return np.asarray(ndtri(np.clip(uniforms, 1e-13, 1.0 - 1e-13)))


def _best_of_cones(points: Floats, scores: Floats, number: int) -> Integers:
    """Find the best of the points (m, S) in each cone, by their scores (n, m): places (n, cones).

    The best of all are mostly close together, and ascents from them end in one place.  Each number
    has cones of its own.
    """
    planes = np.random.default_rng(number).standard_normal((points.shape[1], _N_SIDES))
    cones = (points @ planes > 0.0) @ (1 << np.arange(_N_SIDES))
    best = np.empty((len(scores), _N_ASCENTS), dtype=np.intp)
    for cone in range(_N_ASCENTS):
        # Planes may leave nothing between them: then anything will do.
        members = np.flatnonzero(cones == cone) if np.any(cones == cone) else np.arange(len(points))
        best[:, cone] = members[np.argmax(scores[:, members], axis=1)]
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
