"""Held-out log density on eighteen tables, beside scikit-learn's density estimators.

    SKDGN_DATA=<folder with uci/> python benchmarks/densities.py [--tables glass ...] [--jobs 2]

Five random splits, 80 % to fit and 20 % to judge.  Columns with fewer than three values are
dropped, the others standardized by the training part.  Recorded values have ties, on which a
density can be as high as one likes: so Gaussian noise of deviation 0.01 is added to all
standardized values, and digits are dequantized (uniform noise within a level of gray) before;
everybody gets the same.  How sizes are chosen, `density_methods.py` says.

One line is printed for each table, means over its splits: of the fit that validation chose, in
parentheses of the one that BIC chose, and the processor time of a fit.  Results are kept in the
file given by --results, split by split, and runs go on where the last one ended.  Tables that are
not at hand are named and left out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from density_methods import (
    BAGGED,
    ENSEMBLE,
    METHODS,
    THEIRS,
    Floats,
    Results,
    Splits,
    Task,
    add_options,
    mean_over_splits,
    run_tasks,
)
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

N_SPLITS = 5
JITTER = 0.01
FEWEST_VALUES = 3
# File in uci/, columns.  Labels of classes are left out, targets of regressions are kept.
FILES: dict[str, tuple[str, Iterable[int]]] = {
    "abalone": ("abalone.csv", range(1, 9)),
    "airfoil": ("airfoil.csv.gz", range(6)),
    "autompg": ("autompg.csv.gz", range(8)),
    "banknote": ("banknote_authentication.csv", range(4)),
    "concrete": ("concrete.csv.gz", range(9)),
    "energy": ("energy.csv.gz", range(9)),
    "glass": ("glass.csv", range(9)),
    "housing": ("housing.csv.gz", range(14)),
    "ionosphere": ("ionosphere.csv", range(34)),
    "parkinsons": ("parkinsons.csv.gz", range(21)),
    "protein": ("protein.csv.gz", range(10)),
    "red": ("winequality-red.csv", range(11)),
    "sonar": ("sonar.csv", range(60)),
    "white": ("winequality-white.csv", range(11)),
    "yacht": ("yacht.csv.gz", range(7)),
    "yeast": ("yeast.data", range(1, 9)),
}
LOADERS: dict[str, Callable[[], Any]] = {"breast cancer": load_breast_cancer, "digits": load_digits}
TABLES = sorted([*FILES, *LOADERS])
MOST_ROWS = {"protein": 5000}


def read_table(name: str) -> Floats | None:
    """Read a table; None if it is not at hand."""
    if name in LOADERS:
        table = LOADERS[name]().data
    else:
        file, columns = FILES[name]
        path = Path(os.environ.get("SKDGN_DATA", ""), "uci", file)
        if "SKDGN_DATA" not in os.environ or not path.is_file():
            return None
        delimiter = None if path.suffix == ".data" else ","
        table = np.loadtxt(path, delimiter=delimiter, usecols=columns, max_rows=MOST_ROWS.get(name))
    if name == "digits":
        table = table + np.random.default_rng(0).uniform(size=table.shape)
        return table[:, load_digits().data.std(axis=0) > 0]
    return table[:, [len(np.unique(column)) >= FEWEST_VALUES for column in table.T]]


def split(table: Floats, seed: int) -> tuple[Floats, Floats]:
    """Split at random, standardize by the training part, break ties."""
    train, test = train_test_split(table, test_size=0.2, random_state=seed)
    center, deviation = train.mean(axis=0), train.std(axis=0)
    varies = deviation > 0
    rng = np.random.default_rng(seed)

    def prepare(rows: Floats) -> Floats:
        scaled = ((rows - center) / np.where(varies, deviation, 1.0))[:, varies]
        return scaled + JITTER * rng.standard_normal(scaled.shape)

    return prepare(train), prepare(test)


def show(name: str, splits: Splits) -> None:
    """Print the line of a table."""
    cells = []
    for method in METHODS:
        score, by_bic = (mean_over_splits(splits, method, kind) for kind in ("validation", "bic"))
        if not np.isnan(score):
            in_parentheses = "" if np.isnan(by_bic) else f" ({by_bic:.2f})"
            seconds = mean_over_splits(splits, method, what="seconds")
            cells.append(f"{method} {score:.2f}{in_parentheses} {seconds:.1f} s")
    print(f"{name}, {len(splits)} splits: {'; '.join(cells)}", flush=True)


def count_wins(results: Results, ours: str, theirs: Iterable[str], criterion: str) -> str:
    """Say on how many tables one of ours is above the best of theirs, by means over splits."""
    wins, losses = [], []
    for name, splits in results.items():
        score = mean_over_splits(splits, ours, criterion)
        if np.isnan(score):
            continue
        # Who has no BIC is there with the fit that validation chose.
        found = [(mean_over_splits(splits, rival, criterion), rival) for rival in theirs]
        rivals = [
            mean_over_splits(splits, rival) if np.isnan(value) else value for value, rival in found
        ]
        (wins if score > np.nanmax(rivals) else losses).append(name)
    return f"{len(wins)} of {len(wins) + len(losses)}; not on: {', '.join(losses) or 'none'}"


def report(results: Results) -> None:
    """Print the counts."""
    for ours, theirs, criterion in (
        ("DGNMixture", THEIRS, "validation"),
        ("DGNMixture", THEIRS, "bic"),
        ("PiecewiseAffineDGN", THEIRS, "validation"),
        (ENSEMBLE, (BAGGED,), "validation"),
    ):
        wins = count_wins(results, ours, theirs, criterion)
        print(f"{ours} above {' and '.join(theirs)}, sizes by {criterion}: {wins}")


def main() -> None:
    """Run what has not been run, print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    add_options(parser, N_SPLITS)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.splits)
    tasks, missing = [], []
    for name in options.tables:
        table = read_table(name)
        if table is None:
            missing.append(name)
        else:
            tasks += [Task(name, seed, partial(split, table, seed)) for seed in seeds]
    if missing:
        print(f"not found, SKDGN_DATA must name the folder that holds uci/: {', '.join(missing)}")
    report(run_tasks(tasks, options, show))


if __name__ == "__main__":
    main()
