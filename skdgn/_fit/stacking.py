"""Weights of an average of densities, chosen by samples that its members have not seen."""

from __future__ import annotations

import numpy as np

from skdgn._runtime import Floats

# Iterations stop when one adds less than this to the mean log density, in nats.
_TOLERANCE = 1e-9
_MOST_ITERATIONS = 10_000


def stack(log_densities: Floats, row_weights: Floats) -> Floats:
    """Find the weights (K,) of the likeliest average of K densities.

    They add up to one, and maximize the sum of ``log(sum_k w_k p_k(x))`` over the samples, of which
    log densities (n, K) and weights (n,) are given.  Members that have seen x, whose log density is
    NaN, do not count.

    EM for the weights of a mixture; the objective is concave.  A density of zero in place of what a
    member says of its own samples bounds the average from below.  To divide by the weights of the
    others instead would reward a ranking of the members, in which the best alone has weight.
    """
    n_members = log_densities.shape[1]
    weights = np.full(n_members, 1.0 / n_members)
    peaks = np.fmax.reduce(log_densities, axis=1)
    # Nothing is to be learned where no member is asked, or none has a density.
    told = peaks > -np.inf
    if not row_weights[told].sum() > 0.0:
        return weights
    importance = row_weights[told] / row_weights[told].sum()
    densities = np.nan_to_num(np.exp(log_densities[told] - peaks[told, None]))
    last = -np.inf
    for _ in range(_MOST_ITERATIONS):
        averages = densities @ weights
        objective = float(importance @ np.log(averages))
        if objective - last < _TOLERANCE:
            break
        last = objective
        weights *= (importance / averages) @ densities
    return weights / weights.sum()
