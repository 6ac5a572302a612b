"""The Gaussian integrals over the regions that matter for a sample.

Regions found by the search are visited, large bounds first, unless the bound is below rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skdgn._geometry import (
    MOST_EXACT_DIMENSIONS,
    CellIntegrals,
    integrate_cell_with_error,
    integrate_gaussian,
    integrate_interval,
    make_room,
    whiten_cell,
)
from skdgn._noise import Noise, NoiseUnits, Observation, make_observation, observe
from skdgn._partition import Partition, gather
from skdgn._posterior.listed.conditionals import Conditionals, condition
from skdgn._posterior.listed.frames import Frame, choose_frame
from skdgn._posterior.listed.incomplete_conditionals import (
    ObservedSample,
    RegionMaps,
    condition_region,
    make_sample,
    scale_sample,
)
from skdgn._posterior.listed.latent_boxes import enclose_regions, no_boxes
from skdgn._posterior.listed.listed_regions import ListedRegions
from skdgn._posterior.listed.region_groups import group_regions
from skdgn._posterior.listed.search import (
    LARGE,
    Candidates,
    CompleteRegions,
    ObservedRegions,
    Regions,
    make_candidates,
    search,
    sort_candidates,
)
from skdgn._posterior.listed.sparse_posteriors import Visits, unexplored
from skdgn._runtime import Bools, Floats, Integers, kernel, sum_kernel

# Regions whose share is at most exp(-37) = 9e-17 of the density are not visited.
NEGLIGIBLE = 37.0
# Regions are searched down to this distance from the largest bound.  The bound may exceed the
# density, for far outliers by thousands: then again, each time down to twice the distance.
_SEARCH_MARGIN = NEGLIGIBLE + 4.0
# Error allowed to one region's share, relative to the density.  Where integrals are estimates,
# the largest shares are known to two or three digits, and the others need not be known better.
_LOG_SHARE_ERROR = math.log(1e-14)
_LOG_ESTIMATED_SHARE_ERROR = math.log(1e-5)
# Absolute error of a prior mass.
_LOG_WEIGHT_ERROR = math.log(1e-14)
# Error allowed to the first estimate of a share, relative to its bound, and the smallest to trust.
_LOG_ESTIMATE_ERROR = math.log(1e-3)
_LOG_SMALLEST_ESTIMATE = math.log(3e-2)
# Logs as large as this have no digits left for errors of shares.
_COARSE_LOGS = -1e12
# Space for so many visits per sample is made at first.
_USUAL_VISITS = 16
# Regions that a sample may visit before a batch of such samples takes more memory than was planned
# for.
_MANY_VISITS = 256
# Space for visits is made in steps, and joined; samples are read and whitened.
_COPIES_OF_VISITS = 3
_COPIES_OF_SAMPLES = 8
# A kernel cannot be interrupted.  So it is given space for so many visits at first, and for more as
# long as it takes fewer seconds than this.
_FIRST_VISITS = 1024
_SECONDS_AT_A_TIME = 0.1


class _IncompleteBuffers(NamedTuple):
    """Arrays that are filled for each sample with missing values anew."""

    observation: Observation
    sample: ObservedSample
    room: Any  # for a cell to be whitened

    @classmethod
    def make(cls, regions: ObservedRegions, n_components: int) -> _IncompleteBuffers:
        """Make room for the largest."""
        return cls(
            make_observation(regions.units),
            make_sample(n_components, regions.units.deviations.size),
            make_room(regions.cells),
        )


class _Buffers(NamedTuple):
    """Arrays that are filled for each sample anew."""

    candidates: Candidates
    incomplete: _IncompleteBuffers
    center: Floats  # (S,)
    mean: Floats  # (S,)
    covariance: Floats  # (S, S)
    errors: Floats  # (R,) relative, of the sample's visits

    @classmethod
    def make(
        cls, regions: CompleteRegions, incomplete: _IncompleteBuffers, n_components: int
    ) -> _Buffers:
        """Make room for the largest."""
        n_regions, n_whitened = regions.conditionals.offsets.shape
        return cls(
            make_candidates(n_regions, n_components, n_whitened, regions.groups.n_leaves),
            incomplete,
            np.empty(n_components),
            np.empty(n_components),
            np.empty((n_components, n_components)),
            np.empty(n_regions),
        )


@dataclass(frozen=True)
class Visitor(ListedRegions):
    """All that is needed to visit the regions of a partition under a noise."""

    partition: Partition
    noise: Noise
    frame: Frame  # in which complete samples are compared with regions
    complete: CompleteRegions

    @classmethod
    def prepare(cls, partition: Partition, noise: Noise, in_groups: bool = True) -> Visitor:
        """Compute what does not depend on the samples.

        For few samples, it takes longer to group regions than to look at each of them.
        """
        frame = choose_frame(partition.maps, noise)
        conditionals = condition(partition, frame)
        groups = group_regions(partition, frame, in_groups)
        whitened_cells = partition.cells.whiten(conditionals.factors)
        return cls(partition, noise, frame, CompleteRegions(conditionals, groups, whitened_cells))

    @property
    def parts(self) -> tuple[Partition]:
        """All regions together."""
        return (self.partition,)

    def parts_for(self, samples: Floats) -> Iterator[tuple[Partition, Integers]]:
        """Yield all regions, for all samples (n, D)."""
        yield self.partition, np.arange(len(samples))

    def generate(self, latent: Floats) -> Floats:
        """Return the images (m, D) of latent points (m, S)."""
        maps = self.partition.maps.take(self.find_regions(latent))
        return maps.offsets + np.einsum("mds,ms->md", maps.slopes, latent)

    def with_noise(self, noise: Noise) -> Visitor:
        """Return the same with other noise."""
        return Visitor.prepare(self.partition, noise)

    @cached_property
    def incomplete(self) -> ObservedRegions:
        """What samples with missing values need, whatever these are."""
        maps, units = self.region_maps, self.units
        boxes = enclose_regions(self.partition, maps, self.complete.groups, units)
        return ObservedRegions(units, maps, boxes, self.cells)

    @cached_property
    def _none_incomplete(self) -> ObservedRegions:
        """The same, of no region: where all samples are complete, nobody looks."""
        maps = RegionMaps(
            np.empty((0, *self.partition.maps.shape[1:])),
            np.empty((0, self.noise.n_features)),
            self.partition.cells.facets(),
        )
        return ObservedRegions(
            NoiseUnits.for_nobody(self.noise.n_features),
            maps,
            no_boxes(self.noise.n_features),
            self.complete.cells,
        )

    @cached_property
    def _buffers_of_nobody(self) -> _IncompleteBuffers:
        """What is not filled where all samples are complete: made once, threads may share it."""
        return _IncompleteBuffers.make(self._none_incomplete, self.frame.shape[2])

    @cached_property
    def prior(self) -> CellIntegrals:
        """Integrals of the prior over the regions."""
        n_components = self.partition.maps.shape[2]
        return integrate_gaussian(
            self.partition.cells, np.zeros(n_components), np.eye(n_components), _LOG_WEIGHT_ERROR
        )

    @property
    def conditionals(self) -> Conditionals:
        """The conditional Gaussians of complete samples."""
        return self.complete.conditionals

    @property
    def sample_bytes(self) -> float:
        """Memory that a sample takes while its regions are visited."""
        n_regions, n_features, n_components = self.partition.maps.shape
        n_visits = max(_USUAL_VISITS, min(n_regions, _MANY_VISITS))
        visit_bytes = 8.0 * (2 + n_components + n_components**2)
        return _COPIES_OF_VISITS * n_visits * visit_bytes + _COPIES_OF_SAMPLES * 8.0 * n_features

    def visit(
        self, samples: Floats, prepared: bool = True, log_floors: Floats | None = None
    ) -> Visits:
        """Compute the exact posterior of samples (n, D), NaN where a value is missing.

        Complete samples may be treated as if they were not, for comparison: what was prepared for
        them is then not used.

        If these are not all regions that matter, log densities may be known from below (n,).
        Shares that do not count beside them need not be known; where none counts, nothing is.
        """
        samples = np.ascontiguousarray(samples)
        missing = np.isnan(samples)
        n_regions, _, n_components = self.partition.maps.shape
        is_complete = np.full(len(samples), prepared)
        if prepared and not missing.any():
            whitened = self.frame.whiten(samples)
            # (A single region may also be a box that was cut out of latent space.)
            if n_regions == 1 and self.conditionals.facet_offsets.size == 0:
                return _visit_whole_space(self.conditionals, whitened)
            if n_components == 1 and self.complete.groups.n_leaves == 1:
                return _visit_few_intervals(self.complete, whitened)
            observed, own_buffers = self._none_incomplete, self._buffers_of_nobody
        else:
            whitened = np.full((len(samples), self.frame.shape[1]), np.nan)
            observed = self.incomplete
            own_buffers = _IncompleteBuffers.make(observed, n_components)
            is_complete &= ~missing.any(axis=1)
            whitened[is_complete] = self.frame.whiten(samples[is_complete])
        is_part = log_floors is not None
        if log_floors is None:
            log_floors = np.full(len(samples), -np.inf)
        regions = Regions(self.complete, observed)
        axes, log_share_error = loop_settings(n_components)
        buffers = _Buffers.make(self.complete, own_buffers, n_components)
        visits = _collect_visits(
            lambda first, visits: _visit_samples(
                samples,
                np.ascontiguousarray(whitened),
                is_complete,
                axes,
                regions,
                log_share_error,
                log_floors,
                first,
                buffers,
                visits,
            ),
            len(samples),
            n_regions,
            n_components,
        )
        if is_part:
            return visits
        # Nothing observed: the prior masses sum to one, but for rounding.
        is_empty = missing.all(axis=1)
        visits.log_density[is_empty] = 0.0
        visits.log_density_error[is_empty] = 0.0
        return visits

    def condition(self, samples: Floats, visits: Visits) -> tuple[Floats, Floats]:
        """Compute the conditional Gaussian of every visit: factors (v, S, S), centers (v, S).

        Truncated to its region, N(factor @ center, factor @ factor') is the posterior there.
        """
        if not np.isnan(samples).any():
            return self._condition_complete(samples, visits)
        n_components = visits.means.shape[1]
        factors = np.empty((len(visits.regions), n_components, n_components))
        centers = np.empty((len(visits.regions), n_components))
        _condition_visits(
            np.ascontiguousarray(samples),
            loop_settings(n_components)[0],
            self.units,
            self.region_maps,
            make_observation(self.units),
            make_sample(n_components, samples.shape[1]),
            visits.start,
            visits.regions,
            factors,
            centers,
        )
        return factors, centers

    def _condition_complete(self, samples: Floats, visits: Visits) -> tuple[Floats, Floats]:
        """Read off what was prepared."""
        offsets, projections = self.conditionals.offsets, self.conditionals.projections
        whitened = self.frame.whiten(samples)
        owner = np.repeat(np.arange(len(samples)), np.diff(visits.start))

        def compute(part: slice) -> tuple[Floats, ...]:
            regions = visits.regions[part]
            residuals = whitened[owner[part]] - offsets[regions]
            return (np.einsum("vsd,vd->vs", projections[regions], residuals),)

        (centers,) = gather(len(owner), compute)
        return self.conditionals.factors[visits.regions], centers


def _visit_whole_space(conditionals: Conditionals, whitened: Floats) -> Visits:
    """Visit the only region there is: the model is a Gaussian."""
    factor, projection = conditionals.factors[0], conditionals.projections[0]
    residuals = whitened - conditionals.offsets[0]
    with np.errstate(over="ignore", invalid="ignore"):  # so far out that the density is zero
        centers = residuals @ projection.T
        means = centers @ factor.T
        residuals -= centers @ projection
        squares = np.einsum("nd,nd->n", residuals, residuals) + np.einsum("ns,ns->n", means, means)
    squares[np.isnan(squares)] = np.inf
    n_samples = len(whitened)
    log_density = conditionals.log_constants[0] - 0.5 * squares
    return Visits(
        log_density,
        np.arange(n_samples + 1),
        np.zeros(n_samples, dtype=np.intp),
        np.ones(n_samples),
        means,
        np.full((n_samples, *factor.shape), factor @ factor.T),
        np.zeros(n_samples),
        *unexplored(len(factor)),
    )


def _visit_few_intervals(regions: CompleteRegions, whitened: Floats) -> Visits:
    """Visit intervals so few that there is nothing to search for."""
    n_samples, n_regions = len(whitened), len(regions.conditionals.offsets)
    start, log_density = np.zeros(n_samples + 1, dtype=np.intp), np.empty(n_samples)
    visited = np.empty(n_samples * n_regions, dtype=np.intp)
    shares, means, variances = np.empty((3, n_samples * n_regions))
    n_visits = _fill_few_intervals(
        whitened, regions, log_density, start, visited, shares, means, variances
    )
    return Visits(
        log_density,
        start,
        visited[:n_visits],
        shares[:n_visits],
        means[:n_visits, None],
        variances[:n_visits, None, None],
        np.zeros(n_samples),
        *unexplored(1),
    )


@kernel
def normalize_shares(shares: Floats, begin: int, end: int) -> float:
    """Turn log shares into responsibilities; return the log of their sum.

    They are summed relative to the largest: a log density of -1e11 has no digits left for
    their differences.
    """
    largest = -math.inf
    for v in range(begin, end):
        largest = max(largest, shares[v])
    total = 0.0
    for v in range(begin, end):
        shares[v] = math.exp(shares[v] - largest) if shares[v] < largest else 1.0
        total += shares[v]
    for v in range(begin, end):
        shares[v] /= total
    return largest + math.log(total)


@sum_kernel
def _fill_few_intervals(
    whitened: Floats,
    regions: CompleteRegions,
    log_density: Floats,
    start: Integers,
    visited: Integers,
    shares: Floats,
    means: Floats,
    variances: Floats,
) -> int:
    offsets, projections = regions.conditionals.offsets, regions.conditionals.projections
    log_constants, deviations = regions.conditionals.log_constants, regions.cells.deviations
    lower, upper = regions.cells.lower, regions.cells.upper
    n_regions, n_features = offsets.shape
    centers, evidences, bounds = np.empty(n_regions), np.empty(n_regions), np.empty(n_regions)
    n_visits = 0
    for n in range(len(whitened)):
        best, largest = 0, -math.inf
        for r in range(n_regions):
            center = 0.0
            for d in range(n_features):
                center += projections[r, 0, d] * (whitened[n, d] - offsets[r, d])
            latent = deviations[r] * center
            square = latent * latent
            for d in range(n_features):
                residual = whitened[n, d] - offsets[r, d] - projections[r, 0, d] * center
                square += residual * residual
            outside = max(0.0, lower[r] - center, center - upper[r])
            centers[r], evidences[r] = center, log_constants[r] - 0.5 * square
            bounds[r] = evidences[r] - 0.5 * outside * outside
            if bounds[r] > largest:
                best, largest = r, bounds[r]
        # The likeliest first: the others are compared with it.
        n_before, log_total = n_visits, -math.inf
        for i in range(-1, n_regions if largest > -math.inf else -1):
            r = best if i < 0 else i
            if i == best or not bounds[r] >= log_total - NEGLIGIBLE:
                continue
            log_tolerance = _LOG_SHARE_ERROR + log_total - evidences[r]
            log_mass, mean, variance = integrate_interval(
                lower[r], upper[r], centers[r], log_tolerance
            )
            if log_mass > -math.inf:
                visited[n_visits] = r
                shares[n_visits] = evidences[r] + log_mass
                means[n_visits] = deviations[r] * mean
                variances[n_visits] = deviations[r] * deviations[r] * variance
                log_total = max(log_total, shares[n_visits])
                n_visits += 1
        if n_visits == n_before:
            # So far out that the log density is not a floating-point number: nothing is known.
            visited[n_visits], shares[n_visits] = 0, -math.inf
            means[n_visits], variances[n_visits] = math.nan, math.nan
            n_visits += 1
        log_density[n] = normalize_shares(shares, n_before, n_visits)
        start[n + 1] = n_visits
    return n_visits


def loop_settings(n_components: int) -> tuple[Any, float]:
    """Return what kernels loop over, and the log error allowed to one region's share."""
    # The length of a tuple is known to the compiler, which unrolls loops over it.  That of an
    # array is not: one compiled function does for all dimensions whose integrals take longer.
    if n_components > MOST_EXACT_DIMENSIONS:
        return np.arange(n_components), _LOG_ESTIMATED_SHARE_ERROR
    return tuple(range(n_components)), _LOG_SHARE_ERROR


def _collect_visits(
    visit: Callable[[int, Visits], int], n_samples: int, n_regions: int, n_components: int
) -> Visits:
    """Make space for the visits of all samples and have it filled.

    ``visit(first, visits)`` fills in the visits of samples from the first on while there is space
    for one per region, and returns the number of the sample to go on with.
    """
    log_density, log_density_error = np.empty(n_samples), np.empty(n_samples)
    start = np.zeros(n_samples + 1, dtype=np.intp)
    chunks: list[tuple[Any, ...]] = []
    n_done, most_visits = 0, _FIRST_VISITS
    while n_done < n_samples or not chunks:
        # The number of visits is not known: when these arrays are full, go on in new ones.
        n_expected = (_USUAL_VISITS << len(chunks)) * (n_samples - n_done)
        capacity = min(n_expected, most_visits) + n_regions
        chunk = (
            np.empty(capacity, dtype=np.intp),
            np.empty(capacity),
            np.empty((capacity, n_components)),
            np.empty((capacity, n_components, n_components)),
        )
        n_before, began = n_done, time.perf_counter()
        own = Visits(log_density, start, *chunk, log_density_error, *unexplored(n_components))
        n_done = visit(n_before, own)
        if time.perf_counter() - began < _SECONDS_AT_A_TIME:
            most_visits *= 4
        n_visits = start[n_done] - start[n_before]
        chunks.append(tuple(array[:n_visits] for array in chunk))
    regions, responsibilities, means, covariances = (
        np.concatenate(arrays) for arrays in zip(*chunks, strict=True)
    )
    return Visits(
        log_density,
        start,
        regions,
        responsibilities,
        means,
        covariances,
        log_density_error,
        *unexplored(n_components),
    )


@kernel
def _condition_visits(
    samples: Floats,
    axes: Any,
    units: NoiseUnits,
    maps: RegionMaps,
    observation: Observation,
    sample: ObservedSample,
    start: Integers,
    regions: Integers,
    factors: Floats,
    centers: Floats,
) -> None:
    for n in range(len(samples)):
        observe(samples[n], units, observation)
        scale_sample(samples[n], units, observation, sample)
        for v in range(start[n], start[n + 1]):
            condition_region(regions[v], axes, maps, observation, sample, factors[v], centers[v])


@kernel
def _visit_samples(
    samples: Floats,
    whitened: Floats,
    is_complete: Bools,
    axes: Any,
    regions: Regions,
    log_share_error: float,
    log_floors: Floats,
    first: int,
    buffers: _Buffers,
    visits: Visits,
) -> int:
    """Fill in the visits of samples, beginning with the first, until there might be too many.

    Returns the number of the sample to go on with.  Only ``start`` and ``log_density`` have entries
    for samples before the first.
    """
    # --- Arrays at hand.
    n_regions = len(regions.complete.conditionals.offsets)
    candidates, (observation, sample, room) = buffers.candidates, buffers.incomplete
    center, mean, covariance = buffers.center, buffers.mean, buffers.covariance
    errors = buffers.errors
    conditionals, groups = regions.complete.conditionals, regions.complete.groups
    units, maps, boxes = regions.observed.units, regions.observed.maps, regions.observed.boxes
    found, factors, centers = candidates.regions, candidates.factors, candidates.centers
    bounds, evidences, order = candidates.bounds, candidates.evidences, candidates.order
    log_density, start, visited = visits.log_density, visits.start, visits.regions
    shares, means, covariances = visits.responsibilities, visits.means, visits.covariances

    # --- Sample by sample: what was observed of it.
    n_visits = 0
    n = first
    while n < len(samples) and n_visits + n_regions <= len(visited):
        cells, log_constant = regions.complete.cells, regions.complete.groups.log_constant
        if not is_complete[n]:
            observe(samples[n], units, observation)
            scale_sample(samples[n], units, observation, sample)
            log_constant, cells = observation.log_constant[0], room
        n_before = n_visits
        log_total, log_sum = log_floors[n], -math.inf
        lowest, below, margin = log_total - NEGLIGIBLE, math.inf, _SEARCH_MARGIN
        while True:
            # --- Which regions may matter.
            n_candidates, lowest = search(
                whitened[n],
                is_complete[n],
                observation,
                sample,
                log_constant,
                axes,
                conditionals,
                groups,
                maps,
                boxes,
                lowest,
                below,
                margin,
                candidates,
            )
            n_candidates = sort_candidates(candidates, n_candidates, lowest)
            if n_candidates == 0 or bounds[order[0]] == -math.inf:
                break

            # --- Their integrals, as exact as their share of the density asks for.
            for i in range(n_candidates):
                k = order[i]
                if bounds[k] < log_total - NEGLIGIBLE:
                    continue
                region = found[k]
                if not is_complete[n]:
                    whiten_cell(regions.observed.cells, region, factors[k], cells)
                    region = 0
                for s in range(len(axes)):
                    center[s] = centers[k, s]
                log_bound = bounds[k] - evidences[k]
                log_tolerance = log_share_error + log_total - evidences[k]
                is_estimate = log_total == -math.inf
                if is_estimate:  # of the first region's share, to about two digits
                    log_tolerance = log_bound + _LOG_ESTIMATE_ERROR
                if bounds[k] < _COARSE_LOGS:
                    log_tolerance, is_estimate = -math.inf, False
                while True:
                    log_mass, error = integrate_cell_with_error(
                        cells, region, center, log_tolerance, mean, covariance
                    )
                    if not is_estimate:
                        break
                    is_estimate = False
                    if log_mass >= log_bound + _LOG_SMALLEST_ESTIMATE:
                        log_total = evidences[k] + log_mass
                        log_tolerance = log_share_error + log_total - evidences[k]
                    else:  # too small to be trusted: once more, with all digits
                        log_tolerance = -math.inf
                if log_mass == -math.inf:
                    continue
                share = evidences[k] + log_mass
                visited[n_visits] = found[k]
                shares[n_visits] = share
                errors[n_visits - n_before] = error
                for s in range(len(axes)):
                    means[n_visits, s] = mean[s]
                    for t in range(len(axes)):
                        covariances[n_visits, s, t] = covariance[s, t]
                n_visits += 1
                # The sum is for comparison only: small shares need not be added.
                if share > log_sum - LARGE:
                    largest = max(share, log_sum)
                    log_sum = largest + math.log1p(math.exp(min(share, log_sum) - largest))
                    log_total = max(log_total, log_sum)

            # --- Whether others may matter as well.
            if not lowest > log_total - NEGLIGIBLE:
                break
            # The largest bound exceeded the density by far: search again for what seemed too small.
            lowest, below, margin = log_total - NEGLIGIBLE, lowest, 2.0 * margin
        if n_visits == n_before:
            # So far out that the log density is not a floating-point number, or does not count.
            visited[n_visits] = 0
            shares[n_visits] = -math.inf
            errors[0] = 0.0
            for s in range(len(axes)):
                means[n_visits, s] = math.nan
                for t in range(len(axes)):
                    covariances[n_visits, s, t] = math.nan
            n_visits += 1

        # --- The sample's density, and its error.
        log_density[n] = normalize_shares(shares, n_before, n_visits)
        # Points differ from region to region, hence errors are independent.
        square = 0.0
        for v in range(n_before, n_visits):
            share_error = shares[v] * errors[v - n_before]
            square += share_error * share_error
        visits.log_density_error[n] = math.sqrt(square)
        start[n + 1] = start[n] + n_visits - n_before
        n += 1
    return n
