"""Time that a variational autoencoder takes to the held-out likelihood of a fit, over the fit's.

The same decoder and noise, trained by Adam in PyTorch; of three learning rates the one that comes
there first, or farthest.  The held-out likelihood is that of the decoder, exact, on snapshots that
do not count; processor time of one thread.  A network gets so many times the fit's own time, and no
more (nor less than some seconds, to be judged by): where it has not come there by then, the ratio
is a lower bound, and its best is printed.
"""

from __future__ import annotations

import math
import sys
import time
import warnings

import numpy as np
from sklearn.datasets import make_s_curve
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle

try:
    import torch

    from skdgn.vae import GaussianVAE
except ImportError:
    torch = None

Row = tuple[str, float, str, bool]  # what, value, target, whether it is met

LEARNING_RATES = (5e-3, 1e-3, 1e-4)
PATIENCE = 12.0  # times the time of our fit; or as the command's argument says
LEAST_SECONDS = 10.0  # for each learning rate and table: a minute in all
LEAST_RATIO = 10.0
N_SNAPSHOTS = 40
NEGATIVE_SLOPE = 0.1
# Of the features' variances: of 1 and 0.1, the one from which the autoencoder gets farther.  From 1
# the circle's decoder collapses (it ignores its latent space), from 0.1 the S-curve's ends lower.
CIRCLE_NOISE, S_CURVE_NOISE = 0.1, 1.0


class Race:
    """Watches the training of a decoder until it is there, or has taken too long."""

    def __init__(self, held_out: np.ndarray, goal: float, seconds: float) -> None:
        self.held_out, self.goal, self.patience = held_out, goal, seconds
        self.seconds, self.next_snapshot = 0.0, 0.0
        self.best, self.arrival = -math.inf, math.inf
        self.resumed = time.process_time()

    def __call__(self, vae: GaussianVAE) -> bool:
        """Stop the clock, look at the decoder, and tell whether to stop."""
        self.seconds += time.process_time() - self.resumed
        if self.seconds >= self.next_snapshot:
            self.next_snapshot = self.seconds + self.patience / N_SNAPSHOTS
            score = vae.to_estimator().score(self.held_out)
            self.best = max(self.best, score)
            if score >= self.goal:
                self.arrival = self.seconds
        self.resumed = time.process_time()
        return self.arrival < math.inf or self.seconds > self.patience


def make_start(n_components: int, width: int, n_features: int) -> torch.nn.Sequential:
    """Draw a decoder as PyTorch does."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(n_components, width),
        torch.nn.LeakyReLU(NEGATIVE_SLOPE),
        torch.nn.Linear(width, n_features),
    )


def race(
    title: str,
    rows: np.ndarray,
    held_out: np.ndarray,
    n_components: int,
    width: int,
    noise: float,
    patience: float,
) -> list[Row]:
    """Fit, then train until the decoder is as likely."""
    model = PiecewiseAffineDGN(
        n_components, hidden_layer_sizes=(width,), negative_slope=NEGATIVE_SLOPE, random_state=0
    )
    model.fit(rows)  # compiles: a shorter fit would not need all kernels
    started = time.process_time()
    model.fit(rows)
    seconds = time.process_time() - started
    goal = model.score(held_out)
    patience = max(patience, LEAST_SECONDS / seconds)
    races = []
    for rate in LEARNING_RATES:
        watch = Race(held_out, goal, patience * seconds)
        start = make_start(n_components, width, rows.shape[1])
        GaussianVAE(
            start,
            noise * rows.var(axis=0),
            learning_rate=rate,
            max_iter=1_000_000,  # the race ends it
            tol=-1e9,
            callback=watch,
            random_state=0,
        ).fit(rows)
        races.append((watch.arrival, -watch.best, rate))
    arrival, _, rate = min(races)
    best = max(-score for _, score, _ in races)
    ratio = min(arrival / seconds, patience)
    end = f"at rate {rate:g}" if arrival < math.inf else f"never within {patience:.0f} times"
    return [
        (f"{title}: VAE to our likelihood / our fit, {end}", ratio, ">= 10", ratio >= LEAST_RATIO),
        (f"  {title}: held-out score of our fit, {seconds:.2f} s", goal, "", True),
        (f"  {title}: best held-out score of the VAE's decoder", best, "", True),
    ]


def measure(patience: float = PATIENCE) -> list[Row]:
    """Return name, value, target and whether it is met."""
    if torch is None:
        print("VAE: not run: PyTorch is not installed")
        return []
    torch.set_num_threads(1)
    sheet, _ = make_s_curve(2000, noise=0.05, random_state=0)
    sheet = (sheet - sheet[:1000].mean(axis=0)) / sheet[:1000].std(axis=0)
    circle = make_noisy_circle(1000, noise=0.05, random_state=0)
    other_circle = make_noisy_circle(4000, noise=0.05, random_state=1)
    with threadpool_limits(1), warnings.catch_warnings():
        # Whether it converges within its iterations does not matter here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [
            *race("noisy circle", circle, other_circle, 1, 32, CIRCLE_NOISE, patience),
            *race("S-curve", sheet[:1000], sheet[1000:], 2, 16, S_CURVE_NOISE, patience),
        ]


if __name__ == "__main__":
    for name, value, target, met in measure(*map(float, sys.argv[1:])):
        print(
            f"{name:72s} {value:8.3f}  {target:8s} {('met' if met else 'NOT MET') * bool(target)}"
        )
