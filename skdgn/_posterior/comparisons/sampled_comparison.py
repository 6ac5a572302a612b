"""Posteriors of which regions are explored, compared with points and with Gaussians.

Expectations under a Gaussian are averages over points of it, always the same ones in its own
coordinates: a smooth function of mean and covariance that can be maximized.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtri

from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._posterior.comparisons.variational import entropies
from skdgn._posterior.explored import Likelihood, ascend, observed_likelihoods, sobol_points
from skdgn._posterior.listed import Visits
from skdgn._runtime import LOG_SQRT_2PI, Floats

# Points of a Gaussian.  Each comes with its mirror image: linear functions have no error.
_N_POINTS = 2048
_N_SEARCH_POINTS = 256
_MOST_STEPS = 100
# Besides the posterior's moments, maxima near so many of its heaviest regions are starting points.
_N_REGIONS_TO_START_FROM = 2


class SampledComparison:
    """The posteriors of some samples, ready to be compared.

    Parameters
    ----------
    network, noise : Network, Noise
    table : ndarray of shape (n, D)
    visits : Visits
    """

    def __init__(self, network: Network, noise: Noise, table: Floats, visits: Visits) -> None:
        self._parts = list(observed_likelihoods(network, noise, table))
        self._visits = visits
        self._log_density = visits.log_density
        self._n_components = network.n_components

    def log_density(self, latent: Floats) -> Floats:
        """Log p(z | x) at latent points (m, S) for every sample: (n, m)."""
        result = np.empty((len(self._log_density), len(latent)))
        log_prior = -0.5 * np.square(latent).sum(axis=1) - self._n_components * LOG_SQRT_2PI
        for indices, samples, likelihood in self._parts:
            points = np.tile(latent.T, len(samples))
            result[indices] = likelihood.evaluate(samples, points)[0] + log_prior
        unknown = np.isneginf(self._log_density)
        with np.errstate(invalid="ignore"):
            result -= self._log_density[:, None]
        result[unknown] = np.nan
        return result

    def _heaviest(self, n: int) -> Floats:
        """Means of a sample's heaviest regions."""
        own = slice(self._visits.start[n], self._visits.start[n + 1])
        order = np.argsort(-self._visits.responsibilities[own])[:_N_REGIONS_TO_START_FROM]
        return self._visits.means[own][order]

    def elbo(self, means: Floats, factors: Floats) -> Floats:
        """Evidence lower bounds of Gaussians, one for each sample: (n,)."""
        normals = mirrored_points(self._n_components, _N_POINTS)
        result = np.empty(len(means))
        for indices, samples, likelihood in self._parts:
            for n, sample in zip(indices, samples, strict=True):
                points = means[n] + normals @ factors[n].T
                values = likelihood.evaluate(sample[None], points.T)[0]
                # Exact: the prior is a quadratic function.
                square = np.square(means[n]).sum() + np.square(factors[n]).sum()
                result[n] = values.mean() - 0.5 * square - self._n_components * LOG_SQRT_2PI
        return np.asarray(result + entropies(factors))

    def divergences(self, means: Floats, factors: Floats) -> Floats:
        """KL(q || posterior) of a Gaussian for each sample: (n,)."""
        with np.errstate(invalid="ignore"):
            return np.maximum(self._log_density - self.elbo(means, factors), 0.0)

    def best_gaussians(
        self, means: Floats, covariances: Floats, given: tuple[Floats, Floats] | None
    ) -> tuple[Floats, Floats, Floats]:
        """Find the Gaussian of the smallest divergence for each sample.

        Means and covariances are the posterior's.  Returns means, factors and divergences.
        """
        best_means, best_factors = np.full_like(means, np.nan), np.full_like(covariances, np.nan)
        normals = mirrored_points(self._n_components, _N_SEARCH_POINTS)
        for indices, samples, likelihood in self._parts:
            for n, sample in zip(indices, samples, strict=True):
                if not np.isfinite(self._log_density[n]):
                    continue
                starts = [(means[n], np.linalg.cholesky(covariances[n]))]
                heaviest = self._heaviest(n)
                points, _, factors = ascend(
                    likelihood, np.broadcast_to(sample, (len(heaviest), len(sample))), heaviest
                )
                starts.extend(zip(points, factors, strict=True))
                if given is not None:
                    starts.append((given[0][n], given[1][n]))
                found = [_improve(likelihood, sample, normals, *start) for start in starts]
                _, best_means[n], best_factors[n] = min(found, key=lambda trial: trial[0])
        known = np.isfinite(best_means[:, 0])
        fallback = np.broadcast_to(np.eye(self._n_components), best_factors.shape)
        filled = np.where(known[:, None, None], best_factors, fallback)
        divergences = self.divergences(np.where(known[:, None], best_means, 0.0), filled)
        return best_means, best_factors, np.where(known, divergences, np.nan)


def mirrored_points(n_components: int, n_points: int) -> Floats:
    """Points of the standard normal distribution: each with its mirror image, of covariance I."""
    half = ndtri(np.clip(sobol_points(n_components, n_points // 2, 1), 1e-13, 1.0 - 1e-13))
    points = np.concatenate([half, -half])
    factor = np.linalg.cholesky(points.T @ points / len(points))
    return np.asarray(np.linalg.solve(factor, points.T).T)


def _improve(
    likelihood: Likelihood, sample: Floats, normals: Floats, mean: Floats, factor: Floats
) -> tuple[float, Floats, Floats]:
    """Minimize the divergence over means and factors, from these on."""
    n_components = len(mean)
    lower = np.tril_indices(n_components)
    diagonal = lower[0] == lower[1]
    samples = np.broadcast_to(sample, (len(normals), len(sample)))

    def unpack(parameters: Floats) -> tuple[Floats, Floats]:
        matrix = np.zeros((n_components, n_components))
        values = parameters[n_components:].copy()
        values[diagonal] = np.exp(values[diagonal])  # positive
        matrix[lower] = values
        return parameters[:n_components], matrix

    def objective(parameters: Floats) -> tuple[float, Floats]:
        center, matrix = unpack(parameters)
        points = center + normals @ matrix.T
        slopes, residuals, heights = likelihood.linearize(samples, points)
        forces = np.einsum("nds,nd->ns", slopes, residuals) - points
        gradient = (forces.T @ normals / len(points))[lower]
        gradient[diagonal] *= np.diagonal(matrix)
        gradient[diagonal] += 1.0
        value = heights.mean() + np.log(np.diagonal(matrix)).sum()
        return -float(value), -np.concatenate([forces.mean(axis=0), gradient])

    values = factor[lower].copy()
    values[diagonal] = np.log(values[diagonal])
    start = np.concatenate([mean, values])
    result = minimize(
        objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS}
    )
    return float(result.fun), *unpack(result.x)
