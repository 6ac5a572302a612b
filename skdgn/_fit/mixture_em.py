"""EM for a mixture of networks, ``p(x) = sum_k pi_k p_k(x)``: propose, accept, stop.

The E-step gives every network the statistics of all samples, weighted by its responsibilities

    r_k(x) = pi_k p_k(x) / p(x),

and the M-step of each is that of one network (`skdgn._fit.em`).  Since hidden layers move the
regions,
only the exact objective accepts a step.  If it fell, the networks are judged one by one: with
``gain_k = sum_n w_n r_k(x_n) log(p_k(x_n) after / p_k(x_n) before)``, plus the gain in log prior,

    log-likelihood after - before >= sum_k gain_k

(Jensen's inequality), so those with a gain may move, and only the others take a shorter step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from skdgn._fit.em import (
    DAMPING_DECREASE,
    DAMPING_INCREASE,
    FIRST_DAMPING,
    LARGEST_DAMPING,
    PATIENCE,
    SMALLEST_DAMPING,
    WORTHWHILE,
    Problem,
    State,
)
from skdgn._fit.noise_priors import NoisePrior
from skdgn._fit.statistics import SufficientStatistics, accumulate, accumulate_incomplete
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._partition import TooManyRegionsError
from skdgn._posterior import NEGLIGIBLE, Model, Visitor, Visits
from skdgn._runtime import MOST_ROWS, Floats, Table, read

Integers = NDArray[np.intp]
Result = TypeVar("Result")

# Steps over all layers that a network is refused before it moves its output layer alone, which
# cannot be refused but for rounding, and then stays.
_MOST_SHORTENINGS = 4
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
    def models(self) -> list[Model]:
        """The networks with their noise."""
        return [network.model for network in self.networks]

    @property
    def n_regions(self) -> int:
        """Number of regions of all networks."""
        return sum(len(network.partition) for network in self.networks)


class NetworkVisits:
    """Visits of the samples of a batch to the networks that matter for them."""

    def __init__(self, models: Sequence[Model], log_weights: Floats, samples: Floats) -> None:
        self.models = models
        self.samples = samples
        # (K, n) log of pi_k p_k(x), or -inf where it is below rounding of the sum.
        self.log_joint = np.full((len(models), len(samples)), -np.inf)
        self.log_weights = log_weights
        self.is_complete = ~np.isnan(samples).any(axis=1)
        # Of each network: the samples, whether they are complete, and what was found.
        self.visits: list[list[tuple[Integers, bool, Visits]]] = [[] for _ in models]
        self._visit_incomplete(np.flatnonzero(~self.is_complete))
        self._visit_complete(np.flatnonzero(self.is_complete))
        largest = self.log_joint.max(axis=0)
        sums = np.exp(self.log_joint - largest).sum(axis=0)
        self.log_density: Floats = largest + np.log(sums)

    def _visit(self, network: int, chosen: Integers, complete: bool) -> None:
        if chosen.size == 0 or self.log_weights[network] == -np.inf:
            return
        visitor = self.models[network].visitor
        visits = visitor.visit(self.samples[chosen])
        self.log_joint[network, chosen] = self.log_weights[network] + visits.log_density
        self.visits[network].append((chosen, complete, visits))

    def _visit_incomplete(self, samples: Integers) -> None:
        for network in range(len(self.models)):
            self._visit(network, samples, complete=False)

    def _visit_complete(self, samples: Integers) -> None:
        """Visit the networks whose bounds are not below rounding of the density."""
        if samples.size == 0:
            return
        if all(len(model.partition) == 1 for model in self.models):
            # Gaussians are known as soon as their bounds.
            for network in range(len(self.models)):
                self._visit(network, samples, complete=True)
            return
        table = self.samples[samples]
        bounds = np.stack([log_density_bounds(model.visitor, table) for model in self.models])
        bounds += self.log_weights[:, None]
        near = bounds >= bounds.max(axis=0) - NEGLIGIBLE - _BOUND_EXCESS
        for network in range(len(self.models)):
            self._visit(network, samples[near[network]], complete=True)
        # Where the largest bound exceeded the density by more, others matter as well.
        known = self.log_joint[:, samples].max(axis=0)
        late = ~near & (bounds >= known - NEGLIGIBLE)
        for network in map(int, np.flatnonzero(late.any(axis=1))):
            self._visit(network, samples[late[network]], complete=True)

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
    n_regions, _, n_components = conditionals.slopes.shape
    factor = visitor.noise.factor
    # Samples last: sums and maxima over a few regions are then fast.
    whitened = np.linalg.inv(factor) @ samples.T if factor.ndim == 2 else (samples / factor).T
    squares = np.einsum("dn,dn->n", whitened, whitened)
    offsets = np.einsum("rd,rd->r", conditionals.offsets, conditionals.offsets)
    exponents = 2.0 * conditionals.offsets @ whitened
    exponents += (2.0 * conditionals.log_constants - offsets)[:, None]
    projections = conditionals.projections.reshape(n_regions * n_components, -1)
    centers = np.einsum("rsd,rd->rs", conditionals.projections, conditionals.offsets)
    means = projections @ whitened - centers.reshape(-1, 1)
    means *= means
    exponents += means.reshape(n_regions, n_components, -1).sum(axis=1)
    # Squares were subtracted from each other, and an inverse was not the best way to whiten.
    rounding = _ROUNDING * (squares + offsets.max())
    bound: Floats = 0.5 * (exponents.max(axis=0) - squares) + rounding + np.log(n_regions)
    return bound


def expect_mixture(
    models: Sequence[Model], log_weights: Floats, problem: Problem
) -> MixtureStatistics:
    """Run the E-step over batches of samples, NaN where a value is missing."""
    full_squares = problem.covariance_type == "full"

    def expect_batch(batch: Table, batch_weights: Floats) -> MixtureStatistics:
        samples, weights = _heavy(batch, batch_weights)
        visited = NetworkVisits(models, log_weights, samples)
        shares = weights * visited.responsibilities
        return MixtureStatistics(
            tuple(
                _accumulate(visited, network, shares[network], full_squares)
                for network in range(len(models))
            ),
            float(weights.sum()),
            float(weights @ visited.log_density),
        )

    return _sum(problem, models, expect_batch)


def _heavy(batch: Table, weights: Floats) -> tuple[Floats, Floats]:
    """Read the samples that have a weight: others may be so far out that nothing is known."""
    chosen = weights > 0
    return read(batch)[chosen], weights[chosen]


def _sum(problem: Problem, models: Sequence[Model], function: Callable[..., Result]) -> Result:
    """Add up a function of batches of samples, each to be visited by all networks."""
    sample_bytes = sum(model.visitor.row_bytes for model in models)
    # Each network sees its share of a batch: enough samples to be worth the call.
    most = MOST_ROWS * len(models)
    return problem.workers.sum(
        function, sample_bytes, problem.rows, problem.row_weights, most_rows=most
    )


def _accumulate(
    visited: NetworkVisits, network: int, shares: Floats, full_squares: bool
) -> SufficientStatistics:
    """Sum the statistics of one network."""
    visitor = visited.models[network].visitor
    n_regions, n_features, n_components = visitor.conditionals.slopes.shape
    parts = []
    for chosen, complete, visits in visited.visits[network]:
        samples, weights = visited.samples[chosen], shares[chosen]
        parts.append(
            accumulate(visits, samples, weights, n_regions, full_squares)
            if complete
            else accumulate_incomplete(visitor.incomplete, visits, samples, weights, full_squares)
        )
    if parts:
        return reduce(add, parts)
    return SufficientStatistics(
        np.zeros(n_regions),
        np.zeros((n_regions, n_components)),
        np.zeros((n_regions, n_components, n_components)),
        np.zeros((n_regions, n_features)),
        np.zeros((n_regions, n_features, n_components)),
        np.zeros((n_features if full_squares else 1, n_features)),
        0.0,
        0.0,
    )


@dataclass(frozen=True)
class MixtureProblem:
    """What stays the same during a fit."""

    network: Problem  # of each network, with all samples
    concentration: float  # of the Dirichlet prior of the weights; 1 is flat
    noise_prior: NoisePrior

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
        return Model.build(self.network.prior.admit(network), noise, self.network.most_regions)

    def propose(self, state: State, layers: Sequence[int]) -> Callable[[float], Model | None]:
        """Return one network's step over some layers, by damping; None if there is no such step."""
        # Without samples there is nothing to move for.
        if state.statistics.total_weight < _SMALLEST_WEIGHT:
            return lambda damping: None
        propose = self.network.propose(state, layers)
        joined = replace(state, statistics=self.noise_prior.join(state.statistics))

        def step(damping: float) -> Model | None:
            try:
                network = propose(damping)
                return self.build(network, self.network.best_noise(joined, network))
            except (TooManyRegionsError, np.linalg.LinAlgError):
                # Too bold a step, or too few samples for one.
                return None

        return step

    def move(self, state: State, layers: Sequence[int], damping: float) -> Model | None:
        """Return one network after a step over some layers; None if there is no such step."""
        return self.propose(state, layers)(damping)

    def gains(self, state: MixtureState, models: Sequence[Model]) -> Floats:
        """Lower bounds on what each network's step adds to the objective, (K,)."""
        log_weights = log_of(state.weights)
        moved = [k for k, (a, b) in enumerate(zip(state.models, models, strict=True)) if a is not b]

        def add_up(batch: Table, batch_weights: Floats) -> Floats:
            samples, weights = _heavy(batch, batch_weights)
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


@dataclass
class MixtureStep:
    """A step of every network: Levenberg-Marquardt over all layers, or one layer at a time."""

    problem: MixtureProblem
    m_step: str
    tol: float
    exchange: Callable[[MixtureState], MixtureState | None] | None = None  # when EM stands still
    n_exchanges: int = 0  # left
    dampings: Floats | None = None  # (K,)
    n_still: int = 0  # iterations that gained little

    def __call__(self, state: MixtureState) -> MixtureState | None:
        """Return a state that is no worse, or None if there is none to be found."""
        trial = self._step(state)
        gain = 0.0 if trial is None else trial.lower_bound - state.lower_bound
        self.n_still = self.n_still + 1 if gain < self.tol else 0
        if (trial is None or self.n_still >= PATIENCE) and self.n_exchanges > 0:
            self.n_exchanges -= 1
            assert self.exchange is not None
            exchanged = self.exchange(trial or state)
            if exchanged is not None:
                self.dampings, self.n_still = None, 0
                return exchanged
        return trial

    def _step(self, state: MixtureState) -> MixtureState | None:
        n_layers = state.networks[0].network.n_hidden_layers + 1
        groups = [list(range(n_layers))]
        if self.m_step == "layerwise":
            groups = [[layer] for layer in reversed(range(n_layers))]
        moved = None
        for layers in groups:
            trial = self._move(state, layers)
            if trial is not None:
                moved = state = trial
        return moved

    def _move(self, state: MixtureState, layers: list[int]) -> MixtureState | None:
        if self.dampings is None:
            self.dampings = np.full(len(state.networks), FIRST_DAMPING)
        dampings, output = self.dampings, state.networks[0].network.n_hidden_layers
        is_safe = layers == [output]  # the regions stay
        steps = [self.problem.propose(network, layers) for network in state.networks]
        models = [
            step(SMALLEST_DAMPING if is_safe else damping) or network.model
            for step, damping, network in zip(steps, dampings, state.networks, strict=True)
        ]
        n_refusals = np.zeros(len(steps), dtype=np.intp)
        weights = self.problem.best_weights(state)
        while True:
            trial = self.problem.evaluate(weights, models)
            if trial.lower_bound >= state.lower_bound:
                if trial.lower_bound - state.lower_bound > WORTHWHILE * self.tol:
                    bolder = n_refusals == 0
                    dampings[bolder] = np.maximum(
                        DAMPING_DECREASE * dampings[bolder], SMALLEST_DAMPING
                    )
                return trial
            refused = np.flatnonzero(self.problem.gains(state, models) < 0.0)
            if refused.size == 0:
                return None  # rounding
            for k in map(int, refused):
                n_refusals[k] += 1
                models[k] = self._shorten(state.networks[k], steps[k], k, int(n_refusals[k]))

    def _shorten(
        self, network: State, step: Callable[[float], Model | None], number: int, n_refusals: int
    ) -> Model:
        """Return a network after a smaller step than the one that was refused."""
        assert self.dampings is not None
        model: Model | None = None
        if n_refusals <= _MOST_SHORTENINGS:
            self.dampings[number] = min(DAMPING_INCREASE * self.dampings[number], LARGEST_DAMPING)
            model = step(self.dampings[number])
        elif n_refusals == _MOST_SHORTENINGS + 1:
            output = network.network.n_hidden_layers
            model = self.problem.move(network, [output], SMALLEST_DAMPING)
        return model or network.model
