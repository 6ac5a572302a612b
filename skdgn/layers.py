"""Layers of generators: what ``hidden_layers`` and ``from_network(layers=...)`` take.

Affine operators and continuous piecewise-affine functions.  A layer with weights begins with them;
one without has them learned.  Shapes are ``(units,)``, ``(channels, length)`` or
``(channels, height, width)``.
"""

from skdgn._network.blueprints import *  # noqa: F403  # what it lists is what is public here
from skdgn._network.blueprints import __all__ as __all__
