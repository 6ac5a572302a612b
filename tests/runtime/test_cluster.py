"""A cluster of worker processes: the same fit as here, even if one of them dies on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import joblib
import numpy as np
import pytest

import skdgn._fit.em.mixture
import skdgn._fit.statistics
import skdgn._runtime.transport
from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")

pytestmark = pytest.mark.filterwarnings(
    "ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"
)

# Three batches and more: tasks for both workers.
ROWS = make_noisy_circle(4000, noise=0.1, random_state=0)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[distributed.Client]:
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=tmp_path_factory.mktemp("workers"),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def fit() -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN(
        hidden_layer_sizes=(6,), init_params="pca", max_iter=8, random_state=0
    ).fit(ROWS)


@pytest.fixture(scope="module")
def local() -> PiecewiseAffineDGN:
    return fit()


def assert_same(found: PiecewiseAffineDGN, expected: PiecewiseAffineDGN) -> None:
    np.testing.assert_allclose(found.lower_bounds_, expected.lower_bounds_, rtol=1e-9)
    for here, there in zip(found.coefs_, expected.coefs_, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.noise_covariance_, expected.noise_covariance_, rtol=1e-9)


def test_a_fit_on_a_cluster_is_the_same_as_here(client, local):
    with joblib.parallel_config("dask"), distributed.get_task_stream(client) as stream:
        found = fit()
        log_density = found.score_samples(ROWS)
    # The work was done over there, by both of them.
    assert len({task["worker"] for task in stream.data}) == 2
    assert_same(found, local)
    np.testing.assert_allclose(log_density, local.score_samples(ROWS), rtol=1e-9)


def test_workers_read_a_table_from_its_file(client, local, tmp_path, monkeypatch):
    rows = np.memmap(tmp_path / "rows", np.float32, "w+", shape=ROWS.shape)
    rows[:] = ROWS
    with joblib.parallel_config("dask"):
        found = local.score_samples(rows)
        # As if the workers had another file of that name.
        monkeypatch.setattr(skdgn._runtime.transport, "_stamp", lambda path: (rows.nbytes, 0))
        with pytest.raises(FileNotFoundError, match="every worker can read"):
            local.score_samples(rows)
    np.testing.assert_allclose(found, local.score_samples(np.array(rows)), rtol=1e-12)


def test_a_worker_that_is_killed_does_not_lose_the_fit(client, local, monkeypatch, tmp_path):
    order = tmp_path / "kill"
    n_steps = 0
    expect, accumulate = skdgn._fit.em.mixture.expect, skdgn._fit.statistics.accumulate

    def expect_and_order(*arguments):
        nonlocal n_steps
        n_steps += 1
        if n_steps == 5:
            order.touch()
        return expect(*arguments)

    def accumulate_or_die(*arguments):
        # Whoever takes the order dies of it, with a batch in hand. Both may reach for it at once.
        try:
            order.unlink()
        except FileNotFoundError:
            return accumulate(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(skdgn._fit.em.mixture, "expect", expect_and_order)
    monkeypatch.setattr(skdgn._fit.statistics, "accumulate", accumulate_or_die)
    before = set(client.run(os.getpid).values())
    with joblib.parallel_config("dask"):
        found = fit()
    assert not order.exists()
    client.wait_for_workers(2, timeout=60)
    assert len(before & set(client.run(os.getpid).values())) == 1
    assert_same(found, local)
