"""What all fits have in common: samples made ready, runs that are watched, results in their units.

A fit of one network is that of a mixture of one: `FitResult` is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from skdgn._fit.em import Problem, Progress, climb
from skdgn._fit.m_step import FIRST_DAMPING, WeightPrior
from skdgn._fit.running_statistics import Running
from skdgn._fit.scaling import Scaling
from skdgn._fit.statistics import take_heavy
from skdgn._geometry import MOST_EXACT_DIMENSIONS
from skdgn._network import Architecture, Network
from skdgn._noise import Noise, warranted_variances
from skdgn._partition import TooManyRegionsError, refuse_hopeless
from skdgn._posterior import INTEGRATION_TOL, MOST_REGIONS, Model
from skdgn._runtime import (
    Bools,
    Floats,
    Integers,
    OrderedColumns,
    Samples,
    ScaledSamples,
    Table,
    Workers,
    draw_samples,
    fits_into,
    merge_duplicates,
    order_columns,
    read,
)

# How values are tied is looked at in so many samples of a table that is not in memory.
_SAMPLES_WITH_TIES = 2000
# So many times fewer polyhedra than polygons: one takes 1,400 bytes against 170 (for 3-16-16 and
# 2-32-32), and more time.
_POLYHEDRON_COST = 4
# Bytes that the regions of a fit may take.
_MEMORY = 2e9

Parameters = tuple[Floats, list[tuple[Network, Noise]]]  # weights, networks with their noise


@dataclass(frozen=True)
class Settings:
    """The estimator's parameters that concern a fit, already checked."""

    architecture: Architecture
    covariance_type: str
    n_factors: int  # of noise of low rank
    weight_prior: str | None
    prior_scale: float
    m_step: str
    init_params: str
    n_init: int
    max_iter: int
    tol: float
    reg_covar: float
    workers: Workers
    integration_tol: float = INTEGRATION_TOL


@dataclass(frozen=True)
class FitResult:
    """Fitted parameters in the units of the samples, and how EM got there."""

    weights: Floats  # (K,) of the networks
    networks: list[tuple[Network, Noise]]
    lower_bound: float
    lower_bounds: Floats
    converged: bool
    stopped: bool  # by whoever watched
    interrupted: bool  # by the keyboard
    bound_by_ties: Bools  # (D,): features with noise as small as ties allow, somewhere
    running: list[Running]  # of each network, for more samples to come
    path: dict[str, Any] | None = None  # columns of sizes tried, if they were open
    lower_bound_error: float = 0.0  # standard error, where likelihoods are estimates


@dataclass(frozen=True)
class Iteration:
    """What can be told of an iteration; numbers count from 1."""

    run: int
    n_runs: int
    number: int
    lower_bound: float
    change: float
    n_regions: int
    converged: bool
    result: Callable[[], Any]  # as if the fit had ended here


@dataclass
class Fit:
    """A fit on its way: `prepare` makes samples ready, `run` improves parameters and returns them.

    EM sees the samples scaled, equal ones merged, and the features in an order of their own: chance
    must not depend on the order of the columns, which is anybody's choice.
    """

    problem: Problem  # on scaled samples
    scaling: Scaling
    order: Integers  # of the features
    log_volume: float  # what scaling adds to the mean log density
    settings: Settings
    watch: Callable[[Iteration], bool]
    starts: list[Progress] = field(default_factory=list)  # of the run to come
    runs: list[Progress] = field(default_factory=list)

    @classmethod
    def prepare(
        cls,
        samples: NDArray[Any],
        sample_weights: Floats,
        settings: Settings,
        watch: Callable[[Iteration], bool],
        is_mergeable: bool = True,
    ) -> Fit:
        """Merge, order and scale samples (n, D).

        Samples that cannot be sorted in the memory allowed are left where they are, and read in
        batches.
        """
        workers, covariance_type = settings.workers, settings.covariance_type
        workers.reporter.begin("reading and scaling samples")
        in_memory = fits_into(workers.memory, samples)
        is_mergeable = is_mergeable and in_memory
        if is_mergeable:
            samples, sample_weights = merge_duplicates(read(samples), sample_weights)
        measure = partial(Scaling.of, covariance_type=covariance_type, workers=workers)
        order = np.arange(samples.shape[1])
        if settings.architecture.ends_dense(samples.shape[1]):
            order = order_columns(
                measure(samples, sample_weights).apply(samples), sample_weights, workers
            )
        else:
            # Features that share weights have their places, and their units in common.
            measure = partial(measure, is_common=True)
        columns: Samples = OrderedColumns(samples, order)
        if is_mergeable:
            columns, sample_weights = merge_duplicates(read(columns), sample_weights)
        scaling = measure(columns, sample_weights)
        table: Table = scaling.apply(columns)
        if in_memory:
            table = read(table)
        floors = find_floors(table, sample_weights, settings.reg_covar)
        problem = pose_problem(table, sample_weights, floors, scaling, settings)
        log_volume = scaling.log_volume(columns, sample_weights, workers)
        return cls(problem, scaling, order, log_volume, settings, watch)

    def scale(self, parameters: Parameters) -> Parameters:
        """Express parameters of the model for the original samples as EM sees them."""
        weights, networks = parameters
        scaled = [self.scaling.scale(*parts) for parts in take_features(networks, self.order)]
        return weights, raise_noise(scaled, self.problem.noise_floors)

    def run(
        self,
        begin: Callable[[], tuple[Callable[[Any], Any], Any]],
        n_runs: int,
        max_iter: int,
        tol: float,
    ) -> FitResult:
        """Run EM so many times, each from a step and a state that ``begin`` returns.

        ``watch`` is told of every iteration, and stops the run if it returns True.  A keyboard
        interrupt ends the fit with the best parameters so far; before there are any, it goes
        through.  If EM had not begun, they are those of ``starts``.
        """
        interrupted = False
        # Products are small: on a busy machine, threads waiting for each other take ten times as
        # long.
        with threadpool_limits(limits=1, user_api="blas"):
            try:
                for run in range(n_runs):
                    step, start = begin()
                    self.settings.workers.reporter.name(f"iteration 1/{max_iter}")
                    climb(
                        step, start, max_iter, tol, partial(self._tell, run + 1, n_runs), self.runs
                    )
            except KeyboardInterrupt:
                if not self.runs and not self.starts:
                    raise
                interrupted = True
        best = max(self.runs or self.starts, key=Progress.lower_bound)
        result = replace(self.result(best), interrupted=interrupted)
        if interrupted or self.settings.architecture.n_components <= MOST_EXACT_DIMENSIONS:
            return result
        bound, error = look_afresh(self.problem, best.state)
        return replace(result, lower_bound=bound - self.log_volume, lower_bound_error=error)

    def _tell(self, run: int, n_runs: int, progress: Progress) -> bool:
        bounds = progress.lower_bounds
        return self.watch(
            Iteration(
                run=run,
                n_runs=n_runs,
                number=len(bounds),
                lower_bound=bounds[-1] - self.log_volume,
                change=bounds[-1] - (bounds[-2] if len(bounds) > 1 else progress.start),
                n_regions=progress.state.n_regions,
                converged=progress.converged,
                result=lambda: self.result(progress),
            )
        )

    def result(self, progress: Progress) -> FitResult:
        """Express a state in the units of the samples."""
        state, back, floors = progress.state, np.argsort(self.order), self.problem.noise_floors
        running = keep_running(state, self.scaling, floors, FIRST_DAMPING)
        at_floor = np.any([network.noise.at_floor(floors) for network in state.networks], axis=0)
        return FitResult(
            state.weights,
            take_features(restore_networks(state, self.scaling, self.problem.prior), back),
            state.lower_bound - self.log_volume,
            np.array(progress.lower_bounds) - self.log_volume,
            progress.converged,
            progress.stopped,
            False,
            (at_floor & (floors > self.settings.reg_covar))[back],
            [
                own.take_features(back, type(network.noise))
                for own, network in zip(running, state.networks, strict=True)
            ],
        )


def look_afresh(problem: Problem, state: Any) -> tuple[float, float]:
    """Estimate the objective with other points than those of the fit, and its standard error."""
    models = [
        Model.build(own.network, own.noise, problem.most_regions, problem.integration_tol)
        for own in state.networks
    ]
    with np.errstate(divide="ignore"):
        log_weights = np.log(state.weights)

    def add_up(batch: Table, weights: Floats) -> Floats:
        samples, weights = take_heavy(batch, weights)
        visits = [model.visitor.visit(samples) for model in models]
        log_joint = np.stack([own.log_density for own in visits]) + log_weights[:, None]
        log_density = np.logaddexp.reduce(log_joint, axis=0)
        errors = np.exp(log_joint - log_density) * [own.log_density_error for own in visits]
        return np.array([weights @ log_density, np.square(weights * errors).sum()])

    sample_bytes = sum(model.visitor.sample_bytes for model in models)
    total, variance = problem.workers.sum(
        add_up, sample_bytes, problem.samples, problem.sample_weights
    )
    bound = (total + state.log_prior) / state.total_weight
    return float(bound), float(np.sqrt(variance) / state.total_weight)


def find_floors(samples: Table, sample_weights: Floats, reg_covar: float) -> Floats:
    """Smallest variances of the noise (D,), in the units of the samples; see `skdgn._noise.floors`.

    Of samples that are not in memory, a sample tells how values are tied.
    """
    n_samples = len(samples)
    if isinstance(samples, ScaledSamples):
        # Always the same sample: how values are recorded is not a matter of the seed.
        samples, _ = draw_samples(
            samples, sample_weights, _SAMPLES_WITH_TIES, np.random.default_rng(0)
        )
    return np.maximum(warranted_variances(read(samples), n_samples), reg_covar)


def pose_problem(
    samples: Table, sample_weights: Floats, floors: Floats, scaling: Scaling, settings: Settings
) -> Problem:
    """Put together what stays the same while parameters are improved on scaled samples."""
    return Problem(
        samples,
        sample_weights,
        settings.covariance_type,
        settings.n_factors,
        floors,
        WeightPrior(settings.weight_prior, settings.prior_scale, scaling.deviations),
        affordable_regions(settings, len(scaling.center)),
        settings.workers,
        settings.integration_tol,
    )


def raise_noise(
    networks: list[tuple[Network, Noise]], floors: Floats
) -> list[tuple[Network, Noise]]:
    """Raise the noise of networks to the floors (D,)."""
    return [(network, noise.at_least(floors)) for network, noise in networks]


def restore_networks(
    state: Any, scaling: Scaling, prior: WeightPrior
) -> list[tuple[Network, Noise]]:
    """Express the networks of a state in the original units."""
    # Scaling back may have rounded a weight beyond its bound.
    prior = replace(prior, output_units=np.ones_like(scaling.deviations))
    restored = [scaling.restore(own.network, own.noise) for own in state.networks]
    return [(prior.clip(network), noise) for network, noise in restored]


def take_features(
    networks: list[tuple[Network, Noise]], features: Integers
) -> list[tuple[Network, Noise]]:
    """Return the networks for these features, in this order."""
    return [
        (network.take_features(features), noise.restrict(features)) for network, noise in networks
    ]


def keep_running(state: Any, scaling: Scaling, floors: Floats, damping: float) -> list[Running]:
    """What is kept of the samples of each network of a state."""
    center, deviations = scaling.center, scaling.deviations
    return [
        Running(center, deviations, floors, own.partition.patterns, own.statistics, damping)
        for own in state.networks
    ]


def affordable_regions(settings: Settings, n_features: int) -> int:
    """Return how many regions fit into memory; TooManyRegionsError if there must be more."""
    architecture, n_components = settings.architecture, settings.architecture.n_components
    if n_components > MOST_EXACT_DIMENSIONS:
        return MOST_REGIONS  # explored, not listed
    # Maps, statistics and residuals; maps upstream and downstream of every layer.
    floats = 4 * n_features * (n_components + 1) + architecture.floats_per_region(n_features)
    listed = MOST_REGIONS if n_components <= 2 else MOST_REGIONS // _POLYHEDRON_COST
    most_regions = min(listed, int(_MEMORY / (8 * floats)))
    if architecture.n_sure_regions > most_regions:
        raise TooManyRegionsError(most_regions, architecture)
    if architecture.blueprints is not None:
        # Of other layers, random weights tell.
        refuse_hopeless(architecture.draw(n_features, np.random.default_rng(0)), most_regions)
    return most_regions
