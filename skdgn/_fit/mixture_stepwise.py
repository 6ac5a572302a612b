"""One step of stepwise EM for a mixture: a chunk of samples changes networks that have seen others.

As in `skdgn._fit.stepwise`, which is for one network: statistics of the chunk, by
responsibilities, are
averaged with those of all chunks before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from skdgn._fit.em import DAMPING_DECREASE, DAMPING_INCREASE, LARGEST_DAMPING, SMALLEST_DAMPING
from skdgn._fit.mixture_em import MixtureProblem, MixtureState
from skdgn._fit.mixture_fit import (
    MixtureSettings,
    Parameters,
    keep_running,
    pool_noise,
    pose_mixture_problem,
    restore_networks,
    resume,
)
from skdgn._fit.network_fit import Scaling
from skdgn._fit.running_statistics import Running, share_weights
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._runtime import Floats


@dataclass(frozen=True)
class MixtureStepResult:
    """Parameters in the units of the samples, and what was learned."""

    weights: Floats
    networks: list[tuple[Network, Noise]]
    lower_bound: float  # of the chunk, after the step
    running: list[Running]


def take_mixture_step(
    parameters: Parameters,
    running: list[Running],
    samples: NDArray[Any],
    sample_weights: Floats,
    settings: MixtureSettings,
) -> MixtureStepResult:
    """Improve parameters by a chunk of samples (n, D), NaN where a value is missing."""
    chunk_weight = float(sample_weights.sum())
    scaling = Scaling(running[0].center, running[0].deviations)
    before = sum(own.statistics.total_weight for own in running)
    # As heavy as all samples so far: a prior keeps its share.
    repeated = (1.0 + before / chunk_weight) * sample_weights
    problem = pose_mixture_problem(
        scaling.apply(samples), repeated, running[0].floors, scaling, settings
    )

    def blend(state: MixtureState) -> MixtureState:
        shares = share_weights(chunk_weight, state.total_weight, before)
        blended = [
            replace(
                network,
                statistics=own.mix(network.statistics, network.partition.patterns, *shares),
            )
            for own, network in zip(running, state.networks, strict=True)
        ]
        return replace(state, networks=tuple(blended))

    with threadpool_limits(limits=1, user_api="blas"):
        state = resume(problem, scaling, parameters)
        problem, state = pool_noise(problem, state, settings.noise_prior_weight)
        state, damping = _step(problem, blend(state), running[0].damping)
        kept = blend(state)
    log_volume = scaling.log_volume(samples, sample_weights, settings.network.workers)
    return MixtureStepResult(
        state.weights,
        restore_networks(problem, scaling, state),
        state.lower_bound - log_volume,
        keep_running(problem, scaling, kept, damping),
    )


def _step(
    problem: MixtureProblem, state: MixtureState, damping: float
) -> tuple[MixtureState, float]:
    """Make one M-step on the statistics of a state; return the E-step of the chunk there."""
    weights = problem.best_weights(state)

    def attempt(layers: list[int], damping: float) -> MixtureState:
        models = [
            problem.move(network, layers, damping) or network.model for network in state.networks
        ]
        return problem.evaluate(weights, models)

    output = state.networks[0].network.n_hidden_layers
    best = attempt([output], SMALLEST_DAMPING)
    if output == 0:
        return best, damping
    # Hidden layers move the regions: that is for the exact log-likelihood of the chunk to decide.
    trial = attempt(list(range(output + 1)), damping)
    if trial.lower_bound > best.lower_bound:
        return trial, max(DAMPING_DECREASE * damping, SMALLEST_DAMPING)
    return best, min(DAMPING_INCREASE * damping, LARGEST_DAMPING)
