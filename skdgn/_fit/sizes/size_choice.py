"""A fit whose sizes are open: straight mixtures first, and a path from the best of them.

Kinds of noise and numbers of latent dimensions do not grow from each other: each pair is a branch.
A branch begins with mixtures of networks as small as may be, one, two, four of them and so on,
which is as quick as a Gaussian mixture.  Of every number of latent dimensions, the branch with the
best of these goes on (`skdgn._fit.sizes.size_path`).  What the criterion likes best of all is
fitted to all samples, or those are that count the most in the average of all: it is a mixture, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from skdgn._fit.em import MixtureProblem, MixtureState, Progress, Step
from skdgn._fit.fitting import Fit, FitResult, Iteration, Parameters
from skdgn._fit.mixture_fit import MixtureSettings, pool_noise, start_mixture
from skdgn._fit.search import Sizes
from skdgn._fit.sizes.size_path import HeldOut, Judge, SizePath, Stage, climb_briefly
from skdgn._network import Activation
from skdgn._runtime import Floats, Reporter, ScaledSamples, Workers, draw_samples, read

# Sizes are chosen on at most so many samples; the chosen ones are fitted to all.
_MOST_SAMPLES = 10_000
# Share of the samples that are held out for validation.
_HELD_OUT = 0.2
# Of fewer different samples, none can be spared: BIC stands in.
_FEWEST_TO_HOLD_OUT = 10
# A straight mixture has at most so many networks, and at least so many samples for each.
_MOST_NETWORKS = 32
_FEWEST_SAMPLES = 6
# Straight mixtures that are no better than the best before more networks are given up: of many
# networks, which take long, one.
_PATIENCE, _MANY_NETWORKS = 2, 16
# Iterations of each, which begins with a Gaussian mixture.
_ITERATIONS = 6
# Paths from the best branch.  The second is given up when it would not overtake the first even by
# so many stages like its last.
_N_PATHS, _PROSPECT = 2, 4
# Mixtures of a smaller share are left out of an average.
_SMALLEST_SHARE = 1e-3


@dataclass(frozen=True)
class SizeSettings:
    """Settings of a mixture of which some sizes are open."""

    branches: tuple[MixtureSettings, ...]  # with the smallest sizes that may be
    activation: Activation | None  # of hidden units, if their number is open
    any_networks: bool  # whether the number of networks is open
    criterion: str
    n_averaged: int = 1  # mixtures of the path that are averaged, at most

    @property
    def workers(self) -> Workers:
        """Who does the work."""
        return self.branches[0].workers

    @property
    def n_init(self) -> int:
        """How many fits are told of: those of the chosen sizes."""
        return self.n_averaged

    @property
    def max_iter(self) -> int:
        """Largest number of iterations of that fit."""
        return self.branches[0].max_iter

    def branch_of(self, parameters: Parameters) -> MixtureSettings | None:
        """Return the settings that go with parameters; None if there are none."""
        network, noise = parameters[1][0]
        for branch in self.branches:
            own = branch.network
            kind = own.architecture.n_components, own.covariance_type
            if kind == (network.n_components, noise.covariance_type):
                return replace(branch, n_networks=len(parameters[0]))
        return None


def fit_sizes(
    samples: NDArray[Any],
    sample_weights: Floats,
    settings: SizeSettings,
    generator: np.random.Generator,
    warm_start: Parameters | None,
    watch: Callable[[Iteration], bool],
) -> FitResult:
    """Choose sizes for samples (n, D), NaN where a value is missing, and fit them.

    A fit that goes on from parameters follows the path from there.  A keyboard interrupt ends it
    with the best mixture so far, if there is one.
    """
    seed = int(generator.integers(2**63))  # the same samples are held out from all branches

    def prepare(branch: MixtureSettings) -> Branch:
        fit = Fit.prepare(samples, sample_weights, branch.network, watch)
        return Branch.prepare(fit, branch, settings, seed, generator)

    diary = Diary(settings.workers.reporter, settings.criterion)
    interrupted = False
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            if warm_start is not None:
                last = settings.branch_of(warm_start)
                assert last is not None  # whoever calls has looked
                branch = prepare(last)
                diary.follow(branch, branch.go_on_from(warm_start))
            else:
                _explore([prepare(branch) for branch in settings.branches], diary)
    except KeyboardInterrupt:
        if not diary.entries:
            raise
        interrupted = True
    branch, stage = diary.best()
    if interrupted:
        result = replace(branch.fit.result(Progress(stage.state)), interrupted=True)
    else:
        result = branch.fit_all(diary.members(branch, settings.n_averaged))
    return replace(result, path=diary.table())


def _explore(branches: list[Branch], diary: Diary) -> None:
    """Follow all branches, as far as they are worth it."""
    n_components = [branch.n_components for branch in branches]
    diary.n_parts_left = len(branches) + _N_PATHS * len(set(n_components))
    firsts = [diary.follow(branch, branch.try_numbers()) for branch in branches]
    for number in sorted(set(n_components)):
        alike = [k for k, own in enumerate(n_components) if own == number]
        best = min(alike, key=lambda k: firsts[k][1].criterion)
        smallest, likeliest = firsts[best]
        diary.follow(branches[best], branches[best].change_sizes(likeliest))
        if smallest is not likeliest:
            # A curve with many bends is not to be had from many networks, one merger at a time.
            diary.follow(branches[best], branches[best].change_sizes(smallest), True)
        else:
            diary.n_parts_left -= 1


@dataclass(frozen=True)
class Entry:
    """A stage in the diary."""

    part: int  # of the search, from 0
    branch: Branch
    stage: Stage
    seconds: float


@dataclass
class Diary:
    """What was tried; a person is told of it on the way."""

    reporter: Reporter
    criterion: str
    entries: list[Entry] = field(default_factory=list)
    n_parts_left: int = 1  # that are to follow
    part_seconds: list[float] = field(default_factory=list)  # of parts that are done

    def follow(
        self, branch: Branch, stages: Iterator[Stage], must_overtake: bool = False
    ) -> tuple[Stage, Stage]:
        """Write down the stages of a part of the path; return the first and the best of them.

        It may be given up where it cannot be expected to become better than everything else.
        """
        own, began = [], time.perf_counter()
        part_began = began
        self.n_parts_left -= 1
        self.reporter.name("choosing sizes")
        for stage in stages:
            now = time.perf_counter()
            own.append(stage)
            self.entries.append(Entry(len(self.part_seconds), branch, stage, now - began))
            began = now
            if self.reporter.verbose > 0:
                self._tell(branch, stage, self._seconds_left(now - part_began))
            if must_overtake and len(own) > 1:
                gain = own[-2].criterion - stage.criterion
                if stage.criterion - _PROSPECT * gain > self.best()[1].criterion:
                    break
        self.part_seconds.append(time.perf_counter() - part_began)
        return own[0], min(own, key=lambda stage: stage.criterion)

    def best(self) -> tuple[Branch, Stage]:
        """Return what the criterion likes best."""
        best = min(self.entries, key=lambda entry: entry.stage.criterion)
        return best.branch, best.stage

    def members(self, branch: Branch, most: int) -> list[Stage]:
        """Return the stages whose average is the best, the best of all first, which is a branch's.

        The best alone, or those that count the most in the average of all that may be averaged with
        it.  Stages that are of no use on their own count there, where samples are far from what
        others have seen.
        """
        own = [entry.stage for entry in self.entries if branch.may_be_averaged_with(entry.branch)]
        own.sort(key=lambda stage: stage.criterion)
        if most == 1:
            return own[:1]
        shares = branch.judge.share_out(own)
        smallest = max(np.sort(shares)[-most:].min(), _SMALLEST_SHARE)
        return [stage for stage, share in zip(own, shares, strict=True) if share >= smallest]

    def _seconds_left(self, seconds: float) -> float:
        """Guess how long it will take, so many seconds after a part has begun.

        Parts take as long as each other, and at least one more stage; so does the fit at the end.
        """
        typical = max(float(np.mean(self.part_seconds or [0.0])), seconds)
        last = self.entries[-1].seconds
        return max(typical - seconds, last) + self.n_parts_left * typical + last

    def _tell(self, branch: Branch, stage: Stage, seconds_left: float) -> None:
        """Say what was tried; last what may be cut off where a line is too long."""
        _, best = self.best()
        units = [sum(widths) for widths in _hidden_layer_sizes(stage)]
        fewest, most = min(units), max(units)
        span = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        self.reporter.write(
            f"{self.criterion} {stage.criterion:.6g}, best {best.criterion:.6g}  "
            f"{self.reporter.seconds:.1f} s, about {seconds_left:.0f} s left  "
            f"{len(units)} network{'s' * (len(units) > 1)}, hidden units {span}, "
            f"{branch.covariance_type} noise, {branch.n_components} latent",
            lasting=self.reporter.verbose > 1 or not self.reporter.is_rewriting,
        )

    def table(self) -> dict[str, Any]:
        """Return what was tried as columns of equal length."""
        branches = [entry.branch for entry in self.entries]
        stages = [entry.stage for entry in self.entries]
        widths = [_hidden_layer_sizes(stage) for stage in stages]
        return {
            "part": np.array([entry.part for entry in self.entries]),
            "n_networks": np.array([len(own) for own in widths]),
            "n_components": np.array([branch.n_components for branch in branches]),
            "hidden_layer_sizes": widths,
            "n_hidden_units": np.array([sum(map(sum, own)) for own in widths]),
            "covariance_type": np.array([branch.covariance_type for branch in branches]),
            "n_parameters": np.array([stage.n_parameters for stage in stages]),
            "log_likelihood": np.array([stage.log_likelihood for stage in stages]),
            "criterion": np.array([stage.criterion for stage in stages]),
            "seconds": np.array([entry.seconds for entry in self.entries]),
        }


def _hidden_layer_sizes(stage: Stage) -> list[tuple[int, ...]]:
    return [model.network.hidden_layer_sizes for model in stage.state.models]


@dataclass(frozen=True)
class Branch:
    """Mixtures with one kind of noise and one number of latent dimensions."""

    fit: Fit  # of all samples
    settings: MixtureSettings
    problem: MixtureProblem  # of those on which sizes are chosen
    judge: Judge
    path: SizePath
    any_networks: bool
    generator: np.random.Generator

    @classmethod
    def prepare(
        cls,
        fit: Fit,
        settings: MixtureSettings,
        choice: SizeSettings,
        seed: int,
        generator: np.random.Generator,
    ) -> Branch:
        """Choose the samples on which sizes are chosen."""
        chooser, own = np.random.default_rng(seed), fit.problem
        samples, weights = own.samples, own.sample_weights
        if len(samples) > _MOST_SAMPLES or isinstance(samples, ScaledSamples):
            n_samples = min(_MOST_SAMPLES, len(samples))
            samples, weights = draw_samples(samples, weights, n_samples, chooser)
        samples, held_out = read(samples), None
        criterion = choice.criterion
        if criterion == "validation" and len(samples) < _FEWEST_TO_HOLD_OUT:
            criterion = "bic"
        if criterion == "validation":
            is_held_out = np.zeros(len(samples), dtype=bool)
            n_held_out = round(_HELD_OUT * len(samples))
            is_held_out[chooser.choice(len(samples), n_held_out, replace=False)] = True
            parts = samples[is_held_out], weights[is_held_out]
            held_out = HeldOut(*parts, fit.scaling.log_volume(*parts))
            samples, weights = samples[~is_held_out], weights[~is_held_out]
        judge = Judge(criterion, fit.scaling.log_volume(samples, weights), held_out)
        architecture = settings.network.architecture
        any_units = choice.activation is not None
        sizes = Sizes(
            architecture.n_components, choice.activation, None if any_units else architecture
        )
        path = SizePath(
            judge,
            sizes,
            any_units,
            choice.any_networks,
            settings.noise_prior_weight,
            settings.network.m_step,
            generator,
        )
        problem = settings.pose(replace(own, samples=samples, sample_weights=weights))
        return cls(fit, settings, problem, judge, path, choice.any_networks, generator)

    @property
    def n_components(self) -> int:
        """Number of latent dimensions."""
        return self.settings.network.architecture.n_components

    @property
    def covariance_type(self) -> str:
        """Kind of noise."""
        return self.settings.network.covariance_type

    def may_be_averaged_with(self, other: Branch) -> bool:
        """Whether networks of both may be parts of one mixture, and see samples alike."""
        own, theirs = self.fit.scaling.deviations, other.fit.scaling.deviations
        return self.n_components == other.n_components and np.array_equal(own, theirs)

    def try_numbers(self) -> Iterator[Stage]:
        """Begin with the smallest networks, twice as many each time, if their number is open."""
        number, best, n_worse = self.settings.n_networks, np.inf, 0
        most = min(_MOST_NETWORKS, len(self.problem.network.samples) // _FEWEST_SAMPLES)
        while n_worse < (_PATIENCE if number <= _MANY_NETWORKS else 1):
            settings = replace(self.settings, n_networks=number)
            state = start_mixture(self.problem, settings, self.generator)
            problem, state = pool_noise(self.problem, state, settings.noise_prior_weight)
            state = climb_briefly(problem, state, settings.network.m_step, _ITERATIONS)
            stage = self.judge.assess(problem, state)
            yield stage
            n_worse = n_worse + 1 if stage.criterion >= best else 0
            best, number = min(best, stage.criterion), 2 * number
            if not self.any_networks or number > most:
                return

    def change_sizes(self, stage: Stage) -> Iterator[Stage]:
        """Follow the path from a stage."""
        return self.path.follow(stage.problem, stage.state)

    def go_on_from(self, parameters: Parameters) -> Iterator[Stage]:
        """Follow the path from parameters in the units of the samples."""
        return self.path.follow(self.problem, self.problem.begin(*self.fit.scale(parameters)))

    def fit_all(self, stages: list[Stage]) -> FitResult:
        """Fit stages to all samples, one after the other, and average them.

        How EM got there is told of the likeliest.
        """
        remaining = iter(stages)
        result = self.fit.run(
            lambda: self.begin_fit(next(remaining)),
            len(stages),
            self.settings.max_iter,
            self.settings.tol,
        )
        if len(self.fit.runs) <= 1:
            return result
        fits = [self.fit.result(run) for run in self.fit.runs]  # fewer after an interrupt
        shares = self.judge.share_out(stages[: len(fits)])
        shared = list(zip(shares, fits, strict=True))
        return replace(
            result,
            weights=np.concatenate([share * own.weights for share, own in shared]),
            networks=[parts for own in fits for parts in own.networks],
            converged=all(own.converged for own in fits),
            bound_by_ties=np.any([own.bound_by_ties for own in fits], axis=0),
            running=[
                replace(running, statistics=running.statistics * share)
                for share, own in shared
                for running in own.running
            ],
        )

    def begin_fit(self, stage: Stage) -> tuple[Step, MixtureState]:
        """Begin a fit to all samples with a stage, which may have another kind of noise."""
        own, covariance_type = self.settings, stage.problem.network.covariance_type
        network = replace(self.fit.problem, covariance_type=covariance_type)
        problem = replace(stage.problem, network=network)
        state = problem.evaluate(stage.state.weights, stage.state.models)
        problem, state = pool_noise(problem, state, own.noise_prior_weight)
        return Step(problem, own.network.m_step, own.tol), state
