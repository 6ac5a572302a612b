"""Large tables: the time of an E-step against the number of rows, and of workers.

Ratios within one run.  The first is one of processor time, since others may use the machine; the
second of wall-clock time, which needs idle cores: the load is printed beside it.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from skdgn._fit.statistics import expect
from skdgn._network import Activation, Network
from skdgn._noise.gaussian import Noise
from skdgn._posterior.model import Model
from skdgn._runtime.workers import Workers

REPEATS = 3


def make_model(widths: tuple[int, ...], seed: int = 0) -> Model:
    """Draw a network with little noise around it."""
    rng = np.random.default_rng(seed)
    coefs = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in itertools.pairwise(widths)]
    intercepts = [0.5 * rng.normal(size=width) for width in widths[1:]]
    network = Network.from_arrays(coefs, intercepts, Activation.from_name("leaky_relu", 0.1))
    return Model.build(network, Noise.from_covariance(0.01, widths[-1]))


def e_step(model: Model, n_rows: int, workers: Workers) -> Callable[[], object]:
    """Prepare an E-step over rows drawn from the model."""
    rows, _ = model.draw(n_rows, np.random.RandomState(1))
    weights = np.ones(n_rows)
    return lambda: expect(model.visitor, rows, weights, workers)


def median_ratio(
    first: Callable[[], object], second: Callable[[], object], clock: Callable[[], float]
) -> float:
    """Median of several ratios of times, each pair taken one after the other."""
    first()
    second()
    ratios = []
    for _ in range(REPEATS):
        started = clock()
        first()
        between = clock()
        second()
        ratios.append((between - started) / (clock() - between))
    return statistics.median(ratios)


def measure() -> list[tuple[str, float, str, bool]]:
    """Return name, value, target and whether it is met."""
    line, plane = make_model((1, 16, 10)), make_model((2, 16, 16, 5))
    with threadpool_limits(1):
        growth = median_ratio(
            e_step(line, 1_000_000, Workers(1)),
            e_step(line, 100_000, Workers(1)),
            time.process_time,
        )
        load = os.getloadavg()[0]
        faster = median_ratio(
            e_step(plane, 20_000, Workers(1)), e_step(plane, 20_000, Workers(2)), time.perf_counter
        )
    return [
        ("E-step 1-16-10, 1,000,000 rows / 100,000", growth, "<= 11", growth <= 11),
        (
            f"E-step 2-16-16-5, 20,000 rows: n_jobs=1 / n_jobs=2, load {load:.1f}",
            faster,
            ">= 1.7",
            faster >= 1.7,
        ),
    ]


if __name__ == "__main__":
    for name, value, target, met in measure():
        print(f"{name:72s} {value:8.3f}  {target:8s} {'met' if met else 'NOT MET'}")
