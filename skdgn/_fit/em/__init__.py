"""EM: the problem, the loop, and the steps that are accepted."""

from skdgn._fit.em.loop import Problem, Progress, climb
from skdgn._fit.em.mixture import (
    MixtureProblem,
    MixtureState,
    NetworkVisits,
    Parts,
    Proposal,
    log_of,
)
from skdgn._fit.em.steps import M_STEPS, Step, WayOut

__all__ = [
    "M_STEPS",
    "MixtureProblem",
    "MixtureState",
    "NetworkVisits",
    "Parts",
    "Problem",
    "Progress",
    "Proposal",
    "Step",
    "WayOut",
    "climb",
    "log_of",
]
