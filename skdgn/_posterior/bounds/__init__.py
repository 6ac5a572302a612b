"""Bounds of log densities, by boxes of latent space that are halved."""

from skdgn._posterior.bounds.box_exploration import BoxExplorer
from skdgn._posterior.bounds.density_bounds import bound_log_densities

__all__ = ["BoxExplorer", "bound_log_densities"]
