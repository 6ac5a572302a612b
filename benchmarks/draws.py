"""Posterior draws: time of 100,000 for one row, over NumPy's multivariate normal draws."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from skdgn import PiecewiseAffineDGN

N_DRAWS = 100_000
N_ROWS = 20
REPEATS = 5


def best_time(function: Callable[[], object]) -> float:
    """Shortest of several runs, in seconds."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times)


def measure() -> list[tuple[str, float, str, bool]]:
    """Return the median and the largest ratio over some rows, for networks drawn at random."""
    table = []
    for n_components in (1, 2, 3):
        rng = np.random.default_rng(n_components)
        model = PiecewiseAffineDGN.from_network(
            [rng.normal(size=(12, n_components)), rng.normal(size=(5, 12)) / 3.0],
            [rng.normal(size=12), np.zeros(5)],
            0.1,
            activation="relu",
        )
        identity, zeros = np.eye(n_components), np.zeros(n_components)

        reference = best_time(
            lambda rng=rng, mean=zeros, covariance=identity: rng.multivariate_normal(
                mean, covariance, N_DRAWS
            )
        )
        ratios = []
        for row in model.sample(N_ROWS, random_state=0)[0]:
            posterior = model.posterior(row[None])
            posterior.sample(1, random_state=0)
            seconds = best_time(lambda posterior=posterior: posterior.sample(N_DRAWS, 0))
            ratios.append(seconds / reference)
        name = f"{N_DRAWS:,} posterior draws / NumPy's, {n_components} latent dimensions"
        table.append((f"{name}, median", float(np.median(ratios)), "", True))
        table.append((f"{name}, largest", max(ratios), "", True))
    return table


if __name__ == "__main__":
    for row in measure():
        print(*row)
