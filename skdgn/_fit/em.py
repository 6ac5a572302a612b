"""The EM loop: propose a step, run the E-step there, accept it only if the likelihood did not fall.

The E-step at an accepted trial point is the next iteration's E-step, so that accepting costs
nothing. Only the update of the output layer and the noise is safe by itself: hidden weights move
the regions, which the M-step holds fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from skdgn._fit.maximization import GaussNewtonSystem, linearize, maximize_noise, step_network
from skdgn._fit.penalization import PenalizedSystem
from skdgn._fit.statistics import SufficientStatistics, expect
from skdgn._fit.weight_priors import WeightPrior
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._partition import Partition, TooManyRegionsError
from skdgn._posterior import Model
from skdgn._runtime import Floats, Table, Workers

FIRST_DAMPING = 1e-1
SMALLEST_DAMPING = 1e-7
LARGEST_DAMPING = 1e6
DAMPING_DECREASE = 0.25
DAMPING_INCREASE = 6.0
_MOST_SHORTENINGS = 8
# Steps grow bolder only while they gain so many times the tolerance. What the data barely determine
# is where little is left to gain, and bold steps there fit the noise of the rows.
WORTHWHILE = 10.0
# The likelihood must stand still for this many iterations before EM stops: one may be unlucky.
PATIENCE = 2


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

    @property
    def partition(self) -> Partition:
        """The regions of latent space."""
        return self.model.partition

    @property
    def lower_bound(self) -> float:
        """Log-likelihood plus log prior, per row: what never decreases."""
        return (self.statistics.log_likelihood + self.log_prior) / self.statistics.total_weight


@dataclass(frozen=True)
class Problem:
    """What stays the same during a fit."""

    rows: Table
    row_weights: Floats
    covariance_type: str
    noise_floors: Floats  # (D,): smallest variances of the noise
    prior: WeightPrior
    most_regions: int
    workers: Workers

    def evaluate(self, network: Network, noise: Noise) -> State:
        """Run the E-step; weights that the prior excludes are moved first."""
        network = self.prior.admit(network)
        model = Model.build(network, noise, self.most_regions)
        statistics = expect(
            model.visitor,
            self.rows,
            self.row_weights,
            self.covariance_type == "full",
            self.workers,
        )
        return State(model, statistics, self.prior.log_density(network))

    def best_noise(self, state: State, network: Network) -> Noise:
        """Maximize over the noise, given new weights and the old posterior."""
        return maximize_noise(
            state.statistics,
            network,
            state.partition.patterns,
            self.covariance_type,
            self.noise_floors,
        )

    def propose(self, state: State, layers: Sequence[int]) -> Callable[[float], Network]:
        """Return the damped Gauss-Newton step over some layers, as a function of the damping."""
        network, noise = state.network, state.noise
        linearization = linearize(state.statistics, network, noise, state.partition.patterns)
        system = GaussNewtonSystem(linearization, layers)
        if self.prior.kind is not None:
            return PenalizedSystem(system, network, noise, layers, self.prior).solve
        return lambda damping: step_network(network, noise, layers, system.solve(damping))

    def attempt(self, state: State, network: Network) -> State | None:
        """Evaluate trial weights; None if the objective falls there."""
        try:
            trial = self.evaluate(network, self.best_noise(state, network))
        except TooManyRegionsError:
            return None
        return trial if trial.lower_bound >= state.lower_bound else None


@dataclass
class JointStep:
    """Damped Gauss-Newton steps over all layers at once (Levenberg-Marquardt)."""

    problem: Problem
    tol: float  # below which an iteration counts as standing still
    damping: float = FIRST_DAMPING

    def __call__(self, state: State) -> State | None:
        """Return a state that is no worse, or None if there is none to be found."""
        n_hidden_layers = state.network.n_hidden_layers
        if n_hidden_layers:
            propose = self.problem.propose(state, range(n_hidden_layers + 1))
            for _ in range(_MOST_SHORTENINGS):
                trial = self.problem.attempt(state, propose(self.damping))
                if trial is not None:
                    if trial.lower_bound - state.lower_bound > WORTHWHILE * self.tol:
                        self.damping = max(DAMPING_DECREASE * self.damping, SMALLEST_DAMPING)
                    return trial
                self.damping = min(DAMPING_INCREASE * self.damping, LARGEST_DAMPING)
        return _step_layer(self.problem, state, n_hidden_layers)


@dataclass
class LayerwiseStep:
    """The paper's updates: every layer in closed form given the others, shortened if need be."""

    problem: Problem

    def __call__(self, state: State) -> State | None:
        """Return a state that is no worse, or None if there is none to be found."""
        moved = None
        for layer in reversed(range(state.network.n_hidden_layers + 1)):
            trial = _step_layer(self.problem, state, layer)
            if trial is not None:
                moved = state = trial
        return moved


def _step_layer(problem: Problem, state: State, layer: int) -> State | None:
    """Maximize over one layer and the noise; halve the step until the objective does not fall."""
    propose = problem.propose(state, [layer])
    full = propose(SMALLEST_DAMPING)
    for shortening in range(_MOST_SHORTENINGS):
        if problem.prior.kind is None:
            network = state.network.toward(full, 0.5**shortening)
        else:
            # Half of the way to zero is not zero: damped steps end on the bounds as full ones do.
            network = propose(FIRST_DAMPING * 10.0 ** (shortening - 1)) if shortening else full
        trial = problem.attempt(state, network)
        if trial is not None:
            return trial
    return None


STEPS: dict[str, Callable[[Problem, float], Callable[[State], State | None]]] = {
    "joint": JointStep,
    "layerwise": lambda problem, tol: LayerwiseStep(problem),
}


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


def run_em(
    problem: Problem,
    start: State,
    m_step: str,
    max_iter: int,
    tol: float,
    watch: Callable[[Progress], bool] = lambda progress: False,
    runs: list[Progress] | None = None,
) -> Progress:
    """Improve a state until its objective stands still; see `climb`."""
    return climb(STEPS[m_step](problem, tol), start, max_iter, tol, watch, runs)


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


def likeliest(states: Sequence[Progress]) -> Progress:
    """Return the run with the largest likelihood."""
    return max(states, key=lambda progress: progress.state.lower_bound)
