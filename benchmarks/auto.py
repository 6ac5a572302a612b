"""Sizes that find themselves, beside a Gaussian mixture chosen by BIC: held-out score and time.

    SKDGN_DATA=<folder with uci/> python benchmarks/auto.py [--tables glass ...] [--splits 1]

The tables and splits of `densities.py`, and curves of 1,000 samples.  The rival is what a user of
scikit-learn does: `GaussianMixture` with 1 to 20 components, full or diagonal, the lowest BIC.
The grid takes long: mixtures of
1 to 16 networks with 0 to 16 hidden units, of which the best on the held-out samples counts.  Ours
are left at their defaults, but for what the name says.  Printed for each are the mean log
density of held-out samples, processor seconds of the whole search, and the sizes chosen; at the
end, on how many tables each is ahead of the rival, the median of the time over the rival's, and how
many fits warned that they had not converged.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from densities import TABLES, Floats, read_table, split
from sklearn.datasets import make_moons, make_s_curve
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle, make_spiral, make_wave

N_SAMPLES = 1000
MOST_COMPONENTS = 20
RIVAL = "GaussianMixture by BIC"
GRID = "best of a grid"
GRID_UNITS: tuple[tuple[int, ...], ...] = ((), (4,), (8,), (16,))
GRID_NETWORKS = (1, 2, 4, 8, 16)
# A score so little below the best of the grid is as good.
NEARLY = 0.03
CURVES: dict[str, Callable[[int], Floats]] = {
    "circle": lambda seed: make_noisy_circle(N_SAMPLES, random_state=seed),
    "spiral": lambda seed: make_spiral(N_SAMPLES, random_state=seed),
    "wave": lambda seed: make_wave(N_SAMPLES, random_state=seed),
    "S-curve": lambda seed: make_s_curve(N_SAMPLES, noise=0.1, random_state=seed)[0],
    "two moons": lambda seed: make_moons(N_SAMPLES, noise=0.1, random_state=seed)[0],
}


class MixtureByBic:
    """A Gaussian mixture of whatever size BIC likes best."""

    def __init__(self, random_state: int) -> None:
        self.random_state = random_state

    def fit(self, X: Floats) -> MixtureByBic:
        """Try all sizes."""
        fits = [
            GaussianMixture(number, covariance_type=kind, random_state=self.random_state).fit(X)
            for kind in ("full", "diag")
            for number in range(1, min(MOST_COMPONENTS, len(X) // 2) + 1)
        ]
        self.best_ = min(fits, key=lambda mixture: mixture.bic(X))
        return self

    def score(self, X: Floats) -> float:
        """Mean log density."""
        return float(self.best_.score(X))


class BestOfGrid:
    """Mixtures of all sizes of a grid, each judged by the samples that are to be predicted."""

    def __init__(self, random_state: int) -> None:
        self.random_state = random_state

    def fit(self, X: Floats) -> BestOfGrid:
        """Fit all of them."""
        self.fits_ = [
            DGNMixture(
                PiecewiseAffineDGN(hidden_layer_sizes=units, covariance_type=kind),
                number,
                random_state=self.random_state,
            ).fit(X)
            for kind in ("full", "diag")
            for units in GRID_UNITS
            for number in GRID_NETWORKS
            if number <= len(X) // 10
        ]
        return self

    def score(self, X: Floats) -> float:
        """Mean log density of the best, which `describe` tells of."""
        scores = [own.score(X) for own in self.fits_]
        self.best_ = self.fits_[int(np.argmax(scores))]
        return float(max(scores))


METHODS: dict[str, Callable[[int], Any]] = {
    RIVAL: MixtureByBic,
    GRID: BestOfGrid,
    "DGNMixture auto": lambda seed: DGNMixture(n_networks="auto", random_state=seed),
    "DGNMixture auto by BIC": lambda seed: DGNMixture(
        n_networks="auto", criterion="bic", random_state=seed
    ),
    "DGNMixture auto, average of 6": lambda seed: DGNMixture(n_averaged=6, random_state=seed),
    "DGNMixture of 4": lambda seed: DGNMixture(n_networks=4, random_state=seed),
    "PiecewiseAffineDGN auto": lambda seed: PiecewiseAffineDGN(
        hidden_layer_sizes="auto", covariance_type="auto", random_state=seed
    ),
    "PiecewiseAffineDGN of 16 units": lambda seed: PiecewiseAffineDGN(
        hidden_layer_sizes=(16,), covariance_type="diag", random_state=seed
    ),
}
Result = tuple[float, float, bool]  # score, seconds, whether it warned


def run(make: Callable[[int], Any], train: Floats, test: Floats, seed: int) -> tuple[Result, str]:
    """Fit and judge one method; describe it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = time.process_time()
        model = make(seed).fit(train)
        seconds = time.process_time() - started
    warned = any(issubclass(own.category, ConvergenceWarning) for own in caught)
    score = model.score(test)
    return (score, seconds, warned), f"{score:8.3f} {seconds:6.2f} s {describe(model)}"


def describe(model: Any) -> str:
    """Say which sizes a model has."""
    if isinstance(model, MixtureByBic):
        return f"{model.best_.n_components} {model.best_.covariance_type}"
    if isinstance(model, BestOfGrid):
        return describe(model.best_)
    networks = model.networks_ if isinstance(model, DGNMixture) else [model]
    units = sorted(sum(len(own) for own in network.intercepts_[:-1]) for network in networks)
    noise = {0: "spherical", 1: "diag", 2: "full"}[np.ndim(networks[0].noise_covariance_)]
    return f"{noise}, hidden units {units}"


def report(results: dict[str, list[Result]], names: list[str]) -> None:
    """Print counts over tables, of means over splits."""
    n_splits = len(results[RIVAL]) // len(names)

    def means(method: str) -> Floats:
        scores = [score for score, _, _ in results[method]]
        return np.reshape(scores, (len(names), n_splits)).mean(axis=1)

    for method in results:
        ahead = means(method) > means(RIVAL)
        relative = statistics.median(
            ours / theirs
            for (_, ours, _), (_, theirs, _) in zip(results[method], results[RIVAL], strict=True)
        )
        warned = sum(warned for _, _, warned in results[method])
        behind = ", ".join(
            name for name, is_ahead in zip(names, ahead, strict=True) if not is_ahead
        )
        print(
            f"{method:30s} ahead on {ahead.sum():2d} of {len(names)}; time over the rival's "
            f"{relative:5.2f}; {warned} of {len(results[method])} fits warned; not on: {behind}"
        )
        if GRID in results and method not in (RIVAL, GRID):
            near = np.count_nonzero(means(method) > means(GRID) - NEARLY)
            print(f"{'':30s} at most {NEARLY} below the best of the grid on {near} of {len(names)}")


def main() -> None:
    """Run everything, print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [*TABLES, *CURVES]
    parser.add_argument("--tables", nargs="+", choices=known, default=known)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    methods = list(dict.fromkeys([RIVAL, *options.methods]))
    results: dict[str, list[Result]] = {method: [] for method in methods}
    names = []
    for name in options.tables:
        table = None if name in CURVES else read_table(name)
        if name not in CURVES and table is None:
            print(f"{name}: not found, SKDGN_DATA must name the folder that holds uci/")
            continue
        names.append(name)
        for seed in range(options.first_seed, options.first_seed + options.splits):
            if table is None:
                train, test = CURVES[name](seed), CURVES[name](seed + 10_000)
            else:
                train, test = split(table, seed)
            print(f"{name} {train.shape}, split {seed}")
            for method in methods:
                result, text = run(METHODS[method], train, test, seed)
                results[method].append(result)
                print(f"    {method:30s} {text}", flush=True)
    if names:
        report(results, names)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
