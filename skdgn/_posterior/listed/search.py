"""Which regions may matter for a sample: one search, whatever was observed of it.

The share of region r in p(x) is its evidence times the Gaussian's mass on it, and
``log mass <= -max(0, c)^2 / 2`` with ``c`` the largest distance by which the conditional mean
lies outside a facet: a bound that costs a few products.  Groups of regions are dismissed together
where they can be.

Two questions have two answers each: how far a sample is from a group of regions, and what the
Gaussian of a region is.  For a complete sample all of it was prepared
(`skdgn._posterior.listed.region_groups`, `skdgn._posterior.listed.conditionals`); with missing
values it depends on which features were observed, and is computed when it is needed
(`skdgn._posterior.listed.latent_boxes`, `skdgn._posterior.listed.incomplete_conditionals`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skdgn._noise import NoiseUnits, Observation
from skdgn._posterior.listed.conditionals import Conditionals
from skdgn._posterior.listed.incomplete_conditionals import (
    ObservedSample,
    RegionMaps,
    condition_region,
)
from skdgn._posterior.listed.latent_boxes import Boxes, bound_box, bound_correlated
from skdgn._posterior.listed.region_groups import ROUNDING, Groups
from skdgn._runtime import Floats, Integers, kernel, sum_kernel

# With a bound this near to the largest possible one, it does not matter where to search next.
_NEAR = 20.0
# Bounds and shares count as large within this distance of the largest one, of their sum.
LARGE = 3.0


class CompleteRegions(NamedTuple):
    """The regions as complete samples see them."""

    conditionals: Conditionals
    groups: Groups
    cells: Any  # whitened


class ObservedRegions(NamedTuple):
    """The regions as samples with missing values see them."""

    units: NoiseUnits
    maps: RegionMaps
    boxes: Boxes
    cells: Any  # whitened with identity matrices


class Regions(NamedTuple):
    """All that is known of the regions before a sample is."""

    complete: CompleteRegions
    observed: ObservedRegions  # without entries if all samples are complete


class Candidates(NamedTuple):
    """Regions that may matter for a sample, and groups where there may be more of them."""

    regions: Integers
    evidences: Floats  # logs
    bounds: Floats  # on the log shares
    factors: Floats  # (k, S, S) of the conditional covariances, unless the sample is complete
    centers: Floats  # (k, S) whitened conditional means
    order: Integers  # in which they are visited
    nodes: Integers
    node_bounds: Floats
    residuals: Floats  # (D,) buffer


def make_candidates(
    n_regions: int, n_components: int, n_features: int, n_leaves: int
) -> Candidates:
    """Make room for all regions."""
    return Candidates(
        np.empty(n_regions, dtype=np.intp),
        np.empty(n_regions),
        np.empty(n_regions),
        np.empty((n_regions, n_components, n_components)),
        np.empty((n_regions, n_components)),
        np.empty(n_regions, dtype=np.intp),
        np.empty(2 * n_leaves, dtype=np.intp),
        np.empty(2 * n_leaves),
        np.empty(n_features),
    )


@sum_kernel
def search(
    whitened: Floats,
    is_complete: bool,
    observation: Observation,
    sample: ObservedSample,
    log_constant: float,
    axes: Any,
    conditionals: Conditionals,
    groups: Groups,
    maps: RegionMaps,
    boxes: Boxes,
    lowest: float,
    below: float,
    margin: float,
    candidates: Candidates,
) -> tuple[int, float]:
    """Find the regions whose bound lies in a range.

    Parameters
    ----------
    whitened : ndarray of shape (D,)
        The sample in units of the noise, if it is complete.
    is_complete : bool
    observation, sample : Observation, ObservedSample
        What was observed of it otherwise.
    log_constant : float
        Largest log density that its noise can have.
    axes : tuple or ndarray of length S
    conditionals, groups : Conditionals, Groups
        The regions as complete samples see them.
    maps, boxes : RegionMaps, Boxes
        The regions as samples with missing values see them.
    lowest, below : float
        Regions have ``lowest <= bound < below``.
    margin : float
        As larger bounds are found, ``lowest`` is raised to this distance from them.
    candidates : Candidates
        Filled with these regions, and maybe with others of smaller bounds.

    Returns
    -------
    n_candidates : int
    lowest : float

    Notes
    -----
    The bound of a region is the smallest of all that may dismiss it: its own, and those of the
    groups it belongs to.  So what one search leaves out is below its ``lowest``, and the next finds
    it.
    """
    # --- Arrays at hand.
    n_leaves, start, members = groups.n_leaves, groups.start, groups.regions
    node_centers, node_axes, widths = groups.centers, groups.axes, groups.widths
    radii, squares = groups.radii, groups.squares
    projections, factors = conditionals.projections, conditionals.factors
    offsets, log_constants = conditionals.offsets, conditionals.log_constants
    facet_start, normals = conditionals.facet_start, conditionals.facet_normals
    facet_offsets = conditionals.facet_offsets
    facets = maps.facets
    found, evidences, bounds = candidates.regions, candidates.evidences, candidates.bounds
    found_factors, centers = candidates.factors, candidates.centers
    nodes, node_bounds = candidates.nodes, candidates.node_bounds
    residuals = candidates.residuals

    # --- Groups, from the one of all regions down to the smallest.
    n_candidates = 0
    n_nodes = 1
    nodes[0], node_bounds[0] = 1, log_constant
    # Nodes are kept in a heap, that of the largest bound first, until a large bound has been found.
    is_heap = True
    while n_nodes > 0:
        # --- The next group: that of the largest bound, or the last one.
        n_nodes -= 1
        node, upper = nodes[n_nodes], node_bounds[n_nodes]
        if is_heap:
            last, last_bound = node, upper
            node, upper = nodes[0], node_bounds[0]
            hole, k = 0, 1
            while k < n_nodes:
                if k + 1 < n_nodes and node_bounds[k + 1] > node_bounds[k]:
                    k += 1
                if node_bounds[k] <= last_bound:
                    break
                nodes[hole], node_bounds[hole] = nodes[k], node_bounds[k]
                hole, k = k, 2 * k + 1
            nodes[hole], node_bounds[hole] = last, last_bound
        if upper < lowest:
            continue

        if node < n_leaves:
            # --- Its halves, unless their bounds dismiss them.
            for child in range(2 * node, 2 * node + 2):
                if is_complete:
                    square = 0.0
                    for d in range(whitened.size):
                        difference = whitened[d] - node_centers[child, d]
                        square += difference * difference
                    # Squared distance from the box: along its axes and across them.
                    distance = -ROUNDING * square
                    across = square
                    for s in range(len(axes)):
                        along = 0.0
                        for d in range(whitened.size):
                            along += (whitened[d] - node_centers[child, d]) * node_axes[child, s, d]
                        across -= along * along
                        outside = max(0.0, abs(along) - widths[child, s])
                        distance += outside * outside
                    outside = max(0.0, math.sqrt(max(0.0, across)) - radii[child])
                    distance = min(distance + outside * outside, squares[child])
                else:
                    distance = bound_box(boxes, child, observation, sample.scaled)
                bound = min(upper, log_constant - 0.5 * distance)
                if bound >= lowest:
                    hole = n_nodes
                    while is_heap and hole > 0 and node_bounds[(hole - 1) // 2] < bound:
                        k = (hole - 1) // 2
                        nodes[hole], node_bounds[hole] = nodes[k], node_bounds[k]
                        hole = k
                    nodes[hole], node_bounds[hole] = child, bound
                    n_nodes += 1
            continue

        # --- Or its regions.
        for i in range(start[node - n_leaves], start[node - n_leaves + 1]):
            region = members[i]
            bound = upper
            outside = 0.0  # the square of the distance
            # Evidence, conditional mean, and how far this is outside the region.
            if is_complete:
                for d in range(whitened.size):
                    residuals[d] = whitened[d] - offsets[region, d]
                for s in range(len(axes)):
                    mean = 0.0
                    for d in range(whitened.size):
                        mean += projections[region, s, d] * residuals[d]
                    centers[n_candidates, s] = mean
                square = 0.0
                for s in range(len(axes)):
                    mean = 0.0
                    for t in range(len(axes)):
                        mean += factors[region, s, t] * centers[n_candidates, t]
                    square += mean * mean
                for d in range(whitened.size):
                    residual = residuals[d]
                    for s in range(len(axes)):
                        residual -= projections[region, s, d] * centers[n_candidates, s]
                    square += residual * residual
                evidence = log_constants[region] - 0.5 * square
                if evidence < lowest:
                    continue
                for f in range(facet_start[region], facet_start[region + 1]):
                    distance = facet_offsets[f]
                    for s in range(len(axes)):
                        distance -= normals[f, s] * centers[n_candidates, s]
                    if distance > 0.0:
                        outside = max(outside, distance * distance)
            else:
                distance = bound_box(boxes, 2 * n_leaves + region, observation, sample.scaled)
                bound = min(upper, log_constant - 0.5 * distance)
                if bound < lowest:
                    continue
                if observation.is_dense:
                    distance = bound_correlated(boxes, 2 * n_leaves + region, observation, sample)
                    bound = min(bound, log_constant - 0.5 * distance)
                    if bound < lowest:
                        continue
                factor, center = found_factors[n_candidates], centers[n_candidates]
                evidence = condition_region(region, axes, maps, observation, sample, factor, center)
                if evidence < lowest:
                    continue
                for f in range(facets.start[region], facets.start[region + 1]):
                    distance = facets.offsets[f]
                    square = 0.0
                    for t in range(len(axes)):
                        normal = 0.0
                        for s in range(len(axes)):
                            normal += factor[s, t] * facets.normals[f, s]
                        distance -= normal * center[t]
                        square += normal * normal
                    if distance > 0.0:
                        outside = max(outside, distance * distance / square)
            bound = min(bound, evidence - 0.5 * outside)
            if lowest <= bound < below:
                found[n_candidates] = region
                evidences[n_candidates] = evidence
                bounds[n_candidates] = bound
                n_candidates += 1
                lowest = max(lowest, bound - margin)
                is_heap = is_heap and bound < log_constant - _NEAR
    return n_candidates, lowest


@kernel
def sort_candidates(candidates: Candidates, n_candidates: int, lowest: float) -> int:
    """List candidates, large bounds first: the others are then compared with most of the sum."""
    bounds, order = candidates.bounds, candidates.order
    largest = -math.inf
    for k in range(n_candidates):
        largest = max(largest, bounds[k])
    n_listed = 0
    for k in range(n_candidates):
        if bounds[k] >= largest - LARGE:
            order[n_listed] = k
            # The very first is the likeliest.
            if bounds[k] == largest:
                order[0], order[n_listed] = k, order[0]
            n_listed += 1
    for k in range(n_candidates):
        if lowest <= bounds[k] < largest - LARGE:
            order[n_listed] = k
            n_listed += 1
    return n_listed
