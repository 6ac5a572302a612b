"""The conditional Gaussian of one region, given the observed part of one row.

A QR decomposition of ``[I; A~_o]``, with the observed part of the row as one more column, gives
factor, conditional mean and quadratic form at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._geometry import Facets
from skdgn._posterior.patterns import Holes, NoiseUnits
from skdgn._runtime import Floats, kernel, sum_kernel


class RegionMaps(NamedTuple):
    """Affine maps of all regions, in units of the noise deviations, and their facets."""

    slopes: Floats  # (R, D, S)
    offsets: Floats  # (R, D)
    facets: Facets


class ObservedRow(NamedTuple):
    """The observed part of a row, and room for its QR decompositions."""

    scaled: Floats  # (D,) observed values first, in units of the noise deviations
    columns: Floats  # (S, S + D) columns of [I; A~_o]
    remainder: Floats  # (S + D,) [0; x~_o - b~_o], then what the columns do not explain
    triangle: Floats  # (S, S)
    places: NDArray[np.intp]  # (S,) which latent dimension each of its columns is of


@kernel
def make_row(n_components: int, n_features: int) -> ObservedRow:
    """Make room for a row."""
    return ObservedRow(
        np.empty(n_features),
        np.empty((n_components, n_components + n_features)),
        np.empty(n_components + n_features),
        np.empty((n_components, n_components)),
        np.empty(n_components, dtype=np.intp),
    )


@kernel
def scale_row(values: Floats, units: NoiseUnits, holes: Holes, row: ObservedRow) -> None:
    """Read what was observed of a row, once its holes have been found."""
    for i in range(holes.n_observed[0]):
        d = holes.order[i]
        row.scaled[i] = values[d] / units.deviations[d]


@sum_kernel
def condition_region(
    region: int,
    axes: Any,
    maps: RegionMaps,
    holes: Holes,
    row: ObservedRow,
    factor: Floats,
    center: Floats,
) -> float:
    """Condition one region's map on the observed part of a row.

    Fills in factor (S, S) and whitened mean (S,) of the conditional Gaussian.  Returns the
    log evidence; its quadratic form comes from the residual.
    """
    n_components, n_observed = len(axes), holes.n_observed[0]
    slopes, offsets = maps.slopes, maps.offsets
    order, correlated = holes.order, holes.factor
    scaled, columns, remainder = row.scaled, row.columns, row.remainder
    triangle, places = row.triangle, row.places
    for s in range(n_components):
        places[s] = s
        remainder[s] = 0.0
        for t in range(n_components):
            columns[s, t] = 1.0 if s == t else 0.0
    for i in range(n_observed):
        d = order[i]
        remainder[n_components + i] = scaled[i] - offsets[region, d]
        for s in range(n_components):
            columns[s, n_components + i] = slopes[region, d, s]
    if correlated.size > 0:
        for i in range(n_observed):
            scale = 1.0 / correlated[i, i]
            rest = remainder[n_components + i]
            for j in range(i):
                rest -= correlated[i, j] * remainder[n_components + j]
            remainder[n_components + i] = rest * scale
            for s in range(n_components):
                rest = columns[s, n_components + i]
                for j in range(i):
                    rest -= correlated[i, j] * columns[s, n_components + j]
                columns[s, n_components + i] = rest * scale

    # Modified Gram-Schmidt, the row as the last column: as accurate as reflections.  Of the others,
    # that of which most is left comes first, as in `skdgn._posterior.conditionals`.
    log_evidence = holes.log_constant[0]
    size = n_components + n_observed
    sign = 1.0  # of the permutation: the factor's determinant is positive
    for s in range(n_components):
        largest, longest = -1.0, s
        for t in range(s, n_components):
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
        length = math.sqrt(largest)
        triangle[s, s] = length
        log_evidence -= math.log(length)
        scale = 1.0 / length
        for i in range(size):
            columns[s, i] *= scale
        for t in range(s + 1, n_components):
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
    square = 0.0
    for i in range(size):
        square += remainder[i] * remainder[i]

    # The factor is the inverse of the triangle, its rows back in their places.
    for t in range(n_components):
        for s in range(n_components):
            factor[s, t] = 0.0
        last = t + 1 == n_components
        factor[places[t], t] = (sign if last else 1.0) / triangle[t, t]
        for s in range(t - 1, -1, -1):
            rest = 0.0
            for u in range(s + 1, t + 1):
                rest -= triangle[s, u] * factor[places[u], t]
            factor[places[s], t] = rest / triangle[s, s]
    center[n_components - 1] *= sign
    return log_evidence - 0.5 * square
