"""Samples that are held out: folds that depend neither on their order nor on copies of them."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from skdgn._runtime import Floats, Integers

# So many samples that were held out tell a threshold to about 1 %: large tables need no more folds.
_ENOUGH_SAMPLES = 500
# Fewer different samples than this tell nothing by being held out.
FEWEST_SAMPLES = 10


def split(samples: NDArray[Any], weights: Floats, cv: Any) -> list[tuple[Integers, Integers]]:
    """Split samples of positive weight, into those to fit to and those to hold out; none if few."""
    if not isinstance(cv, Integral):
        found = _read_splits(cv, samples)
        return [(fit[weights[fit] > 0.0], out[weights[out] > 0.0]) for fit, out in found]
    heavy = np.flatnonzero(weights > 0.0)
    folds = assign_folds(samples[heavy], int(cv))
    n_folds = int(folds.max()) + 1
    n_fits = math.ceil(n_folds * min(1.0, _ENOUGH_SAMPLES / weights.sum())) if n_folds > 1 else 0
    return [(heavy[folds != fold], heavy[folds == fold]) for fold in range(n_fits)]


def _read_splits(cv: Any, samples: NDArray[Any]) -> list[tuple[Integers, Integers]]:
    """Return the splits that a user made, or that a splitter of theirs makes, as indices."""
    numbers = np.arange(len(samples))
    try:
        splits = [(numbers[fit], numbers[out]) for fit, out in check_cv(cv).split(samples)]
        if not splits:
            raise ValueError("there are no splits")
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            "cv must be an integer of at least 2, a splitter that needs nothing but samples, or "
            f"pairs of indices of samples to fit to and to hold out, got {cv!r}: {error}."
        ) from error
    return splits


def assign_folds(samples: NDArray[Any], n_folds: int) -> Integers:
    """Number the folds of samples: equal ones share one, and their order does not matter."""
    # There are two zeros, and many NaN: bytes tell equal from different only once they are alike.
    alike = np.ascontiguousarray(np.where(np.isnan(samples), np.nan, samples + 0.0))
    keys = alike.view(np.dtype((np.void, alike.itemsize * alike.shape[1]))).ravel()
    distinct, places = np.unique(keys, return_inverse=True)
    if len(distinct) < FEWEST_SAMPLES:
        return np.zeros(len(samples), dtype=np.intp)
    n_folds = min(n_folds, len(distinct))
    # Neighbors in that order are similar: chance tells them apart, always in the same way.
    folds = np.random.default_rng(0).permutation(len(distinct)) % n_folds
    return np.asarray(folds[places], dtype=np.intp)
