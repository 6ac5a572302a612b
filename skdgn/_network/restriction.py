"""A network on a box of latent space: few of its units bend there, and the others are affine.

What bends is kept, with all that it depends on; what does not is composed.  With ``v`` the latent
variables and the outputs of the units kept so far, every value of the network is an affine function
of ``v``.  A layer of which some outputs bend on the box is replaced by

    v -> (the inputs of what bends, v) -> (what bends, v)

so that a deep, wide network becomes as many thin layers, and a dense last one.
"""

from __future__ import annotations

import numpy as np

from skdgn._network.dense import Dense
from skdgn._network.enclosures import Enclosures
from skdgn._network.layer import Layer
from skdgn._network.maps import AffineMaps
from skdgn._network.network import Network
from skdgn._network.sparse import Beside
from skdgn._runtime import Floats, Integers


def restrict_network(network: Network, center: Floats, half: float) -> Network:
    """Return a network that equals another one on a box with center (S,) and half-width."""
    enclosure = Enclosures.of_boxes(center[None], np.array([half]))
    maps = AffineMaps.identity(network.n_components)  # from v to the inputs of the next layer
    layers: list[Layer] = []
    for layer in network.layers:
        if layer.n_codes == 0:
            maps = layer.apply(maps, layer.codes(maps.offsets))
        else:
            codes, bent, needed, part = layer.restrict(enclosure)
            applied = layer.apply(maps, codes)
            if bent.size > 0:
                n_kept = maps.slopes.shape[2]
                coef = np.concatenate([maps.slopes[0, needed], np.eye(n_kept)])
                intercept = np.concatenate([maps.offsets[0, needed], np.zeros(n_kept)])
                layers += [Dense(coef, intercept), Beside(part, n_kept)]
                applied = _make_variables(applied, bent)
            maps = applied
        enclosure = layer.enclose(enclosure)
    return Network((*layers, Dense(maps.slopes[0], maps.offsets[0])))


def _make_variables(maps: AffineMaps, bent: Integers) -> AffineMaps:
    """Let the outputs that bend be variables themselves, the first ones."""
    _, n_outputs, n_kept = maps.slopes.shape
    slopes = np.zeros((1, n_outputs, len(bent) + n_kept))
    slopes[:, :, len(bent) :] = maps.slopes
    slopes[:, bent] = 0.0
    slopes[0, bent, np.arange(len(bent))] = 1.0
    offsets = maps.offsets.copy()
    offsets[:, bent] = 0.0
    return AffineMaps(slopes, offsets)
