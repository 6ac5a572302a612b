"""Bounds of log densities for any number of latent dimensions, by boxes that are halved.

Latent space is rotated to the axes of a sample's posterior and divided into boxes, each of which
contributes between two bounds (`skdgn._posterior.box_integrals`).  Those between whose bounds there
is most are halved, along one axis, until the sums of all bounds are close enough, or there are
boxes enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from skdgn._network import AffineMaps, Enclosures, Layer, Network
from skdgn._posterior.box_integrals import bound_boxes
from skdgn._posterior.likelihoods import Likelihood
from skdgn._runtime import LOG_SQRT_2PI, Floats

Integers = NDArray[np.intp]

# Boxes that are bounded for a sample, unless its bounds are as close as this before.
MOST_BOXES = 20_000
_CLOSE = 1e-6
# The first box reaches so many standard deviations of the posterior.
_REACH = 5.0
# What is outside of all boxes is below exp(-30) of the density.
_OUTSIDE = 30.0
# Of all boxes, this share is halved at a time, and at least so many.
_HALVED, _FEWEST_HALVED = 0.1, 64
# Rounding errors of a log density, relative to 1 + its size, by which bounds are widened.
_ROUNDING = 1e-11


class _Boxes(NamedTuple):
    """Boxes in rotated latent space, and what is known of them."""

    centers: Floats  # (b, S)
    halves: Floats  # (b, S) half of their widths
    lower: Floats  # (b,) bounds of the log of what they contribute
    middle: Floats  # (b,) without what is unknown
    upper: Floats  # (b,)
    scores: Floats  # (b, S): what there is to gain along each axis

    def gains(self) -> Floats:
        """By how much the sums' bounds could come closer to each other, if those of a box did."""
        middle = np.clip(self.middle, self.lower, self.upper)
        above = np.exp(self.upper - logsumexp(self.upper))
        above *= -np.expm1(middle - self.upper)
        below = np.exp(middle - logsumexp(self.lower)) * -np.expm1(self.lower - middle)
        return np.asarray(above + below)


@dataclass(frozen=True)
class BoundSearch:
    """Bounds log densities of samples in which the same features were observed."""

    likelihood: Likelihood
    most_boxes: int = MOST_BOXES

    def bound(
        self, row: Floats, log_density: float, mean: Floats, covariance: Floats
    ) -> tuple[float, float]:
        """Bound the log density of a sample (d,), from below and above.

        Its estimate, and mean and covariance of the posterior, tell where to begin; the bounds hold
        whatever they are.
        """
        variances, axes = np.linalg.eigh(covariance)
        sample = _Sample(self, self.likelihood.noise.whiten(row[None])[0], axes)
        drop = max(self.likelihood.log_constant - log_density, 0.0)
        edge = math.sqrt(2.0 * (drop + _OUTSIDE))
        n_components = len(mean)
        outside = math.log(2 * n_components) + float(log_ndtr(-edge))
        deviations = np.sqrt(np.maximum(variances, 1e-300))
        boxes = sample.enclose(*_first_boxes(mean @ axes, _REACH * deviations, edge))
        n_boxes, best = 0, (-math.inf, math.inf)
        while True:
            lower = float(logsumexp(boxes.lower))
            upper = float(np.logaddexp(logsumexp(boxes.upper), outside))
            best = max(best[0], lower), min(best[1], upper)
            if n_boxes >= self.most_boxes or best[1] - best[0] < _CLOSE:
                break
            gains = boxes.gains()
            number = min(len(gains), max(_FEWEST_HALVED, int(_HALVED * len(gains))))
            chosen = np.argpartition(-gains, number - 1)[:number]
            new = sample.enclose(*_halve(boxes, chosen))
            kept = np.ones(len(gains), dtype=bool)
            kept[chosen] = False
            boxes = _Boxes._make(
                np.concatenate([old[kept], own]) for old, own in zip(boxes, new, strict=True)
            )
            n_boxes += 2 * number
        log_scale = self.likelihood.log_constant
        rounding = _ROUNDING * (1.0 + abs(best[0] + log_scale))
        return best[0] + log_scale - rounding, best[1] + log_scale + rounding

    @cached_property
    def _split_layers(self) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """The layers up to the last one with kinks, and those behind it, which are affine."""
        layers = self.likelihood.network.layers
        end = max((place + 1 for place, layer in enumerate(layers) if layer.n_codes), default=0)
        return layers[:end], layers[end:]

    @cached_property
    def _tail(self) -> Floats:
        """What the layers behind the last kinks multiply by, in units of the noise: (d, u)."""
        no_codes = np.empty((1, 0), dtype=np.uint8)
        matrix = np.eye(self.likelihood.noise.n_features)[None]
        for layer in reversed(self._split_layers[1]):
            matrix = layer.transpose(matrix, no_codes)
        return np.ascontiguousarray(self.likelihood.noise.whiten_maps(matrix)[0])

    def enclose(self, latent: Enclosures) -> tuple[Enclosures, AffineMaps]:
        """Enclose the units behind the last kinks, and apply what follows to their maps."""
        bent, affine = self._split_layers
        enclosures = latent
        for layer in bent:
            enclosures = layer.enclose(enclosures)
        maps = enclosures.maps
        for layer in affine:
            maps = layer.apply(maps, np.empty((1, 0), dtype=np.uint8))
        return enclosures, maps


@dataclass(frozen=True)
class _Sample:
    """A sample, in units of the noise, and the axes (S, S) of its boxes."""

    search: BoundSearch
    whitened: Floats
    axes: Floats

    def enclose(self, centers: Floats, halves: Floats) -> _Boxes:
        """Bound what boxes contribute, relative to the largest density of the noise."""
        noise, n_components = self.search.likelihood.noise, centers.shape[1]
        latent = AffineMaps(self.axes * halves[:, None, :], centers @ self.axes.T)
        nothing = np.zeros(centers.shape), np.zeros(len(centers), dtype=np.intp)
        enclosures, maps = self.search.enclose(Enclosures(latent, *nothing))
        shares = np.abs(enclosures.maps.slopes)
        with np.errstate(invalid="ignore"):
            shares = np.nan_to_num(shares / shares.sum(axis=2, keepdims=True))
        lower, middle, upper, scores = bound_boxes(
            np.ascontiguousarray(noise.whiten_maps(np.ascontiguousarray(maps.slopes))),
            self.whitened - noise.whiten(maps.offsets),
            self.search._tail,
            enclosures.radii,
            shares,
            centers,
            halves,
        )
        constant = n_components * LOG_SQRT_2PI
        logs = (bound - constant for bound in (lower, middle, upper))
        return _Boxes(centers, halves, *logs, scores)


def _first_boxes(mean: Floats, reach: Floats, edge: float) -> tuple[Floats, Floats]:
    """Divide the cube that reaches to an edge into a box around the mean, and boxes around that."""
    low, high = np.full(len(mean), -edge), np.full(len(mean), edge)
    boxes = []
    for axis in np.argsort(reach):
        for side in (-1.0, 1.0):
            cut = min(max(mean[axis] + side * reach[axis], low[axis]), high[axis])
            beyond_low, beyond_high = low.copy(), high.copy()
            (beyond_low if side > 0.0 else beyond_high)[axis] = cut
            (high if side > 0.0 else low)[axis] = cut
            boxes.append((beyond_low, beyond_high))
    boxes.append((low, high))
    lows, highs = (np.array(ends) for ends in zip(*boxes, strict=True))
    used = np.all(highs > lows, axis=1)
    return 0.5 * (lows + highs)[used], 0.5 * (highs - lows)[used]


def _halve(boxes: _Boxes, chosen: Integers) -> tuple[Floats, Floats]:
    """Halve the chosen boxes along the axis that matters most."""
    axis = np.argmax(boxes.scores[chosen], axis=1)
    places = np.arange(len(chosen))
    halves, centers = boxes.halves[chosen], boxes.centers[chosen]
    halves[places, axis] *= 0.5
    step = np.zeros(halves.shape)
    step[places, axis] = halves[places, axis]
    return np.concatenate([centers - step, centers + step]), np.concatenate([halves, halves])
