"""The least noise: what ties warrant, the maximum above it, and the warning about it."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from sklearn import config_context

from skdgn import PiecewiseAffineDGN
from skdgn._noise import KINDS, Noise, warranted_variances


def bound_below(covariance, floors):
    (kind,) = (kind for kind in KINDS.values() if kind.shape(3) == np.shape(covariance))
    return kind.bound_below(covariance, floors)


def at_floor(covariance, floors):
    return Noise.from_covariance(covariance, 3).at_floor(floors)


def floor_of(values: list[float], n_rows: int | None = None) -> float:
    rows = np.array(values)[:, None]
    return float(warranted_variances(rows, n_rows or len(rows))[0])


def test_without_ties_there_is_no_floor():
    assert floor_of(list(np.random.default_rng(0).normal(size=100))) == 0.0
    assert floor_of([1.0, 1.0, 1.0]) == 0.0  # constant
    assert floor_of([1.0]) == 0.0
    assert floor_of([np.nan, np.nan]) == 0.0


def test_a_grid_warrants_the_variance_of_rounding():
    counts = np.random.default_rng(0).poisson(3.0, 500).astype(float)
    assert floor_of(list(counts)) == pytest.approx(1.0 / 12.0, rel=1e-12)
    # However few of them there are: how values are recorded does not depend on it.
    assert floor_of(list(counts), 100_000) == floor_of(list(counts))


def test_levels_warrant_no_more_than_a_twelfth_of_their_variance():
    # A gap of 7 standard deviations: its rounding error would exceed all there is.
    assert floor_of([0.0] * 98 + [1.0] * 2) == pytest.approx(0.02 * 0.98 / 12.0, rel=1e-12)


def test_ties_beside_values_on_no_grid_warrant_their_mean_gap_or_one_sample():
    others = np.random.default_rng(0).normal(size=200)
    values = np.concatenate([np.zeros(300), others])
    gap, ties = np.ptp(others) / 200.0, 1.0 - 200.0 / 499.0
    assert floor_of(list(values)) == pytest.approx(ties * gap**2 / 12.0, rel=1e-12)
    far = np.concatenate([np.zeros(98), [1e-9, 1.0]])  # a gap that only two values have
    assert floor_of(list(far)) == pytest.approx((1.0 - 2.0 / 99.0) * far.var() / 100.0, rel=1e-12)
    # Of a sample of 100 rows among a thousand.
    assert floor_of(list(far), 1000) == pytest.approx(floor_of(list(far)) / 10.0, rel=1e-12)


def test_floors_have_the_units_of_the_feature_and_ignore_missing_values():
    values = np.random.default_rng(0).poisson(3.0, 60).astype(float)
    rows = np.stack([values, 1e-150 * values, 1e150 * values - 1e150], axis=1)
    rows = np.concatenate([rows, np.full((40, 3), np.nan)])
    floors = warranted_variances(rows, 100)
    np.testing.assert_allclose(floors / [1.0, 1e-300, 1e300], floors[0], rtol=1e-9)
    # As many rows as there are with a value.
    assert floors[0] == pytest.approx(floor_of(list(values)), rel=1e-12)


def test_variances_are_raised_to_their_floors():
    floors = np.array([0.3, 2.0, 0.1])
    np.testing.assert_array_equal(bound_below(np.array([0.2, 3.0, 0.05]), floors), [0.3, 3.0, 0.1])
    assert bound_below(np.array(0.7), floors) == pytest.approx(0.8)  # their mean
    assert bound_below(np.array(0.9), floors) == 0.9


def test_a_full_covariance_is_the_likeliest_above_the_floors():
    rng = np.random.default_rng(4)
    floors = np.array([0.3, 2.0, 0.05])
    root = np.array([0.1, 1.0, 0.4])[:, None] * rng.normal(size=(3, 3))
    scatter = root @ root.T
    bounded = bound_below(scatter, floors)
    own = np.linalg.eigvalsh(scatter - np.diag(floors))
    assert own[0] < 0.0 < own[-1]  # else the test says nothing
    assert np.linalg.eigvalsh(bounded - np.diag(floors))[0] >= -1e-12

    def loss(matrix):
        return np.linalg.slogdet(matrix)[1] + np.trace(np.linalg.solve(matrix, scatter))

    def above(parameters):  # any matrix above the floors
        factor = parameters.reshape(3, 3)
        return np.diag(floors) + factor @ factor.T

    found = min(minimize(lambda p: loss(above(p)), rng.normal(size=9)).fun for _ in range(5))
    assert loss(bounded) <= found + 1e-12
    assert loss(bounded) == pytest.approx(found, abs=1e-6)
    np.testing.assert_array_equal(bound_below(scatter, np.full(3, 1e-9)), scatter)


def test_features_at_the_floor_are_told_for_every_type():
    floors = np.array([1e-6, 1e-3, 1e-3])
    np.testing.assert_array_equal(at_floor(np.array(1e-2), floors), [False] * 3)
    np.testing.assert_array_equal(at_floor(np.array(floors.mean()), floors), [True] * 3)
    np.testing.assert_array_equal(at_floor(2.0 * floors, floors), [False] * 3)
    variances = np.array([0.1, 1e-3, 0.2])
    np.testing.assert_array_equal(at_floor(variances, floors), [False, True, False])
    full = np.diag(variances) + 0.01 * np.outer([1.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(at_floor(full, floors), [False, True, False])
    full = bound_below(np.outer([1.0, 0.01, 1.0], [1.0, 0.01, 1.0]), floors)
    # The last two are known but for their floors, given the first.
    np.testing.assert_array_equal(at_floor(full, floors), [False, True, True])


def mostly_zero(n: int, seed: int) -> pd.DataFrame:
    """Make a table like the UCI's glass: one column in six is zero but for a few values."""
    rng = np.random.default_rng(seed)
    present = rng.random(n) < 0.18
    barium = np.where(present, np.round(rng.lognormal(-0.5, 1.0, n), 2), 0.0)
    rest = rng.normal(size=(n, 3)) + barium[:, None] * [0.5, -0.3, 0.0]
    return pd.DataFrame(np.column_stack([rest, barium]), columns=["Na", "Mg", "Al", "Ba"])


@pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning")
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_a_sample_beside_the_known_levels_is_not_impossible(covariance_type):
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(170, 2)), rng.integers(3, size=170)])
    model = PiecewiseAffineDGN(covariance_type=covariance_type, random_state=0).fit(rows)
    on_levels = model.score_samples([[0.0, 0.0, x] for x in (0.0, 2.0)])
    beside = model.score_samples([[0.0, 0.0, x] for x in (-0.4, 2.4)])
    # 0.4 off a level costs at most 0.4^2 / (2 * 0.67 / 12) = 1.43 nats, and a little for being at
    # the end of the levels. Without the floor it was 121,000.
    assert np.all(on_levels > beside)
    assert np.all(on_levels - beside < 1.6)
    assert bool((np.diff(model.lower_bounds_) >= 0.0).all())


def test_one_warning_names_the_features_at_their_floor():
    table = mostly_zero(170, 0)
    table["constant"] = 3.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PiecewiseAffineDGN(random_state=0).fit(table)
    messages = [str(warning.message) for warning in caught if warning.category is UserWarning]
    assert len(messages) == 1
    assert "The noise of feature Ba is as small as tied values allow" in messages[0]
    assert caught[0].filename == __file__


def test_linear_relations_between_features_without_ties_are_no_reason_to_warn():
    table = np.random.default_rng(0).normal(size=(50, 1)) * [1.0, 2.0, -0.5]
    model = PiecewiseAffineDGN(hidden_layer_sizes=(2,), random_state=0).fit(table)
    assert np.all(model.noise_covariance_ <= 1.01e-6 * table.var(axis=0))


def test_many_features_at_their_floor_are_counted():
    levels = np.repeat(np.arange(4.0), 20)[:, None] * np.ones(8)
    levels += np.random.default_rng(0).permutation(80)[:, None] * np.eye(8)[0] * 1e-3
    with pytest.warns(UserWarning, match=r"of features 1, 2, 3, 4, 5 and 2 more is"):
        PiecewiseAffineDGN(hidden_layer_sizes=(4,), random_state=1).fit(levels)


@pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning")
def test_repeated_rows_and_weights_have_the_same_floor():
    table = mostly_zero(60, 3).to_numpy()
    model = PiecewiseAffineDGN(hidden_layer_sizes=(4,), random_state=0, max_iter=50)
    repeated = model.fit(np.repeat(table, 3, axis=0)).noise_covariance_
    weighted = model.fit(table, sample_weight=np.full(60, 3.0)).noise_covariance_
    np.testing.assert_allclose(repeated, weighted, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning")
def test_the_floor_holds_in_batches_in_chunks_and_for_warm_starts():
    table = mostly_zero(300, 3).to_numpy()
    distinct = np.unique(table, axis=0)
    floors = np.maximum(warranted_variances(distinct, len(table)), 1e-6 * table.var(axis=0))
    model = PiecewiseAffineDGN(hidden_layer_sizes=(8,), random_state=0, tol=1e-2)
    with config_context(working_memory=0.01):
        in_batches = model.fit(table).noise_covariance_
    assert np.all(in_batches >= floors * (1.0 - 1e-9))
    assert in_batches[3] == pytest.approx(floors[3], rel=1e-6)
    for seed in range(3):
        model.partial_fit(mostly_zero(100, seed).to_numpy())
        assert np.all(model.noise_covariance_ >= floors * (1.0 - 1e-9))
    model.set_params(warm_start=True)
    model.noise_covariance_ = 1e-9 * model.noise_covariance_
    del model._model
    assert np.all(model.fit(table).noise_covariance_ >= floors * (1.0 - 1e-9))
