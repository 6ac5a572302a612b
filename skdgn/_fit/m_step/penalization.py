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

import numpy as np

from skdgn._fit.m_step.damping import Damping
from skdgn._fit.m_step.maximization import (
    LARGEST_DENSE_SYSTEM,
    GaussNewtonSystem,
    solve_definite,
    solve_iteratively,
)
from skdgn._fit.m_step.weight_priors import WeightPrior
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
        self.places = [network.learned[layer] for layer in sorted(layers)]
        self.prior = prior
        if system.with_output:
            # Whitened outputs are L^-1 x; weights with a prior are those before whitening.
            # (the transposed inverse factor)
            self.pull = noise.whiten(np.eye(network.n_features))
        self.weights = np.concatenate([network.layers[place].parameters for place in self.places])
        parts = [system.hidden_gradient]
        if system.with_output:
            parts.append((self.pull @ system.output_gradient).ravel())
        self.gradient = np.concatenate(parts)
        assert prior.density is not None  # else there is nothing to penalize
        scales = np.concatenate([prior.scales(network, place) for place in self.places])
        self.terms = prior.density.terms(self.weights, self.gradient, scales)
        self.diagonal = self._diagonal()
        self.dense = len(self.weights) <= LARGEST_DENSE_SYSTEM
        if self.dense:
            self.matrix = self._matrix()

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

        def attempt(damping: float) -> Floats | None:
            target = self._solve_bounded(damping)
            ascends = self.terms.slope @ (target - self.weights) > 0
            return target if ascends else None

        rule = Damping(
            damping, increase=_DAMPING_INCREASE, smallest=_SMALLEST_DAMPING, largest=np.inf
        )
        target = rule.search(attempt, _MOST_DAMPINGS)
        if target is None:
            target = self._solve_bounded(rule.value / _DAMPING_INCREASE)
        layers = [self.network.layers[place] for place in self.places]
        ends = np.cumsum([layer.n_parameters for layer in layers])[:-1]
        parts = zip(layers, np.split(target, ends), strict=True)
        return self.network.replace_layers(
            self.places, [layer.with_parameters(part) for layer, part in parts]
        )

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
            return solve_definite(matrix, slope[free])

        def multiply(direction: Floats) -> Floats:
            everywhere = np.zeros_like(ridge)
            everywhere[free] = direction.ravel()
            return (self._multiply(everywhere) + ridge * everywhere)[free]

        return solve_iteratively(multiply, slope[free], (self.diagonal + ridge)[free])
