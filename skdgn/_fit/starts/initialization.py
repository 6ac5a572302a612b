"""Starting networks: coordinates found on the data, and a network fitted to them.

The likelihood of a generator has many poor local maxima, and the start decides in which one EM
ends.  So latent coordinates are found on the data first (`skdgn._fit.starts.coordinates`), and a
network is fitted to them (`skdgn._fit.starts.least_squares`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skdgn._fit.starts.any_layers import fit_any_layers
from skdgn._fit.starts.coordinates import find_coordinates, principal_axes
from skdgn._fit.starts.least_squares import fit_to_coordinates
from skdgn._network import Architecture, Network
from skdgn._runtime import Floats, Integers

# More samples for each latent dimension cost more and change a start little.
MAX_SAMPLES = 500


class Start(NamedTuple):
    """A starting network, and what it was fitted to."""

    network: Network
    coordinates: Floats  # (m, s): latent coordinates of the samples it was fitted to
    residuals: Floats  # (m, d): what these samples are off
    residual_variances: Floats  # (d,): zero where the fit is exact
    sample: Integers  # (m,): which samples these were


def starting_methods(architecture: Architecture) -> tuple[str, ...]:
    """Return the methods worth a try for so many latent dimensions, most promising first."""
    if architecture.is_linear:
        return ("pca",)
    if architecture.n_components == 1:
        return ("tree", "isomap", "pca")
    return ("isomap", "pca") if architecture.n_components <= 3 else ("pca", "independent", "sheet")


def starting_network(
    samples: Floats,
    architecture: Architecture,
    method: str,
    generator: np.random.Generator,
    to_beat: float = np.inf,
) -> Start:
    """Find coordinates on the samples and fit a network to them.

    Parameters
    ----------
    samples : ndarray of shape (n, d)
        Centered, of unit variance (constant columns may be zero).  Of more than `MAX_SAMPLES`
        samples for each latent dimension, a random sample is used.
    architecture : Architecture
        Without a hidden layer the start is probabilistic principal components, whatever the method.
    method : {"tree", "isomap", "pca", "independent", "sheet", "random"}
        Where the coordinates come from; "tree" means "isomap" in two dimensions and more.
    generator : numpy.random.Generator
        The only source of chance: the same state gives the same start.
    to_beat : float
        Mean squared residual of another start.  One that is far from it early on is not pursued.

    Returns
    -------
    start : Start

    Examples
    --------
    >>> import numpy as np
    >>> from skdgn._fit.starts.initialization import starting_network
    >>> from skdgn._network import Activation, Architecture
    >>> generator = np.random.default_rng(0)
    >>> angle = generator.uniform(0.0, 2.0 * np.pi, 500)
    >>> samples = np.sqrt(2.0) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> relu = Activation.from_name("relu", 0.0)
    >>> start = starting_network(samples, Architecture.alike(1, (8, 8), relu), "tree", generator)
    >>> start.network.hidden_layer_sizes
    (8, 8)
    >>> bool(np.all(start.residual_variances < 0.01))
    True
    """
    sample = np.arange(len(samples))
    most_samples = MAX_SAMPLES * architecture.n_components
    if len(samples) > most_samples:
        sample = np.sort(generator.choice(len(samples), size=most_samples, replace=False))
        samples = samples[sample]
    if architecture.is_linear:
        network, coordinates, residuals = _probabilistic_pca(samples, architecture.n_components)
        # Not the residuals of the coordinates: as posterior means, these shrink toward zero.
        variances = samples.var(axis=0) - np.sum(network.coefs[-1] ** 2, axis=1)
        return Start(network, coordinates, residuals, np.maximum(variances, 0.0), sample)
    coordinates = find_coordinates(samples, architecture.n_components, method, generator)
    fit = fit_to_coordinates if architecture.blueprints is None else fit_any_layers
    network = fit(coordinates, samples, architecture, generator, to_beat)
    residuals = samples - network.forward(coordinates)
    return Start(network, coordinates, residuals, np.mean(residuals**2, axis=0), sample)


def _probabilistic_pca(samples: Floats, n_components: int) -> tuple[Network, Floats, Floats]:
    """Return the maximum likelihood solution of probabilistic PCA.

    Also posterior means (n, s), and what is left of the samples beside the principal axes.
    """
    n_features = samples.shape[1]
    kept = min(n_components, n_features)
    axes, variances = principal_axes(samples, kept)
    mean = samples.mean(axis=0)
    residuals = samples - mean
    residuals -= (residuals @ axes) @ axes.T
    # With no feature left over, the data say nothing about the noise: half the least variance.
    left_over = float(np.square(residuals).sum()) / len(samples)
    noise = left_over / (n_features - kept) if kept < n_features else 0.5 * variances[-1]
    signal = np.maximum(variances[:kept] - noise, 0.0)
    loadings = np.zeros((n_features, n_components))
    loadings[:, :kept] = axes[:, :kept] * np.sqrt(signal)
    coordinates = np.zeros((len(samples), n_components))
    # Where there is no variance, there is no signal either.
    divisors = np.where(variances[:kept] > 0.0, variances[:kept], 1.0)
    coordinates[:, :kept] = (samples - mean) @ (axes[:, :kept] * np.sqrt(signal) / divisors)
    return Network.dense((loadings,), (mean,)), coordinates, residuals
