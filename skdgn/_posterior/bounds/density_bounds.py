"""Bounds of log densities for any number of latent dimensions, by boxes that are halved.

Latent space is rotated to the axes of a sample's posterior and divided into boxes, each of which
contributes between two bounds (`skdgn._posterior.bounds.box_integrals`).  Those between whose
bounds there is most are halved, along one axis, until the sums of all bounds are close enough, or
there are boxes enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp

from skdgn._network import AffineMaps, Enclosures, Layer
from skdgn._posterior.bounds.box_integrals import bound_boxes
from skdgn._posterior.explored import Explorer, Likelihood, observed_likelihoods
from skdgn._posterior.posterior import Posterior
from skdgn._runtime import LOG_SQRT_2PI, Floats, Integers

# Boxes that are bounded for a sample, about a second's work: fewer if units, features and latent
# dimensions, multiplied, are many; unless its bounds are as close as this before.
MOST_BOXES = 30_000
_MOST_PRODUCTS = 4e8
_CLOSE = 1e-6
# The first box reaches so many standard deviations of the posterior.
_REACH = 5.0
# What is outside of all boxes is below exp(-30) of the density.
_OUTSIDE = 30.0
# Of all boxes, this share is halved at a time, and at least so many.
_HALVED, _FEWEST_HALVED = 0.1, 64
# Rounding errors of a log density, relative to 1 + its size, by which bounds are widened.
_ROUNDING = 1e-11
# Gains of more nats than this are all the same.
_LARGEST_GAIN = 500.0
# Of regions of affine layers.
_NO_CODES = np.empty((1, 0), dtype=np.uint8)


def bound_log_densities(explorer: Explorer, samples: Floats) -> Floats:
    """Bound the log densities of samples (n, D), NaN where a value is missing: (n, 2).

    Both are minus infinity where squares overflow, as estimates are.
    """
    visits = explorer.visit(samples)
    posterior = Posterior(explorer, samples, visits)
    bounds = np.full((len(samples), 2), -np.inf)
    known = np.isfinite(visits.log_density)
    for indices, observed, likelihood in observed_likelihoods(
        explorer.network, explorer.noise, samples
    ):
        search = BoundSearch(likelihood, _affordable_boxes(likelihood))
        for n, sample in zip(indices, observed, strict=True):
            if len(sample) == 0:
                bounds[n] = 0.0  # all of the prior
            elif known[n]:
                guess = visits.log_density[n], posterior.mean[n], posterior.covariance[n]
                bounds[n] = search.bound(sample, *guess)
    return bounds


def _affordable_boxes(likelihood: Likelihood) -> int:
    network = likelihood.network
    widest = max(layer.n_outputs for layer in network.layers)
    products = widest * max(1, network.n_features) * network.n_components
    return int(min(MOST_BOXES, _MOST_PRODUCTS / products))


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
        below = np.exp(np.minimum(middle - logsumexp(self.lower), _LARGEST_GAIN))
        with np.errstate(invalid="ignore"):  # of boxes without anything
            gains = above * -np.expm1(middle - self.upper) - below * np.expm1(self.lower - middle)
        return np.nan_to_num(gains)

    def halve(self, chosen: Integers) -> tuple[Floats, Floats]:
        """Halve the chosen boxes along the axis that matters most: centers and half-widths."""
        axis = np.argmax(self.scores[chosen], axis=1)
        places = np.arange(len(chosen))
        halves, centers = self.halves[chosen], self.centers[chosen]
        halves[places, axis] *= 0.5
        step = np.zeros(halves.shape)
        step[places, axis] = halves[places, axis]
        return np.concatenate([centers - step, centers + step]), np.concatenate([halves, halves])


@dataclass(frozen=True)
class BoundSearch:
    """Bounds log densities of samples in which the same features were observed."""

    likelihood: Likelihood
    most_boxes: int

    def bound(
        self, sample: Floats, log_density: float, mean: Floats, covariance: Floats
    ) -> tuple[float, float]:
        """Bound the log density of a sample (d,), from below and above.

        Its estimate, and mean and covariance of the posterior, tell where to begin; the bounds hold
        whatever they are.
        """
        variances, axes = np.linalg.eigh(covariance)
        reach = _REACH * np.sqrt(np.maximum(variances, 0.0))
        whitened = self.likelihood.noise.whiten(sample[None])[0]
        log_scale = self.likelihood.noise.log_constant
        edge = math.sqrt(2.0 * (max(log_scale - log_density, 0.0) + _OUTSIDE))
        outside = math.log(2 * len(mean)) + float(log_ndtr(-edge))
        boxes = self._bound_boxes(whitened, axes, *_first_boxes(mean @ axes, reach, edge))
        n_boxes, lower, upper = 0, -math.inf, 0.0
        while True:
            lower = max(lower, float(logsumexp(boxes.lower)))
            upper = min(upper, float(np.logaddexp(logsumexp(boxes.upper), outside)))
            if n_boxes >= self.most_boxes or upper - lower < _CLOSE:
                break
            gains = boxes.gains()
            number = min(len(gains), max(_FEWEST_HALVED, int(_HALVED * len(gains))))
            chosen = np.argpartition(-gains, number - 1)[:number]
            new = self._bound_boxes(whitened, axes, *boxes.halve(chosen))
            kept = np.ones(len(gains), dtype=bool)
            kept[chosen] = False
            boxes = _Boxes._make(
                np.concatenate([old[kept], own]) for old, own in zip(boxes, new, strict=True)
            )
            n_boxes += 2 * number
        rounding = _ROUNDING * (1.0 + abs(log_scale) + abs(lower))
        return lower + log_scale - rounding, upper + log_scale + rounding

    @cached_property
    def _split_layers(self) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
        """The layers up to the last one with kinks, and those behind it, which are affine."""
        layers = self.likelihood.network.layers
        end = max((place + 1 for place, layer in enumerate(layers) if layer.n_codes), default=0)
        return layers[:end], layers[end:]

    @cached_property
    def _tail(self) -> Floats:
        """What the layers behind the last kinks multiply by, in units of the noise: (d, u)."""
        matrix = np.eye(self.likelihood.noise.n_features)[None]
        for layer in reversed(self._split_layers[1]):
            matrix = layer.transpose(matrix, _NO_CODES)
        return np.ascontiguousarray(self.likelihood.noise.whiten_maps(matrix)[0])

    def _bound_boxes(
        self, whitened: Floats, axes: Floats, centers: Floats, halves: Floats
    ) -> _Boxes:
        """Bound what boxes along axes (S, S) contribute, relative to the noise's largest density.

        To the density of a sample (d,) in units of the noise.
        """
        noise, n_components = self.likelihood.noise, len(axes)
        bent, affine = self._split_layers
        latent = AffineMaps(axes * halves[:, None, :], centers @ axes.T)
        nothing = np.zeros(centers.shape), np.zeros(len(centers), dtype=np.intp)
        units = Enclosures(latent, *nothing)
        for layer in bent:
            units = layer.enclose(units)
        maps = units.maps
        for layer in affine:
            maps = layer.apply(maps, _NO_CODES)
        shares = np.abs(units.maps.slopes)
        shares /= np.maximum(shares.sum(axis=2, keepdims=True), np.finfo(float).tiny)
        lower, middle, upper, scores = bound_boxes(
            np.ascontiguousarray(noise.whiten_maps(np.ascontiguousarray(maps.slopes))),
            whitened - noise.whiten(maps.offsets),
            self._tail,
            units.radii,
            shares,
            centers,
            halves,
        )
        constant = n_components * LOG_SQRT_2PI
        return _Boxes(
            centers, halves, lower - constant, middle - constant, upper - constant, scores
        )


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
