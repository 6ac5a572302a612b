"""One step of stepwise EM: a chunk of rows changes a model that has seen others before.

The output layer and the noise maximize the expected log-likelihood of the running statistics
(`skdgn._fit.running_statistics`).  Hidden layers take a damped step on them as well, which holds
the regions
fixed; whether it is worth taking is for the exact log-likelihood of the chunk to decide, as it is
for that of all rows in `skdgn._fit.em`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from skdgn._fit.em import (
    DAMPING_DECREASE,
    DAMPING_INCREASE,
    FIRST_DAMPING,
    LARGEST_DAMPING,
    SMALLEST_DAMPING,
    Problem,
    State,
)
from skdgn._fit.network_fit import Scaling, Settings, find_floors, pose_problem, restore_parameters
from skdgn._fit.running_statistics import Running
from skdgn._fit.statistics import SufficientStatistics
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._partition import TooManyRegionsError
from skdgn._runtime import Floats

# Hidden layers are given up for this chunk if so many steps, each shorter, were no better.
_MOST_SHORTENINGS = 3


@dataclass(frozen=True)
class StepResult:
    """Parameters in the units of the rows, and what was learned."""

    network: Network
    noise: Noise
    lower_bound: float  # of the chunk, after the step
    running: Running


def take_step(
    network: Network,
    noise: Noise,
    running: Running | None,
    rows: NDArray[Any],
    row_weights: Floats,
    settings: Settings,
) -> StepResult:
    """Improve parameters by a chunk of rows (n, D), NaN where a value is missing.

    Without running statistics the chunk is all that is known.
    """
    chunk_weight = float(row_weights.sum())
    if running is None:
        scaling = Scaling.of(rows, row_weights, settings.covariance_type, settings.workers)
        repetitions = 1.0
    else:
        scaling = Scaling(running.center, running.deviations)
        # As heavy as all rows so far: a prior keeps its share.
        repetitions = 1.0 + running.statistics.total_weight / chunk_weight
    table = scaling.apply(rows)
    floors = find_floors(table, row_weights, settings) if running is None else running.floors
    problem = pose_problem(table, repetitions * row_weights, floors, scaling, settings)
    with threadpool_limits(limits=1, user_api="blas"):
        state = problem.evaluate(*scaling.scale(network, noise))
        damping = FIRST_DAMPING if running is None else running.damping

        def blend() -> SufficientStatistics:
            if running is None:
                return state.statistics
            return running.blend(state.statistics, state.partition.patterns, chunk_weight)

        state, damping = _step(problem, replace(state, statistics=blend()), damping)
        # What is kept of the chunk is taken at the better parameters: that was computed anyway.
        statistics = blend()
    log_volume = scaling.log_volume(rows, row_weights, settings.workers)
    return StepResult(
        *restore_parameters(problem, scaling, replace(state, statistics=statistics)),
        state.lower_bound - log_volume,
        Running(
            scaling.center,
            scaling.deviations,
            floors,
            state.partition.patterns,
            statistics,
            damping,
        ),
    )


def _step(problem: Problem, state: State, damping: float) -> tuple[State, float]:
    """Make one M-step on the statistics of a state; return the E-step of the chunk there."""

    def attempt(network: Network) -> State | None:
        try:
            return problem.evaluate(network, problem.best_noise(state, network))
        except TooManyRegionsError:
            return None

    output = state.network.n_hidden_layers
    best = attempt(problem.propose(state, [output])(SMALLEST_DAMPING))
    assert best is not None  # hidden layers have not moved, hence the regions are the same
    if output == 0:
        return best, damping
    propose = problem.propose(replace(best, statistics=state.statistics), range(output + 1))
    for _ in range(_MOST_SHORTENINGS):
        trial = attempt(propose(damping))
        if trial is not None and trial.lower_bound > best.lower_bound:
            return trial, max(DAMPING_DECREASE * damping, SMALLEST_DAMPING)
        damping = min(DAMPING_INCREASE * damping, LARGEST_DAMPING)
    return best, damping
