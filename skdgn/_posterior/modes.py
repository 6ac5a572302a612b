"""The likeliest latent point, over all regions, and its limit for vanishing noise.

On region r, log p(x, z) is a constant minus

    (|x~ - b~ - P' center|^2 + |F center|^2 + |y - center|^2) / 2        with z = F y

so its maximum is at the region's point nearest to the center, in whitened coordinates: a small
quadratic program.  Facets bound that distance from below.  Regions are taken in the order of their
bounds until none can be better than the best so far: the maximum is global.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skdgn._geometry import nearest_point
from skdgn._noise import Noise
from skdgn._partition import Partition
from skdgn._posterior.listed import (
    Conditionals,
    ListedRegions,
    Observed,
    choose_frame,
    condition,
    group_by_observed,
    observed_parts,
    restrict_noise,
)
from skdgn._runtime import Floats, Integers, inlined_kernel, kernel

# Noise variance that counts as none, relative to the largest variance that the generator gives to
# any direction of the features, in units of the noise: to find the region in which the limit is.
_VANISHING = 1e-12
# With so little noise, directions that hardly change the image are known to few digits only.  So
# the point itself is found with more of it, and with a prior that follows: each step multiplies
# what the noise still changes by about this number.
_SMALL = 1e-6
_N_STEPS = 6
# Maxima of different parts whose values differ by so little, relatively, are equally high.
_ROUNDING = 1e-12


def find_modes(regions: ListedRegions, samples: Floats, zero_noise: bool) -> Floats:
    """Find the posterior's maximum for each sample (n, D), NaN where values are missing.

    With ``zero_noise``, its limit as the noise shrinks: the point whose image is nearest to the
    sample, in units of the noise, and of these that of the smallest norm.
    """
    parts = [(part, chosen) for part, chosen in regions.parts_for(samples) if chosen.size > 0]
    if len(parts) == 1:
        return _find_modes_within(parts[0][0], regions.noise, samples, zero_noise)
    modes = np.full((len(samples), regions.partition.maps.shape[2]), np.nan)
    least, least_norms = np.full((2, len(samples)), np.inf)
    for part, chosen in parts:
        found = _find_modes_within(part, regions.noise, samples[chosen], zero_noise)
        norms = np.square(found).sum(axis=1)
        values = _squared_distances(regions, samples[chosen], found)
        values = values if zero_noise else values + norms
        rounding = _ROUNDING * (1.0 + values)
        is_better = values < least[chosen] - rounding
        is_better |= (values <= least[chosen] + rounding) & (norms < least_norms[chosen])
        better = chosen[is_better]
        modes[better] = found[is_better]
        least[better], least_norms[better] = values[is_better], norms[is_better]
    return modes


def _squared_distances(regions: ListedRegions, samples: Floats, latent: Floats) -> Floats:
    """Squared distances of samples from the images of latent points, in units of the noise."""
    squares = np.full(len(samples), np.nan)
    known = np.flatnonzero(np.isfinite(latent).all(axis=1))
    residuals = samples[known] - regions.generate(latent[known])
    for indices, features in group_by_observed(residuals):
        noise = restrict_noise(regions.noise, features)
        whitened = noise.whiten(residuals[np.ix_(indices, features)])
        squares[known[indices]] = np.square(whitened).sum(axis=1)
    return squares


def _find_modes_within(
    partition: Partition, noise: Noise, samples: Floats, zero_noise: bool
) -> Floats:
    modes = np.empty((len(samples), partition.maps.shape[2]))
    for part in observed_parts(partition, noise, samples):
        found = np.empty((len(part.samples), modes.shape[1]))
        if zero_noise:
            slopes = part.noise.whiten_maps(part.partition.maps.slopes)
            scale = float(np.square(slopes).sum(axis=(1, 2)).max())
            # A constant generator says nothing about z, whatever the noise.
            scale = scale if scale > 0.0 else 1.0
            regions = _search(part, _VANISHING * scale, found)
            conditionals, whitened = _condition(part, _SMALL * scale)
            _follow(whitened, conditionals, regions, _N_STEPS, found)
        else:
            _search(part, 1.0, found)
        modes[part.indices] = found
    return modes


def _condition(part: Observed, scale: float) -> tuple[Conditionals, Floats]:
    """Conditional Gaussians, and samples, for noise with its covariance multiplied by a number."""
    noise = part.noise.rescale(np.full(max(1, part.features.size), math.sqrt(scale)))
    frame = choose_frame(part.partition.maps, noise)
    return condition(part.partition, frame), np.ascontiguousarray(frame.whiten(part.samples))


def _search(part: Observed, scale: float, found: Floats) -> Integers:
    """Fill the modes of samples; return their regions, -1 where nothing is known."""
    conditionals, whitened = _condition(part, scale)
    regions = np.empty(len(whitened), dtype=np.intp)
    _find_modes(whitened, conditionals, found, regions)
    return regions


@kernel
def _find_modes(
    samples: Floats, conditionals: Conditionals, modes: Floats, regions: Integers
) -> None:
    """Fill modes and their regions; -1 where nothing is known."""
    n_regions, n_components, _ = conditionals.projections.shape
    program = _make_program(conditionals)
    centers, squares = np.empty((n_regions, n_components)), np.empty(n_regions)
    distances, nearest = np.empty(n_regions), np.empty(n_components)
    for n in range(len(samples)):
        for r in range(n_regions):
            squares[r] = _evaluate_center(conditionals, r, samples[n], centers[r])
            distances[r] = _distance_to_region(conditionals, r, centers[r])
        best, best_region = math.inf, -1
        while True:
            smallest, region = math.inf, -1
            for r in range(n_regions):
                bound = squares[r] + distances[r] * distances[r]
                if bound < smallest:
                    smallest, region = bound, r
            if region < 0 or smallest >= best:
                break
            distance = _nearest_in_region(conditionals, region, centers[region], program)
            value = squares[region] + distance * distance
            if value < best:
                best, best_region = value, region
                for s in range(n_components):
                    nearest[s] = centers[region, s] + program.point[s]
            distances[region] = math.inf  # done
        regions[n] = best_region
        for s in range(n_components):
            # So far out that the density is not a floating-point number: nothing is known.
            modes[n, s] = 0.0 if best_region >= 0 else math.nan
            for t in range(n_components):
                if best_region >= 0:
                    modes[n, s] += conditionals.factors[best_region, s, t] * nearest[t]


@inlined_kernel
def _evaluate_center(
    conditionals: Conditionals, region: int, sample: Floats, center: Floats
) -> float:
    """Fill in a region's center, and return minus twice log p(x, z) there, but for a constant."""
    factors, projections = conditionals.factors, conditionals.projections
    for s in range(center.size):
        center[s] = 0.0
        for d in range(sample.size):
            center[s] += projections[region, s, d] * (sample[d] - conditionals.offsets[region, d])
    square = 0.0
    for s in range(center.size):
        latent = 0.0
        for t in range(center.size):
            latent += factors[region, s, t] * center[t]
        square += latent * latent
    for d in range(sample.size):
        residual = sample[d] - conditionals.offsets[region, d]
        for s in range(center.size):
            residual -= projections[region, s, d] * center[s]
        square += residual * residual
    return square


@inlined_kernel
def _distance_to_region(conditionals: Conditionals, region: int, center: Floats) -> float:
    """Bound the distance of a center from its region from below."""
    outside = 0.0
    for f in range(conditionals.facet_start[region], conditionals.facet_start[region + 1]):
        distance = conditionals.facet_offsets[f]
        for s in range(center.size):
            distance -= conditionals.facet_normals[f, s] * center[s]
        outside = max(outside, distance)
    return outside


@kernel
def _follow(
    samples: Floats, conditionals: Conditionals, regions: Integers, n_steps: int, modes: Floats
) -> None:
    """Find the modes in given regions for priors around zero, then around the last mode, ..."""
    n_components, n_features = conditionals.projections.shape[1:]
    factors, projections = conditionals.factors, conditionals.projections
    program = _make_program(conditionals)
    center, latent = np.empty(n_components), np.empty(n_components)
    for n in range(len(samples)):
        region = regions[n]
        if region < 0:
            continue
        for s in range(n_components):
            latent[s] = 0.0
        for _ in range(n_steps):
            for s in range(n_components):
                center[s] = 0.0
                for d in range(n_features):
                    residual = samples[n, d] - conditionals.offsets[region, d]
                    center[s] += projections[region, s, d] * residual
                for t in range(n_components):
                    center[s] += factors[region, t, s] * latent[t]
            _nearest_in_region(conditionals, region, center, program)
            for s in range(n_components):
                latent[s] = 0.0
                for t in range(n_components):
                    latent[s] += factors[region, s, t] * (center[t] + program.point[t])
        for s in range(n_components):
            modes[n, s] = latent[s]


class _Program(NamedTuple):
    """Buffers for the quadratic programs of any region."""

    bounds: Floats
    multipliers: Floats
    point: Floats  # (S,) the solution, relative to the center


@kernel
def _make_program(conditionals: Conditionals) -> _Program:
    """Make buffers for the region that has most facets."""
    most_facets = 0
    for r in range(len(conditionals.factors)):
        n_facets = conditionals.facet_start[r + 1] - conditionals.facet_start[r]
        most_facets = max(most_facets, n_facets)
    n_components = conditionals.factors.shape[1]
    return _Program(np.empty(most_facets), np.empty(most_facets), np.empty(n_components))


@kernel
def _nearest_in_region(
    conditionals: Conditionals, region: int, center: Floats, program: _Program
) -> float:
    """Find the region's point nearest to a center, relative to it; return its distance."""
    first, last = conditionals.facet_start[region], conditionals.facet_start[region + 1]
    bounds = program.bounds[: last - first]
    for f in range(first, last):
        bounds[f - first] = conditionals.facet_offsets[f]
        for s in range(center.size):
            bounds[f - first] -= conditionals.facet_normals[f, s] * center[s]
    return nearest_point(
        conditionals.facet_normals[first:last],
        bounds,
        math.inf,
        program.point,
        program.multipliers[: last - first],
    )
