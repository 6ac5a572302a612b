"""Layers that connect every input to every output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdgn._network.layer import Layer
from skdgn._network.maps import AffineMaps, Codes, multiply
from skdgn._runtime import Bools, Floats


@dataclass(frozen=True)
class Dense(Layer):
    """The affine layer ``coef @ x + intercept``.

    Its parameters are the rows of ``[coef intercept]``, one after the other.
    """

    coef: Floats  # (u, i)
    intercept: Floats  # (u,)

    @property
    def n_inputs(self) -> int:
        """Number of columns."""
        return int(self.coef.shape[1])

    @property
    def n_outputs(self) -> int:
        """Number of rows."""
        return int(self.coef.shape[0])

    def forward(self, values: Floats) -> Floats:
        """Evaluate at inputs (n, i)."""
        outputs: Floats = values @ self.coef.T
        outputs += self.intercept
        return outputs

    def apply(self, maps: AffineMaps, codes: Codes) -> AffineMaps:
        """Compose with the maps that lead to the layer."""
        return AffineMaps(
            multiply(self.coef, maps.slopes), maps.offsets @ self.coef.T + self.intercept
        )

    def transpose(self, downstream: Floats, codes: Codes) -> Floats:
        """Multiply maps (r, d, u) behind the layer by its matrix."""
        return downstream @ self.coef

    def magnitudes(self, maps: AffineMaps) -> AffineMaps:
        """Sum the absolute values of the terms that `apply` adds."""
        absolute = Dense(np.abs(self.coef), np.abs(self.intercept))
        return absolute.apply(maps, absolute.codes(maps.offsets))

    @property
    def n_parameters(self) -> int:
        """Number of weights and intercepts together."""
        return self.coef.size + self.intercept.size

    @property
    def parameters(self) -> Floats:
        """Weights and intercept of the first output, of the second, and so on."""
        return np.column_stack([self.coef, self.intercept]).ravel()

    @property
    def is_weight(self) -> Bools:
        """All but the intercepts."""
        is_weight = np.ones((self.n_outputs, self.n_inputs + 1), dtype=bool)
        is_weight[:, -1] = False
        return is_weight.ravel()

    def with_parameters(self, parameters: Floats) -> Dense:
        """Return the layer with other weights and intercepts."""
        block = parameters.reshape(self.n_outputs, self.n_inputs + 1)
        return Dense(block[:, :-1].copy(), block[:, -1].copy())

    def push(self, change: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return how the outputs (r, u, s + 1) change with the parameters."""
        block = change.reshape(self.n_outputs, self.n_inputs + 1)
        return np.tensordot(block, upstream, axes=(1, 1)).transpose(1, 0, 2)

    def pull(self, forces: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return the transpose of `push`."""
        return np.tensordot(forces, upstream, axes=((0, 2), (0, 2))).ravel()

    def derivatives(self, downstream: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return how each parameter moves the maps to the features: (p, r, d, s + 1)."""
        products = np.einsum("rdu,ris->uirds", downstream, upstream)
        return products.reshape(self.n_parameters, *products.shape[2:])

    def pull_squares(self, squares: Floats, moments: Floats, codes: Codes) -> Floats:
        """Return the diagonal of the Gauss-Newton matrix."""
        return (squares.T @ moments).ravel()

    def scale_outputs(
        self, factors: Floats, before: Floats | float = 0.0, after: Floats | float = 0.0
    ) -> Dense:
        """Return the layer whose outputs x are ``factors (x + before) + after``, all (u,)."""
        return Dense(factors[:, None] * self.coef, factors * (self.intercept + before) + after)

    def scale_inputs(self, factors: Floats) -> Dense:
        """Return the layer whose inputs are multiplied by factors (i,) first."""
        return Dense(self.coef * factors, self.intercept)
