"""The exact posterior p(z | x): a mixture of Gaussians, each truncated to its region."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeVar

import joblib
import numpy as np

from skdgn._network import Floats
from skdgn._tables import TableVisitor, concatenate
from skdgn._visits import Visits

Result = TypeVar("Result")

# Rows of one batch: enough to keep a thread busy, few enough to keep memory small.
BATCH_SIZE = 1024


def row_batches(n_rows: int) -> Iterator[slice]:
    """Yield slices that cover all rows."""
    for first in range(0, n_rows, BATCH_SIZE):
        yield slice(first, min(first + BATCH_SIZE, n_rows))


def map_batches(
    function: Callable[[slice], Result], n_rows: int, n_jobs: int | None
) -> list[Result]:
    """Apply a function to batches of rows, in threads: the kernels release the GIL."""
    # Backends with processes must be able to pickle the function, whatever it is.
    portable = joblib.wrap_non_picklable_objects(function)
    return list(
        joblib.Parallel(n_jobs=n_jobs, prefer="threads")(
            joblib.delayed(portable)(batch) for batch in row_batches(n_rows)
        )
    )


def log_density(visitor: TableVisitor, rows: Floats, n_jobs: int | None = None) -> Floats:
    """Exact log p(x) of every row (n, D)."""
    return np.concatenate(
        map_batches(lambda batch: visitor.visit(rows[batch]).log_density, len(rows), n_jobs)
    )


def posterior(visitor: TableVisitor, rows: Floats, n_jobs: int | None = None) -> Posterior:
    """Exact posterior of every row (n, D)."""
    parts = map_batches(lambda batch: visitor.visit(rows[batch]), len(rows), n_jobs)
    return Posterior(concatenate(parts), len(visitor.conditionals.centers))


class Posterior:
    """Exact posterior of the latent variables, given each of n rows.

    Returned by `PiecewiseAffineDGN.posterior`; not meant to be constructed by hand.

    Attributes
    ----------
    mean : ndarray of shape (n_samples, n_components)
        Posterior mean of the latent variables.
    covariance : ndarray of shape (n_samples, n_components, n_components)
        Posterior covariance.
    responsibilities : ndarray of shape (n_samples, n_regions)
        Posterior probability of each region of latent space.
    log_density_error : ndarray of shape (n_samples,)
        Standard error of the rows' log densities: zero for up to three latent dimensions, where
        all results are exact to rounding; for more, integrals over regions are estimates.
    """

    def __init__(self, visits: Visits, n_regions: int) -> None:
        self._visits = visits
        self._n_regions = n_regions

    def __len__(self) -> int:
        return len(self._visits.log_density)

    @cached_property
    def _rows(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Row of each visit."""
        return np.repeat(np.arange(len(self)), np.diff(self._visits.start))

    def _sum_over_regions(self, values: Floats) -> Floats:
        """Add up one value per visit to one value per row."""
        # Every row visits at least one region, as reduceat needs.
        return np.add.reduceat(values, self._visits.start[:-1], axis=0)

    @property
    def log_density_error(self) -> Floats:
        """Standard error of the log densities, (n_samples,)."""
        return self._visits.log_density_error

    @cached_property
    def mean(self) -> Floats:
        """Posterior mean, (n_samples, n_components)."""
        weights = self._visits.responsibilities[:, None]
        return self._sum_over_regions(weights * self._visits.means)

    @cached_property
    def covariance(self) -> Floats:
        """Posterior covariance, (n_samples, n_components, n_components)."""
        # Within regions plus between regions, about the mean: nothing large cancels.
        deviations = self._visits.means - self.mean[self._rows]
        weights = self._visits.responsibilities[:, None, None]
        within_and_between = (
            self._visits.covariances + deviations[:, :, None] * deviations[:, None, :]
        )
        return self._sum_over_regions(weights * within_and_between)

    @cached_property
    def responsibilities(self) -> Floats:
        """Posterior probability of each region, (n_samples, n_regions)."""
        dense = np.zeros((len(self), self._n_regions))
        dense[self._rows, self._visits.regions] = self._visits.responsibilities
        return dense

    @cached_property
    def most_responsible(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Region with the largest responsibility, (n_samples,)."""
        order = np.lexsort((-self._visits.responsibilities, self._rows))
        return self._visits.regions[order[self._visits.start[:-1]]]
