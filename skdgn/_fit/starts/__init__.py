"""Networks to begin with."""

from skdgn._fit.starts.completion import complete_samples
from skdgn._fit.starts.growth import LatentPoints, add_units, halve_latent_space, remove_units
from skdgn._fit.starts.initialization import Start, starting_methods, starting_network
from skdgn._fit.starts.mixture_starts import (
    Gaussians,
    bend_network,
    find_responsibilities,
    make_networks,
)
from skdgn._fit.starts.tournament import hold_tournament

__all__ = [
    "Gaussians",
    "LatentPoints",
    "Start",
    "add_units",
    "bend_network",
    "complete_samples",
    "find_responsibilities",
    "halve_latent_space",
    "hold_tournament",
    "make_networks",
    "remove_units",
    "starting_methods",
    "starting_network",
]
