"""Steps of EM: how far to go, who goes, and what is refused.

Every step is judged by the exact objective, and none that lowers it is taken.  A step has three
sizes.  *Damping* keeps the Gauss-Newton step of a network where its linearization holds
(Levenberg-Marquardt).  EM creeps where the latent variables are not determined by the samples, or
noise is small: so all networks and their weights have *momentum*.  They go beyond what EM proposes,
as far as that is from what it proposed before, and gather speed as long as that is accepted; where
it is refused, they begin again from rest (O'Donoghue and Candes, *Adaptive restart for accelerated
gradient schemes*, 2015).  If even the plain step of EM is refused, networks whose own samples
became less likely take *shorter* steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from skdgn._fit.em.loop import PATIENCE
from skdgn._fit.em.mixture import MixtureProblem, MixtureState, Parts, Proposal
from skdgn._fit.m_step import FIRST_DAMPING, SMALLEST_DAMPING, Damping
from skdgn._posterior import Model
from skdgn._runtime import Floats, Integers

# From where EM stands still to a likelier state, or None.
WayOut = Callable[[MixtureState], MixtureState | None]

M_STEPS = ("joint", "layerwise")
# Steps over all layers that a network is refused before it moves its output layer alone, which
# cannot be refused but for rounding, and then stays.
_MOST_SHORTENINGS = 8
# Steps grow bolder only while they gain so many times the tolerance.  What the data barely
# determine is where little is left to gain, and bold steps there fit the noise of the samples.
_WORTHWHILE = 10.0
# How far to go from one proposal of EM through the next: as far again.
_BEYOND = 2.0
# With a smaller tolerance, EM creeps for hundreds of iterations: what else there is to do is tried
# as soon as gains are below this.
_STANDING_STILL = 1e-4


@dataclass(frozen=True)
class Proposed:
    """Where EM would go: weights of the networks, and each with its noise, if there is a step."""

    weights: Floats
    networks: list[Parts | None]


@dataclass
class Step:
    """A step of all networks: over all layers at once, or one layer at a time."""

    problem: MixtureProblem
    m_step: str
    tol: float
    ways_out: list[WayOut] = field(default_factory=list)  # left, for when EM stands still
    dampings: list[Damping] = field(default_factory=list)  # of each network
    # What EM proposed last, by the layers that moved.
    last: dict[tuple[range, ...], Proposed] = field(default_factory=dict)
    n_still: int = 0  # iterations that gained little

    def __call__(self, state: MixtureState) -> MixtureState | None:
        """Return a state that is no worse, or None if there is none to be found."""
        trial = self._step(state)
        gain = 0.0 if trial is None else trial.lower_bound - state.lower_bound
        self.n_still = self.n_still + 1 if gain < max(self.tol, _STANDING_STILL) else 0
        if not self.ways_out or (trial is not None and self.n_still < PATIENCE):
            return trial
        self.n_still = 0
        found = self.ways_out.pop(0)(trial or state)
        if found is None:
            return trial
        self.dampings, self.last = [], {}
        return found

    def _step(self, state: MixtureState) -> MixtureState | None:
        if self.m_step == "joint":
            return self._move(
                state, [range(own.network.output_layer + 1) for own in state.networks]
            )
        moved = None
        deepest = max(own.network.output_layer for own in state.networks)
        for back in range(deepest + 1):
            layers = [max(own.network.output_layer - back, 0) for own in state.networks]
            trial = self._move(state, [range(layer, layer + 1) for layer in layers])
            if trial is not None:
                moved = state = trial
        return moved

    def _move(self, state: MixtureState, layers: list[range]) -> MixtureState | None:
        """Move some layers of every network."""
        self.dampings = self.dampings or [Damping() for _ in state.networks]
        parts = list(zip(state.networks, layers, strict=True))
        steps = [self.problem.propose(own, list(chosen)) for own, chosen in parts]
        # Without hidden layers, the regions stay where they are.
        values = [
            SMALLEST_DAMPING if chosen.start == own.network.output_layer else damping.value
            for (own, chosen), damping in zip(parts, self.dampings, strict=True)
        ]
        weights = self.problem.best_weights(state)
        now = Proposed(
            weights, [step.solve(value) for step, value in zip(steps, values, strict=True)]
        )
        trial = self._go_beyond(state, steps, self.last.get(tuple(layers)), now)
        self.last[tuple(layers)] = now
        if trial is None:
            trial = self._shorten(state, steps, values, weights)
        gain = 0.0 if trial is None else trial.lower_bound - state.lower_bound
        for damping, value in zip(self.dampings, values, strict=True):
            if gain < self.tol:
                # Nothing but the damping may be in the way: EM ends when bold steps fail, too.
                damping.value = min(damping.value, FIRST_DAMPING)
            elif gain > _WORTHWHILE * self.tol and damping.value == value:
                damping.relax()
        return trial

    def _go_beyond(
        self, state: MixtureState, steps: list[Proposal], last: Proposed | None, now: Proposed
    ) -> MixtureState | None:
        """Go beyond what EM proposes, from what it did last; None if refused: it is EM's turn."""
        if last is None or self.problem.network.prior.density is not None:
            return None
        models = [
            (before and after and step.beyond(before, after, _BEYOND)) or own.model
            for step, before, after, own in zip(
                steps, last.networks, now.networks, state.networks, strict=True
            )
        ]
        known = last.weights > 0.0
        ratios = now.weights / np.where(known, last.weights, 1.0)
        weights = now.weights * ratios ** (_BEYOND - 1.0)
        trial = self.problem.evaluate(weights / weights.sum(), self.problem.tie(state, models))
        return trial if trial.lower_bound >= state.lower_bound else None

    def _shorten(
        self, state: MixtureState, steps: list[Proposal], values: list[float], weights: Floats
    ) -> MixtureState | None:
        """Take the step of EM; where it lowers the objective, networks take shorter ones."""
        models = [
            step(value) or own.model
            for step, value, own in zip(steps, values, state.networks, strict=True)
        ]
        n_refusals = np.zeros(len(steps), dtype=np.intp)
        while True:
            tied = self.problem.tie(state, models)
            trial = self.problem.evaluate(weights, tied)
            if trial.lower_bound >= state.lower_bound:
                return trial
            refused = self._find_refused(state, tied)
            if np.all(n_refusals[refused] > _MOST_SHORTENINGS + 1):
                return None  # rounding: all of these stay where they are, or there are none
            for k in map(int, refused):
                n_refusals[k] += 1
                own, model = state.networks[k], None
                if n_refusals[k] <= _MOST_SHORTENINGS:
                    self.dampings[k].tighten()
                    model = steps[k](self.dampings[k].value)
                elif n_refusals[k] == _MOST_SHORTENINGS + 1:
                    output = own.network.output_layer
                    model = self.problem.propose(own, [output])(SMALLEST_DAMPING)
                models[k] = model or own.model

    def _find_refused(self, state: MixtureState, models: list[Model]) -> Integers:
        """Find the networks whose steps lowered the objective."""
        if len(models) == 1:
            return np.zeros(1, dtype=np.intp)  # who else
        return np.flatnonzero(self.problem.gains(state, models) < 0.0)
