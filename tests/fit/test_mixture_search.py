"""Ways out where EM for a mixture stands still."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._fit.em.loop import Problem, climb
from skdgn._fit.em.mixture import MixtureProblem, MixtureState
from skdgn._fit.em.steps import Step
from skdgn._fit.m_step.weight_priors import WeightPrior
from skdgn._fit.scaling import Scaling
from skdgn._fit.search.mixture_search import Search
from skdgn._fit.starts.initialization import starting_network
from skdgn._network import Activation, Architecture
from skdgn._noise import KINDS
from skdgn._runtime import Workers
from skdgn.datasets import make_wave
from tests.mixtures import make_clusters, short_mixture

pytestmark = [
    pytest.mark.filterwarnings("ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning"),  # rounded tables
]


def test_a_network_that_nobody_needs():
    X = make_clusters(60, n_clusters=2)
    labels = np.arange(len(X)) % 2  # none of the third
    for concentration in (1.0, 2.0):
        mixture = short_mixture(
            init_params=labels, weight_concentration_prior=concentration, max_iter=20
        ).fit(X)
        assert np.all(np.isfinite(mixture.score_samples(X)))
        assert np.all(np.diff(mixture.lower_bounds_) >= 0.0)
    empty = short_mixture(init_params=labels, weight_concentration_prior=1.0).fit(X)
    assert empty.weights_[2] == 0.0
    assert np.all(empty.predict_proba(X)[:, 2] == 0.0)


def test_networks_do_not_shrink_onto_tied_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 0] = np.where(rng.random(200) < 0.82, 0.0, rng.exponential(size=200))
    X[:, 1] = np.round(X[:, 1])
    held_out = rng.normal(size=(100, 3))
    with pytest.warns(UserWarning, match="The noise of feature"):
        mixture = DGNMixture(n_networks=4, random_state=0).fit(X[:150])
    gaussians = GaussianMixture(4, random_state=0).fit(X[:150])
    # Exponential values: some surprise is due, but no more than to a Gaussian mixture.
    assert mixture.score(X[150:]) > gaussians.score(X[150:]) - 5.0
    assert mixture.score(held_out) > -1e4


def test_a_split_takes_the_place_of_a_merge():
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    members = np.repeat(np.arange(3), 60)
    X = centers[members] + rng.normal(size=(180, 2))
    # Two networks share the first cluster, one has the others.
    labels = np.where(members == 0, np.arange(180) % 2, 2)
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full")
    stuck = short_mixture(estimator=linear, init_params=labels, max_iter=100).fit(X)
    revived = clone(stuck).set_params(refine=True).fit(X)
    assert revived.lower_bound_ > stuck.lower_bound_ + 0.2
    assert len(set(zip(members, revived.predict(X), strict=True))) < 10
    np.testing.assert_allclose(np.sort(revived.weights_), 1.0 / 3.0, atol=0.05)
    assert np.all(np.diff(revived.lower_bounds_) >= 0.0)


TOL = 1e-4


def stand_still(X: np.ndarray, n_units: int, seed: int) -> tuple[Search, MixtureState]:
    """Run EM from a random network of so many units until it stands still."""
    weights = np.ones(len(X))
    scaling = Scaling.of(X, weights, "diag")
    table, floors = np.asarray(scaling.apply(X)), np.full(X.shape[1], 1e-6)
    prior = WeightPrior(None, 1.0, scaling.deviations)
    own = Problem(table, weights, "diag", 0, floors, prior, 1000, Workers())
    problem, rng = MixtureProblem.of_one(own), np.random.default_rng(seed)
    architecture = Architecture.alike(1, (n_units,), Activation.from_name("leaky_relu", 0.1))
    found = starting_network(table, architecture, "random", rng)
    noise = KINDS["diag"].from_variances(np.maximum(found.residual_variances, 1e-4))
    start = problem.begin(np.ones(1), [(found.network, noise)])
    state = climb(Step(problem, "joint", TOL), start, 500, TOL).state
    return Search(problem, architecture, "joint", TOL, rng), state


def test_units_that_em_cannot_move_are_moved_where_they_are_missed():
    search, state = stand_still(make_wave(300, random_state=0), 16, seed=5)
    moved = climb(search.step_of_one(is_restarted=False), state, 100, TOL)
    alone = climb(Step(search.problem, "joint", TOL), state, 100, TOL)
    assert moved.converged
    assert moved.state.lower_bound > alone.state.lower_bound + 0.02
    assert np.all(np.diff(moved.lower_bounds) >= 0.0)
    assert moved.state.models[0].network.hidden_layer_sizes == (16,)


def test_a_curve_that_runs_along_the_samples_twice_is_restarted():
    search, state = stand_still(make_wave(300, random_state=0), 16, seed=720)
    restarted = climb(search.step_of_one(is_restarted=True), state, 100, TOL)
    moved = climb(search.step_of_one(is_restarted=False), state, 100, TOL)
    assert restarted.state.lower_bound > moved.state.lower_bound + 0.05
    assert np.all(np.diff(restarted.lower_bounds) >= 0.0)


def test_units_are_not_moved_for_little():
    search, state = stand_still(make_wave(300, random_state=0), 16, seed=5)
    assert replace(search, tol=1.0).move_units(state) is None
    search, state = stand_still(make_wave(100, random_state=0), 1, seed=0)
    assert search.move_units(state) is None  # a single unit has nowhere to go
