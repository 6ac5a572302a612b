"""
A fit on a cluster
==================

Joblib distributes the work to threads, to other processes, or to a cluster.  This example uses two
worker processes of `Dask <https://distributed.dask.org>`_ on this machine; with the address of a
scheduler, ``Client("tcp://...")``, it would use those of a cluster.  The results are the same, even
if a worker dies during the fit, because its tasks are rescheduled.
"""

import os
import signal
import threading
import time

import joblib
import numpy as np

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle

try:
    from dask.distributed import Client, LocalCluster
except ImportError:
    Client = LocalCluster = None


def fit(rows: np.ndarray) -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN(
        hidden_layer_sizes=(8,), init_params="tree", tol=1e-3, random_state=0
    ).fit(rows)


def kill(process: int, delay: float) -> threading.Thread:
    """End a process without warning, in a while."""

    def wait_and_kill() -> None:
        time.sleep(delay)
        os.kill(process, signal.SIGKILL)

    thread = threading.Thread(target=wait_and_kill)
    thread.start()
    return thread


def main() -> None:
    if Client is None:
        print("Dask is not installed: pip install 'dask[distributed]'")
        return
    rows = make_noisy_circle(20_000, noise=0.1, random_state=0)
    here = fit(rows)
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client, joblib.parallel_config("dask"):
        started = time.perf_counter()
        there = fit(rows)
        seconds = time.perf_counter() - started
        workers = sorted(client.run(os.getpid).values())
        killer = kill(workers[0], 0.5 * seconds)
        survivor = fit(rows)
        killer.join()
    print(f"mean log density, fitted here          {here.lower_bound_:.12f}")
    print(f"  by two workers                       {there.lower_bound_:.12f}")
    print(f"  one of which was killed              {survivor.lower_bound_:.12f}")
    print(f"iterations                             {here.n_iter_}")
    print(f"worker {workers[0]} was killed {0.5 * seconds:.1f} seconds into the fit")


# The workers are new processes, which read this file too: only the first one runs it.
if __name__ == "__main__":
    main()
