"""Sizes that find themselves: a path of mixtures, each grown from the one before.

Every network of a mixture may be replaced by one with more hidden units or with fewer, or by two;
and two neighbors by one.  What that gains is known from the samples that are theirs
(`skdgn._fit.search.local_fits`), and a parameter has its price: half the logarithm of the number of
samples by BIC, 1 by AIC.  Whatever is worth more than it costs is done, for all networks at once;
EM follows, and the next look.  The path ends where nothing pays any more, or the criterion has
clearly passed its best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from skdgn._fit.em import MixtureProblem, MixtureState, NetworkVisits, Step, climb, log_of
from skdgn._fit.mixture_fit import pool_noise
from skdgn._fit.search import LocalFits, Replacement, Sizes, replace_networks
from skdgn._fit.stacking import stack
from skdgn._runtime import Floats

Trial = Callable[[], Replacement | None]

CRITERIA = ("bic", "aic", "validation")
# Iterations after every change, and their tolerance: more of them before a change change little.
_ITERATIONS, _TOLERANCE = 15, 1e-3
# Changes that did not improve the criterion before the path ends: of many networks, which take
# long, one.
_PATIENCE, _MANY_NETWORKS = 2, 5
# Iterations of what may take the place of a network: all of them follow.
_LOCAL_ITERATIONS = 4
_MOST_STAGES = 40
# Of all pairs, a third as many as there are networks are tried, those that share the most.
_FEWEST_MERGERS = 4
# Networks with which nothing was worth doing are left alone until their weight changes by as much.
_CHANGED = 0.1


@dataclass(frozen=True)
class Stage:
    """A mixture on the path."""

    problem: MixtureProblem
    state: MixtureState
    n_parameters: int
    log_likelihood: float  # per sample, in the units of the samples
    criterion: float  # the lower, the better


@dataclass(frozen=True)
class HeldOut:
    """Samples that no mixture on the path has seen."""

    samples: Floats
    weights: Floats
    log_volume: float  # what scaling adds to their mean log density

    def log_densities(self, state: MixtureState) -> Floats:
        """Log densities, as EM sees the samples."""
        return NetworkVisits(state.models, log_of(state.weights), self.samples).log_density

    def mean_log_density(self, state: MixtureState) -> float:
        """Mean log density, in the units of the samples."""
        mean = self.weights @ self.log_densities(state) / self.weights.sum()
        return float(mean) - self.log_volume


@dataclass(frozen=True)
class Judge:
    """Says what a parameter must gain to be worth it, and which mixture is the best."""

    criterion: str
    log_volume: float  # what scaling adds to the mean log density
    held_out: HeldOut | None = None  # for "validation"

    def price(self, n_samples: float) -> float:
        """Price of a parameter, in nats."""
        return 0.5 * math.log(n_samples) if self.criterion == "bic" else 1.0

    def assess(self, problem: MixtureProblem, state: MixtureState) -> Stage:
        """Count parameters, and evaluate the criterion."""
        n_parameters = sum(model.n_parameters for model in state.models) + len(state.models) - 1
        mean = state.log_likelihood / state.total_weight - self.log_volume
        if self.held_out is None:
            cost = self.price(state.total_weight) * n_parameters
            criterion = 2.0 * (cost - state.total_weight * mean)
        else:
            criterion = -self.held_out.mean_log_density(state)
        return Stage(problem, state, n_parameters, mean, criterion)

    def share_out(self, stages: Sequence[Stage]) -> Floats:
        """Weights of mixtures in their average, which add up to 1.

        Those that make samples that were held out the likeliest; by BIC and AIC, Akaike weights.
        """
        if self.held_out is None:
            criteria = np.array([stage.criterion for stage in stages])
            shares = np.exp(0.5 * (criteria.min() - criteria))
            return np.asarray(shares / shares.sum())
        told = [self.held_out.log_densities(stage.state) for stage in stages]
        return stack(np.stack(told, axis=1), self.held_out.weights)


def climb_briefly(
    problem: MixtureProblem, state: MixtureState, m_step: str, n_iterations: int = _ITERATIONS
) -> MixtureState:
    """Run some iterations of EM."""
    step = Step(problem, m_step, _TOLERANCE)
    improved: MixtureState = climb(step, state, n_iterations, _TOLERANCE).state
    return improved


@dataclass
class SizePath:
    """A path of mixtures; what may change along it, and what is known of the networks there."""

    judge: Judge
    sizes: Sizes
    any_units: bool  # whether networks may grow and shrink
    any_networks: bool  # whether they may be split and merged
    noise_prior_weight: float | None
    m_step: str
    generator: np.random.Generator
    _ids: list[int] = field(default_factory=list)  # of the networks there are
    _settled: dict[tuple[int, ...], float] = field(default_factory=dict)  # weights at that time

    def follow(self, problem: MixtureProblem, state: MixtureState) -> Iterator[Stage]:
        """Yield one mixture after the other, until the criterion has clearly passed its best."""
        self._ids, self._settled = list(range(len(state.networks))), {}
        best, n_worse = math.inf, 0
        for _ in range(_MOST_STAGES):
            problem, state = pool_noise(problem, state, self.noise_prior_weight)
            state = climb_briefly(problem, state, self.m_step)
            stage = self.judge.assess(problem, state)
            yield stage
            n_worse = 0 if stage.criterion < best else n_worse + 1
            best = min(best, stage.criterion)
            if n_worse == (_PATIENCE if len(state.networks) < _MANY_NETWORKS else 1):
                return
            replacements = self._find_replacements(problem, state)
            if not replacements:
                return
            state = problem.evaluate(*replace_networks(state, replacements))
            self._rename(replacements)

    def _rename(self, replacements: list[Replacement]) -> None:
        """Follow `replace_networks`: what is new gets a name of its own."""
        gone = {k for own in replacements for k in own.replaced}
        n_new = sum(len(own.models) for own in replacements)
        first = max(self._ids) + 1
        self._ids = [own for k, own in enumerate(self._ids) if k not in gone]
        self._ids += range(first, first + n_new)

    def _find_replacements(self, problem: MixtureProblem, state: MixtureState) -> list[Replacement]:
        """Find what is worth more than it costs, for networks that have changed."""
        price = self.judge.price(state.total_weight)
        fits = LocalFits(
            problem,
            state,
            self.sizes,
            self.m_step,
            _TOLERANCE,
            _LOCAL_ITERATIONS,
            price,
            self.generator,
        )
        weights = [own.statistics.total_weight for own in state.networks]
        found: list[Replacement] = []

        def consider(chosen: tuple[int, ...], trials: Sequence[Trial]) -> bool:
            """Take the first of the trials that pays; if none does, leave these networks alone."""
            ids = tuple(self._ids[k] for k in chosen)
            weight = sum(weights[k] for k in chosen)
            if abs(weight - self._settled.get(ids, math.inf)) <= _CHANGED * weight:
                return False
            for trial in trials:
                own = trial()
                if own is not None and own.value(price) > 0.0:
                    found.append(own)
                    return True
            self._settled[ids] = weight
            return False

        for k, model in enumerate(state.models):
            # Two networks are seldom better than one that bends, if that does not want to grow.
            # One that took a wrong turn is mended by splits, or else by another start.
            grow = partial(fits.grow, k, afresh=not self.any_networks)
            trials: list[Trial] = [grow] * self.any_units
            trials += [partial(fits.split, k)] * self.any_networks
            trials += [partial(fits.shrink, k)] * (not model.network.is_affine and self.any_units)
            consider((k,), trials)
        taken = {k for own in found for k in own.replaced}
        n_left = max(_FEWEST_MERGERS, len(weights) // 3) if self.any_networks else 0
        seen: set[int] = set()
        for pair in fits.nearest_pairs():
            # Of every network, the neighbor that is nearest.
            if n_left > 0 and not taken.intersection(pair) and not seen.issuperset(pair):
                n_left -= 1
                if consider(pair, [partial(fits.merge, *pair)]):
                    taken.update(pair)
            seen.update(pair)
        return found
