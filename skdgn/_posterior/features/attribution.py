"""What each feature contributes to how unlikely a sample is: -log p(x), shared among its values.

The *game* of a sample: what a set of its values scores is -log p(these values), an exact marginal.
Shapley's value of a feature is its average contribution over all orders in which values may be
added to a set, the only division of -log p(x) that treats features alike and adds up.  Missing
values are no players: they contribute nothing.

Shapes: ``n`` samples, ``D`` features, ``d`` of them observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb

import numpy as np

from skdgn._runtime import Bools, Floats, Integers, RandomSource, split_by_pattern

# All subsets of so many features are visited, 4,096 of them; of more, orders are drawn.
MOST_EXACT_FEATURES = 12
# Marginals computed at a time.
_MOST_MARGINALS = 2**16

LogDensity = Callable[[Floats], Floats]


def surprises(log_density: LogDensity, samples: Floats) -> Floats:
    """Compute -log p(x_j | all others) of every value of samples (n, D): (n, D)."""
    n_features = samples.shape[1]
    # All values, and all but one.
    subsets = np.concatenate([np.ones((1, n_features), bool), ~np.eye(n_features, dtype=bool)])
    result = np.zeros(samples.shape)
    for batch in _batches(len(samples), len(subsets)):
        scores = _score_subsets(log_density, samples[batch], subsets)
        with np.errstate(invalid="ignore"):
            result[batch] = scores[:, :1] - scores[:, 1:]
    return np.where(np.isnan(samples), 0.0, result)


def shapley_values(
    log_density: LogDensity, samples: Floats, n_permutations: int, generator: RandomSource
) -> tuple[Floats, Floats]:
    """Share -log p(x) among the values of samples (n, D): (n, D), and standard errors (n, D).

    The latter are zero up to `MOST_EXACT_FEATURES` observed values.
    """
    values, errors = np.zeros(samples.shape), np.zeros(samples.shape)
    for own, features in split_by_pattern(samples):
        if features.size == 0:
            continue
        target = np.ix_(own, features)
        if features.size <= MOST_EXACT_FEATURES:
            values[target] = _over_subsets(log_density, samples[own], features)
        else:
            # Of every order, the reverse: what one says too early, the other says too late.
            orders = np.stack([generator.permutation(features) for _ in range(n_permutations // 2)])
            values[target], errors[target] = _over_orders(
                log_density, samples[own], features, orders
            )
    return values, errors


def _over_subsets(log_density: LogDensity, samples: Floats, features: Integers) -> Floats:
    """Average over all orders, by all subsets of the features: (n, d)."""
    n_players = features.size
    members = (np.arange(2**n_players)[:, None] >> np.arange(n_players)) % 2 == 1
    subsets = np.zeros((len(members), samples.shape[1]), dtype=bool)
    subsets[:, features] = members
    # Share of the orders in which the members of a set come first, and then a given one.
    shares = np.array([1.0 / (n_players * comb(n_players - 1, k)) for k in range(n_players)])
    sizes = members.sum(axis=1)
    joins = shares[np.maximum(sizes - 1, 0)][:, None]
    stays = shares[np.minimum(sizes, n_players - 1)][:, None]
    weights = np.where(members, joins, -stays)
    values = np.empty((len(samples), n_players))
    for batch in _batches(len(samples), len(subsets)):
        scores = _score_subsets(log_density, samples[batch], subsets)
        with np.errstate(invalid="ignore"):
            values[batch] = scores @ weights
    return values


def _over_orders(
    log_density: LogDensity, samples: Floats, features: Integers, orders: Integers
) -> tuple[Floats, Floats]:
    """Average over some orders (P, d) of the features, and their reverses: (n, d), and errors."""
    n_orders, n_players = orders.shape
    both = np.stack([orders, orders[:, ::-1]], axis=1)  # (P, 2, d)
    # The first k features of an order, for k = 0, ..., d.
    subsets = np.zeros((n_orders, 2, n_players + 1, samples.shape[1]), dtype=bool)
    for size in range(1, n_players + 1):
        subsets[:, :, size] = subsets[:, :, size - 1]
        np.put_along_axis(subsets[:, :, size], both[:, :, size - 1, None], True, axis=2)
    places = np.empty(samples.shape[1], dtype=np.intp)
    places[features] = np.arange(n_players)
    flat = subsets.reshape(-1, samples.shape[1])
    values, errors = np.empty((len(samples), n_players)), np.empty((len(samples), n_players))
    for batch in _batches(len(samples), len(flat)):
        scores = _score_subsets(log_density, samples[batch], flat)
        with np.errstate(invalid="ignore"):
            steps = np.diff(scores.reshape(-1, n_orders, 2, n_players + 1), axis=3)
        own = np.empty_like(steps)
        target = np.broadcast_to(places[both], steps.shape)
        np.put_along_axis(own, target, steps, axis=3)
        pairs = own.mean(axis=2)  # (n, P, d)
        values[batch] = pairs.mean(axis=1)
        errors[batch] = pairs.std(axis=1, ddof=1) / np.sqrt(n_orders)
    return values, errors


def _score_subsets(log_density: LogDensity, samples: Floats, subsets: Bools) -> Floats:
    """Compute -log p of subsets (m, D) of the values of samples (n, D): (n, m)."""
    marginals = np.where(subsets, samples[:, None], np.nan)
    is_empty = np.isnan(marginals).all(axis=2)
    scores = -log_density(marginals.reshape(-1, samples.shape[1])).reshape(is_empty.shape)
    # Exactly: weights of components add up to one but for rounding.
    return np.where(is_empty, 0.0, scores)


def _batches(n_samples: int, n_subsets: int) -> Iterator[slice]:
    size = max(1, _MOST_MARGINALS // n_subsets)
    for first in range(0, n_samples, size):
        yield slice(first, min(first + size, n_samples))
