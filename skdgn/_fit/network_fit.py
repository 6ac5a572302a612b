"""A fit of one network: which of several starts is the likeliest, and EM from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._fit.em import MixtureProblem, MixtureState, Progress, Step, climb
from skdgn._fit.fitting import Fit, FitResult, Iteration, Parameters, Settings
from skdgn._fit.search import Search
from skdgn._fit.starts import Start, complete_samples, starting_methods, starting_network
from skdgn._noise import KINDS
from skdgn._partition import TooManyRegionsError
from skdgn._runtime import Floats, read

# Starts are compared by so many iterations, on so many samples for each latent dimension.  The
# likeliest need not end highest, and more of them tell little more.
_TRIAL_ITERATIONS = 4
_TRIAL_SAMPLES = 500
# Missing values are filled in by what so many samples tell.
_COMPLETED_SAMPLES = 2000
# An iteration of so many seconds makes a fit long enough to say so.
_LONG_ITERATION = 2.0
# Where a start fits the samples exactly, EM needs noise to begin with.
_SMALLEST_STARTING_VARIANCE = 1e-4


def fit_network(
    samples: NDArray[Any],
    sample_weights: Floats,
    settings: Settings,
    generator: np.random.Generator,
    warm_start: Parameters | None,
    watch: Callable[[Iteration], bool],
) -> FitResult:
    """Fit a network and its noise to samples (n, D), NaN where a value is missing.

    See `skdgn._fit.fitting.Fit.run`.  Of a fit that was interrupted before EM began, the likelihood
    is that of the samples starts are compared on: nobody waits for the others.
    """
    fit = Fit.prepare(samples, sample_weights, settings, watch)
    problem = MixtureProblem.of_one(fit.problem)

    # Starts are compared with each other before EM, or where it stands still.
    is_restarted = warm_start is None and settings.init_params != "auto"

    def begin() -> tuple[Step, MixtureState]:
        if warm_start is None:
            start = _best_start(problem, settings, generator, fit.starts)
        else:
            start = _go_on(problem, fit, warm_start)
        return _make_step(problem, settings, generator, is_restarted), start

    n_runs = settings.n_init if warm_start is None else 1
    return fit.run(begin, n_runs, settings.max_iter, settings.tol)


def _make_step(
    problem: MixtureProblem,
    settings: Settings,
    generator: np.random.Generator,
    is_restarted: bool,
) -> Step:
    """Return the step of EM, with ways out of where it would stand still."""
    architecture, m_step, tol = settings.architecture, settings.m_step, settings.tol
    if architecture.blueprints is not None or architecture.is_linear:
        return Step(problem, m_step, tol)
    search = Search(problem, architecture, m_step, tol, generator)
    return search.step_of_one(is_restarted)


def _go_on(problem: MixtureProblem, fit: Fit, warm_start: Parameters) -> MixtureState:
    """Begin with parameters in the units of the samples."""
    reporter, n_samples = fit.settings.workers.reporter, problem.n_samples
    reporter.begin("going on from the last fit")
    began = reporter.seconds
    start = problem.begin(*fit.scale(warm_start))
    seconds = reporter.seconds - began
    trial = problem.sample(_COMPLETED_SAMPLES, np.random.default_rng(0))
    _foretell(trial, start, seconds * trial.n_samples / n_samples, n_samples, fit.settings)
    return start


def _best_start(
    problem: MixtureProblem,
    settings: Settings,
    generator: np.random.Generator,
    starts: list[Progress],
) -> MixtureState:
    """Try the starting methods briefly and return the likeliest.

    ``starts`` is filled with those compared: an interrupt leaves it as it was by then.
    """
    reporter = settings.workers.reporter
    sample = problem.sample(_COMPLETED_SAMPLES, generator)
    samples, weights = read(sample.network.samples), sample.network.sample_weights
    if np.isnan(samples).any():
        reporter.begin("completing missing values")
    completed = complete_samples(samples, weights)
    trial = sample.sample(_TRIAL_SAMPLES * settings.architecture.n_components, generator)
    starts.clear()
    _try_methods(trial, completed, problem.n_samples, settings, generator, starts)

    if len(starts) > 1:
        reporter.begin(f"comparing {len(starts)} starts")
        for place, run in enumerate(starts):
            step = Step(trial, settings.m_step, settings.tol)
            iterations = min(_TRIAL_ITERATIONS, settings.max_iter)
            starts[place] = climb(step, run.state, iterations, settings.tol)
    best: MixtureState = max(starts, key=Progress.lower_bound).state
    if trial is problem:
        return best
    reporter.begin("starting on all samples")
    return problem.evaluate(best.weights, best.models)


def _try_methods(
    problem: MixtureProblem,
    completed: Floats,
    n_samples: int,
    settings: Settings,
    generator: np.random.Generator,
    starts: list[Progress],
) -> None:
    """Add the starting points of all methods to a list; say if a fit of so many samples is long."""
    reporter = settings.workers.reporter
    methods: tuple[str, ...] = (settings.init_params,)
    if settings.init_params == "auto":
        methods = starting_methods(settings.architecture)
    to_beat = np.inf
    for method in methods:
        reporter.begin(f"starting by {method}")
        start = starting_network(
            completed,
            settings.architecture,
            method,
            generator,
            to_beat,
        )
        to_beat = min(to_beat, float(start.residual_variances.mean()))
        began = reporter.seconds
        try:
            starts.append(Progress(_first_state(problem, start)))
        except TooManyRegionsError:
            if method == methods[-1] and not starts:
                raise
        else:
            if method == methods[0]:
                seconds = reporter.seconds - began
                _foretell(problem, starts[0].state, seconds, n_samples, settings)


def _foretell(
    problem: MixtureProblem, state: MixtureState, seconds: float, n_samples: int, settings: Settings
) -> None:
    """Say that a fit of so many samples will be long, if an E-step on some of them seems to be."""
    reporter = settings.workers.reporter
    scale = n_samples / problem.n_samples
    if scale * seconds >= _LONG_ITERATION:
        # Kernels may have been compiled, or loaded: they will not be a second time.
        began = reporter.seconds
        problem.evaluate(state.weights, state.models)
        seconds = reporter.seconds - began
    if scale * seconds < _LONG_ITERATION:
        return
    minutes = settings.max_iter * scale * seconds / 60.0
    reporter.announce(
        f"This fit is long: {n_samples:,} samples and {state.n_regions:,} regions take about "
        f"{scale * seconds:.0f} s for each iteration, up to {minutes:.0f} min for "
        f"max_iter={settings.max_iter}. Fewer hidden units or latent dimensions make it shorter, "
        "a larger tol ends it sooner, n_jobs=-1 shares it among all cores."
    )


def _first_state(problem: MixtureProblem, start: Start) -> MixtureState:
    own = problem.network
    variances = np.maximum(start.residual_variances, own.noise_floors)
    variances = np.maximum(variances, _SMALLEST_STARTING_VARIANCE)
    kind = KINDS[own.covariance_type]
    noise = kind.from_residuals(start.residuals, variances, own.n_factors)
    return problem.begin(np.ones(1), [(start.network, noise)])
