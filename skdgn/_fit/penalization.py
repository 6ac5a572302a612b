"""The M-step under a prior of the weights: a quadratic with bounds.

Around the current weights, the expected log-likelihood plus the log prior is

    slope' d - d' (H + C) d / 2    subject to    lower <= w + d <= upper,

H the Gauss-Newton matrix and C the prior's curvature.  The Laplace prior is linear in the orthant
the weights are in: it bounds them at zero, from which they leave only if the likelihood's
gradient exceeds ``1 / scale``.  Weights that would cross a bound are put on it, exactly, and the
others solved for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from skdgn._fit.maximization import (
    CG_TOLERANCE,
    LARGEST_DENSE_SYSTEM,
    MOST_CG_STEPS,
    GaussNewtonSystem,
)
from skdgn._fit.weight_priors import WeightPrior
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._runtime import Bools, Floats

# Rounds of putting weights on their bounds; those that still cross after the last are clipped.
_MOST_ROUNDS = 12
# A direction that does not ascend (clipping can turn it) is shortened by more damping, so often.
_MOST_DAMPINGS = 20
_DAMPING_INCREASE = 10.0
# Relative to the largest entry of the diagonal: keeps weights that nothing depends on solvable.
_SMALLEST_DIAGONAL = 1e-8
_SMALLEST_DAMPING = 1e-10


class _Terms(NamedTuple):
    """What the prior adds, one entry per weight or bias."""

    slope: Floats  # likelihood's gradient plus the prior's
    curvature: Floats
    lower: Floats
    upper: Floats


class PenalizedSystem:
    """The damped Gauss-Newton system of chosen layers, under a prior."""

    def __init__(
        self,
        system: GaussNewtonSystem,
        network: Network,
        noise: Noise,
        layers: Sequence[int],
        prior: WeightPrior,
    ) -> None:
        self.system = system
        self.network = network
        self.layers = sorted(layers)
        self.prior = prior
        if system.with_output:
            # Whitened outputs are L^-1 x; weights with a prior are those before whitening.
            # (the transposed inverse factor)
            self.pull = noise.whiten(np.eye(network.n_features))
        self.weights = np.concatenate(
            [
                np.column_stack([network.coefs[layer], network.intercepts[layer]]).ravel()
                for layer in self.layers
            ]
        )
        parts = [system.hidden_gradient]
        if system.with_output:
            parts.append((self.pull @ system.output_gradient).ravel())
        self.gradient = np.concatenate(parts)
        self.terms = self._terms()
        self.diagonal = self._diagonal()
        self.dense = len(self.weights) <= LARGEST_DENSE_SYSTEM
        if self.dense:
            self.matrix = self._matrix()

    def _terms(self) -> _Terms:
        scales = []
        for layer in self.layers:
            coef = self.network.coefs[layer]
            layer_scales = np.full((coef.shape[0], coef.shape[1] + 1), np.inf)
            layer_scales[:, :-1] = self.prior.scales(self.network, layer)
            scales.append(layer_scales.ravel())
        scale = np.concatenate(scales)  # infinite for intercepts
        weights, gradient = self.weights, self.gradient
        zeros = np.zeros_like(weights)
        unbounded = np.full_like(weights, np.inf)
        if self.prior.kind == "gaussian":
            curvature = scale**-2.0
            return _Terms(gradient - curvature * weights, curvature, -unbounded, unbounded)
        if self.prior.kind == "uniform":
            return _Terms(gradient, zeros, -scale, scale)
        signs = np.sign(weights)
        leaves = (weights == 0) & (np.abs(gradient) > 1.0 / scale)
        signs[leaves] = np.sign(gradient[leaves])
        free = np.isinf(scale)
        return _Terms(
            gradient - signs / scale,
            zeros,
            np.where(free | (signs < 0), -np.inf, 0.0),
            np.where(free | (signs > 0), np.inf, 0.0),
        )

    def _diagonal(self) -> Floats:
        parts = [self.system.diagonal]
        if self.system.with_output:
            precisions = (self.pull**2).sum(axis=1)
            parts.append(np.outer(precisions, np.diagonal(self.system.gram)).ravel())
        return np.concatenate(parts)

    def _matrix(self) -> Floats:
        system, n_hidden = self.system, self.system.n_hidden_weights
        matrix = np.empty((len(self.weights), len(self.weights)))
        if system.hidden:
            matrix[:n_hidden, :n_hidden] = system.matrix
        if system.with_output:
            matrix[n_hidden:, n_hidden:] = np.kron(self.pull @ self.pull.T, system.gram)
            if system.hidden:
                coupling = np.tensordot(system.coupling, self.pull, axes=(1, 1))
                coupling = coupling.transpose(0, 2, 1).reshape(n_hidden, -1)
                matrix[:n_hidden, n_hidden:] = coupling
                matrix[n_hidden:, :n_hidden] = coupling.T
        return matrix

    def _multiply(self, direction: Floats) -> Floats:
        """Multiply the undamped matrix by a direction."""
        if self.dense:
            return self.matrix @ direction
        system, n_hidden = self.system, self.system.n_hidden_weights
        change = system.push(direction[:n_hidden])
        if not system.with_output:
            return system.pull(change)
        output = direction[n_hidden:].reshape(system.output_gradient.shape)
        change = change + system.push_output(self.pull.T @ output)
        return np.concatenate(
            [system.pull(change), (self.pull @ system.pull_output(change)).ravel()]
        )

    def solve(self, damping: float) -> Network:
        """Propose weights within the bounds; the direction to them ascends."""
        target = self.weights
        for _ in range(_MOST_DAMPINGS):
            target = self._solve_bounded(damping)
            if self.terms.slope @ (target - self.weights) > 0:
                break
            damping = max(damping, _SMALLEST_DAMPING) * _DAMPING_INCREASE
        coefs, intercepts = list(self.network.coefs), list(self.network.intercepts)
        first = 0
        for layer in self.layers:
            n_units, fan_in = coefs[layer].shape
            block = target[first : first + n_units * (fan_in + 1)].reshape(n_units, fan_in + 1)
            coefs[layer], intercepts[layer] = block[:, :-1].copy(), block[:, -1].copy()
            first += block.size
        return replace(self.network, coefs=tuple(coefs), intercepts=tuple(intercepts))

    def _solve_bounded(self, damping: float) -> Floats:
        weights, (slope, curvature, lower, upper) = self.weights, self.terms
        diagonal = self.diagonal + curvature
        floor = np.maximum(diagonal, _SMALLEST_DIAGONAL * diagonal.max() + 1e-300)
        ridge = curvature + (damping + _SMALLEST_DAMPING) * floor
        # On a bound and pushing outward.
        fixed = ((weights <= lower) & (slope <= 0)) | ((weights >= upper) & (slope >= 0))
        target = weights.copy()
        for _ in range(_MOST_ROUNDS):
            free = ~fixed
            if not free.any():
                break
            known = np.where(fixed, target - weights, 0.0)
            remaining = slope - self._multiply(known) if known.any() else slope
            target[free] = weights[free] + self._solve_free(free, ridge, remaining)
            crossing = free & ((target < lower) | (target > upper))
            target = np.clip(target, lower, upper)
            if not crossing.any():
                break
            fixed |= crossing
        return target

    def _solve_free(self, free: Bools, ridge: Floats, slope: Floats) -> Floats:
        """Solve for the weights that are not on a bound."""
        if self.dense:
            matrix = self.matrix[np.ix_(free, free)] + np.diag(ridge[free])
            try:
                return scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), slope[free])
            except np.linalg.LinAlgError:
                # Rounding made a nearly singular matrix indefinite: least squares will do.
                solution = np.linalg.lstsq(matrix, slope[free], rcond=1e-12)[0]
                return np.asarray(solution, dtype=np.float64)

        def multiply(direction: Floats) -> Floats:
            everywhere = np.zeros_like(ridge)
            everywhere[free] = direction.ravel()
            return (self._multiply(everywhere) + ridge * everywhere)[free]

        shape = (int(free.sum()), int(free.sum()))
        scale = 1.0 / (self.diagonal + ridge)[free]
        step, _ = scipy.sparse.linalg.cg(
            scipy.sparse.linalg.LinearOperator(shape, multiply),
            slope[free],
            rtol=CG_TOLERANCE,
            maxiter=MOST_CG_STEPS,
            M=scipy.sparse.linalg.LinearOperator(shape, lambda v: scale * v.ravel()),
        )
        return step
