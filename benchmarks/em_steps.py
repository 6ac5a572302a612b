"""E-steps to the same likelihood: joint, layer by layer, and the updates without a safeguard.

From the same random starts, each way is given the same number of E-steps. Printed are the mean
log-likelihoods they end at, how many E-steps "joint" and "layerwise" need to the lower of their
two ends, and how often the plain updates (the paper's, without looking at the likelihood)
decreased it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import threadpool_limits

from skdgn._em import STEPS, Problem, State, run_em
from skdgn._fitting import Scaling
from skdgn._initialization import starting_network
from skdgn._network import Activation, Network
from skdgn._noise import Noise
from skdgn._partition import TooManyRegionsError
from skdgn._priors import WeightPrior
from skdgn.datasets import make_noisy_circle, make_wave

N_STARTS = 5
N_E_STEPS = 200
# Closed-form updates need no damping, but units nobody uses would make them singular.
SMALLEST_DAMPING = 1e-7


class BudgetSpentError(Exception):
    """All E-steps are used up."""


@dataclass(frozen=True)
class CountingProblem(Problem):
    """Note the best likelihood so far at every E-step, refused ones included."""

    bounds: list[float] = field(default_factory=list)

    def evaluate(self, network: Network, noise: Noise) -> State:
        if len(self.bounds) >= N_E_STEPS:
            raise BudgetSpentError
        state = super().evaluate(network, noise)
        best = self.bounds[-1] if self.bounds else -np.inf
        self.bounds.append(max(best, state.lower_bound))
        return state


def safeguarded(problem: CountingProblem, start: State, m_step: str) -> float:
    """Run EM as the package does; return where it ends."""
    try:
        run_em(problem, start, m_step, N_E_STEPS, 0.0)
    except BudgetSpentError:
        pass
    return problem.bounds[-1]


def plain(problem: CountingProblem, start: State) -> tuple[float, int]:
    """Update layer after layer, whatever the likelihood; where it ends, and how often it fell."""
    state, decreases = start, 0
    layers = list(reversed(range(start.network.n_hidden_layers + 1)))
    try:
        for layer in itertools.cycle(layers):
            network = problem.propose(state, [layer])(SMALLEST_DAMPING)
            moved = problem.evaluate(network, problem.best_noise(state, network))
            decreases += moved.lower_bound < state.lower_bound - 1e-9
            state = moved
    except BudgetSpentError:
        pass
    except TooManyRegionsError:
        return -np.inf, decreases
    return state.lower_bound, decreases


def compare(rows: np.ndarray, hidden: tuple[int, ...], n_components: int, seed: int) -> list[float]:
    """One start: ends of joint, layerwise and plain, decreases of plain, E-steps of the first two."""
    scaling = Scaling.of(rows, np.ones(len(rows)), "diag")
    prior = WeightPrior(None, 1.0, scaling.deviations)

    def fresh() -> CountingProblem:
        scaled, weights = scaling.apply(rows), np.ones(len(rows))
        return CountingProblem(scaled, weights, "diag", 1e-6, prior, 20_000, None)

    activation = Activation.from_name("leaky_relu", 0.1)
    found = starting_network(
        fresh().rows, n_components, hidden, activation, "random", np.random.default_rng(seed)
    )
    noise = Noise.from_covariance(np.maximum(found.residual_variances, 1e-4), rows.shape[1])
    start = fresh().evaluate(found.network, noise)
    ends, curves = [], []
    for m_step in STEPS:
        problem = fresh()
        ends.append(safeguarded(problem, start, m_step) - scaling.log_volume)
        curves.append(np.array(problem.bounds) - scaling.log_volume)
    end, decreases = plain(fresh(), start)
    target = min(ends) - 1e-6
    steps = [float(np.argmax(curve >= target)) + 1.0 for curve in curves]
    return [*ends, end - scaling.log_volume, decreases, *steps]


def main() -> None:
    """Run everything."""
    plane = np.random.default_rng(0).normal(size=(300, 2))
    sheet = np.column_stack([plane, np.cos(1.5 * plane.sum(axis=1))])
    sheet += 0.1 * np.random.default_rng(1).normal(size=sheet.shape)
    cases = [
        ("circle, hidden (16,)", make_noisy_circle(500, random_state=0), (16,), 1),
        ("circle, hidden (8, 8)", make_noisy_circle(500, random_state=0), (8, 8), 1),
        ("wave, hidden (16,)", make_wave(500, random_state=0), (16,), 1),
        ("sheet, hidden (8,), S = 2", sheet, (8,), 2),
    ]
    assert list(STEPS) == ["joint", "layerwise"]
    print(f"{N_E_STEPS} E-steps from {N_STARTS} random starts; mean log-likelihood at the end")
    ratios, joint_lower, layerwise_lower = [], 0, 0
    for name, rows, hidden, n_components in cases:
        print(f"{name}\n  joint  layerwise   plain  (fell)   E-steps: joint  layerwise")
        for seed in range(N_STARTS):
            joint, layerwise, end, fell, fast, slow = compare(rows, hidden, n_components, seed)
            print(
                f"{joint:7.3f}    {layerwise:7.3f} {end:7.3f}  {fell:6.0f}           "
                f"{fast:5.0f}      {slow:5.0f}"
            )
            ratios.append(slow / fast)
            joint_lower += joint < end - 1e-3
            layerwise_lower += layerwise < end - 1e-3
    print(
        f"E-steps of layerwise over joint: median {np.median(ratios):.1f}, "
        f"from {min(ratios):.1f} to {max(ratios):.1f}"
    )
    print(f"ends more than 0.001 below the plain updates, of {len(ratios)} starts: ", end="")
    print(f"joint {joint_lower}, layerwise {layerwise_lower}")


if __name__ == "__main__":
    with threadpool_limits(limits=1, user_api="blas"):
        main()
