"""A fit from rows to parameters: scale, start, EM, scale back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from skdgn._completion import complete_rows
from skdgn._em import Problem, Progress, State, likeliest, run_em
from skdgn._initialization import starting_methods, starting_network
from skdgn._network import Activation, Floats, Network
from skdgn._noise import Noise
from skdgn._partition import TooManyRegionsError

# Iterations given to each candidate start before the likeliest is kept.
_TRIAL_ITERATIONS = 8
# Candidate starts are compared on at most this many rows.
_TRIAL_ROWS = 2000


@dataclass(frozen=True)
class Settings:
    """The estimator's parameters that concern a fit, already checked."""

    n_components: int
    hidden_layer_sizes: tuple[int, ...]
    activation: Activation
    covariance_type: str
    m_step: str
    init_params: str
    n_init: int
    max_iter: int
    tol: float
    reg_covar: float
    most_regions: int
    n_jobs: int | None


@dataclass(frozen=True)
class Scaling:
    """Rows are centred and divided by their deviations, so that any unit of measurement will do."""

    center: Floats  # (D,)
    deviations: Floats  # (D,)

    @classmethod
    def of(cls, rows: Floats, row_weights: Floats, covariance_type: str) -> Scaling:
        """Measure what was observed; spherical noise needs the same unit for all features."""
        weights = np.where(np.isnan(rows), 0.0, row_weights[:, None])
        center = np.average(np.nan_to_num(rows), axis=0, weights=weights)
        squares = np.nan_to_num((rows - center) ** 2)
        variances = np.average(squares, axis=0, weights=weights)
        if covariance_type == "spherical":
            variances = np.full_like(variances, variances.mean())
        # What is constant but for rounding has no scale of its own.
        constant = variances <= (8.0 * np.finfo(float).eps * np.abs(center)) ** 2
        return cls(center, np.where(constant, 1.0, np.sqrt(variances)))

    def log_volume(self, rows: Floats, row_weights: Floats) -> float:
        """What scaling adds to the mean log density: every observed entry counts."""
        shares = np.average(~np.isnan(rows), axis=0, weights=row_weights)
        return float(shares @ np.log(self.deviations))

    def apply(self, rows: Floats) -> Floats:
        """Scale rows."""
        return (rows - self.center) / self.deviations

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
        covariance = noise.covariance
        if covariance.ndim == 0:
            covariance = covariance * factors[0] ** 2
        elif covariance.ndim == 1:
            covariance = covariance * factors**2
        else:
            covariance = covariance * np.outer(factors, factors)
        return scaled, Noise.from_covariance(covariance, noise.n_features)


@dataclass(frozen=True)
class FitResult:
    """Fitted parameters in the units of the rows, and how EM got there."""

    network: Network
    noise: Noise
    lower_bounds: Floats
    converged: bool
    interrupted: bool


def merge_duplicates(rows: Floats, row_weights: Floats) -> tuple[Floats, Floats]:
    """Sort rows, merge equal ones and drop those without weight.

    A fit then depends neither on the order of the rows nor on whether a row is repeated or
    weighted.  Rows with the same holes follow each other.
    """
    kept = row_weights > 0
    holes = np.isnan(rows[kept])
    # NaN equals nothing, not even itself: zeros and the place of the holes take their place.
    keys = np.concatenate([holes, np.where(holes, 0.0, rows[kept])], axis=1)
    _, chosen, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    weights = np.zeros(len(chosen))
    np.add.at(weights, inverse.ravel(), row_weights[kept])
    return rows[kept][chosen], weights


def fit_network(
    rows: Floats,
    row_weights: Floats,
    settings: Settings,
    generator: np.random.Generator,
    warm_start: tuple[Network, Noise] | None,
    report: Callable[[int, Progress, float], None],
) -> FitResult:
    """Fit a network and its noise to rows (n, D), NaN where a value is missing.

    ``report(start, progress, log_volume)`` is called after every iteration of the final runs.
    """
    rows, row_weights = merge_duplicates(rows, row_weights)
    scaling = Scaling.of(rows, row_weights, settings.covariance_type)
    scaled = scaling.apply(rows)
    problem = Problem(
        scaled,
        row_weights,
        settings.covariance_type,
        settings.reg_covar,
        settings.most_regions,
        settings.n_jobs,
    )
    completed = complete_rows(scaled, row_weights)
    log_volume = scaling.log_volume(rows, row_weights)
    runs: list[Progress] = []
    for number in range(1 if warm_start is not None else settings.n_init):
        if warm_start is not None:
            start = problem.evaluate(*scaling.scale(*warm_start))
        else:
            start = _best_start(problem, completed, settings, generator)

        def report_run(progress: Progress, number: int = number) -> None:
            report(number, progress, log_volume)

        runs.append(
            run_em(problem, start, settings.m_step, settings.max_iter, settings.tol, report_run)
        )
        if runs[-1].interrupted:
            break
    best = likeliest(runs)
    network, noise = scaling.restore(best.state.network, best.state.noise)
    return FitResult(
        network,
        noise,
        np.array(best.lower_bounds) - log_volume,
        best.converged,
        best.interrupted,
    )


def _best_start(
    problem: Problem, completed: Floats, settings: Settings, generator: np.random.Generator
) -> State:
    """Try the starting methods briefly and keep the likeliest."""
    methods = (
        starting_methods(settings.n_components)
        if settings.init_params == "auto"
        else (settings.init_params,)
    )
    trial_problem = problem
    if len(problem.rows) > _TRIAL_ROWS:
        chosen = np.sort(generator.choice(len(problem.rows), _TRIAL_ROWS, replace=False))
        trial_problem = replace(
            problem, rows=problem.rows[chosen], row_weights=problem.row_weights[chosen]
        )
        completed = completed[chosen]
    runs: list[Progress] = []
    for method in methods:
        start = starting_network(
            completed,
            settings.n_components,
            settings.hidden_layer_sizes,
            settings.activation,
            method,
            generator,
        )
        variances = np.maximum(start.residual_variances, max(settings.reg_covar, 1e-4))
        try:
            state = trial_problem.evaluate(
                start.network, _starting_noise(variances, settings.covariance_type)
            )
        except TooManyRegionsError:
            if method == methods[-1] and not runs:
                raise
            continue
        iterations = _TRIAL_ITERATIONS if len(methods) > 1 else 0
        runs.append(
            run_em(
                trial_problem,
                state,
                settings.m_step,
                min(iterations, settings.max_iter),
                settings.tol,
                lambda progress: None,
            )
        )
        if runs[-1].interrupted:
            raise KeyboardInterrupt
    best = likeliest(runs).state
    if trial_problem is problem:
        return best
    return problem.evaluate(best.network, best.noise)


def _starting_noise(variances: Floats, covariance_type: str) -> Noise:
    if covariance_type == "spherical":
        return Noise.from_covariance(variances.mean(), len(variances))
    if covariance_type == "diag":
        return Noise.from_covariance(variances, len(variances))
    return Noise.from_covariance(np.diag(variances), len(variances))
