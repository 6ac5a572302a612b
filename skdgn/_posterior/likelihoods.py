"""The likelihood of latent points: the generator and its noise, for the features observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._runtime import LOG_SQRT_2PI, Floats, kernel

Keys = NDArray[np.uint64]

# Numbers that are computed at a time: they stay in the processor's cache.
_NUMBERS_AT_A_TIME = 1 << 17


@dataclass(frozen=True)
class Likelihood:
    """p(x | z) of samples in which the same features were observed, and nothing but these."""

    network: Network
    noise: Noise

    @property
    def log_constant(self) -> float:
        """Log p(x | z) where the residual is zero."""
        return -self.noise.n_features * LOG_SQRT_2PI - 0.5 * self.noise.log_determinant

    def evaluate(self, rows: Floats, latent: Floats) -> tuple[Floats, Keys]:
        """Return log p(x | z) of rows (n, d) at points (n, p, S) of their own, and their keys.

        A key (n, p) tells the region of a point: a hash of its pattern.
        """
        n_rows, n_points, n_components = latent.shape
        points = latent.reshape(-1, n_components)
        log_densities, keys = np.empty(len(points)), np.zeros(len(points), dtype=np.uint64)
        widest = max(layer.n_outputs for layer in self.network.layers)
        n_part = max(64, _NUMBERS_AT_A_TIME // widest)
        for begin in range(0, len(points), n_part):
            part = slice(begin, begin + n_part)
            values = self._generate(points[part], keys[part])
            owners = np.arange(begin, min(begin + n_part, len(points))) // n_points
            residuals = self.noise.whiten(rows[owners] - values)
            with np.errstate(over="ignore"):  # so far out: a density of zero
                log_densities[part] = -0.5 * np.einsum("pd,pd->p", residuals, residuals)
        log_densities += self.log_constant
        return log_densities.reshape(n_rows, n_points), keys.reshape(n_rows, n_points)

    def _generate(self, points: Floats, keys: Keys) -> Floats:
        """Evaluate the generator at points (p, S), and fill in their keys."""
        values = points
        for layer in self.network.layers:
            if layer.n_codes:
                _add_codes(layer.codes(values), keys)
            values = layer.forward(values)
        return values

    def linearize(self, rows: Floats, latent: Floats) -> tuple[Floats, Floats, Floats]:
        """Return slopes (n, d, S) and residuals (n, d) at points (n, S), in units of the noise.

        Also log p(x, z), up to a constant.
        """
        maps = self.network.maps(self.network.patterns(latent))[-1]
        slopes = np.broadcast_to(maps.slopes, (len(latent), *maps.slopes.shape[1:]))
        residuals = self.noise.whiten(rows - self.network.forward(latent))
        return self.noise.whiten_maps(slopes), residuals, log_joint(residuals, latent)


def log_joint(residuals: Floats, latent: Floats) -> Floats:
    """Log p(x, z), up to a constant, of whitened residuals (n, d) at points (n, S)."""
    with np.errstate(over="ignore"):
        squares = np.einsum("nd,nd->n", residuals, residuals)
    return np.asarray(-0.5 * (squares + np.einsum("ns,ns->n", latent, latent)))


def observed_likelihoods(
    network: Network, noise: Noise, rows: Floats
) -> Iterator[tuple[NDArray[np.intp], Floats, Likelihood]]:
    """Split rows (n, D) by what was observed of them: indices, observed values, likelihood."""
    patterns, owner = np.unique(~np.isnan(rows), axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        indices = np.flatnonzero(owner.ravel() == number)
        if pattern.all():
            yield indices, rows[indices], Likelihood(network, noise)
        else:
            features = np.flatnonzero(pattern)
            likelihood = Likelihood(network.take_features(features), noise.restrict(features))
            yield indices, rows[np.ix_(indices, features)], likelihood


@kernel
def scramble(number: np.uint64) -> np.uint64:
    """Turn 64 bits into others that look like chance (the finalizer of splitmix64)."""
    number = number + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@kernel
def _add_codes(codes: NDArray[np.uint8], keys: Keys) -> None:
    """Mix the codes (p, c) of a layer into the keys of points."""
    for p in range(len(codes)):
        key, word = keys[p], np.uint64(0)
        for c in range(codes.shape[1]):
            # Eight at a time.
            word = (word << np.uint64(8)) | np.uint64(codes[p, c])
            if c % 8 == 7 or c == codes.shape[1] - 1:
                key = scramble(key ^ word)
                word = np.uint64(0)
        keys[p] = key
