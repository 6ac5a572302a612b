"""Which boxes of latent space matter for samples, where regions are too many to list them.

Beginning with one box for every orthant, large enough to hold all that counts, boxes are halved
until few boundaries cross them.  On the way, the generator is enclosed on every box: affine, but
for a remainder.  With the whitened image of a box at least ``d`` away from a sample,

    int_box N(z; 0, I) N(x; g(z), N) dz <= P(box) max N e^(-d^2 / 2),

and a box of which this is below the tolerance is dropped: it is part of the *rest*.  What is left
is cut into regions and integrated exactly.  Everything about a box is shared by all samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp

from skdgn._network import Enclosures, Network
from skdgn._noise import Noise
from skdgn._partition import LatentBoxes, enclose_outputs, join_boxes
from skdgn._posterior.listed import Gaussians
from skdgn._runtime import Bools, Floats, Integers

# Of all boxes of one width, those that contribute the least are dropped as long as that is at most
# exp(-26) = 5e-12 of a sample's density.  What is outside of all boxes is less.
_DROPPED = 26.0
_OUTSIDE = 50.0
# A Gaussian has 1e-14 of its mass outside of so many standard deviations.
_REACH = 7.7
# Boxes crossed by so many boundaries are not halved any more, for one, two and three dimensions:
# they have some hundred regions, as quickly listed as any.  Nor are boxes of this width, where
# boundaries meet in one point.
_FEW_CUTS = (256, 70, 16)
_SMALLEST_HALF = 2.0**-24
_SMALL_HALF = 0.25
# No more boxes are halved once there are so many.
MOST_BOXES = 100_000
# Points drawn from the prior; the one whose image is nearest to a sample is where a first, small
# box is put, to know how much is little.
_N_POINTS = 2048
_FIRST_HALF = 2.0**-6
# Numbers that are compared at a time, and that enclosures take for a unit and a box.
_NUMBERS_AT_A_TIME = 1 << 20
_NUMBERS_PER_UNIT = 32


class Exploration(NamedTuple):
    """Boxes that matter for some of n samples, and how much of each density is elsewhere."""

    boxes: LatentBoxes  # of b boxes, neighbors next to each other
    matters: Bools  # (n, b)
    log_rest: Floats  # (n,): upper bound of the log density from outside of them
    # (n,): what it is at least, but for far less than what is negligible beside it.
    log_lower: Floats


class BoxBounds(NamedTuple):
    """What boxes contribute to the log density of samples: (n, b) each.

    The upper bound is one; the lower one only serves to tell how much is little.
    """

    lower: Floats
    upper: Floats
    n_cuts: Integers  # (b,)


@dataclass(frozen=True)
class BoxExplorer:
    """Some samples (n, D), NaN where a value is missing, ready to be compared with boxes."""

    network: Network
    noise: Noise
    samples: Floats

    def bound(self, boxes: LatentBoxes, matters: Bools) -> BoxBounds:
        """Bound what boxes contribute to the log density of samples for which they matter (n, b).

        The bounds of others are those of boxes that contribute nothing.
        """
        lower, upper = np.full(matters.shape, -np.inf), np.full(matters.shape, -np.inf)
        n_cuts = np.empty(matters.shape[1], dtype=np.intp)
        log_masses = boxes.log_masses()
        largest = max(layer.n_outputs for layer in self.network.layers)
        size = max(1, _NUMBERS_AT_A_TIME // (largest * _NUMBERS_PER_UNIT))
        for begin in range(0, len(n_cuts), size):
            part = np.arange(begin, min(begin + size, len(n_cuts)))
            enclosures = enclose_outputs(self.network, boxes.take(part))
            n_cuts[part] = enclosures.n_cuts
            for group in self._groups:
                places = np.flatnonzero(matters[np.ix_(group.indices, part)].any(axis=1))
                n_features = max(1, group.features.size)
                n_together = max(1, _NUMBERS_AT_A_TIME // (n_features * len(part)))
                for first in range(0, len(places), n_together):
                    own = places[first : first + n_together]
                    nearest, farthest = group.distances(own, enclosures, boxes.take(part))
                    log_scale, pairs = group.log_constant + log_masses[part], group.indices[own]
                    with np.errstate(over="ignore"):
                        lower[np.ix_(pairs, part)] = log_scale - 0.5 * farthest**2
                        upper[np.ix_(pairs, part)] = log_scale - 0.5 * nearest**2
        return BoxBounds(lower, upper, n_cuts)

    @cached_property
    def _groups(self) -> list[_Group]:
        """Samples of which the same features were observed."""
        patterns, owner = np.unique(~np.isnan(self.samples), axis=0, return_inverse=True)
        groups = []
        for number, pattern in enumerate(patterns):
            indices, features = np.flatnonzero(owner.ravel() == number), np.flatnonzero(pattern)
            noise = self.noise if pattern.all() else self.noise.restrict(features)
            whitened = noise.whiten(self.samples[np.ix_(indices, features)])
            sizes = np.abs(noise.whiten(np.eye(features.size)))
            if np.count_nonzero(sizes) == features.size:
                sizes = np.diagonal(sizes)
            groups.append(_Group(indices, features, noise, whitened, sizes))
        return groups

    def first_boxes(self) -> LatentBoxes:
        """Return a small box for every sample, around the best of some points."""
        n_components = self.network.n_components
        points = np.random.default_rng(0).standard_normal((_N_POINTS, n_components))
        images = self.network.forward(points)
        centers = np.empty((len(self.samples), n_components))
        for group in self._groups:
            whitened = group.noise.whiten(images[:, group.features])
            products = group.whitened @ whitened.T
            squares = np.square(whitened).sum(axis=1) + np.square(points).sum(axis=1)
            centers[group.indices] = points[np.argmin(squares - 2.0 * products, axis=1)]
        return LatentBoxes(centers, np.full(len(centers), _FIRST_HALF))

    def explore(
        self,
        few_cuts: int | None = None,
        most_boxes: int = MOST_BOXES,
        gaussians: Gaussians | None = None,
    ) -> Exploration:
        """Find the boxes that matter: for the samples' posteriors and, if given, for Gaussians."""
        n_components = self.network.n_components
        few_cuts = _FEW_CUTS[n_components - 1] if few_cuts is None else few_cuts
        log_lower = self._first_lower_bounds()
        log_heights = np.empty(len(self.samples))
        for group in self._groups:
            log_heights[group.indices] = group.log_constant
        reach = _root(log_heights - log_lower, gaussians)
        log_rest = log_heights + math.log(2 * n_components) + log_ndtr(-reach)
        boxes = LatentBoxes(np.zeros((1, n_components)), np.array([reach])).divide()
        matters = np.ones((len(self.samples), len(boxes.halves)), dtype=bool)
        leaves, leaf_matters, n_boxes = [], [], 0
        while len(boxes.halves) > 0:
            bounds = self.bound(boxes, matters)
            below = np.full(len(self.samples), -np.inf)
            log_lower = np.maximum(log_lower, _add(below, bounds.lower, matters))
            dropped = _find_negligible(bounds.upper, matters, log_lower - _DROPPED)
            if gaussians is not None:
                dropped &= ~_reached(boxes, gaussians)
            kept: Bools = matters & ~dropped
            log_rest = _add(log_rest, bounds.upper, matters & ~kept)
            used = kept.any(axis=0)
            n_boxes += len(boxes.halves)
            small = (bounds.n_cuts <= few_cuts) | (boxes.halves <= _SMALLEST_HALF)
            leaf, divided = np.flatnonzero(used & small), np.flatnonzero(used & ~small)
            leaves.append(boxes.take(leaf))
            leaf_matters.append(kept[:, leaf])
            if n_boxes + (len(divided) << n_components) > most_boxes:
                log_rest = _add(log_rest, bounds.upper[:, divided], kept[:, divided])
                break
            boxes = boxes.take(divided).divide()
            matters = np.repeat(kept[:, divided], 1 << n_components, axis=1)
        found = join_boxes(leaves)
        order = _along_a_curve(found)
        matters = np.concatenate(leaf_matters, axis=1)[:, order]
        return Exploration(found.take(order), matters, log_rest, log_lower)

    def _first_lower_bounds(self) -> Floats:
        every = np.eye(len(self.samples), dtype=bool)
        bounds = self.bound(self.first_boxes(), every)
        return np.asarray(np.diagonal(bounds.lower))


class _Group(NamedTuple):
    """Samples of which the same features were observed, in units of the noise."""

    indices: Integers
    features: Integers
    noise: Noise
    whitened: Floats  # (k, d)
    sizes: Floats  # of the entries of the matrix that whitens: (d, d), or (d,) if it is diagonal

    @property
    def log_constant(self) -> float:
        """Log of the largest density of the noise."""
        n_features = self.features.size
        return -0.5 * (n_features * math.log(2.0 * math.pi) + self.noise.log_determinant)

    def distances(
        self, places: Integers, outputs: Enclosures, boxes: LatentBoxes
    ) -> tuple[Floats, Floats]:
        """Bound the distances of some samples (k,) from the images of boxes: (k, b) each.

        From below; from above, the root of the mean square under the prior will do, by Jensen's
        inequality, which is nearly known if a box is small.
        """
        features = self.features
        slopes = self.noise.whiten_maps(np.ascontiguousarray(outputs.maps.slopes[:, features]))
        offsets = self.noise.whiten(outputs.maps.offsets[:, features])
        radii = outputs.radii[:, features]
        radii = radii * self.sizes if self.sizes.ndim == 1 else radii @ self.sizes
        remainder = np.sqrt(np.square(radii).sum(axis=1))
        # Along the directions of the slopes, and across all of them.
        basis, triangles = np.linalg.qr(slopes)
        reach = np.abs(triangles).sum(axis=2)  # (b, S)
        residuals = self.whitened[places] - offsets[:, None]  # (b, k, d)
        along = residuals @ basis  # (b, k, S)
        spread = np.abs(slopes).sum(axis=2) + radii
        apart = np.square(np.maximum(np.abs(residuals) - spread[:, None], 0.0)).sum(axis=2)
        residuals -= along @ np.swapaxes(basis, 1, 2)
        across = np.square(residuals).sum(axis=2)
        inner = across + np.square(np.maximum(np.abs(along) - reach[:, None], 0.0)).sum(axis=2)
        means, variances = _moments_within(boxes)
        outer = np.square(along - np.einsum("bts,bs->bt", triangles, means)[:, None]).sum(axis=2)
        outer += across + np.einsum("bts,bs->b", triangles**2, variances)[:, None]
        largest = across + np.square(np.abs(along) + reach[:, None]).sum(axis=2)
        outer = np.where(boxes.halves[:, None] <= _SMALL_HALF, outer, largest)
        nearest = np.maximum(np.sqrt(inner) - remainder[:, None], 0.0)
        nearest = np.maximum(nearest, np.sqrt(apart))
        return nearest.T, (np.sqrt(outer) + remainder[:, None]).T


def _moments_within(boxes: LatentBoxes) -> tuple[Floats, Floats]:
    """Means and variances of the prior on small boxes, in coordinates from -1 to 1: (b, S) each."""
    # Its density is exponential there, but for factors near one.
    steepness = np.maximum(np.abs(boxes.halves[:, None] * boxes.centers), 1e-3)
    means = 1.0 / np.tanh(steepness) - 1.0 / steepness
    variances = 1.0 - 2.0 * means / steepness - means**2
    return -np.sign(boxes.centers) * means, np.clip(variances, 0.0, 1.0 / 3.0)


def _root(log_drops: Floats, gaussians: Gaussians | None) -> float:
    """Half of the width of a box outside of which nothing matters: a power of two."""
    finite = log_drops[np.isfinite(log_drops)]
    reach = math.sqrt(2.0 * (max(0.0, finite.max(initial=0.0)) + _OUTSIDE))
    if gaussians is not None:
        means, factors = gaussians
        deviations = np.sqrt(np.square(factors).sum(axis=2))
        reach = max(reach, float((np.abs(means) + _REACH * deviations).max()))
    return 2.0 ** math.ceil(math.log2(reach))


def _reached(boxes: LatentBoxes, gaussians: Gaussians) -> Bools:
    """Tell which boxes hold some of each Gaussian: (n, b)."""
    means, factors = gaussians
    deviations = np.sqrt(np.square(factors).sum(axis=2))
    apart = np.abs(boxes.centers - means[:, None]) - boxes.halves[:, None]
    reached: Bools = np.all(apart <= _REACH * deviations[:, None], axis=2)
    return reached


def _add(log_sums: Floats, terms: Floats, chosen: Bools) -> Floats:
    """Add the chosen terms (n, b), all of them logs, to sums (n,)."""
    if terms.shape[1] == 0:
        return log_sums
    sums: Floats = logsumexp(np.where(chosen, terms, -np.inf), axis=1)
    return np.logaddexp(log_sums, sums)


def _find_negligible(terms: Floats, chosen: Bools, log_limits: Floats) -> Bools:
    """Find the smallest of the chosen terms (n, b), all of them logs, that sum to the limits."""
    terms = np.where(chosen, terms, -np.inf)
    order = np.argsort(terms, axis=1)
    sums = np.logaddexp.accumulate(np.take_along_axis(terms, order, axis=1), axis=1)
    negligible = np.empty(terms.shape, dtype=bool)
    np.put_along_axis(negligible, order, sums <= log_limits[:, None], axis=1)
    return negligible


def _along_a_curve(boxes: LatentBoxes) -> Integers:
    """Sort boxes such that neighbors are next to each other: by the bits of their centers."""
    if len(boxes.halves) == 0:
        return np.zeros(0, dtype=np.intp)
    span = np.abs(boxes.centers).max() + boxes.halves.max()
    steps = ((boxes.centers / span + 1.0) * 2.0**19).astype(np.int64)
    n_components = boxes.centers.shape[1]
    keys = np.zeros(len(steps), dtype=np.int64)
    for bit in range(20):
        for axis in range(n_components):
            keys |= ((steps[:, axis] >> bit) & 1) << (bit * n_components + axis)
    return np.argsort(keys, kind="stable")
