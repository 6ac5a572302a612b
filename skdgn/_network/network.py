"""The generator: affine layers with continuous piecewise-affine activations between them.

A network is frozen.  On the region of latent space where every hidden unit keeps its side (its
*pattern*), the network is affine.  The rest of the package asks for three things only: the value
(`Network.forward`), the affine functions whose zeros cut a region further
(`Network.preactivations`), and the affine map behind a layer once the sides of its units are
known (`Network.activate`).

Shapes: ``r`` regions, ``u`` units of a layer, ``s`` latent dimensions, ``d`` features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdgn._runtime import Bools, Floats

ACTIVATIONS = ("relu", "leaky_relu", "abs")


@dataclass(frozen=True)
class Activation:
    """A continuous activation with one kink, at zero: a slope on either side of it."""

    name: str
    negative_slope: float

    @classmethod
    def from_name(cls, name: str, negative_slope: float) -> Activation:
        """Look an activation up; ``negative_slope`` counts for ``"leaky_relu"`` only."""
        if name not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got {name!r}.")
        if name == "leaky_relu":
            if not isinstance(negative_slope, Real) or not np.isfinite(negative_slope):
                raise ValueError(f"negative_slope must be a finite number, got {negative_slope!r}.")
            return cls(name, float(negative_slope))
        return cls(name, {"relu": 0.0, "abs": -1.0}[name])

    def __call__(self, values: Floats) -> Floats:
        return np.where(values > 0, values, self.negative_slope * values)

    def slopes(self, positive: Bools) -> Floats:
        """Slope of each unit, given on which side of its kink it is."""
        return np.where(positive, 1.0, self.negative_slope)


@dataclass(frozen=True)
class AffineMaps:
    """One affine map ``z -> slopes @ z + offsets`` per region."""

    slopes: Floats  # (r, u, s)
    offsets: Floats  # (r, u)

    @classmethod
    def identity(cls, n_dimensions: int) -> AffineMaps:
        """Return the identity on one region."""
        return cls(np.eye(n_dimensions)[None], np.zeros((1, n_dimensions)))

    def take(self, regions: NDArray[np.intp]) -> AffineMaps:
        """Return the maps of these regions."""
        return AffineMaps(self.slopes[regions], self.offsets[regions])


@dataclass(frozen=True)
class Network:
    """Weights of the generator; ``coefs[l]`` is (fan_out, fan_in), the last layer is affine."""

    coefs: tuple[Floats, ...]
    intercepts: tuple[Floats, ...]
    activation: Activation

    @classmethod
    def from_arrays(
        cls,
        coefs: Sequence[ArrayLike],
        intercepts: Sequence[ArrayLike],
        activation: Activation,
    ) -> Network:
        """Check shapes and values, then copy the weights."""
        for name, layers in (("coefs", coefs), ("intercepts", intercepts)):
            if not hasattr(layers, "__len__"):
                raise ValueError(f"{name} must be a list with an array per layer, got {layers!r}.")
        if len(coefs) == 0:
            raise ValueError("coefs must hold at least the output layer, got an empty list.")
        if len(coefs) != len(intercepts):
            raise ValueError(
                "coefs and intercepts must have one entry per layer, "
                f"got {len(coefs)} coefs and {len(intercepts)} intercepts."
            )
        checked_coefs: list[Floats] = []
        checked_intercepts: list[Floats] = []
        for layer, (coef, intercept) in enumerate(zip(coefs, intercepts, strict=True)):
            weights = finite_array(coef, f"coefs[{layer}]")
            biases = finite_array(intercept, f"intercepts[{layer}]")
            if weights.ndim != 2 or 0 in weights.shape:
                raise ValueError(
                    f"coefs[{layer}] must be a non-empty matrix (fan_out, fan_in), "
                    f"got shape {weights.shape}."
                )
            if layer > 0 and weights.shape[1] != checked_coefs[-1].shape[0]:
                raise ValueError(
                    f"coefs[{layer}] must have {checked_coefs[-1].shape[0]} columns, the number of "
                    f"rows of coefs[{layer - 1}], got shape {weights.shape}."
                )
            if biases.shape != (weights.shape[0],):
                raise ValueError(
                    f"intercepts[{layer}] must have shape ({weights.shape[0]},), one entry per row "
                    f"of coefs[{layer}], got shape {biases.shape}."
                )
            checked_coefs.append(weights)
            checked_intercepts.append(biases)
        steepest = max(1.0, abs(activation.negative_slope))
        largest = np.ones(checked_coefs[0].shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            for weights, biases in zip(checked_coefs, checked_intercepts, strict=True):
                largest = steepest * (np.abs(weights) @ largest + np.abs(biases))
        if not np.all(np.isfinite(largest)):
            raise ValueError(
                "coefs and intercepts must have finite products over the layers, "
                f"got entries as large as {max(np.abs(coef).max() for coef in checked_coefs)}."
            )
        return cls(tuple(checked_coefs), tuple(checked_intercepts), activation)

    @property
    def n_components(self) -> int:
        """Number of latent dimensions."""
        return int(self.coefs[0].shape[1])

    @property
    def n_features(self) -> int:
        """Number of output features."""
        return int(self.coefs[-1].shape[0])

    @property
    def hidden_layer_sizes(self) -> tuple[int, ...]:
        """Widths of the hidden layers, from the latent space to the output."""
        return tuple(int(coef.shape[0]) for coef in self.coefs[:-1])

    @property
    def n_hidden_layers(self) -> int:
        """Number of layers followed by an activation."""
        return len(self.coefs) - 1

    @property
    def n_identifiable_weights(self) -> int:
        """Number of weights, less those that rescaling units and rotating z leave undetermined."""
        n_weights = sum(coef.size for coef in self.coefs) + sum(v.size for v in self.intercepts)
        # Rotations of the dimensions that the first layer does not look at leave it as it is.
        n_unseen = max(0, self.n_components - len(self.coefs[0]))
        n_rotations = math.comb(self.n_components, 2) - math.comb(n_unseen, 2)
        return n_weights - sum(self.hidden_layer_sizes) - n_rotations

    def take_features(self, features: NDArray[np.intp]) -> Network:
        """Return the network with these features, in this order."""
        return replace(
            self,
            coefs=(*self.coefs[:-1], self.coefs[-1][features]),
            intercepts=(*self.intercepts[:-1], self.intercepts[-1][features]),
        )

    def toward(self, other: Network, share: float) -> Network:
        """Return the network at this share of the way to another one."""
        if share == 1.0:
            return other  # to the last digit: zeros and bounds stay what they are

        def mix(here: Floats, there: Floats) -> Floats:
            return here + share * (there - here)

        return replace(
            self,
            coefs=tuple(map(mix, self.coefs, other.coefs)),
            intercepts=tuple(map(mix, self.intercepts, other.intercepts)),
        )

    def forward(self, latent: Floats) -> Floats:
        """Evaluate the generator at points (n, s); returns (n, d)."""
        values = latent
        for coef, intercept in zip(self.coefs[:-1], self.intercepts[:-1], strict=True):
            values = self.activation(values @ coef.T + intercept)
        return values @ self.coefs[-1].T + self.intercepts[-1]

    def patterns(self, latent: Floats) -> Bools:
        """Return the side of each hidden unit at points (n, s), as (n, total hidden units)."""
        values = latent
        sides = [np.empty((len(latent), 0), dtype=bool)]
        for coef, intercept in zip(self.coefs[:-1], self.intercepts[:-1], strict=True):
            values = values @ coef.T + intercept
            sides.append(values > 0)
            values = self.activation(values)
        return np.concatenate(sides, axis=1)

    def split_pattern(self, patterns: Bools) -> list[Bools]:
        """Split patterns (r, total hidden units) into one array (r, u) per hidden layer."""
        ends = itertools.accumulate(self.hidden_layer_sizes)
        sizes = self.hidden_layer_sizes
        return [patterns[:, end - size : end] for size, end in zip(sizes, ends, strict=True)]

    def preactivations(self, layer: int, upstream: AffineMaps) -> AffineMaps:
        """Compose layer ``layer`` with the affine maps (one per region) that lead to it."""
        coef = self.coefs[layer]
        return AffineMaps(
            coef @ upstream.slopes, upstream.offsets @ coef.T + self.intercepts[layer]
        )

    def preactivation_scales(self, layer: int, upstream: AffineMaps) -> AffineMaps:
        """Sum the absolute values of the terms that `preactivations` adds: its rounding errors.

        A unit that is constant on a region comes out of `preactivations` as rounding noise, not
        as zero; only beside these sums can noise be told from a small weight.
        """
        coef = np.abs(self.coefs[layer])
        return AffineMaps(
            coef @ np.abs(upstream.slopes),
            np.abs(upstream.offsets) @ coef.T + np.abs(self.intercepts[layer]),
        )

    def activate(self, preactivations: AffineMaps, positive: Bools) -> AffineMaps:
        """Apply the activation to affine maps whose units' sides (r, u) are known."""
        slopes = self.activation.slopes(positive)
        return AffineMaps(
            slopes[:, :, None] * preactivations.slopes, slopes * preactivations.offsets
        )


def finite_array(values: ArrayLike, name: str) -> Floats:
    """Copy to float64 and refuse what is not a finite number."""
    try:
        array = np.array(values)
        # NumPy would drop imaginary parts, with no more than a warning.
        if np.iscomplexobj(array):
            raise TypeError("complex numbers have no place here")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}.") from error
    if not np.all(np.isfinite(array)):
        bad = array[~np.isfinite(array)].flat[0]
        raise ValueError(f"{name} must be finite, got {bad}.")
    return array
