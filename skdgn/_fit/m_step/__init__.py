"""The M-step: weights and noise from statistics, and priors of both."""

from skdgn._fit.m_step.damping import FIRST_DAMPING, SMALLEST_DAMPING, Damping
from skdgn._fit.m_step.maximization import (
    GaussNewtonSystem,
    linearize,
    maximize_noise,
    maximize_output,
    scatter_residuals,
    step_network,
)
from skdgn._fit.m_step.noise_priors import NoisePrior
from skdgn._fit.m_step.penalization import PenalizedSystem
from skdgn._fit.m_step.weight_priors import PRIORS, WeightPrior

__all__ = [
    "FIRST_DAMPING",
    "PRIORS",
    "SMALLEST_DAMPING",
    "Damping",
    "GaussNewtonSystem",
    "NoisePrior",
    "PenalizedSystem",
    "WeightPrior",
    "linearize",
    "maximize_noise",
    "maximize_output",
    "scatter_residuals",
    "step_network",
]
