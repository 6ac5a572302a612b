"""Density and posterior mean for three latent dimensions, by quadrature over latent space.

Along a line parallel to the last axis the network is piecewise affine: its kinks are found layer by
layer, and the integral between two of them has a closed form.  The other two coordinates are
integrated by Gauss-Kronrod rules on squares, those with most error divided until nothing is left to
gain.  All in the log domain: a point a hundred noise deviations off has a density of exp(-5000).
No partition, no cell and no code of the package on the way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

Floats = NDArray[np.float64]

LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)

# Nodes and weights of the 15-point Kronrod rule on [-1, 1], and weights of its 7-point Gauss rule.
_HALF_NODES = [
    0.991455371120812639206854697526329,
    0.949107912342758524526189684047851,
    0.864864423359769072789712788640926,
    0.741531185599394439863864773280788,
    0.586087235467691130294144691693018,
    0.405845151377397166906606412076961,
    0.207784955007898467600689403773245,
]
_HALF_WEIGHTS = [
    0.022935322010529224963732008058970,
    0.063092092629978553290700663189204,
    0.104790010322250183839876322541518,
    0.140653259715525918745189590510238,
    0.169004726639267902826583426598550,
    0.190350578064785409913256402421014,
    0.204432940075298892414161999234649,
]
NODES = np.array([*(-x for x in _HALF_NODES), 0.0, *_HALF_NODES[::-1]])
KRONROD = np.array([*_HALF_WEIGHTS, 0.209482141084727828012999174891714, *_HALF_WEIGHTS[::-1]])
GAUSS = np.zeros(15)
GAUSS[1::2] = np.polynomial.legendre.leggauss(7)[1]

# Squares at first, and how far they reach: the prior has nothing beyond.
N_SQUARES = 12
REACH = 15.0
MOST_ROUNDS = 60


class LatentIntegral(NamedTuple):
    log_density: float
    mean: Floats
    error: float  # of the log density, as the rules estimate it


class _Model(NamedTuple):
    coefs: list[Floats]  # the last layer's, in units of the noise
    intercepts: list[Floats]
    negative_slope: float
    log_constant: float


class _Squares(NamedTuple):
    """Squares of the plane of the first two coordinates, with what was integrated over them."""

    corners: Floats  # (k, 2)
    sizes: Floats  # (k,)
    logs: Floats  # (k,) of the integrals
    log_errors: Floats  # (k,)
    means: Floats  # (k, 3)


def integrate_over_latent_space(
    coefs: list[Any],
    intercepts: list[Any],
    negative_slope: float,
    noise_covariance: ArrayLike,
    row: ArrayLike,
    tolerance: float = 1e-8,
) -> LatentIntegral:
    """Integrate prior times likelihood over R^3, to a relative tolerance."""
    inverse = np.linalg.inv(np.linalg.cholesky(np.asarray(noise_covariance, dtype=float)))
    log_constant = np.log(np.diagonal(inverse)).sum() - len(inverse) * LOG_SQRT_2PI
    layers = [np.asarray(coef, dtype=float) for coef in coefs]
    biases = [np.asarray(intercept, dtype=float) for intercept in intercepts]
    layers[-1], biases[-1] = inverse @ layers[-1], inverse @ (biases[-1] - np.asarray(row))
    model = _Model(layers, biases, negative_slope, float(log_constant))

    ticks = REACH * (2.0 * np.arange(N_SQUARES) / N_SQUARES - 1.0)
    corners = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    squares = _integrate_squares(model, corners, np.full(len(corners), 2.0 * REACH / N_SQUARES))
    for _ in range(MOST_ROUNDS):
        log_total = np.logaddexp.reduce(squares.logs)
        error = float(np.exp(squares.log_errors - log_total).sum())
        if error < tolerance:
            shares = np.exp(squares.logs - log_total)
            return LatentIntegral(float(log_total), shares @ squares.means, error)
        # The squares with the largest errors, that have all but a tenth of what is allowed.
        order = np.argsort(squares.log_errors)
        small = np.cumsum(np.exp(squares.log_errors[order] - log_total)) < 0.1 * tolerance
        kept, divided = order[small], order[~small]
        half = np.repeat(0.5 * squares.sizes[divided], 4)
        steps = np.tile([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], (len(divided), 1))
        quarters = _integrate_squares(
            model, np.repeat(squares.corners[divided], 4, axis=0) + half[:, None] * steps, half
        )
        squares = _Squares(
            *(np.concatenate([a[kept], b]) for a, b in zip(squares, quarters, strict=True))
        )
    raise ArithmeticError("the quadrature does not converge.")


def _integrate_squares(model: _Model, corners: Floats, sizes: Floats) -> _Squares:
    parts = [
        _integrate_some_squares(model, corners[first : first + 200], sizes[first : first + 200])
        for first in range(0, len(sizes), 200)
    ]
    return _Squares(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _integrate_some_squares(model: _Model, corners: Floats, sizes: Floats) -> _Squares:
    ticks = corners[:, None, :] + 0.5 * sizes[:, None, None] * (1.0 + NODES[None, :, None])
    plane = np.empty((len(sizes), 15, 15, 2))
    plane[..., 0] = ticks[:, :, None, 0]
    plane[..., 1] = ticks[:, None, :, 1]
    logs, means = _integrate_lines(model, plane.reshape(-1, 2))
    logs, means = logs.reshape(-1, 15, 15), means.reshape(-1, 15, 15)
    largest = logs.max(axis=(1, 2))
    values = np.exp(logs - largest[:, None, None])
    area = np.log(0.25 * sizes**2) + largest
    kronrod = np.einsum("kij,i,j->k", values, KRONROD, KRONROD)
    gauss = np.einsum("kij,i,j->k", values, GAUSS, GAUSS)
    points = np.concatenate([plane, means[..., None]], axis=-1)
    first = np.einsum("kij,i,j,kijs->ks", values, KRONROD, KRONROD, points)
    # Two sums that agree to the last digit are not free of error.
    difference = np.maximum(np.abs(kronrod - gauss), 1e-16 * kronrod)
    return _Squares(
        corners, sizes, area + np.log(kronrod), area + np.log(difference), first / kronrod[:, None]
    )


def _integrate_lines(model: _Model, plane: Floats) -> tuple[Floats, Floats]:
    """Log of the integral along each line, and the mean of the last coordinate."""
    # On each piece of each line, what a layer computes is ``values + rates * t``.
    n_lines = len(plane)
    lower, upper = np.full((n_lines, 1), -np.inf), np.full((n_lines, 1), np.inf)
    values = np.concatenate([plane, np.zeros((n_lines, 1))], axis=1)[:, None, :]
    rates = np.broadcast_to([0.0, 0.0, 1.0], (n_lines, 1, 3))
    for coef, intercept in zip(model.coefs[:-1], model.intercepts[:-1], strict=True):
        values, rates = values @ coef.T + intercept, rates @ coef.T
        with np.errstate(divide="ignore", invalid="ignore"):
            roots = -values / rates
        roots = np.where(np.isnan(roots), np.inf, roots)  # constant: no kink
        roots = np.sort(np.clip(roots, lower[..., None], upper[..., None]), axis=-1)
        ends = np.concatenate([lower[..., None], roots, upper[..., None]], axis=-1)
        n_units = len(coef)
        lower = ends[..., :-1].reshape(n_lines, -1)
        upper = ends[..., 1:].reshape(n_lines, -1)
        values, rates = (
            np.repeat(values, n_units + 1, axis=1),
            np.repeat(rates, n_units + 1, axis=1),
        )
        inside = _middle(lower, upper)[..., None]
        slopes = np.where(values + rates * inside > 0.0, 1.0, model.negative_slope)
        values, rates = slopes * values, slopes * rates
    values, rates = values @ model.coefs[-1].T + model.intercepts[-1], rates @ model.coefs[-1].T

    # exp(-(|values + rates t|^2 + t^2) / 2), with the residual at its largest point.
    precision = 1.0 + (rates**2).sum(axis=-1)
    center = -(values * rates).sum(axis=-1) / precision
    residual = values + rates * center[..., None]
    square = (residual**2).sum(axis=-1) + center**2 + (plane**2).sum(axis=1)[:, None]
    deviation = 1.0 / np.sqrt(precision)
    start, stop = (lower - center) / deviation, (upper - center) / deviation
    log_mass = _log_normal_mass(start, stop)
    logs = model.log_constant - 2.0 * LOG_SQRT_2PI - 0.5 * square + np.log(deviation) + log_mass
    empty = ~(lower < upper)
    logs[empty] = -np.inf
    with np.errstate(over="ignore", invalid="ignore"):
        slope = np.exp(-0.5 * start**2 - LOG_SQRT_2PI - log_mass)
        slope -= np.exp(-0.5 * stop**2 - LOG_SQRT_2PI - log_mass)
    means = np.where(empty | ~np.isfinite(slope), 0.0, center + deviation * slope)
    # Slivers: what the closed form has lost there, the ends tell.
    means = np.clip(means, np.where(empty, 0.0, lower), np.where(empty, 0.0, upper))
    totals = np.logaddexp.reduce(logs, axis=1)
    return totals, (np.exp(logs - totals[:, None]) * means).sum(axis=1)


def _middle(lower: Floats, upper: Floats) -> Floats:
    left = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper - 2.0, -1.0))
    right = np.where(np.isfinite(upper), upper, left + 2.0)
    return 0.5 * (left + right)


def _log_normal_mass(start: Floats, stop: Floats) -> Floats:
    """Log of the standard normal's mass on [start, stop], in the tail where nothing cancels."""
    flip = start > 0.0
    a, b = np.where(flip, -stop, start), np.where(flip, -start, stop)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_a, log_b = log_ndtr(a), log_ndtr(b)
        return log_b + np.log1p(-np.exp(np.minimum(log_a - log_b, 0.0)))
