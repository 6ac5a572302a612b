"""Regression on eight UCI tables: negative log-likelihood, CRPS, coverage and width of intervals.

Splits of 90 % and 10 % of the samples; the first 5,000 samples of large tables.  Of either part all
methods get the same: at most 200 to be judged by, and to train with as many as --samples says.
Targets are standardized for the fit, and figures are in units of the target (as published ones
are).  CRPS is twice the mean pinball loss over the levels 0.05, ..., 0.95, coverage and width are
those of central 90 % intervals.  Then once more with 30 % of the inputs missing, in training and
test: our estimator takes them as they are, all others get them from `IterativeImputer`.

    SKDGN_DATA=<folder with uci/> python benchmarks/regression.py [--splits 10] [--only NAME ...]

Ours is `DGNRegressor()`; its intervals are calibrated by the training samples that five folds, or
as many of them as have 500 samples, hold out of further fits.  Rivals: a Gaussian process, quantile
gradient boosting, and Gaussian mixture regression with the number of components by BIC.  The
Gaussian process takes the cube of its samples, and gets the first 500 of them.

Results are kept in the file given by --results, and runs go on where the last one ended.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import logsumexp, ndtr
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 (IterativeImputer needs it)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import IterativeImputer
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from skdgn import DGNRegressor

TABLES = ("concrete", "energy", "yacht", "airfoil", "housing", "red wine", "protein", "kin40k")
MOST_SAMPLES = 5000
MOST_NEW_SAMPLES = 200
MOST_PROCESS_SAMPLES = 500
LEVELS = np.linspace(0.05, 0.95, 19)
MISSING = 0.3

# Log densities (n,) of the targets, quantiles (19, n), and intervals (2, n).
Answer = tuple[np.ndarray, np.ndarray, np.ndarray]
Method = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int], Answer]


def read_table(name: str, folder: Path) -> np.ndarray:
    """Read a table, the target last."""
    if name == "red wine":
        table = np.loadtxt(folder / "winequality-red.csv", delimiter=",")
    else:
        table = np.loadtxt(folder / f"{name}.csv.gz", delimiter=",")
    return table[:MOST_SAMPLES]


def ours(X, y, new, target, seed: int) -> Answer:
    regressor = DGNRegressor(cv=5, random_state=seed).fit(X, y)
    quantiles = regressor.predict_quantiles(new, LEVELS)
    return regressor.score_samples(new, target), quantiles, regressor.predict_interval(new, 0.9).T


def gaussian_process(X, y, new, target, seed: int) -> Answer:
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    X, y = X[:MOST_PROCESS_SAMPLES], y[:MOST_PROCESS_SAMPLES]
    process = GaussianProcessRegressor(kernel, random_state=seed).fit(X, y)
    mean, deviation = process.predict(new, return_std=True)
    quantiles = norm.ppf(LEVELS[:, None], mean, deviation)
    return norm.logpdf(target, mean, deviation), quantiles, quantiles[[0, -1]]


def boosting(X, y, new, target, seed: int) -> Answer:
    found = [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=level, max_iter=100, random_state=seed
        )
        .fit(X, y)
        .predict(new)
        for level in LEVELS
    ]
    quantiles = np.sort(found, axis=0)
    return np.full(len(new), np.nan), quantiles, quantiles[[0, -1]]


def mixture_regression(X, y, new, target, seed: int) -> Answer:
    table = np.column_stack([X, y])
    mixtures = [
        GaussianMixture(n, reg_covar=1e-4, random_state=seed).fit(table) for n in (1, 2, 4, 8, 12)
    ]
    best = min(mixtures, key=lambda mixture: mixture.bic(table))
    logs, means, deviations = [], [], []
    for weight, mean, covariance in zip(best.weights_, best.means_, best.covariances_, strict=True):
        inner = covariance[:-1, :-1]
        slope = np.linalg.solve(inner, covariance[:-1, -1])
        shifted = new - mean[:-1]
        square = (shifted @ np.linalg.inv(inner) * shifted).sum(axis=1)
        logs.append(np.log(weight) - 0.5 * (square + np.linalg.slogdet(inner)[1]))
        means.append(mean[-1] + shifted @ slope)
        deviations.append(np.sqrt(covariance[-1, -1] - slope @ covariance[:-1, -1]))
    shares = np.exp(logs - logsumexp(logs, axis=0))
    means, deviations = np.array(means), np.array(deviations)[:, None]
    log_density = np.log((shares * norm.pdf(target, means, deviations)).sum(axis=0) + 1e-300)
    low = np.tile((means - 9.0 * deviations).min(axis=0), (len(LEVELS), 1))
    high = np.tile((means + 9.0 * deviations).max(axis=0), (len(LEVELS), 1))
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = (shares * ndtr((middle[:, None] - means) / deviations)).sum(axis=1)
        low = np.where(below < LEVELS[:, None], middle, low)
        high = np.where(below < LEVELS[:, None], high, middle)
    quantiles = 0.5 * (low + high)
    return log_density, quantiles, quantiles[[0, -1]]


METHODS: dict[str, Method] = {
    "skdgn": ours,
    "process": gaussian_process,
    "boosting": boosting,
    "mixture": mixture_regression,
}


def judge(answer: Answer, target: np.ndarray, unit: float) -> list[float]:
    """Negative log-likelihood, CRPS, coverage and width, in units of the target."""
    log_density, quantiles, (low, high) = answer
    error = target - quantiles
    pinball = np.maximum(LEVELS[:, None] * error, (LEVELS[:, None] - 1.0) * error)
    covered = np.mean((target >= low) & (target <= high))
    return [
        float(np.log(unit) - log_density.mean()),
        float(2.0 * unit * pinball.mean()),
        float(covered),
        float(unit * (high - low).mean()),
    ]


def run(table: np.ndarray, missing: float, n_training: int, seed: int) -> dict[str, list[float]]:
    """Figures of every method on one split, the last one seconds of processor time."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table))
    n_new = len(table) // 10
    new, training = order[:n_new][:MOST_NEW_SAMPLES], order[n_new:][:n_training]
    inputs, target = table[:, :-1].copy(), table[:, -1]
    inputs[rng.random(inputs.shape) < missing] = np.nan
    inputs = StandardScaler().fit(inputs[training]).transform(inputs)
    mean, unit = target[training].mean(), target[training].std()
    scaled = (target - mean) / unit
    filled = inputs
    if missing:
        filled = IterativeImputer(random_state=seed).fit(inputs[training]).transform(inputs)
    results = {}
    for name, method in METHODS.items():
        used = inputs if name == "skdgn" else filled
        started = time.process_time()
        answer = method(used[training], scaled[training], used[new], scaled[new], seed)
        figures = judge(answer, scaled[new], unit)
        results[name] = [*figures, time.process_time() - started]
    return results


def show(results: dict[str, dict[str, dict[str, list[float]]]]) -> None:
    """Print means over the splits of each table, who is best, and errors of coverage."""
    errors: dict[str, dict[str, list[float]]] = {}
    best: dict[str, list[str]] = {}
    for title, of_seeds in results.items():
        print(f"{title}, {len(of_seeds)} splits")
        print(f"{'':10s}{'NLL':>9s}{'CRPS':>9s}{'coverage':>10s}{'width':>9s}{'seconds':>9s}")
        means = {m: np.mean([found[m] for found in of_seeds.values()], axis=0) for m in METHODS}
        for method, (nll, crps, coverage, width, seconds) in means.items():
            print(f"{method:10s}{nll:9.3f}{crps:9.3f}{coverage:10.1%}{width:9.3f}{seconds:9.1f}")
        condition = title.split(", ")[1]
        best.setdefault(condition, []).append(min(means, key=lambda method: means[method][1]))
        for method, values in means.items():
            of_method = errors.setdefault(condition, {}).setdefault(method, [])
            of_method.append(abs(values[2] - 0.9))
    for condition, found in errors.items():
        wins = ", ".join(f"{m} {best[condition].count(m)}" for m in METHODS)
        print(f"best CRPS, {condition} (of {len(best[condition])} tables): {wins}")
        line = ", ".join(f"{method} {np.mean(values):.1%}" for method, values in found.items())
        print(f"mean error of coverage, {condition}: {line}")


def main() -> None:
    """Run what has not been run, print everything."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=TABLES, help="names of tables")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the first split")
    parser.add_argument("--samples", type=int, default=MOST_SAMPLES, help="to train with, at most")
    parser.add_argument("--results", type=Path, default=None, help="JSON file to go on with")
    arguments = parser.parse_args()
    # Few iterations on purpose; tables with ties; kernels at their bounds.
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    if "SKDGN_DATA" not in os.environ:
        print("Set SKDGN_DATA to a folder with uci/*.csv.gz to run this benchmark.")
        return
    folder = Path(os.environ["SKDGN_DATA"]) / "uci"
    results: dict[str, dict[str, dict[str, list[float]]]] = {}
    if arguments.results is not None and arguments.results.exists():
        results = json.loads(arguments.results.read_text())
    for seed in range(arguments.seed, arguments.seed + arguments.splits):
        for name in arguments.only:
            for missing in (MISSING, 0.0):
                of_seeds = results.setdefault(f"{name}, {missing:.0%} of the inputs missing", {})
                if str(seed) in of_seeds:
                    continue
                table = read_table(name, folder)
                of_seeds[str(seed)] = run(table, missing, arguments.samples, seed)
                print(name, missing, seed, of_seeds[str(seed)], flush=True)
                if arguments.results is not None:
                    arguments.results.write_text(json.dumps(results, indent=1))
    show(results)


if __name__ == "__main__":
    main()
