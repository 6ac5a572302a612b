"""Density suite: held-out mean log-likelihood on three small tables, beside full mixtures.

Ten folds, each standardised on its training part.  Everything is chosen inside the training part:
candidates, ours and the mixture's, are fitted to four fifths of it and judged by the others, and
the winner is fitted to all of it.

    SKDGN_DATA=<folder with uci/> python benchmarks/suite.py [--tables "red wine" ...]

Results are kept in the file given by --results, fold by fold, and runs go on where the last one
ended.  Without SKDGN_DATA there is nothing to run.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold, train_test_split

from skdgn import PiecewiseAffineDGN

Floats = NDArray[np.float64]

# File, columns kept. The first two of ionosphere are binary and constant.
TABLES = {
    "red wine": ("uci/winequality-red.csv", slice(0, 11)),
    "ionosphere": ("uci/ionosphere.csv", slice(2, 34)),
    "white wine": ("uci/winequality-white.csv", slice(0, 11)),
}
# Published mixtures of factor analysers; full mixtures re-run.
FIGURES = {
    "red wine": (-10.19, -10.17),
    "white wine": (-10.73, -10.95),
    "ionosphere": (-17.55, -28.99),
}
N_FOLDS = 10
FOLDS = tuple(range(1, N_FOLDS + 1))
N_MIXTURE_COMPONENTS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20)
SHARED: tuple[dict[str, Any], ...] = tuple(
    {"n_components": n_components, "hidden_layer_sizes": widths, "covariance_type": "full"}
    for n_components, widths in ((1, (8,)), (1, (32,)), (1, (64,)), (2, (16,)))
)
# Where each region has its own noise, a covariance needs rows.  Tables with fewer rows than a full
# one has numbers get independent noise, and a second latent dimension for what goes together.
REGIONAL_SIZES = {
    "full": ((1, (32,)), (1, (64,))),
    "diag": ((1, (32,)), (2, (8,))),
}
PRIOR_WEIGHTS = (3.0, 10.0)
NOISES = ("shared", "regional")


def candidates_of(noise: str, n_rows: int, n_features: int) -> Sequence[dict[str, Any]]:
    """Return what is chosen from inside a fold."""
    if noise == "shared":
        return SHARED
    covariance_type = "full" if n_rows > n_features * (n_features + 1) / 2 else "diag"
    return [
        {
            "n_components": n_components,
            "hidden_layer_sizes": widths,
            "covariance_type": covariance_type,
            "noise": "regional",
            "noise_prior_weight": weight,
        }
        for n_components, widths in REGIONAL_SIZES[covariance_type]
        for weight in PRIOR_WEIGHTS
    ]


def read_table(folder: Path, name: str) -> Floats | None:
    """Read a table; None if it is not at hand."""
    file, columns = TABLES[name]
    if not (folder / file).is_file():
        return None
    # The label of ionosphere is a word.
    return np.genfromtxt(folder / file, delimiter=",", usecols=range(34)[columns])


def fit_mixture(train: Floats, n_components: int) -> GaussianMixture:
    """Fit a full mixture."""
    return GaussianMixture(n_components, random_state=0).fit(train)


def fit_ours(train: Floats, candidate: dict[str, Any]) -> PiecewiseAffineDGN:
    """Fit with the defaults except for the candidate's parameters."""
    return PiecewiseAffineDGN(random_state=0, **candidate).fit(train)


def describe(candidate: dict[str, Any]) -> str:
    """Put a candidate in a word."""
    sizes = (candidate["n_components"], *candidate["hidden_layer_sizes"])
    weight = candidate.get("noise_prior_weight")
    end = "" if weight is None else f", weight {weight:g}"
    return f"{'-'.join(map(str, sizes))} {candidate['covariance_type']}{end}"


def run_fold(rows: Floats, fold: int, method: str) -> dict[str, Any]:
    """Choose inside the training part; return the score on the test part and what was chosen."""
    started = time.perf_counter()
    parts = list(KFold(N_FOLDS, shuffle=True, random_state=0).split(rows))[fold - 1]
    mean, deviation = rows[parts[0]].mean(axis=0), rows[parts[0]].std(axis=0)
    train, test = ((rows[part] - mean) / deviation for part in parts)
    inner, validation = train_test_split(train, test_size=0.2, random_state=0)
    if method == "mixture":
        scores = [fit_mixture(inner, n).score(validation) for n in N_MIXTURE_COMPONENTS]
        n_components = N_MIXTURE_COMPONENTS[int(np.argmax(scores))]
        score, chosen = fit_mixture(train, n_components).score(test), f"{n_components} components"
    else:
        candidates = candidates_of(method, *inner.shape)
        scores = [fit_ours(inner, candidate).score(validation) for candidate in candidates]
        candidate = candidates[int(np.argmax(scores))]
        score, chosen = fit_ours(train, candidate).score(test), describe(candidate)
    return {
        "score": float(score),
        "chosen": chosen,
        "validation": [float(value) for value in scores],
        "seconds": time.perf_counter() - started,
    }


def report(name: str, results: dict[str, dict[str, Any]]) -> None:
    """Print means over the folds there are; each method beside the mixture on the same folds."""
    factor_analysers, published = FIGURES[name]
    mixture = results.get("mixture", {})
    for method, folds in results.items():
        if method == "mixture" or not folds:
            continue
        ours = np.array([folds[fold]["score"] for fold in folds])
        theirs = np.array([mixture[fold]["score"] for fold in folds])
        # Regional noise is to beat the mixtures of this very run.
        to_beat = max(factor_analysers, published)
        if method == "regional":
            to_beat = published if name == "ionosphere" else theirs.mean()
        error = (ours - theirs).std(ddof=1) / np.sqrt(len(folds)) if len(folds) > 1 else np.nan
        print(
            f"{name:12s} {method:8s} {ours.mean():8.3f}  mixture {theirs.mean():8.3f}  "
            f"ahead on {np.sum(ours > theirs)} of {len(folds)} folds, "
            f"by {np.mean(ours - theirs):.3f} +- {error:.3f}; "
            f"published: factor analysers {factor_analysers}, mixtures {published}; "
            f"to beat {to_beat:.3f}: {'met' if ours.mean() > to_beat else 'NOT MET'}  "
            f"{sum(folds[fold]['seconds'] for fold in folds):.0f} s",
            flush=True,
        )


def main() -> None:
    """Run what has not been run, print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--noises", nargs="+", choices=NOISES, default=NOISES)
    parser.add_argument("--folds", nargs="+", type=int, choices=FOLDS, default=FOLDS)
    parser.add_argument("--results", type=Path, default=None, help="JSON file to go on with")
    options = parser.parse_args()
    # What has not converged is judged on the validation rows all the same.
    warnings.simplefilter("ignore", ConvergenceWarning)
    if "SKDGN_DATA" not in os.environ:
        print("Set SKDGN_DATA to a folder with uci/ to run this benchmark.")
        return
    results: dict[str, dict[str, dict[str, Any]]] = {}
    if options.results is not None and options.results.exists():
        results = json.loads(options.results.read_text())
    for name in options.tables:
        rows = read_table(Path(os.environ["SKDGN_DATA"]), name)
        if rows is None:
            print(f"{name}: skipped, no {TABLES[name][0]} in SKDGN_DATA")
            continue
        of_table = results.setdefault(name, {})
        for fold in options.folds:
            for method in ("mixture", *options.noises):
                folds = of_table.setdefault(method, {})
                if str(fold) in folds:
                    continue
                folds[str(fold)] = outcome = run_fold(rows, fold, method)
                if options.results is not None:
                    options.results.write_text(json.dumps(results, indent=1))
                print(
                    f"{name}, fold {fold}: {method} {outcome['score']:.3f} "
                    f"({outcome['chosen']}, {outcome['seconds']:.0f} s)",
                    flush=True,
                )
    for name, of_table in results.items():
        report(name, of_table)


if __name__ == "__main__":
    main()
