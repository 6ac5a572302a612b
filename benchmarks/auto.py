"""Sizes that find themselves, beside a Gaussian mixture chosen by BIC and grids of sizes.

    SKDGN_DATA=<folder with uci/> python benchmarks/auto.py [--tables glass ...] [--splits 1]

The tables and splits of `densities.py`, and curves of 1,000 samples.  The rival is what a user of
scikit-learn does: `GaussianMixture` with 1 to 20 components, full or diagonal, the lowest BIC.
A grid takes long: mixtures of 1 to 16 networks with 0 to 16 hidden units, or single networks with
one or two latent dimensions, of which the best *on the held-out samples* counts, as no user can
choose, or the one of lowest BIC.  Ours are left at their defaults, but for what the name says.

Printed for each are the mean log density of held-out samples, processor seconds of the whole
search, and the sizes chosen; at the end, over means of splits, on how many tables each is ahead of
the rival and near the grid, the median of times, and how many fits warned that they had not
converged.  Results are kept in the file given by --results, and runs go on where the last one
ended.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
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
# A score so little below the best of the grid is as good, and one so little below that of BIC.
NEARLY, NEARLY_BIC = 0.03, 0.02
KINDS = ("full", "diag")
CURVES: dict[str, Callable[[int], Floats]] = {
    "circle": lambda seed: make_noisy_circle(N_SAMPLES, random_state=seed),
    "spiral": lambda seed: make_spiral(N_SAMPLES, random_state=seed),
    "wave": lambda seed: make_wave(N_SAMPLES, random_state=seed),
    "S-curve": lambda seed: make_s_curve(N_SAMPLES, noise=0.1, random_state=seed)[0],
    "two moons": lambda seed: make_moons(N_SAMPLES, noise=0.1, random_state=seed)[0],
}
Trial = dict[str, Any]  # of a fit: score, BIC, seconds, sizes, whether it warned


def gaussians(n_samples: int) -> Iterable[Any]:
    """Gaussian mixtures as a user would try them."""
    numbers = range(1, min(MOST_COMPONENTS, n_samples // 2) + 1)
    for kind, number in itertools.product(KINDS, numbers):
        yield GaussianMixture(number, covariance_type=kind)


def mixtures(n_samples: int) -> Iterable[Any]:
    """Mixtures of networks of all sizes."""
    for kind, units, number in itertools.product(KINDS, ((), 4, 8, 16), (1, 2, 4, 8, 16)):
        if number <= n_samples // 10:
            network = PiecewiseAffineDGN(hidden_layer_sizes=units, covariance_type=kind)
            yield DGNMixture(network, number)


def networks(n_samples: int) -> Iterable[Any]:
    """Single networks of all sizes."""
    for kind, units, latent in itertools.product(KINDS, ((), 4, 8, 16, 32), (1, 2)):
        yield PiecewiseAffineDGN(latent, hidden_layer_sizes=units, covariance_type=kind)


RIVAL, GRID, SINGLES = "GaussianMixture", "grid of mixtures", "grid of networks"
SEARCHES: dict[str, Callable[[int], Iterable[Any]]] = {
    RIVAL: gaussians,
    GRID: mixtures,
    SINGLES: networks,
}
OURS: dict[str, Callable[[], Any]] = {
    "DGNMixture": DGNMixture,
    "DGNMixture by BIC": lambda: DGNMixture(criterion="bic"),
    "DGNMixture, no average": lambda: DGNMixture(n_averaged=1),
    "DGNMixture of 4": lambda: DGNMixture(n_networks=4),
    "PiecewiseAffineDGN": PiecewiseAffineDGN,
    "PiecewiseAffineDGN, full noise": lambda: PiecewiseAffineDGN(covariance_type="full"),
    "PiecewiseAffineDGN auto": lambda: PiecewiseAffineDGN(
        hidden_layer_sizes="auto", covariance_type="auto"
    ),
    "PiecewiseAffineDGN auto, 1 or 2 latent": lambda: PiecewiseAffineDGN(
        "auto", hidden_layer_sizes="auto", covariance_type="auto"
    ),
}


def run(model: Any, train: Floats, test: Floats, seed: int) -> Trial:
    """Fit and judge one model."""
    model.set_params(random_state=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = time.process_time()
        model.fit(train)
        seconds = time.process_time() - started
    return {
        "score": float(model.score(test)),
        "bic": float(model.bic(train)),
        "seconds": seconds,
        "warned": any(issubclass(own.category, ConvergenceWarning) for own in caught),
        "sizes": describe(model),
    }


def describe(model: Any) -> str:
    """Say which sizes a model has."""
    if isinstance(model, GaussianMixture):
        return f"{model.n_components} {model.covariance_type}"
    parts = model.networks_ if isinstance(model, DGNMixture) else [model]
    latent = parts[0].coefs_[0].shape[1]
    units = sorted(sum(len(own) for own in network.intercepts_[:-1]) for network in parts)
    return f"{noise_of(parts[0])}, {latent} latent, hidden units {units}"


def noise_of(network: PiecewiseAffineDGN) -> str:
    """Say which noise a network has."""
    return {0: "spherical", 1: "diag", 2: "full"}[np.ndim(network.noise_covariance_)]


def fit_chosen(model: DGNMixture, train: Floats, seed: int) -> float:
    """Fit as many networks, with as many units on average, from scratch; return seconds."""
    parts = model.networks_
    units = round(np.mean([sum(map(len, own.intercepts_[:-1])) for own in parts]))
    network = PiecewiseAffineDGN(
        hidden_layer_sizes=(units,) * (units > 0), covariance_type=noise_of(parts[0])
    )
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        DGNMixture(network, len(parts), random_state=seed).fit(train)
    return time.process_time() - started


def run_method(method: str, train: Floats, test: Floats, seed: int) -> list[Trial]:
    """Fit all models of a search, or ours."""
    if method in SEARCHES:
        return [run(model, train, test, seed) for model in SEARCHES[method](len(train))]
    model = OURS[method]()
    trial = run(model, train, test, seed)
    if method == "DGNMixture":
        trial["seconds of the chosen size"] = fit_chosen(model, train, seed)
    return [trial]


def by_bic(trials: list[Trial]) -> Trial:
    """Choose as a user would."""
    return min(trials, key=lambda trial: trial["bic"])


def by_score(trials: list[Trial]) -> Trial:
    """Choose as no user can."""
    return max(trials, key=lambda trial: trial["score"])


def contestants(method: str) -> list[tuple[str, Callable[[list[Trial]], Trial]]]:
    """What a method is called, by how it is chosen from its trials."""
    if method == RIVAL:
        return [(f"{RIVAL} by BIC", by_bic)]
    if method in SEARCHES:
        return [(f"{method}, the best", by_score), (f"{method} by BIC", by_bic)]
    return [(method, by_score)]


Entry = tuple[Trial, float]  # what was chosen, and seconds of all


def report(results: dict[str, dict[str, list[Entry]]]) -> None:
    """Print counts over tables, of means over splits; entries by contestant and table."""
    rival = results[f"{RIVAL} by BIC"]

    def mean(entries: list[Entry]) -> float:
        return statistics.mean(trial["score"] for trial, _ in entries)

    def behind(own: dict[str, list[Entry]], other: str, margin: float) -> str:
        far = {
            name: gap
            for name in own
            if (gap := mean(own[name]) - mean(results[other][name])) <= -margin
        }
        listed = ", ".join(f"{name} {gap:.3f}" for name, gap in far.items())
        return f"on {len(own) - len(far)} of {len(own)}; not on: {listed or 'none'}"

    def ratio(own: dict[str, list[Entry]], other: Callable[[str, int], float]) -> str:
        ratios = [
            entry[1] / other(name, place)
            for name, entries in own.items()
            for place, entry in enumerate(entries)
        ]
        return f"{statistics.median(ratios):.2f}, at most {max(ratios):.2f}"

    for method, own in results.items():
        trials = [trial for entries in own.values() for trial, _ in entries]
        warned = sum(trial["warned"] for trial in trials)
        print(f"{method}: {warned} of {len(trials)} warned")
        print(f"    ahead of the Gaussian mixture {behind(own, f'{RIVAL} by BIC', 0.0)}")
        print(f"    time over its search {ratio(own, lambda name, k: rival[name][k][1])}")
        for grid in (GRID, SINGLES):
            best, choice = f"{grid}, the best", f"{grid} by BIC"
            if best not in results or method.startswith(grid):
                continue
            print(f"    near the best of the {grid} {behind(own, best, NEARLY)}")
            print(f"    near its choice by BIC {behind(own, choice, NEARLY_BIC)}")
            search = results[best]
            print(f"    time over that grid {ratio(own, lambda name, k, s=search: s[name][k][1])}")
        key = "seconds of the chosen size"
        if all(key in trial for trial in trials):
            fits = {name: [trial[key] for trial, _ in entries] for name, entries in own.items()}
            print(f"    over a fit of that size {ratio(own, lambda n, k, f=fits: f[n][k])}")


def main() -> None:
    """Run what has not been run, print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known, methods = [*TABLES, *CURVES], [*SEARCHES, *OURS]
    parser.add_argument("--tables", nargs="+", choices=known, default=known)
    parser.add_argument("--methods", nargs="+", choices=methods, default=methods)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=None, help="JSON file to go on with")
    options = parser.parse_args()
    kept: dict[str, list[Trial]] = {}
    if options.results is not None and options.results.exists():
        kept = json.loads(options.results.read_text())
    results: dict[str, dict[str, list[Entry]]] = {}
    for name in options.tables:
        table = None if name in CURVES else read_table(name)
        if name not in CURVES and table is None:
            print(f"{name}: not found, SKDGN_DATA must name the folder that holds uci/")
            continue
        for seed in range(options.first_seed, options.first_seed + options.splits):
            if table is None:
                train, test = CURVES[name](seed), CURVES[name](seed + 10_000)
            else:
                train, test = split(table, seed)
            print(f"{name} {train.shape}, split {seed}")
            for method in dict.fromkeys([RIVAL, *options.methods]):
                key = f"{name}, {seed}, {method}"
                if key not in kept:
                    kept[key] = run_method(method, train, test, seed)
                    if options.results is not None:
                        options.results.write_text(json.dumps(kept, indent=1))
                total = sum(trial["seconds"] for trial in kept[key])
                for title, choose in contestants(method):
                    own = choose(kept[key])
                    results.setdefault(title, {}).setdefault(name, []).append((own, total))
                    text = f"{own['score']:8.3f} {total:7.2f} s {own['sizes']}"
                    print(f"    {title:40s} {text}", flush=True)
    if results:
        report(results)


def compile_kernels() -> None:
    """Fit a little of everything: what is compiled the first time is nobody's time."""
    rows = np.random.default_rng(0).normal(size=(40, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, latent in itertools.product(KINDS, (1, 2)):
            network = PiecewiseAffineDGN(latent, hidden_layer_sizes=4, covariance_type=kind)
            DGNMixture(network, 2, max_iter=2).fit(rows).score(rows)
            network.set_params(max_iter=2).fit(rows)


if __name__ == "__main__":
    with threadpool_limits(1):
        compile_kernels()
        main()
