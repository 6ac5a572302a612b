"""Ways out when EM for a mixture of networks stands still: other starts, splits and merges.

Given the responsibilities, every network is a fit of its own to weighted samples, and where it ends
depends on where it began (`skdgn._fit.initialization`).  So each is fitted again, from other
starts, to
the samples that are its own.  In the same way one network is fitted to the samples of two, and two
to those of one: where the second gains more than the first loses, they are exchanged.

All this happens on some of the samples.  What comes of it counts only if the exact objective of all
of them rises.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skdgn._fit.completion import complete_rows
from skdgn._fit.em import climb
from skdgn._fit.initialization import starting_methods, starting_network
from skdgn._fit.mixture_em import MixtureProblem, MixtureState, MixtureStep, NetworkVisits, log_of
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._partition import TooManyRegionsError
from skdgn._posterior import Model
from skdgn._runtime import Floats, ScaledRows, read, sample_rows

# Trials are made on at most so many samples for each network.
_SAMPLES_PER_NETWORK = 500
# How many candidates for a network enter a round, and how many iterations each is given.
_ROUNDS = ((4, 2), (1, 6))
# Iterations of two networks that may take the place of one.
_SPLIT_ITERATIONS = 12
# How many networks are split, and how many pairs merged, to find an exchange.
_MOST_SPLITS = 2
_MOST_MERGES = 2
# Samples of which a network has less than this are left to others.
_SMALLEST_SHARE = 1e-3
# A curve through fewer samples is not worth looking for.
_FEWEST_SAMPLES = 8
# Smallest variance of the noise at a start, in units of the samples' variance.
_SMALLEST_VARIANCE = 1e-4


@dataclass(frozen=True)
class Search:
    """Improves a mixture where EM cannot."""

    problem: MixtureProblem
    m_step: str
    tol: float
    generator: np.random.Generator

    def restart(self, state: MixtureState) -> MixtureState | None:
        """Fit every network again to its own samples; exchange those that gain."""
        if state.networks[0].network.n_hidden_layers == 0:
            return None
        trials = _Trials(self, state)
        models = [
            trials.fit_one(trials.shares[:, k], [], model.network) or model
            for k, model in enumerate(state.models)
        ]
        gains = self.problem.gains(state, models)
        models = [
            there if gain > 0.0 else here
            for here, there, gain in zip(state.models, models, gains, strict=True)
        ]
        trial = self.problem.evaluate(state.weights, models)
        return trial if trial.lower_bound > state.lower_bound else None

    def exchange(self, state: MixtureState) -> MixtureState | None:
        """Merge two networks and split another, if that raises the objective."""
        trials = _Trials(self, state)
        merges = [trials.merge(*pair) for pair in trials.nearest_pairs()[:_MOST_MERGES]]
        splits = [trials.split(k) for k in trials.poorest_networks()[:_MOST_SPLITS]]
        pairs = [
            (merge.gain + split.gain, merge, split)
            for merge, split in itertools.product(merges, splits)
            if split.replaced[0] not in merge.replaced
        ]
        gain, merge, split = max(pairs, key=lambda pair: pair[0], default=(0.0, None, None))
        if merge is None or split is None or not gain > 0.0:
            return None
        weights, models = state.weights.copy(), list(state.models)
        into, free = merge.replaced
        (from_,) = split.replaced
        weights[into] += weights[free]
        models[into] = merge.models[0]
        weights[[free, from_]] = weights[from_] * split.weights
        models[free], models[from_] = split.models
        trial = self.problem.evaluate(weights, models)
        return trial if trial.lower_bound > state.lower_bound + self.tol else None


@dataclass(frozen=True)
class _Replacement:
    """Networks that may take the place of others."""

    replaced: tuple[int, ...]
    models: list[Model]
    weights: Floats  # of these models, adding up to 1
    gain: float  # in log-likelihood plus log prior


class _Trials:
    """Fits to the samples of some of a mixture's networks."""

    def __init__(self, search: Search, state: MixtureState) -> None:
        self.search, self.state = search, state
        problem = search.problem.network
        rows, weights = problem.rows, problem.row_weights
        most_samples = _SAMPLES_PER_NETWORK * len(state.networks)
        if isinstance(rows, ScaledRows) or len(rows) > most_samples:
            n_samples = min(most_samples, len(rows))
            rows, weights = sample_rows(rows, weights, n_samples, search.generator)
            # As heavy as all samples together: a prior keeps its share.
            weights = weights * (problem.row_weights.sum() / weights.sum())
        self.samples, self.weights = read(rows), weights
        self.completed = complete_rows(self.samples, weights)
        self.visited = NetworkVisits(state.models, log_of(state.weights), self.samples)
        self.shares = self.visited.responsibilities.T  # (n, K)

    def nearest_pairs(self) -> list[tuple[int, int]]:
        """Pairs of networks that share many of their samples, or have few of them."""
        weighted = self.weights[:, None] * self.shares
        counts = weighted.sum(axis=0)
        overlaps = weighted.T @ self.shares / np.maximum(np.minimum.outer(counts, counts), 1e-300)
        centers = weighted.T @ self.completed / np.maximum(counts, 1e-300)[:, None]
        distances = ((centers[:, None] - centers) ** 2).sum(axis=2)
        pairs = itertools.combinations(range(len(counts)), 2)
        # The nearest of those that share nothing.
        return sorted(pairs, key=lambda pair: (-round(overlaps[pair], 3), distances[pair]))

    def poorest_networks(self) -> list[int]:
        """Networks to whose samples two Gaussians would be most of an improvement, the best first.

        Gaussians along the leading direction, cut in two at its mean: a cheap guess.
        """
        gains = []
        for k in range(self.shares.shape[1]):
            members = np.flatnonzero(self.shares[:, k] > 0.5)
            if len(members) < 2 * _FEWEST_SAMPLES:
                gains.append(-np.inf)
                continue
            halves = self._halves(members)
            noise = self.search.problem.noise_prior.covariance
            gain = 0.0
            for half in halves:
                samples = self.completed[half]
                covariance = np.cov(samples.T, bias=True).reshape(noise.shape) + noise / len(half)
                _, log_determinant = np.linalg.slogdet(covariance)
                gain -= 0.5 * len(half) * (log_determinant + 2.0 * np.log(len(members) / len(half)))
                gain -= 0.5 * len(half) * samples.shape[1] * (1.0 + np.log(2.0 * np.pi))
            own = self.visited.log_joint[k, members] - log_of(self.state.weights)[k]
            gains.append(gain - float(own.sum()))
        return [int(k) for k in np.argsort(gains)[::-1] if gains[k] > -np.inf]

    def _halves(self, members: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        samples = self.completed[members]
        centered = samples - samples.mean(axis=0)
        direction = np.linalg.svd(centered, full_matrices=False)[2][0]
        above = centered @ direction > 0.0
        return members[above], members[~above]

    def _problem(self, shares: Floats) -> MixtureProblem:
        chosen = np.flatnonzero(shares * self.weights > _SMALLEST_SHARE)
        problem = self.search.problem
        own = replace(
            problem.network,
            rows=self.samples[chosen],
            row_weights=shares[chosen] * self.weights[chosen],
        )
        return replace(problem, network=own, concentration=1.0)

    def merge(self, first: int, second: int) -> _Replacement:
        """Fit one network to the samples of two."""
        pair = [first, second]
        shares, weights = self.shares[:, pair].sum(axis=1), self.state.weights[pair]
        models = [self.state.models[k] for k in pair]
        problem = self._problem(shares)
        if len(problem.network.rows) == 0:
            return _Replacement((first, second), models[:1], np.ones(1), 0.0)
        before = problem.evaluate(weights / weights.sum(), models)
        model = self.fit_one(shares, models, models[0].network)
        assert model is not None  # one of the two, if there is nothing better
        after = problem.evaluate(np.ones(1), [model])
        gain = (after.lower_bound - before.lower_bound) * before.total_weight
        return _Replacement((first, second), [model], np.ones(1), gain)

    def split(self, number: int) -> _Replacement:
        """Fit two networks to the samples of one."""
        shares, model = self.shares[:, number], self.state.models[number]
        problem = self._problem(shares)
        before = problem.evaluate(np.ones(1), [model])
        halves = self._halves(np.flatnonzero(shares > 0.5))
        models, counts = [], []
        for half in halves:
            if len(half) < _FEWEST_SAMPLES:
                break
            own = np.zeros_like(shares)
            own[half] = shares[half]
            models.append(self.fit_one(own, [model], model.network) or model)
            counts.append(float(own @ self.weights))
        if len(models) < 2:
            return _Replacement((number,), [model, model], np.full(2, 0.5), -np.inf)
        start = problem.evaluate(np.array(counts) / sum(counts), models)
        after = self._climb(problem, start, _SPLIT_ITERATIONS)
        gain = (after.lower_bound - before.lower_bound) * before.total_weight
        return _Replacement((number,), after.models, after.weights, gain)

    def fit_one(self, shares: Floats, models: list[Model], like: Network) -> Model | None:
        """Fit one network to weighted samples, from several starts and from these models."""
        members = np.flatnonzero(shares > 0.5)
        problem = self._problem(shares)
        starts = list(models)
        if len(members) >= _FEWEST_SAMPLES:
            for method in starting_methods(like.n_components, like.hidden_layer_sizes):
                try:
                    starts.append(problem.build(*self._start(members, like, method)))
                except TooManyRegionsError:
                    continue
        if not starts or len(problem.network.rows) == 0:
            return models[0] if models else None
        states = [problem.evaluate(np.ones(1), [model]) for model in starts]
        for n_states, iterations in _ROUNDS:
            states = sorted(states, key=lambda state: state.lower_bound, reverse=True)[:n_states]
            states = [self._climb(problem, state, iterations) for state in states]
        return max(states, key=lambda state: state.lower_bound).models[0]

    def _climb(self, problem: MixtureProblem, state: MixtureState, iterations: int) -> MixtureState:
        step = MixtureStep(problem, self.search.m_step, self.search.tol)
        improved: MixtureState = climb(step, state, iterations, self.search.tol).state
        return improved

    def _start(
        self, members: NDArray[np.intp], like: Network, method: str
    ) -> tuple[Network, Noise]:
        """Lead a network through samples, measured in units of their own."""
        samples, problem = self.completed[members], self.search.problem.network
        center, deviations = samples.mean(axis=0), samples.std(axis=0)
        deviations = np.where(deviations > 0.0, deviations, 1.0)
        start = starting_network(
            (samples - center) / deviations,
            like.n_components,
            like.hidden_layer_sizes,
            like.activation,
            method,
            self.search.generator,
        )
        network = replace(
            start.network,
            coefs=(*start.network.coefs[:-1], deviations[:, None] * start.network.coefs[-1]),
            intercepts=(
                *start.network.intercepts[:-1],
                deviations * start.network.intercepts[-1] + center,
            ),
        )
        variances = deviations**2 * np.maximum(start.residual_variances, _SMALLEST_VARIANCE)
        variances = np.maximum(variances, problem.noise_floors)
        shaped = {
            "spherical": variances.mean(),
            "diag": variances,
            "full": np.diag(variances),
        }[problem.covariance_type]
        return network, Noise.from_covariance(shaped, len(variances))
