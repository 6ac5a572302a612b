"""A fit of a mixture of networks, from samples to parameters: scale, start, EM, scale back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from skdgn._fit.completion import complete_rows
from skdgn._fit.em import FIRST_DAMPING, Progress, climb, likeliest
from skdgn._fit.mixture_em import MixtureProblem, MixtureState, MixtureStep
from skdgn._fit.mixture_search import Search
from skdgn._fit.mixture_starts import (
    Gaussians,
    find_responsibilities,
    make_networks,
    split_covariance,
    write_linear_network,
)
from skdgn._fit.network_fit import (
    Iteration,
    Scaling,
    Settings,
    find_floors,
    pose_problem,
    restore_parameters,
)
from skdgn._fit.noise_priors import NoisePrior
from skdgn._fit.running_statistics import Running
from skdgn._network import Network
from skdgn._noise import Noise, at_floor, bound_below
from skdgn._runtime import (
    Floats,
    OrderedColumns,
    Rows,
    ScaledRows,
    Table,
    fits_into,
    merge_duplicates,
    order_columns,
    read,
    sample_rows,
)

# A table that is not in memory starts from so many of its samples.
_STARTING_SAMPLES = 20_000
# Iterations of the linear networks that stand in for scikit-learn's Gaussian mixture.
_LINEAR_ITERATIONS = 100
_LINEAR_TOLERANCE = 1e-3
# How often networks are exchanged when EM stands still.
_MOST_EXCHANGES = 3

Parameters = tuple[Floats, list[tuple[Network, Noise]]]  # weights, networks with their noise


@dataclass(frozen=True)
class MixtureSettings:
    """The estimator's parameters that concern a fit, already checked."""

    network: Settings
    n_networks: int
    init: str | Floats  # a method, or responsibilities (n, K)
    concentration: float
    noise_prior_weight: float | None  # None: as the networks' noises tell
    n_init: int
    refine: bool
    max_iter: int
    tol: float


@dataclass(frozen=True)
class MixtureResult:
    """Fitted parameters in the units of the samples, and how EM got there."""

    weights: Floats
    networks: list[tuple[Network, Noise]]
    lower_bound: float
    lower_bounds: Floats
    converged: bool
    stopped: bool  # by whoever watched
    interrupted: bool  # by the keyboard
    bound_by_ties: NDArray[np.bool_]  # (D,): features with noise as small as ties allow, somewhere
    running: list[Running]  # of each network, for more samples to come


def fit_mixture(
    samples: NDArray[Any],
    sample_weights: Floats,
    settings: MixtureSettings,
    generator: np.random.Generator,
    warm_start: Parameters | None,
    watch: Callable[[Iteration], bool],
) -> MixtureResult:
    """Fit a mixture to samples (n, D), NaN where a value is missing.

    As `skdgn._fit.network_fit.fit_network`, which see.
    """
    workers = settings.network.workers
    reporter = workers.reporter
    reporter.begin("reading and scaling samples")
    in_memory = fits_into(workers.memory, samples)
    is_mergeable = in_memory and isinstance(settings.init, str)
    if is_mergeable:
        samples, sample_weights = merge_duplicates(read(samples), sample_weights)
    covariance_type = settings.network.covariance_type
    # Chance must not depend on the order of the columns, which is anybody's choice.
    scaled = Scaling.of(samples, sample_weights, covariance_type, workers).apply(samples)
    order = order_columns(scaled, sample_weights, workers)
    columns: Rows = OrderedColumns(samples, order)
    if is_mergeable:
        columns, sample_weights = merge_duplicates(read(columns), sample_weights)
    scaling = Scaling.of(columns, sample_weights, covariance_type, workers)
    table: Table = scaling.apply(columns)
    if in_memory:
        table = read(table)
    floors = find_floors(table, sample_weights, settings.network)
    problem = pose_mixture_problem(table, sample_weights, floors, scaling, settings)
    log_volume = scaling.log_volume(columns, sample_weights, workers)

    def result(progress: Progress) -> MixtureResult:
        state, back = progress.state, np.argsort(order)
        bound_by_ties = [
            at_floor(model.noise.covariance, floors) & (floors > settings.network.reg_covar)
            for model in state.models
        ]
        return MixtureResult(
            state.weights,
            take_features(restore_networks(problem, scaling, state), back),
            state.lower_bound - log_volume,
            np.array(progress.lower_bounds) - log_volume,
            progress.converged,
            progress.stopped,
            False,
            np.any(bound_by_ties, axis=0)[back],
            [own.take_features(back) for own in keep_running(problem, scaling, state)],
        )

    def tell(run: int, progress: Progress) -> bool:
        bounds = progress.lower_bounds
        return watch(
            Iteration(
                run=run,
                number=len(bounds),
                lower_bound=bounds[-1] - log_volume,
                change=bounds[-1] - (bounds[-2] if len(bounds) > 1 else progress.start),
                n_regions=progress.state.n_regions,
                converged=progress.converged,
                result=lambda: result(progress),
            )
        )

    m_step, tol, prior_weight = settings.network.m_step, settings.tol, settings.noise_prior_weight
    starts: list[Progress] = []  # of the run to come
    runs: list[Progress] = []
    interrupted = False
    # Products are small: on a busy machine, threads waiting for each other take ten times as long.
    with threadpool_limits(limits=1, user_api="blas"):
        try:
            for run in range(1 if warm_start is not None else settings.n_init):
                if warm_start is not None:
                    weights, networks = warm_start
                    start = resume(problem, scaling, (weights, take_features(networks, order)))
                else:
                    reporter.begin("starting from linear networks")
                    start = start_mixture(problem, settings, generator)
                    starts = [Progress(start)]
                # Runs are compared: the prior of the first is that of all.
                if run == 0:
                    problem, start = pool_noise(problem, start, prior_weight)
                search = Search(problem, m_step, tol, generator)
                if settings.refine and warm_start is None:
                    reporter.begin("comparing starts of the networks")
                    start = search.restart(start) or start
                    if run == 0:  # networks that bend have less noise
                        problem, start = pool_noise(problem, start, prior_weight)
                        search = replace(search, problem=problem)
                reporter.name(f"iteration 1/{settings.max_iter}")
                climb(
                    MixtureStep(
                        problem,
                        m_step,
                        tol,
                        search.exchange,
                        _MOST_EXCHANGES if settings.refine else 0,
                    ),
                    start,
                    settings.max_iter,
                    tol,
                    partial(tell, run + 1),
                    runs,
                )
        except KeyboardInterrupt:
            if not runs and not starts:
                raise
            interrupted = True
    return replace(result(likeliest(runs or starts)), interrupted=interrupted)


def pose_mixture_problem(
    samples: Table,
    sample_weights: Floats,
    floors: Floats,
    scaling: Scaling,
    settings: MixtureSettings,
) -> MixtureProblem:
    """Put together what stays the same while parameters are improved on scaled samples."""
    return MixtureProblem(
        pose_problem(samples, sample_weights, floors, scaling, settings.network),
        settings.concentration,
        NoisePrior(0.0, np.diag(floors)),  # until there is noise to pool
    )


def restore_networks(
    problem: MixtureProblem, scaling: Scaling, state: MixtureState
) -> list[tuple[Network, Noise]]:
    """Express the parameters of a state in the original units."""
    return [restore_parameters(problem.network, scaling, network) for network in state.networks]


def take_features(
    networks: list[tuple[Network, Noise]], features: NDArray[np.intp]
) -> list[tuple[Network, Noise]]:
    """Return the networks for these features, in this order."""
    return [
        (network.take_features(features), noise.restrict(features)) for network, noise in networks
    ]


def keep_running(
    problem: MixtureProblem, scaling: Scaling, state: MixtureState, damping: float = FIRST_DAMPING
) -> list[Running]:
    """What is kept of the samples of each network."""
    return [
        Running(
            scaling.center,
            scaling.deviations,
            problem.network.noise_floors,
            network.partition.patterns,
            network.statistics,
            damping,
        )
        for network in state.networks
    ]


def resume(problem: MixtureProblem, scaling: Scaling, parameters: Parameters) -> MixtureState:
    """Begin with parameters in the units of the samples."""
    weights, networks = parameters
    floors = problem.network.noise_floors
    scaled = []
    for network, noise in (scaling.scale(*parts) for parts in networks):
        covariance = bound_below(noise.covariance, floors)
        scaled.append((network, Noise.from_covariance(covariance, len(floors))))
    return begin(problem, weights, scaled)


def pool_noise(
    problem: MixtureProblem, state: MixtureState, weight: float | None
) -> tuple[MixtureProblem, MixtureState]:
    """Let the prior of the noise be like the noise there is, and assess the state by it."""
    if weight == 0.0:
        return problem, state
    own, before = problem.network, problem.noise_prior
    counts = np.array([network.statistics.total_weight for network in state.networks])
    covariances = np.array(
        [
            bound_below(before.part(model.noise.matrix, count), own.noise_floors)
            for model, count in zip(state.models, counts, strict=True)
        ]
    )
    parameters = state.models[0].network.coefs + state.models[0].network.intercepts
    n_estimated = sum(part.size for part in parameters) / len(own.noise_floors)
    prior = NoisePrior.pool(
        weight, counts, covariances, n_estimated, own.covariance_type, own.noise_floors
    )
    problem = replace(problem, noise_prior=prior)
    return problem, problem.evaluate(state.weights, state.models)


def begin(
    problem: MixtureProblem, weights: Floats, networks: list[tuple[Network, Noise]]
) -> MixtureState:
    return problem.evaluate(weights, [problem.build(*parts) for parts in networks])


def start_mixture(
    problem: MixtureProblem, settings: MixtureSettings, generator: np.random.Generator
) -> MixtureState:
    """Begin with networks that are linear, and as likely as a Gaussian mixture."""
    network, own = settings.network, problem.network
    samples, weights, shares = own.rows, own.row_weights, settings.init
    if isinstance(samples, ScaledRows):
        n_samples = min(_STARTING_SAMPLES, len(samples))
        if isinstance(shares, str):
            samples, weights = sample_rows(samples, weights, n_samples, generator)
        else:
            chosen = np.linspace(0, len(samples) - 1, n_samples).astype(np.intp)
            samples, weights, shares = samples[chosen], weights[chosen], shares[chosen]
    samples = read(samples)
    is_complete = not np.isnan(samples).any()
    is_whole = np.array_equal(weights, np.rint(weights))
    completed = complete_rows(samples, weights)
    # scikit-learn's mixture knows neither missing values nor weights: linear networks do.
    by_networks = isinstance(shares, str) and shares == "gaussian_mixture"
    by_networks = by_networks and not (is_complete and is_whole)
    if isinstance(shares, str):
        shares = find_responsibilities(
            completed,
            weights,
            settings.n_networks,
            "kmeans" if by_networks else shares,
            network.covariance_type,
            network.reg_covar,
            generator,
        )
    else:
        shares = shares * weights[:, None]
    gaussians = Gaussians.of(completed, shares)
    gaussians = gaussians.join(
        NoisePrior.pool(
            settings.noise_prior_weight,
            gaussians.counts,
            gaussians.covariances,
            1.0,
            network.covariance_type,
            own.noise_floors,
        )
    )
    make = partial(
        make_networks,
        n_components=network.n_components,
        activation=network.activation,
        covariance_type=network.covariance_type,
        floors=own.noise_floors,
    )
    if not by_networks:
        networks = make(gaussians, hidden_layer_sizes=network.hidden_layer_sizes)
        return begin(problem, problem.share_out(gaussians.counts), networks)
    linear = replace(problem, network=replace(own, rows=samples, row_weights=weights))
    state = climb(
        MixtureStep(linear, "joint", _LINEAR_TOLERANCE),
        begin(
            linear,
            linear.share_out(gaussians.counts),
            make(gaussians, hidden_layer_sizes=()),
        ),
        _LINEAR_ITERATIONS,
        _LINEAR_TOLERANCE,
    ).state
    networks = []
    for model in state.models:
        slopes, noise = model.network.coefs[-1], model.noise
        if network.covariance_type == "full" and network.hidden_layer_sizes:
            slopes = split_covariance(noise.covariance, network.n_components, own.noise_floors)
            noise = Noise.from_covariance(noise.covariance - slopes @ slopes.T, len(slopes))
        bent = write_linear_network(
            slopes, model.network.intercepts[-1], network.hidden_layer_sizes, network.activation
        )
        networks.append((bent, noise))
    return begin(problem, state.weights, networks)
