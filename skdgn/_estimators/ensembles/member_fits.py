"""The fits of an ensemble's members, side by side, and what these say of samples held out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.utils.parallel import Parallel, delayed

from skdgn._estimators.fits import Complaint, collect_complaints
from skdgn._runtime import Floats, Integers, Reporter, way_of_returning


@dataclass(frozen=True)
class Task:
    """A fit: of a member, or of what it would have been without some of the samples."""

    member: int
    template: Any
    sample_weights: Floats
    held_out: Integers  # samples of `Questions` that are not seen
    is_member: bool


class Questions(NamedTuple):
    """Samples of which members are asked if they have not seen them."""

    samples: NDArray[Any]  # (a, D)
    sample_weights: Floats  # (a,)
    scales: Floats  # (S,): of the noise's variances


class Fits(NamedTuple):
    """What has come of all fits."""

    members: list[Any]  # None for those that failed
    log_densities: Floats  # (a, K, S), NaN where a member has seen a sample, or was not asked
    sample_weights: Floats  # (a,)
    were_interrupted: bool
    complaints: list[Complaint]


def reseed(template: Any, seed: int) -> Any:
    """Copy an estimator, with seeds of its own; members share the processors already."""
    member = clone(template)
    names = member.get_params(deep=True)
    seeds = np.random.default_rng(seed).integers(np.iinfo(np.int32).max, size=len(names))
    changes: dict[str, Any] = {}
    for name, own_seed in zip(names, seeds, strict=True):
        last = name.rpartition("__")[2]
        if last == "random_state":
            changes[name] = int(own_seed)
        elif last == "n_jobs":
            changes[name] = 1
    return member.set_params(**changes)


def run_tasks(
    tasks: list[Task],
    samples: NDArray[Any],
    questions: Questions,
    n_members: int,
    n_jobs: int | None,
    verbose: int,
) -> Fits:
    """Fit what is to be fitted, in parallel; whatever was finished is kept."""
    members: list[Any] = [None] * n_members
    shape = len(questions.samples), n_members, len(questions.scales)
    log_densities = np.full(shape, np.nan)
    errors: dict[int, Exception] = {}
    complaints: list[Complaint] = []
    reporter, n_done, interrupted = Reporter(verbose), 0, False
    parallel = Parallel(n_jobs=n_jobs, return_as=way_of_returning())
    try:
        for task, outcome in zip(
            tasks,
            parallel(delayed(_run_task)(task, samples, questions, n_members) for task in tasks),
            strict=True,
        ):
            n_done += 1
            if isinstance(outcome, Exception):
                errors.setdefault(task.member, outcome)
                continue
            member, answers, own = outcome
            complaints += own
            log_densities[task.held_out, task.member] = answers
            if task.is_member:
                members[task.member] = member
            reporter.head(f"fit {n_done}/{len(tasks)}")
    except KeyboardInterrupt:
        interrupted = True
    for k in errors:
        members[k] = None
    n_fitted = sum(member is not None for member in members)
    if n_fitted == 0:
        if interrupted or not errors:
            raise KeyboardInterrupt
        raise next(iter(errors.values()))
    if errors:
        first = min(errors)
        warnings.warn(
            f"The fits of {len(errors)} of {n_members} members failed, and they were left out: "
            f"{sorted(errors)}. The first error was: {errors[first]}",
            FitFailedWarning,
            # One level for scikit-learn's wrapper of `fit`, one each for `fit`, a method it calls,
            # and this function.
            stacklevel=5,
        )
    return Fits(members, log_densities, questions.sample_weights, interrupted, complaints)


def _run_task(
    task: Task, samples: NDArray[Any], questions: Questions, n_members: int
) -> tuple[Any, Floats, list[Complaint]] | Exception:
    """Fit an estimator; return it, log densities (h, S) of what was held out, and complaints.

    Or the error.
    """
    member = clone(task.template)
    purpose = "" if task.is_member else " to all but a fold, for its weight"
    heading = f"fit of member {task.member + 1}/{n_members}{purpose}"
    Reporter(getattr(member, "verbose", 0)).head(heading)
    answers = np.empty((len(task.held_out), len(questions.scales)))
    try:
        with collect_complaints() as complaints:
            member.fit(samples, None, task.sample_weights)
        if task.held_out.size > 0:
            model, workers = member._fitted_model(), member._workers()
            for s, scale in enumerate(questions.scales.tolist()):
                held_out = questions.samples[task.held_out]
                answers[:, s] = model.widen(scale).log_density(held_out, workers)
    except Warning:  # somebody wants warnings to be errors
        raise
    except Exception as error:  # whatever it is, the other members must not be lost
        return error
    if not task.is_member:
        return None, answers, []
    return member, answers, complaints
