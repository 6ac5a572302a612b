"""The generator: a sequence of layers, piecewise affine and continuous.

A network is frozen.  On the region of latent space where every layer keeps its codes (their
*pattern*), the network is affine.

Shapes: ``r`` regions, ``u`` units of a layer, ``s`` latent dimensions, ``d`` features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from skdgn._network.activations import Activation, ActivationLayer, LearnedSlopeLayer
from skdgn._network.blueprints import Abs, Flatten, LeakyReLU, ReLU, Reshape
from skdgn._network.blueprints.activations import Unitwise
from skdgn._network.blueprints.blueprint import Blueprint
from skdgn._network.blueprints.dense import Dense as DenseBlueprint
from skdgn._network.blueprints.dense import merge_dense
from skdgn._network.blueprints.sequences import (
    build_all,
    check_blueprints,
    fill_all,
    flatten,
    n_inputs_of,
    shape_after,
)
from skdgn._network.dense import Dense
from skdgn._network.identifiability import count_by_formula, count_by_rank
from skdgn._network.layer import Layer
from skdgn._network.maps import AffineMaps, Codes
from skdgn._network.sparse import SharedLayer
from skdgn._network.units import UnitsLayer
from skdgn._runtime import Floats, Integers, finite_array


@dataclass(frozen=True)
class Architecture:
    """The shape of a generator, without its weights.

    Either dense hidden layers of these sizes with activations, and a dense output layer; or the
    layers of blueprints, the output layer included if they end in one.
    """

    n_components: int
    hidden_layer_sizes: tuple[int, ...] = ()
    activations: tuple[Activation, ...] = ()  # one per hidden layer
    blueprints: tuple[Blueprint, ...] | None = None

    @classmethod
    def alike(
        cls, n_components: int, hidden_layer_sizes: tuple[int, ...], activation: Activation
    ) -> Architecture:
        """Give all hidden layers the same activation."""
        return cls(n_components, hidden_layer_sizes, (activation,) * len(hidden_layer_sizes))

    @classmethod
    def of_layers(cls, n_components: int, layers: Sequence[Blueprint]) -> Architecture:
        """Check blueprints; dense layers and activations by turns have a form of their own."""
        blueprints = check_blueprints(layers, "hidden_layers")
        shape_after(blueprints, (n_components,), "hidden_layers")
        dense, functions = blueprints[::2], blueprints[1::2]
        if (
            len(dense) == len(functions)
            and all(isinstance(layer, DenseBlueprint) and layer.coef is None for layer in dense)
            and all(isinstance(layer, ReLU | LeakyReLU | Abs) for layer in functions)
        ):
            widths = (layer.n_units for layer in dense if isinstance(layer, DenseBlueprint))
            activations = (layer._function for layer in functions if isinstance(layer, Unitwise))
            return cls(n_components, tuple(widths), tuple(activations))
        return cls(n_components, blueprints=blueprints)

    def outline(self, n_features: int) -> list[Blueprint]:
        """Return the blueprints of all layers without weights, to compare with others.

        Neighboring dense layers compute what the last of them could on its own.
        """
        outline: list[Blueprint] = []
        for layer in self.check_features(n_features):
            if (
                isinstance(layer, DenseBlueprint)
                and outline
                and isinstance(outline[-1], type(layer))
            ):
                outline.pop()
            outline.append(layer._emptied())
        return outline

    @property
    def is_linear(self) -> bool:
        """Whether there are no hidden layers."""
        return not self.hidden_layer_sizes and self.blueprints is None

    @property
    def n_sure_regions(self) -> int:
        """How many regions units in general position make, in the first layer alone."""
        widths, dimensions = self.hidden_layer_sizes, range(self.n_components + 1)
        return sum(math.comb(widths[0], k) for k in dimensions) if widths else 1

    def floats_per_region(self, n_features: int) -> int:
        """Size of the maps upstream and downstream of every hidden layer, for one region."""
        widths = list(self.hidden_layer_sizes)
        shape: tuple[int, ...] = (self.n_components,)
        for blueprint in self.blueprints or ():
            shape = blueprint.output_shape(shape)
            widths.append(math.prod(shape))
        return sum((self.n_components + 1) * (width + 1) + n_features * width for width in widths)

    def without_hidden_layers(self) -> Architecture:
        """Return the shape of the linear model."""
        return Architecture(self.n_components)

    def __str__(self) -> str:
        layers: object = self.hidden_layer_sizes
        if self.blueprints is not None:
            return f"n_components={self.n_components} and hidden_layers={list(self.blueprints)}"
        return f"n_components={self.n_components} and hidden_layer_sizes={layers}"

    def check_features(self, n_features: int) -> tuple[Blueprint, ...]:
        """Return blueprints of all layers, the output layer included; ValueError if none fit.

        The last of the blueprints is the output layer if it learns weights of as many outputs as
        there are features; otherwise a dense layer follows.
        """
        if self.blueprints is None:
            return ()
        shape = shape_after(self.blueprints, (self.n_components,), "hidden_layers")
        own = [layer for layer in self.blueprints if not isinstance(layer, Flatten | Reshape)]
        if own and "coef" in own[-1]._learned and math.prod(shape) == n_features:
            return self.blueprints
        return (*self.blueprints, DenseBlueprint(n_features))

    def ends_dense(self, n_features: int) -> bool:
        """Whether the output layer is a dense one."""
        if self.blueprints is None:
            return True
        layers = self.check_features(n_features)
        own = [layer for layer in layers if not isinstance(layer, Flatten | Reshape)]
        return isinstance(own[-1], DenseBlueprint)

    def draw(self, n_features: int, generator: np.random.Generator) -> Network:
        """Draw weights for blueprints that have none."""
        blueprints = self.check_features(n_features)
        return Network.from_blueprints(blueprints, self.n_components, generator)


@dataclass(frozen=True)
class Network:
    """A generator: its layers, from latent space to the features."""

    layers: tuple[Layer, ...]
    # What the layers were built from, if they are not dense ones and activations by turns.
    blueprints: tuple[Blueprint, ...] | None = None

    @classmethod
    def from_blueprints(
        cls,
        blueprints: Sequence[Blueprint],
        n_components: int,
        generator: np.random.Generator | None = None,
    ) -> Network:
        """Build layers; the weights that were not given are drawn."""
        shape_after(blueprints, (n_components,), "layers")
        generator = np.random.default_rng(0) if generator is None else generator
        layers = build_all(blueprints, (n_components,), generator)
        if not layers:
            raise ValueError("layers must hold at least one that computes something, got none.")
        network = cls(tuple(layers), tuple(blueprints))
        network.check_sizes("layers")
        return network

    @classmethod
    def from_filled(cls, blueprints: Sequence[Blueprint], n_components: int) -> Network:
        """Build layers that have all their weights; neighboring dense ones become one."""
        merged = merge_dense(blueprints)
        architecture = Architecture.of_layers(n_components, [own._emptied() for own in merged[:-1]])
        if architecture.blueprints is None and isinstance(merged[-1], DenseBlueprint):
            dense = [layer for layer in merged if isinstance(layer, DenseBlueprint)]
            coefs = [layer.coef for layer in dense if layer.coef is not None]
            intercepts = [layer.intercept for layer in dense if layer.intercept is not None]
            network = cls.dense(coefs, intercepts, architecture.activations)
            network.check_sizes("layers")
            return network
        return cls.from_blueprints(merged, n_components)

    def filled_blueprints(self) -> list[Blueprint]:
        """Return blueprints of all layers with the weights they have.

        They tell the number of latent dimensions: if no layer does, a shape that stays as it is.
        """
        if self.blueprints is None:
            return self._dense_blueprints()
        layers = iter(self.layers[place].core for place in self.learned)
        filled = fill_all(self.blueprints, layers)
        begin = [Reshape((self.n_components,))] if n_inputs_of(filled) is None else []
        return [*begin, *filled]

    def _dense_blueprints(self) -> list[Blueprint]:
        blueprints: list[Blueprint] = []
        for layer in self.layers:
            if isinstance(layer, Dense):
                blueprints.append(DenseBlueprint(layer.n_outputs, layer.coef, layer.intercept))
            elif isinstance(layer, ActivationLayer):
                blueprints.append(_blueprint_of(layer.activation))
        return blueprints

    @classmethod
    def dense(
        cls,
        coefs: Sequence[Floats],
        intercepts: Sequence[Floats],
        activations: Sequence[Activation] = (),
    ) -> Network:
        """Alternate dense layers and activations; the last dense layer has none."""
        layers: list[Layer] = []
        for place, (coef, intercept) in enumerate(zip(coefs, intercepts, strict=True)):
            layers.append(Dense(coef, intercept))
            if place < len(coefs) - 1:
                layers.append(ActivationLayer(activations[place], len(intercept)))
        return cls(tuple(layers))

    @classmethod
    def from_arrays(
        cls,
        coefs: Sequence[ArrayLike] | None,
        intercepts: Sequence[ArrayLike] | None,
        activation: Activation | Sequence[Activation],
    ) -> Network:
        """Check shapes and values, then copy the weights; one activation may serve all layers."""
        coefs = _as_list("coefs", coefs)
        intercepts = _as_list("intercepts", intercepts)
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
        activations = (
            [activation] * (len(coefs) - 1) if isinstance(activation, Activation) else activation
        )
        network = cls.dense(checked_coefs, checked_intercepts, activations)
        network.check_sizes("coefs and intercepts")
        return network

    def check_sizes(self, name: str) -> None:
        """Refuse weights whose products over the layers overflow."""
        largest = AffineMaps(np.zeros((1, self.n_components, 0)), np.ones((1, self.n_components)))
        with np.errstate(over="ignore", invalid="ignore"):
            for layer in self.layers:
                if layer.n_codes == 0:
                    largest = layer.magnitudes(largest)
                    continue
                # The largest member of a group, or any unit, may win; kinks are added to be sure.
                codes = np.zeros((1, layer.n_codes), dtype=np.uint8)
                bound = layer.max_slope * float(largest.offsets.max()) + layer.max_offset
                largest = layer.apply(largest, codes)
                largest = AffineMaps(largest.slopes, np.full_like(largest.offsets, bound))
        if not np.all(np.isfinite(largest.offsets)):
            sizes = [np.abs(self.layers[place].parameters).max() for place in self.learned]
            raise ValueError(
                f"{name} must have finite products over the layers, "
                f"got entries as large as {max(sizes)}."
            )

    @property
    def n_components(self) -> int:
        """Number of latent dimensions."""
        return self.layers[0].n_inputs

    @property
    def n_features(self) -> int:
        """Number of output features."""
        return self.layers[-1].n_outputs

    @property
    def coefs(self) -> tuple[Floats, ...]:
        """Weights of the layers that have any: (fan_out, fan_in), or kernels."""
        if self.blueprints is not None:
            return self._collect("coef")
        return tuple(layer.coef for layer in self.layers if isinstance(layer, Dense))

    @property
    def intercepts(self) -> tuple[Floats, ...]:
        """Intercepts of the layers that have any, (fan_out,) each, or one per channel."""
        if self.blueprints is not None:
            return self._collect("intercept")
        return tuple(layer.intercept for layer in self.layers if isinstance(layer, Dense))

    def _collect(self, name: str) -> tuple[Floats, ...]:
        """Collect what blueprints of this network have by this name."""
        found = (getattr(layer, name, None) for layer in flatten(self.filled_blueprints()))
        return tuple(array for array in found if array is not None)

    @property
    def activations(self) -> tuple[Activation, ...]:
        """Activations of the hidden layers."""
        layers = self.layers
        return tuple(layer.activation for layer in layers if isinstance(layer, ActivationLayer))

    @property
    def architecture(self) -> Architecture:
        """The shape of the network."""
        if self.blueprints is not None:
            return Architecture(self.n_components, blueprints=self.blueprints)
        return Architecture(self.n_components, self.hidden_layer_sizes, self.activations)

    @property
    def hidden_layer_sizes(self) -> tuple[int, ...]:
        """Widths of the hidden layers, from the latent space to the output."""
        return tuple(layer.n_outputs for layer in self.layers[:-1] if isinstance(layer, Dense))

    @cached_property
    def learned(self) -> tuple[int, ...]:
        """Places of the layers that have parameters."""
        return tuple(place for place, layer in enumerate(self.layers) if layer.n_parameters)

    @property
    def ends_dense(self) -> bool:
        """Whether the features are the outputs of a dense layer."""
        return isinstance(self.layers[-1], Dense)

    @property
    def output_layer(self) -> int:
        """Number of the last layer among those that are learned."""
        return len(self.learned) - 1

    @property
    def is_affine(self) -> bool:
        """Whether there are no cuts at all."""
        return not any(layer.n_codes for layer in self.layers)

    def count_identifiable(self, patterns: Codes) -> int:
        """Count the parameters that the generator tells apart, by regions of these patterns."""
        if self.blueprints is None:
            return count_by_formula(self)
        return count_by_rank(self, patterns)

    def replace_layers(self, places: Sequence[int], layers: Sequence[Layer]) -> Network:
        """Return the network with other layers in these places."""
        replaced = list(self.layers)
        for place, layer in zip(places, layers, strict=True):
            replaced[place] = layer
        return replace(self, layers=tuple(replaced))

    def take_features(self, features: Integers) -> Network:
        """Return the network with these features, in this order."""
        output = self.layers[-1]
        if isinstance(output, Dense):
            taken = Dense(output.coef[features], output.intercept[features])
            return self.replace_layers([len(self.layers) - 1], [taken])
        return self._with_units(self._units.take(features))

    def scale_features(
        self, factors: Floats, before: Floats | float = 0.0, after: Floats | float = 0.0
    ) -> Network:
        """Return the network whose features x are ``factors (x + before) + after``."""
        output = self.layers[-1]
        if isinstance(output, Dense):
            scaled: Layer = output.scale_outputs(factors, before, after)
            return self.replace_layers([len(self.layers) - 1], [scaled])
        same = [np.unique(values) for values in (factors, before, after)]
        if isinstance(output, SharedLayer) and all(len(values) == 1 for values in same):
            scaled = output.scale_outputs(*(float(values[0]) for values in same))
            return self.replace_layers([len(self.layers) - 1], [scaled])
        return self._with_units(self._units.scale(factors, before, after))

    @property
    def _units(self) -> UnitsLayer:
        """The units of the features, of a network that cannot express them by its weights."""
        output = self.layers[-1]
        return output if isinstance(output, UnitsLayer) else UnitsLayer.identity(self.n_features)

    def _with_units(self, units: UnitsLayer) -> Network:
        own = self.layers[:-1] if isinstance(self.layers[-1], UnitsLayer) else self.layers
        return replace(self, layers=own if units.is_identity else (*own, units))

    def toward(self, other: Network, share: float) -> Network:
        """Return the network at this share of the way to another one."""
        if share == 1.0:
            return other  # to the last digit: zeros and bounds stay what they are
        mixed = []
        for place in self.learned:
            here, there = self.layers[place].parameters, other.layers[place].parameters
            mixed.append(self.layers[place].with_parameters(here + share * (there - here)))
        return self.replace_layers(self.learned, mixed)

    def rescalable_units(self) -> list[tuple[int, int]]:
        """Find dense layers with nothing but an activation between them, as pairs of places.

        One through which positive factors pass.
        """
        layers = self.layers
        return [
            (place - 1, place + 1)
            for place, layer in enumerate(layers[1:-1], start=1)
            if isinstance(layer, ActivationLayer | LearnedSlopeLayer)
            and layer.is_homogeneous
            and isinstance(layers[place - 1], Dense)
            and isinstance(layers[place + 1], Dense)
        ]

    def rescale_units(self, before: int, behind: int, factors: Floats) -> Network:
        """Move positive factors (u,) of units from one dense layer to another.

        They pass through an activation whose kink is at zero: the generator stays the same.
        """
        first, second = self.layers[before], self.layers[behind]
        assert isinstance(first, Dense)
        assert isinstance(second, Dense)
        rescaled = [first.scale_outputs(factors), second.scale_inputs(1.0 / factors)]
        return self.replace_layers((before, behind), rescaled)

    def forward(self, latent: Floats) -> Floats:
        """Evaluate the generator at points (n, s); returns (n, d)."""
        values = latent
        for layer in self.layers:
            values = layer.forward(values)
        return values

    def patterns(self, latent: Floats) -> Codes:
        """Return the codes of all layers at points (n, s): (n, number of codes)."""
        values = latent
        codes = [np.empty((len(latent), 0), dtype=np.uint8)]
        for layer in self.layers:
            codes.append(layer.codes(values))
            values = layer.forward(values)
        return np.concatenate(codes, axis=1)

    def split_patterns(self, patterns: Codes) -> list[Codes]:
        """Split patterns (r, number of codes) into one array per layer."""
        ends = itertools.accumulate((layer.n_codes for layer in self.layers), initial=0)
        return [patterns[:, first:end] for first, end in itertools.pairwise(ends)]

    def maps(self, patterns: Codes) -> list[AffineMaps]:
        """Affine maps that lead into every layer, and the features, in regions of these patterns.

        The first is the identity, of one region that stands for all.
        """
        maps = [AffineMaps.identity(self.n_components)]
        for layer, codes in zip(self.layers, self.split_patterns(patterns), strict=True):
            maps.append(layer.apply(maps[-1], codes))
        return maps


def _as_list(name: str, layers: Sequence[ArrayLike] | None) -> list[ArrayLike]:
    if not isinstance(layers, Sized):
        raise ValueError(f"{name} must be a list with an array per layer, got {layers!r}.")
    return list(layers)


def _blueprint_of(activation: Activation) -> Blueprint:
    if activation.name == "leaky_relu":
        return LeakyReLU(activation.negative_slope)
    return {"relu": ReLU, "abs": Abs}[activation.name]()
