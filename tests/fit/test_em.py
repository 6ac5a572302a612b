"""EM: what must hold at every step, whatever the data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from skdgn._fit.m_step.weight_priors import PRIORS
from skdgn._network import ACTIVATIONS
from skdgn._noise import COVARIANCE_TYPES
from tests.portions import portions

# Relative error allowed to sums of a few dozen log densities.
ROUNDING = 1e-9


def random_rows(rng: np.random.Generator) -> np.ndarray:
    """Draw a small data set of one of several kinds, some of them awkward."""
    n_rows, n_features = int(rng.integers(8, 60)), int(rng.integers(1, 5))
    kind = rng.integers(5)
    if kind == 0:
        rows = rng.normal(size=(n_rows, n_features)) @ rng.normal(size=(n_features, n_features))
    elif kind == 1:
        angle = rng.uniform(0.0, 2.0 * np.pi, n_rows)
        rows = np.cos(angle[:, None] + np.arange(n_features)) + 0.1 * rng.normal(size=(n_rows, 1))
    elif kind == 2:
        rows = rng.integers(0, 3, size=(n_rows, n_features)).astype(float)  # many duplicates
    elif kind == 3:
        rows = rng.standard_t(1.5, size=(n_rows, n_features))  # outliers
    else:
        rows = rng.normal(size=(n_rows, n_features))
        rows[:, 0] = 3.0  # a constant
    return rows * 10.0 ** rng.integers(-3, 4)


def random_model(rng: np.random.Generator, seed: int) -> PiecewiseAffineDGN:
    depth = int(rng.integers(0, 3))
    return PiecewiseAffineDGN(
        int(rng.choice([1, 1, 2])),
        hidden_layer_sizes=tuple(int(width) for width in rng.integers(1, 6, depth)),
        activation=str(rng.choice(ACTIVATIONS)),
        covariance_type=str(rng.choice(COVARIANCE_TYPES)),
        weight_prior=rng.choice(np.array([None, *PRIORS], dtype=object)),
        prior_scale=float(10.0 ** rng.uniform(-1, 1)),
        m_step=str(rng.choice(["joint", "layerwise"])),
        init_params=str(rng.choice(["auto", "pca", "random"])),
        max_iter=8,
        random_state=seed,
    )


@pytest.mark.no_cover
@pytest.mark.parametrize("first", portions(300, 25))
def test_no_random_fit_ever_decreases(first):
    for seed in range(first, first + 25):
        rng = np.random.default_rng(seed)
        rows, model = random_rows(rng), random_model(rng, seed)
        with warnings.catch_warnings():
            # Eight iterations are not meant to converge, and some tables have ties; every other
            # warning is an error.
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "The noise of feature", UserWarning)
            model.fit(rows)
        bounds = model.lower_bounds_
        assert np.all(np.isfinite(bounds)), (seed, model)
        assert np.all(np.diff(bounds) >= -ROUNDING * np.abs(bounds[:-1])), (seed, model)
        log_densities = model.score_samples(rows)
        assert np.all(np.isfinite(log_densities)), (seed, model)
        if model.weight_prior is None:
            # The bound is the likelihood itself.
            error = abs(log_densities.mean() - model.lower_bound_)
            assert error <= ROUNDING * max(1.0, np.abs(log_densities).max()), (seed, model)
