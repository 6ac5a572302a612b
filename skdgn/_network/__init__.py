"""The generator: a piecewise-affine network."""

from skdgn._network.network import ACTIVATIONS, Activation, AffineMaps, Network, finite_array
from skdgn._network.torch import import_torch, read_decoder, to_array, write_decoder

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "AffineMaps",
    "Network",
    "finite_array",
    "import_torch",
    "read_decoder",
    "to_array",
    "write_decoder",
]
