"""Expectation-maximization: from samples to parameters."""

from skdgn._fit.bootstrap import bootstrap_weights
from skdgn._fit.em import STEPS
from skdgn._fit.mixture_fit import MixtureResult, MixtureSettings, Parameters, fit_mixture
from skdgn._fit.mixture_stepwise import take_mixture_step
from skdgn._fit.network_fit import FitResult, Iteration, Settings, fit_network
from skdgn._fit.running_statistics import Running
from skdgn._fit.stacking import stack
from skdgn._fit.stepwise import take_step
from skdgn._fit.weight_priors import PRIORS

__all__ = [
    "PRIORS",
    "STEPS",
    "FitResult",
    "Iteration",
    "MixtureResult",
    "MixtureSettings",
    "Parameters",
    "Running",
    "Settings",
    "bootstrap_weights",
    "fit_mixture",
    "fit_network",
    "stack",
    "take_mixture_step",
    "take_step",
]
