"""Time of a mixture of networks over that of scikit-learn's Gaussian mixture, from the same start.

Eight networks with four units each and full noise, 10,000 samples of 10 features; both begin with
the same clusters and stop at ``tol=1e-3``, in one thread.  Processor time, since others may use the
machine; the median over seeds of the clusters.  Beside it, how the time of an iteration grows with
the samples, and what `refine`, the search beyond EM, costs and gains.
"""

from __future__ import annotations

import statistics
import time
import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from tables import make_clusters
from threadpoolctl import threadpool_limits

from skdgn import DGNMixture

Row = tuple[str, float, str, bool]  # what, value, target, whether it is met

N_SEEDS = 5
N_NETWORKS = 8
MOST_RELATIVE = 8.0
# Twice the samples may take so many times as long per iteration.
MOST_GROWTH = 2.2
N_ITERATIONS = 5


def timed_fit(model: DGNMixture | GaussianMixture, samples: np.ndarray) -> float:
    """Fit a model; return seconds of processor time."""
    started = time.process_time()
    model.fit(samples)
    return time.process_time() - started


def gaussian_mixture(samples: np.ndarray, labels: np.ndarray) -> GaussianMixture:
    """Return a Gaussian mixture that begins with these clusters."""
    clusters = [samples[labels == k] for k in range(N_NETWORKS)]
    covariances = [np.cov(cluster.T, bias=True) for cluster in clusters]
    return GaussianMixture(
        N_NETWORKS,
        weights_init=[len(cluster) / len(samples) for cluster in clusters],
        means_init=[cluster.mean(axis=0) for cluster in clusters],
        precisions_init=np.linalg.inv(covariances),
    )


def seconds_per_iteration(samples: np.ndarray, labels: np.ndarray) -> float:
    """Time some iterations of EM, and the E-step that they begin with."""
    mixture = DGNMixture(
        n_networks=N_NETWORKS, init_params=labels, refine=False, tol=0.0, max_iter=N_ITERATIONS
    )
    return timed_fit(mixture, samples) / (N_ITERATIONS + 1)


def compare() -> list[Row]:
    """Compare the two; return rows of the table."""
    samples, held_out = make_clusters(0), make_clusters(1)
    DGNMixture(n_networks=2, random_state=0, max_iter=2).fit(samples[:200])  # compiles
    ratios, ours, theirs, refined = [], [], [], []
    for seed in range(N_SEEDS):
        labels = KMeans(N_NETWORKS, n_init=1, random_state=seed).fit(samples).labels_
        gaussians = gaussian_mixture(samples, labels)
        mixture = DGNMixture(n_networks=N_NETWORKS, init_params=labels, refine=False)
        there = timed_fit(gaussians, samples)
        here = timed_fit(mixture, samples)
        ratios.append(here / there)
        theirs.append((there, gaussians.n_iter_, gaussians.score(held_out)))
        ours.append((here, mixture.n_iter_, mixture.score(held_out)))
        mixture = DGNMixture(n_networks=N_NETWORKS, init_params=labels)
        refined.append((timed_fit(mixture, samples), mixture.n_iter_, mixture.score(held_out)))
    ratio = statistics.median(ratios)
    growth = seconds_per_iteration(
        np.concatenate([samples, held_out]), np.concatenate([labels, mixture.predict(held_out)])
    ) / seconds_per_iteration(samples, labels)
    table = [
        ("8 networks, 10,000 x 10, / Gaussian mixture's", ratio, "<= 8", ratio <= MOST_RELATIVE),
        ("  an iteration, 20,000 samples / 10,000", growth, "<= 2.2", growth <= MOST_GROWTH),
    ]
    for name, results in (
        ("Gaussian mixture", theirs),
        ("networks", ours),
        ("networks, refined", refined),
    ):
        seconds, iterations, score = (
            statistics.median(column) for column in zip(*results, strict=True)
        )
        described = f"  {name}: {seconds:.2f} s, {iterations} iterations; held-out score"
        table.append((described, score, "", True))
    return table


def measure() -> list[Row]:
    """Return name, value, target and whether it is met."""
    with threadpool_limits(1), warnings.catch_warnings():
        # Iterations are timed, not fits.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return compare()


if __name__ == "__main__":
    for name, value, target, met in measure():
        print(
            f"{name:72s} {value:8.3f}  {target:8s} {('met' if met else 'NOT MET') * bool(target)}"
        )
