"""Time of a whole fit over that of scikit-learn's mixture with as many components as regions.

Both to their ``tol=1e-4``, from their own starts, in one thread; processor time, since others may
use the machine.  Median over seeds, with the iterations and held-out log densities beside it: the
two stop at different likelihoods.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from tables import make_clusters, make_curve
from threadpoolctl import threadpool_limits

from skdgn import PiecewiseAffineDGN

Row = tuple[str, float, str, bool]  # what, value, target, whether it is met

N_SEEDS = 3
MOST_RELATIVE = 2.0


def timed_fit(
    model: PiecewiseAffineDGN | GaussianMixture, rows: np.ndarray, held_out: np.ndarray
) -> tuple[float, int, float]:
    """Fit a model; return seconds, iterations and the mean log density of other rows."""
    started = time.process_time()
    model.fit(rows)
    return time.process_time() - started, model.n_iter_, float(model.score(held_out))


def compare(make_table: Callable[[int], np.ndarray], title: str) -> list[Row]:
    """Fit both to one table, for some seeds."""
    rows, held_out = make_table(0), make_table(1)
    PiecewiseAffineDGN(max_iter=1, random_state=0).fit(rows)  # compiles
    ours, theirs = [], []
    for seed in range(N_SEEDS):
        model = PiecewiseAffineDGN(hidden_layer_sizes=(16,), tol=1e-4, random_state=seed)
        ours.append(timed_fit(model, rows, held_out))
        mixture = GaussianMixture(model.n_regions_, tol=1e-4, max_iter=1000, random_state=seed)
        theirs.append(timed_fit(mixture, rows, held_out))
    ratio = statistics.median(
        here / there for (here, *_), (there, *_) in zip(ours, theirs, strict=True)
    )
    table = [(f"fit, {title} 10,000 x 10, / mixture's", ratio, "<= 2", ratio <= MOST_RELATIVE)]
    for name, results in (("ours", ours), ("mixture", theirs)):
        seconds, iterations, score = (
            statistics.median(column) for column in zip(*results, strict=True)
        )
        described = f"  {name}, {title}: {seconds:.2f} s, {iterations} iterations; held-out score"
        table.append((described, score, "", True))
    return table


def measure() -> list[Row]:
    """Return name, value, target and whether it is met."""
    with threadpool_limits(1), warnings.catch_warnings():
        # The longest fits stop at max_iter; the iterations are printed.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [*compare(make_curve, "curve"), *compare(make_clusters, "clusters")]


if __name__ == "__main__":
    for name, value, target, met in measure():
        print(
            f"{name:72s} {value:8.3f}  {target:8s} {('met' if met else 'NOT MET') * bool(target)}"
        )
