"""The E-step: what the M-step needs to know of the data, additive over batches of rows.

Per region, sums over rows of ``w``, ``w z``, ``w z z'``, ``w x``, ``w x z'`` under the posterior,
``w`` being the row's weight times the region's responsibility.  Memory does not depend on the
number of rows.

What is missing from a row enters through its expectations: given z and what was observed, it is
Gaussian, with a mean that is affine in z on each region (`skdgn._posterior.patterns`).  So the
M-step need
not know of holes, and its gradient is that of the likelihood of what was observed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from skdgn._posterior import (
    NoiseUnits,
    ObservedRegions,
    RegionMaps,
    Visitor,
    Visits,
    find_holes,
    make_holes,
    whiten_observed,
)
from skdgn._runtime import Floats, Table, Workers, read, sum_kernel


@dataclass(frozen=True)
class SufficientStatistics:
    """Sums over rows (all unnormalized: they carry the responsibilities)."""

    weights: Floats  # (R,) sum of w
    first: Floats  # (R, S) sum of w z
    second: Floats  # (R, S, S) sum of w z z'
    data: Floats  # (R, D) sum of w x
    cross: Floats  # (R, D, S) sum of w x z'
    squares: Floats  # (M, D) sum over all regions of w x x', M = D, or of its diagonal, M = 1
    total_weight: float  # sum of the rows' weights
    log_likelihood: float  # weighted sum of log p(x)

    def take_features(self, features: NDArray[np.intp]) -> SufficientStatistics:
        """Return the statistics of these features, in this order."""
        squares = self.squares if len(self.squares) == 1 else self.squares[features]
        return replace(
            self,
            data=self.data[:, features],
            cross=self.cross[:, features],
            squares=squares[:, features],
        )

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        return SufficientStatistics(
            self.weights + other.weights,
            self.first + other.first,
            self.second + other.second,
            self.data + other.data,
            self.cross + other.cross,
            self.squares + other.squares,
            self.total_weight + other.total_weight,
            self.log_likelihood + other.log_likelihood,
        )


def accumulate(
    visits: Visits,
    rows: Floats,
    row_weights: Floats,
    n_regions: int,
    full_squares: bool,
) -> SufficientStatistics:
    """Sum the statistics of a batch of rows (n, D) over its sparse posterior."""
    n_components, n_features = visits.means.shape[1], rows.shape[1]
    weights = np.zeros(n_regions)
    first = np.zeros((n_regions, n_components))
    second = np.zeros((n_regions, n_components, n_components))
    data = np.zeros((n_regions, n_features))
    cross = np.zeros((n_regions, n_features, n_components))
    _accumulate(visits, rows, row_weights, weights, first, second, data, cross)
    # A row's responsibilities add up to one.
    weighted = row_weights[:, None] * rows
    squares = rows.T @ weighted if full_squares else np.einsum("nd,nd->d", rows, weighted)[None]
    return SufficientStatistics(
        weights,
        first,
        second,
        data,
        cross,
        squares,
        float(row_weights.sum()),
        float(row_weights @ visits.log_density),
    )


@sum_kernel
def _accumulate(
    visits: Visits,
    rows: Floats,
    row_weights: Floats,
    weights: Floats,
    first: Floats,
    second: Floats,
    data: Floats,
    cross: Floats,
) -> None:
    n_components, n_features = visits.means.shape[1], rows.shape[1]
    for n in range(len(rows)):
        for v in range(visits.start[n], visits.start[n + 1]):
            r = visits.regions[v]
            w = row_weights[n] * visits.responsibilities[v]
            weights[r] += w
            for s in range(n_components):
                z = visits.means[v, s]
                first[r, s] += w * z
                for t in range(n_components):
                    second[r, s, t] += w * (visits.covariances[v, s, t] + z * visits.means[v, t])
            for d in range(n_features):
                x = w * rows[n, d]
                data[r, d] += x
                for s in range(n_components):
                    cross[r, d, s] += x * visits.means[v, s]


def accumulate_incomplete(
    regions: ObservedRegions,
    visits: Visits,
    rows: Floats,
    row_weights: Floats,
    full_squares: bool,
) -> SufficientStatistics:
    """Sum the statistics of a batch of rows (n, D) with holes over its sparse posterior."""
    n_regions, n_features, n_components = regions.maps.slopes.shape
    weights = np.zeros(n_regions)
    first = np.zeros((n_regions, n_components))
    second = np.zeros((n_regions, n_components, n_components))
    data = np.zeros((n_regions, n_features))
    cross = np.zeros((n_regions, n_features, n_components))
    squares = np.zeros((n_features if full_squares else 1, n_features))
    _accumulate_incomplete(
        visits,
        np.ascontiguousarray(rows),
        row_weights,
        regions.units,
        regions.maps,
        weights,
        first,
        second,
        data,
        cross,
        squares,
    )
    return SufficientStatistics(
        weights,
        first,
        second,
        data,
        cross,
        squares,
        float(row_weights.sum()),
        float(row_weights @ visits.log_density),
    )


@sum_kernel
def _accumulate_incomplete(
    visits: Visits,
    rows: Floats,
    row_weights: Floats,
    units: NoiseUnits,
    maps: RegionMaps,
    weights: Floats,
    first: Floats,
    second: Floats,
    data: Floats,
    cross: Floats,
    squares: Floats,
) -> None:
    n_components, n_features = visits.means.shape[1], rows.shape[1]
    full_squares = len(squares) == n_features
    deviations, slopes, offsets = units.deviations, maps.slopes, maps.offsets
    holes = make_holes(units)
    order, factor, is_correlated = holes.order, holes.factor, holes.factor.size > 0
    # Given z on a region, the completed row is expected at: values + rates (z - mean of z).
    values = np.empty(n_features)
    rates = np.zeros((n_features, n_components))
    spreads = np.zeros((n_features, n_components))  # rates times the covariance of z
    whitened = np.empty(n_features)
    for n in range(len(rows)):
        n_observed = find_holes(rows[n], units, holes)
        for i in range(n_observed):
            d = order[i]
            values[d] = rows[n, d]
            for s in range(n_components):
                rates[d, s] = 0.0
                spreads[d, s] = 0.0
        for v in range(visits.start[n], visits.start[n + 1]):
            r = visits.regions[v]
            w = row_weights[n] * visits.responsibilities[v]
            mean, covariance = visits.means[v], visits.covariances[v]
            weights[r] += w
            for s in range(n_components):
                first[r, s] += w * mean[s]
                for t in range(n_components):
                    second[r, s, t] += w * (covariance[s, t] + mean[s] * mean[t])

            for i in range(n_observed, n_features):
                d = order[i]
                values[d] = offsets[r, d]
                for s in range(n_components):
                    rates[d, s] = slopes[r, d, s]
                    values[d] += slopes[r, d, s] * mean[s]
            if is_correlated:
                # What is observed of the noise tells of what is not.
                for column in range(-1, n_components):
                    for i in range(n_observed):
                        d = order[i]
                        if column >= 0:
                            whitened[i] = slopes[r, d, column]
                        else:
                            whitened[i] = offsets[r, d] - rows[n, d] / deviations[d]
                            for s in range(n_components):
                                whitened[i] += slopes[r, d, s] * mean[s]
                    whiten_observed(factor, n_observed, whitened)
                    for i in range(n_observed, n_features):
                        explained = 0.0
                        for j in range(n_observed):
                            explained += factor[i, j] * whitened[j]
                        if column >= 0:
                            rates[order[i], column] -= explained
                        else:
                            values[order[i]] -= explained
            for i in range(n_observed, n_features):
                d = order[i]
                values[d] *= deviations[d]
                for s in range(n_components):
                    rates[d, s] *= deviations[d]
                for s in range(n_components):
                    spreads[d, s] = 0.0
                    for t in range(n_components):
                        spreads[d, s] += rates[d, t] * covariance[t, s]

            for d in range(n_features):
                data[r, d] += w * values[d]
                for s in range(n_components):
                    cross[r, d, s] += w * (values[d] * mean[s] + spreads[d, s])
            # What does not depend on z, the products of what was observed and the noise of the
            # rest, is the same for all visits: once is enough.
            constant = row_weights[n] if v == visits.start[n] else 0.0
            for i in range(0 if constant > 0.0 else n_observed, n_features):
                d = order[i]
                for j in range(i + 1):
                    e = order[j]
                    if not (full_squares or d == e):
                        continue
                    product = 0.0
                    if i < n_observed:
                        product = constant * values[d] * values[e]
                    else:
                        for s in range(n_components):
                            product += spreads[d, s] * rates[e, s]
                        product = w * (product + values[d] * values[e])
                        rest = 0.0  # covariance of the noise, given what was observed of it
                        if is_correlated and constant > 0.0:
                            for k in range(n_observed, j + 1):
                                rest += factor[i, k] * factor[j, k]
                        elif i == j:
                            rest = 1.0
                        product += constant * deviations[d] * deviations[e] * rest
                    squares[d if full_squares else 0, e] += product
                    if d != e:
                        squares[e, d] += product


def expect(
    visitor: Visitor,
    rows: Table,
    row_weights: Floats,
    full_squares: bool,
    workers: Workers,
) -> SufficientStatistics:
    """Run the E-step over batches of rows (n, D), NaN where a value is missing."""
    n_regions = len(visitor.partition)

    def expect_batch(batch: Table, batch_weights: Floats) -> SufficientStatistics:
        # A row without weight may be so far out that its log density is not a number.
        heavy = batch_weights > 0
        table, weights = read(batch)[heavy], batch_weights[heavy]
        has_holes = np.isnan(table).any(axis=1)
        parts: list[SufficientStatistics] = []
        if not has_holes.all() or not heavy.any():
            some = table[~has_holes]
            visits = visitor.visit(some)
            parts.append(accumulate(visits, some, weights[~has_holes], n_regions, full_squares))
        if has_holes.any():
            some = table[has_holes]
            visits = visitor.visit(some)
            parts.append(
                accumulate_incomplete(
                    visitor.incomplete, visits, some, weights[has_holes], full_squares
                )
            )
        return reduce(add, parts)

    return workers.sum(expect_batch, visitor.row_bytes, rows, row_weights)
