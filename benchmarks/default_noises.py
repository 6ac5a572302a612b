"""Shared or regional noise in the default models of DGNImputer and DGNOutlierDetector.

Both wrap ``PiecewiseAffineDGN()``.  Which noise it should have is judged by training rows alone:

imputer     of a table of which half was removed, a tenth of what is left is hidden, too, and
            imputed: mean squared error on that tenth
detector    of the normal training rows of a table, a quarter is held out: the share of it that
            falls below the threshold which a tenth of the rows fitted to does, so 0.1 is best

    SKDGN_DATA=<folder with uci/ and adbench/> python benchmarks/default_noises.py [--seed 0]

The detector's threshold is set on the rows the model was fitted to, and holds for others only as
far as the model has not learned its rows by heart.  Held-out log-likelihoods are printed beside it.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
from imputation import NAMES, hidden_error, load, remove_half
from outliers import CONTAMINATION, false_alarms, hold_out, read_set, split
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN

NOISES = ("shared", "regional")


def default_model(noise: str) -> PiecewiseAffineDGN:
    """Make the default model but for its noise."""
    return PiecewiseAffineDGN(noise=noise, random_state=0)


def judge_imputer(seed: int) -> None:
    """Print errors on what was hidden."""
    found = []
    for name in NAMES:
        table = load(name)
        if table is None:
            print(f"{name}: not found; SKDGN_DATA must name the folder that holds uci/")
            continue
        _, holed = remove_half(table, seed)
        found.append([hidden_error(holed, default_model(noise)) for noise in NOISES])
        print(
            f"imputer, {name:14s} shared {found[-1][0]:.3f}  regional {found[-1][1]:.3f}",
            flush=True,
        )
    shared, regional = np.transpose(found)
    print(f"imputer: regional noise is better on {np.sum(regional < shared)} of {len(found)}")


def judge_detector(folder: Path, seed: int) -> None:
    """Print false alarms and log-likelihoods of held-out rows."""
    alarms, scores = [], []
    paths = sorted((folder / "adbench").glob("*.npz"), key=lambda path: path.stat().st_size)
    for path in paths:
        rows, _, _ = split(*read_set(path), seed)
        training, held_out = hold_out(rows, np.random.default_rng(seed))
        models = [default_model(noise).fit(training) for noise in NOISES]
        alarms.append([false_alarms(model, training, held_out) for model in models])
        scores.append([model.score(held_out) for model in models])
        print(
            f"detector, {path.stem:14s} false alarms shared {alarms[-1][0]:.3f}  "
            f"regional {alarms[-1][1]:.3f}; log-likelihood shared {scores[-1][0]:.3f}  "
            f"regional {scores[-1][1]:.3f}",
            flush=True,
        )
    if not paths:
        print("detector: no adbench/*.npz in SKDGN_DATA")
        return
    errors = np.abs(np.array(alarms) - CONTAMINATION)
    print(
        f"detector: mean distance from {CONTAMINATION} shared {errors[:, 0].mean():.4f}, "
        f"regional {errors[:, 1].mean():.4f}; regional is nearer on "
        f"{np.sum(errors[:, 1] < errors[:, 0])}, farther on "
        f"{np.sum(errors[:, 1] > errors[:, 0])} of {len(paths)}; likelier on "
        f"{np.sum(np.diff(scores, axis=1) > 0)}"
    )


def main() -> None:
    """Judge both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("imputer", "detector"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # The default number of iterations is what counts, converged or not.
    warnings.simplefilter("ignore", ConvergenceWarning)
    if options.only != "detector":
        judge_imputer(options.seed)
    if options.only != "imputer":
        judge_detector(Path(os.environ.get("SKDGN_DATA", "")), options.seed)


if __name__ == "__main__":
    main()
