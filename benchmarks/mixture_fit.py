"""Time of a whole fit over that of scikit-learn's mixture with as many components as regions.

Both to their ``tol=1e-4``, from their own starts, in one thread; processor time, since others may
use the machine.  Median over seeds, with the iterations and held-out log densities beside it: the
two stop at different likelihoods.  The start is a fit of one iteration, without what an iteration
takes.  One network with noise of its own for each feature cannot be as likely as a mixture of
Gaussians on clusters that are correlated each in its own way, however long it is fitted.

    python benchmarks/mixture_fit.py [--rows 1000 10000 100000] [--first-seed 0]
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from tables import make_clusters, make_curve
from threadpoolctl import threadpool_limits

from skdgn import PiecewiseAffineDGN

Row = tuple[str, float, str, bool]  # what, value, target, whether it is met

N_SEEDS = 3
MOST_RELATIVE = 2.0
LARGEST_SHARE = 0.2
# Tables of so few rows have few features.
SMALL, FEW_FEATURES = 1000, 5
# Fits of one iteration and of so many tell how long one takes.
N_ITERATIONS = 11


def timed_fit(
    model: PiecewiseAffineDGN | GaussianMixture, rows: np.ndarray, held_out: np.ndarray
) -> tuple[float, int, float]:
    """Fit a model; return seconds, iterations and the mean log density of other rows."""
    started = time.process_time()
    model.fit(rows)
    return time.process_time() - started, model.n_iter_, float(model.score(held_out))


def compare(
    make_table: Callable[[int, int], np.ndarray], title: str, n_rows: int, first_seed: int
) -> list[Row]:
    """Fit both to one table, for some seeds."""
    rows, held_out = make_table(first_seed, n_rows), make_table(first_seed + 1, n_rows)
    if n_rows <= SMALL:
        rows, held_out = (table[:, :FEW_FEATURES] for table in (rows, held_out))
    shape = f"{len(rows):,} x {rows.shape[1]}"
    PiecewiseAffineDGN(max_iter=20, random_state=0).fit(rows)  # compiles
    ours, theirs, shares = [], [], []
    for seed in range(first_seed, first_seed + N_SEEDS):
        model = PiecewiseAffineDGN(hidden_layer_sizes=(16,), tol=1e-4, random_state=seed)
        one, many = (
            timed_fit(clone(model).set_params(max_iter=n, tol=0.0), rows, held_out[:1])[0]
            for n in (1, N_ITERATIONS)
        )
        ours.append(timed_fit(model, rows, held_out))
        shares.append((one - (many - one) / (N_ITERATIONS - 1)) / ours[-1][0])
        mixture = GaussianMixture(model.n_regions_, tol=1e-4, max_iter=1000, random_state=seed)
        theirs.append(timed_fit(mixture, rows, held_out))
    ratio = statistics.median(
        here / there for (here, *_), (there, *_) in zip(ours, theirs, strict=True)
    )
    share = statistics.median(shares)
    table = [
        (f"fit, {title} {shape}, / mixture's", ratio, "<= 2", ratio <= MOST_RELATIVE),
        (f"  share of the start, {title} {shape}", share, "<= 0.2", share <= LARGEST_SHARE),
    ]
    for name, results in (("ours", ours), ("mixture", theirs)):
        seconds, iterations, score = (
            statistics.median(column) for column in zip(*results, strict=True)
        )
        described = f"  {name}, {title}: {seconds:.2f} s, {iterations} iterations; held-out score"
        table.append((described, score, "", True))
    return table


def measure(numbers: Sequence[int] = (10_000,), first_seed: int = 0) -> list[Row]:
    """Return name, value, target and whether it is met, for tables of so many rows."""
    table: list[Row] = []
    with threadpool_limits(1), warnings.catch_warnings():
        # The longest fits stop at max_iter; the iterations are printed.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for n_rows in numbers:
            table += compare(make_curve, "curve", n_rows, first_seed)
            table += compare(make_clusters, "clusters", n_rows, first_seed)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000])
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    for name, value, target, met in measure(options.rows, options.first_seed):
        print(
            f"{name:72s} {value:8.3f}  {target:8s} {('met' if met else 'NOT MET') * bool(target)}"
        )
