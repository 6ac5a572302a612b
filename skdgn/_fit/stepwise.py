"""One step of stepwise EM: a chunk of samples changes networks that have seen others before.

The output layer and the noise maximize the expected log-likelihood of the running statistics
(`skdgn._fit.running_statistics`).  Hidden layers take a damped step on them as well, which holds
the regions fixed; whether it is worth taking is for the exact log-likelihood of the chunk to
decide, as it is for that of all samples in `skdgn._fit.em.loop`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from skdgn._fit.em import MixtureProblem, MixtureState, Problem, Proposal
from skdgn._fit.fitting import (
    Parameters,
    Settings,
    find_floors,
    keep_running,
    pose_problem,
    raise_noise,
    restore_networks,
)
from skdgn._fit.m_step import SMALLEST_DAMPING, Damping
from skdgn._fit.mixture_fit import MixtureSettings, pool_noise
from skdgn._fit.running_statistics import Running, share_weights
from skdgn._fit.scaling import Scaling
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._runtime import Floats

# Hidden layers are given up for this chunk if so many steps, each shorter, were no better.
_MOST_SHORTENINGS = 3


@dataclass(frozen=True)
class StepResult:
    """Parameters in the units of the samples, and what was learned."""

    weights: Floats
    networks: list[tuple[Network, Noise]]
    lower_bound: float  # of the chunk, after the step
    running: list[Running]  # of each network
    lower_bound_error: float = 0.0  # where it is an estimate


def take_step(
    parameters: Parameters,
    running: list[Running],
    samples: NDArray[Any],
    sample_weights: Floats,
    settings: Settings,
) -> StepResult:
    """Improve a network by a chunk of samples (n, D), NaN where a value is missing.

    Without running statistics the chunk is all that is known.
    """

    def begin(problem: Problem, scaled: Parameters) -> tuple[MixtureProblem, MixtureState]:
        posed = MixtureProblem.of_one(problem)
        return posed, posed.begin(*scaled)

    return _learn(parameters, running, (samples, sample_weights), settings, begin)


def take_mixture_step(
    parameters: Parameters,
    running: list[Running],
    samples: NDArray[Any],
    sample_weights: Floats,
    settings: MixtureSettings,
) -> StepResult:
    """Improve the networks of a mixture by a chunk of samples (n, D)."""

    def begin(problem: Problem, scaled: Parameters) -> tuple[MixtureProblem, MixtureState]:
        weights, networks = scaled
        posed = settings.pose(problem)
        state = posed.begin(weights, raise_noise(networks, problem.noise_floors))
        return pool_noise(posed, state, settings.noise_prior_weight)

    chunk = samples, sample_weights
    return _learn(parameters, running, chunk, settings.network, begin)


def _learn(
    parameters: Parameters,
    running: list[Running],
    chunk: tuple[NDArray[Any], Floats],
    settings: Settings,
    begin: Callable[[Problem, Parameters], tuple[MixtureProblem, MixtureState]],
) -> StepResult:
    """Make a step on the statistics of a chunk, averaged with those of all chunks before it."""
    samples, sample_weights = chunk
    chunk_weight = float(sample_weights.sum())
    before = sum(own.statistics.total_weight for own in running)
    if running:
        scaling, floors = Scaling(running[0].center, running[0].deviations), running[0].floors
        table, damping = scaling.apply(samples), Damping(running[0].damping)
    else:
        scaling = Scaling.of(samples, sample_weights, settings.covariance_type, settings.workers)
        table, damping = scaling.apply(samples), Damping()
        floors = find_floors(table, sample_weights, settings.reg_covar)
    # As heavy as all samples so far: a prior keeps its share.
    repeated = (1.0 + before / chunk_weight) * sample_weights
    posed = pose_problem(table, repeated, floors, scaling, settings)

    def blend(state: MixtureState) -> MixtureState:
        if not running:
            return state
        shares = share_weights(chunk_weight, float(repeated.sum()), before)
        return state.with_statistics(
            [
                old.mix(own.statistics, own.partition.patterns, *shares)
                for old, own in zip(running, state.networks, strict=True)
            ]
        )

    with threadpool_limits(limits=1, user_api="blas"):
        weights, networks = parameters
        scaled = weights, [scaling.scale(*parts) for parts in networks]
        problem, state = begin(posed, scaled)
        state = _step(problem, blend(state), damping)
        # What is kept of the chunk is taken at the better parameters: that was computed anyway.
        kept = blend(state)
    return StepResult(
        state.weights,
        restore_networks(state, scaling, posed.prior),
        state.lower_bound - scaling.log_volume(samples, sample_weights, settings.workers),
        keep_running(kept, scaling, floors, damping.value),
    )


def _step(problem: MixtureProblem, state: MixtureState, damping: Damping) -> MixtureState:
    """Make one M-step on the statistics of a state; return the E-step of the chunk there."""
    weights = problem.best_weights(state)

    def attempt(proposals: list[Proposal], value: float) -> MixtureState:
        pairs = zip(proposals, state.networks, strict=True)
        models = problem.tie(state, [step(value) or own.model for step, own in pairs])
        return problem.evaluate(weights, models)

    outputs = [own.network.output_layer for own in state.networks]
    output_steps = [
        problem.propose(own, [output]) for own, output in zip(state.networks, outputs, strict=True)
    ]
    best = attempt(output_steps, SMALLEST_DAMPING)
    if not any(outputs):
        return best
    lower_bound = best.lower_bound
    steps = [
        problem.propose(own, range(output + 1))
        for own, output in zip(state.networks, outputs, strict=True)
    ]

    def improve(value: float) -> MixtureState | None:
        trial = attempt(steps, value)
        return trial if trial.lower_bound > lower_bound else None

    trial = damping.search(improve, _MOST_SHORTENINGS)
    if trial is None:
        return best
    damping.relax()
    return trial
