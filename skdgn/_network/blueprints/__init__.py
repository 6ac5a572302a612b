"""Blueprints: layers as users write them, with weights or without, before they have a place.

A blueprint is told the shape of its inputs and builds the layers that do the work.  Shapes are
``(units,)``, ``(channels, length)`` or ``(channels, height, width)``; values themselves are flat,
the last axis running fastest, as PyTorch's `Flatten` has it.  Public are those in `__all__`, as
`skdgn.layers`.
"""

from skdgn._network.blueprints.activations import (
    Abs,
    HardSigmoid,
    HardTanh,
    LeakyReLU,
    PiecewiseAffine,
    PReLU,
    ReLU,
    ReLU6,
    Softshrink,
)
from skdgn._network.blueprints.convolutions import (
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
)
from skdgn._network.blueprints.dense import Dense
from skdgn._network.blueprints.pooling import AvgPool, MaxOut, MaxPool, MaxUpsample, Upsample
from skdgn._network.blueprints.shapes import BatchNorm, Flatten, Reshape
from skdgn._network.blueprints.skips import Concatenate, Residual

__all__ = [
    "Abs",
    "AvgPool",
    "BatchNorm",
    "Concatenate",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Dense",
    "Flatten",
    "HardSigmoid",
    "HardTanh",
    "LeakyReLU",
    "MaxOut",
    "MaxPool",
    "MaxUpsample",
    "PReLU",
    "PiecewiseAffine",
    "ReLU",
    "ReLU6",
    "Reshape",
    "Residual",
    "Softshrink",
    "Upsample",
]
