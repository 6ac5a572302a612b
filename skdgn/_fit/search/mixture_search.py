"""Ways out when EM for given sizes stands still: other starts, splits, merges, units moved.

Every network is fitted again, from other starts, to the samples that are its own; and where two
networks gain more in the place of one than one loses in the place of two, they are exchanged
(`skdgn._fit.search.local_fits`).  Hidden units of a single network are moved.  What comes of it
counts only if the exact objective of all samples rises.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from skdgn._fit.em import MixtureProblem, MixtureState, Step, WayOut
from skdgn._fit.search.local_fits import LocalFits, Sizes, replace_networks
from skdgn._network import Architecture

# How many networks are split, and how many pairs merged, to find an exchange.
_MOST_SPLITS = 2
_MOST_MERGES = 2
# Iterations of the best candidate for the place of a network.
_ITERATIONS = 8
# How often units are moved when EM stands still.
_MOST_MOVES = 10


@dataclass(frozen=True)
class Search:
    """Improves a mixture of networks of one size where EM cannot."""

    problem: MixtureProblem
    architecture: Architecture
    m_step: str
    tol: float
    generator: np.random.Generator

    def restart(self, state: MixtureState) -> MixtureState | None:
        """Fit every network again to its own samples; exchange those that gain."""
        if self.architecture.is_linear:
            return None
        fits = self._local_fits(state)
        refitted = [fits.refit(k) for k in range(len(state.networks))]
        models = [
            here if there is None else there.models[0]
            for here, there in zip(state.models, refitted, strict=True)
        ]
        gains = self.problem.gains(state, models)
        models = [
            there if gain > 0.0 else here
            for here, there, gain in zip(state.models, models, gains, strict=True)
        ]
        trial = self.problem.evaluate(state.weights, models)
        return trial if trial.lower_bound > state.lower_bound else None

    def exchange(self, state: MixtureState) -> MixtureState | None:
        """Merge two networks and split another, if that raises the objective."""
        fits = self._local_fits(state)
        merges = [fits.merge(*pair) for pair in fits.nearest_pairs()[:_MOST_MERGES]]
        splits = [fits.split(k) for k in fits.poorest_networks()[:_MOST_SPLITS]]
        pairs = [
            (merge, split)
            for merge, split in itertools.product(merges, splits)
            if merge is not None
            and split is not None
            and split.replaced[0] not in merge.replaced
            and merge.gain + split.gain > 0.0
        ]
        if not pairs:
            return None
        chosen = max(pairs, key=lambda pair: pair[0].gain + pair[1].gain)
        trial = self.problem.evaluate(*replace_networks(state, chosen))
        return trial if trial.lower_bound > state.lower_bound + self.tol else None

    def step_of_one(self, is_restarted: bool) -> Step:
        """Return the step of EM of a single network, with ways out of where it would stand still.

        Hidden units are moved, if there is one layer of them.  A latent coordinate that runs along
        the samples twice cannot be mended that way: so a network is restarted first, unless it
        began with the likeliest of all starts.
        """
        ways_out: list[WayOut] = [self.restart] * is_restarted
        if len(self.architecture.hidden_layer_sizes) == 1:
            ways_out += [self.move_units] * _MOST_MOVES
        return Step(self.problem, self.m_step, self.tol, ways_out)

    def move_units(self, state: MixtureState) -> MixtureState | None:
        """Move hidden units to where they are missed, if that raises the objective.

        Two units that are nearly the same, or make a narrow step, stay where they are in EM: their
        gradients ask for no more.  Of networks with one dense hidden layer.  What EM gains in as
        many iterations without standing still is not worth it.
        """
        fits = self._local_fits(state)
        moved = [fits.move_units(k) for k in range(len(state.networks))]
        chosen = [own for own in moved if own is not None and own.gain > 0.0]
        if not chosen:
            return None
        trial = self.problem.evaluate(*replace_networks(state, chosen))
        return trial if trial.lower_bound > state.lower_bound + _ITERATIONS * self.tol else None

    def _local_fits(self, state: MixtureState) -> LocalFits:
        sizes = Sizes(self.architecture.n_components, given=self.architecture)
        return LocalFits(
            self.problem, state, sizes, self.m_step, self.tol, _ITERATIONS, 0.0, self.generator
        )
