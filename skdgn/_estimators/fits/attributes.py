"""What an estimator keeps: of a model, of that in a file, and of itself when a fit fails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from skdgn._network import Activation, Network
from skdgn._posterior import NetworkModel
from skdgn._runtime import Floats

# Of an estimator that was made of known parameters instead of being fitted.
NOT_ITERATED: dict[str, Any] = {
    "converged_": True,
    "n_iter_": 0,
    "lower_bounds_": np.empty(0),
    "lower_bound_": math.nan,
    "lower_bound_error_": 0.0,
    "_running": [],
}


@contextmanager
def unchanged_by_failure(estimator: Any) -> Iterator[None]:
    """Put all attributes back if a fit fails or is interrupted half-way."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def attributes_of_model(model: NetworkModel) -> dict[str, Any]:
    """Return the fitted attributes that describe a model."""
    network = model.network
    return {
        "coefs_": list(network.coefs),
        "intercepts_": list(network.intercepts),
        "noise_covariance_": model.noise.shown,
        **model.listed,
        # Setting a parameter after a fit must not change the fitted network.
        "_network": network,
        "_model": model,
    }


def plain_network(network: Network) -> Network | list[tuple[str, float]]:
    """Return what a file has to say of a network beside its weights.

    For dense layers that is names and slopes of their activations, so that nobody who reads the
    file has to trust any class but the estimator's.
    """
    if network.blueprints is not None:
        return network
    return [(activation.name, activation.negative_slope) for activation in network.activations]


def network_from_plain(
    plain: Network | list[tuple[str, float]],
    coefs: Sequence[Floats],
    intercepts: Sequence[Floats],
) -> Network:
    """Return the network of which a file says that, given its weights."""
    if isinstance(plain, Network):
        return plain
    activations = [Activation.from_name(name, slope) for name, slope in plain]
    return Network.from_arrays(coefs, intercepts, activations)
