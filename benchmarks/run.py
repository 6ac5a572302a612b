"""Speed, as ratios within one run: print a table and write benchmarks/results.json."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from missing_cost import N_ROWS, missing_cost
from scipy.special import log_ndtr, owens_t

from skdgn._cells import simplices
from skdgn._conditionals import condition
from skdgn._network import Activation, Network
from skdgn._noise import Noise
from skdgn._partition import build_partition
from skdgn._statistics import accumulate
from skdgn._visits import Visitor

REPEATS = 3


def best_time(function: Callable[[], object]) -> float:
    """Shortest of several runs, in seconds."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
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
    seconds = best_time(
        lambda: accumulate(visitor.visit(rows), rows, weights, len(partition), False)
    )
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
    conditionals = condition(partition, noise)
    started = time.perf_counter()
    for row in noise.whiten(rows[:n_rows]):
        for r in range(len(partition)):
            members = slice(facets.start[r], facets.start[r + 1])
            factor = conditionals.factors[r]
            mean = factor @ (conditionals.centers[r] + conditionals.projections[r] @ row)
            simplices.integrate(
                facets.normals[members], facets.offsets[members], mean, factor @ factor.T
            )
    return (time.perf_counter() - started) / n_rows / ours


def partition_time(widths: tuple[int, ...]) -> tuple[float, float, int]:
    """Time of a partition over evaluating the network on 100 points per cell; seconds; cells."""
    network = random_network(widths)
    partition = build_partition(network)
    seconds = best_time(lambda: build_partition(network))
    rng = np.random.default_rng(3)
    points = rng.normal(size=(100 * len(partition), network.n_components))
    return seconds / best_time(lambda: network.forward(points)), seconds, len(partition)


def growth() -> tuple[float, float, float]:
    """Cost per row with 16 times as many cells over the cost before, and visits per row."""
    small = random_network((2, 16, 16, 5))
    rng = np.random.default_rng(4)
    # More units of almost no weight: the same function, cut into more cells.
    first = np.concatenate([small.coefs[0], rng.normal(size=(48, 2))])
    first_bias = np.concatenate([small.intercepts[0], 0.5 * rng.normal(size=48)])
    second = np.zeros((64, 64))
    second[:16, :16] = small.coefs[1]
    second[:16, 16:] = 1e-4 * rng.normal(size=(16, 48))
    second[16:] = rng.normal(size=(48, 64)) / 8.0
    second_bias = np.concatenate([small.intercepts[1], 0.5 * rng.normal(size=48)])
    output = np.concatenate([small.coefs[2], 1e-4 * rng.normal(size=(5, 48))], axis=1)
    large = Network.from_arrays(
        [first, second, output], [first_bias, second_bias, small.intercepts[2]], small.activation
    )
    rows = draw(small, 0.01, 500)
    costs, visits, cells = [], [], []
    for network in (small, large):
        partition = build_partition(network)
        visitor = Visitor.prepare(partition, Noise.from_covariance(1e-4, 5))
        visits.append(len(visitor.visit(rows).regions) / len(rows))
        costs.append(best_time(lambda visitor=visitor: visitor.visit(rows)))
        cells.append(len(partition))
    print(f"cells {cells[0]} and {cells[1]}, visits per row {visits[0]:.1f} and {visits[1]:.1f}")
    return costs[1] / costs[0], visits[0], visits[1]


def main() -> None:
    """Run everything."""
    plane, plane_visits = e_step((2, 16, 16, 5), 2000)
    line, line_visits = e_step((1, 32, 32, 2), 10_000)
    cost, _, _ = growth()
    polygons, _, n_polygons = partition_time((2, 32, 32, 2))
    _, seconds, n_polyhedra = partition_time((3, 8, 8, 3))
    wide = random_network((2, 16, 16, 20))
    wide_rows = draw(wide, 0.1, N_ROWS)
    correlated = 0.008 * np.eye(20) + 0.002
    holes = [missing_cost(wide, wide_rows, noise, best_time) for noise in (0.01, correlated)]
    table = [
        ("E-step 2-16-16-5 / owens_t, 2 per edge visited", plane, "<= 3", plane <= 3),
        ("E-step 1-32-32-2 / log_ndtr, 2 per visit", line, "<= 4", line <= 4),
        ("paper's route / ours per row, 2-8-2", ratio := papers_route(), ">= 2000", ratio >= 2000),
        (f"partition 2-32-32 ({n_polygons} cells) / network", polygons, "< 2", polygons < 2),
        ("cost per row, 16 times as many cells, noise 0.01", cost, "< 4", cost < 4),
        ("30% holes, a pattern per row / complete, 2-16-16-20", holes[0], "<= 4", holes[0] <= 4),
        ("the same with correlated noise", holes[1], "<= 4", holes[1] <= 4),
        (f"partition 3-8-8 ({n_polyhedra} cells), seconds", seconds, "", True),
    ]
    print(f"visits per row: {plane_visits:.1f} (2-16-16-5), {line_visits:.1f} (1-32-32-2)")
    for name, value, target, met in table:
        print(f"{name:52s} {value:10.3f}  {target:8s} {'met' if met else 'NOT MET'}")
    results = [dict(zip(("name", "value", "target", "met"), row, strict=True)) for row in table]
    path = Path(__file__).with_name("results.json")
    path.write_text(json.dumps([{**r, "met": bool(r["met"])} for r in results], indent=1))


if __name__ == "__main__":
    main()
