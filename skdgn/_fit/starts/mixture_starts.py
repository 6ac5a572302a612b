"""Where a mixture of networks begins: from the Gaussians of a Gaussian mixture.

A Gaussian N(m, C) is a network of any size, exactly: C = A A' + N with N positive definite, and a
map through hidden layers may be linear (`skdgn._fit.starts.growth`).  So the likelihood of the
start is that of the Gaussian mixture, and the first steps bend its components.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from skdgn._fit.m_step import NoisePrior
from skdgn._fit.starts.any_layers import fit_linear_map
from skdgn._fit.starts.growth import write_linear_network
from skdgn._network import Architecture, Network
from skdgn._noise import KINDS, Covariance, Noise, OfSamples, Sum
from skdgn._runtime import Floats, Integers


@dataclass(frozen=True)
class Gaussians:
    """Moments of the components of a mixture."""

    counts: Floats  # (K,) weights of their samples
    means: Floats  # (K, D)
    covariances: Sequence[Covariance]

    @classmethod
    def of(cls, samples: Floats, responsibilities: Floats) -> Gaussians:
        """Moments of complete samples (n, D), by weighted responsibilities (n, K)."""
        counts = responsibilities.sum(axis=0)
        means, covariances = [], []
        for share, count in zip(responsibilities.T, counts, strict=True):
            if count == 0.0:
                # Nobody's: a component for what is far from all others.
                share, count = responsibilities.sum(axis=1), responsibilities.sum()
            chosen = share > 0.0
            mean = share @ samples / count
            means.append(mean)
            covariances.append(OfSamples(samples[chosen] - mean, share[chosen] / count))
        return cls(counts, np.array(means), covariances)

    def tie(self) -> Gaussians:
        """Give all components the covariance within them."""
        shares = (self.counts / self.counts.sum()).tolist()
        common = Sum(shares, self.covariances)
        return replace(self, covariances=[common] * len(shares))

    def join(self, prior: NoisePrior) -> Gaussians:
        """Add the samples of a prior to the covariances."""
        joined = [
            # A component without samples keeps the covariance it was given.
            Sum(
                (np.array([count, prior.weight]) / (count + prior.weight)).tolist(),
                (own, prior.common),
            )
            if count > 0.0
            else own
            for count, own in zip(self.counts, self.covariances, strict=True)
        ]
        return replace(self, covariances=joined)


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
                covariance_type=KINDS[covariance_type].mixture_type,
                reg_covar=reg_covar,
                random_state=seed,
            ).fit(np.repeat(samples, counts, axis=0))
            return np.asarray(mixture.predict_proba(samples) * sample_weights[:, None])
        means = KMeans(n_networks, n_init=1, random_state=seed)
        labels = means.fit(samples, sample_weight=sample_weights).labels_
    return _one_hot(labels, n_networks) * sample_weights[:, None]


def _nearest(samples: Floats, centers: Floats) -> Integers:
    squares = (centers**2).sum(axis=1) - 2.0 * samples @ centers.T
    return np.asarray(squares.argmin(axis=1))


def _one_hot(labels: Integers, n_networks: int) -> Floats:
    return np.asarray(np.eye(n_networks)[labels])


def make_networks(
    gaussians: Gaussians,
    architecture: Architecture,
    covariance_type: str,
    floors: Floats,
    n_factors: int,
) -> list[tuple[Network, Noise]]:
    """Write each Gaussian as a network of this size with its noise.

    Full noise: exactly.  Otherwise by a factor analysis of the covariance.
    """
    kind, parts = KINDS[covariance_type], []
    for mean, covariance in zip(gaussians.means, gaussians.covariances, strict=True):
        slopes, noise = kind.from_gaussian(covariance, architecture.n_components, floors, n_factors)
        parts.append(bend_network(slopes, mean, noise, architecture, floors))
    return parts


def bend_network(
    slopes: Floats, mean: Floats, noise: Noise, architecture: Architecture, floors: Floats
) -> tuple[Network, Noise]:
    """Write a linear network as one that may bend; it takes over what it can from the noise."""
    if not architecture.is_linear:
        slopes, noise = noise.hand_over(slopes, floors)
    if architecture.blueprints is not None:
        return fit_linear_map(slopes, mean, architecture), noise
    return write_linear_network(slopes, mean, architecture), noise
