"""Robust densities: fits without the least likely samples, mixtures without small components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skdgn._estimators.ensembles import DGNEnsemble
from skdgn._estimators.mixture import DGNMixture
from skdgn._runtime import Floats

# Rounds at most: the samples left out settle in a few.
_MOST_ROUNDS = 10


def fit_trimmed(
    fit: Callable[[Floats], Any], score: Callable[[Any], Floats], weights: Floats, trim: float
) -> tuple[Any, Floats]:
    """Fit to all samples, then again and again without the least likely share of them.

    ``fit`` takes weights (n,), zero for samples left out; ``score`` returns log densities (n,).
    The objective is the mean log density of the samples that a model leaves in.  A round counts
    only if it is higher: so it never decreases.  Returns the last model that counts, and the
    objective after every such round.
    """
    best = fit(weights)
    kept, objective = _keep(score(best), weights, trim)
    objectives = [objective]
    for _ in range(_MOST_ROUNDS):
        trial = fit(kept)
        trial_kept, objective = _keep(score(trial), weights, trim)
        if not objective > objectives[-1]:
            break
        settled = np.array_equal(trial_kept, kept)
        best, kept = trial, trial_kept
        objectives.append(objective)
        if settled:
            break
    return best, np.array(objectives)


def _keep(scores: Floats, weights: Floats, trim: float) -> tuple[Floats, float]:
    """Weights of the likeliest samples, all but a share of them, and their mean log density.

    The last of them may be kept in part.
    """
    order = np.argsort(-scores, kind="stable")
    total = (1.0 - trim) * weights.sum()
    before = np.cumsum(weights[order]) - weights[order]
    kept = np.zeros(len(weights))
    kept[order] = np.clip(total - before, 0.0, weights[order])
    used = kept > 0.0
    return kept, float(kept[used] @ scores[used] / total)


def without_small_components(mixture: DGNMixture, smallest: float) -> DGNMixture | DGNEnsemble:
    """Return the density of those networks of a mixture that hold a share of the samples.

    Outliers that resemble each other get a network of their own, which makes them likely.  The
    largest network is always kept.
    """
    kept = np.flatnonzero(mixture.weights_ >= min(smallest, mixture.weights_.max()))
    if len(kept) == len(mixture.weights_):
        return mixture
    networks = [mixture.networks_[int(k)] for k in kept]
    density = DGNEnsemble.from_estimators(networks, mixture.weights_[kept])
    return density.set_params(n_jobs=mixture.n_jobs, random_state=mixture.random_state)
