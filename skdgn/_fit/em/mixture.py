"""EM for a mixture of networks, ``p(x) = sum_k pi_k p_k(x)``: propose, accept, stop.

The E-step gives every network the statistics of all samples, weighted by its responsibilities

    r_k(x) = pi_k p_k(x) / p(x),

and the M-step of each is that of one network (`skdgn._fit.em.loop`).  A single network is a mixture
of one.  Since hidden layers move the regions, only the exact objective accepts a step
(`skdgn._fit.em.steps`).  If it fell, the networks are judged one by one: with ``gain_k = sum_n w_n
r_k(x_n) log(p_k(x_n) after / p_k(x_n) before)``, plus the gain in log prior,

    log-likelihood after - before >= sum_k gain_k

(Jensen's inequality), so those with a gain may move, and only the others take a shorter step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from skdgn._fit.em.loop import Problem, State
from skdgn._fit.m_step import NoisePrior, scatter_residuals
from skdgn._fit.statistics import SufficientStatistics, accumulate, expect, take_heavy
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._partition import TooManyRegionsError
from skdgn._posterior import NEGLIGIBLE, Model, Visitor, Visits
from skdgn._runtime import MOST_SAMPLES, Floats, Integers, Table

Result = TypeVar("Result")
Parts = tuple[Network, Noise]

# A network whose samples weigh less than this has nothing to learn from.
_SMALLEST_WEIGHT = 1e-10
# By so much may bounds exceed densities before samples are looked at again.
_BOUND_EXCESS = 4.0
# Relative error, with a large margin, of squares that only tell what does not matter.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class MixtureStatistics:
    """What the M-step needs to know of the data, additive over batches of samples."""

    networks: tuple[SufficientStatistics, ...]
    total_weight: float  # of the samples
    log_likelihood: float  # weighted sum of log p(x)

    def __add__(self, other: MixtureStatistics) -> MixtureStatistics:
        return MixtureStatistics(
            tuple(a + b for a, b in zip(self.networks, other.networks, strict=True)),
            self.total_weight + other.total_weight,
            self.log_likelihood + other.log_likelihood,
        )


@dataclass(frozen=True)
class MixtureState:
    """Parameters, and the E-step at them."""

    weights: Floats  # (K,) pi
    networks: tuple[State, ...]  # with the statistics of the samples that are theirs
    total_weight: float
    log_likelihood: float
    log_prior: float

    @property
    def lower_bound(self) -> float:
        """Log-likelihood plus log prior, per sample: what never decreases."""
        return (self.log_likelihood + self.log_prior) / self.total_weight

    @property
    def n_regions(self) -> int:
        """Number of regions of all networks."""
        return sum(len(network.partition) for network in self.networks)

    @property
    def models(self) -> list[Model]:
        """The networks with their noise."""
        return [network.model for network in self.networks]

    def with_statistics(self, statistics: Sequence[SufficientStatistics]) -> MixtureState:
        """Return the same parameters with other statistics of the networks."""
        pairs = zip(self.networks, statistics, strict=True)
        return replace(self, networks=tuple(replace(own, statistics=new) for own, new in pairs))


class NetworkVisits:
    """Visits of the samples of a batch to the networks that matter for them."""

    def __init__(self, models: Sequence[Model], log_weights: Floats, samples: Floats) -> None:
        self.models = models
        self.samples = samples
        # (K, n) log of pi_k p_k(x), or -inf where it is below rounding of the sum.
        self.log_joint = np.full((len(models), len(samples)), -np.inf)
        self.log_weights = log_weights
        self.visits: list[list[tuple[Integers, Visits]]] = [[] for _ in models]  # and whose
        is_complete = ~np.isnan(samples).any(axis=1)
        self._visit_all(np.flatnonzero(~is_complete))
        self._visit_complete(np.flatnonzero(is_complete))
        largest = self.log_joint.max(axis=0)
        sums = np.exp(self.log_joint - largest).sum(axis=0)
        self.log_density: Floats = largest + np.log(sums)

    def _visit(self, network: int, chosen: Integers) -> None:
        if chosen.size == 0 or self.log_weights[network] == -np.inf:
            return
        visits = self.models[network].visitor.visit(self.samples[chosen])
        self.log_joint[network, chosen] = self.log_weights[network] + visits.log_density
        self.visits[network].append((chosen, visits))

    def _visit_all(self, samples: Integers) -> None:
        for network in range(len(self.models)):
            self._visit(network, samples)

    def _visit_complete(self, samples: Integers) -> None:
        """Visit the networks whose bounds are not below rounding of the density."""
        if samples.size == 0 or all(len(model.partition) == 1 for model in self.models):
            # Gaussians are known as soon as their bounds.
            return self._visit_all(samples)
        table, bounds = self.samples[samples], np.full((len(self.models), len(samples)), np.inf)
        for bound, model in zip(bounds, self.models, strict=True):
            if isinstance(model.visitor, Visitor):  # others know no bound
                bound[:] = log_density_bounds(model.visitor, table)
        bounds += self.log_weights[:, None]
        near = bounds >= bounds.max(axis=0) - NEGLIGIBLE - _BOUND_EXCESS
        for network in range(len(self.models)):
            self._visit(network, samples[near[network]])
        # Where the largest bound exceeded the density by more, others matter as well.
        known = self.log_joint[:, samples].max(axis=0)
        late = ~near & (bounds >= known - NEGLIGIBLE)
        for network in map(int, np.flatnonzero(late.any(axis=1))):
            self._visit(network, samples[late[network]])

    def accumulate(self, network: int, shares: Floats) -> SufficientStatistics:
        """Sum the statistics of one network, for weighted responsibilities (n,)."""
        visitor = self.models[network].visitor
        total = SufficientStatistics.none(visitor)
        for chosen, visits in self.visits[network]:
            total += accumulate(visitor, visits, self.samples[chosen], shares[chosen])
        return total

    @property
    def responsibilities(self) -> Floats:
        """Posterior probability of each network, (K, n)."""
        return np.asarray(np.exp(self.log_joint - self.log_density))


def log_of(weights: Floats) -> Floats:
    """Logs of weights; -inf of those that are zero."""
    return np.log(weights, where=weights > 0.0, out=np.full(len(weights), -np.inf))


def log_density_bounds(visitor: Visitor, samples: Floats) -> Floats:
    """Bound the log density of complete samples (n, D) from above, by products alone.

    It is at most the sum of the regions' evidences: a mass is at most 1.
    """
    conditionals = visitor.conditionals
    n_regions, n_components, _ = conditionals.projections.shape
    # Samples last: sums and maxima over a few regions are then fast.
    whitened = np.ascontiguousarray(visitor.frame.whiten(samples).T)
    squares = np.einsum("dn,dn->n", whitened, whitened)
    offsets = np.einsum("rd,rd->r", conditionals.offsets, conditionals.offsets)
    exponents = 2.0 * conditionals.offsets @ whitened
    exponents += (2.0 * conditionals.log_constants - offsets)[:, None]
    projections = conditionals.projections.reshape(n_regions * n_components, -1)
    centers = np.einsum("rsd,rd->rs", conditionals.projections, conditionals.offsets)
    means = projections @ whitened - centers.reshape(-1, 1)
    means *= means
    exponents += means.reshape(n_regions, n_components, -1).sum(axis=1)
    # Squares were subtracted from each other.
    rounding = _ROUNDING * (squares + offsets.max())
    bound: Floats = 0.5 * (exponents.max(axis=0) - squares) + rounding + np.log(n_regions)
    return bound


def expect_mixture(
    models: Sequence[Model], log_weights: Floats, problem: Problem
) -> MixtureStatistics:
    """Run the E-step over batches of samples, NaN where a value is missing."""
    if len(models) == 1:
        (model,) = models
        own = expect(model.visitor, problem.samples, problem.sample_weights, problem.workers)
        return MixtureStatistics((own,), own.total_weight, own.log_likelihood)

    def expect_batch(batch: Table, batch_weights: Floats) -> MixtureStatistics:
        samples, weights = take_heavy(batch, batch_weights)
        visited = NetworkVisits(models, log_weights, samples)
        shares = weights * visited.responsibilities
        return MixtureStatistics(
            tuple(visited.accumulate(network, shares[network]) for network in range(len(models))),
            float(weights.sum()),
            float(weights @ visited.log_density),
        )

    return _sum(problem, models, expect_batch)


def _sum(problem: Problem, models: Sequence[Model], function: Callable[..., Result]) -> Result:
    """Add up a function of batches of samples, each to be visited by all networks."""
    sample_bytes = sum(model.visitor.sample_bytes for model in models)
    # Each network sees its share of a batch: enough samples to be worth the call.
    most = MOST_SAMPLES * len(models)
    return problem.workers.sum(
        function, sample_bytes, problem.samples, problem.sample_weights, most_samples=most
    )


@dataclass(frozen=True)
class MixtureProblem:
    """What stays the same during a fit."""

    network: Problem  # of each network, with all samples
    concentration: float  # of the Dirichlet prior of the weights; 1 is flat
    noise_prior: NoisePrior
    is_tied: bool = False  # one noise for all networks

    @classmethod
    def of_one(cls, problem: Problem) -> MixtureProblem:
        """Return the problem of a single network, which shares nothing with others."""
        return cls(problem, 1.0, NoisePrior.none(problem.noise_floors))

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return len(self.network.samples)

    def sample(self, n_samples: int, generator: np.random.Generator) -> MixtureProblem:
        """Return the problem of at most so many of the samples, read into memory."""
        sampled = self.network.sample(n_samples, generator)
        return self if sampled is self.network else replace(self, network=sampled)

    def evaluate(self, weights: Floats, models: Sequence[Model]) -> MixtureState:
        """Run the E-step."""
        log_weights = log_of(weights)
        statistics = expect_mixture(models, log_weights, self.network)
        networks = tuple(
            State(model, own, self.log_prior(model))
            for model, own in zip(models, statistics.networks, strict=True)
        )
        log_prior = sum(network.log_prior for network in networks)
        if self.concentration > 1.0:
            log_prior += (self.concentration - 1.0) * float(log_weights.sum())
        return MixtureState(
            weights, networks, statistics.total_weight, statistics.log_likelihood, log_prior
        )

    def log_prior(self, model: Model) -> float:
        """Log prior of one network and its noise."""
        return self.network.prior.log_density(model.network) + self.noise_prior.log_density(
            model.noise
        )

    def best_weights(self, state: MixtureState) -> Floats:
        """Maximize over the weights of the networks."""
        return self.share_out(
            np.array([network.statistics.total_weight for network in state.networks])
        )

    def share_out(self, counts: Floats) -> Floats:
        """Turn the weights of the networks' samples (K,) into weights of the networks."""
        more = counts + (self.concentration - 1.0)
        return np.asarray(more / more.sum())

    def build(self, network: Network, noise: Noise) -> Model:
        """Prepare a network for the E-step; TooManyRegionsError if that is hopeless."""
        return self.network.build(self.network.prior.admit(network), noise)

    def begin(self, weights: Floats, networks: Sequence[tuple[Network, Noise]]) -> MixtureState:
        """Run the E-step at parameters; noise that networks share is that of the heaviest one."""
        if self.is_tied:
            _, common = networks[int(np.argmax(weights))]
            networks = [(network, common) for network, _ in networks]
        return self.evaluate(weights, [self.build(*parts) for parts in networks])

    def tie(self, state: MixtureState, models: list[Model]) -> list[Model]:
        """Give networks that share their noise the likeliest one, given their weights.

        The posterior is that of a state, whose statistics of all networks are added up.
        """
        if not self.is_tied:
            return models
        noise, pairs = state.networks[0].noise, list(zip(state.networks, models, strict=True))
        scatter = sum(
            scatter_residuals(own.statistics, model.network, own.partition.patterns, noise)
            for own, model in pairs
        )
        total = sum(own.statistics.total_weight for own in state.networks)
        with suppress(np.linalg.LinAlgError):  # too few samples for another one
            noise = noise.maximize(np.asarray(scatter), total, self.network.noise_floors)
        return [model.with_noise(noise) for model in models]

    def propose(self, state: State, layers: Sequence[int]) -> Proposal:
        """Return one network's step over some layers."""
        return Proposal(self, state, layers)

    def gains(self, state: MixtureState, models: Sequence[Model]) -> Floats:
        """Lower bounds on what each network's step adds to the objective, (K,)."""
        log_weights = log_of(state.weights)
        moved = [k for k, (a, b) in enumerate(zip(state.models, models, strict=True)) if a is not b]

        def add_up(batch: Table, batch_weights: Floats) -> Floats:
            samples, weights = take_heavy(batch, batch_weights)
            visited = NetworkVisits(state.models, log_weights, samples)
            shares = weights * visited.responsibilities
            gains = np.zeros(len(models))
            for network in moved:
                chosen = np.flatnonzero(shares[network] > 0.0)
                after = models[network].visitor.visit(samples[chosen]).log_density
                before = visited.log_joint[network, chosen] - log_weights[network]
                gains[network] = shares[network, chosen] @ (after - before)
            return gains

        gains = _sum(self.network, models, add_up)
        for k in moved:
            gains[k] += self.log_prior(models[k]) - state.networks[k].log_prior
        return np.asarray(gains)


class Proposal:
    """The M-step of one network, which looks at its statistics alone.

    All layers move together by a damped Gauss-Newton step.  Around that, the output is linear in
    each layer, and it is not in two of them; so the output layer is maximized once more, given what
    the hidden layers have become, and the noise after it.  A step of the output layer alone is the
    maximum as it is; under a prior of the weights, damping has to do.
    """

    def __init__(self, problem: MixtureProblem, state: State, layers: Sequence[int]) -> None:
        self.problem, self.state, self.layers = problem, state, layers
        # Without samples there is nothing to move for.
        self.is_idle = state.statistics.total_weight < _SMALLEST_WEIGHT
        self._solved: dict[float, Parts | None] = {}

    def __call__(self, damping: float) -> Model | None:
        """Return the network after the step; None if there is none."""
        parts = self.solve(damping)
        return None if parts is None else self._build(*parts)

    def solve(self, damping: float) -> Parts | None:
        """Return the network and its noise after the step; None if there are too few samples."""
        if self.is_idle:
            return None
        if damping not in self._solved:
            try:
                self._solved[damping] = self._solve(damping)
            except np.linalg.LinAlgError:
                self._solved[damping] = None
        return self._solved[damping]

    def beyond(self, before: Parts, after: Parts, factor: float) -> Model | None:
        """Go from one network through another, so many times as far; None if that is too bold.

        Hidden layers do; the output layer follows, such that the function does, as well as it can.
        Noise does not: with few samples, it would shrink too far before its network can follow.
        """
        own, state = self.problem.network, self.state
        (network, _), (next_network, noise) = before, after
        moved = network.toward(next_network, factor)
        try:
            if len(self.layers) > 1:
                patterns = state.partition.patterns
                here, there = (
                    maps[-1].homogeneous(len(patterns))[:, :-1]
                    for maps in (network.maps(patterns), next_network.maps(patterns))
                )
                moved = own.best_output(state, moved, here + factor * (there - here))
        except np.linalg.LinAlgError:
            return None
        return self._build(moved, noise)

    def _build(self, network: Network, noise: Noise) -> Model | None:
        try:
            return self.problem.build(network, noise)
        except (TooManyRegionsError, np.linalg.LinAlgError):
            return None  # too bold a step

    @cached_property
    def _propose(self) -> Callable[[float], Network]:
        return self.problem.network.propose(self.state, self.layers)

    def _solve(self, damping: float) -> Parts:
        own, state = self.problem.network, self.state
        if own.prior.density is not None:
            network = self._propose(damping)
        elif state.network.is_affine:
            network = own.best_output(state, state.network)  # the maximum, whatever the damping
        else:
            network = self._propose(damping)
            if len(self.layers) > 1:
                network = own.best_output(state, network)
        prior = self.problem.noise_prior
        joined = replace(state, statistics=prior.join(state.statistics, state.noise))
        return network, own.best_noise(joined, network)
