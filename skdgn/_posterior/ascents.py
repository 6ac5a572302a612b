"""Maxima of the posterior, by steps uphill from many points at once (Levenberg-Marquardt)."""

from __future__ import annotations

import numpy as np

from skdgn._posterior.likelihoods import Likelihood, log_joint
from skdgn._runtime import Floats

# Steps are damped by so much at first, less after one that led uphill, more after another.
_FIRST_DAMPING = 1e-2
_RELAX, _TIGHTEN = 0.2, 8.0
_MOST_STEPS = 12
# Nobody needs the maximum itself: points of which no step gains this are left where they are.
_SMALL_GAIN = 0.05


def ascend(likelihood: Likelihood, rows: Floats, starts: Floats) -> tuple[Floats, Floats, Floats]:
    """Climb from points (n, S), each for a row (n, d) of its own.

    Returns where they end, the log density p(x, z) there, up to a constant, and lower factors
    (n, S, S) of the covariance of the Gaussian around.  At a kink, where there may be a maximum
    without a slope of zero, they stop.
    """
    latent, damping = starts.copy(), np.full(len(starts), _FIRST_DAMPING)
    slopes, residuals, heights = likelihood.linearize(rows, latent)
    active = np.flatnonzero(np.isfinite(heights))
    for _ in range(_MOST_STEPS):
        own = latent[active]
        curvatures = _curvatures(slopes[active])
        gradients = np.einsum("nds,nd->ns", slopes[active], residuals[active]) - own
        diagonal = np.einsum("nss->ns", curvatures)
        diagonal *= 1.0 + damping[active, None]  # a view: the damped matrix
        steps = np.linalg.solve(curvatures, gradients[:, :, None])[:, :, 0]
        trial = own + steps
        images = likelihood.network.forward(trial)
        there = likelihood.noise.whiten(rows[active] - images)
        gains = log_joint(there, trial) - heights[active]
        uphill = gains > 0.0
        damping[active] *= np.where(uphill, _RELAX, _TIGHTEN)
        moved = active[uphill]
        latent[moved] = trial[uphill]
        slopes[moved], residuals[moved], heights[moved] = likelihood.linearize(
            rows[moved], latent[moved]
        )
        promised = np.einsum("ns,ns->n", gradients, steps)
        active = active[np.where(uphill, gains, 0.5 * promised) > _SMALL_GAIN]
        if active.size == 0:
            break
    return latent, heights, _factors(_curvatures(slopes))


def _curvatures(slopes: Floats) -> Floats:
    """Precision matrices of the Gaussians around points, given whitened slopes (n, d, S)."""
    return np.asarray(np.swapaxes(slopes, 1, 2) @ slopes + np.eye(slopes.shape[2]))


def _factors(precisions: Floats) -> Floats:
    """Lower factors of the inverses of matrices (n, S, S)."""
    # Backwards, the triangle of a factorization U U' is lower, and its inverse what is wanted.
    upper = np.linalg.cholesky(precisions[:, ::-1, ::-1])[:, ::-1, ::-1]
    return np.ascontiguousarray(np.swapaxes(np.linalg.inv(upper), 1, 2))
