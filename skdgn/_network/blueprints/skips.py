"""Connections that skip layers: sums and concatenations of paths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from scipy import sparse

from skdgn._network.blueprints.blueprint import Blueprint, Shape, fixed_layer
from skdgn._network.blueprints.sequences import (
    build_all,
    check_blueprints,
    fill_all,
    n_inputs_of,
    shape_after,
)
from skdgn._network.layer import Layer
from skdgn._network.sparse import Beside


class Residual(Blueprint):
    """Add the inputs to the outputs of layers applied to them.

    Parameters
    ----------
    *layers : layers
        Layers whose outputs have the shape of their inputs.

    Examples
    --------
    >>> from skdgn.layers import Abs, Residual
    >>> Residual(Abs()).forward([[-2.0, 3.0]])
    array([[0., 6.]])
    """

    _keeps_size = True

    def __init__(self, *layers: Blueprint) -> None:
        self.layers = check_blueprints(layers, "Residual")
        if not layers:
            raise ValueError("layers must be at least one, got none.")

    @property
    def _branches(self) -> tuple[tuple[Blueprint, ...], ...]:  # type: ignore[override]  # one path
        return (self.layers,)

    @property
    def _n_inputs(self) -> int | None:  # type: ignore[override]  # as its layers say
        return n_inputs_of(self.layers)

    def _shape_behind(self, shape: Shape) -> Shape:
        end = shape_after(self.layers, shape, "holds")
        if end != shape:
            raise ValueError(f"needs outputs of the shape {shape} of its inputs, got shape {end}")
        return shape

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        # The inputs are passed on beside the layers.
        n_inputs = math.prod(shape)
        unit = sparse.eye_array(n_inputs, format="csr")
        inner = build_all(self.layers, shape, generator)
        return [
            fixed_layer(sparse.vstack([unit, unit])),
            *(Beside(layer, n_inputs) for layer in inner),
            fixed_layer(sparse.hstack([unit, unit])),
        ]

    def _filled(self, layers: Iterator[Layer]) -> Self:
        return self._replace(layers=fill_all(self.layers, layers))

    def _emptied(self) -> Self:
        return self._replace(layers=tuple(layer._emptied() for layer in self.layers))


class Concatenate(Blueprint):
    """Apply several branches to the same inputs and concatenate their outputs.

    Parameters
    ----------
    *branches : layers, or sequences of layers
        Branches whose outputs differ only in the number of units or channels; an empty sequence
        returns the inputs.

    Examples
    --------
    >>> from skdgn.layers import Abs, Concatenate
    >>> Concatenate(Abs(), []).forward([[-2.0, 3.0]])
    array([[ 2.,  3., -2.,  3.]])
    """

    def __init__(self, *branches: Blueprint | Sequence[Blueprint]) -> None:
        if len(branches) < 2:
            raise ValueError(f"branches must be at least two, got {len(branches)}.")
        self.branches = tuple(
            check_blueprints((branch,) if isinstance(branch, Blueprint) else branch, "Concatenate")
            for branch in branches
        )

    @property
    def _branches(self) -> tuple[tuple[Blueprint, ...], ...]:  # type: ignore[override]  # its paths
        return self.branches

    @property
    def _n_inputs(self) -> int | None:  # type: ignore[override]  # as its layers say
        known = (n_inputs_of(branch) for branch in self.branches)
        return next((number for number in known if number is not None), None)

    def _shape_behind(self, shape: Shape) -> Shape:
        ends = [shape_after(branch, shape, "holds") for branch in self.branches]
        if len({end[1:] for end in ends}) > 1:
            raise ValueError(f"needs branches that differ in channels only, got shapes {ends}")
        return (sum(end[0] for end in ends), *ends[0][1:])

    def _build(self, shape: Shape, generator: np.random.Generator) -> list[Layer]:
        # One branch after the other, with what is there already beside them.
        n_inputs, n_done = math.prod(shape), 0
        layers: list[Layer] = []
        for branch in self.branches:
            # [done, inputs] -> [inputs, done, inputs] -> [outputs, done, inputs] -> [done', inputs]
            state = sparse.eye_array(n_done + n_inputs, format="csr")
            layers.append(fixed_layer(sparse.vstack([state[n_done:], state])))
            inner = build_all(branch, shape, generator)
            layers += [Beside(layer, n_done + n_inputs) for layer in inner]
            n_outputs = math.prod(shape_after(branch, shape, "holds"))
            order = np.arange(n_outputs + n_done + n_inputs)
            order = np.concatenate(
                [order[n_outputs : n_outputs + n_done], order[:n_outputs], order[-n_inputs:]]
            )
            layers.append(fixed_layer(sparse.eye_array(len(order), format="csr")[order]))
            n_done += n_outputs
        keep = sparse.eye_array(n_done + n_inputs, format="csr")[:n_done]
        return [*layers, fixed_layer(keep)]

    def _filled(self, layers: Iterator[Layer]) -> Self:
        return self._replace(branches=tuple(fill_all(own, layers) for own in self.branches))

    def _emptied(self) -> Self:
        emptied = (tuple(layer._emptied() for layer in branch) for branch in self.branches)
        return self._replace(branches=tuple(emptied))
