"""Steps of EM: how far they go, and what becomes of those that are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from skdgn._fit.em.loop import climb
from skdgn._fit.em.mixture import MixtureProblem, MixtureState
from skdgn._fit.em.steps import Step
from skdgn._network import Network
from tests.fit.problems import make_network, make_noise, make_problem


def make_start(covariance_type: str = "diag") -> tuple[MixtureProblem, MixtureState]:
    problem = MixtureProblem.of_one(make_problem(covariance_type))
    return problem, problem.begin(np.ones(1), [(make_network(1), make_noise(covariance_type))])


def test_steps_grow_bolder_only_while_they_pay():
    problem, state = make_start()
    # The same first step, of which it depends on the tolerance whether it was worth its while.
    bold, careful = Step(problem, "joint", 0.0), Step(problem, "joint", 2.0)
    gain = bold(state).lower_bound - state.lower_bound
    assert 0.0 < gain == careful(state).lower_bound - state.lower_bound
    assert bold.dampings[0].value == 0.25 * careful.dampings[0].value


def test_damping_alone_does_not_end_a_fit():
    problem, state = make_start()
    for _ in range(300):  # all but the hidden layers is where it belongs
        (own,) = state.networks
        state = problem.evaluate(state.weights, [problem.propose(own, [2])(1e-7)])
    step = Step(problem, "joint", 1e-4)
    step(state)
    step.dampings[0].value = 1e6  # as after many refusals
    end = climb(step, state, 200, 1e-4)
    assert end.lower_bounds[0] - state.lower_bound < 1e-4
    assert end.state.lower_bound > state.lower_bound + 0.1


@pytest.mark.parametrize("covariance_type", ["spherical", "diag"])
def test_momentum_takes_fewer_steps_than_em(covariance_type, monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 1)) * [1.0, 0.5, 0.2] + rng.normal(size=(200, 3))
    own = replace(make_problem(covariance_type), samples=rows, sample_weights=np.ones(200))
    problem = MixtureProblem.of_one(own)
    network = Network.dense([rng.normal(size=(3, 1))], [np.zeros(3)])  # factor analysis
    start = problem.begin(np.ones(1), [(network, make_noise(covariance_type))])
    faster = climb(Step(problem, "joint", 1e-9), start, 1000, 1e-9)
    monkeypatch.setattr("skdgn._fit.em.steps._BEYOND", 1.0)
    plain = climb(Step(problem, "joint", 1e-9), start, 1000, 1e-9)
    assert faster.state.lower_bound == pytest.approx(plain.state.lower_bound, abs=1e-6)
    assert 3 * len(faster.lower_bounds) < 2 * len(plain.lower_bounds)


@pytest.mark.parametrize("covariance_type", ["spherical", "diag", "full"])
def test_going_through_a_proposal_so_many_times_as_far(covariance_type):
    problem, state = make_start(covariance_type)
    (own,) = state.networks
    proposal = problem.propose(own, range(own.network.output_layer + 1))
    before, after = (own.network, own.noise), proposal.solve(0.1)
    there, twice = proposal(0.1), proposal.beyond(before, after, 2.0)
    hidden = [own.network.coefs[0], there.network.coefs[0], twice.network.coefs[0]]
    np.testing.assert_allclose(hidden[2] - hidden[0], 2.0 * (hidden[1] - hidden[0]), atol=1e-12)
    # The noise is EM's.
    np.testing.assert_array_equal(twice.noise.covariance, there.noise.covariance)


def test_a_single_network_is_not_asked_whether_it_lowered_the_objective(monkeypatch):
    problem, state = make_start()
    evaluate, n_trials = MixtureProblem.evaluate, 0

    def refuse_twice(self, weights, models):
        nonlocal n_trials
        n_trials += 1
        trial = evaluate(self, weights, models)
        return replace(trial, log_likelihood=-np.inf) if n_trials <= 2 else trial

    monkeypatch.setattr(MixtureProblem, "evaluate", refuse_twice)
    monkeypatch.setattr(MixtureProblem, "gains", None)  # would take two more E-steps
    step = Step(problem, "joint", 0.0)
    assert step(state).lower_bound > state.lower_bound
    assert n_trials == 3


def test_speed_is_gathered_from_one_proposal_to_the_next_and_lost_where_networks_are_replaced():
    problem, state = make_start()
    step = Step(problem, "joint", 0.0)
    first = step(state)
    (before,) = step.last.values()
    second = step(first)
    (after,) = step.last.values()
    (start, _), (end, _) = before.networks[0], after.networks[0]
    reached = second.networks[0].network.coefs[0]
    np.testing.assert_allclose(
        reached - start.coefs[0], 2.0 * (end.coefs[0] - start.coefs[0]), atol=1e-12
    )
    replaced = Step(problem, "joint", np.inf, ways_out=[lambda trial: trial])
    replaced(replaced(state))
    assert not replaced.last
