"""Conformal p-values: how samples rank among others that a model has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._estimators.methods import ExactDensity, is_frame, write_frame
from skdgn._estimators.sklearn_parts import take_samples
from skdgn._runtime import Bools, Floats, Integers, split_by_pattern

# With fewer samples to compare with, p-values do not get below 1 %: samples that lack some of the
# features are completed then.
_FEWEST_COMPARED = 99.0


@dataclass(frozen=True)
class Calibration:
    """An estimator, and samples that it was not fitted to."""

    estimator: Any
    table: Any  # (n, D), a frame if the estimator was fitted to one
    samples: Floats  # the same as an array
    weights: Floats  # (n,)

    def have(self, features: Integers) -> Bools:
        """Tell of which samples all of some features were observed: (n,)."""
        return np.asarray(~np.isnan(self.samples[:, features]).any(axis=1))

    def complete(self) -> Calibration:
        """Fill in what samples lack by draws, given the rest; always the same ones."""
        (samples,), _ = self.estimator._complete(self.samples, 1, 0)
        return Calibration(self.estimator, samples, samples, self.weights)

    def count(self, table: Any, samples: Floats) -> tuple[Floats, float]:
        """Weight of the samples that are at most as likely as each of some others, (n,); of all.

        The others are of the same pattern, by whose features alone samples are compared.
        """
        observed = ~np.isnan(samples[0])
        chosen = np.flatnonzero(self.have(np.flatnonzero(observed)))
        if chosen.size == 0:
            return np.zeros(len(samples)), 0.0
        reduced = np.where(observed, self.samples[chosen], np.nan)
        compared = log_densities(self.estimator, take_samples(self.table, chosen), reduced)
        order = np.argsort(compared)
        weights = np.concatenate([[0.0], np.cumsum(self.weights[chosen][order])])
        scores = log_densities(self.estimator, table, samples)
        return weights[np.searchsorted(compared[order], scores, side="right")], float(weights[-1])


def conformal_p_values(calibrations: Sequence[Calibration], table: Any, samples: Floats) -> Floats:
    """Compute the share of samples that are at most as likely as each of samples (n, D)."""
    p_values = np.ones(len(samples))
    completed: Sequence[Calibration] = ()
    for own, features in split_by_pattern(samples):
        if features.size == 0:
            continue  # nothing is unusual about nothing
        compared = calibrations
        if sum(part.weights[part.have(features)].sum() for part in calibrations) < min(
            _FEWEST_COMPARED, sum(part.weights.sum() for part in calibrations)
        ) and all(isinstance(part.estimator, ExactDensity) for part in calibrations):
            completed = completed or [part.complete() for part in calibrations]
            compared = completed
        p_values[own] = _rank(compared, take_samples(table, own), samples[own])
    return p_values


def _rank(calibrations: Sequence[Calibration], table: Any, samples: Floats) -> Floats:
    """Rank samples of one pattern among those of all calibrations, and themselves."""
    counts = [part.count(table, samples) for part in calibrations]
    below = np.sum([count for count, _ in counts], axis=0)
    return np.asarray((1.0 + below) / (1.0 + sum(total for _, total in counts)))


def log_densities(estimator: Any, table: Any, samples: NDArray[Any]) -> Floats:
    """Log densities of samples (n, D), that are a table like the one an estimator was fitted to."""
    if isinstance(estimator, ExactDensity):
        return estimator._fitted_model().log_density(samples, estimator._workers())
    hidden = np.asarray(np.isnan(samples).any(axis=0))
    table = write_frame(table, samples, hidden) if is_frame(table) else samples
    return np.asarray(estimator.score_samples(table), dtype=np.float64)


def own_p_values(density: ExactDensity, samples: Floats, n_draws: int, random_state: Any) -> Floats:
    """Estimate P(log p(X') <= log p(x)) for samples x (n, D), X' drawn from the density itself.

    X' has the missing values of x.
    """
    drawn, _ = density._fitted_model().draw(n_draws, density._random_source(random_state))
    itself = Calibration(density, drawn, drawn, np.ones(n_draws))
    return conformal_p_values([itself], samples, samples)


def reject(p_values: Floats, rate: float) -> Bools:
    """Reject hypotheses at a false-discovery rate, by Benjamini's and Hochberg's procedure."""
    order = np.argsort(p_values)
    levels = rate * np.arange(1, len(p_values) + 1) / len(p_values)
    passed = np.flatnonzero(p_values[order] <= levels)
    rejected = np.zeros(len(p_values), dtype=bool)
    if passed.size > 0:
        rejected[order[: passed[-1] + 1]] = True
    return rejected
