"""Which model imputer, detector and ensemble fit if they are given none, by training samples alone.

    SKDGN_DATA=<folder with uci/ and adbench/> python benchmarks/defaults.py [--rows 400] [--jobs 2]

Detector and ensemble: mean log density of a fifth of the normal samples of the training part of
each ADBench table, held out; for the ensemble, the average of three fits to bootstrap samples.
Imputer: squared error on a tenth of the entries of the training part of six UCI tables, hidden on
top of a fifth that are missing.  Labels and test parts are not looked at.  A candidate is judged
by its mean rank over the tables, since scales differ, and by its processor time.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
from imputation import NAMES as IMPUTED
from imputation import load
from outliers import hold_out, read_set, split
from scipy.stats import rankdata
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skdgn import DGNEnsemble, DGNMixture, PiecewiseAffineDGN

CANDIDATES: dict[str, Callable[[], PiecewiseAffineDGN | DGNMixture]] = {
    "network": PiecewiseAffineDGN,
    "network, full noise": lambda: PiecewiseAffineDGN(covariance_type="full"),
    "mixture of 4": lambda: DGNMixture(n_networks=4),
    "mixture of 4, diag noise": lambda: DGNMixture(
        PiecewiseAffineDGN(1, hidden_layer_sizes=(4,)), 4
    ),
    "mixture, any size": DGNMixture,
}
N_MEMBERS = 3
MISSING, HIDDEN = 0.2, 0.1
Judged = dict[str, tuple[float, float]]  # by candidate: loss, seconds


def judge(losses: Callable[[PiecewiseAffineDGN | DGNMixture], float]) -> Judged:
    """Return loss and processor time of every candidate."""
    judged = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged, or noise at its floor: judged like others
        for name, make in CANDIDATES.items():
            started = time.process_time()
            loss = losses(make().set_params(random_state=0))
            judged[name] = (loss, time.process_time() - started)
    return judged


def judge_densities(path: Path, n_rows: int, n_members: int) -> Judged:
    """Judge by held-out normal samples; an average of so many members, or one model if 0."""
    training, _, _ = split(*read_set(path), 0)
    inner, held_out = hold_out(training[:n_rows], np.random.default_rng(0))

    def loss(model: PiecewiseAffineDGN | DGNMixture) -> float:
        estimator = DGNEnsemble(model, n_members, random_state=0) if n_members else model
        return -float(estimator.fit(inner).score(held_out))

    return judge(loss)


def judge_imputation(name: str, n_rows: int) -> Judged | None:
    """Judge by entries that were hidden; None if the table is not at hand."""
    table = load(name)
    if table is None:
        return None
    rng = np.random.default_rng(0)
    table = StandardScaler().fit_transform(rng.permutation(table)[:n_rows])
    order = rng.permutation(table.size)
    missing, hidden = np.split(order, [int(MISSING * table.size)])
    hidden = hidden[: int(HIDDEN * table.size)]
    incomplete = table.copy()
    incomplete.flat[np.concatenate([missing, hidden])] = np.nan

    def loss(model: PiecewiseAffineDGN | DGNMixture) -> float:
        errors = model.fit(incomplete).impute(incomplete) - table
        return float(np.mean(errors.flat[hidden] ** 2))

    return judge(loss)


def show(title: str, tables: dict[str, Judged]) -> None:
    """Print losses by table, then mean ranks and times."""
    print(title)
    for table, judged in tables.items():
        cells = (f"{name} {loss:.3f} ({seconds:.1f} s)" for name, (loss, seconds) in judged.items())
        print(f"  {table}: {'; '.join(cells)}")
    losses = np.array([[loss for loss, _ in judged.values()] for judged in tables.values()])
    seconds = np.array([[time for _, time in judged.values()] for judged in tables.values()])
    ranks = rankdata(losses, axis=1).mean(axis=0)
    for name, rank, mean in zip(CANDIDATES, ranks, seconds.mean(axis=0), strict=True):
        print(f"  mean rank {rank:.2f}, {mean:.1f} s: {name}")


def main() -> None:
    """Judge all candidates on the tables at hand."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400, help="of each table, at most")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    paths = sorted(Path(os.environ.get("SKDGN_DATA", ""), "adbench").glob("*.npz"))
    if not paths:
        print("not found, SKDGN_DATA must name the folder that holds adbench/")
    run = joblib.Parallel(options.jobs)
    found = run(joblib.delayed(judge_imputation)(name, options.rows) for name in IMPUTED)
    at_hand = {name: judged for name, judged in zip(IMPUTED, found, strict=True) if judged}
    show("imputer, squared error of hidden entries", at_hand)
    for title, n_members in (("detector", 0), (f"ensemble of {N_MEMBERS}", N_MEMBERS)):
        judged = run(
            joblib.delayed(judge_densities)(path, options.rows, n_members) for path in paths
        )
        if paths:
            tables = dict(zip((path.stem for path in paths), judged, strict=True))
            show(f"{title}, minus held-out mean log density", tables)


if __name__ == "__main__":
    main()
