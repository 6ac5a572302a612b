"""Regression on eight UCI tables: negative log-likelihood, CRPS, coverage and width of intervals.

Splits of 90 % and 10 % of the samples; the first 5,000 samples of large tables.  Of either part all
methods get the same: at most 200 to be judged by, and to train with as many as --samples says.
Targets are standardized for the fit, and figures are in units of the target (as published ones
are).  CRPS is twice the mean pinball loss over the levels 0.05, ..., 0.95, coverage and width are
those of central 90 % intervals.  Then once more with 30 % of the inputs missing, in training and
test: our estimator takes them as they are, all others get them from `IterativeImputer`.

    SKDGN_DATA=<folder with uci/> python benchmarks/regression.py [--splits 10] [--only NAME ...]

Rivals: a Gaussian process, quantile gradient boosting, and Gaussian mixture regression with the
number of components by BIC.  The Gaussian process takes the cube of its samples, and gets the
first 500 of them.
"""

from __future__ import annotations

import argparse
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

# Log densities (n,) of the targets, and quantiles (19, n).
Answer = tuple[np.ndarray, np.ndarray]
Method = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int], Answer]


def read_table(name: str, folder: Path) -> np.ndarray:
    """Read a table, the target last."""
    if name == "red wine":
        table = np.loadtxt(folder / "winequality-red.csv", delimiter=",")
    else:
        table = np.loadtxt(folder / f"{name}.csv.gz", delimiter=",")
    return table[:MOST_SAMPLES]


def ours(regressor: DGNRegressor) -> Method:
    def answer(X: np.ndarray, y: np.ndarray, new: np.ndarray, target: np.ndarray, seed: int):
        regressor.set_params(random_state=seed).fit(X, y)
        return regressor.score_samples(new, target), regressor.predict_quantiles(new, LEVELS)

    return answer


def gaussian_process(X, y, new, target, seed: int) -> Answer:
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    X, y = X[:MOST_PROCESS_SAMPLES], y[:MOST_PROCESS_SAMPLES]
    process = GaussianProcessRegressor(kernel, random_state=seed).fit(X, y)
    mean, deviation = process.predict(new, return_std=True)
    return norm.logpdf(target, mean, deviation), norm.ppf(LEVELS[:, None], mean, deviation)


def boosting(X, y, new, target, seed: int) -> Answer:
    found = [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=level, max_iter=100, random_state=seed
        )
        .fit(X, y)
        .predict(new)
        for level in LEVELS
    ]
    return np.full(len(new), np.nan), np.sort(found, axis=0)


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
    return log_density, 0.5 * (low + high)


METHODS: dict[str, Method] = {
    "skdgn": ours(DGNRegressor()),
    "process": gaussian_process,
    "boosting": boosting,
    "mixture": mixture_regression,
}


def judge(answer: Answer, target: np.ndarray, unit: float) -> list[float]:
    """Negative log-likelihood, CRPS, coverage and width, in units of the target."""
    log_density, quantiles = answer
    error = target - quantiles
    pinball = np.maximum(LEVELS[:, None] * error, (LEVELS[:, None] - 1.0) * error)
    covered = np.mean((target >= quantiles[0]) & (target <= quantiles[-1]))
    return [
        float(np.log(unit) - log_density.mean()),
        float(2.0 * unit * pinball.mean()),
        float(covered),
        float(unit * (quantiles[-1] - quantiles[0]).mean()),
    ]


def run(table: np.ndarray, missing: float, n_training: int, seeds: range) -> dict[str, np.ndarray]:
    """Figures of every method: (n_splits, 5), the last one seconds of processor time."""
    results: dict[str, list[list[float]]] = {name: [] for name in METHODS}
    for seed in seeds:
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
        for name, method in METHODS.items():
            table_used = inputs if name == "skdgn" else filled
            started = time.process_time()
            answer = method(
                table_used[training], scaled[training], table_used[new], scaled[new], seed
            )
            figures = judge(answer, scaled[new], unit)
            results[name].append([*figures, time.process_time() - started])
    return {name: np.array(values) for name, values in results.items()}


def main() -> None:
    """Print a line for every table and method."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=TABLES, help="names of tables")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the first split")
    parser.add_argument("--samples", type=int, default=MOST_SAMPLES, help="to train with, at most")
    arguments = parser.parse_args()
    # Few iterations on purpose; tables with ties; kernels at their bounds.
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    if "SKDGN_DATA" not in os.environ:
        print("Set SKDGN_DATA to a folder with uci/*.csv.gz to run this benchmark.")
        return
    folder = Path(os.environ["SKDGN_DATA"]) / "uci"
    seeds = range(arguments.seed, arguments.seed + arguments.splits)
    wins = {"coverage": 0, "CRPS": 0, "coverage, missing": 0, "CRPS, missing": 0}
    coverage_errors: dict[bool, dict[str, list[float]]] = {False: {}, True: {}}
    n_tables = 0
    for name in arguments.only:
        table = read_table(name, folder)
        n_tables += 1
        for missing in (0.0, MISSING):
            results = run(table, missing, arguments.samples, seeds)
            print(f"{name}, {len(table)} samples, {missing:.0%} of the inputs missing")
            print(f"{'':10s}{'NLL':>9s}{'CRPS':>9s}{'coverage':>10s}{'width':>9s}{'seconds':>9s}")
            means = {method: values.mean(axis=0) for method, values in results.items()}
            for method, (nll, crps, coverage, width, seconds) in means.items():
                print(
                    f"{method:10s}{nll:9.3f}{crps:9.3f}{coverage:10.1%}{width:9.3f}{seconds:9.1f}"
                )
            best = min(means, key=lambda method: means[method][1])
            closest = min(means, key=lambda method: abs(means[method][2] - 0.9))
            print(f"best CRPS: {best}; coverage closest to 90 %: {closest}", flush=True)
            errors = {method: abs(values[2] - 0.9) for method, values in means.items()}
            for method, error in errors.items():
                coverage_errors[missing > 0].setdefault(method, []).append(error)
            wins["CRPS, missing" if missing else "CRPS"] += best == "skdgn"
            wins["coverage, missing" if missing else "coverage"] += closest == "skdgn"
    for title, count in wins.items():
        print(f"{title}: ours best on {count} of {n_tables} tables")
    for is_missing, found in coverage_errors.items():
        line = ", ".join(f"{method} {np.mean(values):.1%}" for method, values in found.items())
        print(f"mean error of coverage{', missing' if is_missing else ''}: {line}")


if __name__ == "__main__":
    main()
