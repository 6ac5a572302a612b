"""Priors of the weights: their log density, and what they ask of an M-step.

In the orthant or box around the current weights every prior is a quadratic: a linear term
``1 / scale`` (Laplace), a curvature ``1 / scale^2`` (Gaussian), or bounds (uniform; zero, for
Laplace).  Intercepts have none.

The scale belongs to the weights of the model for the original rows.  ``output_units`` says by how
much the rows at hand were divided, so that a fit on scaled rows has the same prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from skdgn._network import Network
from skdgn._runtime import Floats

PRIORS = ("gaussian", "laplace", "uniform")

# Sweeps over the layers that balance the units' scales; each halves what is left to do.
_BALANCING_SWEEPS = 8


@dataclass(frozen=True)
class WeightPrior:
    """A prior with independent weights: "gaussian", "laplace", "uniform", or None for a flat one.

    ``scale`` is the standard deviation, the scale or the bound of every weight.
    """

    kind: str | None
    scale: float
    output_units: Floats  # (D,)

    def scales(self, network: Network, layer: int) -> Floats:
        """Scale of the weights of a layer, in the units at hand; (fan_out, 1) or (1, 1)."""
        if layer < network.n_hidden_layers:
            return np.full((1, 1), self.scale)
        return self.scale / self.output_units[:, None]

    def log_density(self, network: Network) -> float:
        """Log density of all weights, in the original units."""
        if self.kind is None:
            return 0.0
        n_weights = sum(coef.size for coef in network.coefs)
        ratios = [coef / self.scales(network, n) for n, coef in enumerate(network.coefs)]
        if self.kind == "gaussian":
            squares = sum(float((ratio**2).sum()) for ratio in ratios)
            return -0.5 * squares - n_weights * math.log(self.scale * math.sqrt(2.0 * math.pi))
        if self.kind == "laplace":
            sizes = sum(float(np.abs(ratio).sum()) for ratio in ratios)
            return -sizes - n_weights * math.log(2.0 * self.scale)
        return -n_weights * math.log(2.0 * self.scale)

    def admit(self, network: Network) -> Network:
        """Give a network the scales of its units that the prior likes best, and clip the rest.

        A positive rescaling of a unit does not change the generator.  Under the Gaussian and the
        Laplace prior the density rises; a network outside the box gets inside it, at least as
        near as rescaling alone can bring it, and only what is still outside is cut off.
        """
        if self.kind is None or (self.kind == "uniform" and self._inside(network)):
            return network
        return self.clip(self._balance(network))

    def clip(self, network: Network) -> Network:
        """Cut the weights off at the bounds of the uniform prior."""
        if self.kind != "uniform":
            return network
        coefs = []
        for layer, coef in enumerate(network.coefs):
            bounds = self.scales(network, layer)
            coefs.append(np.clip(coef, -bounds, bounds))
        return replace(network, coefs=tuple(coefs))

    def _inside(self, network: Network) -> bool:
        return all(
            bool(np.all(np.abs(coef) <= self.scales(network, layer)))
            for layer, coef in enumerate(network.coefs)
        )

    def _balance(self, network: Network) -> Network:
        """Rescale units until what enters each of them is as large as what leaves it."""
        coefs, intercepts = list(network.coefs), list(network.intercepts)
        for _ in range(_BALANCING_SWEEPS if network.n_hidden_layers > 1 else 1):
            for layer in range(network.n_hidden_layers):
                entering = self._sizes(coefs[layer] / self.scales(network, layer), axis=1)
                leaving = self._sizes(coefs[layer + 1] / self.scales(network, layer + 1), axis=0)
                # A unit that is cut off on either side has no scale to balance.
                connected = (entering > 0) & (leaving > 0)
                factors = np.sqrt(
                    np.divide(leaving, entering, where=connected, out=np.ones_like(leaving))
                )
                coefs[layer] = coefs[layer] * factors[:, None]
                intercepts[layer] = intercepts[layer] * factors
                coefs[layer + 1] = coefs[layer + 1] / factors
        return replace(network, coefs=tuple(coefs), intercepts=tuple(intercepts))

    def _sizes(self, ratios: Floats, axis: int) -> Floats:
        """The norm that the prior's density depends on."""
        if self.kind == "gaussian":
            return np.asarray(np.sqrt((ratios**2).sum(axis=axis)))
        if self.kind == "laplace":
            return np.asarray(np.abs(ratios).sum(axis=axis))
        return np.asarray(np.abs(ratios).max(axis=axis))
