"""Maxima of the posterior, by steps uphill from many points at once (Levenberg-Marquardt)."""

from __future__ import annotations

import math

import numpy as np

from skdgn._partition import explored_partition
from skdgn._posterior.explored.likelihoods import Likelihood
from skdgn._runtime import Floats, Integers, sum_kernel

# Steps are damped by so much at first, less after one that led uphill, more after another.
_FIRST_DAMPING = 1e-2
_RELAX, _TIGHTEN = 0.2, 8.0
_MOST_STEPS = 12
# Nobody needs the maximum itself: points of which no step gains this are left where they are.
_SMALL_GAIN = 0.05
# How far beyond a kink is just beyond, relative to its distance.
_BEYOND = 1e-3


def ascend(
    likelihood: Likelihood, samples: Floats, starts: Floats
) -> tuple[Floats, Floats, Floats]:
    """Climb from points (n, S), each for a sample (n, d) of its own.

    Returns where they end, the log density p(x, z) there, up to a constant, and lower factors
    (n, S, S) of the covariance of the Gaussian around.  At a kink, where there may be a maximum
    without a slope of zero, they stop.
    """
    latent, damping = starts.copy(), np.full(len(starts), _FIRST_DAMPING)
    slopes, residuals, heights = likelihood.linearize(samples, latent)
    active = np.flatnonzero(np.isfinite(heights))
    for _ in range(_MOST_STEPS):
        steps, promised = _find_steps(slopes, residuals, latent, damping, active)
        promising = 0.5 * promised > _SMALL_GAIN
        active, steps = active[promising], steps[promising]
        if active.size == 0:
            break
        trial = latent[active] + steps
        there = likelihood.linearize(samples[active], trial)
        gains = there[2] - heights[active]
        uphill = gains > 0.0
        damping[active] *= np.where(uphill, _RELAX, _TIGHTEN)
        moved = active[uphill]
        for array, new in zip((latent, slopes, residuals, heights), (trial, *there), strict=True):
            array[moved] = new[uphill]
        active = active[~uphill | (gains > _SMALL_GAIN)]
    return latent, heights, _find_factors(slopes)


@sum_kernel
def _find_steps(
    slopes: Floats, residuals: Floats, latent: Floats, damping: Floats, active: Integers
) -> tuple[Floats, Floats]:
    """Solve for the damped step from each active point, and what its slope promises for it."""
    n_features, n_components = slopes.shape[1:]
    steps, promised = np.empty((len(active), n_components)), np.zeros(len(active))
    factor, gradient = np.empty((n_components, n_components)), np.empty(n_components)
    for i in range(len(active)):
        n, step = active[i], steps[i]
        for s in range(n_components):
            gradient[s] = -latent[n, s]
            for t in range(s + 1):
                factor[s, t] = 1.0 if s == t else 0.0
        for d in range(n_features):
            for s in range(n_components):
                slope = slopes[n, d, s]
                gradient[s] += slope * residuals[n, d]
                for t in range(s + 1):
                    factor[s, t] += slope * slopes[n, d, t]
        for s in range(n_components):
            factor[s, s] *= 1.0 + damping[n]
            step[s] = gradient[s]
            for t in range(s + 1):
                value = factor[s, t]
                for u in range(t):
                    value -= factor[s, u] * factor[t, u]
                factor[s, t] = math.sqrt(value) if s == t else value / factor[t, t]
            for t in range(s):
                step[s] -= factor[s, t] * step[t]
            step[s] /= factor[s, s]
        for s in range(n_components - 1, -1, -1):
            for t in range(s + 1, n_components):
                step[s] -= factor[t, s] * step[t]
            step[s] /= factor[s, s]
            promised[i] += gradient[s] * step[s]
    return steps, promised


def cross_kinks(
    likelihood: Likelihood, samples: Floats, points: Floats, factors: Floats, number: int
) -> tuple[Integers, Floats, Floats, Floats, Floats]:
    """Look just beyond the kinks that are nearest to points (n, S), so many of each.

    Where the Gaussians about the points, of lower factors (n, S, S), are highest there.  Returns
    which point each belongs to, where it is, the log density p(x, z) there, up to a constant, lower
    factors of the Gaussians of the regions beyond, and how much higher than there their maxima are:
    minus infinity where that is back on the other side.
    """
    network, n_components = likelihood.network, points.shape[1]
    cells = explored_partition(network, points, network.patterns(points)).cells
    start, normals, offsets = cells.facets()
    owners = np.repeat(np.arange(len(points)), np.diff(start))
    directions = np.einsum("fts,ft->fs", factors[owners], normals)
    squares = np.einsum("fs,fs->f", directions, directions)
    distances = np.einsum("fs,fs->f", normals, points[owners]) - offsets
    # Where there are few kinks, they come in turn; where there are none, nothing is beyond.
    order = np.lexsort((distances / np.sqrt(squares), owners))
    inside = np.flatnonzero(np.diff(start))
    turns = np.arange(number) % np.diff(start)[inside, None]
    chosen = order[start[inside, None] + turns]
    steps = np.einsum("nst,njt->njs", factors[inside], directions[chosen])
    steps *= (-(1.0 + _BEYOND) * distances[chosen] / squares[chosen])[:, :, None]
    beyond = (points[inside, None] + steps).reshape(-1, n_components)
    places = np.repeat(inside, number)
    slopes, residuals, heights = likelihood.linearize(samples[places], beyond)
    own = _find_factors(slopes)
    gradients = np.einsum("nds,nd->ns", slopes, residuals) - beyond
    gains = np.einsum("nts,nt->ns", own, gradients)
    onward = np.einsum("nst,nt,ns->n", own, gains, steps.reshape(-1, n_components)) > 0.0
    promised = np.where(onward, 0.5 * np.square(gains).sum(axis=1), -np.inf)
    return places, beyond, heights, own, promised


@sum_kernel
def _find_factors(slopes: Floats) -> Floats:
    """Lower factors of the covariances of Gaussians around points, given slopes (n, d, S)."""
    n_points, n_features, n_components = slopes.shape
    factors = np.zeros((n_points, n_components, n_components))
    lower = np.empty((n_components, n_components))
    for n in range(n_points):
        factor = factors[n]
        for s in range(n_components):
            for t in range(s + 1):
                lower[s, t] = 1.0 if s == t else 0.0
        for d in range(n_features):
            for s in range(n_components):
                for t in range(s + 1):
                    lower[s, t] += slopes[n, d, s] * slopes[n, d, t]
        # The precision is U U' with an upper triangle U, found from the last column on ...
        for t in range(n_components - 1, -1, -1):
            for s in range(t, -1, -1):
                value = lower[t, s]
                for u in range(t + 1, n_components):
                    value -= lower[u, s] * lower[u, t]
                lower[t, s] = math.sqrt(value) if s == t else value / lower[t, t]
        # ... and the inverse of its transpose is the factor.
        for s in range(n_components):
            factor[s, s] = 1.0 / lower[s, s]
            for t in range(s):
                value = 0.0
                for u in range(t, s):
                    value -= lower[s, u] * factor[u, t]
                factor[s, t] = value * factor[s, s]
    return factors
