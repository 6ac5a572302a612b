"""Outlier detection on ADBench's tables: ROC AUC beside other detectors and a published table.

Protocol of the table (Livernoche et al., *On diffusion modeling for anomaly detection*, 2024):
tables with fewer than 1,000 rows are resampled to 1,000; half of the normal rows train, the others
and all anomalies test; several seeds.  For the sake of time, all detectors get at most 500 rows to
train, and 1,500 to test.  Ours: a mixture of eight networks, and the average of four from random
starts; no anomaly is ever seen in training.

    SKDGN_DATA=<folder with adbench/ and tables/> python benchmarks/outliers.py [--only NAME ...]

With --false-alarms it asks what the threshold is worth instead: a detector with nothing but
defaults is fitted to half of the normal samples of each table as it is (no copies), and the share
of the other half that it calls outliers should be its contamination.

With --explain, one value of each of 100 normal test samples is replaced by one of another sample,
moved by three standard deviations of its feature: how often is it the one that `explain` blames
most?  Beside it, z-scores, and how much IsolationForest's score falls when a value is replaced by
the median.

With --robust, detectors are trained on half of the table as it is, outliers included: ROC AUC of a
mixture of four networks, as it is, trimmed, and without its small components, beside
IsolationForest and a Gaussian mixture.

Results are kept in the file given by --results, and runs go on where the last one ended.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import neighbors
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import LocalOutlierFactor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from skdgn import DGNEnsemble, DGNMixture, DGNOutlierDetector, PiecewiseAffineDGN

FEWEST_ROWS = 1000
# More rows of a table change little and cost much; all detectors get the same.
MOST_TRAINING_ROWS = 500
MOST_TEST_ROWS = 1500
MOST_EXPLAINED_TRAINING = 500
LEAST_NOISE = 1e-2
# A network of a mixture with less than this share of the samples is taken for outliers.
SMALLEST_COMPONENT = 0.15
OURS = ("mixture", "ensemble")
NAMES = (
    *OURS,
    "GaussianMixture",
    "IsolationForest",
    "LocalOutlierFactor",
    "OneClassSVM",
    "NearestNeighbors",
)
COLUMNS = ("KNN", "LOF", "IForest", "OCSVM", "VAE", "ICL", "DTE-NP")


def mixture(n_networks: int) -> DGNMixture:
    """Make our estimator, for scaled samples: noise is at least a hundredth of their variance."""
    network = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,), covariance_type="full", reg_covar=LEAST_NOISE
    )
    return DGNMixture(network, n_networks, refine=False, tol=1e-2)


class NearestNeighbors(BaseEstimator):
    """Distance to the fifth neighbor."""

    def fit(self, X: np.ndarray) -> NearestNeighbors:
        self.tree_ = neighbors.NearestNeighbors(n_neighbors=5).fit(X)
        return self

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        return -self.tree_.kneighbors(X)[0][:, -1]


def best_mixture(rows: np.ndarray) -> GaussianMixture:
    """Choose the number of components by BIC."""
    mixtures = [
        GaussianMixture(n, reg_covar=1e-3, random_state=0).fit(rows) for n in (1, 2, 4, 8, 16, 32)
    ]
    return min(mixtures, key=lambda mixture: mixture.bic(rows))


def split(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, test rows and the latter's labels."""
    rng = np.random.default_rng(seed)
    if len(X) < FEWEST_ROWS:
        chosen = rng.choice(len(X), FEWEST_ROWS)
        X, y = X[chosen], y[chosen]
    normal = rng.permutation(np.flatnonzero(y == 0))
    half = len(normal) // 2
    training = normal[:half][:MOST_TRAINING_ROWS]
    test = np.concatenate([normal[half:], np.flatnonzero(y == 1)])
    test = rng.permutation(test)[:MOST_TEST_ROWS]
    return X[training], X[test], y[test]


def false_alarms(X: np.ndarray, y: np.ndarray, seeds: range) -> None:
    """Print the share of false alarms, by a threshold on samples fitted to and by the default."""
    normal = X[y == 0]
    n_training = min(len(normal) // 2, MOST_TRAINING_ROWS)
    started = time.perf_counter()
    shares = []
    for seed in seeds:
        rows = np.random.default_rng(seed).permutation(normal)
        training, others = rows[:n_training], rows[n_training : n_training + MOST_TRAINING_ROWS]
        detector = DGNOutlierDetector(random_state=seed).fit(training)
        scores = detector.score_samples(others)
        own = np.quantile(detector.score_samples(training), detector.contamination)
        shares.append([np.mean(scores < threshold) for threshold in (own, detector.offset_)])
    (before, after), spread = np.mean(shares, axis=0), np.std(shares, axis=0)[1]
    print(
        f"{n_training:5d} samples, {X.shape[1]:2d} features: {before:6.1%} by samples fitted to, "
        f"{after:6.1%} by the detector (deviation {spread:.1%} between {len(seeds)} splits), "
        f"{time.perf_counter() - started:.0f} s",
        flush=True,
    )


def explain(X: np.ndarray, y: np.ndarray, seeds: range) -> np.ndarray:
    """Print how often the feature that was changed is blamed most, by each method."""
    shares = []
    started = time.perf_counter()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        normal = rng.permutation(X[y == 0])
        half = min(len(normal) // 2, MOST_EXPLAINED_TRAINING)
        training, test = normal[:half], normal[half : half + 100].copy()
        deviations = training.std(axis=0)
        training, test = training[:, deviations > 0], test[:, deviations > 0]
        deviations = deviations[deviations > 0]
        changed = rng.integers(test.shape[1], size=len(test))
        values = training[rng.integers(len(training), size=len(test)), changed]
        signs = rng.choice([-1.0, 1.0], len(test))
        test[np.arange(len(test)), changed] = values + 3.0 * signs * deviations[changed]
        detector = DGNOutlierDetector(cv=None, random_state=seed).fit(training)
        forest = IsolationForest(random_state=seed).fit(training)
        falls = []
        for feature in range(test.shape[1]):
            replaced = test.copy()
            replaced[:, feature] = np.median(training[:, feature])
            falls.append(forest.score_samples(replaced) - forest.score_samples(test))
        blamed = [
            detector.explain(test, standardize=True, n_permutations=20, random_state=0),
            detector.explain(test, method="leave_one_out", standardize=True),
            np.abs(test - training.mean(axis=0)) / deviations,
            np.stack(falls, axis=1),
        ]
        shares.append([np.mean(values.argmax(axis=1) == changed) for values in blamed])
    means = np.mean(shares, axis=0)
    print(
        f"{X.shape[1]:2d} features: Shapley {means[0]:6.1%}, leave-one-out {means[1]:6.1%}, "
        f"z-score {means[2]:6.1%}, forest {means[3]:6.1%}, {time.perf_counter() - started:.0f} s",
        flush=True,
    )
    return np.array(shares)


def robust(X: np.ndarray, y: np.ndarray, seeds: range) -> np.ndarray:
    """Print ROC AUC of detectors that were trained on samples with outliers among them."""
    aucs = []
    started = time.process_time()
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(X))
        half = min(len(X) // 2, MOST_TRAINING_ROWS)
        training, test = X[order[:half]], X[order[half : half + MOST_TEST_ROWS]]
        labels = y[order[half : half + MOST_TEST_ROWS]]
        scaler = StandardScaler().fit(training)
        training, test = scaler.transform(training), scaler.transform(test)
        ours = DGNOutlierDetector(mixture(4), cv=None, random_state=seed)
        detectors = [
            ours,
            clone(ours).set_params(trim=0.1),
            clone(ours).set_params(smallest_component=SMALLEST_COMPONENT),
            IsolationForest(random_state=seed),
        ]
        scores = [detector.fit(training).score_samples(test) for detector in detectors]
        scores.append(best_mixture(training).score_samples(test))
        aucs.append([100.0 * roc_auc_score(labels, -score) for score in scores])
    means = np.mean(aucs, axis=0)
    print(
        f"plain {means[0]:5.1f}, trimmed {means[1]:5.1f}, no small components {means[2]:5.1f}, "
        f"IsolationForest {means[3]:5.1f}, GaussianMixture {means[4]:5.1f}, "
        f"{time.process_time() - started:.0f} s",
        flush=True,
    )
    return np.array(aucs)


def read_set(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read rows and labels, 1 for anomalies."""
    with np.load(path) as file:
        return file["X"].astype(float), file["y"].ravel()


def run_set(path: Path, seeds: range) -> dict[str, Any]:
    """ROC AUC of every detector on one table, in percent, by seed."""
    X, y = read_set(path)
    started = time.process_time()
    aucs: dict[str, list[float]] = {name: [] for name in NAMES}
    for seed in seeds:
        training, test, labels = split(X, y, seed)
        scaler = StandardScaler().fit(training)
        training, test = scaler.transform(training), scaler.transform(test)
        member = mixture(8).set_params(init_params="random")
        detectors = {
            "mixture": mixture(8).set_params(random_state=seed),
            "ensemble": DGNEnsemble(member, 4, bootstrap=False, random_state=seed),
            "IsolationForest": IsolationForest(random_state=seed),
            "LocalOutlierFactor": LocalOutlierFactor(novelty=True),
            "OneClassSVM": OneClassSVM(),
            "NearestNeighbors": NearestNeighbors(),
        }
        fitted = {name: detector.fit(training) for name, detector in detectors.items()}
        fitted["GaussianMixture"] = best_mixture(training)
        for name, detector in fitted.items():
            aucs[name].append(100.0 * roc_auc_score(labels, -detector.score_samples(test)))
    return {"rows": len(X), "seconds": time.process_time() - started, **aucs}


def published(folder: Path) -> dict[str, dict[str, float]]:
    """Read the published table: ROC AUC in percent by set and detector."""
    path = folder / "tables" / "dte_semi_auroc.csv"
    if not path.exists():
        return {}
    with path.open() as file:
        return {
            line["Dataset"].lower(): {
                name: float(re.sub(r"\*|\(.*", "", line[name])) for name in COLUMNS
            }
            for line in csv.DictReader(file)
        }


def show(results: dict[str, dict[str, Any]], table: dict[str, dict[str, float]]) -> None:
    """Print all results, means over all sets, and by how much we are ahead of each rival."""
    columns = [*NAMES, *COLUMNS]
    print(f"{'set':14s}{'rows':>6s}" + "".join(f"{c[:10]:>11s}" for c in columns))
    values = {}
    for name, result in results.items():
        line = table.get(name.split("_", 1)[1].lower(), {})
        own = {c: np.mean(result[c]) for c in NAMES}
        values[name] = [own.get(c, line.get(c, np.nan)) for c in columns]
        print(
            f"{name.split('_', 1)[1]:14s}{result['rows']:6d}"
            + "".join(f"{v:11.2f}" for v in values[name])
        )
    for title, fewest in (("mean", 0), ("not resampled", FEWEST_ROWS)):
        kept = [values[name] for name, result in results.items() if result["rows"] >= fewest]
        if kept:
            means = np.mean(kept, axis=0)
            print(f"{title:20s}" + "".join(f"{v:11.2f}" for v in means))
    # (n_methods, n_seeds), means over the sets
    of_seeds = {c: np.mean([result[c] for result in results.values()], axis=0) for c in NAMES}
    best = max(NAMES[len(OURS) :], key=lambda c: of_seeds[c].mean())
    for name in OURS:
        show_margin(of_seeds[name] - of_seeds[best], f"{name} over {best}")


def show_margin(margins: np.ndarray, title: str) -> None:
    """Print the mean of margins, one of each seed, and its standard error."""
    error = margins.std(ddof=1) / np.sqrt(len(margins)) if len(margins) > 1 else np.nan
    print(
        f"{title}: {margins.mean():.2f} +- {error:.2f} (standard error over {len(margins)} seeds)"
    )


def main() -> None:
    """Run what has not been run, print everything."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="parts of the names of tables")
    parser.add_argument("--results", type=Path, default=None, help="JSON file to go on with")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--false-alarms", action="store_true", help="see above")
    parser.add_argument("--explain", action="store_true", help="see above")
    parser.add_argument("--robust", action="store_true", help="see above")
    arguments = parser.parse_args()
    # Fits are stopped early on purpose; some tables have ties.
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", "The noise of feature", UserWarning)
    if "SKDGN_DATA" not in os.environ:
        print("Set SKDGN_DATA to a folder with adbench/*.npz to run this benchmark.")
        return
    folder = Path(os.environ["SKDGN_DATA"])
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    results: dict[str, dict[str, Any]] = {}
    figures: list[Any] = []
    if arguments.results is not None and arguments.results.exists():
        results = json.loads(arguments.results.read_text())
    for path in sorted((folder / "adbench").glob("*.npz"), key=lambda path: path.stat().st_size):
        wanted = not arguments.only or any(part in path.stem for part in arguments.only)
        if not wanted or path.stem in results:
            continue
        modes = {
            false_alarms: arguments.false_alarms,
            explain: arguments.explain,
            robust: arguments.robust,
        }
        chosen = [mode for mode, is_wanted in modes.items() if is_wanted]
        for mode in chosen:
            print(f"{path.stem.split('_', 1)[1]:12s}", end=" ")
            figures.append(mode(*read_set(path), seeds))
        if chosen:
            continue
        results[path.stem] = run_set(path, seeds)
        if arguments.results is not None:
            arguments.results.write_text(json.dumps(results, indent=1))
        print(path.stem, results[path.stem], flush=True)
    if results:
        show(results, published(folder))
    elif figures and figures[0] is not None:
        means = np.mean(figures, axis=0)  # (n_seeds, n_methods)
        print("mean", means.mean(axis=0).round(3))
        if arguments.robust:
            show_margin(means[:, 2] - means[:, 3], "no small components over IsolationForest")


if __name__ == "__main__":
    main()
