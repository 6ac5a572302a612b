"""The likelihood of latent points: the generator and its noise, for the features observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._partition import Keys, add_codes
from skdgn._runtime import Floats, Integers, split_by_pattern, sum_kernel

# Numbers that are computed at a time: they stay in the processor's cache.
_NUMBERS_AT_A_TIME = 1 << 17


@dataclass(frozen=True)
class Likelihood:
    """p(x | z) of samples in which the same features were observed, and nothing but these."""

    network: Network
    noise: Noise

    def evaluate(self, samples: Floats, latent: Floats) -> tuple[Floats, Keys]:
        """Return log p(x | z) of samples (n, d) at points (S, n p) of their own, and their keys.

        A key (n, p) tells the region of a point: a hash of its pattern.
        """
        n_all = latent.shape[1]
        n_points = n_all // max(1, len(samples))
        squares, keys = np.empty(n_all), np.zeros(n_all, dtype=np.uint64)
        whitened = self.noise.whiten(samples)
        widest = max(layer.n_outputs for layer in self.network.layers)
        n_part = max(64, _NUMBERS_AT_A_TIME // widest)
        for begin in range(0, n_all, n_part):
            part = slice(begin, begin + n_part)
            values = self._generate(latent[:, part].T, keys[part])
            _square_distances(whitened, self.noise.whiten(values), begin, n_points, squares)
        log_densities = self.noise.log_constant - 0.5 * squares
        return log_densities.reshape(len(samples), n_points), keys.reshape(len(samples), n_points)

    def locate(self, points: Floats) -> Keys:
        """Return the keys (p,) of the regions of points (p, S)."""
        keys = np.zeros(len(points), dtype=np.uint64)
        self._generate(points, keys)
        return keys

    def _generate(self, points: Floats, keys: Keys) -> Floats:
        """Evaluate the generator at points (p, S), and fill in their keys."""
        values = points
        for layer in self.network.layers:
            if layer.n_codes:
                add_codes(layer.codes(values), keys)
            values = layer.forward(values)
        return values

    def linearize(self, samples: Floats, latent: Floats) -> tuple[Floats, Floats, Floats]:
        """Return slopes (n, d, S) and residuals (n, d) at points (n, S), in units of the noise.

        Also log p(x, z), up to a constant.
        """
        maps = self.network.maps(self.network.patterns(latent))[-1]
        slopes = np.broadcast_to(maps.slopes, (len(latent), *maps.slopes.shape[1:]))
        images = (slopes @ latent[:, :, None])[:, :, 0] + maps.offsets
        residuals = self.noise.whiten(samples - images)
        with np.errstate(over="ignore"):
            squares = np.einsum("nd,nd->n", residuals, residuals)
        heights = -0.5 * (squares + np.einsum("ns,ns->n", latent, latent))
        return np.ascontiguousarray(self.noise.whiten_maps(slopes)), residuals, heights


def observed_likelihoods(
    network: Network, noise: Noise, samples: Floats
) -> Iterator[tuple[Integers, Floats, Likelihood]]:
    """Split samples (n, D) by what was observed of them: indices, observed values, likelihood."""
    for indices, features in split_by_pattern(samples):
        if features.size == samples.shape[1]:
            yield indices, samples[indices], Likelihood(network, noise)
        else:
            likelihood = Likelihood(network.take_features(features), noise.restrict(features))
            yield indices, samples[np.ix_(indices, features)], likelihood


@sum_kernel
def _square_distances(
    samples: Floats, images: Floats, begin: int, n_points: int, squares: Floats
) -> None:
    """Fill in squared distances of images (p, d) of points from their samples (n, d)."""
    for p in range(len(images)):
        n, square = (begin + p) // n_points, 0.0
        for d in range(images.shape[1]):
            distance = samples[n, d] - images[p, d]
            square += distance * distance
        squares[begin + p] = square
