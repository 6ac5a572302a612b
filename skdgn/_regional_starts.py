"""Where regional noise begins: several beginnings are tried briefly, the likeliest goes on.

Regional noise explains what a poor network does not, and may keep it from learning it.  So the
network can come first, with one noise for all regions.  But a network that has learned all it can
under one noise may be bound to a poor maximum: regional noise can begin at once, too.  Or the
network leads from cluster to cluster, whose covariances are there from the first
(`skdgn._chains`).  None is best on all tables; their objectives tell, after a few iterations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skdgn._chains import Chain
from skdgn._em import Problem, Progress, State, likeliest, run_em
from skdgn._model import Model
from skdgn._network import Network
from skdgn._regional_noise import AnyNoise

# At most so many iterations with one noise for all regions.
_SHARED_ITERATIONS = 50
# How many beginnings enter a round, and how many iterations each is given.
_ROUNDS = ((3, 15), (2, 25))


def begin_regional_noise(
    problem: Problem,
    network: Network,
    noise: AnyNoise,
    chain: Chain | None,
    m_step: str,
    max_iter: int,
    tol: float,
) -> Progress:
    """Go on from one noise for all regions, or from a chain, to regional noise.

    Parameters
    ----------
    problem : Problem
        With a prior of the noise.
    network : Network
    noise : Noise
        That of all regions.
    chain : Chain or None
        Another network, and the noise of its regions.
    m_step, max_iter, tol
        As for `run_em`; no run is longer than ``max_iter``.

    Returns
    -------
    progress : Progress
        The likeliest state; interrupted if the search was.
    """
    runs = [Progress(problem.evaluate(network, noise))]
    interrupted = False
    try:
        shared_problem = replace(problem, noise_prior=None)
        start = shared_problem.evaluate(network, noise)
        shared = run_em(shared_problem, start, m_step, min(_SHARED_ITERATIONS, max_iter), tol)
        runs.append(Progress(problem.evaluate(shared.state.network, shared.state.noise)))
        if shared.interrupted:
            raise KeyboardInterrupt
        if chain is not None:
            runs.append(Progress(_first_state(problem, chain)))
        for n_runs, iterations in _ROUNDS:
            runs = sorted(runs, key=lambda run: run.state.lower_bound, reverse=True)[:n_runs]
            for place, run in enumerate(runs):
                runs[place] = run_em(problem, run.state, m_step, min(iterations, max_iter), tol)
                if runs[place].interrupted:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        interrupted = True
    return Progress(likeliest(runs).state, interrupted=interrupted)


def _first_state(problem: Problem, chain: Chain) -> State:
    network = problem.prior.admit(chain.network)
    partition = Model.build(network, chain.clusters.noise.pooled, problem.most_regions).partition
    return problem.evaluate(network, chain.noise_at(np.asarray(partition.cells.interior_points())))
