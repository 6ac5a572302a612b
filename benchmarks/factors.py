"""Noise of low rank against Gaussian mixtures, factor analysis and full noise, on wide tables.

    SKDGN_DATA=<folder with uci/ and mnist/> python benchmarks/factors.py [digits tables cost mnist]

``digits``: scikit-learn's digits / 16 with uniform dequantization, 1,300 for training and 497 held
out; sizes are chosen by 300 of the 1,300.  ``tables``: tables of 30 to 90 columns and few rows,
five splits, 80/20, in units of the training part's deviations, ties broken by noise of 0.01; sizes
by two halves of the training part, for everybody alike.  ``cost``: seconds of an E-step over those
of diagonal noise.  ``mnist``: 10,000 images, dequantized, against probabilistic PCA and a mixture
of factor analyzers, and their lower halves imputed.  Figures are mean log
densities in nats, held out.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import KNNImputer
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold, train_test_split
from threadpoolctl import threadpool_limits

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._fit.em.loop import Problem
from skdgn._fit.m_step.weight_priors import WeightPrior
from skdgn._network import Activation, Network
from skdgn._noise import Noise
from skdgn._runtime import Workers

Floats = NDArray[np.float64]

TIES = 0.01
N_SPLITS = 5
# Files of SKDGN_DATA, columns that are features, and lines before the first row.
FILES = {
    "sonar": ("sonar.csv", tuple(range(60)), 0),
    "ionosphere": ("ionosphere.csv", tuple(range(2, 34)), 0),
    "libras": ("libras.csv", tuple(range(1, 91)), 1),
}


def mixture(
    n_networks: int | str,
    n_factors: int,
    n_units: int,
    prior_weight: float | str,
    reg_covar: float = 1e-6,
    **parameters: Any,
) -> DGNMixture:
    """Make a mixture of networks with factors; without hidden units, of factor analyzers.

    If their number is ``"auto"``, it is an average of mixtures of up to eight sizes.
    """
    network = PiecewiseAffineDGN(
        hidden_layer_sizes=(n_units,) if n_units else (),
        covariance_type="factor",
        n_factors=n_factors,
        reg_covar=reg_covar,
    )
    return DGNMixture(
        network,
        n_networks,
        noise_prior_weight=prior_weight,
        **{"refine": False, "tol": 1e-2, "random_state": 0, **parameters},
    )


def choose(candidates: Iterable[Any], train: Floats, folds: Iterable[Any]) -> Any:
    """Return the candidate that scores best on samples that were held out of its fits."""
    folds = list(folds)

    def score(model: Any) -> float:
        return float(
            np.mean([clone(model).fit(train[fit]).score(train[held]) for fit, held in folds])
        )

    return max(candidates, key=score)


def run_digits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    digits = load_digits().data
    X = (digits + rng.uniform(size=digits.shape)) / 16.0
    order = rng.permutation(len(X))
    train, test = X[order[:1300]], X[order[1300:]]
    fold = [(np.arange(1000), np.arange(1000, 1300))]
    print(f"factor analysis: {FactorAnalysis(20).fit(train).score(test):.2f}")
    rivals = {
        "Gaussian mixture": [
            GaussianMixture(n, covariance_type=kind, reg_covar=regularization, random_state=0)
            for kind, numbers in {"full": (1, 2, 4, 8, 16), "tied": (4, 10, 20)}.items()
            for n in numbers
            for regularization in (1e-6, 1e-3)
        ],
        "mixture of factor analyzers": [
            mixture(n, k, 0, weight) for n in (10, 16) for k in (9, 13) for weight in (16.0, "auto")
        ],
        "mixture of networks with factors": [
            mixture(n, k, 2, weight) for n in (10, 16) for k in (8, 12) for weight in (16.0, "auto")
        ],
        "average of mixtures of factor analyzers": [
            mixture("auto", k, 0, weight) for k in (13, 17) for weight in (16.0, "auto")
        ],
        "average of mixtures of networks with factors": [
            mixture("auto", k, 2, weight) for k in (12, 16) for weight in (16.0, "auto")
        ],
    }
    for name, candidates in rivals.items():
        began = time.process_time()
        best = choose(candidates, train, fold)
        score = clone(best).fit(train).score(test)
        seconds = time.process_time() - began
        print(f"{name}: {score:.2f}  ({describe(best)}; {seconds:.0f} s)", flush=True)


def describe(model: Any) -> str:
    """Say which sizes were chosen."""
    if isinstance(model, DGNMixture):
        network = model.estimator
        return (
            f"{model.n_networks} networks, {network.n_factors} factors, units "
            f"{network.hidden_layer_sizes}, prior weight {model.noise_prior_weight}, reg_covar "
            f"{network.reg_covar}"
        )
    return f"{model.n_components} {model.covariance_type}, reg_covar {model.reg_covar}"


def read_table(name: str) -> Floats | None:
    """Read a table; None if it is not at hand."""
    if name == "breast cancer":
        return np.asarray(load_breast_cancer().data)
    file, columns, n_lines = FILES[name]
    path = Path(os.environ.get("SKDGN_DATA", "no folder"), "uci", file)
    if not path.is_file():
        return None
    return np.loadtxt(path, delimiter=",", usecols=columns, skiprows=n_lines)


def run_tables(names: Sequence[str], prior_weights: Sequence[str], seeds: Iterable[int]) -> None:
    for name in names:
        X = read_table(name)
        if X is None:
            print(f"{name}: not in the folder named by SKDGN_DATA")
            continue
        scores: dict[str, list[float]] = {}
        for seed in seeds:
            parts = train_test_split(X, test_size=0.2, random_state=seed)
            center, deviations = parts[0].mean(axis=0), parts[0].std(axis=0)
            deviations = np.where(deviations > 0.0, deviations, 1.0)
            rng = np.random.default_rng(seed)
            train, test = (
                (part - center) / deviations + TIES * rng.normal(size=part.shape) for part in parts
            )
            folds = list(KFold(2, shuffle=True, random_state=0).split(train))
            for method, candidates in methods_for_tables(prior_weights).items():
                best = choose(candidates, train, folds)
                score = clone(best).fit(train).score(test)
                scores.setdefault(method, []).append(score)
                print(f"  {name} {seed} {method}: {score:.2f} ({describe(best)})", flush=True)
        means = ", ".join(f"{method} {np.mean(own):.2f}" for method, own in scores.items())
        print(f"{name} {X.shape}: {means}", flush=True)


def methods_for_tables(prior_weights: Sequence[str]) -> dict[str, list[Any]]:
    """Return the candidates of every method."""
    gaussians = {
        f"{kind} Gaussian mixture": [
            GaussianMixture(n, covariance_type=kind, reg_covar=regularization, random_state=0)
            for n in (1, 2, 3, 4, 6, 8, 12)
            for regularization in (1e-6, 1e-3, 1e-2, 1e-1)
        ]
        for kind in ("full", "diag", "tied")
    }
    ours = [
        mixture(n, k, units, weight if weight == "auto" else float(weight), regularization)
        for weight in prior_weights
        for n in (1, 2, 4)
        for k in (6, 16, 40)
        for units in (0, 2)
        for regularization in (1e-6, 1e-1)
    ]
    averages = [mixture("auto", k, 0, "auto", 1e-3) for k in (6, 16, 40)]
    return {**gaussians, "networks with factors": ours, "averages of mixtures": averages}


def run_cost() -> None:
    print("seconds of an E-step, 2,000 samples, S = 1, 4 hidden units: diag, 10 factors, ratio")
    for n_features in (50, 200, 784):
        rng = np.random.default_rng(0)
        network = Network.from_arrays(
            [rng.normal(size=(4, 1)), rng.normal(size=(n_features, 4))],
            [rng.normal(size=4), rng.normal(size=n_features)],
            [Activation.from_name("leaky_relu", 0.1)],
        )
        variances = rng.uniform(0.5, 1.5, n_features)
        loadings = rng.normal(size=(n_features, 10))
        rows = network.forward(rng.normal(size=(2000, 1)))
        rows += rng.normal(size=(2000, 10)) @ loadings.T + rng.normal(size=rows.shape)
        seconds = []
        for covariance in (variances, (loadings, variances)):
            noise = Noise.from_covariance(covariance, n_features)
            problem = Problem(
                rows,
                np.ones(len(rows)),
                noise.covariance_type,
                noise.n_factors,
                np.full(n_features, 1e-6),
                WeightPrior(None, 1.0, np.ones(n_features)),
                1000,
                Workers(),
            )
            seconds.append(least_seconds(partial(problem.evaluate, network, noise)))
        ratio = seconds[1] / seconds[0]
        print(f"D = {n_features}: {seconds[0]:.4f}, {seconds[1]:.4f}, {ratio:.2f}", flush=True)


def least_seconds(call: Callable[[], object]) -> float:
    """Processor seconds of a call, the least of several."""
    call()
    times = []
    for _ in range(5):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def read_images(kind: str) -> Floats | None:
    folder = Path(os.environ.get("SKDGN_DATA", "no folder")) / "mnist"
    path = folder / f"{kind}-images-idx3-ubyte.gz"
    if not path.is_file():
        return None
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784).astype(float)


def run_mnist(n_networks: int, n_train: int, n_iterations: int, seed: int) -> None:
    images = read_images("train"), read_images("t10k")
    if images[0] is None or images[1] is None:
        print("mnist: not in the folder named by SKDGN_DATA")
        return
    rng = np.random.default_rng(seed)
    chosen = [images[0][rng.permutation(60_000)[:n_train]], images[1][:1000]]
    train, test = ((part + rng.uniform(size=part.shape)) / 256.0 for part in chosen)
    half = test[:200].copy()
    half[:, 392:] = np.nan

    def report(name: str, score: float, filled: Floats, seconds: float) -> None:
        error = np.mean((filled[:, 392:] - test[:200, 392:]) ** 2)
        bits = 8.0 - score / (784.0 * np.log(2.0))
        print(
            f"{name}: {score:.1f} nats, {bits:.3f} bits per pixel, error of imputed values "
            f"{error:.4f}, {seconds:.0f} s",
            flush=True,
        )

    began = time.process_time()
    pca = PCA(100, random_state=0).fit(train)
    report(
        "probabilistic PCA", pca.score(test), fill_by_pca(pca, half), time.process_time() - began
    )
    began = time.process_time()
    neighbors = KNNImputer(n_neighbors=5).fit(train[:2000])
    filled = neighbors.transform(half)
    error = np.mean((filled[:, 392:] - test[:200, 392:]) ** 2)
    print(f"5 nearest neighbors of 2,000: error of imputed values {error:.4f}", flush=True)
    for name, units, factors in (
        ("mixture of factor analyzers", 0, 9),
        ("networks with factors", 2, 10),
    ):
        began = time.process_time()
        model = mixture(n_networks, factors, units, 16.0, max_iter=n_iterations, tol=1.0)
        model.set_params(init_params="kmeans").fit(train)
        seconds = time.process_time() - began
        report(name, model.score(test), model.impute(half), seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"memory of this process: {peak:.2f} GB")


def fill_by_pca(pca: PCA, rows: Floats) -> Floats:
    """Fill in missing values, the same of all rows, by their conditional means."""
    observed = ~np.isnan(rows[0])
    loadings = pca.components_.T * np.sqrt(pca.explained_variance_ - pca.noise_variance_)
    known = loadings[observed]
    precision = pca.noise_variance_ * np.eye(known.shape[1]) + known.T @ known
    latent = np.linalg.solve(precision, known.T @ (rows[:, observed] - pca.mean_[observed]).T)
    return np.where(observed, rows, pca.mean_ + latent.T @ loadings.T)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ["digits", "tables", "cost", "mnist"]
    parser.add_argument("parts", nargs="*", default=parts, choices=parts)
    tables = [*FILES, "breast cancer"]
    parser.add_argument("--tables", nargs="+", default=tables, choices=tables)
    parser.add_argument("--prior-weights", nargs="+", default=["auto"], help="tried on tables")
    parser.add_argument("--networks", type=int, default=32, help="of the mixtures for mnist")
    parser.add_argument("--images", type=int, default=10_000, help="for training")
    parser.add_argument("--iterations", type=int, default=6, help="of the mixtures for mnist")
    parser.add_argument("--first-seed", type=int, default=0, help="of splits and dequantization")
    parser.add_argument("--splits", type=int, default=N_SPLITS, help="of the tables")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.splits)
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", "The noise of feature", UserWarning)
    with threadpool_limits(limits=1):
        for part in options.parts:
            print(f"-- {part}")
            if part == "mnist":
                run_mnist(options.networks, options.images, options.iterations, options.first_seed)
            elif part == "tables":
                run_tables(options.tables, options.prior_weights, seeds)
            elif part == "digits":
                run_digits(options.first_seed)
            else:
                run_cost()


if __name__ == "__main__":
    main()
