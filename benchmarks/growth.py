"""How the number of regions and the time of a density grow with the network.

    python benchmarks/growth.py

Networks have random weights, ten features and noise of deviation 0.3; rows are drawn from them.
Seconds are processor time on one thread: listing the regions, and `score_samples` per 1,000 rows.
The last column is the mean standard error of the log density, where it is an estimate.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from skdgn import PiecewiseAffineDGN

N_FEATURES = 10
NOISE_VARIANCE = 0.09
N_ROWS = 100
WIDTHS = {
    1: ((16,), (64,), (16, 16), (64, 64)),
    2: ((8,), (16,), (32,), (8, 8), (16, 16)),
    3: ((8,), (16,), (8, 8)),
    4: ((8,), (12,)),
    5: ((8,),),
}


def random_network(n_components: int, widths: tuple[int, ...]) -> dict[str, list[Any]]:
    """Weights that keep the size of what flows through them, and spread-out kinks."""
    rng = np.random.default_rng(0)
    sizes = (n_components, *widths, N_FEATURES)
    pairs = list(pairwise(sizes))
    coefs = [rng.normal(0.0, np.sqrt(2.0 / fan_in), (fan_out, fan_in)) for fan_in, fan_out in pairs]
    return {"coefs": coefs, "intercepts": [rng.normal(size=fan_out) for _, fan_out in pairs]}


def build(weights: dict[str, list[Any]]) -> PiecewiseAffineDGN:
    """Make an estimator, its regions listed."""
    return PiecewiseAffineDGN.from_network(
        **weights, noise_covariance=NOISE_VARIANCE, activation="leaky_relu"
    )


def main() -> None:
    """Measure and print."""
    print(f"{'latent':>6s} {'hidden':>10s} {'regions':>8s} {'list, s':>8s} {'score, s':>9s} error")
    for n_components, networks in WIDTHS.items():
        for widths in networks:
            weights = random_network(n_components, widths)
            X, _ = build(weights).sample(N_ROWS, random_state=0)
            build(weights).score_samples(X)  # compiles
            start = time.process_time()
            model = build(weights)
            listing = time.process_time() - start
            start = time.process_time()
            model.score_samples(X)
            scoring = (time.process_time() - start) * 1000 / N_ROWS
            error = model.posterior(X).log_density_error.mean()
            print(
                f"{n_components:6d} {widths!s:>10s} {model.n_regions_:8d} {listing:8.2f} "
                f"{scoring:9.3f} {error:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
