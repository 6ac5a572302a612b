"""Time of a whole fit over that of scikit-learn's mixture, to the same or better held-out score.

Both to ``tol=1e-4``, from their own starts, in one thread; processor time, since others may use the
machine.  Median over seeds, with the iterations and held-out log densities beside it: the two stop
at different likelihoods.  Around a curve, one network is fitted, and the rival has as many
components as that has regions.  One network with noise of its own for each feature cannot be as
likely as a mixture of Gaussians on clusters that are correlated each in its own way, however long
it is fitted: what to take there is a mixture of as many networks as clusters.  Its rivals have as
many components as all of these have regions, and as there are networks.

The start is a fit of one iteration, without what an iteration takes; that of a mixture of networks
includes most of its search.

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
from tables import N_CLUSTERS, make_clusters, make_curve
from threadpoolctl import threadpool_limits

from skdgn import DGNMixture, PiecewiseAffineDGN

Row = tuple[str, float, str, bool]  # what, value, target, whether it is met
Model = PiecewiseAffineDGN | DGNMixture
Fitted = tuple[float, int, float]  # seconds, iterations, score

N_SEEDS = 3
MOST_RELATIVE = 2.0
LARGEST_SHARE = 0.2
# Tables of so few rows have few features, and fits of them are to take so many seconds.
SMALL, FEW_FEATURES = 1000, 5
MOST_SECONDS = 0.5
# Fits of one iteration and of so many tell how long one takes.
N_ITERATIONS = 11


def timed_fit(model: Model | GaussianMixture, rows: np.ndarray, held_out: np.ndarray) -> Fitted:
    """Fit a model; return seconds, iterations and the mean log density of other rows."""
    started = time.process_time()
    model.fit(rows)
    return time.process_time() - started, model.n_iter_, float(model.score(held_out))


def numbers_of_components(model: Model) -> dict[str, int]:
    """How many components rivals have, and why."""
    if isinstance(model, PiecewiseAffineDGN):
        return {"regions": model.n_regions_}
    regions = sum(network.n_regions_ for network in model.networks_)
    return {"regions": regions, "networks": len(model.networks_)}


def share_of_start(model: Model, rows: np.ndarray, seconds: float) -> float:
    """Share of the start in a fit of so many seconds."""
    one, many = (
        timed_fit(clone(model).set_params(max_iter=n, tol=0.0), rows, rows[:1])[0]
        for n in (1, N_ITERATIONS)
    )
    return (one - (many - one) / (N_ITERATIONS - 1)) / seconds


def compare(
    make_table: Callable[[int, int], np.ndarray],
    title: str,
    prototype: Model,
    n_rows: int,
    first_seed: int,
) -> list[Row]:
    """Fit both to one table, for some seeds."""
    rows, held_out = make_table(first_seed, n_rows), make_table(first_seed + 1, n_rows)
    if n_rows <= SMALL:
        rows, held_out = (table[:, :FEW_FEATURES] for table in (rows, held_out))
    title = f"{title} {len(rows):,} x {rows.shape[1]}"
    clone(prototype).set_params(max_iter=20, random_state=0).fit(rows[:SMALL])  # compiles
    ours: list[Fitted] = []
    theirs: dict[str, list[Fitted]] = {}
    shares = []
    for seed in range(first_seed, first_seed + N_SEEDS):
        model = clone(prototype).set_params(tol=1e-4, random_state=seed)
        ours.append(timed_fit(model, rows, held_out))
        shares.append(share_of_start(model, rows, ours[-1][0]))
        for kind, number in numbers_of_components(model).items():
            mixture = GaussianMixture(number, tol=1e-4, max_iter=1000, random_state=seed)
            theirs.setdefault(kind, []).append(timed_fit(mixture, rows, held_out))
    share = statistics.median(shares)
    table = [(f"share of the start, {title}", share, "<= 0.2", share <= LARGEST_SHARE)]
    seconds, iterations, score = (statistics.median(column) for column in zip(*ours, strict=True))
    is_small = n_rows <= SMALL
    target = f"<= {MOST_SECONDS}" if is_small else ""
    table.append((f"fit, {title}, seconds", seconds, target, not target or seconds <= MOST_SECONDS))
    table.append((f"  its held-out score, {iterations} iterations", score, "", True))
    for kind, fits in theirs.items():
        ratio = statistics.median(
            here / there for (here, *_), (there, *_) in zip(ours, fits, strict=True)
        )
        name = f"fit, {title}, / mixture's with as many as {kind}"
        target = "" if is_small else f"<= {MOST_RELATIVE}"
        table.append((name, ratio, target, not target or ratio <= MOST_RELATIVE))
        seconds, iterations, least = (
            statistics.median(column) for column in zip(*fits, strict=True)
        )
        described = f"  the mixture's held-out score, {seconds:.2f} s, {iterations} iterations"
        table.append((described, least, "<= ours", least <= score))
    return table


def measure(numbers: Sequence[int] = (10_000,), first_seed: int = 0) -> list[Row]:
    """Return name, value, target and whether it is met, for tables of so many rows."""
    table: list[Row] = []
    with threadpool_limits(1), warnings.catch_warnings():
        # The longest fits stop at max_iter; the iterations are printed.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for n_rows in numbers:
            network = PiecewiseAffineDGN(hidden_layer_sizes=(16,))
            networks = DGNMixture(n_networks=N_CLUSTERS)
            table += compare(make_curve, "curve", network, n_rows, first_seed)
            table += compare(make_clusters, "clusters, one network", network, n_rows, first_seed)
            table += compare(make_clusters, "clusters", networks, n_rows, first_seed)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000])
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    for name, value, target, met in measure(options.rows, options.first_seed):
        print(
            f"{name:80s} {value:8.3f}  {target:8s} {('met' if met else 'NOT MET') * bool(target)}"
        )
