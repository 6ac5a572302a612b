"""Gaussian approximations q of the posterior: exact bounds, exact divergences, the best of them.

A Gaussian's mass, mean and covariance on each region are what the exact posterior is made of, and
log p(x, z) is quadratic in z on each region.  So expectations under q are sums over regions, with
no Monte Carlo:

    E_q[log p(x, z)] = sum_r mass_r E_r[log p(x, z)]
    ELBO = E_q[log p(x, z)] + entropy of q,        KL(q || p(z | x)) = log p(x) - ELBO.

It is continuous: moving region boundaries contribute nothing to derivatives, and with
z = mean + factor @ e

    d/d mean = E_q[grad],      d/d factor = E_q[grad e']        grad: of log p(x, z), affine on r.

All is relative to the value at a reference, the conditional mean of the sample's heaviest region:
log densities of outliers have no digits left for their differences.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from skdgn._geometry import Facets, integrate_cell, make_room, whiten_cell
from skdgn._runtime import LOG_SQRT_2PI, Bools, Floats, Integers, inlined_kernel, kernel

# Absolute error of a region's mass: for results, and in the search for the best Gaussian.
_LOG_MASS_ERROR = math.log(1e-17)
_LOG_SEARCH_ERROR = math.log(1e-12)
# The search ends when no derivative is larger, in units of the deviations: what is left to gain is
# of the order of its square.
_GRADIENT_TOLERANCE = 1e-6
_MOST_STEPS = 200
# A step of the search may go too far: squares of larger means or deviations might overflow.
_LARGEST_STEP = 1e100


class Regions(NamedTuple):
    """The generator in units of the noise, and its regions, each in one of several frames."""

    frames: Integers  # (R,): in which coordinates each region's map is given
    slopes: Floats  # (R, C, S)
    offsets: Floats  # (R, C)
    points: Floats  # (R, S) inside of them
    facets: Facets
    cells: Any  # whitened with identity matrices
    lower: Floats  # (R, S) of boxes around the regions, -inf if nothing is known
    upper: Floats  # (R, S)


class Reference(NamedTuple):
    """A latent point relative to which log p(x, z) of a sample is computed.

    It is the maximum of log p(x, z), were its region all of latent space.
    """

    region: int  # or -1: any point
    latent: Floats  # (S,)
    residuals: Floats  # (f, C) of the sample from the image of that point, in all frames
    excess: Floats  # (f,): what the frames leave out of a difference of squared distances


class References(NamedTuple):
    """The reference of each sample."""

    regions: Integers  # (n,)
    latent: Floats  # (n, S)
    residuals: Floats  # (n, f, C)
    excess: Floats  # (n, f)

    def of(self, sample: int) -> Reference:
        """Return that of one sample."""
        return Reference(
            self.regions[sample],
            self.latent[sample],
            self.residuals[sample],
            self.excess[sample],
        )


class Quadratics(NamedTuple):
    """Log p(x, z) of one sample on each region, about a point, as far as it was asked for.

    It is relative to the reference.
    """

    known: Bools  # (R,)
    points: Floats  # (R, S)
    values: Floats  # (R,)
    slopes: Floats  # (R, S)
    hessians: Floats  # (R, S, S)

    @classmethod
    def make(cls, regions: Regions) -> Quadratics:
        """Make room."""
        n_regions, n_components = regions.points.shape
        return cls(
            np.zeros(n_regions, dtype=bool),
            np.empty((n_regions, n_components)),
            np.empty(n_regions),
            np.empty((n_regions, n_components)),
            np.empty((n_regions, n_components, n_components)),
        )

    def forget(self) -> Quadratics:
        """Return the same room, for another sample."""
        self.known[:] = False
        return self


@kernel
def integrate_region(
    cells: Any,
    room: Any,
    region: int,
    factor: Floats,
    center: Floats,
    log_tolerance: float,
    mean: Floats,
    covariance: Floats,
) -> float:
    """Integrate N(factor @ center, factor @ factor') over a region; return the log mass."""
    whiten_cell(cells, region, factor, room)
    return integrate_cell(room, 0, center, log_tolerance, mean, covariance)


@kernel
def _log_masses(cells: Any, room: Any, regions: Any, factors: Floats, centers: Floats) -> Floats:
    n_components = centers.shape[1]
    mean, covariance = np.empty(n_components), np.empty((n_components, n_components))
    log_masses = np.empty(len(regions))
    for k in range(len(regions)):
        log_masses[k] = integrate_region(
            cells, room, regions[k], factors[k], centers[k], -math.inf, mean, covariance
        )
    return log_masses


def log_masses(cells: Any, regions: Any, factors: Floats, centers: Floats) -> Floats:
    """Log masses of Gaussians N(factor @ center, factor @ factor'), each on its region."""
    factors, centers = np.ascontiguousarray(factors), np.ascontiguousarray(centers)
    return np.asarray(_log_masses(cells, make_room(cells), regions, factors, centers))


@kernel
def _expect(
    regions: Regions,
    quadratics: Quadratics,
    room: Any,
    sample: Floats,
    reference: Reference,
    mean: Floats,
    factor: Floats,
    log_mass_error: float,
    gradient: Floats,
    cross: Floats,
) -> float:
    """Expectation of log p(x, z) under N(mean, factor factor'), relative to the reference.

    Fills the expectations of its gradient, and of the gradient times e.  The factor is lower
    triangular.
    """
    n_components = mean.size
    center = np.empty(n_components)
    for s in range(n_components):
        center[s] = mean[s]
        for t in range(s):
            center[s] -= factor[s, t] * center[t]
        center[s] /= factor[s, s]
        gradient[s] = 0.0
        for t in range(n_components):
            cross[s, t] = 0.0
    average, spread = np.empty(n_components), np.empty((n_components, n_components))
    slope, value = np.empty(n_components), 0.0
    deviations = np.sqrt((factor * factor).sum(axis=1))
    for r in range(len(regions.offsets)):
        # A box is looked at first: there may be many regions, and few that are near.
        outside = 0.0
        for s in range(n_components):
            apart = max(regions.lower[r, s] - mean[s], mean[s] - regions.upper[r, s])
            outside = max(outside, apart / deviations[s])
        if -0.5 * outside * outside < log_mass_error:
            continue
        outside = _distance_to_region(regions.facets, r, mean, factor)
        if -0.5 * outside * outside < log_mass_error:
            continue
        log_mass = integrate_region(
            regions.cells, room, r, factor, center, log_mass_error, average, spread
        )
        mass = math.exp(log_mass)
        if mass == 0.0:
            continue
        if not quadratics.known[r]:
            _expand(regions, r, sample, reference, quadratics)
        # At the region's mean; the gradient at z is that plus Hessian times (z - mean).
        expected = quadratics.values[r]
        for s in range(n_components):
            slope[s] = quadratics.slopes[r, s]
            shift = average[s] - quadratics.points[r, s]
            expected += slope[s] * shift
            for t in range(n_components):
                along = quadratics.hessians[r, s, t] * (average[t] - quadratics.points[r, t])
                slope[s] += along
                expected += 0.5 * (along * shift + quadratics.hessians[r, s, t] * spread[s, t])
        value += mass * expected
        for s in range(n_components):
            gradient[s] += mass * slope[s]
            for t in range(n_components):
                term = slope[s] * (average[t] - mean[t])
                for u in range(n_components):
                    term += quadratics.hessians[r, s, u] * spread[u, t]
                cross[s, t] += mass * term
    # So far, cross is E[gradient (z - mean)'] = E[gradient e'] factor'.
    for s in range(n_components):
        for t in range(n_components):
            for u in range(t):
                cross[s, t] -= cross[s, u] * factor[t, u]
            cross[s, t] /= factor[t, t]
    return value


@inlined_kernel
def _distance_to_region(facets: Facets, region: int, mean: Floats, factor: Floats) -> float:
    """Bound the distance of a Gaussian's mean from a region from below, in its own units."""
    outside = 0.0
    for f in range(facets.start[region], facets.start[region + 1]):
        distance, square = facets.offsets[f], 0.0
        for s in range(mean.size):
            distance -= facets.normals[f, s] * mean[s]
            along = 0.0
            for t in range(s, mean.size):
                along += factor[t, s] * facets.normals[f, t]
            square += along * along
        outside = max(outside, distance / math.sqrt(square))
    return outside


@kernel
def _expand(
    regions: Regions, r: int, sample: Floats, reference: Reference, quadratics: Quadratics
) -> None:
    """Expand log p(x, z), relative to the reference, about a point of a region."""
    is_reference = r == reference.region
    frame, latent = regions.frames[r], reference.latent
    point, slope = quadratics.points[r], quadratics.slopes[r]
    hessian = quadratics.hessians[r]
    square = reference.excess[frame]
    for s in range(point.size):
        point[s] = latent[s] if is_reference else regions.points[r, s]
        square += (point[s] - latent[s]) * (point[s] + latent[s])
        slope[s] = -point[s]
        for t in range(point.size):
            # The Hessian is -(I + A~'A~).
            hessian[s, t] = -1.0 if s == t else 0.0
    for d in range(sample.shape[1]):
        here, there = sample[frame, d] - regions.offsets[r, d], reference.residuals[frame, d]
        for s in range(point.size):
            here -= regions.slopes[r, d, s] * point[s]
        square += (here - there) * (here + there)
        for s in range(point.size):
            slope[s] += regions.slopes[r, d, s] * here
            for t in range(point.size):
                hessian[s, t] -= regions.slopes[r, d, s] * regions.slopes[r, d, t]
    quadratics.values[r] = -0.5 * square
    if is_reference:
        # It is the maximum: what is left of both is rounding.
        quadratics.values[r] = 0.0
        for s in range(point.size):
            slope[s] = 0.0
    quadratics.known[r] = True


def expect_log_joint(
    regions: Regions, samples: Floats, references: References, means: Floats, factors: Floats
) -> Floats:
    """Expectations of log p(x, z) under Gaussians, relative to the references: (n,)."""
    n_components = means.shape[1]
    gradient, cross = np.empty(n_components), np.empty((n_components, n_components))
    room, quadratics = make_room(regions.cells), Quadratics.make(regions)
    return np.array(
        [
            _expect(
                regions,
                quadratics.forget(),
                room,
                samples[n],
                references.of(n),
                np.ascontiguousarray(means[n]),
                np.ascontiguousarray(factors[n]),
                _LOG_MASS_ERROR,
                gradient,
                cross,
            )
            for n in range(len(samples))
        ]
    )


def entropies(factors: Floats) -> Floats:
    """Entropies of Gaussians with these lower triangular factors of their covariances."""
    n_components = factors.shape[1]
    diagonals = np.diagonal(factors, axis1=1, axis2=2)
    return np.asarray(
        np.log(diagonals).sum(axis=1) + n_components * (0.5 + LOG_SQRT_2PI), dtype=np.float64
    )


def improve_gaussian(
    regions: Regions,
    quadratics: Quadratics,
    sample: Floats,
    reference: Reference,
    mean: Floats,
    factor: Floats,
) -> tuple[float, Floats, Floats]:
    """Minimize KL(q || p(z | x)) over Gaussians q, from a first one.

    Returns the smallest -E_q[log p(x, z)] - log det(factor) found, the mean and the factor.  It is
    a local minimum: there may be others.
    """
    n_components = mean.size
    lower = np.tril_indices(n_components)
    is_diagonal = lower[0] == lower[1]
    room = make_room(regions.cells)
    gradient, cross = np.empty(n_components), np.empty((n_components, n_components))

    # In units of the first Gaussian: mean + factor @ shift, factor @ triangle.
    def unpack(parameters: Floats) -> tuple[Floats, Floats]:
        triangle = np.zeros((n_components, n_components))
        entries = parameters[n_components:]
        triangle[lower] = np.where(is_diagonal, np.exp(entries), entries)
        return mean + factor @ parameters[:n_components], triangle

    def objective(parameters: Floats) -> tuple[float, Floats]:
        with np.errstate(over="ignore", invalid="ignore"):
            here, triangle = unpack(parameters)
            scaled = factor @ triangle
        largest = max(np.abs(here).max(), np.abs(scaled).max())
        if not (largest < _LARGEST_STEP and np.diagonal(scaled).min() > 0.0):
            return math.inf, np.zeros_like(parameters)
        value = _expect(
            regions,
            quadratics,
            room,
            sample,
            reference,
            here,
            scaled,
            _LOG_SEARCH_ERROR,
            gradient,
            cross,
        )
        by_triangle = (factor.T @ cross)[lower]
        by_entries = np.where(is_diagonal, by_triangle * triangle[lower] + 1.0, by_triangle)
        log_scale = parameters[n_components:][is_diagonal].sum()
        derivatives = np.concatenate([factor.T @ gradient, by_entries])
        return -value - log_scale, -derivatives

    result = scipy.optimize.minimize(
        objective,
        np.zeros(n_components + lower[0].size),
        jac=True,
        method="BFGS",
        options={"gtol": _GRADIENT_TOLERANCE, "maxiter": _MOST_STEPS},
    )
    best_mean, triangle = unpack(result.x)
    best_factor = factor @ triangle
    value = float(result.fun) - float(np.log(np.diagonal(factor)).sum())
    return value, best_mean, best_factor
