"""Clusters strung on a line: a start for one latent dimension and regional noise.

A mixture of Gaussians is a limit of the model: every component has an interval of latent space of
its mass, on which the generator hardly moves, and intervals of hardly any mass lead from one to the
next.  On tables without a curve to follow, a mixture fitted under the very prior of the regions'
covariances is often a better start than any curve.

Shapes: ``n`` rows, ``d`` features, ``k`` clusters, ``u`` units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri

from skdgn._coordinates import tree_scores
from skdgn._network import Activation, Floats, Network
from skdgn._noise import Noise
from skdgn._regional_noise import RegionalNoise
from skdgn._shrinkage import NoisePrior

# Rounds of moving centres to the means of their rows, and of EM with covariances.
_CENTERINGS = 10
_ITERATIONS = 100
# EM ends when the mean log density gains less.
_TOLERANCE = 1e-3
# Share of the regions' prior that clusters have: EM can widen what is too narrow, but two regions
# that look alike tell rows apart only slowly.
_PRIOR_SHARE = 0.1
# Latent mass of all intervals between clusters together.
_LINKS_MASS = 0.01
# Clusters with less of the rows' weight than this are dropped: their intervals would be too short.
_SMALLEST_SHARE = 1e-4
# How far the generator moves on the interval of a cluster, in the cluster's deviations.
_STRETCH = 0.6
# Kinks that are not needed lie here: nothing is beyond.
_FAR_LEFT, _FAR_RIGHT = -12.0, 12.0


class Clusters(NamedTuple):
    """A mixture of Gaussians."""

    shares: Floats  # (k,) of sum 1
    means: Floats  # (k, d)
    noise: RegionalNoise  # the clusters' covariances


class Chain(NamedTuple):
    """A network that visits clusters one after the other, and where it does."""

    network: Network
    kinks: Floats  # (2 k - 2,) ends of the clusters' intervals, in order
    clusters: Clusters  # in order

    def noise_at(self, points: Floats) -> RegionalNoise:
        """Return the noise of regions that contain these points (r, 1): pooled between clusters."""
        places = np.searchsorted(self.kinks, points[:, 0])
        noise = self.clusters.noise
        uniform = RegionalNoise.uniform(noise.pooled, len(points))
        inside = places % 2 == 0
        for mine, theirs in (
            (uniform.covariance, noise.covariance),
            (uniform.factor, noise.factor),
            (uniform.shares, noise.shares),
        ):
            mine[inside] = theirs[places[inside] // 2]
        return uniform


def make_chain(
    rows: Floats,
    row_weights: Floats,
    n_units: int,
    activation: Activation,
    prior: NoisePrior,
    covariance_type: str,
    smallest_variance: float,
    generator: np.random.Generator,
) -> Chain | None:
    """Find clusters of rows (n, d) and a network with one hidden layer through them.

    Two units for each cluster and the next, and one for a slope to begin with.  None if that leaves
    less than two clusters.
    """
    n_clusters = min((n_units + 1) // 2, len(rows) // 2)
    if n_clusters < 2 or activation.negative_slope == 1.0:
        return None
    clusters = find_clusters(
        rows, row_weights, n_clusters, prior, covariance_type, smallest_variance, generator
    )
    if len(clusters.shares) < 2:
        return None
    order = np.argsort(tree_scores(clusters.means, 1, generator)[:, 0])
    clusters = _take(clusters, order)
    return _string_together(clusters, n_units, activation)


def find_clusters(
    rows: Floats,
    row_weights: Floats,
    n_clusters: int,
    prior: NoisePrior,
    covariance_type: str,
    smallest_variance: float,
    generator: np.random.Generator,
) -> Clusters:
    """Fit a mixture of Gaussians whose covariances have a weak prior of regional noise."""
    prior = NoisePrior(_PRIOR_SHARE * prior.weight)
    centers = _spread_centers(rows, row_weights, n_clusters, generator)
    responsibilities = np.zeros((len(rows), n_clusters))
    for _ in range(_CENTERINGS):
        squares = np.square(centers).sum(axis=1) - 2.0 * rows @ centers.T
        responsibilities[:] = 0.0
        responsibilities[np.arange(len(rows)), squares.argmin(axis=1)] = row_weights
        counts = responsibilities.sum(axis=0)
        used = counts > 0
        centers[used] = (responsibilities.T @ rows)[used] / counts[used, None]
    noise = _first_noise(rows, row_weights, n_clusters, covariance_type, smallest_variance)
    clusters = _maximize(rows, responsibilities, noise, prior, smallest_variance)
    before = -np.inf
    for _ in range(_ITERATIONS):
        logs = _log_densities(clusters, rows)
        totals = logsumexp(logs, axis=1)
        responsibilities = row_weights[:, None] * np.exp(logs - totals[:, None])
        clusters = _maximize(rows, responsibilities, clusters.noise, prior, smallest_variance)
        mean = float(row_weights @ totals / row_weights.sum())
        if mean < before + _TOLERANCE:
            break
        before = mean
    return clusters


def _spread_centers(
    rows: Floats, row_weights: Floats, n_clusters: int, generator: np.random.Generator
) -> Floats:
    """Draw rows as centres, each with odds of its squared distance to those drawn before."""
    centers = np.empty((n_clusters, rows.shape[1]))
    squares = np.ones(len(rows))
    for place in range(n_clusters):
        odds = row_weights * squares
        if odds.sum() <= 0.0:  # all rows are centres: any will do
            odds = row_weights
        centers[place] = rows[generator.choice(len(rows), p=odds / odds.sum())]
        distances = np.square(rows - centers[place]).sum(axis=1)
        squares = distances if place == 0 else np.minimum(squares, distances)
    return centers


def _first_noise(
    rows: Floats,
    row_weights: Floats,
    n_clusters: int,
    covariance_type: str,
    smallest_variance: float,
) -> RegionalNoise:
    """Return the variances of all rows, for every cluster."""
    mean = row_weights @ rows / row_weights.sum()
    variances = row_weights @ np.square(rows - mean) / row_weights.sum()
    variances = np.maximum(variances, smallest_variance)
    covariance = {"spherical": variances.mean(), "diag": variances, "full": np.diag(variances)}
    noise = Noise.from_covariance(covariance[covariance_type], rows.shape[1])
    return RegionalNoise.uniform(noise, n_clusters)


def _maximize(
    rows: Floats,
    responsibilities: Floats,
    noise: RegionalNoise,
    prior: NoisePrior,
    smallest_variance: float,
) -> Clusters:
    """Maximise over the mixture, given responsibilities (n, k) times the rows' weights."""
    counts = responsibilities.sum(axis=0)
    kept = np.flatnonzero(counts > _SMALLEST_SHARE * counts.sum())
    counts, responsibilities = counts[kept], responsibilities[:, kept]
    means = responsibilities.T @ rows / counts[:, None]
    scatter = np.empty((len(kept), *noise.covariance.shape[1:]))
    for cluster, mean in enumerate(means):
        deviations = rows - mean
        weighted = responsibilities[:, cluster, None] * deviations
        if noise.covariance_type == "full":
            scatter[cluster] = weighted.T @ deviations
        else:
            sums = (weighted * deviations).sum(axis=0)
            scatter[cluster] = sums if noise.covariance_type == "diag" else sums.mean()
    best = prior.maximize(scatter, counts, noise.pooled, smallest_variance)
    return Clusters(counts / counts.sum(), means, best)


def _log_densities(clusters: Clusters, rows: Floats) -> Floats:
    """Log share times density, (n, k), but for a constant."""
    logs = np.empty((len(rows), len(clusters.shares)))
    for cluster, (mean, factor) in enumerate(
        zip(clusters.means, clusters.noise.factor, strict=True)
    ):
        deviations = rows - mean
        if factor.ndim == 2:
            whitened = scipy.linalg.solve_triangular(factor, deviations.T, lower=True).T
            log_determinant = np.log(np.diagonal(factor)).sum()
        else:
            whitened = deviations / factor
            log_determinant = np.log(np.broadcast_to(factor, rows.shape[1])).sum()
        logs[:, cluster] = -0.5 * np.square(whitened).sum(axis=1) - log_determinant
    return logs + np.log(clusters.shares)


def _take(clusters: Clusters, order: NDArray[np.intp]) -> Clusters:
    return Clusters(clusters.shares[order], clusters.means[order], clusters.noise.take(order))


def _string_together(clusters: Clusters, n_units: int, activation: Activation) -> Chain:
    n_clusters, n_features = clusters.means.shape
    # Ends of the intervals: cluster, link, cluster, ..., cluster.
    masses = np.full(2 * n_clusters - 1, _LINKS_MASS / (n_clusters - 1))
    masses[::2] = (1.0 - _LINKS_MASS) * clusters.shares
    kinks = ndtri(np.cumsum(masses)[:-1])

    steps = _steps(clusters)
    values = np.empty((2 * n_clusters - 2, n_features))
    values[::2] = (clusters.means + 0.5 * steps)[:-1]
    values[1::2] = (clusters.means - 0.5 * steps)[1:]
    # The two outermost intervals have no end: a deviation of latent space is as long as any.
    slopes = np.concatenate(
        [steps[:1], np.diff(values, axis=0) / np.diff(kinks)[:, None], steps[-1:]]
    )

    # Each kink changes the slope by its unit's weight; the first slope needs a unit that has its
    # kink far to the left, and units left over have theirs far to the right.
    ends = _FAR_RIGHT + np.arange(n_units, dtype=np.float64)
    ends[: len(kinks)] = kinks
    ends[len(kinks)] = _FAR_LEFT
    weights = np.zeros((n_units, n_features))
    weights[: len(kinks)] = np.diff(slopes, axis=0) / (1.0 - activation.negative_slope)
    weights[len(kinks)] = slopes[0] - activation.negative_slope * weights.sum(axis=0)
    hidden = activation(kinks[0] - ends)
    network = Network(
        (np.ones((n_units, 1)), weights.T.copy()),
        (-ends, values[0] - hidden @ weights),
        activation,
    )
    return Chain(network, kinks, clusters)


def _steps(clusters: Clusters) -> Floats:
    """How the generator moves within each cluster, (k, d): from the one before to the next."""
    means = clusters.means
    neighbors = np.concatenate([means[:1], means, means[-1:]])
    directions = neighbors[2:] - neighbors[:-2]
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    directions /= np.where(lengths > 0.0, lengths, 1.0)
    # Not the deviation along the direction, but that given all others: oblique steps would leave a
    # flat cluster.
    factors = clusters.noise.factor
    if factors.ndim == 3:
        whitened = np.linalg.solve(factors, directions[:, :, None])[:, :, 0]
    else:
        whitened = directions / factors.reshape(len(means), -1)
    lengths = np.linalg.norm(whitened, axis=1, keepdims=True)
    return np.asarray(_STRETCH * directions / np.where(lengths > 0.0, lengths, 1.0))
