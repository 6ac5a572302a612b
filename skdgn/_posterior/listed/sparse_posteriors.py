"""Posteriors of samples as sparse mixtures over regions: those that matter for each of them."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from skdgn._network import Codes
from skdgn._partition import add_regions
from skdgn._runtime import Floats, Integers


class Visits(NamedTuple):
    """The posterior of samples as sparse mixtures: sample n visits ``start[n]:start[n + 1]``."""

    log_density: Floats  # (n,)
    start: Integers  # (n + 1,)
    regions: Integers  # (v,)
    responsibilities: Floats  # (v,)
    means: Floats  # (v, S) of z within the region
    covariances: Floats  # (v, S, S)
    log_density_error: Floats  # (n,) standard error; 0 where integrals are exact to rounding
    # Where regions are explored: of those that are visited.  Otherwise there are none, and numbers
    # are those of the partition.
    patterns: Codes  # (R, c)
    points: Floats  # (R, S) inside


def unexplored(n_components: int) -> tuple[Codes, Floats]:
    """Patterns and points of regions that are listed, not explored: none."""
    return np.empty((0, 0), dtype=np.uint8), np.empty((0, n_components))


def concatenate(parts: list[Visits]) -> Visits:
    """Join the visits of consecutive batches of samples."""
    sizes = np.concatenate([np.diff(part.start) for part in parts])
    patterns = np.concatenate([part.patterns for part in parts])
    points = np.concatenate([part.points for part in parts])
    regions = [part.regions for part in parts]
    if len(patterns) > 0:
        # Explored anew in every part: equal ones become one.
        numbers, new = add_regions(patterns[:0], patterns)
        begins = itertools.accumulate((len(part.patterns) for part in parts), initial=0)
        regions = [numbers[begin + own] for begin, own in zip(begins, regions, strict=False)]
        patterns, points = patterns[new], points[new]
    return Visits(
        log_density=np.concatenate([part.log_density for part in parts]),
        start=np.concatenate([[0], np.cumsum(sizes)]),
        regions=np.concatenate(regions),
        responsibilities=np.concatenate([part.responsibilities for part in parts]),
        means=np.concatenate([part.means for part in parts]),
        covariances=np.concatenate([part.covariances for part in parts]),
        log_density_error=np.concatenate([part.log_density_error for part in parts]),
        patterns=patterns,
        points=points,
    )


def take_samples(visits: Visits, order: Integers) -> Visits:
    """Return the visits of these samples, in this order."""
    sizes = np.diff(visits.start)[order]
    start = np.concatenate([[0], np.cumsum(sizes)])
    members = np.arange(start[-1]) + np.repeat(visits.start[order] - start[:-1], sizes)
    return visits._replace(
        log_density=visits.log_density[order],
        start=start,
        regions=visits.regions[members],
        responsibilities=visits.responsibilities[members],
        means=visits.means[members],
        covariances=visits.covariances[members],
        log_density_error=visits.log_density_error[order],
    )
