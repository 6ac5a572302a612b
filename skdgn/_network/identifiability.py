"""How many parameters of a network its generator tells apart.

Dense layers with activations whose kink is at zero have a formula.  For others, it is the rank of
the derivatives of the regions' maps by all parameters, less the directions in which latent space is
merely rotated.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from skdgn._network.maps import Codes
from skdgn._runtime import Floats

if TYPE_CHECKING:
    from skdgn._network.network import Network

# Singular values below this share of the largest count as zero.
_SMALLEST_SHARE = 1e-9
# Regions whose maps are looked at, and equations for every parameter that they should make.
_MOST_REGIONS = 400
_EQUATIONS = 2


def count_by_formula(network: Network) -> int:
    """Count the weights of dense layers, less those that rescaling and rotating leave open."""
    n_weights = sum(layer.n_parameters for layer in network.layers)
    # Rotations of the dimensions that the first layer does not look at leave it as it is.
    n_unseen = max(0, network.n_components - network.layers[0].n_outputs)
    n_rotations = math.comb(network.n_components, 2) - math.comb(n_unseen, 2)
    return n_weights - sum(network.hidden_layer_sizes) - n_rotations


def count_by_rank(network: Network, patterns: Codes) -> int:
    """Count the directions in which parameters move the maps of regions with these patterns."""
    generator = np.random.default_rng(0)
    if len(patterns) > _MOST_REGIONS:
        chosen = generator.choice(len(patterns), _MOST_REGIONS, replace=False)
        patterns = patterns[np.sort(chosen)]
    derivatives, rotations = _derivatives(network, patterns, generator)
    both = np.concatenate([derivatives, rotations])
    n_open = _rank(derivatives) + _rank(rotations) - _rank(both)
    return _rank(derivatives) - n_open


def _derivatives(
    network: Network, patterns: Codes, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """How parameters (P, k), and rotations of latent space, move the regions' maps.

    Of the features, random combinations: as many as are needed to tell parameters apart.
    """
    n_regions, n_parameters = len(patterns), sum(layer.n_parameters for layer in network.layers)
    per_feature = n_regions * (network.n_components + 1)
    n_combinations = min(network.n_features, 4 + _EQUATIONS * n_parameters // per_feature)
    behind = generator.standard_normal((n_combinations, network.n_features))
    maps, codes = network.maps(patterns), network.split_patterns(patterns)
    output = behind @ maps[-1].homogeneous(n_regions)[:, :-1]
    parts: list[Floats] = []
    for place in reversed(range(len(network.layers))):
        layer = network.layers[place]
        upstream = maps[place].homogeneous(n_regions)
        moved = [
            (behind @ layer.push(unit, upstream, codes[place])).ravel()
            for unit in np.eye(layer.n_parameters)
        ]
        parts.append(np.array(moved).reshape(layer.n_parameters, n_combinations * per_feature))
        behind = layer.transpose(behind, codes[place])
    turned = [np.zeros((0, parts[0].shape[1]))]
    for first, second in itertools.combinations(range(network.n_components), 2):
        rotation = np.zeros_like(output)
        rotation[:, :, first], rotation[:, :, second] = output[:, :, second], -output[:, :, first]
        turned.append(rotation.reshape(1, -1))
    return np.concatenate(parts), np.concatenate(turned)


def _rank(rows: Floats) -> int:
    """Rank of rows, each measured by its own size."""
    sizes = np.linalg.norm(rows, axis=1)
    rows = rows[sizes > 0] / sizes[sizes > 0, None]
    if len(rows) == 0:
        return 0
    values = np.linalg.svd(rows, compute_uv=False)
    return int(np.sum(values > _SMALLEST_SHARE * values[0]))
