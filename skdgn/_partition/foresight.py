"""How many regions a network has, foretold from a sample of points, before any are listed."""

from __future__ import annotations

from collections import Counter

import numpy as np

from skdgn._network import Network
from skdgn._partition.enumeration import TooManyRegionsError

# Points of a first look, and of a second one if that finds many regions.
_FIRST_POINTS = 2_000
_MORE_POINTS = 20_000
_POINTS_AT_A_TIME = 500
# A first look counts if it finds this share of what is allowed; the second one must find more than
# is allowed by this factor: it is a lower bound, but for a few percent.
_SUSPICIOUS = 0.25
_BEYOND_DOUBT = 1.1


def refuse_hopeless(network: Network, most_regions: int) -> None:
    """Raise TooManyRegionsError if a network has far more regions than it is allowed.

    A line is cut so quickly that nothing is gained by looking first.
    """
    if network.n_components == 1:
        return
    if estimate_regions(network, _FIRST_POINTS) < _SUSPICIOUS * most_regions:
        return
    estimate = estimate_regions(network, _MORE_POINTS)
    if estimate > _BEYOND_DOUBT * most_regions:
        raise TooManyRegionsError(most_regions, network.architecture, estimate)


def estimate_regions(network: Network, n_points: int) -> float:
    """Estimate the number of regions from the patterns of points drawn about the prior.

    By those that were met once and those that were met twice (Chao, 1984: "Nonparametric estimation
    of the number of classes in a population"): a lower bound, on average.
    """
    generator, met = np.random.default_rng(0), Counter[bytes]()
    with_codes = [place for place, layer in enumerate(network.layers) if layer.n_codes]
    layers = network.layers[: with_codes[-1] + 1] if with_codes else ()
    for begin in range(0, n_points, _POINTS_AT_A_TIME):
        n_part = min(_POINTS_AT_A_TIME, n_points - begin)
        values = generator.standard_normal((n_part, network.n_components))
        # Regions are anywhere; most of them are not far from where the prior is.
        values *= 2.0 ** generator.uniform(-1.0, 3.0, (n_part, 1))
        codes = [np.empty((n_part, 0), dtype=np.uint8)]
        for layer in layers:
            codes.append(layer.codes(values))
            values = layer.forward(values)
        met.update(pattern.tobytes() for pattern in np.concatenate(codes, axis=1))
    times = Counter(met.values())
    return len(met) + times[1] * (times[1] - 1) / (2.0 * (times[2] + 1))
