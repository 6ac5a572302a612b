"""The M-step: from statistics and a network to better weights and noise.

With the regions' activation patterns held fixed, the output on region r is linear in each
layer's ``T_l = [W v]``,

    dg = B_l dT_l phi_l(z),    phi_l(z) = U_l [z; 1],

``B_l`` the map downstream of the layer and ``U_l`` the affine map upstream of it.  With ``M_r``
the sum of ``w [z; 1] [z; 1]'`` and ``E_r`` that of ``w (x - g(z)) [z; 1]'`` (both from the
statistics), gradient and Gauss-Newton matrix of the expected log-likelihood are sums over regions
of

    B_l' N^-1 E U_l'      and      (B_l' N^-1 B_k) (x) (U_l M U_k').

At the current weights this gradient is that of the exact log-likelihood: g is continuous, so that
the moving boundaries contribute nothing.  Hence every damped step is an ascent direction of it;
how far to go is for the exact log-likelihood to decide (`_em`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse.linalg
from scipy.linalg import lapack

from skdgn._fit.statistics import SufficientStatistics
from skdgn._network import AffineMaps, Network
from skdgn._noise import Noise, bound_below
from skdgn._runtime import Bools, Floats

# Hidden weights beyond this number: conjugate gradients instead of a factorized matrix.
LARGEST_DENSE_SYSTEM = 1500
MOST_CG_STEPS = 250
CG_TOLERANCE = 1e-6
# Kronecker products of so many regions are summed at once: memory stays small.
_REGIONS_AT_A_TIME = 2000
# Added to the output layer's Gram matrix, relative to its diagonal, against units nobody uses.
_SMALLEST_DAMPING = 1e-10


@dataclass(frozen=True)
class Linearization:
    """The expected log-likelihood around the current weights, patterns held fixed.

    All output quantities are in units of the noise, the output layer's weights included.
    """

    upstream: tuple[Floats, ...]  # per layer (R, fan_in + 1, S + 1): U
    downstream: tuple[Floats, ...]  # per hidden layer (R, D, fan_out): B
    latent: Floats  # (R, S + 1, S + 1): M
    residuals: Floats  # (R, D, S + 1): E


def _homogeneous(maps: AffineMaps, n_regions: int) -> Floats:
    """Append the constant: ``[slopes offsets; 0 1]``."""
    _, n_units, n_components = maps.slopes.shape
    matrix = np.zeros((n_regions, n_units + 1, n_components + 1))
    matrix[:, :-1, :-1] = maps.slopes
    matrix[:, :-1, -1] = maps.offsets
    matrix[:, -1, -1] = 1.0
    return matrix


def affine_maps(network: Network, patterns: Bools) -> list[AffineMaps]:
    """Affine maps that lead into every layer, and the output, for given patterns."""
    maps = [AffineMaps.identity(network.n_components)]  # the same for all regions
    for layer, sides in enumerate(network.split_pattern(patterns)):
        maps.append(network.activate(network.preactivations(layer, maps[-1]), sides))
    maps.append(network.preactivations(network.n_hidden_layers, maps[-1]))
    return maps


def _latent_moments(statistics: SufficientStatistics) -> Floats:
    n_regions, n_components = statistics.first.shape
    moments = np.empty((n_regions, n_components + 1, n_components + 1))
    moments[:, :-1, :-1] = statistics.second
    moments[:, :-1, -1] = statistics.first
    moments[:, -1, :-1] = statistics.first
    moments[:, -1, -1] = statistics.weights
    return moments


def linearize(
    statistics: SufficientStatistics, network: Network, noise: Noise, patterns: Bools
) -> Linearization:
    """Expand the expected log-likelihood around the current weights."""
    used = np.flatnonzero(statistics.weights > 0)
    maps = affine_maps(network, patterns[used])
    latent = _latent_moments(statistics)[used]
    output = _homogeneous(maps[-1], len(used))[:, :-1]
    targets = np.concatenate([statistics.cross[used], statistics.data[used][:, :, None]], axis=2)
    residuals = noise.whiten_maps(targets - output @ latent)
    downstream: list[Floats] = []
    behind = noise.whiten_maps(network.coefs[-1])
    sides = network.split_pattern(patterns[used])
    for layer in reversed(range(network.n_hidden_layers)):
        slopes = network.activation.slopes(sides[layer])
        downstream.insert(0, behind * slopes[:, None, :])
        behind = downstream[0] @ network.coefs[layer]
    upstream = tuple(_homogeneous(layer_maps, len(used)) for layer_maps in maps[:-1])
    return Linearization(upstream, tuple(downstream), latent, residuals)


def gradient(linearization: Linearization, layer: int) -> Floats:
    """Gradient with respect to ``[W v]`` of a layer; the output layer is whitened."""
    residuals = linearization.residuals
    if layer < len(linearization.downstream):
        residuals = np.swapaxes(linearization.downstream[layer], 1, 2) @ residuals
    return _flatten(residuals) @ _flatten(linearization.upstream[layer]).T


def _flatten(blocks: Floats) -> Floats:
    """Put the regions' blocks (R, k, S + 1) side by side, so that sums over both are products."""
    return np.ascontiguousarray(blocks.transpose(1, 0, 2)).reshape(blocks.shape[1], -1)


class GaussNewtonSystem:
    """The damped Gauss-Newton system over chosen hidden layers and the output layer.

    The output layer is eliminated exactly: in units of the noise its block is ``F (x) I`` with F
    the Gram matrix of the last hidden layer, so that wide outputs cost little.
    """

    def __init__(self, linearization: Linearization, layers: Sequence[int]) -> None:
        self.linearization = linearization
        self.n_hidden = len(linearization.downstream)
        self.hidden = [layer for layer in layers if layer < self.n_hidden]
        self.with_output = self.n_hidden in layers
        self.shapes = [
            (linearization.downstream[layer].shape[2], linearization.upstream[layer].shape[1])
            for layer in self.hidden
        ]
        self.sizes = [rows * columns for rows, columns in self.shapes]
        self.n_hidden_weights = sum(self.sizes)
        self.dense = self.n_hidden_weights <= LARGEST_DENSE_SYSTEM
        # U M of every layer: (R, fan_in + 1, S + 1)
        self.moments = [upstream @ linearization.latent for upstream in linearization.upstream]
        self.gram = _flatten(self.moments[-1]) @ _flatten(linearization.upstream[-1]).T
        self.output_gradient = gradient(linearization, self.n_hidden)
        self.hidden_gradient = np.concatenate(
            [gradient(linearization, layer).ravel() for layer in self.hidden] or [np.empty(0)]
        )

    @cached_property
    def diagonal(self) -> Floats:
        """Diagonal of `matrix`."""
        if self.dense:
            return np.diagonal(self.matrix)
        parts = []
        for layer in self.hidden:
            squares = np.einsum("rdo,rdo->ro", *(self.linearization.downstream[layer],) * 2)
            moments = np.einsum(
                "ris,ris->ri", self.moments[layer], self.linearization.upstream[layer]
            )
            parts.append((squares.T @ moments).ravel())
        return np.concatenate(parts)

    @cached_property
    def matrix(self) -> Floats:
        """Block of the hidden weights."""
        matrix = np.empty((self.n_hidden_weights, self.n_hidden_weights))
        edges = np.concatenate([[0], np.cumsum(self.sizes)])
        for a, first in enumerate(self.hidden):
            for b, second in enumerate(self.hidden[: a + 1]):
                block = self._sum_kronecker(
                    first, second, np.swapaxes(self.linearization.downstream[first], 1, 2)
                )
                block = block.reshape(self.sizes[a], self.sizes[b])
                matrix[edges[a] : edges[a + 1], edges[b] : edges[b + 1]] = block
                matrix[edges[b] : edges[b + 1], edges[a] : edges[a + 1]] = block.T
        return matrix

    @cached_property
    def coupling(self) -> Floats:
        """Block between hidden weights and the output layer, (hidden weights, D, fan_in + 1)."""
        parts = []
        for layer, size in zip(self.hidden, self.sizes, strict=True):
            block = self._sum_kronecker(
                layer, self.n_hidden, np.swapaxes(self.linearization.downstream[layer], 1, 2)
            )
            parts.append(block.reshape(size, *block.shape[2:]))
        return np.concatenate(parts)

    def _sum_kronecker(self, first: int, second: int, pulled: Floats) -> Floats:
        """Sum ``(B_l' B_k) (x) (U_l M U_k')`` over regions, a few thousand of them at a time."""
        total: Floats | None = None
        upstream = self.linearization.upstream[second]
        for begin in range(0, len(pulled), _REGIONS_AT_A_TIME):
            chunk = slice(begin, begin + _REGIONS_AT_A_TIME)
            outer = pulled[chunk]
            if second < self.n_hidden:
                outer = outer @ self.linearization.downstream[second][chunk]
            inner = self.moments[first][chunk] @ np.swapaxes(upstream[chunk], 1, 2)
            product = outer.reshape(len(outer), -1).T @ inner.reshape(len(inner), -1)
            product = product.reshape(*outer.shape[1:], *inner.shape[1:])
            total = product if total is None else total + product
        assert total is not None  # every row has a region
        return total.transpose(0, 2, 1, 3)

    @cached_property
    def _flat_upstream(self) -> list[Floats]:
        return [_flatten(upstream) for upstream in self.linearization.upstream]

    @cached_property
    def _flat_moments(self) -> list[Floats]:
        return [_flatten(moments) for moments in self.moments]

    def _spread(self, layer: int, block: Floats) -> Floats:
        """Multiply the upstream map of every region by a change of a layer's weights."""
        changes = (block @ self._flat_upstream[layer]).reshape(len(block), *self._blocks)
        return changes.transpose(1, 0, 2)

    @property
    def _blocks(self) -> tuple[int, int]:
        """Number of regions, and of latent dimensions plus one."""
        n_regions, n_columns, _ = self.linearization.latent.shape
        return n_regions, n_columns

    def push(self, direction: Floats) -> Floats:
        """Change of the outputs' maps, (R, D, S + 1), as the hidden weights move."""
        change = np.zeros_like(self.linearization.residuals)
        first = 0
        for layer, shape, size in zip(self.hidden, self.shapes, self.sizes, strict=True):
            block = direction[first : first + size].reshape(shape)
            change += self.linearization.downstream[layer] @ self._spread(layer, block)
            first += size
        return change

    def push_output(self, output: Floats) -> Floats:
        """Change of the outputs' maps as the whitened output layer moves."""
        return self._spread(self.n_hidden, output)

    def pull(self, change: Floats) -> Floats:
        """Transpose of `push`, weighted by the moments: what the hidden weights feel."""
        parts = [
            _flatten(np.swapaxes(self.linearization.downstream[layer], 1, 2) @ change)
            @ self._flat_moments[layer].T
            for layer in self.hidden
        ]
        return np.concatenate([part.ravel() for part in parts] or [np.empty(0)])

    def pull_output(self, change: Floats) -> Floats:
        """Transpose of `push_output`, weighted by the moments."""
        return _flatten(change) @ self._flat_moments[-1].T

    def solve(self, damping: float) -> tuple[list[Floats], Floats]:
        """Solve for the steps of the hidden layers and of the whitened output layer."""
        gram = self.gram.copy()
        gram.flat[:: len(gram) + 1] *= 1.0 + damping + _SMALLEST_DAMPING
        gram.flat[:: len(gram) + 1] += 1e-300
        factor = _factorize(gram)
        output_step = (
            _solve(factor, self.output_gradient.T).T
            if self.with_output
            else np.zeros_like(self.output_gradient)
        )
        if not self.hidden:
            return [], output_step
        ridge = damping * np.maximum(self.diagonal, 1e-12 * self.diagonal.max(initial=1e-300))
        if self.dense:
            hidden_step = self._solve_dense(ridge, factor, output_step)
        else:
            hidden_step = self._solve_iteratively(ridge, factor, output_step)
        if self.with_output:
            if self.dense:
                coupled = hidden_step @ self.coupling.reshape(len(hidden_step), -1)
                coupled = coupled.reshape(output_step.shape)
            else:
                coupled = self.pull_output(self.push(hidden_step))
            output_step = output_step - _solve(factor, coupled.T).T
        first, steps = 0, []
        for shape, size in zip(self.shapes, self.sizes, strict=True):
            steps.append(hidden_step[first : first + size].reshape(shape))
            first += size
        return steps, output_step

    def _solve_dense(self, ridge: Floats, factor: Floats, output_step: Floats) -> Floats:
        matrix = self.matrix.copy()
        matrix.flat[:: len(matrix) + 1] += ridge
        target = self.hidden_gradient
        if self.with_output:
            flat = self.coupling.reshape(-1, len(factor))
            reduced = lapack.dtrtrs(factor, flat.T, lower=1)[0].T.reshape(len(matrix), -1)
            matrix -= reduced @ reduced.T
            target = target - self.coupling.reshape(len(matrix), -1) @ output_step.ravel()
        try:
            return _solve(_factorize(matrix), target)
        except np.linalg.LinAlgError:
            # Rounding made a nearly singular matrix indefinite: a least-squares solution will do.
            return np.linalg.lstsq(matrix, target, rcond=1e-12)[0]

    def _solve_iteratively(self, ridge: Floats, factor: Floats, output_step: Floats) -> Floats:
        def multiply(direction: Floats) -> Floats:
            change = self.push(direction.ravel())
            if self.with_output:
                coupled = self.pull_output(change)
                change = change - self.push_output(_solve(factor, coupled.T).T)
            return self.pull(change) + ridge * direction.ravel()

        target = self.hidden_gradient
        if self.with_output:
            target = target - self.pull(self.push_output(output_step))
        shape = (self.n_hidden_weights, self.n_hidden_weights)
        scale = 1.0 / (self.diagonal + ridge + 1e-300)
        step, _ = scipy.sparse.linalg.cg(
            scipy.sparse.linalg.LinearOperator(shape, multiply),
            target,
            rtol=CG_TOLERANCE,
            maxiter=MOST_CG_STEPS,
            M=scipy.sparse.linalg.LinearOperator(shape, lambda v: scale * v.ravel()),
        )
        return step


# LAPACK's own functions: SciPy's checks would take longer than systems as small as most of these.


def _factorize(matrix: Floats) -> Floats:
    """Lower Cholesky factor of a symmetric matrix; LinAlgError unless it is positive definite."""
    factor, info = lapack.dpotrf(matrix, lower=1)
    if info != 0:
        raise np.linalg.LinAlgError("matrix is not positive definite")
    return np.asarray(factor)


def _solve(factor: Floats, targets: Floats) -> Floats:
    """Solve a system with a factorized matrix."""
    return np.asarray(lapack.dpotrs(factor, targets, lower=1)[0])


def step_network(
    network: Network,
    noise: Noise,
    layers: Sequence[int],
    steps: tuple[list[Floats], Floats],
) -> Network:
    """Add the steps of `GaussNewtonSystem.solve` to the weights."""
    hidden_steps, output_step = steps
    coefs, intercepts = list(network.coefs), list(network.intercepts)
    output = network.n_hidden_layers
    hidden = [layer for layer in layers if layer < output]
    for layer, step in zip(hidden, hidden_steps, strict=True):
        coefs[layer] = coefs[layer] + step[:, :-1]
        intercepts[layer] = intercepts[layer] + step[:, -1]
    if output in layers:
        step = noise.color(output_step.T).T
        coefs[-1] = coefs[-1] + step[:, :-1]
        intercepts[-1] = intercepts[-1] + step[:, -1]
    return replace(network, coefs=tuple(coefs), intercepts=tuple(intercepts))


def maximize_noise(
    statistics: SufficientStatistics,
    network: Network,
    patterns: Bools,
    covariance_type: str,
    floors: Floats,
) -> Noise:
    """Maximize the expected log-likelihood over noise covariances not below the floors (D,).

    Patterns are held fixed.
    """
    scatter = _scatter(statistics, network, patterns, covariance_type)
    covariance = bound_below(scatter / statistics.total_weight, floors)
    return Noise.from_covariance(covariance, network.n_features)


def _scatter(
    statistics: SufficientStatistics, network: Network, patterns: Bools, covariance_type: str
) -> Floats:
    """Sum of ``w (x - g)(x - g)'`` over rows, in the shape of the covariance.

    The cross terms are symmetrized (the paper's are not).
    """
    output = _homogeneous(affine_maps(network, patterns)[-1], len(patterns))[:, :-1]
    targets = np.concatenate([statistics.cross, statistics.data[:, :, None]], axis=2)
    # E[(x - g)(x - g)'] = xx' - x g' - g x' + g g', with g = output [z; 1].
    remainder = output @ _latent_moments(statistics) - 2.0 * targets
    if covariance_type == "full":
        products = _flatten(remainder) @ _flatten(output).T
        return statistics.squares + 0.5 * (products + products.T)
    scatter = statistics.squares[0] + np.einsum("rds,rds->rd", remainder, output).sum(axis=0)
    return np.asarray(scatter.mean()) if covariance_type == "spherical" else scatter
