"""What displays ask of their arguments, before any work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skdgn._estimators import ExactDensity, PiecewiseAffineDGN, index_of_feature
from skdgn._posterior import Posterior
from skdgn._runtime import Floats, check_integer


def check_network(estimator: Any) -> PiecewiseAffineDGN:
    """Refuse what is not a fitted `PiecewiseAffineDGN`."""
    for part in ("networks_[k]", "estimators_[k]", "estimator_"):
        if isinstance(estimator, ExactDensity) and hasattr(estimator, part.removesuffix("[k]")):
            raise ValueError(
                "estimator must be a single network, a fitted PiecewiseAffineDGN: the others have "
                f"no latent space of their own. Pass a part of it, {part}, instead of "
                f"{estimator!r}."
            )
    if not isinstance(estimator, PiecewiseAffineDGN):
        raise ValueError(f"estimator must be a fitted PiecewiseAffineDGN, got {estimator!r}.")
    check_is_fitted(estimator)
    return estimator


def check_drawable(estimator: Any) -> PiecewiseAffineDGN:
    """Refuse a latent space that is neither a line nor a plane."""
    model = check_network(estimator)
    n_components = model._n_features_out
    if n_components > 2:
        raise ValueError(
            "estimator must have one or two latent dimensions to be drawn, "
            f"got n_components={n_components}."
        )
    return model


def check_samples(X: ArrayLike, model: PiecewiseAffineDGN) -> Posterior:
    """Return the posterior of samples; refuse those so far out that it is not known."""
    samples = model._validate_samples(X)
    posterior = model._fitted_model().posterior(samples, model._workers())
    unknown = np.flatnonzero(~np.isfinite(posterior.mean).all(axis=1))
    if unknown.size > 0:
        raise ValueError(
            "X must hold samples with a finite log density, whose posterior is known, "
            f"got -inf in sample {unknown[0]}."
        )
    return posterior


def check_window(window: Any, n_dimensions: int) -> Floats:
    """Return lowest and highest values (n_dimensions, 2)."""
    requirement = (
        "window must be a pair of numbers (lowest, highest)"
        f"{' or one pair per axis' if n_dimensions > 1 else ''}, got {window!r}."
    )
    try:
        limits = np.array(window, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(requirement) from error
    if limits.shape == (2,):
        limits = np.tile(limits, (n_dimensions, 1))
    if (
        limits.shape != (n_dimensions, 2)
        or not np.isfinite(limits).all()
        or not np.all(limits[:, 0] < limits[:, 1])
    ):
        raise ValueError(requirement)
    return limits


def check_resolution(grid_resolution: Any) -> int:
    """Refuse a number of grid points that is not an integer of at least two."""
    return check_integer(grid_resolution, "grid_resolution", smallest=2)


def check_features(features: Any, model: ExactDensity) -> tuple[list[int], list[str]]:
    """Return the indices and the names of one or two features."""
    names = list(getattr(model, "feature_names_in_", []))
    n_features = model.n_features_in_
    if features is None:
        features = range(min(2, n_features))
    wanted: Sequence[Any]
    if isinstance(features, str | Integral):
        wanted = [features]
    elif isinstance(features, Iterable) and not isinstance(features, bytes):
        wanted = list(features)
    else:
        wanted = []
    if len(wanted) not in (1, 2):
        raise ValueError(
            f"features must be one or two features, by index or by name, got {features!r}."
        )
    indices = [index_of_feature(feature, names, n_features, "features") for feature in wanted]
    if len(set(indices)) < len(indices):
        raise ValueError(f"features must be two different features, got {features!r}.")
    return indices, [names[d] if names else f"feature {d}" for d in indices]
