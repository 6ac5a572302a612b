"""Networks that grow and shrink: units added where they are missed, removed where they are not.

Given latent points of the samples, the output of a network with one hidden layer is linear in what
its units make of them, so that a unit is worth what it takes from the residuals once all others are
accounted for: linear regression, one variable more or less.

Shapes: ``n`` points, ``s`` latent dimensions, ``u`` units, ``d`` features, ``c`` candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special

from skdgn._network import Architecture, Dense, Network
from skdgn._noise import Noise
from skdgn._runtime import Floats

# Candidates for a new unit: directions in latent space, and kinks along each of them.
_N_DIRECTIONS = 16
_N_KINKS = 24
# What is left of a candidate beside the units there are, as a share of it: less is not a unit.
_SMALLEST_REST = 1e-6
# Added to the diagonal of a Gram matrix, as a share of it: units may be alike.
_RIDGE = 1e-10
# A kink so far out that a standard normal variable does not get there.
_FAR_OUT = 12.0


def write_linear_network(slopes: Floats, mean: Floats, architecture: Architecture) -> Network:
    """Return a network with these hidden layers that equals ``slopes @ z + mean``.

    In every hidden layer two units with opposite signs carry each latent dimension: if ``f`` has
    the slope a below zero, ``f(t) - f(-t) = (1 + a) t``.  Where there are not enough units for
    that, or a = -1, one unit does it whose kink is far out.  All others have their kinks at
    quantiles of the latent variables and no output yet.
    """
    n_components = slopes.shape[1]
    # Samples that read z from the values before a layer: z = reading @ values + shift.
    reading, shift = np.eye(n_components), np.zeros(n_components)
    coefs, intercepts = [], []
    widths, activations = architecture.hidden_layer_sizes, architecture.activations
    for width, activation in zip(widths, activations, strict=True):
        in_pairs = width >= 2 * n_components and activation.negative_slope != -1.0
        per_component = 2 if in_pairs else 1
        n_carried = min(n_components, width // per_component)
        directions = np.zeros((width, n_components))
        kinks = np.zeros(width)
        carried = np.arange(n_carried)
        next_reading, next_shift = np.zeros((n_components, width)), np.zeros(n_components)
        if in_pairs:
            directions[2 * carried, carried] = 1.0
            directions[2 * carried + 1, carried] = -1.0
            next_reading[carried, 2 * carried] = 1.0 / (1.0 + activation.negative_slope)
            next_reading[carried, 2 * carried + 1] = -1.0 / (1.0 + activation.negative_slope)
        else:
            directions[carried, carried] = 1.0
            kinks[:n_carried] = -_FAR_OUT
            next_reading[carried, carried] = 1.0
            next_shift[:n_carried] = -_FAR_OUT
        rest = np.arange(per_component * n_carried, width)
        quantiles = _spread_quantiles(len(rest), skip_middle=in_pairs)
        for place, unit in enumerate(rest):
            # Directions take turns, and so do signs once every direction had its turn.
            sign = -1.0 if (place // n_components) % 2 else 1.0
            directions[unit, place % n_components] = sign
            kinks[unit] = quantiles[place]
        coefs.append(directions @ reading)
        intercepts.append(directions @ shift - kinks)
        reading, shift = next_reading, next_shift
    coefs.append(slopes @ reading)
    intercepts.append(slopes @ shift + mean)
    return Network.dense(coefs, intercepts, activations)


def _spread_quantiles(n_units: int, skip_middle: bool) -> Floats:
    """Quantiles of a standard normal variable for the kinks of units, alternating outwards."""
    n_places = n_units + 1 if skip_middle else n_units
    levels = (np.arange(n_places) + 1.0) / (n_places + 1.0)
    levels = levels[np.argsort(np.abs(levels - 0.5), kind="stable")]
    return np.asarray(scipy.special.ndtri(levels[n_places - n_units :]))


@dataclass(frozen=True)
class LatentPoints:
    """Latent points of samples, and what is asked of a network there."""

    latent: Floats  # (n, s)
    residuals: Floats  # (n, d): what is unexplained, in units of the noise
    weights: Floats  # (n,)

    @property
    def roots(self) -> Floats:
        """Square roots of the weights, (n, 1): a weighted sum of squares is a sum of squares."""
        return np.sqrt(self.weights / self.weights.sum())[:, None]


def add_units(
    network: Network, points: LatentPoints, n_units: int, generator: np.random.Generator
) -> Network:
    """Add units to a network with one hidden layer where residuals ask for them.

    Candidates have kinks all over latent space.  The one that would take the most from the
    residuals is added, then the one that would take the most from what is left, and so on.  Their
    outputs are zero to begin with: the function stays the same, and EM will find better ones.
    """
    (activation,) = network.activations
    directions, kinks = _draw_candidates(points.latent, n_units, generator)
    roots = points.roots
    basis, _ = np.linalg.qr(roots * _with_ones(_units_at(network, points.latent)))
    candidates = roots * activation(points.latent @ directions.T - kinks)
    sizes = np.einsum("nc,nc->c", candidates, candidates)
    smallest = _SMALLEST_REST * np.maximum(sizes, np.finfo(np.float64).tiny)
    left, targets = (
        own - basis @ (basis.T @ own) for own in (candidates, roots * points.residuals)
    )
    chosen: list[int] = []
    for _ in range(n_units):
        rest = np.einsum("nc,nc->c", left, left)
        usable = rest > smallest
        if not usable.any():
            break
        explained = np.square(left.T @ targets).sum(axis=1) / np.where(usable, rest, 1.0)
        best = int(np.argmax(np.where(usable, explained, -1.0)))
        chosen.append(best)
        axis = left[:, best] / np.sqrt(rest[best])
        targets = targets - axis[:, None] * (axis @ targets)
        left = left - axis[:, None] * (axis @ left)
    hidden, output = network.coefs
    scales = np.sqrt(sizes[chosen])  # so that no unit dwarfs the others
    return Network.dense(
        [
            np.concatenate([hidden, directions[chosen] / scales[:, None]]),
            np.concatenate([output, np.zeros((len(output), len(chosen)))], axis=1),
        ],
        [
            np.concatenate([network.intercepts[0], -kinks[chosen] / scales]),
            network.intercepts[1],
        ],
        network.activations,
    )


def remove_units(network: Network, noise: Noise, points: LatentPoints, n_units: int) -> Network:
    """Remove units of a network with one hidden layer that others can stand in for.

    Those go first without which the function changes the least, in units of the noise, and the
    output layer follows it as well as it can.  Without any unit left, the network is linear.
    """
    hidden, output = network.coefs
    biases, offset = network.intercepts
    if n_units >= len(hidden):
        basis = points.roots * _with_ones(points.latent)
        function = points.roots * network.forward(points.latent)
        solution = np.asarray(np.linalg.lstsq(basis, function, rcond=_RIDGE)[0], np.float64)
        return Network.dense([solution[:-1].T], [solution[-1]])
    # Of a regression on all units and a constant, without one of the units: the loss is the square
    # of its coefficient over its entry on the diagonal of the inverse Gram matrix.
    features = points.roots * _with_ones(_units_at(network, points.latent))
    gram = features.T @ features
    gram.flat[:: len(gram) + 1] *= 1.0 + _RIDGE
    gram.flat[:: len(gram) + 1] += np.finfo(np.float64).tiny
    coefs = np.concatenate([output.T, offset[None]])
    kept = np.arange(len(gram))
    for _ in range(n_units):
        inverse = np.linalg.pinv(gram[np.ix_(kept, kept)], hermitian=True)
        # Of a unit that is zero everywhere, the inverse knows nothing: nobody misses it.
        diagonal = np.diagonal(inverse)
        sizes = np.square(noise.whiten(coefs)).sum(axis=1)
        losses = np.where(diagonal > 0.0, sizes / np.where(diagonal > 0.0, diagonal, 1.0), 0.0)
        least = int(np.argmin(losses[:-1]))
        if diagonal[least] > 0.0:
            coefs = coefs - np.outer(inverse[:, least] / inverse[least, least], coefs[least])
        kept, coefs = np.delete(kept, least), np.delete(coefs, least, axis=0)
    units = kept[:-1]
    return Network.dense(
        [hidden[units], coefs[:-1].T], [biases[units], coefs[-1]], network.activations
    )


def halve_latent_space(network: Network) -> tuple[Network, Network]:
    """Return two networks that share the work of one: the halves of its latent space.

    It is cut in the middle, across the direction along which the output varies the most.  The prior
    of each half is nearly a Gaussian, by whose mean and deviation the first layer is moved.
    """
    latent = np.eye(network.n_components)
    changes = network.forward(latent) - network.forward(-latent)
    direction = np.linalg.svd(changes, full_matrices=False)[0][:, 0]
    # A standard normal variable, given that it is positive.
    mean = np.sqrt(2.0 / np.pi)
    deviation = np.sqrt(1.0 - mean**2)
    stretch = np.eye(network.n_components) + (deviation - 1.0) * np.outer(direction, direction)
    first = network.layers[0]
    assert isinstance(first, Dense)  # whoever calls has looked
    halves = (
        network.replace_layers(
            [0],
            [Dense(first.coef @ stretch, first.intercept + sign * mean * first.coef @ direction)],
        )
        for sign in (-1.0, 1.0)
    )
    return next(halves), next(halves)


def _units_at(network: Network, latent: Floats) -> Floats:
    """What the hidden units make of latent points: (n, u)."""
    (activation,) = network.activations
    return np.asarray(activation(latent @ network.coefs[0].T + network.intercepts[0]))


def _with_ones(columns: Floats) -> Floats:
    return np.concatenate([columns, np.ones((len(columns), 1))], axis=1)


def _draw_candidates(
    latent: Floats, n_units: int, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw directions (c, s) and kinks (c,) where latent points are."""
    n_components = latent.shape[1]
    if n_components == 1:
        directions = np.array([[1.0], [-1.0]])
    else:
        directions = generator.standard_normal((_N_DIRECTIONS, n_components))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    n_kinks = max(_N_KINKS, 2 * n_units)
    levels = (np.arange(n_kinks) + 1.0) / (n_kinks + 1.0)
    # Halfway between where the points are and where they should be.
    kinks = 0.5 * np.quantile(latent @ directions.T, levels, axis=0).T
    kinks += 0.5 * scipy.special.ndtri(levels)
    return np.repeat(directions, n_kinks, axis=0), kinks.ravel()
