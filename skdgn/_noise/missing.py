"""What a sample with missing values says: the noise restricted to what was observed.

Missing values are NaN.  The features of such a sample are put in an order of their own, those
observed first.  The Cholesky factor of the noise covariance in that order,

    [ L_oo   0   ]
    [ L_mo  L_mm ]

holds all there is to know: ``L_oo`` whitens what was observed, ``L_mo L_oo^-1 e_o`` is the expected
noise of what is missing, and ``L_mm L_mm'`` its covariance.  ``L_mo L_oo^-1`` is kept in place of
``L_mo``.  Features are measured in units of
their noise deviations, so that the covariance is a correlation matrix.

Noise of low rank, ``f_i' f + e_i`` with k factors f, has a factor of low rank, too.  Whitened
values come one after the other, as in Kalman's filter: what was observed before feature j leaves
the factors with a mean and a covariance ``P_j``; it predicts the value by ``f_j'`` times the mean,
with the variance ``L_jj^2 = psi_j + f_j' P_j f_j``; and a whitened value moves the mean by itself
times ``g_j = P_j f_j / L_jj``.  So ``L_ij = f_i' g_j``, and nothing of shape (D, D) appears.
Independent noise has no factors, and nothing is computed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skdgn._noise.gaussian import Noise
from skdgn._runtime import LOG_SQRT_2PI, Floats, Integers, inlined_sum_kernel, kernel


class NoiseUnits(NamedTuple):
    """Deviations of the noise, and in units of them what features share."""

    deviations: Floats  # (D,)
    correlations: Floats  # (D, D); (D, 0) if factors are all that features share
    loadings: Floats  # (D, k) of these factors
    errors: Floats  # (D,) variances of what features do not share
    spread: float  # largest eigenvalue of the correlations, hence of any part of them

    @classmethod
    def of(cls, noise: Noise) -> NoiseUnits:
        """Divide the covariance by the deviations."""
        # Copies: arrays that cannot be written to are another type, for which kernels are compiled
        # again.
        deviations = np.array(noise.deviations)
        return cls(
            deviations,
            np.array(noise.correlations),
            noise.loadings / deviations[:, None],
            noise.errors / deviations**2,
            noise.spread,
        )

    @classmethod
    def for_nobody(cls, n_features: int) -> NoiseUnits:
        """Return what kernels are given where all samples are complete: nobody looks."""
        nothing, ones = np.empty((n_features, 0)), np.ones(n_features)
        return cls(ones, nothing, nothing, ones, 1.0)


class Observation(NamedTuple):
    """What was observed of one sample, and the noise seen from there.

    Kinds of noise are told apart by values, not by types: one compiled kernel does for all.
    """

    order: Integers  # (D,) features, those observed first
    n_observed: Integers  # (1,) how many were
    log_constant: Floats  # (1,) largest log density of what was observed
    is_correlated: bool
    is_dense: bool  # whether the correlations are a matrix
    # (D, D) lower Cholesky factor of it in that order, what is missing regressed on what was
    # observed; (D, 0) if there is none
    factor: Floats
    # Of noise of low rank:
    loadings: Floats  # (D, k) in that order
    scales: Floats  # (D,) diagonal of the factor, of what was observed
    gains: Floats  # (D, k) what whitened values say of the factors
    factors: Floats  # (k,) buffer: the mean of the factors
    factor_covariance: Floats  # (k, k) given what was observed
    triangle: Floats  # (k, k) buffer


def make_observation(units: NoiseUnits) -> Observation:
    """Make room for what is observed of a sample."""
    n_factors = units.loadings.shape[1]
    is_dense = units.correlations.size > 0
    return Observation(
        np.empty(units.deviations.size, dtype=np.intp),
        np.full(1, -1, dtype=np.intp),
        np.empty(1),
        is_dense or n_factors > 0,
        is_dense,
        np.zeros(units.correlations.shape),
        np.empty(units.loadings.shape),
        np.ones(units.deviations.size),
        np.empty(units.loadings.shape),
        np.empty(n_factors),
        np.empty((n_factors, n_factors)),
        np.empty((n_factors, n_factors)),
    )


@kernel
def observe(sample: Floats, units: NoiseUnits, observation: Observation) -> int:
    """Order the features of a sample, and factorize; return how many were observed.

    Samples that follow each other often have the same features observed: the factor is then kept.
    """
    order = observation.order
    n_observed = 0
    for d in range(sample.size):
        if not math.isnan(sample[d]):
            n_observed += 1
    changed = observation.n_observed[0] != n_observed
    observed, missing = 0, n_observed
    for d in range(sample.size):
        if math.isnan(sample[d]):
            place = missing
            missing += 1
        else:
            place = observed
            observed += 1
        changed = changed or order[place] != d
        order[place] = d
    if changed:
        observation.n_observed[0] = n_observed
        if observation.is_dense:
            _factorize(units.correlations, order, observation.factor)
            _regress(n_observed, observation.factor)
        elif observation.is_correlated:
            _filter_factors(units, observation)
        log_constant = -n_observed * LOG_SQRT_2PI
        for i in range(n_observed):
            scale = observation.factor[i, i] if observation.is_dense else observation.scales[i]
            log_constant -= math.log(units.deviations[order[i]]) + math.log(scale)
        observation.log_constant[0] = log_constant
    return n_observed


@kernel
def _factorize(correlations: Floats, order: Integers, factor: Floats) -> None:
    """Lower Cholesky factor of a matrix whose rows and columns are reordered."""
    for i in range(len(order)):
        for j in range(i + 1):
            rest = correlations[order[i], order[j]]
            for k in range(j):
                rest -= factor[i, k] * factor[j, k]
            factor[i, j] = math.sqrt(rest) if i == j else rest / factor[j, j]


@kernel
def _regress(n_observed: int, factor: Floats) -> None:
    """Replace the block ``L_mo`` of a Cholesky factor by ``L_mo L_oo^-1``."""
    for i in range(n_observed, len(factor)):
        for j in range(n_observed - 1, -1, -1):
            factor[i, j] /= factor[j, j]
            for k in range(j):
                factor[i, k] -= factor[i, j] * factor[j, k]


@kernel
def _filter_factors(units: NoiseUnits, observation: Observation) -> None:
    """Learn of the factors from one observed feature after the other.

    A triangle ``R`` with ``P^-1 = R' R = I + sum of f f' / psi`` is kept up to date by rotations:
    nothing is subtracted, however much the factors explain.
    """
    n_factors = len(observation.factors)
    triangle, row = observation.triangle, observation.factors
    for k in range(n_factors):
        for m in range(n_factors):
            triangle[k, m] = 1.0 if m == k else 0.0
    for i in range(len(observation.order)):
        d = observation.order[i]
        for k in range(n_factors):
            observation.loadings[i, k] = units.loadings[d, k]
    for i in range(observation.n_observed[0]):
        error = units.errors[observation.order[i]]
        gain = observation.gains[i]
        square = _divide_twice(triangle, observation.loadings[i], gain)
        observation.scales[i] = math.sqrt(error + square)
        for k in range(n_factors):
            gain[k] /= observation.scales[i]
            row[k] = observation.loadings[i, k] / math.sqrt(error)
        _add_row(triangle, row)
    for k in range(n_factors):
        for m in range(n_factors):
            row[m] = 1.0 if m == k else 0.0
        _divide_twice(triangle, row, observation.factor_covariance[k])


@kernel
def _divide_twice(triangle: Floats, vector: Floats, result: Floats) -> float:
    """Fill in ``(R' R)^-1 v`` for an upper triangle R; return ``v' (R' R)^-1 v``."""
    square = 0.0
    for k in range(len(vector)):
        rest = vector[k]
        for m in range(k):
            rest -= triangle[m, k] * result[m]
        result[k] = rest / triangle[k, k]
        square += result[k] * result[k]
    for k in range(len(vector) - 1, -1, -1):
        for m in range(k + 1, len(vector)):
            result[k] -= triangle[k, m] * result[m]
        result[k] /= triangle[k, k]
    return square


@kernel
def _add_row(triangle: Floats, row: Floats) -> None:
    """Rotate a row into an upper triangle R: ``R' R`` becomes ``R' R + row' row``."""
    for k in range(len(row)):
        length = math.hypot(triangle[k, k], row[k])
        cosine, sine = triangle[k, k] / length, row[k] / length
        for m in range(k, len(row)):
            here, there = triangle[k, m], row[m]
            triangle[k, m] = cosine * here + sine * there
            row[m] = cosine * there - sine * here


@kernel
def whiten_by_factors(observation: Observation, noise: Floats) -> None:
    """Whiten what was observed of noise of low rank, in order and in units of the deviations.

    ``observation.factors`` are then the expected factors.
    """
    for k in range(len(observation.factors)):
        observation.factors[k] = 0.0
    for i in range(observation.n_observed[0]):
        rest = noise[i]
        for k in range(len(observation.factors)):
            rest -= observation.loadings[i, k] * observation.factors[k]
        noise[i] = rest / observation.scales[i]
        for k in range(len(observation.factors)):
            observation.factors[k] += observation.gains[i, k] * noise[i]


@inlined_sum_kernel
def predict_missing(observation: Observation, noise: Floats) -> None:
    """Fill in the expected noise of what is missing, given that of what was observed.

    All in order, and in units of the deviations; that of what was observed may be overwritten.
    """
    n_observed = observation.n_observed[0]
    if observation.is_dense:
        for i in range(n_observed, len(noise)):
            expected = 0.0
            for j in range(n_observed):
                expected += observation.factor[i, j] * noise[j]
            noise[i] = expected
        return
    whiten_by_factors(observation, noise)
    for i in range(n_observed, len(noise)):
        noise[i] = 0.0
        for k in range(len(observation.factors)):
            noise[i] += observation.loadings[i, k] * observation.factors[k]


@kernel
def missing_covariance(i: int, j: int, units: NoiseUnits, observation: Observation) -> float:
    """Covariance of the noise of two missing features, given what was observed.

    Both by their places in the order, ``j <= i``, and in units of the deviations.
    """
    covariance = 0.0
    if observation.is_dense:
        for k in range(observation.n_observed[0], j + 1):
            covariance += observation.factor[i, k] * observation.factor[j, k]
        return covariance
    for k in range(len(observation.factors)):
        for m in range(len(observation.factors)):
            product = observation.loadings[i, k] * observation.loadings[j, m]
            covariance += observation.factor_covariance[k, m] * product
    return covariance + (units.errors[observation.order[i]] if i == j else 0.0)


@kernel
def fill_missing(
    sample: Floats, generated: Floats, units: NoiseUnits, observation: Observation, filled: Floats
) -> None:
    """Fill in what is missing by its expectation, given what was observed and g(z).

    ``generated`` holds g(z) or, since everything is linear in it, its posterior mean on a region.
    With a draw of the noise added to it, the sample is completed by a draw: what is observed
    then tells by how much that draw of the noise was wrong.
    """
    n_observed = observe(sample, units, observation)
    order = observation.order
    noise = np.zeros(sample.size)
    if observation.is_correlated:
        for i in range(n_observed):
            d = order[i]
            noise[i] = (sample[d] - generated[d]) / units.deviations[d]
        predict_missing(observation, noise)
    for i in range(sample.size):
        d = order[i]
        filled[d] = sample[d] if i < n_observed else generated[d] + units.deviations[d] * noise[i]
