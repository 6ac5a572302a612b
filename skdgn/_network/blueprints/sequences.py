"""Blueprints that follow each other: checked, built, and filled with weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from skdgn._network.blueprints.blueprint import Blueprint, Shape
from skdgn._network.layer import Layer
from skdgn._network.sparse import FixedLayer


def check_blueprints(layers: Any, name: str) -> tuple[Blueprint, ...]:
    """Refuse what is not a sequence of blueprints."""
    if not isinstance(layers, Sequence) or isinstance(layers, str):
        raise ValueError(f"{name} must be a sequence of skdgn.layers, got {layers!r}.")
    for position, layer in enumerate(layers):
        if not isinstance(layer, Blueprint):
            raise ValueError(
                f"{name}: position {position} must be one of skdgn.layers, got {layer!r}."
            )
    return tuple(layers)


def check_filled(layers: Sequence[Blueprint], name: str) -> None:
    """Refuse layers without weights."""
    for position, layer in enumerate(layers):
        if not layer._is_filled:
            raise ValueError(f"{name}: position {position} must have weights, got {layer!r}.")


def n_inputs_of(layers: Sequence[Blueprint]) -> int | None:
    """Number of inputs of the first layer, if it is known."""
    for layer in layers:
        if layer._n_inputs is not None or not layer._keeps_size:
            return layer._n_inputs
    return None


def shape_after(
    layers: Sequence[Blueprint],
    shape: Shape,
    name: str,
    labels: Sequence[str] = (),
) -> Shape:
    """Follow the shape through layers; an error names the layer and its position."""
    for position, layer in enumerate(layers):
        try:
            shape = layer._shape_behind(shape)
        except ValueError as error:
            own = labels[position] if labels else f"{type(layer).__name__} at position {position}"
            raise ValueError(f"{name}: {own} {str(error).removesuffix('.')}.") from error
    return shape


def check_shapes(layers: Sequence[Blueprint], n_inputs: int, name: str) -> None:
    """Refuse layers that do not fit each other."""
    shape_after(layers, (n_inputs,), name)


def build_all(
    layers: Sequence[Blueprint], shape: Shape, generator: np.random.Generator
) -> list[Layer]:
    """Build layers one after the other; fixed ones that follow each other become one."""
    built: list[Layer] = []
    for blueprint in layers:
        for layer in blueprint._build(shape, generator):
            last = built[-1] if built else None
            if isinstance(layer, FixedLayer) and isinstance(last, FixedLayer):
                product = sparse.csr_array(layer.matrix @ last.matrix)
                built[-1] = FixedLayer(product, layer.matrix @ last.intercept + layer.intercept)
            else:
                built.append(layer)
        shape = blueprint._shape_behind(shape)
    return built


def fill_all(blueprints: Sequence[Blueprint], layers: Iterator[Layer]) -> tuple[Blueprint, ...]:
    """Return blueprints with the parameters of built layers, those that have any."""
    return tuple(blueprint._filled(layers) for blueprint in blueprints)


def flatten(blueprints: Sequence[Blueprint]) -> Iterator[Blueprint]:
    """Yield blueprints, those inside others too."""
    for blueprint in blueprints:
        if not blueprint._branches:
            yield blueprint
        for branch in blueprint._branches:
            yield from flatten(branch)
