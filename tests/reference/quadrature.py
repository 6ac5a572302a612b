"""Brute force for networks with at most one hidden layer: latent space cut into smooth pieces.

Between the kinks of its units a network is affine, so that Gauss-Legendre rules on pieces that no
kink crosses converge fast.  In the plane the inner integral runs along lines; it is smooth between
the points where two kinks meet.  Nothing but the weights comes from the package.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr

from skdgn._network import Network

REACH = 9.0  # beyond it the prior has a mass of 1e-18
WIDEST_PANEL = 0.4
N_NODES = 14


class Grid(NamedTuple):
    points: np.ndarray  # (k, S)
    log_weights: np.ndarray  # (k,) of the prior


class Conditional(NamedTuple):
    """What is missing from a row, given what was observed."""

    log_density: float
    log_posterior: np.ndarray  # (k,) of the grid's points
    means: np.ndarray  # (k, missing) given the point
    covariance: np.ndarray  # (missing, missing) given the point


def make_grid(network: Network) -> Grid:
    first, bias = (
        (network.coefs[0], network.intercepts[0])
        if len(network.hidden_layer_sizes)
        else (np.empty((0, network.n_components)), np.empty(0))
    )
    assert len(network.hidden_layer_sizes) <= 1
    assert network.n_components <= 2
    if network.n_components == 1:
        nodes, weights = _rule([-b / w for (w,), b in zip(first, bias, strict=True) if w != 0.0])
        return _weigh(nodes[:, None], weights)
    meetings = []
    for i, j in itertools.combinations(range(len(bias)), 2):
        matrix = first[[i, j]]
        if abs(np.linalg.det(matrix)) > 1e-9:
            meetings.append(np.linalg.solve(matrix, -bias[[i, j]])[0])
    meetings += [-b / w[0] for w, b in zip(first, bias, strict=True) if w[1] == 0.0]
    points, weights = [], []
    for node, weight in zip(*_rule(meetings), strict=True):
        crossings = [
            -(b + w[0] * node) / w[1] for w, b in zip(first, bias, strict=True) if w[1] != 0.0
        ]
        inner, inner_weights = _rule(crossings)
        points.append(np.stack([np.full_like(inner, node), inner], axis=1))
        weights.append(weight * inner_weights)
    return _weigh(np.concatenate(points), np.concatenate(weights))


def _rule(breaks: list[float]) -> tuple[np.ndarray, np.ndarray]:
    ends = sorted({-REACH, REACH, *(b for b in breaks if -REACH < b < REACH)})
    edges = np.concatenate(
        [
            np.linspace(a, b, 1 + int(np.ceil((b - a) / WIDEST_PANEL)))[:-1]
            for a, b in itertools.pairwise(ends)
        ]
        + [[REACH]]
    )
    nodes, weights = np.polynomial.legendre.leggauss(N_NODES)
    half = 0.5 * np.diff(edges)
    middle = 0.5 * (edges[1:] + edges[:-1])
    return (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()


def _weigh(points: np.ndarray, weights: np.ndarray) -> Grid:
    n_components = points.shape[1]
    log_prior = -0.5 * (points**2).sum(axis=1) - 0.5 * n_components * np.log(2.0 * np.pi)
    return Grid(points, np.log(weights) + log_prior)


def as_matrix(covariance: np.ndarray | tuple, n_features: int) -> np.ndarray:
    if isinstance(covariance, tuple):
        loadings, variances = covariance
        return loadings @ loadings.T + np.diag(variances)
    covariance = np.asarray(covariance, dtype=float)
    return covariance if covariance.ndim == 2 else np.eye(n_features) * covariance


def condition(grid: Grid, network: Network, covariance: np.ndarray, row: np.ndarray) -> Conditional:
    """Integrate over latent space, given the observed entries of a row."""
    outputs = network.forward(grid.points)
    noise = as_matrix(covariance, len(row))
    o, m = np.flatnonzero(~np.isnan(row)), np.flatnonzero(np.isnan(row))
    noise_oo, noise_mo = noise[np.ix_(o, o)], noise[np.ix_(m, o)]
    residuals = row[o] - outputs[:, o]
    solved = np.linalg.solve(noise_oo, residuals.T).T if o.size else residuals
    log_likelihood = -0.5 * (
        (residuals * solved).sum(axis=1)
        + np.linalg.slogdet(2.0 * np.pi * noise_oo)[1] * (o.size > 0)
    )
    log_joint = grid.log_weights + log_likelihood
    log_density = float(logsumexp(log_joint))
    conditional_noise = noise[np.ix_(m, m)]
    if o.size:
        conditional_noise = conditional_noise - noise_mo @ np.linalg.solve(noise_oo, noise_mo.T)
    return Conditional(
        log_density,
        log_joint - log_density,
        outputs[:, m] + solved @ noise_mo.T,
        conditional_noise,
    )


def mean(conditional: Conditional) -> np.ndarray:
    return np.exp(conditional.log_posterior) @ conditional.means


def covariance(conditional: Conditional) -> np.ndarray:
    weights = np.exp(conditional.log_posterior)
    deviations = conditional.means - mean(conditional)
    return conditional.covariance + (weights[:, None] * deviations).T @ deviations


def cumulative(conditional: Conditional, feature: int, values: np.ndarray) -> np.ndarray:
    """Distribution function of one missing feature, to three or four digits."""
    weights = np.exp(conditional.log_posterior)
    kept = weights > 1e-11
    deviation = np.sqrt(conditional.covariance[feature, feature])
    means = conditional.means[kept, feature]
    knots = np.linspace(values.min(), values.max(), 120)
    heights = [weights[kept] @ ndtr((knot - means) / deviation) for knot in knots]
    return np.interp(values, knots, heights)
