"""Expectation-maximization: from samples to parameters."""

from skdgn._fit.em import M_STEPS
from skdgn._fit.fitting import FitResult, Iteration, Parameters, Settings
from skdgn._fit.m_step import PRIORS
from skdgn._fit.marginals import fit_normal_scores, fit_power
from skdgn._fit.mixture_fit import MixtureSettings, fit_mixture
from skdgn._fit.network_fit import fit_network
from skdgn._fit.resampling import bootstrap_weights, subsample_weights
from skdgn._fit.running_statistics import Running
from skdgn._fit.sizes import CRITERIA, SizeSettings, fit_sizes
from skdgn._fit.stacking import stack_with_scales
from skdgn._fit.stepwise import StepResult, take_mixture_step, take_step

__all__ = [
    "CRITERIA",
    "M_STEPS",
    "PRIORS",
    "FitResult",
    "Iteration",
    "MixtureSettings",
    "Parameters",
    "Running",
    "Settings",
    "SizeSettings",
    "StepResult",
    "bootstrap_weights",
    "fit_mixture",
    "fit_network",
    "fit_normal_scores",
    "fit_power",
    "fit_sizes",
    "stack_with_scales",
    "subsample_weights",
    "take_mixture_step",
    "take_step",
]
