"""The generator: a piecewise-affine network, layer by layer."""

from skdgn._network import blueprints
from skdgn._network.activations import ACTIVATIONS, Activation, activations_per_layer
from skdgn._network.blueprints.blueprint import Blueprint
from skdgn._network.blueprints.sequences import (
    check_blueprints,
    check_filled,
    check_shapes,
    n_inputs_of,
)
from skdgn._network.dense import Dense
from skdgn._network.enclosures import Enclosures
from skdgn._network.layer import Layer
from skdgn._network.maps import AffineMaps, Codes
from skdgn._network.network import Architecture, Network
from skdgn._network.restriction import restrict_network
from skdgn._network.torch import import_torch, read_decoder, to_array, write_decoder

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "AffineMaps",
    "Architecture",
    "Blueprint",
    "Codes",
    "Dense",
    "Enclosures",
    "Layer",
    "Network",
    "activations_per_layer",
    "blueprints",
    "check_blueprints",
    "check_filled",
    "check_shapes",
    "import_torch",
    "n_inputs_of",
    "read_decoder",
    "restrict_network",
    "to_array",
    "write_decoder",
]
