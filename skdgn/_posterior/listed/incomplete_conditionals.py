"""The conditional Gaussian of one region, given the observed part of one sample.

A QR decomposition of ``[I; A~_o]``, with the observed part of the sample as one more column, gives
factor, conditional mean and quadratic form at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skdgn._geometry import Facets
from skdgn._noise import NoiseUnits, Observation, whiten_by_factors
from skdgn._runtime import Floats, Integers, inlined_sum_kernel, kernel


class RegionMaps(NamedTuple):
    """Affine maps of all regions, in units of the noise deviations, and their facets."""

    slopes: Floats  # (R, D, S)
    offsets: Floats  # (R, D)
    facets: Facets


class ObservedSample(NamedTuple):
    """The observed part of a sample, and room for its QR decompositions."""

    scaled: Floats  # (D,) observed values first, in units of the noise deviations
    columns: Floats  # (S, S + D) columns of [I; A~_o]
    remainder: Floats  # (S + D,) [0; x~_o - b~_o], then what the columns do not explain
    triangle: Floats  # (S, S)
    places: Integers  # (S,) which latent dimension each of its columns is of


def make_sample(n_components: int, n_features: int) -> ObservedSample:
    """Make room for a sample."""
    return ObservedSample(
        np.empty(n_features),
        np.empty((n_components, n_components + n_features)),
        np.empty(n_components + n_features),
        np.empty((n_components, n_components)),
        np.empty(n_components, dtype=np.intp),
    )


@kernel
def scale_sample(
    values: Floats, units: NoiseUnits, observation: Observation, sample: ObservedSample
) -> None:
    """Read what was observed of a sample, once this has been found."""
    for i in range(observation.n_observed[0]):
        d = observation.order[i]
        sample.scaled[i] = values[d] / units.deviations[d]


@inlined_sum_kernel
def condition_region(
    region: int,
    axes: Any,
    maps: RegionMaps,
    observation: Observation,
    sample: ObservedSample,
    factor: Floats,
    center: Floats,
) -> float:
    """Condition one region's map on the observed part of a sample.

    Fills in factor (S, S) and whitened mean (S,) of the conditional Gaussian.  Returns the
    log evidence; its quadratic form comes from the residual.
    """
    _stack(region, axes, maps, observation, sample)
    if observation.is_dense:
        _whiten(axes, observation, sample)
    elif observation.is_correlated:
        whiten_by_factors(observation, sample.remainder[len(axes) :])
        for s in range(len(axes)):
            whiten_by_factors(observation, sample.columns[s, len(axes) :])
    sign = _orthogonalize(axes, len(axes) + observation.n_observed[0], sample, center)
    _invert_triangle(axes, sign, sample, factor)
    center[len(axes) - 1] *= sign
    log_evidence = observation.log_constant[0]
    for s in range(len(axes)):
        log_evidence -= math.log(sample.triangle[s, s])
    square = 0.0
    for i in range(len(axes) + observation.n_observed[0]):
        square += sample.remainder[i] * sample.remainder[i]
    return log_evidence - 0.5 * square


@inlined_sum_kernel
def _stack(
    region: int, axes: Any, maps: RegionMaps, observation: Observation, sample: ObservedSample
) -> None:
    """Fill in the columns of ``[I; A~_o]``, and ``[0; x~_o - b~_o]``."""
    for s in range(len(axes)):
        sample.remainder[s] = 0.0
        for t in range(len(axes)):
            sample.columns[s, t] = 1.0 if s == t else 0.0
    for i in range(observation.n_observed[0]):
        d = observation.order[i]
        sample.remainder[len(axes) + i] = sample.scaled[i] - maps.offsets[region, d]
        for s in range(len(axes)):
            sample.columns[s, len(axes) + i] = maps.slopes[region, d, s]


@inlined_sum_kernel
def _whiten(axes: Any, observation: Observation, sample: ObservedSample) -> None:
    """Divide by the factor of the noise's correlations, where these are a matrix."""
    columns, remainder, correlated = sample.columns, sample.remainder, observation.factor
    for i in range(observation.n_observed[0]):
        scale = 1.0 / correlated[i, i]
        rest = remainder[len(axes) + i]
        for j in range(i):
            rest -= correlated[i, j] * remainder[len(axes) + j]
        remainder[len(axes) + i] = rest * scale
        for s in range(len(axes)):
            rest = columns[s, len(axes) + i]
            for j in range(i):
                rest -= correlated[i, j] * columns[s, len(axes) + j]
            columns[s, len(axes) + i] = rest * scale


@inlined_sum_kernel
def _orthogonalize(axes: Any, size: int, sample: ObservedSample, center: Floats) -> float:
    """Make the columns orthonormal, and take what is along them out of the remainder.

    Modified Gram-Schmidt, the remainder as the last column: as accurate as reflections.  Of the
    others, that of which most is left comes first, as in `skdgn._posterior.listed.conditionals`.
    Returns the sign of the permutation: the factor's determinant is to be positive.
    """
    columns, remainder, triangle, places = (
        sample.columns,
        sample.remainder,
        sample.triangle,
        sample.places,
    )
    sign = 1.0
    for s in range(len(axes)):
        places[s] = s
    for s in range(len(axes)):
        largest, longest = -1.0, s
        for t in range(s, len(axes)):
            square = 0.0
            for i in range(size):
                square += columns[t, i] * columns[t, i]
            if square > largest:
                largest, longest = square, t
        if longest != s:
            sign = -sign
            places[s], places[longest] = places[longest], places[s]
            for i in range(size):
                columns[s, i], columns[longest, i] = columns[longest, i], columns[s, i]
            for t in range(s):
                triangle[t, s], triangle[t, longest] = triangle[t, longest], triangle[t, s]
        triangle[s, s] = math.sqrt(largest)
        scale = 1.0 / triangle[s, s]
        for i in range(size):
            columns[s, i] *= scale
        for t in range(s + 1, len(axes)):
            along = 0.0
            for i in range(size):
                along += columns[s, i] * columns[t, i]
            triangle[s, t] = along
            for i in range(size):
                columns[t, i] -= along * columns[s, i]
        along = 0.0
        for i in range(size):
            along += columns[s, i] * remainder[i]
        center[s] = along
        for i in range(size):
            remainder[i] -= along * columns[s, i]
    return sign


@inlined_sum_kernel
def _invert_triangle(axes: Any, sign: float, sample: ObservedSample, factor: Floats) -> None:
    """Fill in the factor: the inverse of the triangle, its rows back in their places."""
    triangle, places = sample.triangle, sample.places
    for t in range(len(axes)):
        for s in range(len(axes)):
            factor[s, t] = 0.0
        last = t + 1 == len(axes)
        factor[places[t], t] = (sign if last else 1.0) / triangle[t, t]
        for s in range(t - 1, -1, -1):
            rest = 0.0
            for u in range(s + 1, t + 1):
                rest -= triangle[s, u] * factor[places[u], t]
            factor[places[s], t] = rest / triangle[s, s]
