"""Exact log densities against estimates by importance weighting with 5,000 draws for each row.

The estimate is that of importance-weighted autoencoders, in PyTorch, with the same decoder, and
with the best an encoder could give: each row's Gaussian has the exact moments of its posterior.
What those cost does not count.  Processor time of one thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from skdgn import PiecewiseAffineDGN

try:
    import torch

    from skdgn.vae import make_decoder
except ImportError:
    torch = None

Row = tuple[str, float, str, bool]  # what, value, target, whether it is met

N_DRAWS = 5000
N_ROWS = 200
ROWS_AT_A_TIME = 20  # 100,000 draws: enough to keep PyTorch busy
REPEATS = 3


def best_time(function: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Shortest of several runs, in seconds, and what the last returned."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        result = function()
        times.append(time.process_time() - started)
    return min(times), result


def estimate(
    decoder: torch.nn.Sequential,
    variance: float,
    rows: torch.Tensor,
    means: torch.Tensor,
    factors: torch.Tensor,
) -> np.ndarray:
    """Log of the mean importance weight of each row."""
    n_components, n_features = means.shape[1], rows.shape[1]
    parts = []
    with torch.no_grad():
        for first in range(0, len(rows), ROWS_AT_A_TIME):
            some = slice(first, first + ROWS_AT_A_TIME)
            draws = torch.randn((len(rows[some]), N_DRAWS, n_components))
            latent = means[some, None] + draws @ factors[some].mT
            residuals = rows[some, None] - decoder(latent)
            log_weights = 0.5 * (
                (draws**2).sum(-1) - (latent**2).sum(-1) - (residuals**2).sum(-1) / variance
            )
            log_scales = factors[some].diagonal(dim1=1, dim2=2).log().sum(1)
            parts.append(log_weights.logsumexp(1) - math.log(N_DRAWS) + log_scales)
    return torch.cat(parts).numpy() - 0.5 * n_features * math.log(2.0 * math.pi * variance)


def compare(n_components: int, n_features: int = 5, variance: float = 0.01) -> list[Row]:
    """Compare on rows drawn from a network with one hidden layer."""
    rng = np.random.default_rng(n_components)
    model = PiecewiseAffineDGN.from_network(
        [rng.normal(size=(16, n_components)), rng.normal(size=(n_features, 16)) / 4.0],
        [0.5 * rng.normal(size=16), np.zeros(n_features)],
        variance,
        activation="relu",
    )
    rows = model.sample(N_ROWS, random_state=0)[0]
    posterior = model.posterior(rows)
    # As accurate as it may be, and a little slower than in single precision.
    decoder = make_decoder(model, "float64")
    tensors = [
        torch.from_numpy(np.ascontiguousarray(array))
        for array in (rows, posterior.mean, np.linalg.cholesky(posterior.covariance))
    ]
    model.score_samples(rows)  # compiles
    seconds, exact = best_time(lambda: model.score_samples(rows))
    torch.manual_seed(0)
    slower, estimated = best_time(lambda: estimate(decoder, variance, *tensors))
    errors = np.abs(estimated - exact)
    title = f"{n_components}-16-{n_features}, {N_ROWS} rows"
    ratio = slower / seconds
    return [
        (f"importance weighting, {N_DRAWS:,} draws / exact, {title}", ratio, "> 1", ratio > 1.0),
        (f"  its mean absolute error in nats, {title}", float(errors.mean()), "", True),
        (f"  its largest error in nats, {title}", float(errors.max()), "", True),
    ]


def measure() -> list[Row]:
    """Return name, value, target and whether it is met."""
    if torch is None:
        print("importance weighting: not run: PyTorch is not installed")
        return []
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    try:
        with threadpool_limits(1):
            return [row for n_components in (1, 2) for row in compare(n_components)]
    finally:
        torch.set_default_dtype(torch.float32)


if __name__ == "__main__":
    for name, value, target, met in measure():
        print(
            f"{name:72s} {value:8.3f}  {target:8s} {('met' if met else 'NOT MET') * bool(target)}"
        )
