"""Peak memory of a table on disk: what `fit` and `score_samples` take above it.

Prints a line for each, relative to what is allowed: everything that NumPy and Python allocate while
they run, with the working memory of scikit-learn's configuration set to a fifth of the table.  What
Numba allocates to compile kernels is not counted: a run in which it does is repeated.
"""

from __future__ import annotations

import tempfile
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numba.core import event
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN

N_ROWS, N_FEATURES = 2_000_000, 10
WORKING_MEMORY = 16
MOST_RELATIVE = 1.5


def make_table(path: Path) -> np.memmap:
    """Write a noisy curve to disk, in single precision."""
    rng = np.random.default_rng(0)
    table = np.memmap(path, np.float32, "w+", shape=(N_ROWS, N_FEATURES))
    for first in range(0, N_ROWS, 100_000):
        some = table[first : first + 100_000]
        curve = np.cos(rng.normal(size=(len(some), 1)) + np.arange(N_FEATURES))
        some[:] = curve + 0.1 * rng.normal(size=some.shape)
    return table


def peak(function: Callable[[], object]) -> float:
    """Return the largest sum of allocations while a function runs, in MiB.

    Which kernels it needs depends on what it finds, so that none can be compiled beforehand.  The
    compiler takes some 60 MiB, once for each machine, whatever the size of the table.
    """
    while True:
        with event.install_recorder("numba:compile") as compilations:
            tracemalloc.start()
            function()
            largest = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        if not compilations.buffer:
            return largest / 2**20


def measure() -> list[tuple[str, float, str, bool]]:
    """Return name, value, target and whether it is met."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # One iteration shows what it takes, and is not meant to converge.
        warnings.simplefilter("ignore", ConvergenceWarning)
        table = make_table(Path(folder) / "table")
        model = PiecewiseAffineDGN(max_iter=1, warm_start=True, random_state=0)
        model.fit(table[:10_000])
        with config_context(working_memory=WORKING_MEMORY):
            start = peak(lambda: PiecewiseAffineDGN(max_iter=1).fit(table[:100_000]))
            fit = peak(lambda: model.fit(table))
            score = peak(lambda: model.score_samples(table)) - 8 * N_ROWS / 2**20
    size = f"{N_ROWS:,} x {N_FEATURES} float32, working_memory={WORKING_MEMORY}"
    target = f"<= {MOST_RELATIVE}"
    return [
        (f"fit, {size}: peak / allowed", value := fit / WORKING_MEMORY, target, value <= 1.5),
        ("score_samples, beside its result", value := score / WORKING_MEMORY, target, value <= 1.5),
        ("start, on 2,000 of the rows, MiB", start, "", True),
    ]


if __name__ == "__main__":
    for name, value, target, met in measure():
        print(
            f"{name:72s} {value:8.3f}  {target:8s} {('met' if met else 'NOT MET') * bool(target)}"
        )
