"""A fit of a mixture of networks, from samples to parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._fit.em import MixtureProblem, MixtureState, Problem, Progress, Step, WayOut, climb
from skdgn._fit.fitting import Fit, FitResult, Iteration, Parameters, Settings
from skdgn._fit.m_step import NoisePrior
from skdgn._fit.search import Search
from skdgn._fit.starts import (
    Gaussians,
    bend_network,
    complete_samples,
    find_responsibilities,
    make_networks,
)
from skdgn._noise import KINDS
from skdgn._runtime import Floats, ScaledSamples, Workers, draw_samples, read

# A table that is not in memory starts from so many of its samples.
_STARTING_SAMPLES = 20_000
# Weights are counts of samples, which are repeated, unless there were more of them.
_MOST_REPEATED = 1_000_000
# Iterations of the linear networks that stand in for scikit-learn's Gaussian mixture.
_LINEAR_ITERATIONS = 100
_LINEAR_TOLERANCE = 1e-3
# Two starts are compared by so many iterations, on so many samples for each network.
_TRIAL_ITERATIONS = 20
_TRIAL_SAMPLES = 500
# How often networks are exchanged when EM stands still.
_MOST_EXCHANGES = 3


@dataclass(frozen=True)
class MixtureSettings:
    """The estimator's parameters that concern a fit, already checked."""

    network: Settings
    n_networks: int
    init: str | Floats  # a method, or responsibilities (n, K)
    concentration: float
    noise_prior_weight: float | None  # None: as the networks' noises tell
    is_tied: bool  # one noise for all networks, without a prior
    n_init: int
    refine: bool
    max_iter: int
    tol: float

    @classmethod
    def of_one(cls, network: Settings) -> MixtureSettings:
        """Return the settings of a single network, which shares nothing with others."""
        return cls(
            network,
            n_networks=1,
            init="gaussian_mixture",
            concentration=1.0,
            noise_prior_weight=0.0,
            is_tied=False,
            n_init=1,
            refine=False,
            max_iter=network.max_iter,
            tol=network.tol,
        )

    @property
    def workers(self) -> Workers:
        """Who does the work."""
        return self.network.workers

    def pose(self, problem: Problem) -> MixtureProblem:
        """Put together what stays the same while parameters are improved on scaled samples."""
        # There is no noise to pool yet.
        prior = NoisePrior.none(problem.noise_floors)
        return MixtureProblem(problem, self.concentration, prior, self.is_tied)


def fit_mixture(
    samples: NDArray[Any],
    sample_weights: Floats,
    settings: MixtureSettings,
    generator: np.random.Generator,
    warm_start: Parameters | None,
    watch: Callable[[Iteration], bool],
) -> FitResult:
    """Fit a mixture to samples (n, D), NaN where a value is missing.

    See `skdgn._fit.fitting.Fit.run`.
    """
    is_mergeable = isinstance(settings.init, str)
    fit = Fit.prepare(samples, sample_weights, settings.network, watch, is_mergeable)
    reporter, m_step, tol = settings.network.workers.reporter, settings.network.m_step, settings.tol
    problem, is_first = settings.pose(fit.problem), True

    def pool(start: MixtureState) -> MixtureState:
        nonlocal problem
        if is_first:  # runs are compared: the prior of the first is that of all
            problem, start = pool_noise(problem, start, settings.noise_prior_weight)
        return start

    def search() -> Search:
        return Search(problem, settings.network.architecture, m_step, tol, generator)

    def begin() -> tuple[Step, MixtureState]:
        nonlocal is_first
        refine = (
            settings.refine and not settings.is_tied
        )  # a network would look after its own noise
        if warm_start is not None:
            start = pool(problem.begin(*fit.scale(warm_start)))
        else:
            reporter.begin("starting from linear networks")
            start = start_mixture(problem, settings, generator)
            fit.starts[:] = [Progress(start)]
            start = pool(start)
            if refine:
                reporter.begin("comparing starts of the networks")
                restarted = search().restart(start)
                if restarted is not None:
                    restarted = pool(restarted)  # networks that bend have less noise
                    start = _try_both(problem, start, restarted, settings, generator)
        is_first = False
        ways_out: list[WayOut] = [search().exchange] * (_MOST_EXCHANGES * refine)
        return Step(problem, m_step, tol, ways_out), start

    n_runs = settings.n_init if warm_start is None else 1
    return fit.run(begin, n_runs, settings.max_iter, tol)


def _try_both(
    problem: MixtureProblem,
    start: MixtureState,
    restarted: MixtureState,
    settings: MixtureSettings,
    generator: np.random.Generator,
) -> MixtureState:
    """Choose between two starts by some iterations of each, on some of the samples.

    Curves that follow their own samples are likelier at first, but bind each network to these.
    """
    starts = [problem.evaluate(start.weights, start.models), restarted]
    trial = problem.sample(_TRIAL_SAMPLES * len(start.models), generator)
    ends = []
    for own in starts:
        begin = own if trial is problem else trial.evaluate(own.weights, own.models)
        step = Step(trial, settings.network.m_step, settings.tol)
        ends.append(climb(step, begin, _TRIAL_ITERATIONS, settings.tol).state)
    best = int(np.argmax([end.lower_bound for end in ends]))
    return ends[best] if trial is problem else starts[best]


def pool_noise(
    problem: MixtureProblem, state: MixtureState, weight: float | None
) -> tuple[MixtureProblem, MixtureState]:
    """Let the prior of the noise be like the noise there is, and assess the state by it."""
    if weight == 0.0 or problem.is_tied:
        return problem, state
    own, before = problem.network, problem.noise_prior
    counts = np.array([network.statistics.total_weight for network in state.networks])
    covariances = [
        before.part(model.noise, count, own.noise_floors)
        for model, count in zip(state.models, counts, strict=True)
    ]
    n_estimated = np.array(
        [sum(layer.n_parameters for layer in model.network.layers) for model in state.models]
    ) / len(own.noise_floors)
    prior = NoisePrior.pool(
        weight, counts, covariances, n_estimated, own.covariance_type, own.noise_floors
    )
    problem = replace(problem, noise_prior=prior)
    return problem, problem.evaluate(state.weights, state.models)


def start_mixture(
    problem: MixtureProblem, settings: MixtureSettings, generator: np.random.Generator
) -> MixtureState:
    """Begin with networks that are linear, and as likely as a Gaussian mixture."""
    samples, weights, shares = _choose_samples(problem.network, settings.init, generator)
    # scikit-learn's mixture knows neither missing values nor weights: linear networks do.
    is_known = not np.isnan(samples).any() and _are_counts(weights)
    by_networks = isinstance(shares, str) and shares == "gaussian_mixture" and not is_known
    gaussians = _find_gaussians(
        complete_samples(samples, weights),
        weights,
        "kmeans" if by_networks else shares,
        settings,
        generator,
    )
    own, network = problem.network, settings.network
    if settings.is_tied:
        gaussians = gaussians.tie()
    elif not KINDS[network.covariance_type].begins_alone:
        prior = NoisePrior.pool(
            settings.noise_prior_weight,
            gaussians.counts,
            gaussians.covariances,
            1.0,
            network.covariance_type,
            own.noise_floors,
        )
        gaussians = gaussians.join(prior)
    architecture = network.architecture
    networks = make_networks(
        gaussians,
        architecture.without_hidden_layers() if by_networks else architecture,
        network.covariance_type,
        own.noise_floors,
        network.n_factors,
    )
    if not by_networks:
        return problem.begin(problem.share_out(gaussians.counts), networks)
    linear = replace(problem, network=replace(own, samples=samples, sample_weights=weights))
    state: MixtureState = climb(
        Step(linear, "joint", _LINEAR_TOLERANCE),
        linear.begin(linear.share_out(gaussians.counts), networks),
        _LINEAR_ITERATIONS,
        _LINEAR_TOLERANCE,
    ).state
    networks = []
    for model in state.models:
        slopes, mean = model.network.coefs[-1], model.network.intercepts[-1]
        networks.append(bend_network(slopes, mean, model.noise, architecture, own.noise_floors))
    return problem.begin(state.weights, networks)


def _are_counts(weights: Floats) -> bool:
    """Whether samples may be repeated in place of their weights."""
    return bool(np.array_equal(weights, np.rint(weights)) and weights.sum() <= _MOST_REPEATED)


def _choose_samples(
    problem: Problem, shares: str | Floats, generator: np.random.Generator
) -> tuple[Floats, Floats, str | Floats]:
    """Read the samples to start from; return them, their weights and their responsibilities."""
    samples, weights = problem.samples, problem.sample_weights
    if isinstance(samples, ScaledSamples):
        n_samples = min(_STARTING_SAMPLES, len(samples))
        if isinstance(shares, str):
            samples, weights = draw_samples(samples, weights, n_samples, generator)
        else:
            chosen = np.linspace(0, len(samples) - 1, n_samples).astype(np.intp)
            samples, weights, shares = samples[chosen], weights[chosen], shares[chosen]
    return read(samples), weights, shares


def _find_gaussians(
    samples: Floats,
    weights: Floats,
    shares: str | Floats,
    settings: MixtureSettings,
    generator: np.random.Generator,
) -> Gaussians:
    """Find the components of complete samples, by a method or by given responsibilities."""
    if isinstance(shares, str):
        network = settings.network
        weighted = find_responsibilities(
            samples,
            weights,
            settings.n_networks,
            shares,
            network.covariance_type,
            network.reg_covar,
            generator,
        )
    else:
        weighted = shares * weights[:, None]
    return Gaussians.of(samples, weighted)
