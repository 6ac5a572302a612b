"""R-BP, a recursive Bayesian predictive density, as a rival for tiny tables; for `suite.py`.

Hahn, Martin and Walker (2018) and Fong, Holmes and Walker (2021): begin with independent standard
normal features, and let each sample in turn pull the density toward itself by a Gaussian copula,

    p_{i+1}(x) = p_i(x) (1 - a_i + a_i prod_d c(u_d, v_d)),    a_i = (2 - 1 / (i + 1)) / (i + 2),

where u_d and v_d are the conditional distribution functions of x and of the sample, given their
features before d, and c is the copula's density with a correlation that all features share.  The
correlation maximizes the mean log density of each sample under those before it; ten orders of the
samples are averaged.  Formulas and constants follow the code that its authors published
(``pr_copula``), one of them in their favor: the log density of a feature under the normal
distribution at the beginning is never below log(1e-6), so that the sum is not quite a density, and
samples far out cost less than they should.

AR-BP (Ghalebikesabi and others, 2023) lets the correlation depend on the features before d.  Its
code is not at hand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_ndtr, logsumexp, ndtri

Floats = NDArray[np.float64]

N_ORDERS = 10
# Of distribution functions and densities at the beginning.
SMALLEST = 1e-6
# Distribution functions are kept so far from 0 and 1, where normal quantiles have no value.
_EDGE = 1e-12
# Logits of the correlation between which the best is sought, and how closely.
LOGITS = (-1.0, 6.0)
LOGIT_TOLERANCE = 0.02


class State(NamedTuple):
    """What is known of points (orders, points, features) after some samples."""

    log_conditionals: Floats  # distribution functions
    log_joint: Floats  # (orders, points) density


def begin(points: Floats) -> State:
    """Start with independent standard normal features."""
    log_edge = np.log([SMALLEST, 1.0 - SMALLEST])
    log_densities = -0.5 * (points**2 + np.log(2.0 * np.pi))
    return State(
        np.clip(log_ndtr(points), *log_edge),
        np.maximum(log_densities, log_edge[0]).sum(axis=-1),
    )


def update(state: State, number: int, seen: Floats, correlation: float) -> State:
    """Let a sample, of which conditional distribution functions are given, pull the density."""
    share = (2.0 - 1.0 / (number + 1.0)) / (number + 2.0)
    log_share, log_rest = np.log(share), np.log1p(-share)
    u = ndtri(np.clip(np.exp(state.log_conditionals), _EDGE, 1.0 - _EDGE))
    v = ndtri(np.clip(seen, _EDGE, 1.0 - _EDGE))
    variance = 1.0 - correlation**2
    log_copulas = -0.5 * np.log(variance) - 0.5 / variance * (
        correlation**2 * (u**2 + v**2) - 2.0 * correlation * u * v
    )
    log_products = np.cumsum(log_copulas, axis=-1)
    before = log_share + log_products - log_copulas  # of the features before each
    log_moved = log_ndtr((u - correlation * v) / np.sqrt(variance))
    log_conditionals = np.logaddexp(log_rest + state.log_conditionals, before + log_moved)
    log_conditionals -= np.logaddexp(log_rest, before)
    pull = np.logaddexp(log_rest, log_share + log_products[..., -1])
    return State(log_conditionals, state.log_joint + pull)


def recurse(orders: Floats, points: Floats, correlation: float) -> tuple[float, Floats]:
    """Take all samples in, in several orders (orders, n, features).

    Returns the mean log density of a sample under those before it, and log densities of points.
    """
    n_orders, n_samples, _ = orders.shape
    everything = np.concatenate(
        [orders, np.broadcast_to(points, (n_orders, *points.shape))], axis=1
    )
    state, before = begin(everything), np.empty((n_orders, n_samples))
    for i in range(n_samples):
        before[:, i] = state.log_joint[:, i]
        seen = np.exp(state.log_conditionals[:, i : i + 1])
        state = update(state, i, seen, correlation)
    log_densities = logsumexp(state.log_joint[:, n_samples:], axis=0) - np.log(n_orders)
    return float(before.mean()), np.asarray(log_densities)


class RecursivePredictive:
    """R-BP with one correlation for all features."""

    def __init__(self, random_state: int) -> None:
        self.random_state = random_state

    def fit(self, X: Floats) -> RecursivePredictive:
        """Choose orders of the samples, and the correlation."""
        rng = np.random.default_rng(self.random_state)
        self.orders_ = np.stack([rng.permutation(X) for _ in range(N_ORDERS)])
        found = minimize_scalar(
            lambda logit: -recurse(self.orders_, X[:0], expit(logit))[0],
            bounds=LOGITS,
            method="bounded",
            options={"xatol": LOGIT_TOLERANCE},
        )
        self.correlation_ = float(expit(found.x))
        return self

    def score_samples(self, X: Floats) -> Floats:
        """Log density, averaged over the orders."""
        return recurse(self.orders_, X, self.correlation_)[1]
