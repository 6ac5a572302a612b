"""Layers of generators, for ``hidden_layers`` and ``from_network(layers=...)``.

Layers are affine operators and continuous piecewise-affine functions.  If a layer has weights, a
fit starts from them; otherwise they are learned from scratch.  Shapes are ``(units,)``,
``(channels, length)`` or ``(channels, height, width)``.
"""

from skdgn._network.blueprints import *  # noqa: F403  # what it lists is what is public here
from skdgn._network.blueprints import __all__ as __all__
