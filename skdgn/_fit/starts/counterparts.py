"""Dense networks of leaky rectifiers, and networks of other layers that compute the same.

Starts of dense networks are found well (`skdgn._fit.starts.least_squares`): networks whose layers
can do what leaky rectifiers of any slope do begin with the best of these.
"""

from __future__ import annotations

import numpy as np

from skdgn._network import Activation, Architecture, Blueprint, Network, blueprints
from skdgn._runtime import Floats

# Slopes below zero that are tried: nearly a rectifier, and the absolute value.
_SLOPES = (0.1, -1.0)
# Pieces beyond the second of a maximum win around its kink, at this share of the unit's spread.
_SHARE = 0.05


def dense_counterparts(architecture: Architecture, n_features: int) -> list[Architecture]:
    """Return dense hidden layers that the layers of an architecture can imitate."""
    layers = architecture.check_features(n_features)
    dense, functions = layers[::2], layers[1::2]
    if (
        not functions
        or len(dense) != len(functions) + 1
        or not all(isinstance(own, blueprints.Dense) and own.coef is None for own in dense)
        or not all(_imitates(own) for own in functions)
    ):
        return []
    widths: list[int] = []
    shape: tuple[int, ...] = (architecture.n_components,)
    for layer in layers[:-1]:
        shape = layer.output_shape(shape)
        if layer in functions:
            widths.append(shape[0])
    rectifiers = (Activation.from_name("leaky_relu", slope) for slope in _SLOPES)
    return [
        Architecture.alike(architecture.n_components, tuple(widths), rectifier)
        for rectifier in rectifiers
    ]


def _imitates(layer: Blueprint) -> bool:
    is_free = isinstance(layer, blueprints.PReLU) and layer.slopes is None
    return is_free or isinstance(layer, blueprints.MaxOut)


def imitate(network: Network, architecture: Architecture, latent: Floats) -> Network:
    """Return a network of this architecture that computes what its counterpart does, or nearly.

    Maxima of more than two pieces round the kinks off; ``latent`` (n, s) tells how much.
    """
    layers: list[Blueprint] = []
    coefs, intercepts, values = list(network.coefs), list(network.intercepts), latent
    functions = architecture.check_features(network.n_features)[1::2]
    rectifier = network.activations[0]
    slope = rectifier.negative_slope
    for coef, intercept, function in zip(coefs, intercepts, functions, strict=False):
        values = values @ coef.T + intercept
        if isinstance(function, blueprints.MaxOut):
            # From one slope to the other, and a little above the kink in between.
            slopes = np.linspace(1.0, slope, function.n_pieces)
            lifts = _SHARE * values.std(axis=0)[:, None] * ((slopes < 1.0) & (slopes > slope))
            coef = (slopes[None, :, None] * coef[:, None, :]).reshape(-1, coef.shape[1])
            intercept = (slopes * intercept[:, None] + lifts).ravel()
        else:
            assert isinstance(function, blueprints.PReLU)
            n_slopes = 1 if function.shared == "layer" else len(intercept)
            function = blueprints.PReLU(function.shared, np.full(n_slopes, slope))
        layers += [blueprints.Dense(len(intercept), coef, intercept), function]
        values = rectifier(values)
    layers.append(blueprints.Dense(network.n_features, coefs[-1], intercepts[-1]))
    built = Network.from_blueprints(layers, architecture.n_components)
    emptied = tuple(architecture.check_features(network.n_features))
    return Network(built.layers, emptied)
