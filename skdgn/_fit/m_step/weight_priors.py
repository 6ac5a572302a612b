"""Priors of the weights: a class a prior, and what they have in common.

In the orthant or box around the current weights every prior is a quadratic: a linear term
``1 / scale`` (Laplace), a curvature ``1 / scale^2`` (Gaussian), or bounds (uniform; zero, for
Laplace).  Intercepts have none.

The scale belongs to the weights of the model for the original samples.  ``output_units`` says by
how much the samples at hand were divided, so that a fit on scaled samples has the same prior.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from skdgn._network import Dense, Network
from skdgn._runtime import Floats

# Sweeps over the layers that balance the units' scales; each halves what is left to do.
_BALANCING_SWEEPS = 8


class PriorTerms(NamedTuple):
    """What a prior makes of an M-step, one entry per weight or bias."""

    slope: Floats  # likelihood's gradient plus the prior's
    curvature: Floats
    lower: Floats
    upper: Floats


class Density(ABC):
    """The density of one weight; ``ratios`` are weights in units of its scale."""

    volume: ClassVar[float]  # integral of exp(-energy), at scale 1
    bound: ClassVar[float] = math.inf  # no density beyond

    @abstractmethod
    def energy(self, ratios: Floats) -> float:
        """Sum of what the log density falls by from its maximum."""

    @abstractmethod
    def sizes(self, ratios: Floats, axis: int) -> Floats:
        """Norm that the density of all weights of a unit depends on."""

    @abstractmethod
    def terms(self, weights: Floats, gradient: Floats, scales: Floats) -> PriorTerms:
        """Quadratic around the weights; scales are infinite for intercepts.

        The curvature need not be exact: steps count only if the objective does not fall.
        """


class Gaussian(Density):
    """Density ``exp(-r^2 / 2)``."""

    volume = math.sqrt(2.0 * math.pi)

    def energy(self, ratios: Floats) -> float:
        return 0.5 * float((ratios**2).sum())

    def sizes(self, ratios: Floats, axis: int) -> Floats:
        return np.asarray(np.sqrt((ratios**2).sum(axis=axis)))

    def terms(self, weights: Floats, gradient: Floats, scales: Floats) -> PriorTerms:
        curvature, unbounded = scales**-2.0, np.full_like(weights, np.inf)
        return PriorTerms(gradient - curvature * weights, curvature, -unbounded, unbounded)


class Laplace(Density):
    """Density ``exp(-|r|)``."""

    volume = 2.0

    def energy(self, ratios: Floats) -> float:
        return float(np.abs(ratios).sum())

    def sizes(self, ratios: Floats, axis: int) -> Floats:
        return np.asarray(np.abs(ratios).sum(axis=axis))

    def terms(self, weights: Floats, gradient: Floats, scales: Floats) -> PriorTerms:
        """Slope, in the orthant of the weights; zeros leave if the likelihood gains by it."""
        signs = np.sign(weights)
        leaves = (weights == 0) & (np.abs(gradient) > 1.0 / scales)
        signs[leaves] = np.sign(gradient[leaves])
        free = np.isinf(scales)
        return PriorTerms(
            gradient - signs / scales,
            np.zeros_like(weights),
            np.where(free | (signs < 0), -np.inf, 0.0),
            np.where(free | (signs > 0), np.inf, 0.0),
        )


class Uniform(Density):
    """Density 1 / 2 from -1 to 1."""

    volume = 2.0
    bound = 1.0

    def energy(self, ratios: Floats) -> float:
        return 0.0

    def sizes(self, ratios: Floats, axis: int) -> Floats:
        return np.asarray(np.abs(ratios).max(axis=axis))

    def terms(self, weights: Floats, gradient: Floats, scales: Floats) -> PriorTerms:
        return PriorTerms(gradient, np.zeros_like(weights), -scales, scales)


PRIORS: dict[str, Density] = {"gaussian": Gaussian(), "laplace": Laplace(), "uniform": Uniform()}


@dataclass(frozen=True)
class WeightPrior:
    """A prior with independent weights: a name of `PRIORS`, or None for a flat one.

    ``scale`` is the standard deviation, the scale or the bound of every weight.
    """

    kind: str | None
    scale: float
    output_units: Floats  # (D,)

    @property
    def density(self) -> Density | None:
        """The density of one weight; None if there is no prior."""
        return None if self.kind is None else PRIORS[self.kind]

    def scales(self, network: Network, place: int) -> Floats:
        """Scale of every parameter of a layer, in the units at hand; infinite for intercepts."""
        layer = network.layers[place]
        scales = np.where(layer.is_weight, self.scale, np.inf)
        if place == len(network.layers) - 1:
            # Outputs that share weights share their unit, or a layer behind them would have it.
            units = self.output_units if isinstance(layer, Dense) else self.output_units[:1]
            scales = scales.reshape(len(units), -1) / units[:, None]
        return scales.ravel()

    def _ratios(self, network: Network, place: int) -> Floats:
        """Return the parameters of a layer in units of their scales; zero for intercepts."""
        return network.layers[place].parameters / self.scales(network, place)

    def log_density(self, network: Network) -> float:
        """Log density of all weights, in the original units."""
        if self.density is None:
            return 0.0
        n_weights = sum(int(network.layers[place].is_weight.sum()) for place in network.learned)
        ratios = np.concatenate([self._ratios(network, place) for place in network.learned])
        log_volume = math.log(self.scale * self.density.volume)
        return -self.density.energy(ratios) - n_weights * log_volume

    def admit(self, network: Network) -> Network:
        """Give a network the scales of its units that the prior likes best, and clip the rest.

        A positive rescaling of a unit does not change the generator.  A density that falls off
        rises by it; a network beyond a bound gets inside, at least as near as rescaling alone can
        bring it, and only what is still outside is cut off.
        """
        if self.density is None or (math.isfinite(self.density.bound) and self._inside(network)):
            return network
        return self.clip(self._balance(network, self.density))

    def clip(self, network: Network) -> Network:
        """Cut the weights off at the bounds of the prior, if it has any."""
        if self.density is None or math.isinf(self.density.bound):
            return network
        clipped = []
        for place in network.learned:
            layer, bounds = network.layers[place], self.density.bound * self.scales(network, place)
            clipped.append(layer.with_parameters(np.clip(layer.parameters, -bounds, bounds)))
        return network.replace_layers(network.learned, clipped)

    def _inside(self, network: Network) -> bool:
        assert self.density is not None
        return all(
            np.all(
                np.abs(network.layers[place].parameters)
                <= self.density.bound * self.scales(network, place)
            )
            for place in network.learned
        )

    def _balance(self, network: Network, density: Density) -> Network:
        """Rescale units until what enters each of them is as large as what leaves it."""
        pairs = network.rescalable_units()
        for _ in range(_BALANCING_SWEEPS if len(pairs) > 1 else 1):
            for before, behind in pairs:
                n_units, n_behind = (network.layers[place].n_outputs for place in (before, behind))
                entering = self._ratios(network, before).reshape(n_units, -1)
                leaving = self._ratios(network, behind).reshape(n_behind, -1)[:, :-1]
                entering = density.sizes(entering, axis=1)
                leaving = density.sizes(leaving, axis=0)
                # A unit that is cut off on either side has no scale to balance.
                connected = (entering > 0) & (leaving > 0)
                factors = np.sqrt(
                    np.divide(leaving, entering, where=connected, out=np.ones_like(leaving))
                )
                network = network.rescale_units(before, behind, factors)
        return network
