"""Visits for all rows of a table, some of which may have holes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skdgn._conditionals import Conditionals
from skdgn._incomplete_visits import IncompleteVisitor
from skdgn._missing import Integers
from skdgn._network import Floats
from skdgn._noise import Noise
from skdgn._partition import Partition
from skdgn._visits import USUAL_VISITS, Visitor, Visits

# Regions that a row may visit before a batch of such rows takes more memory than was planned for.
_MANY_VISITS = 256
# Space for visits is made in steps, and joined; rows are read, whitened, and sorted by their holes.
_COPIES_OF_VISITS = 3
_COPIES_OF_ROWS = 8


@dataclass(frozen=True)
class TableVisitor:
    """Visits complete rows the fast way and the others as their holes demand."""

    partition: Partition
    complete: Visitor

    @classmethod
    def prepare(cls, partition: Partition, noise: Noise) -> TableVisitor:
        """Compute what does not depend on the rows."""
        return cls(partition, Visitor.prepare(partition, noise))

    @cached_property
    def incomplete(self) -> IncompleteVisitor:
        """What rows with holes need."""
        return IncompleteVisitor.prepare(self.partition, self.noise, self.complete.groups)

    @property
    def noise(self) -> Noise:
        """The noise around the generator."""
        return self.complete.noise

    @property
    def conditionals(self) -> Conditionals:
        """The conditional Gaussians of complete rows."""
        return self.complete.conditionals

    @property
    def row_bytes(self) -> float:
        """Memory that a row takes while its regions are visited."""
        n_regions, n_features, n_components = self.conditionals.slopes.shape
        n_visits = max(USUAL_VISITS, min(n_regions, _MANY_VISITS))
        visit_bytes = 8.0 * (2 + n_components + n_components**2)
        return _COPIES_OF_VISITS * n_visits * visit_bytes + _COPIES_OF_ROWS * 8.0 * n_features

    def visit(self, rows: Floats) -> Visits:
        """Compute the exact posterior of rows (n, D), NaN where a value is missing."""
        has_holes = np.isnan(rows).any(axis=1)
        if not has_holes.any():
            return self.complete.visit(rows)
        if has_holes.all():
            return self.incomplete.visit(rows)
        parts = (self.complete.visit(rows[~has_holes]), self.incomplete.visit(rows[has_holes]))
        return interleave(parts, (np.flatnonzero(~has_holes), np.flatnonzero(has_holes)))


def concatenate(parts: list[Visits]) -> Visits:
    """Join the visits of consecutive batches of rows."""
    sizes = np.concatenate([np.diff(part.start) for part in parts])
    return Visits(
        log_density=np.concatenate([part.log_density for part in parts]),
        start=np.concatenate([[0], np.cumsum(sizes)]),
        regions=np.concatenate([part.regions for part in parts]),
        responsibilities=np.concatenate([part.responsibilities for part in parts]),
        means=np.concatenate([part.means for part in parts]),
        covariances=np.concatenate([part.covariances for part in parts]),
        log_density_error=np.concatenate([part.log_density_error for part in parts]),
    )


def interleave(parts: tuple[Visits, ...], rows: tuple[Integers, ...]) -> Visits:
    """Join the visits of rows that were visited apart; ``rows[i]`` are the rows of part i."""
    joined = concatenate(list(parts))
    row_order = np.argsort(np.concatenate(rows))
    sizes = np.diff(joined.start)
    owner = np.concatenate(rows).repeat(sizes)
    visit_order = np.argsort(owner, kind="stable")
    return Visits(
        log_density=joined.log_density[row_order],
        start=np.concatenate([[0], np.cumsum(sizes[row_order])]),
        regions=joined.regions[visit_order],
        responsibilities=joined.responsibilities[visit_order],
        means=joined.means[visit_order],
        covariances=joined.covariances[visit_order],
        log_density_error=joined.log_density_error[row_order],
    )
