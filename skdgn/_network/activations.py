"""Activations: what happens to every unit of a layer on its own."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skdgn._network.enclosures import Enclosures
from skdgn._network.layer import Layer, Restriction
from skdgn._network.maps import AffineMaps, Codes, sum_by
from skdgn._runtime import Bools, Floats, Integers, check_finite

ACTIVATIONS = ("relu", "leaky_relu", "abs")


@dataclass(frozen=True)
class Activation:
    """A continuous function, affine between its kinks."""

    name: str
    kinks: tuple[float, ...]  # increasing
    piece_slopes: tuple[float, ...]  # one more than kinks
    value_at_zero: float = 0.0

    @classmethod
    def from_name(cls, name: str, negative_slope: float) -> Activation:
        """Look an activation up; ``negative_slope`` counts for ``"leaky_relu"`` only."""
        if name not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got {name!r}.")
        if name == "leaky_relu":
            return cls(name, (0.0,), (check_finite(negative_slope, "negative_slope"), 1.0))
        return cls(name, (0.0,), ({"relu": 0.0, "abs": -1.0}[name], 1.0))

    def __str__(self) -> str:
        slope = f" (negative_slope={self.negative_slope})" if self.name == "leaky_relu" else ""
        return self.name + slope

    @property
    def negative_slope(self) -> float:
        """Slope below the first kink."""
        return self.piece_slopes[0]

    @property
    def is_homogeneous(self) -> bool:
        """Whether positive factors pass through: no kink but at zero, where the value is zero."""
        return self.kinks == (0.0,) and self.value_at_zero == 0.0

    @cached_property
    def _slope_table(self) -> Floats:
        return np.array(self.piece_slopes)

    @cached_property
    def _offset_table(self) -> Floats:
        """Offset of every piece: neighbors have the same value at the kink between them."""
        jumps = -np.diff(self.piece_slopes) * np.array(self.kinks)
        offsets = np.concatenate([[0.0], np.cumsum(jumps)])
        return offsets - offsets[np.searchsorted(self.kinks, 0.0)] + self.value_at_zero

    def codes(self, values: Floats) -> Codes:
        """Count the kinks below each value."""
        if len(self.kinks) == 1:
            return (values > self.kinks[0]).astype(np.uint8)
        return np.searchsorted(self.kinks, values, side="left").astype(np.uint8)

    def __call__(self, values: Floats) -> Floats:
        if self.name == "relu":
            return np.maximum(values, 0.0)
        codes = self.codes(values)
        sloped = self.slopes(codes) * values
        return sloped if self.is_homogeneous else sloped + self.offsets(codes)

    def slopes(self, codes: Codes | Bools) -> Floats:
        """Slope of each unit, given how many of its kinks are below its input."""
        if len(self.kinks) == 1:
            return np.where(codes, self.piece_slopes[1], self.piece_slopes[0])
        return self._slope_table[np.asarray(codes, dtype=np.intp)]

    def offsets(self, codes: Codes) -> Floats:
        """Value that the piece of each unit has at zero."""
        return self._offset_table[np.asarray(codes, dtype=np.intp)]


def activations_per_layer(
    activation: str | Sequence[str],
    negative_slope: float | Sequence[float],
    n_hidden_layers: int,
) -> tuple[Activation, ...]:
    """Look up one activation for all hidden layers, or one for each."""
    names = _one_per_layer("activation", activation, str, n_hidden_layers)
    slopes = _one_per_layer("negative_slope", negative_slope, Real, n_hidden_layers)
    # Without a hidden layer, too, a name must be one.
    pairs = itertools.zip_longest(names, slopes, fillvalue=0.0) if names else ()
    found = [Activation.from_name(str(name), slope) for name, slope in pairs]
    return tuple(found[:n_hidden_layers])


def _one_per_layer(name: str, given: Any, kind: type, n_hidden_layers: int) -> list[Any]:
    if isinstance(given, (kind, str)) or not isinstance(given, Sequence | np.ndarray):
        return [given] * max(n_hidden_layers, 1)
    if len(given) != n_hidden_layers:
        raise ValueError(
            f"{name} must be one for all hidden layers, or one for each of the {n_hidden_layers}, "
            f"got {given!r}."
        )
    return list(given)


class UnitwiseLayer(Layer):
    """What layers have in common that treat every unit on its own."""

    n_units: int

    @property
    def n_inputs(self) -> int:
        """Number of units."""
        return self.n_units

    @property
    def n_outputs(self) -> int:
        """Number of units."""
        return self.n_units

    @property
    def n_codes(self) -> int:
        """One per unit: how many of its kinks are below its input."""
        return self.n_units

    @property
    def kinks(self) -> tuple[float, ...]:
        """Where units change their slopes."""
        return (0.0,)

    def enclose(self, inputs: Enclosures) -> Enclosures:
        """Enclose the outputs over boxes: by chords, where there is a kink between the ends."""
        lower, upper = inputs.ranges()
        widths = upper - lower
        at_lower, at_upper = self.forward(lower), self.forward(upper)
        chords = (at_upper - at_lower) / np.where(widths > 0.0, widths, 1.0)
        # Between kinks the function is affine: its distance from the chord is largest at one.
        ends = at_lower - chords * lower, at_upper - chords * upper
        lowest, highest = np.minimum(*ends), np.maximum(*ends)
        for kink in self.kinks:
            between = (lower < kink) & (kink < upper)
            distances = self.forward(np.full((1, self.n_units), kink)) - chords * kink
            lowest = np.where(between, np.minimum(lowest, distances), lowest)
            highest = np.where(between, np.maximum(highest, distances), highest)
        codes = self.codes(lower)
        stable = codes == self.codes(upper)
        exact = self.apply(inputs.maps, codes)
        maps = AffineMaps(
            np.where(stable[:, :, None], exact.slopes, chords[:, :, None] * inputs.maps.slopes),
            np.where(
                stable, exact.offsets, chords * inputs.maps.offsets + 0.5 * (lowest + highest)
            ),
        )
        own = np.where(stable, 0.0, 0.5 * (highest - lowest))
        n_cuts = inputs.n_cuts + np.count_nonzero(~stable, axis=1)
        return Enclosures(maps, np.abs(chords) * inputs.radii + own, n_cuts)

    @abstractmethod
    def take(self, units: Integers) -> Self:
        """Return the layer of these units alone."""

    def restrict(self, inputs: Enclosures) -> Restriction:
        """Tell which units have a kink on a box."""
        lower, upper = inputs.ranges()
        codes = self.codes(lower)
        bent = np.flatnonzero(codes != self.codes(upper))
        return Restriction(codes, bent, bent, self.take(bent))


@dataclass(frozen=True)
class ActivationLayer(UnitwiseLayer):
    """An activation of so many units."""

    activation: Activation
    n_units: int

    @property
    def kinks(self) -> tuple[float, ...]:
        """Those of the activation."""
        return self.activation.kinks

    def take(self, units: Integers) -> ActivationLayer:
        """Return the layer of these units alone."""
        return ActivationLayer(self.activation, len(units))

    def forward(self, values: Floats) -> Floats:
        """Evaluate at inputs (n, u)."""
        return self.activation(values)

    def apply(self, maps: AffineMaps, codes: Codes) -> AffineMaps:
        """Compose with the maps that lead to the layer."""
        slopes = self.activation.slopes(codes)
        offsets = slopes * maps.offsets
        if not self.activation.is_homogeneous:
            offsets = offsets + self.activation.offsets(codes)
        return AffineMaps(slopes[:, :, None] * maps.slopes, offsets)

    def transpose(self, downstream: Floats, codes: Codes) -> Floats:
        """Multiply maps (r, d, u) behind the layer by its slopes."""
        return downstream * self.activation.slopes(codes)[:, None, :]

    def codes(self, values: Floats) -> Codes:
        """Return the codes at inputs (n, u)."""
        return self.activation.codes(values)

    def cuts(self, maps: AffineMaps) -> AffineMaps:
        """Return the inputs minus each kink: (r, u times kinks)."""
        kinks = np.array(self.activation.kinks)
        if len(kinks) == 1:
            return maps if kinks[0] == 0.0 else AffineMaps(maps.slopes, maps.offsets - kinks[0])
        offsets = maps.offsets[:, :, None] - kinks
        return AffineMaps(np.repeat(maps.slopes, len(kinks), axis=1), _flat(offsets))

    def read_sides(self, positive: Bools) -> Codes:
        """Count the kinks on whose positive side a piece is."""
        n_kinks = len(self.activation.kinks)
        if n_kinks == 1:
            return positive.astype(np.uint8)
        return positive.reshape(len(positive), -1, n_kinks).sum(axis=2).astype(np.uint8)

    @property
    def is_homogeneous(self) -> bool:
        """Whether positive factors pass through."""
        return self.activation.is_homogeneous

    @property
    def max_offset(self) -> float:
        """The largest value that a piece has at zero, in absolute value."""
        return float(np.abs(self.activation._offset_table).max())

    @property
    def max_slope(self) -> float:
        """The largest slope there is, in absolute value."""
        return float(np.abs(self.activation.piece_slopes).max())


def _flat(values: Floats) -> Floats:
    return values.reshape(len(values), -1)


@dataclass(frozen=True)
class LearnedSlopeLayer(UnitwiseLayer):
    """Leaky rectifiers whose slopes below zero are parameters, shared by groups of units."""

    negative_slopes: Floats  # (p,)
    groups: NDArray[np.intp]  # (u,): which slope each unit has

    @property
    def n_units(self) -> int:  # type: ignore[override]  # read off the groups, not stored
        """Number of units."""
        return len(self.groups)

    def take(self, units: Integers) -> LearnedSlopeLayer:
        """Return the layer of these units alone."""
        return LearnedSlopeLayer(self.negative_slopes, self.groups[units])

    def _slopes(self, codes: Codes) -> Floats:
        return np.where(codes > 0, 1.0, self.negative_slopes[self.groups])

    def forward(self, values: Floats) -> Floats:
        """Evaluate at inputs (n, u)."""
        return self._slopes(self.codes(values)) * values

    def apply(self, maps: AffineMaps, codes: Codes) -> AffineMaps:
        """Compose with the maps that lead to the layer."""
        slopes = self._slopes(codes)
        return AffineMaps(slopes[:, :, None] * maps.slopes, slopes * maps.offsets)

    def transpose(self, downstream: Floats, codes: Codes) -> Floats:
        """Multiply maps (r, d, u) behind the layer by its slopes."""
        return downstream * self._slopes(codes)[:, None, :]

    def codes(self, values: Floats) -> Codes:
        """Return 1 where an input is positive."""
        return (values > 0).astype(np.uint8)

    def cuts(self, maps: AffineMaps) -> AffineMaps:
        """Return the inputs themselves: kinks are at zero."""
        return maps

    def read_sides(self, positive: Bools) -> Codes:
        """Return 1 where the input is positive."""
        return positive.astype(np.uint8)

    @property
    def n_parameters(self) -> int:
        """Number of slopes."""
        return len(self.negative_slopes)

    @property
    def parameters(self) -> Floats:
        """The slopes."""
        return self.negative_slopes

    def with_parameters(self, parameters: Floats) -> LearnedSlopeLayer:
        """Return the layer with other slopes."""
        return LearnedSlopeLayer(parameters.copy(), self.groups)

    def push(self, change: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return how the outputs (r, u, s + 1) change with the slopes."""
        rates = np.where(codes > 0, 0.0, change[self.groups])
        return rates[:, :, None] * upstream[:, :-1]

    def pull(self, forces: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return the transpose of `push`."""
        products = np.einsum("rus,rus->ru", forces, upstream[:, :-1])
        felt = np.where(codes > 0, 0.0, products).sum(axis=0)
        return sum_by(self.groups, felt, self.n_parameters)

    def derivatives(self, downstream: Floats, upstream: Floats, codes: Codes) -> Floats:
        """Return how each slope moves the maps to the features: (p, r, d, s + 1)."""
        bent = np.where(codes > 0, 0.0, 1.0)[:, :, None] * upstream[:, :-1]
        sharing = [np.flatnonzero(self.groups == group) for group in range(self.n_parameters)]
        return np.stack([downstream[:, :, units] @ bent[:, units] for units in sharing])

    @property
    def is_homogeneous(self) -> bool:
        """True: positive factors pass through."""
        return True

    def pull_squares(self, squares: Floats, moments: Floats, codes: Codes) -> Floats:
        """Return the scale of the Gauss-Newton matrix's diagonal."""
        felt = np.where(codes > 0, 0.0, squares * moments[:, :-1]).sum(axis=0)
        return sum_by(self.groups, felt, self.n_parameters)

    @property
    def max_slope(self) -> float:
        """The largest slope there is, in absolute value."""
        return max(1.0, float(np.abs(self.negative_slopes).max(initial=0.0)))
