"""Other starts for the networks of a mixture, one by one.

Given the responsibilities, every network is a fit of its own to weighted samples, and where it ends
depends on where it began (`skdgn._initialization`).  So each is fitted again, from other starts, to
the samples that are its own; the networks that gain by it are exchanged, which cannot lower the
likelihood of the mixture (`skdgn._network_mixtures`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skdgn._batches import read
from skdgn._completion import complete_rows
from skdgn._em import climb
from skdgn._initialization import starting_methods, starting_network
from skdgn._model import Model
from skdgn._network import Floats, Network
from skdgn._network_mixtures import MixtureProblem, MixtureState, MixtureStep, NetworkVisits, log_of
from skdgn._noise import Noise
from skdgn._partition import TooManyRegionsError
from skdgn._rows import ScaledRows, sample_rows

# Starts are compared on at most so many samples of all networks together.
_MOST_SAMPLES = 8000
# How many candidates of a network enter a round, and how many iterations each is given.
_ROUNDS = ((4, 4), (2, 8))
# Samples of which a network has less than this share are left to others.
_SMALLEST_SHARE = 1e-3
# A curve through fewer samples is not worth looking for.
_FEWEST_SAMPLES = 8
# Smallest variance of the noise at a start, in units of the samples' variance.
_SMALLEST_VARIANCE = 1e-4


@dataclass(frozen=True)
class Restarts:
    """Fits the networks of a mixture again, each to the samples that are its own."""

    problem: MixtureProblem
    m_step: str
    tol: float
    generator: np.random.Generator

    def __call__(self, state: MixtureState) -> MixtureState | None:
        """Return a better state, or None if no network gained."""
        network = state.networks[0].network
        if network.n_hidden_layers == 0:
            return None
        samples, weights = self._samples()
        completed = complete_rows(samples, weights)
        visited = NetworkVisits(state.models, log_of(state.weights), samples)
        shares = visited.responsibilities
        models = [
            self._best_model(samples, completed, weights, shares[:, k], model.network) or model
            for k, model in enumerate(state.models)
        ]
        gains = self.problem.gains(state, models)
        models = [
            there if gain > 0.0 else here
            for here, there, gain in zip(state.models, models, gains, strict=True)
        ]
        trial = self.problem.evaluate(state.weights, models)
        return trial if trial.lower_bound > state.lower_bound else None

    def _samples(self) -> tuple[Floats, Floats]:
        rows, weights = self.problem.network.rows, self.problem.network.row_weights
        if isinstance(rows, ScaledRows) or len(rows) > _MOST_SAMPLES:
            return sample_rows(rows, weights, min(_MOST_SAMPLES, len(rows)), self.generator)
        return read(rows), weights

    def _best_model(
        self, samples: Floats, completed: Floats, weights: Floats, shares: Floats, like: Network
    ) -> Model | None:
        """Fit a network to the samples that are its own, from several starts."""
        chosen = np.flatnonzero(shares * weights > _SMALLEST_SHARE)
        members = np.flatnonzero(shares > 0.5)
        if len(members) < _FEWEST_SAMPLES:
            return None
        problem = replace(
            self.problem,
            network=replace(
                self.problem.network,
                rows=samples[chosen],
                row_weights=shares[chosen] * weights[chosen],
            ),
            concentration=1.0,
        )
        states = []
        for method in starting_methods(like.n_components, like.hidden_layer_sizes):
            start = self._start(completed[members], like, method)
            try:
                states.append(problem.evaluate(np.ones(1), [problem.build(*start)]))
            except TooManyRegionsError:
                continue
        for n_states, iterations in _ROUNDS:
            states = sorted(states, key=lambda state: state.lower_bound, reverse=True)[:n_states]
            for place, state in enumerate(states):
                step = MixtureStep(problem, self.m_step, self.tol)
                states[place] = climb(step, state, iterations, self.tol).state
        if not states:
            return None
        return max(states, key=lambda state: state.lower_bound).models[0]

    def _start(self, samples: Floats, like: Network, method: str) -> tuple[Network, Noise]:
        """Lead a network through samples (n, D), measured in units of their own."""
        center, deviations = samples.mean(axis=0), samples.std(axis=0)
        deviations = np.where(deviations > 0.0, deviations, 1.0)
        start = starting_network(
            (samples - center) / deviations,
            like.n_components,
            like.hidden_layer_sizes,
            like.activation,
            method,
            self.generator,
        )
        network = replace(
            start.network,
            coefs=(*start.network.coefs[:-1], deviations[:, None] * start.network.coefs[-1]),
            intercepts=(
                *start.network.intercepts[:-1],
                deviations * start.network.intercepts[-1] + center,
            ),
        )
        variances = deviations**2 * np.maximum(start.residual_variances, _SMALLEST_VARIANCE)
        covariance_type = self.problem.network.covariance_type
        variances = np.maximum(variances, self.problem.network.noise_floors)
        if covariance_type == "spherical":
            return network, Noise.from_covariance(variances.mean(), len(variances))
        if covariance_type == "diag":
            return network, Noise.from_covariance(variances, len(variances))
        return network, Noise.from_covariance(np.diag(variances), len(variances))
