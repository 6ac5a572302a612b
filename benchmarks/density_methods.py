"""Density estimators beside ours, all with the same search; for `densities.py` and `suite.py`.

Sizes are chosen inside the training part, for everybody alike: every candidate is fitted to four
fifths of it and judged by the mean log density of the rest (`validation`; on fewer than 500 rows,
every fifth is held out once); and fitted to all of it and judged by its BIC, where it has one
(`bic`).  The fits of the winners to all of the training part are scored on the test part.
Everything else is left at its default, ours and theirs.

Ensembles are averages of densities, of as many members.  Those of Gaussian mixtures are fitted to
bootstrap samples, and take turns with the three sizes that validation likes best for a single
model.  Ours has its default members; samples that a member has not seen tell how much it counts
(``weights="stacked"``).

`R-BP` (`recursive_predictive.py`) runs on tiny tables only, of at most 300 rows to fit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray
from recursive_predictive import RecursivePredictive
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import KFold
from sklearn.neighbors import KernelDensity
from threadpoolctl import threadpool_limits

import skdgn

Floats = NDArray[np.float64]
Parameters = dict[str, Any]
Result = dict[str, Any]  # of a method on one split, as it is kept in a file
Splits = dict[str, dict[str, Result]]  # by seed and method
Results = dict[str, Splits]  # by table

THEIRS = ("GaussianMixture", "KernelDensity", "BayesianGaussianMixture")
BAGGED = "bagged GaussianMixture"
OURS = ("PiecewiseAffineDGN", "DGNMixture")
ENSEMBLE = "DGNEnsemble"
RECURSIVE = "R-BP"
METHODS = (*THEIRS, BAGGED, RECURSIVE, *OURS, ENSEMBLE)
# Nothing is chosen for these: one fit.
AVERAGES = (BAGGED, RECURSIVE, ENSEMBLE)
# Every sample is compared with every other: for tiny tables only.
MOST_RECURSIVE_ROWS = 300
N_MEMBERS = 6
N_MEMBER_SIZES = 3
N_FOLDS = 5
# With fewer rows, all of the folds are held out once.
FEWEST_ROWS = 500
# A method begins no other candidate after so many seconds in a split.  Seconds are processor time.
SEARCH_SECONDS = 20.0

N_GAUSSIANS = {"full": (1, 2, 3, 4, 6, 8, 12, 16, 20, 32), "diag": (2, 4, 8, 16, 32, 64)}
MOST_NETWORKS = 128
AUTO = "auto"
BANDWIDTHS = tuple(np.geomspace(0.03, 2.0, 20).round(4).tolist())
# Latent dimensions, hidden layers and noise, the most promising first.
SINGLE_SIZES = ((1, (16,), "full"), (1, (16,), "diag"))
# Latent dimensions, hidden layers, noise, and how many networks there are for each of the Gaussians
# of this type that validation likes best: networks bend.  Without hidden layers, a mixture of them
# is one of Gaussians or of factor analyzers.
MEMBER_SIZES = (
    (1, (), "full", 1.0),
    (1, (4,), "full", 0.5),
    (3, (), "diag", 0.5),
    (1, (4,), "diag", 0.25),
)


class BaggedGaussianMixture:
    """The average of Gaussian mixtures, each fitted to a bootstrap sample."""

    def __init__(self, members: list[GaussianMixture], random_state: int) -> None:
        self.members = members
        self.random_state = random_state

    def fit(self, X: Floats) -> BaggedGaussianMixture:
        """Fit all members."""
        rng = np.random.default_rng(self.random_state)
        self.estimators_ = [member.fit(rng.choice(X, len(X))) for member in self.members]
        return self

    def score_samples(self, X: Floats) -> Floats:
        """Log of the mean density."""
        densities = [member.score_samples(X) for member in self.estimators_]
        return np.asarray(logsumexp(densities, axis=0) - np.log(len(densities)))


def is_feasible(method: str, n_rows: int) -> bool:
    """Whether a method is there, in this version of the package, and takes so many rows."""
    if method == RECURSIVE:
        return n_rows <= MOST_RECURSIVE_ROWS
    return method not in (*OURS, ENSEMBLE) or hasattr(skdgn, method)


def candidates(
    method: str,
    n_rows: int,
    results: dict[str, Result],
    trials: list[dict[str, Any]],
) -> Iterator[Parameters]:
    """List what is tried on so many rows, given the results of other methods and its own so far."""
    if method in (ENSEMBLE, RECURSIVE):
        yield {}
    elif method == BAGGED:
        ranked = sorted(results["GaussianMixture"]["trials"], key=lambda own: -own["validation"])
        yield {"members": [trial["parameters"] for trial in ranked[:N_MEMBER_SIZES]]}
    elif method == "GaussianMixture":
        for covariance_type, numbers in N_GAUSSIANS.items():
            for n_components in numbers:
                if 4 * n_components <= n_rows:
                    yield {"n_components": n_components, "covariance_type": covariance_type}
    elif method == "BayesianGaussianMixture":
        for covariance_type in N_GAUSSIANS:
            for n_components in (8, 20):
                yield {"n_components": n_components, "covariance_type": covariance_type}
    elif method == "KernelDensity":
        for bandwidth in BANDWIDTHS:
            yield {"bandwidth": bandwidth}
    elif method == "PiecewiseAffineDGN":
        for size in SINGLE_SIZES:
            yield network_parameters(*size)
    else:
        yield from mixture_candidates(results["GaussianMixture"], trials)


def mixture_candidates(gaussians: Result, trials: list[dict[str, Any]]) -> Iterator[Parameters]:
    """List mixtures of networks: one that finds its sizes, some like the best Gaussians, others.

    These are like the best so far, with more networks or fewer.
    """
    yield {"n_networks": AUTO, "estimator": network_parameters(1, AUTO, AUTO)}
    for *size, share in MEMBER_SIZES:
        network = network_parameters(*size)
        number = best_number(gaussians, network["covariance_type"])
        n_networks = max(1, min(round(share * number), MOST_NETWORKS))
        yield {"n_networks": n_networks, "estimator": network}
    # More networks as long as these are better, then fewer.
    for factor in (2.0, 0.5):
        while True:
            given = [trial for trial in trials if trial["parameters"]["n_networks"] != AUTO]
            best = best_trial(given)["parameters"]
            trial = best | {"n_networks": round(factor * best["n_networks"])}
            is_known = any(trial == known["parameters"] for known in trials)
            if is_known or not 1 <= trial["n_networks"] <= MOST_NETWORKS:
                break
            yield trial


def best_trial(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the one that validation likes best."""
    return max(trials, key=lambda trial: trial["validation"])


def network_parameters(
    n_components: int, hidden_layer_sizes: tuple[int, ...] | str, covariance_type: str
) -> Parameters:
    """Name the parts of a size."""
    return {
        "n_components": n_components,
        "hidden_layer_sizes": hidden_layer_sizes,
        "covariance_type": covariance_type,
    }


def best_number(result: Result, covariance_type: str) -> int:
    """Return the number of Gaussians of a type that validation likes best."""
    trials = [
        trial
        for trial in result["trials"]
        if trial["parameters"]["covariance_type"] == covariance_type
    ]
    return int(best_trial(trials)["parameters"]["n_components"])


def make(method: str, parameters: Parameters, seed: int, n_members: int) -> Any:
    """Make an estimator; parameters of an ensemble are those of its members."""
    if method == ENSEMBLE:
        return skdgn.DGNEnsemble(n_estimators=n_members, weights="stacked", random_state=seed)
    if method == BAGGED:
        sizes = itertools.islice(itertools.cycle(parameters["members"]), n_members)
        members = [make("GaussianMixture", size, seed + k, 0) for k, size in enumerate(sizes)]
        return BaggedGaussianMixture(members, random_state=seed)
    if method == "DGNMixture":
        network = make("PiecewiseAffineDGN", parameters["estimator"], seed, n_members)
        return skdgn.DGNMixture(**(parameters | {"estimator": network}), random_state=seed)
    if method == "PiecewiseAffineDGN":
        return skdgn.PiecewiseAffineDGN(**parameters, random_state=seed)
    if method == "KernelDensity":
        return KernelDensity(**parameters)
    if method == RECURSIVE:
        return RecursivePredictive(random_state=seed)
    kinds = {"GaussianMixture": GaussianMixture, "BayesianGaussianMixture": BayesianGaussianMixture}
    return kinds[method](**parameters, random_state=seed)


def mean_log_density(estimator: Any, rows: Floats) -> float:
    """Score everybody alike; `KernelDensity.score` is a sum."""
    return float(estimator.score_samples(rows).mean())


def run(
    method: str,
    train: Floats,
    test: Floats,
    seed: int,
    results: dict[str, Result],
    n_members: int,
    search_seconds: float,
) -> Result:
    """Choose sizes inside the training part, and score on the test part.

    Parameters
    ----------
    method : str
    train, test : ndarray of shape (n, n_features)
    seed : int
    results : dict
        Those of the methods before, on the same split.
    n_members : int
        Of ensembles.
    search_seconds : float
        After which no other candidate is begun.

    Returns
    -------
    result : dict
        All ``trials``, the winners by ``validation`` and ``bic``, and the ``seconds`` of it all.
    """
    folds = list(KFold(N_FOLDS, shuffle=True, random_state=seed).split(train))
    folds = folds[: N_FOLDS if len(train) < FEWEST_ROWS else 1]
    trials: list[dict[str, Any]] = []
    started = time.process_time()
    with threadpool_limits(1), warnings.catch_warnings():
        # What has not converged is judged like everything else.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Published tables have ties; a density that gains by them loses elsewhere.
        warnings.filterwarnings("ignore", "The noise of feature")
        for parameters in candidates(method, len(folds[0][0]), results, trials):
            trial: dict[str, Any] = {"parameters": parameters, "validation": None, "bic": None}
            try:
                if method not in AVERAGES:
                    scores = [
                        mean_log_density(
                            make(method, parameters, seed, n_members).fit(train[inner]),
                            train[held_out],
                        )
                        for inner, held_out in folds
                    ]
                    trial["validation"] = float(np.mean(scores))
                before = time.process_time()
                estimator = make(method, parameters, seed, n_members).fit(train)
                trial["seconds"] = time.process_time() - before
            except ValueError as error:
                # GaussianMixture's, where a component has lost its rows; ours should have none.
                print(f"{method} {parameters}: {error}", flush=True)
                continue
            if hasattr(estimator, "bic"):
                trial["bic"] = float(estimator.bic(train))
            trial["score"] = mean_log_density(estimator, test)
            trials.append(trial)
            if time.process_time() - started > search_seconds:
                break
    result: Result = {"trials": trials, "seconds": time.process_time() - started}
    if method in AVERAGES:
        return result | {"validation": trials[0]}
    result["validation"] = best_trial(trials)
    if trials[0]["bic"] is not None:
        result["bic"] = min(trials, key=lambda trial: trial["bic"])
    return result


def compile_kernels() -> None:
    """Fit a little of everything: what is compiled the first time is nobody's time."""
    rows = np.random.default_rng(0).normal(size=(40, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in (*SINGLE_SIZES, *(size[:-1] for size in MEMBER_SIZES)):
            network = skdgn.PiecewiseAffineDGN(**network_parameters(*size), max_iter=2)
            skdgn.DGNMixture(network, 2, max_iter=2).fit(rows).score(rows)
            network.fit(rows)


class Task(NamedTuple):
    """A split of a table."""

    table: str
    seed: int
    split: Callable[[], tuple[Floats, Floats]]  # the training part and the test part

    def run(self, known: dict[str, Result], options: argparse.Namespace) -> dict[str, Result]:
        """Add the results of methods that have none."""
        results = dict(known)
        train, test = self.split()
        compile_kernels()
        for method in options.methods:
            if is_feasible(method, len(train)) and method not in results:
                results[method] = run(
                    method, train, test, self.seed, results, options.members, options.seconds
                )
        return results


def add_options(parser: argparse.ArgumentParser, n_splits: int) -> None:
    """Add the options that the scripts share."""
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--splits", type=int, default=n_splits)
    parser.add_argument("--first-seed", type=int, default=0, help="of the splits")
    parser.add_argument("--members", type=int, default=N_MEMBERS, help="of ensembles")
    parser.add_argument("--seconds", type=float, default=SEARCH_SECONDS, help="for a search")
    parser.add_argument("--jobs", type=int, default=1, help="splits at the same time")
    parser.add_argument("--results", type=Path, default=None, help="JSON file to go on with")


def run_tasks(
    tasks: Iterable[Task], options: argparse.Namespace, show: Callable[[str, Splits], None]
) -> Results:
    """Run what is not in the file of results, and keep it there; show tables as they are done."""
    results: Results = {}
    if options.results is not None and options.results.exists():
        results = json.loads(options.results.read_text())
    of_tables: dict[str, list[Task]] = {}
    for task in tasks:
        of_tables.setdefault(task.table, []).append(task)
    calls = [
        joblib.delayed(task.run)(results.get(name, {}).get(str(task.seed), {}), options)
        for name, members in of_tables.items()
        for task in members
    ]
    found = joblib.Parallel(options.jobs, return_as="generator")(calls)
    for name, members in of_tables.items():
        for task in members:
            results.setdefault(name, {})[str(task.seed)] = next(found)
            if options.results is not None:
                options.results.write_text(json.dumps(results, indent=1))
        show(name, results[name])
    return results


def mean_over_splits(
    splits: Splits, method: str, criterion: str = "validation", what: str = "score"
) -> float:
    """Return the mean over splits; NaN if the method was not run on all of them, or has no BIC."""
    values = [
        results.get(method, {}).get(criterion, {}).get(what, np.nan) for results in splits.values()
    ]
    return float(np.mean(values))
