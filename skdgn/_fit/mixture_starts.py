"""Where a mixture of networks begins: from the Gaussians of a Gaussian mixture.

A Gaussian N(m, C) is a network of any size, exactly: C = A A' + N with N positive definite, and a
map through hidden layers may be linear (`write_linear_network`).  So the likelihood of the start is
that of the Gaussian mixture, and the first steps bend its components.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.special
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from skdgn._fit.noise_priors import NoisePrior
from skdgn._network import Activation, Network
from skdgn._noise import Noise, bound_below
from skdgn._runtime import Floats

# Share of the variance along the leading directions of a full covariance that the latent variables
# take over; the noise keeps the rest.
_EXPLAINED = 0.9
# A kink so far out that a standard normal variable does not get there.
_FAR_OUT = 12.0
_FACTOR_ITERATIONS = 20


@dataclass(frozen=True)
class Gaussians:
    """Moments of the components of a mixture."""

    counts: Floats  # (K,) weights of their samples
    means: Floats  # (K, D)
    covariances: Floats  # (K, D, D)

    @classmethod
    def of(cls, samples: Floats, responsibilities: Floats) -> Gaussians:
        """Moments of complete samples (n, D), by weighted responsibilities (n, K)."""
        counts = responsibilities.sum(axis=0)
        means, covariances = [], []
        for share, count in zip(responsibilities.T, counts, strict=True):
            if count == 0.0:
                # Nobody's: a component for what is far from all others.
                share, count = responsibilities.sum(axis=1), responsibilities.sum()
            mean = share @ samples / count
            deviations = samples - mean
            scatter = (share[:, None] * deviations).T @ deviations
            means.append(mean)
            covariances.append(scatter / count)
        return cls(counts, np.array(means), np.array(covariances))

    def join(self, prior: NoisePrior) -> Gaussians:
        """Add the samples of a prior to the covariances."""
        counts = self.counts[:, None, None]
        sums = counts * self.covariances + prior.weight * prior.covariance
        # A component without samples keeps the covariance it was given.
        more = np.where(counts > 0.0, counts + prior.weight, 1.0)
        return replace(self, covariances=np.where(counts > 0.0, sums / more, self.covariances))


def find_responsibilities(
    samples: Floats,
    sample_weights: Floats,
    n_networks: int,
    method: str,
    covariance_type: str,
    reg_covar: float,
    generator: np.random.Generator,
) -> Floats:
    """Share complete samples (n, D) among components, (n, K), times their weights."""
    seed = int(generator.integers(2**31 - 1))
    if method == "random":
        chosen = generator.choice(len(samples), n_networks, replace=False)
        labels = _nearest(samples, samples[chosen])
        return _one_hot(labels, n_networks) * sample_weights[:, None]
    # Samples are NumPy's here, whatever they were: other arrays cannot start from k-means.
    with config_context(array_api_dispatch=False), warnings.catch_warnings():
        # Fewer clusters than asked for, or more iterations: it is a start, and EM goes on.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if method == "gaussian_mixture":
            counts = sample_weights.astype(np.intp)  # whole numbers
            mixture = GaussianMixture(
                n_networks,
                covariance_type=covariance_type,
                reg_covar=reg_covar,
                random_state=seed,
            ).fit(np.repeat(samples, counts, axis=0))
            return np.asarray(mixture.predict_proba(samples) * sample_weights[:, None])
        means = KMeans(n_networks, n_init=1, random_state=seed)
        labels = means.fit(samples, sample_weight=sample_weights).labels_
    return _one_hot(labels, n_networks) * sample_weights[:, None]


def _nearest(samples: Floats, centers: Floats) -> NDArray[np.intp]:
    squares = (centers**2).sum(axis=1) - 2.0 * samples @ centers.T
    return np.asarray(squares.argmin(axis=1))


def _one_hot(labels: NDArray[np.intp], n_networks: int) -> Floats:
    return np.asarray(np.eye(n_networks)[labels])


def make_networks(
    gaussians: Gaussians,
    n_components: int,
    hidden_layer_sizes: Sequence[int],
    activation: Activation,
    covariance_type: str,
    floors: Floats,
) -> list[tuple[Network, Noise]]:
    """Write each Gaussian as a network of this size with its noise.

    Full noise: exactly.  Otherwise the noise is that of a factor analysis of the covariance, at
    least as likely as a Gaussian without covariances.
    """
    parts = []
    for mean, covariance in zip(gaussians.means, gaussians.covariances, strict=True):
        covariance = bound_below(covariance, floors)
        if covariance_type == "full":
            # Without a hidden layer EM would be slower with a latent variable, for nothing.
            slopes = np.zeros((len(mean), n_components))
            if hidden_layer_sizes:
                slopes = split_covariance(covariance, n_components, floors)
            noise = covariance - slopes @ slopes.T
        else:
            slopes, noise = analyze_factors(
                covariance, n_components, covariance_type == "spherical", floors
            )
        network = write_linear_network(slopes, mean, hidden_layer_sizes, activation)
        parts.append((network, Noise.from_covariance(noise, len(mean))))
    return parts


def split_covariance(covariance: Floats, n_components: int, floors: Floats) -> Floats:
    """Return slopes A (D, S) along the leading directions, such that C - A A' is a noise."""
    values, vectors = np.linalg.eigh(covariance)
    slopes = np.zeros((len(covariance), n_components))
    for component in range(min(n_components, len(values))):
        direction, value = vectors[:, -1 - component], values[-1 - component]
        # What is left along it is not below the floors; whether all of it is not, is checked below.
        explained = min(_EXPLAINED * value, value - float(direction**2 @ floors))
        slopes[:, component] = np.sqrt(max(explained, 0.0)) * direction
    units = np.sqrt(floors)
    while True:
        noise = (covariance - slopes @ slopes.T) / np.outer(units, units)
        # Raised to 1 before; rounding may have taken a little away.
        if np.linalg.eigvalsh(noise)[0] >= 1.0 - 1e-9 or not slopes.any():
            return slopes
        slopes = 0.5 * slopes if np.abs(slopes).max() > 1e-6 else 0.0 * slopes


def analyze_factors(
    covariance: Floats, n_components: int, is_spherical: bool, floors: Floats
) -> tuple[Floats, Floats]:
    """Fit slopes (D, S) and variances of the noise, () or (D,), to a covariance matrix."""

    def restrict(variances: Floats) -> Floats:
        if is_spherical:
            return bound_below(variances.mean(), floors)
        return bound_below(variances, floors)

    n_features = len(covariance)
    diagonal = np.diagonal(covariance)
    values, vectors = np.linalg.eigh(covariance)
    kept = min(n_components, n_features)
    rest = values[:-kept].mean() if kept < n_features else 0.5 * values[0]
    slopes = np.zeros((n_features, n_components))
    signal = np.sqrt(np.maximum(values[::-1][:kept] - rest, 0.0))
    slopes[:, :kept] = vectors[:, ::-1][:, :kept] * signal
    noise = restrict(diagonal - (slopes**2).sum(axis=1))
    for _ in range(_FACTOR_ITERATIONS):
        scaled = slopes / np.broadcast_to(noise, n_features)[:, None]
        spread = np.linalg.inv(np.eye(n_components) + slopes.T @ scaled)
        cross = covariance @ scaled @ spread  # E[x z']
        second = spread + (scaled @ spread).T @ cross
        slopes = np.linalg.solve(second, cross.T).T
        noise = restrict(diagonal - (slopes * cross).sum(axis=1))
    plain = np.zeros_like(slopes), restrict(diagonal)
    fitted = slopes, noise
    return max(fitted, plain, key=lambda parts: _log_likelihood(covariance, *parts))


def _log_likelihood(covariance: Floats, slopes: Floats, noise: Floats) -> float:
    """Expected log density of samples with this covariance, but for a constant."""
    model = slopes @ slopes.T + np.diag(np.broadcast_to(noise, len(covariance)))
    _, log_determinant = np.linalg.slogdet(model)
    return float(-0.5 * (log_determinant + np.trace(np.linalg.solve(model, covariance))))


def write_linear_network(
    slopes: Floats, mean: Floats, hidden_layer_sizes: Sequence[int], activation: Activation
) -> Network:
    """Return a network with these hidden layers that equals ``slopes @ z + mean``.

    In every hidden layer two units with opposite signs carry each latent dimension: if ``f`` has
    the slope a below zero, ``f(t) - f(-t) = (1 + a) t``.  Where there are not enough units for
    that, or a = -1, one unit does it whose kink is far out.  All others have their kinks at
    quantiles of the latent variables and no output yet.
    """
    n_components = slopes.shape[1]
    # Rows that read z from the values before a layer: z = reading @ values + shift.
    reading, shift = np.eye(n_components), np.zeros(n_components)
    coefs, intercepts = [], []
    for width in hidden_layer_sizes:
        in_pairs = width >= 2 * n_components and activation.negative_slope != -1.0
        per_component = 2 if in_pairs else 1
        n_carried = min(n_components, width // per_component)
        directions = np.zeros((width, n_components))
        kinks = np.zeros(width)
        carried = np.arange(n_carried)
        next_reading, next_shift = np.zeros((n_components, width)), np.zeros(n_components)
        if in_pairs:
            directions[2 * carried, carried] = 1.0
            directions[2 * carried + 1, carried] = -1.0
            next_reading[carried, 2 * carried] = 1.0 / (1.0 + activation.negative_slope)
            next_reading[carried, 2 * carried + 1] = -1.0 / (1.0 + activation.negative_slope)
        else:
            directions[carried, carried] = 1.0
            kinks[:n_carried] = -_FAR_OUT
            next_reading[carried, carried] = 1.0
            next_shift[:n_carried] = -_FAR_OUT
        rest = np.arange(per_component * n_carried, width)
        quantiles = _spread_quantiles(len(rest), skip_middle=in_pairs)
        for place, unit in enumerate(rest):
            # Directions take turns, and so do signs once every direction had its turn.
            sign = -1.0 if (place // n_components) % 2 else 1.0
            directions[unit, place % n_components] = sign
            kinks[unit] = quantiles[place]
        coefs.append(directions @ reading)
        intercepts.append(directions @ shift - kinks)
        reading, shift = next_reading, next_shift
    coefs.append(slopes @ reading)
    intercepts.append(slopes @ shift + mean)
    return Network(tuple(coefs), tuple(intercepts), activation)


def _spread_quantiles(n_units: int, skip_middle: bool) -> Floats:
    """Quantiles of a standard normal variable for the kinks of units, alternating outwards."""
    n_places = n_units + 1 if skip_middle else n_units
    levels = (np.arange(n_places) + 1.0) / (n_places + 1.0)
    levels = levels[np.argsort(np.abs(levels - 0.5), kind="stable")]
    return np.asarray(scipy.special.ndtri(levels[n_places - n_units :]))
