"""Affine layers with few connections: convolutions, whose weights are shared, and fixed ones.

Values are flat; what shape a layer gives them, only those know who write its connections.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from skdgn._network.enclosures import Enclosures
from skdgn._network.layer import Layer, Restriction
from skdgn._network.maps import AffineMaps, Codes, multiply, sum_by
from skdgn._runtime import Bools, Floats

# Products of connections that are at hand at a time: memory stays small.
_PRODUCTS_AT_A_TIME = 1 << 20


class SparseLayer(Layer):
    """What affine layers have in common that are given by a sparse matrix and an intercept."""

    matrix: csr_array  # (u, i)
    intercept: Floats  # (u,)

    @property
    def n_inputs(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    @property
    def n_outputs(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    def forward(self, values: Floats) -> Floats:
        """Evaluate at inputs (n, i)."""
        return (self.matrix @ values.T).T + self.intercept

    def apply(self, maps: AffineMaps, codes: Codes) -> AffineMaps:
        """Compose with the maps that lead to the layer."""
        return AffineMaps(
            multiply(self.matrix, maps.slopes),
            (self.matrix @ maps.offsets.T).T + self.intercept,
        )

    def transpose(self, downstream: Floats, codes: Codes) -> Floats:
        """Multiply maps (r, d, u), or (d, u), behind the layer by its matrix."""
        flat = downstream.reshape(-1, self.n_outputs)
        return (self.matrix.T @ flat.T).T.reshape(*downstream.shape[:-1], self.n_inputs)

    def magnitudes(self, maps: AffineMaps) -> AffineMaps:
        """Sum the absolute values of the terms that `apply` adds."""
        absolute = FixedLayer(abs(self.matrix), np.abs(self.intercept))
        return absolute.apply(maps, absolute.codes(maps.offsets))


@dataclass(frozen=True)
class FixedLayer(SparseLayer):
    """An affine layer that is not learned: averages, copies, rescaling."""

    matrix: csr_array
    intercept: Floats


@dataclass(frozen=True)
class SharedLayer(SparseLayer):
    """An affine layer whose connections share weights, and whose outputs share intercepts.

    Its parameters are the weights, then the intercepts.
    """

    weights: Floats  # (w,)
    biases: Floats  # (b,)
    shape: tuple[int, int]  # outputs, inputs
    rows: NDArray[np.intp]  # (n,): output of every connection, in increasing order
    columns: NDArray[np.intp]  # (n,): its input
    owners: NDArray[np.intp]  # (n,): which weight it has
    bias_owners: NDArray[np.intp]  # (u,): which intercept every output has

    @cached_property
    def matrix(self) -> csr_array:  # type: ignore[override]  # made of the weights
        """The sparse matrix (u, i)."""
        return self._matrix_of(self.weights)

    @cached_property
    def intercept(self) -> Floats:  # type: ignore[override]  # made of the biases
        """The intercept of every output."""
        if len(self.biases) == 0:
            return np.zeros(self.shape[0])
        return self.biases[self.bias_owners]

    @cached_property
    def _starts(self) -> NDArray[np.intp]:
        return np.searchsorted(self.rows, np.arange(self.shape[0] + 1))

    def _matrix_of(self, weights: Floats) -> csr_array:
        return csr_array((weights[self.owners], self.columns, self._starts), shape=self.shape)

    @property
    def n_parameters(self) -> int:
        """Number of weights and intercepts together."""
        return len(self.weights) + len(self.biases)

    @property
    def parameters(self) -> Floats:
        """Weights, then intercepts."""
        return np.concatenate([self.weights, self.biases])

    @property
    def is_weight(self) -> Bools:
        """All but the intercepts."""
        return np.arange(self.n_parameters) < len(self.weights)

    def with_parameters(self, parameters: Floats) -> SharedLayer:
        """Return the layer with other weights and intercepts."""
        weights, biases = np.split(parameters, [len(self.weights)])
        return replace(self, weights=weights.copy(), biases=biases.copy())

    def scale_outputs(self, factor: float, before: float, after: float) -> SharedLayer:
        """Return the layer whose outputs x are ``factor (x + before) + after``."""
        biases = factor * (self.biases + before) + after
        return replace(self, weights=factor * self.weights, biases=biases)

    def push(self, change: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return how the outputs (r, u, s + 1) change with the parameters."""
        weights, biases = np.split(change, [len(self.weights)])
        moved = multiply(self._matrix_of(weights), upstream[:, :-1])
        if len(biases):
            moved[:, :, -1] += biases[self.bias_owners]
        return moved

    def pull(self, forces: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return the transpose of `push`."""
        # (unit, everything else), so that a connection is a product of two rows
        felt = np.ascontiguousarray(forces.transpose(1, 0, 2)).reshape(self.n_outputs, -1)
        sent = upstream.transpose(1, 0, 2).reshape(self.n_inputs + 1, -1)
        products = np.empty(len(self.rows))
        n_part = max(1, _PRODUCTS_AT_A_TIME // felt.shape[1])
        for begin in range(0, len(products), n_part):
            part = slice(begin, begin + n_part)
            products[part] = np.einsum("nk,nk->n", felt[self.rows[part]], sent[self.columns[part]])
        weights = sum_by(self.owners, products, len(self.weights))
        if len(self.biases) == 0:
            return weights
        constants = felt @ sent[-1]
        biases = sum_by(self.bias_owners, constants, len(self.biases))
        return np.concatenate([weights, biases])

    @cached_property
    def _connections(self) -> csr_array:
        """Which inputs every weight sends to every output, (w u, i)."""
        n_outputs, n_inputs = self.shape
        places = (self.owners * n_outputs + self.rows, self.columns)
        ones, n_weights = np.ones(len(self.rows)), len(self.weights)
        return csr_array((ones, places), shape=(n_weights * n_outputs, n_inputs))

    def derivatives(self, downstream: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return how each parameter moves the maps to the features: (p, r, d, s + 1)."""
        n_regions, _, n_columns = upstream.shape
        moved = np.zeros((n_regions, self.n_parameters, self.n_outputs, n_columns))
        sent = multiply(self._connections, upstream[:, :-1])
        moved[:, : len(self.weights)] = sent.reshape(n_regions, -1, *moved.shape[2:])
        if len(self.biases):
            outputs = np.arange(self.n_outputs)
            moved[:, len(self.weights) + self.bias_owners, outputs, -1] = 1.0
        # All parameters in one product for every region.
        side_by_side = moved.swapaxes(1, 2).reshape(n_regions, self.n_outputs, -1)
        products = (downstream @ side_by_side).reshape(n_regions, -1, len(moved[0]), n_columns)
        return products.transpose(2, 0, 1, 3)

    def pull_squares(self, squares: Floats, moments: Floats, codes: Codes) -> Floats:
        """Return the scale of the Gauss-Newton matrix's diagonal."""
        products = (squares.T @ moments)[self.rows, self.columns]
        weights = sum_by(self.owners, products, len(self.weights))
        if len(self.biases) == 0:
            return weights
        biases = sum_by(self.bias_owners, squares.T @ moments[:, -1], len(self.biases))
        return np.concatenate([weights, biases])


@dataclass(frozen=True)
class Beside(Layer):
    """A layer for the first inputs; the others are passed on behind its outputs."""

    layer: Layer
    n_passed: int

    @property
    def n_inputs(self) -> int:
        """Inputs of the layer, and what is passed on."""
        return self.layer.n_inputs + self.n_passed

    @property
    def n_outputs(self) -> int:
        """Outputs of the layer, and what is passed on."""
        return self.layer.n_outputs + self.n_passed

    def _split(self, maps: AffineMaps) -> tuple[AffineMaps, AffineMaps]:
        n_own = self.layer.n_inputs
        return maps.first(n_own), AffineMaps(maps.slopes[:, n_own:], maps.offsets[:, n_own:])

    @staticmethod
    def _join(first: AffineMaps, second: AffineMaps) -> AffineMaps:
        n_regions = max(len(first.offsets), len(second.offsets))
        slopes, offsets = [], []
        for maps in (first, second):
            slopes.append(np.broadcast_to(maps.slopes, (n_regions, *maps.slopes.shape[1:])))
            offsets.append(np.broadcast_to(maps.offsets, (n_regions, maps.offsets.shape[1])))
        return AffineMaps(np.concatenate(slopes, axis=1), np.concatenate(offsets, axis=1))

    def forward(self, values: Floats) -> Floats:
        """Evaluate at inputs (n, i)."""
        n_own = self.layer.n_inputs
        return np.concatenate([self.layer.forward(values[:, :n_own]), values[:, n_own:]], axis=1)

    def apply(self, maps: AffineMaps, codes: Codes) -> AffineMaps:
        """Compose with the maps that lead to the layer."""
        own, passed = self._split(maps)
        return self._join(self.layer.apply(own, codes), passed)

    def transpose(self, downstream: Floats, codes: Codes) -> Floats:
        """Multiply maps (r, d, u), or (d, u), behind the layer by its linear part."""
        n_own = self.layer.n_outputs
        own = self.layer.transpose(np.ascontiguousarray(downstream[..., :n_own]), codes)
        passed = downstream[..., n_own:]
        return np.concatenate([own, np.broadcast_to(passed, (*own.shape[:-1], self.n_passed))], -1)

    def magnitudes(self, maps: AffineMaps) -> AffineMaps:
        """Sum the absolute values of the terms that `apply` adds."""
        own, passed = self._split(maps)
        return self._join(self.layer.magnitudes(own), passed)

    def enclose(self, inputs: Enclosures) -> Enclosures:
        """Enclose the outputs over boxes."""
        _, passed = self._split(inputs.maps)
        enclosed = self.layer.enclose(self._own(inputs))
        radii = np.concatenate([enclosed.radii, inputs.radii[:, self.layer.n_inputs :]], axis=1)
        return Enclosures(self._join(enclosed.maps, passed), radii, enclosed.n_cuts)

    def _own(self, inputs: Enclosures) -> Enclosures:
        """Return what goes into the layer."""
        own, _ = self._split(inputs.maps)
        return Enclosures(own, inputs.radii[:, : self.layer.n_inputs], inputs.n_cuts)

    def restrict(self, inputs: Enclosures) -> Restriction:
        """Tell which outputs of the layer bend on a box: what is passed on does not."""
        return self.layer.restrict(self._own(inputs))

    @property
    def n_codes(self) -> int:
        """Those of the layer."""
        return self.layer.n_codes

    @property
    def contests(self) -> NDArray[np.intp] | None:
        """Those of the layer."""
        return self.layer.contests

    def codes(self, values: Floats) -> Codes:
        """Return the codes of the layer."""
        return self.layer.codes(values[:, : self.layer.n_inputs])

    def cuts(self, maps: AffineMaps) -> AffineMaps:
        """Return the cuts of the layer."""
        return self.layer.cuts(self._split(maps)[0])

    def read_sides(self, positive: Bools) -> Codes:
        """Turn the sides of all cuts into codes."""
        return self.layer.read_sides(positive)

    @property
    def max_slope(self) -> float:
        """That of the layer, or one."""
        return max(1.0, self.layer.max_slope)

    @property
    def max_offset(self) -> float:
        """That of the layer."""
        return self.layer.max_offset

    @property
    def core(self) -> Layer:
        """That of the layer."""
        return self.layer.core

    @property
    def n_parameters(self) -> int:
        """Those of the layer."""
        return self.layer.n_parameters

    @property
    def parameters(self) -> Floats:
        """Those of the layer."""
        return self.layer.parameters

    @property
    def is_weight(self) -> Bools:
        """As the layer says."""
        return self.layer.is_weight

    def with_parameters(self, parameters: Floats) -> Beside:
        """Return the layer with other parameters."""
        return Beside(self.layer.with_parameters(parameters), self.n_passed)
