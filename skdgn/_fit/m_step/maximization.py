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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse.linalg
from scipy.linalg import lapack

from skdgn._fit.statistics import SufficientStatistics
from skdgn._network import Codes, Dense, Layer, Network
from skdgn._noise import Noise
from skdgn._runtime import Floats

# Hidden weights beyond this number: conjugate gradients instead of a factorized matrix, unless, up
# to so many times as many weights, they would be more work, and the matrix has this many entries.
LARGEST_DENSE_SYSTEM = 1500
_LARGER, _MOST_ENTRIES = 3, 1 << 25
MOST_CG_STEPS = 250
CG_TOLERANCE = 1e-6
# Kronecker products of so many regions are summed at once: memory stays small.
_REGIONS_AT_A_TIME = 2000
# Derivatives of so many regions are at hand at once: 128 MB.
_DERIVATIVE_FLOATS = 1 << 24
# Added to the output layer's Gram matrix, relative to its diagonal, against units nobody uses.
_SMALLEST_DAMPING = 1e-10


@dataclass(frozen=True)
class Linearization:
    """The expected log-likelihood around the current weights, patterns held fixed.

    All output quantities are in units of the noise, the output layer's weights included.
    """

    layers: tuple[Layer, ...]  # those that have parameters: their cores
    codes: tuple[Codes, ...]  # per layer
    upstream: tuple[Floats, ...]  # per layer (R, fan_in + 1, S + 1): U
    downstream: tuple[Floats, ...]  # per layer (R, D, fan_out): B; not of a dense output layer
    latent: Floats  # (R, S + 1, S + 1): M
    residuals: Floats  # (R, D, S + 1): E


def latent_moments(statistics: SufficientStatistics) -> Floats:
    """Return the sums of ``w [z; 1] [z; 1]'`` of every region, (R, S + 1, S + 1)."""
    n_regions, n_components = statistics.first.shape
    moments = np.empty((n_regions, n_components + 1, n_components + 1))
    moments[:, :-1, :-1] = statistics.second
    moments[:, :-1, -1] = statistics.first
    moments[:, -1, :-1] = statistics.first
    moments[:, -1, -1] = statistics.weights
    return moments


def _targets(statistics: SufficientStatistics) -> Floats:
    """Return the sums of ``w x [z; 1]'`` of every region, (R, D, S + 1)."""
    return np.concatenate([statistics.cross, statistics.data[:, :, None]], axis=2)


def linearize(
    statistics: SufficientStatistics, network: Network, noise: Noise, patterns: Codes
) -> Linearization:
    """Expand the expected log-likelihood around the current weights."""
    used = np.flatnonzero(statistics.weights > 0)
    maps = network.maps(patterns[used])
    latent = latent_moments(statistics)[used]
    output = maps[-1].homogeneous(len(used))[:, :-1]
    residuals = noise.whiten_maps(_targets(statistics)[used] - output @ latent)
    downstream: list[Floats] = []
    codes = network.split_patterns(patterns[used])
    # The same for all regions, (D, u), up to the last layer with cuts.
    if network.ends_dense:
        behind, end = network.coefs[-1], len(network.layers) - 1
    else:
        behind, end = np.eye(network.n_features), len(network.layers)
    behind = noise.whiten_maps(behind)
    for place in reversed(range(network.learned[0], end)):
        layer = network.layers[place]
        if layer.n_parameters:
            own = behind[..., : layer.core.n_outputs]
            downstream.insert(0, np.broadcast_to(own, (len(used), *own.shape[-2:])))
        if place > network.learned[0]:
            behind = layer.transpose(behind, codes[place])
    cores = tuple(network.layers[place].core for place in network.learned)
    inputs = (
        maps[place].first(core.n_inputs) for place, core in zip(network.learned, cores, strict=True)
    )
    return Linearization(
        cores,
        tuple(codes[place] for place in network.learned),
        tuple(own.homogeneous(len(used)) for own in inputs),
        tuple(downstream),
        latent,
        residuals,
    )


def gradient(linearization: Linearization, layer: int) -> Floats:
    """Gradient with respect to the parameters of a layer; the output layer is whitened."""
    residuals = linearization.residuals
    if layer < len(linearization.downstream):
        residuals = np.swapaxes(linearization.downstream[layer], 1, 2) @ residuals
    return linearization.layers[layer].pull(
        residuals, linearization.upstream[layer], linearization.codes[layer]
    )


def _flatten(blocks: Floats) -> Floats:
    """Put the regions' blocks (R, k, S + 1) side by side, so that sums over both are products."""
    return np.ascontiguousarray(blocks.transpose(1, 0, 2)).reshape(blocks.shape[1], -1)


def _sum_products(first: Floats, second: Floats) -> Floats:
    """Multiply derivatives (p, ...) with others (q, ...), summed over the rest: (p, q)."""
    return first.reshape(len(first), -1) @ second.reshape(len(second), -1).T


class GaussNewtonSystem:
    """The damped Gauss-Newton system over chosen layers.

    A dense output layer is eliminated exactly: in units of the noise its block is ``F (x) I`` with
    F the Gram matrix of the last hidden layer, so that wide outputs cost little.  All other layers
    are called hidden here.
    """

    def __init__(self, linearization: Linearization, layers: Sequence[int]) -> None:
        self.linearization = linearization
        self.n_hidden = len(linearization.downstream)
        self.hidden = [layer for layer in layers if layer < self.n_hidden]
        self.with_output = any(layer >= self.n_hidden for layer in layers)
        self.sizes = [linearization.layers[layer].n_parameters for layer in self.hidden]
        self.n_hidden_weights = sum(self.sizes)
        # U M of every layer: (R, fan_in + 1, S + 1)
        self.moments = [upstream @ linearization.latent for upstream in linearization.upstream]
        self.gram, self.output_gradient = np.empty((0, 0)), np.empty((0, 0))
        if self.with_output:
            self.gram = _flatten(self.moments[-1]) @ _flatten(linearization.upstream[-1]).T
            slope = gradient(linearization, self.n_hidden)
            self.output_gradient = slope.reshape(-1, len(self.gram))
        self.dense = self.n_hidden_weights <= LARGEST_DENSE_SYSTEM or self._is_factorized_sooner()
        self.hidden_gradient = np.concatenate(
            [gradient(linearization, layer) for layer in self.hidden] or [np.empty(0)]
        )

    def _is_factorized_sooner(self) -> bool:
        """Tell whether a factorized matrix is less work than conjugate gradients, and fits."""
        n_regions, n_features, n_columns = self.linearization.residuals.shape
        n_weights = self.n_hidden_weights
        n_entries = n_weights * (n_weights + self.output_gradient.size)
        if n_weights > _LARGER * LARGEST_DENSE_SYSTEM or n_entries > _MOST_ENTRIES:
            return False
        n_units = sum(self.linearization.layers[layer].n_outputs for layer in self.hidden)
        push_and_pull = 2 * n_regions * n_features * n_columns * n_units
        return n_weights**2 * (n_regions + n_weights / 3) < MOST_CG_STEPS * push_and_pull

    @cached_property
    def diagonal(self) -> Floats:
        """Diagonal of `matrix`, exact if that is at hand, and its scale otherwise."""
        if self.dense:
            return np.diagonal(self.matrix)
        linearization, parts = self.linearization, []
        for layer in self.hidden:
            squares = np.einsum("rdo,rdo->ro", *(linearization.downstream[layer],) * 2)
            moments = np.einsum("ris,ris->ri", self.moments[layer], linearization.upstream[layer])
            own = linearization.layers[layer]
            parts.append(own.pull_squares(squares, moments, linearization.codes[layer]))
        return np.concatenate(parts)

    @cached_property
    def matrix(self) -> Floats:
        """Block of the hidden weights."""
        return self._blocks[0]

    @cached_property
    def coupling(self) -> Floats:
        """Block between hidden weights and the output layer, (hidden weights, D, fan_in + 1)."""
        return self._blocks[1]

    @cached_property
    def _blocks(self) -> tuple[Floats, Floats]:
        n_features = self.linearization.residuals.shape[1]
        matrix = np.zeros((self.n_hidden_weights, self.n_hidden_weights))
        coupling = np.zeros((self.n_hidden_weights, n_features, len(self.gram)))
        is_dense = [isinstance(self.linearization.layers[own], Dense) for own in self.hidden]
        dense = [own for own, known in enumerate(is_dense) if known]
        others = [own for own, known in enumerate(is_dense) if not known]
        self._add_kronecker_products(dense, matrix, coupling)
        if others:
            self._add_products_of_derivatives(others, dense, matrix, coupling)
        return matrix, coupling

    @cached_property
    def _spans(self) -> list[slice]:
        """Where the weights of every hidden layer are."""
        ends = np.cumsum(self.sizes)
        return [slice(end - size, end) for size, end in zip(self.sizes, ends, strict=True)]

    def _add_kronecker_products(self, dense: list[int], matrix: Floats, coupling: Floats) -> None:
        """Fill in the blocks between dense layers."""
        for a in dense:
            first, rows = self.hidden[a], self._spans[a]
            pulled = np.swapaxes(self.linearization.downstream[first], 1, 2)
            for b in (own for own in dense if own <= a):
                columns = self._spans[b]
                block = self._sum_kronecker(first, self.hidden[b], pulled)
                block = block.reshape(self.sizes[a], self.sizes[b])
                matrix[rows, columns] = block
                if b < a:
                    matrix[columns, rows] = block.T
            if self.with_output:
                block = self._sum_kronecker(first, self.n_hidden, pulled)
                coupling[rows].reshape(block.shape)[:] = block

    def _sum_kronecker(self, first: int, second: int, pulled: Floats) -> Floats:
        """Sum ``(B_l' B_k) (x) (U_l M U_k')`` over regions, a few thousand of them at a time."""
        total: Floats | None = None
        upstream = self.linearization.upstream[second]
        maps = [
            self.linearization.downstream[own] for own in (first, second) if own < self.n_hidden
        ]
        if all(own.strides[0] == 0 for own in maps):  # one map for all regions
            outer = pulled[0] if second == self.n_hidden else pulled[0] @ maps[1][0]
            inner = _flatten(self.moments[first]) @ _flatten(upstream).T
            return np.multiply.outer(outer, inner).transpose(0, 2, 1, 3)
        for begin in range(0, len(pulled), _REGIONS_AT_A_TIME):
            chunk = slice(begin, begin + _REGIONS_AT_A_TIME)
            outer = pulled[chunk]
            if second < self.n_hidden:
                outer = outer @ self.linearization.downstream[second][chunk]
            inner = self.moments[first][chunk] @ np.swapaxes(upstream[chunk], 1, 2)
            product = outer.reshape(len(outer), -1).T @ inner.reshape(len(inner), -1)
            product = product.reshape(*outer.shape[1:], *inner.shape[1:])
            total = product if total is None else total + product
        assert total is not None  # every sample has a region
        return total.transpose(0, 2, 1, 3)

    def _add_products_of_derivatives(
        self, others: list[int], dense: list[int], matrix: Floats, coupling: Floats
    ) -> None:
        """Fill in the blocks of layers that are not dense, by how they move the outputs' maps.

        As many regions at a time as memory allows.
        """
        n_regions, n_features, n_columns = self.linearization.residuals.shape
        own = np.concatenate(
            [np.arange(*self._spans[layer].indices(len(matrix))) for layer in others]
        )
        widest = max(self.linearization.layers[self.hidden[layer]].n_outputs for layer in others)
        n_chunk = max(1, _DERIVATIVE_FLOATS // (len(own) * n_columns * (n_features + widest)))
        for begin in range(0, n_regions, n_chunk):
            chunk = slice(begin, begin + n_chunk)
            slopes = np.concatenate(
                [self._derivatives(self.hidden[layer], chunk) for layer in others]
            )
            weighted = slopes @ self.linearization.latent[chunk]
            matrix[np.ix_(own, own)] += _sum_products(weighted, slopes)
            for layer in dense:
                block = self._couple(slopes, self.hidden[layer], chunk)
                matrix[own, self._spans[layer]] += block.reshape(len(own), -1)
            if self.with_output:
                coupling[own] += self._couple(slopes, self.n_hidden, chunk)
        for layer in dense:
            matrix[self._spans[layer], own] = matrix[own, self._spans[layer]].T

    def _derivatives(self, layer: int, regions: slice) -> Floats:
        """Return how every weight of a hidden layer moves the outputs' maps: (p, r, D, S + 1)."""
        linearization = self.linearization
        return linearization.layers[layer].derivatives(
            linearization.downstream[layer][regions],
            linearization.upstream[layer][regions],
            linearization.codes[layer][regions],
        )

    def _couple(self, slopes: Floats, layer: int, regions: slice) -> Floats:
        """Multiply derivatives (p, r, D, S + 1) by those of a dense layer: (p, u, fan_in + 1)."""
        forces = slopes.transpose(1, 2, 0, 3)  # (r, D, p, S + 1)
        if layer < self.n_hidden:
            pulled = np.swapaxes(self.linearization.downstream[layer][regions], 1, 2)
            flat = pulled @ forces.reshape(*forces.shape[:2], -1)
            forces = flat.reshape(*flat.shape[:2], *forces.shape[2:])
        product = np.tensordot(forces, self.moments[layer][regions], axes=((0, 3), (0, 2)))
        return product.transpose(1, 0, 2)

    def push(self, direction: Floats) -> Floats:
        """Change of the outputs' maps, (R, D, S + 1), as the hidden weights move."""
        linearization = self.linearization
        change = np.zeros_like(linearization.residuals)
        for layer, part in zip(self.hidden, self.split(direction), strict=True):
            moved = linearization.layers[layer].push(
                part, linearization.upstream[layer], linearization.codes[layer]
            )
            change += linearization.downstream[layer] @ moved
        return change

    def split(self, direction: Floats) -> list[Floats]:
        """Split a direction of all hidden weights into one per layer."""
        return [direction[span] for span in self._spans]

    def push_output(self, output: Floats) -> Floats:
        """Change of the outputs' maps as the whitened output layer moves."""
        return np.tensordot(output, self.linearization.upstream[-1], axes=(1, 1)).swapaxes(0, 1)

    def pull(self, change: Floats) -> Floats:
        """Transpose of `push`, weighted by the moments: what the hidden weights feel."""
        linearization = self.linearization
        parts = [
            linearization.layers[layer].pull(
                np.swapaxes(linearization.downstream[layer], 1, 2) @ change,
                self.moments[layer],
                linearization.codes[layer],
            )
            for layer in self.hidden
        ]
        return np.concatenate(parts or [np.empty(0)])

    def pull_output(self, change: Floats) -> Floats:
        """Transpose of `push_output`, weighted by the moments."""
        return _flatten(change) @ _flatten(self.moments[-1]).T

    def solve(self, damping: float) -> tuple[list[Floats], Floats]:
        """Solve for the steps of the hidden layers and of the whitened output layer."""
        factor, output_step = self.gram, self.output_gradient  # empty without an output layer
        if self.with_output:
            gram = self.gram.copy()
            gram.flat[:: len(gram) + 1] *= 1.0 + damping + _SMALLEST_DAMPING
            gram.flat[:: len(gram) + 1] += 1e-300
            factor = _factorize(gram)
            output_step = _solve(factor, self.output_gradient.T).T
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
        return self.split(hidden_step), output_step

    def _solve_dense(self, ridge: Floats, factor: Floats, output_step: Floats) -> Floats:
        matrix = self.matrix.copy()
        matrix.flat[:: len(matrix) + 1] += ridge
        target = self.hidden_gradient
        if self.with_output:
            flat = self.coupling.reshape(-1, len(factor))
            reduced = lapack.dtrtrs(factor, flat.T, lower=1)[0].T.reshape(len(matrix), -1)
            matrix -= reduced @ reduced.T
            target = target - self.coupling.reshape(len(matrix), -1) @ output_step.ravel()
        return solve_definite(matrix, target)

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
        return solve_iteratively(multiply, target, self.diagonal + ridge + 1e-300)


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


def solve_definite(matrix: Floats, target: Floats) -> Floats:
    """Solve a system with a positive definite matrix."""
    try:
        return _solve(_factorize(matrix), target)
    except np.linalg.LinAlgError:
        # Rounding made a nearly singular matrix indefinite: a least-squares solution will do.
        return np.asarray(np.linalg.lstsq(matrix, target, rcond=1e-12)[0], dtype=np.float64)


def solve_iteratively(
    multiply: Callable[[Floats], Floats], target: Floats, diagonal: Floats
) -> Floats:
    """Solve a system by conjugate gradients, given products with its matrix and its diagonal."""
    shape = (len(target), len(target))
    step, _ = scipy.sparse.linalg.cg(
        scipy.sparse.linalg.LinearOperator(shape, multiply),
        target,
        rtol=CG_TOLERANCE,
        maxiter=MOST_CG_STEPS,
        M=scipy.sparse.linalg.LinearOperator(shape, lambda vector: vector.ravel() / diagonal),
    )
    return np.asarray(step)


def step_network(
    network: Network,
    noise: Noise,
    layers: Sequence[int],
    steps: tuple[list[Floats], Floats],
) -> Network:
    """Add the steps of `GaussNewtonSystem.solve` to the weights."""
    hidden_steps, output_step = steps
    moves = list(hidden_steps)
    if network.ends_dense and network.output_layer in layers:
        moves.append(noise.color(output_step.T).T.ravel())
    places = [network.learned[layer] for layer in layers]
    moved = [
        network.layers[place].with_parameters(network.layers[place].parameters + move)
        for place, move in zip(places, moves, strict=True)
    ]
    return network.replace_layers(places, moved)


def maximize_output(
    statistics: SufficientStatistics, network: Network, patterns: Codes, function: Floats | None
) -> Network:
    """Maximize the expected log-likelihood over a dense output layer, whatever the noise.

    Patterns are held fixed.  With a function of latent space, maps (R, D, S + 1) of the regions, it
    takes the place of the samples: the output layer that comes nearest to it is found.
    """
    upstream = network.maps(patterns)[network.learned[-1]].homogeneous(len(patterns))
    latent = latent_moments(statistics)
    targets = _targets(statistics) if function is None else function @ latent
    features = _flatten(upstream)
    gram = _flatten(upstream @ latent) @ features.T
    place = network.learned[-1]
    layer = network.layers[place]
    weights = layer.parameters.reshape(-1, len(gram))
    descent = _flatten(targets) @ features.T - weights @ gram
    gram.flat[:: len(gram) + 1] *= 1.0 + _SMALLEST_DAMPING
    gram.flat[:: len(gram) + 1] += 1e-300
    weights = weights + solve_definite(gram, descent.T).T
    return network.replace_layers([place], [layer.with_parameters(weights.ravel())])


def maximize_noise(
    statistics: SufficientStatistics,
    network: Network,
    patterns: Codes,
    noise: Noise,
    floors: Floats,
) -> Noise:
    """Maximize the expected log-likelihood over noise covariances not below the floors (D,).

    Patterns are held fixed; ``noise`` is that at which the statistics were taken.
    """
    scatter = scatter_residuals(statistics, network, patterns, noise)
    return noise.maximize(scatter, statistics.total_weight, floors)


def scatter_residuals(
    statistics: SufficientStatistics, network: Network, patterns: Codes, noise: Noise
) -> Floats:
    """Sum what noise asks of residuals, see `Noise.scatter`; networks' sums can be added."""
    output = network.maps(patterns)[-1].homogeneous(len(patterns))[:, :-1]
    # E[(x - g)(x - g)'] = xx' - x g' - g x' + g g', with g = output [z; 1].
    remainder = output @ latent_moments(statistics) - 2.0 * _targets(statistics)
    return noise.scatter(statistics.squares, remainder, output)
