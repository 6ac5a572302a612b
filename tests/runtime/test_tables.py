"""Fits do not depend on the order of the columns."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context

from skdgn import PiecewiseAffineDGN
from skdgn._fit.scaling import Scaling
from skdgn._runtime.tables import OrderedColumns, draw_samples, order_columns
from skdgn._runtime.workers import Workers


def make_rows(n_samples: int = 120, missing: bool = False) -> np.ndarray:
    """A curve in five features; one is rounded, one tied to a few levels."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=n_samples)
    columns = [z**2, np.sin(2.0 * z), 100.0 * z, np.round(3.0 * np.abs(z)), z > 0.3]
    rows = np.column_stack(columns) + [0.1, 0.1, 5.0, 0.0, 0.0] * rng.normal(size=(n_samples, 5))
    if missing:
        rows[rng.random(rows.shape) < 0.1] = np.nan
    return rows


ORDERS = [np.arange(5)[::-1], np.array([2, 0, 4, 1, 3])]


# Tied values put the noise of a feature at its floor, which a warning says; a few iterations do.
@pytest.mark.filterwarnings("ignore:The noise of feature", "ignore:EM did not converge")
@pytest.mark.parametrize(
    "parameters",
    [
        {"covariance_type": "diag"},
        {"covariance_type": "full", "n_components": 2},
        {"covariance_type": "spherical", "init_params": "random"},
        {"covariance_type": "diag", "weight_prior": "uniform", "prior_scale": 50.0},
    ],
)
@pytest.mark.parametrize(("missing", "order"), [(False, ORDERS[0]), (True, ORDERS[1])])
def test_fits_do_not_depend_on_the_order_of_columns(
    order: np.ndarray, parameters: dict, missing: bool
) -> None:
    rows = make_rows(missing=missing)
    settings = {"hidden_layer_sizes": (4,), "tol": 1e-2, "max_iter": 6, "random_state": 3}
    settings |= parameters
    model = PiecewiseAffineDGN(**settings).fit(rows)
    other = PiecewiseAffineDGN(**settings).fit(rows[:, order])
    np.testing.assert_array_equal(other.lower_bounds_, model.lower_bounds_)
    np.testing.assert_array_equal(other.coefs_[0], model.coefs_[0])
    np.testing.assert_array_equal(other.coefs_[1], model.coefs_[1][order])
    np.testing.assert_array_equal(other.intercepts_[1], model.intercepts_[1][order])
    np.testing.assert_allclose(
        other.score_samples(rows[:, order]), model.score_samples(rows), rtol=1e-9
    )
    # What goes on from there does so in the same way: all that is kept has the columns' order.
    chunk = make_rows(60, missing=missing) * 1.05
    np.testing.assert_allclose(
        other.partial_fit(chunk[:, order]).lower_bound_,
        model.partial_fit(chunk).lower_bound_,
        rtol=1e-7,
    )
    for fitted, table in ((model, rows), (other, rows[:, order])):
        fitted.set_params(warm_start=True).fit(table)
    np.testing.assert_allclose(other.lower_bound_, model.lower_bound_, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:The noise of feature", "ignore:EM did not converge")
def test_tables_that_are_not_in_memory() -> None:
    rows, order = make_rows(4000), ORDERS[0]
    settings = {"hidden_layer_sizes": (4,), "tol": 1e-2, "max_iter": 10, "random_state": 0}
    with config_context(working_memory=0.5):
        model = PiecewiseAffineDGN(**settings).fit(rows)
        other = PiecewiseAffineDGN(**settings).fit(rows[:, order])
    assert other.lower_bound_ == pytest.approx(model.lower_bound_, abs=1e-4)


def test_columns_have_an_order_of_their_own() -> None:
    rows, weights = make_rows(), np.full(120, 2.0)
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    found = order_columns(scaled, weights, Workers())
    assert sorted(found) == list(range(5))
    for order in ORDERS:
        other = order_columns(scaled[:, order], weights, Workers())
        np.testing.assert_array_equal(order[other], found)
    # The same values in another order of the samples: told apart by what they go with.
    rng = np.random.default_rng(1)
    values = rng.normal(size=200)
    table = np.column_stack([values, rng.permutation(values), values**2 - 1.0])
    first = order_columns(table, np.ones(200), Workers())
    second = order_columns(table[:, [1, 0, 2]], np.ones(200), Workers())
    np.testing.assert_array_equal(np.array([1, 0, 2])[second], first)


def test_views_of_columns() -> None:
    rows = make_rows()
    view = OrderedColumns(rows, ORDERS[1])
    assert (view.shape, view.size, len(view)) == (rows.shape, rows.size, len(rows))
    np.testing.assert_array_equal(np.asarray(view[10:20]), rows[10:20][:, ORDERS[1]])


def with_missing(rows: np.ndarray) -> np.ndarray:
    holes = np.random.default_rng(1).random(rows.shape) < 0.1
    return np.where(holes, np.nan, rows)


def test_a_sample_depends_on_the_values_only():
    rng = np.random.default_rng(0)
    rows = with_missing(rng.normal(size=(3000, 3))).astype(np.float32)
    rows = np.concatenate([rows, np.repeat(rows[:10], 200, axis=0)])
    weights = rng.random(len(rows))
    weights[:100] = 0.0
    order = rng.permutation(len(rows))
    scaling = Scaling.of(rows, weights, "diag")
    found, found_weights = draw_samples(scaling.apply(rows), weights, 500, np.random.default_rng(1))
    again, again_weights = draw_samples(
        scaling.apply(rows[order]), weights[order], 500, np.random.default_rng(1)
    )
    np.testing.assert_array_equal(again, found)
    np.testing.assert_allclose(again_weights, found_weights, rtol=1e-12)
    assert len(np.unique(found, axis=0)) == 500
    # Those that are repeated have the weight of all copies, about 100; it is random who is chosen.
    assert np.count_nonzero(found_weights > 50.0) < 10
    others, _ = draw_samples(scaling.apply(rows), weights, 500, np.random.default_rng(2))
    assert len(np.unique(np.concatenate([found, others]), axis=0)) > 800
    everything, all_weights = draw_samples(scaling.apply(rows), weights, 5000, rng)
    distinct = np.unique(np.nan_to_num(rows[weights > 0], nan=99.0), axis=0)
    assert len(everything) == len(distinct)
    assert all_weights.sum() == pytest.approx(weights.sum())
