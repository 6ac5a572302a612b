"""Density and posterior moments for one latent dimension, in high precision, interval by interval.

On an interval where the network is affine, prior times likelihood is exp of a quadratic in z, and
its integrals have a closed form.  Nothing but the weights comes from the package.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import mpmath as mp

from skdgn._network import Network

Number = Any  # mpmath has no types
Affine = tuple[Number, Number]  # slope, offset

# Quadratics of outliers reach 1e12, and variances are differences of squares of that size.
DIGITS = 80


class LinePosterior(NamedTuple):
    log_density: float
    mean: float
    second_moment: float


def line_posterior(
    network: Network, noise_covariance: list[list[float]], row: list[float]
) -> LinePosterior:
    """Integrate over all of latent space, for a network with n_components = 1."""
    with mp.workdps(DIGITS):
        covariance = mp.matrix(noise_covariance)
        precision = covariance**-1
        log_constant = -(len(row) * mp.log(2 * mp.pi) + mp.log(mp.det(covariance))) / 2
        shares = [
            _integrate(lower, upper, outputs, precision, row)
            for lower, upper, outputs in _affine_pieces(network)
        ]
        largest = max(log_mass for log_mass, _, _ in shares)
        weights = [mp.exp(log_mass - largest) for log_mass, _, _ in shares]
        total = mp.fsum(weights)
        mean = mp.fsum(w * m for w, (_, m, _) in zip(weights, shares, strict=True)) / total
        second = mp.fsum(w * s for w, (_, _, s) in zip(weights, shares, strict=True)) / total
        log_density = log_constant + largest + mp.log(total)
        return LinePosterior(float(log_density), float(mean), float(second))


def _affine_pieces(network: Network) -> list[tuple[Number, Number, list[Affine]]]:
    """List intervals and, on each, the affine functions that are the outputs."""
    pieces = [(-mp.inf, mp.inf, [(mp.mpf(1), mp.mpf(0))])]
    for layer, activation in enumerate(network.activations):
        slope = mp.mpf(activation.negative_slope)
        finer = []
        for lower, upper, inputs in pieces:
            units = _apply_layer(network, layer, inputs)
            roots = {-offset / rate for rate, offset in units if rate != 0}
            ends = [lower, *sorted(z for z in roots if lower < z < upper), upper]
            for left, right in itertools.pairwise(ends):
                z = _inside(left, right)
                activated = [(a, b) if a * z + b > 0 else (slope * a, slope * b) for a, b in units]
                finer.append((left, right, activated))
        pieces = finer
    last = len(network.hidden_layer_sizes)
    return [(lower, upper, _apply_layer(network, last, units)) for lower, upper, units in pieces]


def _apply_layer(network: Network, layer: int, inputs: list[Affine]) -> list[Affine]:
    slopes, offsets = [a for a, _ in inputs], [b for _, b in inputs]
    return [
        (mp.fdot(weights, slopes), mp.fdot(weights, offsets) + mp.mpf(bias))
        for weights, bias in zip(
            network.coefs[layer].tolist(), network.intercepts[layer].tolist(), strict=True
        )
    ]


def _inside(lower: Number, upper: Number) -> Number:
    if mp.isinf(lower) and mp.isinf(upper):
        return mp.mpf(0)
    if mp.isinf(lower):
        return upper - 1
    if mp.isinf(upper):
        return lower + 1
    return (lower + upper) / 2


def _integrate(
    lower: Number, upper: Number, outputs: list[Affine], precision: Any, row: list[float]
) -> tuple[Number, Number, Number]:
    """Log of the integral of exp(-z^2/2 - |row - g(z)|^2/2), its mean and second moment."""
    slopes = mp.matrix([a for a, _ in outputs])
    residual = mp.matrix([mp.mpf(x) - b for x, (_, b) in zip(row, outputs, strict=True)])
    curvature = 1 + (slopes.T * precision * slopes)[0]
    center = (slopes.T * precision * residual)[0] / curvature
    height = (residual.T * precision * residual)[0] - curvature * center**2
    deviation = 1 / mp.sqrt(curvature)
    start, stop = (lower - center) / deviation, (upper - center) / deviation
    # Far in a tail, moments are differences of numbers larger by the square of the distance.
    mass = _normal_mass(start, stop)
    first = (_density(start) - _density(stop)) / mass
    second = 1 + (_times_density(start) - _times_density(stop)) / mass
    mean = center + deviation * first
    log_mass = mp.log(mass) + mp.log(deviation) - height / 2
    second_moment = center**2 + 2 * center * deviation * first + deviation**2 * second
    return log_mass, mean, second_moment


def _normal_mass(start: Number, stop: Number) -> Number:
    root = mp.sqrt(2)
    if start > 0:
        return (mp.erfc(start / root) - mp.erfc(stop / root)) / 2
    if stop < 0:
        return (mp.erfc(-stop / root) - mp.erfc(-start / root)) / 2
    return (mp.erf(stop / root) - mp.erf(start / root)) / 2


def _density(x: Number) -> Number:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def _times_density(x: Number) -> Number:
    return mp.mpf(0) if mp.isinf(x) else x * _density(x)
