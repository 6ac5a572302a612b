"""Functions of single features that make them look Gaussian, fitted feature by feature."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from skdgn._posterior import ColumnMap, Line, NormalScores, StraightTails, YeoJohnson
from skdgn._runtime import Floats

# Gaussians of a mixture at most, iterations of EM, and the gain per sample below which it stops.
_MOST_GAUSSIANS = 4
_MOST_ITERATIONS = 200
_TOLERANCE = 1e-5
# Smallest variance of a Gaussian, as a share of the feature's.
_SMALLEST_VARIANCE = 1e-3


def fit_power(values: Floats, weights: Floats) -> tuple[ColumnMap, ...]:
    """Fit Yeo and Johnson's transformation to standardized values (n,) by maximum likelihood."""
    line = _standardize(values, weights)
    standard, total = line.forward(values), weights.sum()
    slope = float(weights @ (np.sign(standard) * np.log1p(np.abs(standard))))

    def loss(exponent: float) -> float:
        transformed = YeoJohnson(exponent).forward(standard)
        deviation = _standardize(transformed, weights).scale
        return float(total * math.log(deviation) - (exponent - 1.0) * slope)

    if np.ptp(values) == 0.0:
        return (line,)
    exponent = float(minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded").x)
    return line, _with_straight_tails(YeoJohnson(exponent), standard)


def fit_normal_scores(values: Floats, weights: Floats) -> tuple[ColumnMap, ...]:
    """Fit a Gaussian mixture to standardized values (n,), of as many Gaussians as BIC likes."""
    line = _standardize(values, weights)
    if np.ptp(values) == 0.0:
        return (line,)
    standard, log_total = line.forward(values), math.log(weights.sum())
    candidates = []
    for n_gaussians in range(1, _MOST_GAUSSIANS + 1):
        scores, log_likelihood = _fit_mixture(standard, weights, n_gaussians)
        bic = (3 * n_gaussians - 1) * log_total - 2.0 * log_likelihood
        candidates.append((bic, n_gaussians, scores))
    return line, _with_straight_tails(min(candidates)[2], standard)


def _with_straight_tails(function: ColumnMap, values: Floats) -> ColumnMap:
    """Go on as a line where no value is near: as far from all as they are from each other."""
    low, high = float(values.min()), float(values.max())
    return StraightTails(function, 2.0 * low - high, 2.0 * high - low)


def _standardize(values: Floats, weights: Floats) -> Line:
    if np.ptp(values) == 0.0:  # the mean may be rounded
        return Line(float(values[0]), 1.0)
    weights = weights / weights.max()  # large weights of large values would overflow
    mean = float(np.average(values, weights=weights))
    deviation = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
    return Line(mean, deviation if deviation > 0.0 else 1.0)


def _fit_mixture(values: Floats, weights: Floats, n_gaussians: int) -> tuple[NormalScores, float]:
    """Fit a mixture by EM, from equal shares of the sorted values; return its log-likelihood."""
    order = np.argsort(values, kind="stable")
    ends = np.cumsum(weights[order])
    levels = ends[-1] * np.arange(n_gaussians + 1) / n_gaussians
    # How much of each value's weight lies between two levels.
    below = np.clip(levels - (ends - weights[order])[:, None], 0.0, weights[order][:, None])
    shares = np.empty((len(values), n_gaussians))
    shares[order] = np.diff(below, axis=1) / weights[order][:, None]
    before = -math.inf
    for _ in range(_MOST_ITERATIONS):
        counts = weights @ shares
        shares, counts = shares[:, counts > 0.0], counts[counts > 0.0]
        means = (weights * values) @ shares / counts
        squares = weights @ (shares * (values[:, None] - means) ** 2)
        deviations = np.sqrt(np.maximum(squares / counts, _SMALLEST_VARIANCE))
        mixture = NormalScores(counts / counts.sum(), means, deviations)
        terms = mixture.log_terms(values)
        log_densities = logsumexp(terms, axis=1, keepdims=True)
        shares = np.exp(terms - log_densities)
        log_likelihood = float(weights @ log_densities[:, 0])
        if log_likelihood - before < _TOLERANCE * weights.sum():
            break
        before = log_likelihood
    return mixture, log_likelihood
