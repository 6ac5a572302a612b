"""Tables for mixtures, and short fits to them."""

from __future__ import annotations

import numpy as np

from skdgn import DGNMixture
from skdgn._fit import mixture_fit as _mixture_fitting

# The same sums in another order.
ROUNDING = 1e-9

FLAT_PRIORS = {"noise_prior_weight": 0.0, "weight_concentration_prior": 1.0}


def make_clusters(n_samples=150, n_features=3, n_clusters=3, seed=0, spread=4.0) -> np.ndarray:
    """Bent clusters, so that there is something for networks to do."""
    rng = np.random.default_rng(seed)
    members = rng.integers(n_clusters, size=n_samples)
    centers = spread * rng.normal(size=(n_clusters, n_features))
    directions = rng.normal(size=(2, n_clusters, n_features))
    latent = rng.normal(size=(n_samples, 1))
    curves = latent * directions[0, members] + (latent**2 - 1.0) * directions[1, members]
    return centers[members] + curves + 0.2 * rng.normal(size=(n_samples, n_features))


def short_mixture(n_networks=3, **parameters) -> DGNMixture:
    defaults = {"max_iter": 4, "refine": False, "random_state": 0}
    return DGNMixture(n_networks=n_networks, **(defaults | parameters))


def start_of(X, n_networks=3, weights=None, **parameters):
    """Where EM begins for a table: the problem, and the state."""
    caught = {}

    def catch(problem, settings, generator):
        caught["problem"] = problem
        caught["state"] = original(problem, settings, generator)
        return caught["state"]

    original = _mixture_fitting.start_mixture
    _mixture_fitting.start_mixture = catch
    try:
        short_mixture(n_networks, max_iter=1, **parameters).fit(X, sample_weight=weights)
    finally:
        _mixture_fitting.start_mixture = original
    return caught["problem"], caught["state"]
