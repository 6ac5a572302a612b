"""Batches: the same results whatever the memory, and no more memory than allowed."""

from __future__ import annotations

import tracemalloc
import warnings

import joblib
import numpy as np
import pytest
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from skdgn._fit.scaling import Scaling
from skdgn._fit.statistics import expect
from skdgn._runtime.tables import fits_into
from skdgn._runtime.workers import MOST_SAMPLES, Workers
from tests.networks import random_network

MEBIBYTE = 2.0**20


@pytest.fixture(scope="module")
def model() -> PiecewiseAffineDGN:
    network = random_network(1, (8,), n_features=10, activation="leaky_relu", seed=0)
    return PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, np.full(10, 0.1), activation="leaky_relu"
    )


def with_missing(rows: np.ndarray) -> np.ndarray:
    holes = np.random.default_rng(1).random(rows.shape) < 0.1
    return np.where(holes, np.nan, rows)


# --- batches


def test_batches_shrink_with_the_memory_allowed():
    assert Workers().batch_size(1.0) == MOST_SAMPLES
    assert Workers(memory=1000.0).batch_size(10.0) == 100
    assert Workers(memory=1.0).batch_size(10.0) == 1


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_batches_are_mapped_in_order_and_added_up(n_jobs):
    # Ten rows a batch: more of them than are handed out at a time, more than partial sums.
    workers = Workers(n_jobs, memory=10.0)
    rows, weights = np.arange(1234.0), np.ones(1234)
    squares = workers.fill(
        np.empty(1234), lambda batch, ones: batch**2 * ones, 1.0 - 128.0 / 10.0, rows, weights
    )
    np.testing.assert_array_equal(squares, rows**2)
    sizes = [len(values) for _, values in workers.map(lambda batch: batch, 1.0, rows)]
    assert sizes == [10] * 123 + [4]
    assert workers.sum(lambda batch: batch.sum(), 1.0, rows) == rows.sum()


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_answers_do_not_depend_on_memory_or_workers(model, backend):
    rows = with_missing(model.sample(300, random_state=0)[0])
    means, covariances = model.transform(rows), np.full((300, 1, 1), 0.1)

    def answer() -> list[np.ndarray]:
        return [
            model.score_samples(rows),
            model.transform(rows),
            model.predict_proba(rows),
            model.predict(rows),
            model.impute(rows),
            model.impute(rows, method="sample", n_draws=2, random_state=0),
            model.conditional_score_samples(rows, given=[0, 3]),
            model.elbo(rows, means, covariances),
            *model.variational_gap(rows[:40], means[:40], covariances[:40]),
        ]

    expected = answer()
    with joblib.parallel_config(backend, n_jobs=2), config_context(working_memory=0.1):
        assert model._workers().batch_size(model._model.visitor.sample_bytes) < 100
        found = answer()
    for here, there in zip(expected, found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-12, atol=1e-14)


def test_statistics_do_not_depend_on_the_number_of_workers(model):
    rows = with_missing(model.sample(2000, random_state=0)[0])
    weights = np.random.default_rng(0).random(2000) - 0.1
    weights[weights < 0.0] = 0.0
    visitor = model._model.visitor
    one, two, few = (
        expect(visitor, rows, weights, workers)
        for workers in (Workers(1), Workers(2), Workers(2, memory=0.1 * MEBIBYTE))
    )
    assert one.log_likelihood == two.log_likelihood
    np.testing.assert_array_equal(one.cross, two.cross)
    np.testing.assert_allclose(few.cross, one.cross, rtol=1e-9, atol=1e-10)
    assert few.log_likelihood == pytest.approx(one.log_likelihood, rel=1e-12)
    # Rows without weight do not count, however far out they are.
    rows[weights == 0.0] = 1e300
    assert expect(visitor, rows, weights, Workers()).log_likelihood == one.log_likelihood


# --- tables that are not sorted


def test_constant_columns_of_many_rows_are_known_to_be_constant():
    rows = np.full((100_000, 1), 0.1)
    scaling = Scaling.of(rows, np.ones(len(rows)), "diag")
    np.testing.assert_array_equal(scaling.deviations, 1.0)


@pytest.fixture(scope="module")
def on_disk(model, tmp_path_factory) -> np.memmap:
    """4 MB of single precision on disk."""
    rows = np.memmap(
        tmp_path_factory.mktemp("rows") / "rows", np.float32, "w+", shape=(100_000, 10)
    )
    rows[:] = model.sample(len(rows), random_state=0)[0]
    return rows


def fit(rows: np.ndarray, **parameters) -> PiecewiseAffineDGN:
    estimator = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,), init_params="pca", max_iter=2, random_state=0, **parameters
    )
    with warnings.catch_warnings():
        # Two iterations are not meant to converge.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(rows)


def test_a_table_that_is_not_sorted_is_fitted_as_well(on_disk):
    rows = on_disk[:20_000]
    sorted_fit = fit(rows)
    with config_context(working_memory=1):
        assert not fits_into(MEBIBYTE, rows)
        found = fit(rows)
        order = np.random.default_rng(0).permutation(len(rows))
        shuffled = fit(np.asarray(rows)[order])
    # Other rows to start from, the same maximum nearby.
    assert found.lower_bound_ == pytest.approx(sorted_fit.lower_bound_, abs=0.05)
    assert found.lower_bound_ == pytest.approx(found.score(rows), rel=1e-10)
    np.testing.assert_allclose(
        shuffled.score_samples(rows[:100]), found.score_samples(rows[:100]), rtol=1e-7
    )


def peak(function) -> int:
    """Return how many bytes are allocated at a time, at most, while a function runs."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_tables_on_disk_stay_there(model, on_disk, n_jobs):
    before = np.array(on_disk[:10])
    model.set_params(n_jobs=n_jobs)
    # The start looks at 2,000 rows and takes what it needs for them; the rest does not.
    estimator = fit(on_disk[:3000], n_jobs=n_jobs).set_params(warm_start=True)
    with config_context(working_memory=2):
        allowed = 1.5 * 2 * n_jobs * MEBIBYTE
        result = model.score_samples(on_disk)
        assert peak(lambda: model.score_samples(on_disk)) <= result.nbytes + allowed
        some, means, covariances = on_disk[:10_000], np.zeros((10_000, 1)), np.ones((10_000, 1, 1))
        checked = 6 * covariances.nbytes
        assert peak(lambda: model.elbo(some, means, covariances)) <= checked + allowed
        with pytest.warns(ConvergenceWarning):
            assert peak(lambda: estimator.fit(on_disk)) <= allowed
    assert on_disk.dtype == np.float32
    np.testing.assert_array_equal(on_disk[:10], before)


def test_memory_of_a_fit_does_not_grow_with_the_number_of_rows(on_disk):
    estimator = fit(on_disk[:3000], tol=1.0).set_params(warm_start=True)
    with config_context(working_memory=1):
        few, many = on_disk[:20_000], on_disk
        assert not fits_into(MEBIBYTE, few)
        for rows in (few, many):  # the compiler's memory is not that of a fit
            estimator.fit(rows)
        first = peak(lambda: estimator.fit(few))
        growth = peak(lambda: estimator.fit(many)) - first
    # Not even a byte for each row: weights that are all one are no array.
    assert growth < len(many) - len(few)
