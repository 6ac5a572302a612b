"""Time and held-out density beside scikit-learn's density estimators, on two tables.

    python benchmarks/compare.py

Breast cancer (scikit-learn's: 569 rows, 30 features) and a noisy spiral (1,000 rows, 2 features),
both standardized, a third of the rows held out.  Everybody's size is chosen by cross-validated
likelihood on the other two thirds.  Seconds are processor time on one thread: one fit at that
size, and `score_samples` of 1,000 rows; kernels were compiled before.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.neighbors import KernelDensity
from threadpoolctl import threadpool_limits

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn.datasets import make_spiral

N_REPEATS = 3
N_FOLDS = 3

REGULARIZATION = 1e-3
TABLES = {
    "breast cancer": load_breast_cancer().data,
    "spiral": make_spiral(1000, random_state=0),
}
RIVALS: dict[str, tuple[Any, list[dict[str, list[Any]]]]] = {
    "PiecewiseAffineDGN": (
        PiecewiseAffineDGN(covariance_type="full", reg_covar=REGULARIZATION, random_state=0),
        [{"hidden_layer_sizes": [(), (4,), (8,), (16,), (32,), (48,)]}],
    ),
    "DGNMixture": (DGNMixture(random_state=0), [{}]),  # finds its sizes
    "GaussianMixture": (
        GaussianMixture(reg_covar=REGULARIZATION, random_state=0),
        [
            {
                "n_components": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32],
                "covariance_type": ["full", "diag"],
            }
        ],
    ),
    "FactorAnalysis": (FactorAnalysis(random_state=0), [{"n_components": [1, 2, 4, 8, 12, 16]}]),
    "KernelDensity": (KernelDensity(), [{"bandwidth": np.geomspace(0.03, 2.0, 14).round(3)}]),
}


def seconds(task: Callable[[], object]) -> float:
    """Processor time of a task, best of several."""
    times = []
    for _ in range(N_REPEATS):
        start = time.process_time()
        task()
        times.append(time.process_time() - start)
    return min(times)


def mean_log_density(estimator: Any, X: Any, y: None = None) -> float:
    """Score everybody alike; KernelDensity's own `score` is a sum."""
    return float(estimator.score_samples(X).mean())


def compare(table: Any) -> None:
    """Choose sizes, measure, print."""
    train, test = train_test_split(table, test_size=1 / 3, random_state=0)
    center, scale = train.mean(axis=0), train.std(axis=0)
    train, test = (train - center) / scale, (test - center) / scale
    many = np.resize(test, (1000, test.shape[1]))
    print(f"{len(train)} rows to fit, {len(test)} held out, {table.shape[1]} features")
    print(f"{'':20s} {'fit, s':>8s} {'score, s':>8s} {'held-out log density':>21s}  chosen")
    for name, (estimator, grid) in RIVALS.items():
        folds = KFold(N_FOLDS, shuffle=True, random_state=0)
        search = GridSearchCV(estimator, grid, cv=folds, scoring=mean_log_density)
        with warnings.catch_warnings():
            # A candidate that has not converged may lose; that is no news.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = search.fit(train).best_estimator_
            fit = seconds(lambda model=model: clone(model).fit(train))
        score = seconds(lambda model=model: model.score_samples(many))
        chosen = ", ".join(f"{key}={value}" for key, value in search.best_params_.items())
        held_out = mean_log_density(model, test)
        print(f"{name:20s} {fit:8.3f} {score:8.4f} {held_out:21.2f}  {chosen}", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        for title, rows in TABLES.items():
            print(f"\n{title}")
            compare(rows)
