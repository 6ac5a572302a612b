"""EM: the problem of one network, and the loop.

A step is proposed, the E-step is run there, and only if the likelihood did not fall is it accepted
(`skdgn._fit.em.steps`): the E-step at an accepted point is the next iteration's, so that accepting
costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from skdgn._fit.m_step import (
    SMALLEST_DAMPING,
    GaussNewtonSystem,
    PenalizedSystem,
    WeightPrior,
    linearize,
    maximize_noise,
    maximize_output,
    step_network,
)
from skdgn._fit.statistics import SufficientStatistics, expect
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._partition import Partition
from skdgn._posterior import INTEGRATION_TOL, Model
from skdgn._runtime import Floats, ScaledSamples, Table, Workers, draw_samples

# The likelihood must stand still for this many iterations before EM stops: one may be unlucky.
PATIENCE = 2
# Where likelihoods are estimates, the points are the same during a fit, such that these can be
# compared, and others afterwards: what was fitted to chance does not count.
_SEED = 1


@dataclass(frozen=True)
class State:
    """Parameters, and the E-step at them."""

    model: Model
    statistics: SufficientStatistics
    log_prior: float  # of the weights

    @property
    def network(self) -> Network:
        """The generator."""
        return self.model.network

    @property
    def noise(self) -> Noise:
        """The noise around it."""
        return self.model.noise

    @cached_property
    def partition(self) -> Partition:
        """The regions of latent space, or those of them that were explored."""
        regions = self.statistics.regions
        if regions is None:
            return self.model.partition
        return self.model.visitor.explored(regions.patterns, regions.points)

    @property
    def lower_bound(self) -> float:
        """Log-likelihood plus log prior, per sample: what never decreases."""
        return (self.statistics.log_likelihood + self.log_prior) / self.statistics.total_weight

    def moved(self, network: Network) -> State:
        """Put another network in place of this one, whose regions and posterior are kept."""
        return replace(self, model=replace(self.model, network=network))


@dataclass(frozen=True)
class Problem:
    """What stays the same during a fit."""

    samples: Table
    sample_weights: Floats
    covariance_type: str
    n_factors: int  # of noise of low rank
    noise_floors: Floats  # (D,): smallest variances of the noise
    prior: WeightPrior
    most_regions: int
    workers: Workers
    integration_tol: float = INTEGRATION_TOL

    def sample(self, n_samples: int, generator: np.random.Generator) -> Problem:
        """Return the problem of at most so many of the samples, read into memory."""
        if len(self.samples) <= n_samples and not isinstance(self.samples, ScaledSamples):
            return self
        samples, weights = draw_samples(self.samples, self.sample_weights, n_samples, generator)
        # As heavy as all samples together: a prior keeps its share.
        weights = weights * (self.sample_weights.sum() / weights.sum())
        return replace(self, samples=samples, sample_weights=weights)

    def build(self, network: Network, noise: Noise) -> Model:
        """Prepare a network for the E-step; TooManyRegionsError if that is hopeless."""
        return Model.build(network, noise, self.most_regions, self.integration_tol, _SEED)

    def evaluate(self, network: Network, noise: Noise) -> State:
        """Run the E-step; weights that the prior excludes are moved first."""
        network = self.prior.admit(network)
        model = self.build(network, noise)
        statistics = expect(model.visitor, self.samples, self.sample_weights, self.workers)
        return State(model, statistics, self.prior.log_density(network))

    def best_noise(self, state: State, network: Network) -> Noise:
        """Maximize over the noise, given new weights and the old posterior."""
        return maximize_noise(
            state.statistics,
            network,
            state.partition.patterns,
            state.noise,
            self.noise_floors,
        )

    def propose(self, state: State, layers: Sequence[int]) -> Callable[[float], Network]:
        """Return the damped Gauss-Newton step over some layers, as a function of the damping."""
        network, noise = state.network, state.noise
        linearization = linearize(state.statistics, network, noise, state.partition.patterns)
        system = GaussNewtonSystem(linearization, layers)
        if self.prior.density is not None:
            return PenalizedSystem(system, network, noise, layers, self.prior).solve
        return lambda damping: step_network(network, noise, layers, system.solve(damping))

    def best_output(
        self, state: State, network: Network, function: Floats | None = None
    ) -> Network:
        """Maximize over the output layer, given new hidden layers and the old posterior.

        Without a prior of the weights: under one, a step as long as this need not be a maximum.
        With a function, maps (R, D, S + 1) of the regions, the output layer comes as near to it as
        it can.
        """
        patterns = state.partition.patterns
        if network.ends_dense:
            return maximize_output(state.statistics, network, patterns, function)
        if function is not None:
            return network
        return self.propose(state.moved(network), [network.output_layer])(SMALLEST_DAMPING)


@dataclass
class Progress:
    """How far EM has come; the state is the best so far at any time."""

    state: Any  # of one network, or of a mixture: what has a lower bound
    lower_bounds: list[float] = field(default_factory=list)
    converged: bool = False
    stopped: bool = False  # by whoever watched
    start: float = field(init=False)  # lower bound before the first iteration

    def __post_init__(self) -> None:
        self.start = self.state.lower_bound

    def lower_bound(self) -> float:
        """Lower bound of the state."""
        return float(self.state.lower_bound)


def climb(
    step: Callable[[Any], Any],
    start: Any,
    max_iter: int,
    tol: float,
    watch: Callable[[Progress], bool] = lambda progress: False,
    runs: list[Progress] | None = None,
) -> Progress:
    """Repeat a step, which returns a state that is no worse, or None, until it gains little.

    ``watch`` is called after every iteration, and stops the run if it returns True.  A keyboard
    interrupt goes through.  Whoever wants to keep what was reached by then gives a list of runs, of
    which this one becomes the last.
    """
    progress = Progress(start)
    if runs is not None:
        runs.append(progress)
    still = 0
    for _ in range(max_iter):
        before = progress.state.lower_bound
        trial = step(progress.state)
        if trial is None:
            progress.lower_bounds.append(before)
            progress.converged = True
        else:
            # Every step was accepted by this very comparison: a failure is a bug.
            assert trial.lower_bound >= before
            progress.state = trial
            progress.lower_bounds.append(trial.lower_bound)
            still = still + 1 if trial.lower_bound - before < tol else 0
            progress.converged = still >= PATIENCE
        progress.stopped = watch(progress)
        if progress.converged or progress.stopped:
            break
    return progress
