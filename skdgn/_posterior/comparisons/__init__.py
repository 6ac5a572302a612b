"""Gaussians beside the posterior: the ELBO, divergences, the nearest one."""

from skdgn._posterior.comparisons.comparison import Comparison
from skdgn._posterior.comparisons.gaussians import check_gaussians
from skdgn._posterior.comparisons.sampled_comparison import SampledComparison

__all__ = ["Comparison", "SampledComparison", "check_gaussians"]
