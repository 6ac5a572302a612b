"""E-steps to the same likelihood: joint, layer by layer, and the updates without a safeguard.

From the same random starts, each way is given the same number of E-steps, with a tolerance so small
that none stops before. Printed are the mean log-likelihoods they end at, how many E-steps "joint"
and "layerwise" need to the lower of their two ends, how often the plain updates (the paper's,
without looking at the likelihood) decreased it, and where "joint" ends with the estimator's default
tolerance, after how many E-steps: what is left then is little but the noise of the samples.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import threadpool_limits

from skdgn._fit.em.loop import Problem, climb
from skdgn._fit.em.mixture import MixtureProblem, MixtureState
from skdgn._fit.em.steps import M_STEPS
from skdgn._fit.m_step.noise_priors import NoisePrior
from skdgn._fit.m_step.weight_priors import WeightPrior
from skdgn._fit.scaling import Scaling
from skdgn._fit.search.mixture_search import Search
from skdgn._fit.starts.initialization import starting_network
from skdgn._network import Activation, Architecture
from skdgn._noise import KINDS
from skdgn._partition import TooManyRegionsError
from skdgn._posterior import Model
from skdgn._runtime import Workers
from skdgn.datasets import make_noisy_circle, make_wave

N_STARTS = 20
N_E_STEPS = 400
TOL = 1e-6
DEFAULT_TOL = 1e-4
# Closed-form updates need no damping, but units nobody uses would make them singular.
SMALLEST_DAMPING = 1e-7


class BudgetSpentError(Exception):
    """All E-steps are used up."""


@dataclass(frozen=True)
class CountingProblem(MixtureProblem):
    """Note the best likelihood so far at every E-step, refused ones included."""

    bounds: list[float] = field(default_factory=list)

    def evaluate(self, weights: np.ndarray, models: Sequence[Model]) -> MixtureState:
        if len(self.bounds) >= N_E_STEPS:
            raise BudgetSpentError
        state = super().evaluate(weights, models)
        best = self.bounds[-1] if self.bounds else -np.inf
        self.bounds.append(max(best, state.lower_bound))
        return state


def safeguarded(
    problem: CountingProblem, start: MixtureState, m_step: str, tol: float = TOL
) -> float:
    """Run EM as the package does; return where it ends."""
    architecture = start.models[0].network.architecture
    search = Search(problem, architecture, m_step, tol, np.random.default_rng(0))
    with contextlib.suppress(BudgetSpentError):
        climb(search.step_of_one(is_restarted=True), start, N_E_STEPS, tol)
    return problem.bounds[-1]


def plain(problem: CountingProblem, start: MixtureState) -> tuple[float, int]:
    """Update layer after layer, whatever the likelihood; where it ends, and how often it fell."""
    state, decreases = start, 0
    layers = list(reversed(range(start.models[0].network.output_layer + 1)))
    try:
        for layer in itertools.cycle(layers):
            own = state.networks[0]
            network = problem.network.propose(own, [layer])(SMALLEST_DAMPING)
            moved = problem.begin(
                state.weights, [(network, problem.network.best_noise(own, network))]
            )
            decreases += moved.lower_bound < state.lower_bound - 1e-9
            state = moved
    except BudgetSpentError:
        pass
    except TooManyRegionsError:
        return -np.inf, decreases
    return state.lower_bound, decreases


def compare(rows: np.ndarray, hidden: tuple[int, ...], n_components: int, seed: int) -> list[float]:
    """Return where joint, layerwise and plain end, falls of plain, E-steps of the first two.

    Then where joint ends with the default tolerance, and its E-steps.
    """
    weights = np.ones(len(rows))
    scaling = Scaling.of(rows, weights, "diag")
    volume = scaling.log_volume(rows, weights)
    prior = WeightPrior(None, 1.0, scaling.deviations)

    floors = np.full(rows.shape[1], 1e-6)
    table = np.asarray(scaling.apply(rows))
    own = Problem(table, weights, "diag", 0, floors, prior, 20_000, Workers())

    def fresh() -> CountingProblem:
        return CountingProblem(own, 1.0, NoisePrior.none(floors))

    activation = Activation.from_name("leaky_relu", 0.1)
    found = starting_network(
        table,
        Architecture.alike(n_components, hidden, activation),
        "random",
        np.random.default_rng(seed),
    )
    noise = KINDS["diag"].from_variances(np.maximum(found.residual_variances, 1e-4))
    start = fresh().begin(np.ones(1), [(found.network, noise)])
    ends, curves = [], []
    for m_step in M_STEPS:
        problem = fresh()
        ends.append(safeguarded(problem, start, m_step) - volume)
        curves.append(np.array(problem.bounds) - volume)
    end, decreases = plain(fresh(), start)
    target = min(ends) - 1e-6
    steps = [float(np.argmax(curve >= target)) + 1.0 for curve in curves]
    short = fresh()
    stopped = safeguarded(short, start, "joint", DEFAULT_TOL) - volume
    return [*ends, end - volume, decreases, *steps, stopped, len(short.bounds)]


def main() -> None:
    """Run everything, or the cases that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=[""], help="beginnings of their names")
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + N_STARTS)
    plane = np.random.default_rng(0).normal(size=(300, 2))
    sheet = np.column_stack([plane, np.cos(1.5 * plane.sum(axis=1))])
    sheet += 0.1 * np.random.default_rng(1).normal(size=sheet.shape)
    cases = [
        ("circle, hidden (16,)", make_noisy_circle(300, random_state=0), (16,), 1),
        ("circle, hidden (8, 8)", make_noisy_circle(300, random_state=0), (8, 8), 1),
        ("wave, hidden (16,)", make_wave(300, random_state=0), (16,), 1),
        ("sheet, hidden (8,), S = 2", sheet, (8,), 2),
    ]
    assert M_STEPS == ("joint", "layerwise")
    print(f"{N_E_STEPS} E-steps from {N_STARTS} random starts; mean log-likelihood at the end")
    ratios, joint_lower, layerwise_lower = [], 0, 0
    for name, rows, hidden, n_components in cases:
        if not name.startswith(tuple(options.cases)):
            continue
        print(f"{name}\n  joint  layerwise   plain  (fell)   E-steps: joint  layerwise   ", end="")
        print(f"tol={DEFAULT_TOL:g}: joint  E-steps")
        table = np.array([compare(rows, hidden, n_components, seed) for seed in seeds])
        for joint, layerwise, end, fell, fast, slow, stopped, few in table:
            print(
                f"{joint:7.3f}    {layerwise:7.3f} {end:7.3f}  {fell:6.0f}           "
                f"{fast:5.0f}      {slow:5.0f}              {stopped:7.3f}    {few:5.0f}"
            )
        joint, layerwise, end = np.median(table[:, :3], axis=0)
        stopped, few = np.median(table[:, 6:], axis=0)
        print(f"{joint:7.3f}    {layerwise:7.3f} {end:7.3f}  in the median; ", end="")
        print(f"tol={DEFAULT_TOL:g}: {stopped:.3f} after {few:.0f}", flush=True)
        ratios.extend(table[:, 5] / table[:, 4])
        lower = int(np.count_nonzero(table[:, 0] < table[:, 2] - 1e-3))
        print(f"joint more than 0.001 below the plain updates: {lower} of {len(table)}")
        joint_lower += lower
        layerwise_lower += int(np.count_nonzero(table[:, 1] < table[:, 2] - 1e-3))
    print(
        f"E-steps of layerwise over joint: median {np.median(ratios):.1f}, "
        f"from {min(ratios):.1f} to {max(ratios):.1f}"
    )
    print(f"ends more than 0.001 below the plain updates, of {len(ratios)} starts: ", end="")
    print(f"joint {joint_lower}, layerwise {layerwise_lower}")


if __name__ == "__main__":
    with threadpool_limits(limits=1, user_api="blas"):
        main()
