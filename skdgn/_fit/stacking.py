"""Weights of an average of densities, chosen by samples that its members have not seen."""

from __future__ import annotations

import numpy as np

from skdgn._runtime import Floats

# Iterations stop when one adds less than this to the mean log density, in nats.
_TOLERANCE = 1e-9
_MOST_ITERATIONS = 10_000
# Samples that every scale has beside those that were held out: none of them is without weight.
_PRIOR_COUNT = 0.1


def stack(log_densities: Floats, sample_weights: Floats) -> Floats:
    """Find the weights (K,) of the likeliest average of K densities.

    They add up to one, and maximize the sum of ``log(sum_k w_k p_k(x))`` over the samples, of which
    log densities (n, K) and weights (n,) are given.  See `stack_with_scales`.
    """
    return stack_with_scales(log_densities[:, :, None], sample_weights)[0]


def stack_with_scales(
    log_densities: Floats, sample_weights: Floats, given: Floats | None = None
) -> tuple[Floats, Floats]:
    """Find the weights of K members (K,) and of S scales (S,) of the likeliest average.

    The average is ``sum_k w_k sum_s v_s p_ks(x)``: each member at each scale of its noise.  Weights
    add up to one, and maximize the sum of its log over the samples, of which log densities
    (n, K, S) and weights (n,) are given.  Members that have seen x, whose log densities are NaN, do
    not count.  The weights of the members may be given: then only those of the scales are found.

    EM for the weights of a mixture of mixtures.  A density of zero in place of what a member says
    of its own samples bounds the average from below.  To divide by the weights of the others
    instead would reward a ranking of the members, in which the best alone has weight.
    """
    n_members, n_scales = log_densities.shape[1:]
    weights = np.full(n_members, 1.0 / n_members) if given is None else given
    scale_weights = np.full(n_scales, 1.0 / n_scales)
    peaks = np.fmax.reduce(log_densities[:, weights > 0.0], axis=(1, 2))
    # Nothing is to be learned where no member is asked, or none has a density.
    told = peaks > -np.inf
    total = sample_weights[told].sum()
    if not total > 0.0:
        # As they were fitted: the first scale is 1.
        return weights, np.eye(n_scales)[0]
    importance = sample_weights[told] / total
    prior = _PRIOR_COUNT / max(total, told.sum())  # weights may not be counts
    densities = np.zeros((int(told.sum()), n_members, n_scales))
    densities[:, weights > 0.0] = np.nan_to_num(
        np.exp(log_densities[told][:, weights > 0.0] - peaks[told, None, None])
    )
    last = -np.inf
    for _ in range(_MOST_ITERATIONS):
        of_members = densities @ scale_weights
        averages = of_members @ weights
        objective = float(importance @ np.log(averages) + prior * np.log(scale_weights).sum())
        if objective - last < _TOLERANCE:
            break
        last = objective
        shares = importance / averages
        scale_weights = scale_weights * np.einsum("n,nks,k->s", shares, densities, weights) + prior
        scale_weights /= scale_weights.sum()
        if given is None:
            weights = weights * (shares @ of_members)
            weights /= weights.sum()
    return weights, scale_weights
