"""Speed of the kernels, as ratios within one run, in one thread."""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from missing_cost import N_ROWS, missing_cost
from scipy.special import log_ndtr, owens_t
from threadpoolctl import threadpool_limits

from skdgn._fit.statistics import accumulate
from skdgn._network import Activation, Network
from skdgn._noise.gaussian import Noise
from skdgn._partition.enumeration import build_partition
from skdgn._posterior.listed.visits import Visitor

sys.path.insert(0, str(Path(__file__).parents[1]))  # the paper's route is with the tests
from tests.reference import simplices

REPEATS = 5

Row = tuple[str, float, str, bool]  # what, value, target, whether it is met


def best_time(function: Callable[[], object], repeats: int = REPEATS) -> float:
    """Shortest of several runs, in seconds of the processor: others may use it at the same time."""
    times = []
    for _ in range(repeats):
        started = time.thread_time()
        function()
        times.append(time.thread_time() - started)
    return min(times)


def random_network(widths: tuple[int, ...], seed: int = 0) -> Network:
    """Draw a ReLU network."""
    rng = np.random.default_rng(seed)
    coefs = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in itertools.pairwise(widths)]
    intercepts = [0.5 * rng.normal(size=width) for width in widths[1:]]
    return Network.from_arrays(coefs, intercepts, Activation.from_name("relu", 0.0))


def draw(network: Network, deviation: float, n_rows: int) -> np.ndarray:
    """Draw rows from the model."""
    rng = np.random.default_rng(1)
    rows = network.forward(rng.normal(size=(n_rows, network.n_components)))
    return rows + deviation * rng.normal(size=rows.shape)


def e_step(widths: tuple[int, ...], n_rows: int) -> tuple[float, float]:
    """Time of the E-step over that of the special function, and visits per row."""
    network = random_network(widths)
    rows = draw(network, 0.1, n_rows)
    partition = build_partition(network)
    noise = Noise.from_covariance(0.01, network.n_features)
    visitor = Visitor.prepare(partition, noise)
    weights = np.ones(n_rows)
    visits = visitor.visit(rows)
    seconds = best_time(lambda: accumulate(visitor, visitor.visit(rows), rows, weights))
    n_edges = np.diff(partition.cells.facets().start)[visits.regions].sum()
    rng = np.random.default_rng(2)
    if network.n_components == 2:
        h, a = np.abs(rng.normal(size=2 * n_edges)), 2.0 * rng.normal(size=2 * n_edges)
        baseline = best_time(lambda: owens_t(h, a))
    else:
        ends = 4.0 * rng.normal(size=2 * len(visits.regions))
        baseline = best_time(lambda: log_ndtr(ends))
    return seconds / baseline, len(visits.regions) / n_rows


def papers_route(n_rows: int = 2) -> float:
    """Time of simplices and signed cones over ours, per row, network 2-8-2."""
    network = random_network((2, 8, 2))
    rows = draw(network, 0.1, 2000)
    partition = build_partition(network)
    noise = Noise.from_covariance(0.01, 2)
    visitor = Visitor.prepare(partition, noise)
    visitor.visit(rows)
    ours = best_time(lambda: visitor.visit(rows)) / len(rows)
    facets = partition.cells.facets()
    conditionals = visitor.conditionals
    started = time.thread_time()
    for row in noise.whiten(rows[:n_rows]):
        for r in range(len(partition)):
            members = slice(facets.start[r], facets.start[r + 1])
            factor = conditionals.factors[r]
            mean = factor @ (conditionals.projections[r] @ (row - conditionals.offsets[r]))
            simplices.integrate(
                facets.normals[members], facets.offsets[members], mean, factor @ factor.T
            )
    return (time.thread_time() - started) / n_rows / ours


def partition_time(widths: tuple[int, ...]) -> tuple[float, float, int]:
    """Time of a partition over evaluating the network on 100 points per cell; seconds; cells."""
    network = random_network(widths)
    partition = build_partition(network)
    seconds = best_time(lambda: build_partition(network))
    rng = np.random.default_rng(3)
    points = rng.normal(size=(100 * len(partition), network.n_components))
    return seconds / best_time(lambda: network.forward(points)), seconds, len(partition)


def finer_network(small: Network) -> Network:
    """Add units of almost no weight: nearly the same function, cut into 16 times as many cells."""
    rng = np.random.default_rng(4)
    first = np.concatenate([small.coefs[0], rng.normal(size=(48, 2))])
    first_bias = np.concatenate([small.intercepts[0], 0.5 * rng.normal(size=48)])
    second = np.zeros((64, 64))
    second[:16, :16] = small.coefs[1]
    second[:16, 16:] = 1e-6 * rng.normal(size=(16, 48))
    second[16:] = rng.normal(size=(48, 64)) / 8.0
    second_bias = np.concatenate([small.intercepts[1], 0.5 * rng.normal(size=48)])
    output = np.concatenate([small.coefs[2], 1e-6 * rng.normal(size=(5, 48))], axis=1)
    return Network.from_arrays(
        [first, second, output],
        [first_bias, second_bias, small.intercepts[2]],
        small.activations[0],
    )


def growth() -> list[Row]:
    """Cost per row with 16 times as many cells over the cost before.

    With little noise a posterior is narrower than a cell, and most of the new cells do not matter.
    With more noise 16 times as many cells do, and each has to be visited.
    """
    small = random_network((2, 16, 16, 5))
    partitions = [build_partition(network) for network in (small, finer_network(small))]
    cells = " to ".join(str(len(partition)) for partition in partitions)
    table: list[Row] = []
    for deviation in (0.001, 0.01):
        rows = draw(small, deviation, 2000)
        noise = Noise.from_covariance(deviation**2, 5)
        visitors = [Visitor.prepare(partition, noise) for partition in partitions]
        visits = [len(visitor.visit(rows).regions) / len(rows) for visitor in visitors]
        before, after = (
            best_time(functools.partial(visitor.visit, rows), 4 * REPEATS) for visitor in visitors
        )
        name = f"cost per row, {cells} cells, noise {deviation}"
        table.append((name, after / before, "< 4", after < 4 * before))
        name = f"  of them visited per row: {visits[0]:.1f}, then {visits[1]:.1f}"
        table.append((name, visits[1] / visits[0], "", True))
    return table


def measure() -> list[Row]:
    """Return name, value, target and whether it is met."""
    with threadpool_limits(1):
        return measure_kernels()


def measure_kernels() -> list[Row]:
    """Do the same in as many threads as there may be."""
    plane, plane_visits = e_step((2, 16, 16, 5), 2000)
    line, line_visits = e_step((1, 32, 32, 2), 10_000)
    polygons, _, n_polygons = partition_time((2, 32, 32, 2))
    _, seconds, n_polyhedra = partition_time((3, 8, 8, 3))
    wide = random_network((2, 16, 16, 20))
    wide_rows = draw(wide, 0.1, N_ROWS)
    correlated = 0.008 * np.eye(20) + 0.002
    holes = [missing_cost(wide, wide_rows, noise, best_time) for noise in (0.01, correlated)]
    return [
        ("E-step 2-16-16-5 / owens_t, 2 per edge visited", plane, "<= 3", plane <= 3),
        ("E-step 1-32-32-2 / log_ndtr, 2 per visit", line, "<= 4", line <= 4),
        ("paper's route / ours per row, 2-8-2", ratio := papers_route(), ">= 2000", ratio >= 2000),
        (f"partition 2-32-32 ({n_polygons} cells) / network", polygons, "< 2", polygons < 2),
        *growth(),
        ("30% holes, a pattern per row / complete, 2-16-16-20", holes[0], "<= 4", holes[0] <= 4),
        ("the same with correlated noise", holes[1], "<= 4", holes[1] <= 4),
        (f"partition 3-8-8 ({n_polyhedra} cells), seconds", seconds, "", True),
        ("visits per row, 2-16-16-5", plane_visits, "", True),
        ("visits per row, 1-32-32-2", line_visits, "", True),
    ]


if __name__ == "__main__":
    for row in measure():
        print(*row)
