"""A mixture of factor analyzers by the EM of Ghahramani and Hinton (1996), with D x D matrices.

Plain loops over components, dense inverses, no code of the package on the way.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal


class FactorAnalyzers:
    """Weights (K,), means (K, D), loadings (K, D, S) and variances (K, D)."""

    def __init__(self, weights, means, loadings, variances):
        self.weights = np.array(weights)
        self.means, self.loadings = np.array(means), np.array(loadings)
        self.variances = np.array(variances)

    def log_joint(self, samples: np.ndarray) -> np.ndarray:
        columns = []
        for weight, mean, loading, variance in zip(
            self.weights, self.means, self.loadings, self.variances, strict=True
        ):
            covariance = loading @ loading.T + np.diag(variance)
            columns.append(np.log(weight) + multivariate_normal(mean, covariance).logpdf(samples))
        return np.stack(columns, axis=1)

    def log_likelihood(self, samples: np.ndarray) -> float:
        return float(logsumexp(self.log_joint(samples), axis=1).mean())

    def responsibilities(self, samples: np.ndarray) -> np.ndarray:
        joint = self.log_joint(samples)
        return np.exp(joint - logsumexp(joint, axis=1, keepdims=True))

    def iterate(self, samples: np.ndarray) -> None:
        responsibilities = self.responsibilities(samples)
        n_factors = self.loadings.shape[2]
        for k, share in enumerate(responsibilities.T):
            loading, variance = self.loadings[k], self.variances[k]
            gain = loading.T @ np.linalg.inv(loading @ loading.T + np.diag(variance))
            factors = (samples - self.means[k]) @ gain.T
            # [z; 1] and its second moment, summed over samples.
            design = np.column_stack([factors, np.ones(len(samples))])
            second = (share[:, None] * design).T @ design
            second[:n_factors, :n_factors] += share.sum() * (np.eye(n_factors) - gain @ loading)
            cross = (share[:, None] * samples).T @ design
            solution = np.linalg.solve(second, cross.T).T
            self.loadings[k], self.means[k] = solution[:, :-1], solution[:, -1]
            residual = (share[:, None] * samples**2).sum(axis=0) - (solution * cross).sum(axis=1)
            self.variances[k] = residual / share.sum()
        self.weights = responsibilities.mean(axis=0)
