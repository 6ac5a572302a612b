"""A fit from rows to parameters: scale, start, EM, scale back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from skdgn._fit.completion import complete_rows
from skdgn._fit.em import FIRST_DAMPING, Problem, Progress, State, likeliest, run_em
from skdgn._fit.initialization import Start, starting_methods, starting_network
from skdgn._fit.running_statistics import Running
from skdgn._fit.weight_priors import WeightPrior
from skdgn._network import Activation, Network
from skdgn._noise import Noise, at_floor, bound_below, warranted_variances
from skdgn._partition import TooManyRegionsError
from skdgn._posterior import MOST_REGIONS
from skdgn._runtime import (
    PASS_BYTES,
    Floats,
    OrderedColumns,
    Rows,
    ScaledRows,
    Table,
    Workers,
    fits_into,
    merge_duplicates,
    observed_weights,
    order_columns,
    read,
    sample_rows,
)

# How many of the candidate starts enter a round, and how many iterations each is given. The
# likeliest goes on from there, so that only the others' iterations are lost.
_TRIAL_ROUNDS = ((4, 2), (2, 4))
# Candidate starts are compared on at most this many rows.
_TRIAL_ROWS = 2000
# Fewer if there are many regions: their product is about what an E-step costs.
_TRIAL_WORK = 500_000
_FEWEST_TRIAL_ROWS = 500
# An iteration of so many seconds makes a fit long enough to say so.
_LONG_ITERATION = 2.0
# So many times fewer polyhedra than polygons: one takes 1,400 bytes against 170 (for 3-16-16 and
# 2-32-32), and more time.
_POLYHEDRON_COST = 4
# Where a start fits the rows exactly, EM needs noise to begin with.
_SMALLEST_STARTING_VARIANCE = 1e-4
# Bytes that the regions of a fit may take.
_MEMORY = 2e9


@dataclass(frozen=True)
class Settings:
    """The estimator's parameters that concern a fit, already checked."""

    n_components: int
    hidden_layer_sizes: tuple[int, ...]
    activation: Activation
    covariance_type: str
    weight_prior: str | None
    prior_scale: float
    m_step: str
    init_params: str
    n_init: int
    max_iter: int
    tol: float
    reg_covar: float
    workers: Workers


@dataclass(frozen=True)
class Scaling:
    """Samples are centered and scaled to unit variance, so that any unit of measurement will do."""

    center: Floats  # (D,)
    deviations: Floats  # (D,)

    @classmethod
    def of(
        cls,
        rows: Rows,
        row_weights: Floats,
        covariance_type: str,
        workers: Workers | None = None,
    ) -> Scaling:
        """Measure what was observed; spherical noise needs the same unit for all features."""
        workers = workers or Workers()
        n_features = rows.shape[1]

        def average(power: int, center: Floats) -> Floats:
            def add_up(batch: NDArray[Any], weights: Floats) -> Floats:
                powers = np.nan_to_num((read(batch) - center) ** power)
                return read(weights) @ powers

            return workers.sum(add_up, PASS_BYTES * n_features, rows, row_weights) / totals

        totals = observed_weights(rows, row_weights, workers)
        center = average(1, np.zeros(n_features))
        # Sums of many rows are rounded: what is left of the mean is small, and its error is less.
        center = center + average(1, center)
        variances = average(2, center)
        if covariance_type == "spherical":
            variances = np.full_like(variances, variances.mean())
        # What is constant but for rounding has no scale of its own.
        constant = variances <= (8.0 * np.finfo(float).eps * np.abs(center)) ** 2
        return cls(center, np.where(constant, 1.0, np.sqrt(variances)))

    def log_volume(self, rows: Rows, row_weights: Floats, workers: Workers | None = None) -> float:
        """What scaling adds to the mean log density: every observed entry counts."""
        totals = observed_weights(rows, row_weights, workers or Workers())
        return float(totals @ np.log(self.deviations) / row_weights.sum())

    def apply(self, rows: Rows) -> ScaledRows:
        """Scale rows as they are read."""
        return ScaledRows(rows, self.center, self.deviations)

    def scale(self, network: Network, noise: Noise) -> tuple[Network, Noise]:
        """Express parameters of the model for the original rows in scaled units."""
        return self._transform(network, noise, 1.0 / self.deviations, -self.center)

    def restore(self, network: Network, noise: Noise) -> tuple[Network, Noise]:
        """Express parameters found on scaled rows in the original units."""
        return self._transform(network, noise, self.deviations, None)

    def _transform(
        self, network: Network, noise: Noise, factors: Floats, shift: Floats | None
    ) -> tuple[Network, Noise]:
        intercept = network.intercepts[-1]
        intercept = (
            factors * intercept + self.center if shift is None else factors * (intercept + shift)
        )
        scaled = replace(
            network,
            coefs=(*network.coefs[:-1], factors[:, None] * network.coefs[-1]),
            intercepts=(*network.intercepts[:-1], intercept),
        )
        return scaled, noise.rescale(factors)


@dataclass(frozen=True)
class FitResult:
    """Fitted parameters in the units of the rows, and how EM got there."""

    network: Network
    noise: Noise
    lower_bound: float
    lower_bounds: Floats
    converged: bool
    stopped: bool  # by whoever watched
    interrupted: bool  # by the keyboard
    bound_by_ties: NDArray[np.bool_]  # (D,): features whose noise is as small as ties allow
    running: Running  # for more rows to come

    def take_features(self, features: NDArray[np.intp]) -> FitResult:
        """Return the result for these features, in this order."""
        return replace(
            self,
            network=self.network.take_features(features),
            noise=self.noise.restrict(features),
            bound_by_ties=self.bound_by_ties[features],
            running=self.running.take_features(features),
        )


@dataclass(frozen=True)
class Iteration:
    """What can be told of an iteration; numbers count from 1."""

    run: int
    number: int
    lower_bound: float
    change: float
    n_regions: int
    converged: bool
    result: Callable[[], Any]  # as if the fit had ended here


def fit_network(
    rows: NDArray[Any],
    row_weights: Floats,
    settings: Settings,
    generator: np.random.Generator,
    warm_start: tuple[Network, Noise] | None,
    watch: Callable[[Iteration], bool],
) -> FitResult:
    """Fit a network and its noise to rows (n, D), NaN where a value is missing.

    Rows that cannot be sorted in the memory allowed are left where they are, and read in batches.

    ``watch`` is told of every iteration of the final runs, and stops the run if it returns True.
    A keyboard interrupt ends the fit with the best parameters so far; before there are any, it
    goes through.  If EM had not begun, their likelihood is that of the samples starts are compared
    on: nobody waits for the others.
    """
    workers = settings.workers
    reporter = workers.reporter
    reporter.begin("reading and scaling samples")
    in_memory = fits_into(workers.memory, rows)
    if in_memory:
        rows, row_weights = merge_duplicates(read(rows), row_weights)
    # Chance must not depend on the order of the columns, which is anybody's choice.
    scaled = Scaling.of(rows, row_weights, settings.covariance_type, workers).apply(rows)
    order = order_columns(scaled, row_weights, workers)
    columns: Rows = OrderedColumns(rows, order)
    if in_memory:
        columns, row_weights = merge_duplicates(read(columns), row_weights)
    if warm_start is not None:
        warm_start = warm_start[0].take_features(order), warm_start[1].restrict(order)
    scaling = Scaling.of(columns, row_weights, settings.covariance_type, workers)
    table: Table = scaling.apply(columns)
    if in_memory:
        table = read(table)
    floors = find_floors(table, row_weights, settings)
    problem = pose_problem(table, row_weights, floors, scaling, settings)
    log_volume = scaling.log_volume(columns, row_weights, workers)

    def result(progress: Progress) -> FitResult:
        found = FitResult(
            *restore_parameters(problem, scaling, progress.state),
            progress.state.lower_bound - log_volume,
            np.array(progress.lower_bounds) - log_volume,
            progress.converged,
            progress.stopped,
            False,
            at_floor(progress.state.noise.covariance, floors) & (floors > settings.reg_covar),
            Running(
                scaling.center,
                scaling.deviations,
                floors,
                progress.state.partition.patterns,
                progress.state.statistics,
                FIRST_DAMPING,
            ),
        )
        return found.take_features(np.argsort(order))

    def tell(run: int, progress: Progress) -> bool:
        bounds = progress.lower_bounds
        return watch(
            Iteration(
                run=run,
                number=len(bounds),
                lower_bound=bounds[-1] - log_volume,
                change=bounds[-1] - (bounds[-2] if len(bounds) > 1 else progress.start),
                n_regions=len(progress.state.partition),
                converged=progress.converged,
                result=lambda: result(progress),
            )
        )

    starts: list[Progress] = []  # of the run to come
    runs: list[Progress] = []
    interrupted = False
    # Products are small: on a busy machine, threads waiting for each other take ten times as long.
    with threadpool_limits(limits=1, user_api="blas"):
        try:
            for run in range(1 if warm_start is not None else settings.n_init):
                if warm_start is not None:
                    network, noise = scaling.scale(*warm_start)
                    covariance = bound_below(noise.covariance, floors)
                    noise = Noise.from_covariance(covariance, noise.n_features)
                    reporter.begin("going on from the last fit")
                    began = reporter.seconds
                    start = problem.evaluate(network, noise)
                    seconds = reporter.seconds - began
                    trial = _sample_problem(problem, _TRIAL_ROWS, np.random.default_rng(0))
                    seconds *= len(trial.rows) / len(problem.rows)
                    _foretell(trial, start, seconds, len(problem.rows), settings)
                else:
                    start = _best_start(problem, settings, generator, starts)
                reporter.name(f"iteration 1/{settings.max_iter}")
                run_em(
                    problem,
                    start,
                    settings.m_step,
                    settings.max_iter,
                    settings.tol,
                    partial(tell, run + 1),
                    runs,
                )
        except KeyboardInterrupt:
            if not runs and not starts:
                raise
            interrupted = True
    return replace(result(likeliest(runs or starts)), interrupted=interrupted)


def find_floors(rows: Table, row_weights: Floats, settings: Settings) -> Floats:
    """Smallest variances of the noise (D,), in the units of the rows; see `skdgn._noise.floors`.

    Of rows that are not in memory, a sample tells how values are tied.
    """
    n_rows = len(rows)
    if isinstance(rows, ScaledRows):
        # Always the same sample: how values are recorded is not a matter of the seed.
        rows, _ = sample_rows(rows, row_weights, _TRIAL_ROWS, np.random.default_rng(0))
    return np.maximum(warranted_variances(read(rows), n_rows), settings.reg_covar)


def pose_problem(
    rows: Table, row_weights: Floats, floors: Floats, scaling: Scaling, settings: Settings
) -> Problem:
    """Put together what stays the same while parameters are improved on scaled rows."""
    return Problem(
        rows,
        row_weights,
        settings.covariance_type,
        floors,
        WeightPrior(settings.weight_prior, settings.prior_scale, scaling.deviations),
        affordable_regions(settings, len(scaling.center)),
        settings.workers,
    )


def restore_parameters(problem: Problem, scaling: Scaling, state: State) -> tuple[Network, Noise]:
    """Express the parameters of a state in the original units."""
    network, noise = scaling.restore(state.network, state.noise)
    # Scaling back may have rounded a weight beyond its bound.
    prior = replace(problem.prior, output_units=np.ones_like(scaling.deviations))
    return prior.clip(network), noise


def affordable_regions(settings: Settings, n_features: int) -> int:
    """Return how many regions fit into memory; TooManyRegionsError if there must be more."""
    n_components, widths = settings.n_components, settings.hidden_layer_sizes
    # Maps, statistics and residuals; maps upstream and downstream of every layer.
    floats = 4 * n_features * (n_components + 1) + sum(
        (n_components + 1) * (width + 1) + n_features * width for width in widths
    )
    listed = MOST_REGIONS if n_components <= 2 else MOST_REGIONS // _POLYHEDRON_COST
    most_regions = min(listed, int(_MEMORY / (8 * floats)))
    if n_sure_regions(settings) > most_regions:
        raise TooManyRegionsError(most_regions, n_components, widths)
    return most_regions


def _best_start(
    problem: Problem,
    settings: Settings,
    generator: np.random.Generator,
    starts: list[Progress],
) -> State:
    """Try the starting methods briefly and return the likeliest.

    ``starts`` is filled with those compared: an interrupt leaves it as it was by then.
    """
    reporter = settings.workers.reporter
    methods: tuple[str, ...] = (settings.init_params,)
    if settings.init_params == "auto":
        methods = starting_methods(settings.n_components, settings.hidden_layer_sizes)
    sample = _sample_problem(problem, _TRIAL_ROWS, generator)
    rows, weights = read(sample.rows), sample.row_weights
    if np.isnan(rows).any():
        reporter.begin("completing missing values")
    completed = complete_rows(rows, weights)
    trial_problem = _sample_problem(sample, _affordable_rows(settings), generator)
    starts.clear()
    to_beat = np.inf
    for method in methods:
        reporter.begin(f"starting by {method}")
        start = starting_network(
            completed,
            settings.n_components,
            settings.hidden_layer_sizes,
            settings.activation,
            method,
            generator,
            to_beat,
        )
        to_beat = min(to_beat, float(start.residual_variances.mean()))
        began = reporter.seconds
        try:
            starts.append(Progress(_first_state(trial_problem, start, settings)))
        except TooManyRegionsError:
            if method == methods[-1] and not starts:
                raise
        else:
            if method == methods[0]:
                seconds = reporter.seconds - began
                _foretell(trial_problem, starts[0].state, seconds, len(problem.rows), settings)
    for n_runs, iterations in _TRIAL_ROUNDS if len(starts) > 1 else ():
        starts.sort(key=lambda run: run.state.lower_bound, reverse=True)
        del starts[n_runs:]
        reporter.begin(f"comparing {len(starts)} starts")
        for place, run in enumerate(starts):
            starts[place] = run_em(
                trial_problem,
                run.state,
                settings.m_step,
                min(iterations, settings.max_iter),
                settings.tol,
            )
    best = likeliest(starts).state
    if trial_problem is problem:
        return best
    reporter.begin("starting on all samples")
    return problem.evaluate(best.network, best.noise)


def _foretell(
    problem: Problem, state: State, seconds: float, n_rows: int, settings: Settings
) -> None:
    """Say that a fit of so many rows will be long, if an E-step on some of them seems to be."""
    reporter = settings.workers.reporter
    scale = n_rows / len(problem.rows)
    if scale * seconds >= _LONG_ITERATION:
        # Kernels may have been compiled, or loaded: they will not be a second time.
        began = reporter.seconds
        problem.evaluate(state.network, state.noise)
        seconds = reporter.seconds - began
    if scale * seconds < _LONG_ITERATION:
        return
    minutes = settings.max_iter * scale * seconds / 60.0
    reporter.announce(
        f"This fit is long: {n_rows:,} samples and {len(state.partition):,} regions take about "
        f"{scale * seconds:.0f} s for each iteration, up to {minutes:.0f} min for "
        f"max_iter={settings.max_iter}. Fewer hidden units or latent dimensions make it shorter, "
        "a larger tol ends it sooner, n_jobs=-1 shares it among all cores."
    )


def _affordable_rows(settings: Settings) -> int:
    """Return how many rows starts are compared on: fewer where there are many regions."""
    n_regions = n_sure_regions(settings)
    return max(_FEWEST_TRIAL_ROWS, min(_TRIAL_ROWS, _TRIAL_WORK // n_regions))


def n_sure_regions(settings: Settings) -> int:
    """Return how many regions units in general position make, in the first layer alone."""
    widths = settings.hidden_layer_sizes
    dimensions = range(settings.n_components + 1)
    return sum(math.comb(widths[0], k) for k in dimensions) if widths else 1


def _sample_problem(problem: Problem, n_rows: int, generator: np.random.Generator) -> Problem:
    """Return the problem of at most so many of the rows, read into memory."""
    rows, weights = problem.rows, problem.row_weights
    if len(rows) <= n_rows and not isinstance(rows, ScaledRows):
        return problem
    rows, weights = sample_rows(rows, weights, n_rows, generator)
    # As heavy as all rows together: a prior keeps its share.
    weights = weights * (problem.row_weights.sum() / weights.sum())
    return replace(problem, rows=rows, row_weights=weights)


def _first_state(problem: Problem, start: Start, settings: Settings) -> State:
    variances = np.maximum(start.residual_variances, problem.noise_floors)
    variances = np.maximum(variances, _SMALLEST_STARTING_VARIANCE)
    return problem.evaluate(start.network, _starting_noise(variances, settings.covariance_type))


def _starting_noise(variances: Floats, covariance_type: str) -> Noise:
    if covariance_type == "spherical":
        return Noise.from_covariance(variances.mean(), len(variances))
    if covariance_type == "diag":
        return Noise.from_covariance(variances, len(variances))
    return Noise.from_covariance(np.diag(variances), len(variances))
