"""The E-step: what the M-step needs to know of the data, additive over batches of rows.

Per region, sums over rows of ``w``, ``w z``, ``w z z'``, ``w x``, ``w x z'`` under the posterior,
``w`` being the row's weight times the region's responsibility.  Memory does not depend on the
number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from skdgn._jit import kernel
from skdgn._network import Floats
from skdgn._posterior import map_batches
from skdgn._visits import Visitor, Visits


@dataclass(frozen=True)
class SufficientStatistics:
    """Sums over rows (all unnormalised: they carry the responsibilities)."""

    weights: Floats  # (R,) sum of w
    first: Floats  # (R, S) sum of w z
    second: Floats  # (R, S, S) sum of w z z'
    data: Floats  # (R, D) sum of w x
    cross: Floats  # (R, D, S) sum of w x z'
    squares: Floats  # (D,) sum of x^2, or (D, D) sum of x x', weighted by the rows' weights
    total_weight: float  # sum of the rows' weights
    log_likelihood: float  # weighted sum of log p(x)

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
    visits: Visits, rows: Floats, row_weights: Floats, n_regions: int, full_squares: bool
) -> SufficientStatistics:
    """Sum the statistics of a batch of rows (n, D) over its sparse posterior."""
    n_components, n_features = visits.means.shape[1], rows.shape[1]
    weights = np.zeros(n_regions)
    first = np.zeros((n_regions, n_components))
    second = np.zeros((n_regions, n_components, n_components))
    data = np.zeros((n_regions, n_features))
    cross = np.zeros((n_regions, n_features, n_components))
    _accumulate(visits, rows, row_weights, weights, first, second, data, cross)
    weighted = row_weights[:, None] * rows
    return SufficientStatistics(
        weights,
        first,
        second,
        data,
        cross,
        rows.T @ weighted if full_squares else np.einsum("nd,nd->d", rows, weighted),
        float(row_weights.sum()),
        float(row_weights @ visits.log_density),
    )


@kernel
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


def expect(
    visitor: Visitor,
    rows: Floats,
    row_weights: Floats,
    full_squares: bool,
    n_jobs: int | None = None,
) -> SufficientStatistics:
    """Run the E-step over batches of rows (n, D)."""
    n_regions = len(visitor.conditionals.centers)
    parts = map_batches(
        lambda batch: accumulate(
            visitor.visit(rows[batch]), rows[batch], row_weights[batch], n_regions, full_squares
        ),
        len(rows),
        n_jobs,
    )
    return reduce(add, parts)
