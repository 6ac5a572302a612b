"""What an estimator keeps of a model, and how a model is made of that again."""

from __future__ import annotations

from typing import Any

import numpy as np

from skdgn._fit import FitResult
from skdgn._posterior import Model


def attributes_of_model(model: Model) -> dict[str, Any]:
    """Return the fitted attributes that describe a model."""
    network, covariance = model.network, model.noise.covariance
    weights = np.exp(model.prior.log_masses)
    return {
        "coefs_": list(network.coefs),
        "intercepts_": list(network.intercepts),
        "noise_covariance_": float(covariance) if covariance.ndim == 0 else covariance,
        "n_regions_": len(model.partition),
        "weights_": weights,
        "weights_error_": weights * model.prior.errors,
        "n_parameters_": model.n_parameters,
        # Setting the parameter after a fit must not change the fitted network.
        "_fitted_activation": (network.activation.name, network.activation.negative_slope),
        "_model": model,
    }


def attributes_of_result(result: FitResult) -> dict[str, Any]:
    """Return all fitted attributes."""
    return {
        **attributes_of_model(Model.build(result.network, result.noise)),
        "converged_": result.converged,
        "n_iter_": len(result.lower_bounds),
        "lower_bounds_": result.lower_bounds,
        "lower_bound_": result.lower_bound,
        "_running": result.running.to_state(),
    }
