"""Features in other units, or in another order, while a network is fitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdgn._network.layer import Layer
from skdgn._network.maps import AffineMaps, Codes
from skdgn._runtime import Floats, Integers

# What is the identity but for rounding is the identity.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class UnitsLayer(Layer):
    """``factors x[order] + shift``: the last layer of a network whose own last one shares weights.

    A dense layer takes factors and shifts into its own weights; a convolution cannot.
    """

    order: Integers
    factors: Floats
    shift: Floats
    n_units: int

    @classmethod
    def identity(cls, n_units: int) -> UnitsLayer:
        """Return the layer that does nothing."""
        return cls(np.arange(n_units), np.ones(n_units), np.zeros(n_units), n_units)

    def take(self, features: Integers) -> UnitsLayer:
        """Return the layer with these features, in this order."""
        return UnitsLayer(
            self.order[features], self.factors[features], self.shift[features], self.n_units
        )

    def scale(self, factors: Floats, before: Floats | float, after: Floats | float) -> UnitsLayer:
        """Return the layer whose outputs x are ``factors (x + before) + after``."""
        product = factors * self.factors
        product = np.where(np.abs(product - 1.0) <= _ROUNDING, 1.0, product)
        shift = factors * (self.shift + before) + after
        size = np.abs(factors) * (np.abs(self.shift) + np.abs(before)) + np.abs(after)
        shift = np.where(np.abs(shift) <= _ROUNDING * size, 0.0, shift)
        return UnitsLayer(self.order, product, shift, self.n_units)

    @property
    def is_identity(self) -> bool:
        """Whether it does nothing."""
        return (
            len(self.order) == self.n_units
            and bool(np.all(self.order == np.arange(self.n_units)))
            and bool(np.all(self.factors == 1.0))
            and not self.shift.any()
        )

    @property
    def n_inputs(self) -> int:
        """Number of features there are."""
        return self.n_units

    @property
    def n_outputs(self) -> int:
        """Number of features that are taken."""
        return len(self.order)

    def forward(self, values: Floats) -> Floats:
        """Evaluate at inputs (n, i)."""
        return values[:, self.order] * self.factors + self.shift

    def apply(self, maps: AffineMaps, codes: Codes) -> AffineMaps:
        """Compose with the maps that lead to the layer."""
        slopes = maps.slopes[:, self.order] * self.factors[:, None]
        return AffineMaps(slopes, self.forward(maps.offsets))

    def transpose(self, downstream: Floats, codes: Codes) -> Floats:
        """Multiply maps (r, d, u), or (d, u), behind the layer by its linear part."""
        result = np.zeros((*downstream.shape[:-1], self.n_units))
        result[..., self.order] = downstream * self.factors
        return result

    def magnitudes(self, maps: AffineMaps) -> AffineMaps:
        """Sum the absolute values of the terms that `apply` adds."""
        slopes = maps.slopes[:, self.order] * np.abs(self.factors)[:, None]
        offsets = maps.offsets[:, self.order] * np.abs(self.factors) + np.abs(self.shift)
        return AffineMaps(slopes, offsets)
