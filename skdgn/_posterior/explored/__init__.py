"""Regions that are met by points, four latent dimensions and more: importance sampling."""

from skdgn._posterior.explored.ascents import ascend
from skdgn._posterior.explored.explorer import Explorer
from skdgn._posterior.explored.importance import sobol_points
from skdgn._posterior.explored.likelihoods import Likelihood, observed_likelihoods

__all__ = ["Explorer", "Likelihood", "ascend", "observed_likelihoods", "sobol_points"]
