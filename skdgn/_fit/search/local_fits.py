"""What could take the place of a few networks of a mixture: fits to the samples that are theirs.

Given the responsibilities, the networks of a mixture are fits of their own to weighted samples, and
where one ends depends on where it began.  So a network is fitted again from other starts, with more
hidden units or with fewer; two are fitted to the samples of one, and one to those of two.  If that
adds g nats to the log-likelihood of these samples, it adds at least g to that of the mixture
(Jensen's inequality, as in `skdgn._fit.em.mixture`): decisions for different networks can be made
side by side.

All this happens on some of the samples, which stand for the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from skdgn._fit.em import MixtureProblem, MixtureState, NetworkVisits, Parts, Step, climb, log_of
from skdgn._fit.starts import (
    Gaussians,
    LatentPoints,
    add_units,
    bend_network,
    complete_samples,
    halve_latent_space,
    hold_tournament,
    make_networks,
    remove_units,
    starting_methods,
    starting_network,
)
from skdgn._network import Activation, Architecture, Dense
from skdgn._noise import KINDS
from skdgn._partition import TooManyRegionsError
from skdgn._posterior import Model
from skdgn._runtime import Bools, Floats, Integers, Workers, read

Candidate = tuple[Floats, Sequence[Parts]]  # weights that add up to 1, and networks

# Fits are made on at most so many samples for each network, and so many of few networks.
_SAMPLES_PER_NETWORK = 500
_FEWEST_SAMPLES = 2000
# How many candidates enter the first round, and how many iterations each is given; only the best
# enters the second.
_FIRST_ROUND = (2, 2)
# Samples of which a network has less than this are left to others.
_SMALLEST_SHARE = 1e-3
# A curve through fewer samples is not worth looking for.
_FEWEST_MEMBERS = 8
# Smallest variance of the noise at a start, in units of the samples' variance.
_SMALLEST_VARIANCE = 1e-4
# Draws of a sample's latent point, where residuals are looked at.
_N_DRAWS = 2
# Steps of k-means that cut samples in two.
_CUTTING_STEPS = 6
# Samples of less weight do not make a network of their own.
_SMALLEST_PART = 2.0
# Residuals are looked at at so many samples.
_MOST_POINTS = 1000
# How many ways to move hidden units are tried, at random up to a half of them.
_N_MOVES = 2
# Hidden units of a network that begins to bend, for each latent dimension.
_FIRST_UNITS = 4


@dataclass(frozen=True)
class Sizes:
    """Hidden layers that networks may have: those given, or else one of any number of units."""

    n_components: int
    activation: Activation | None = None
    given: Architecture | None = None

    @property
    def smallest(self) -> Architecture:
        """Hidden layers that a network begins with."""
        return self.given or Architecture(self.n_components)

    def bent(self, n_units: int) -> Architecture:
        """Hidden layers of so many units, if that can be chosen."""
        if self.given is not None:
            return self.given
        assert self.activation is not None
        return Architecture.alike(self.n_components, (n_units,), self.activation)


@dataclass(frozen=True)
class Replacement:
    """Networks that may take the place of others."""

    replaced: tuple[int, ...]
    models: list[Model]
    weights: Floats  # of these models, adding up to 1
    gain: float  # in log-likelihood plus log prior
    n_more: int  # parameters

    def value(self, price: float) -> float:
        """What is left of the gain, if every parameter has a price."""
        return self.gain - price * self.n_more


def replace_networks(
    state: MixtureState, replacements: Iterable[Replacement]
) -> tuple[Floats, list[Model]]:
    """Return weights and networks of a mixture in which some have taken the place of others."""
    gone = {k for own in replacements for k in own.replaced}
    weights = [float(state.weights[k]) for k in range(len(state.weights)) if k not in gone]
    models = [model for k, model in enumerate(state.models) if k not in gone]
    for own in replacements:
        weights += list(state.weights[list(own.replaced)].sum() * own.weights)
        models += own.models
    return np.array(weights) / np.sum(weights), models


class LocalFits:
    """Fits to the samples of some of a mixture's networks.

    Parameters
    ----------
    problem : MixtureProblem
    state : MixtureState
    sizes : Sizes
    m_step : str
    tol : float
        Of EM.
    n_iterations : int
        That the best of the candidates is given.
    price : float
        Of a parameter, in nats: what candidates of different sizes are compared by.
    generator : numpy.random.Generator
    """

    def __init__(
        self,
        problem: MixtureProblem,
        state: MixtureState,
        sizes: Sizes,
        m_step: str,
        tol: float,
        n_iterations: int,
        price: float,
        generator: np.random.Generator,
    ) -> None:
        self.problem, self.state, self.sizes = problem, state, sizes
        self.m_step, self.tol, self.n_iterations = m_step, tol, n_iterations
        self.price, self.generator = price, generator
        most_samples = max(_SAMPLES_PER_NETWORK * len(state.networks), _FEWEST_SAMPLES)
        sampled = problem.network.sample(most_samples, generator)
        self.samples, self.weights = read(sampled.samples), sampled.sample_weights
        self.completed = complete_samples(self.samples, self.weights)
        self.visited = NetworkVisits(state.models, log_of(state.weights), self.samples)
        self.shares = self.visited.responsibilities.T  # (n, K)

    # Which networks are worth a look.

    def nearest_pairs(self) -> list[tuple[int, int]]:
        """Pairs of networks that share many of their samples, or have few of them."""
        weighted = self.weights[:, None] * self.shares
        counts = weighted.sum(axis=0)
        overlaps = weighted.T @ self.shares / np.maximum(np.minimum.outer(counts, counts), 1e-300)
        centers = weighted.T @ self.completed / np.maximum(counts, 1e-300)[:, None]
        distances = ((centers[:, None] - centers) ** 2).sum(axis=2)
        pairs = itertools.combinations(range(len(counts)), 2)
        # The nearest of those that share nothing.
        return sorted(pairs, key=lambda pair: (-round(overlaps[pair], 3), distances[pair]))

    def poorest_networks(self) -> list[int]:
        """Networks to whose samples two Gaussians would be most of an improvement, the best first.

        Gaussians along the leading direction, cut in two at its mean: a cheap guess.
        """
        gains = []
        for k in range(self.shares.shape[1]):
            members = np.flatnonzero(self.shares[:, k] > 0.5)
            if len(members) < 2 * _FEWEST_MEMBERS:
                gains.append(-np.inf)
                continue
            gain = 0.0
            for half in self._halves(members):
                samples = self.completed[half]
                log_determinant = self._log_determinant(samples)
                gain -= 0.5 * len(half) * (log_determinant + 2.0 * np.log(len(members) / len(half)))
                gain -= 0.5 * len(half) * samples.shape[1] * (1.0 + np.log(2.0 * np.pi))
            own = self.visited.log_joint[k, members] - log_of(self.state.weights)[k]
            gains.append(gain - float(own.sum()))
        return [int(k) for k in np.argsort(gains)[::-1] if gains[k] > -np.inf]

    def _log_determinant(self, samples: Floats) -> float:
        """Log determinant of the covariance of samples (n, D), with a sample of the noise's prior.

        In units of that noise, it needs as many squares as there are samples, or features.
        """
        noise, (n_samples, n_features) = self.problem.noise_prior.common, samples.shape
        whitened = noise.whiten(samples - samples.mean(axis=0))
        squares = np.linalg.svd(whitened, compute_uv=False) ** 2
        return noise.log_determinant - n_features * np.log(n_samples) + np.log1p(squares).sum()

    def _halves(self, members: Integers) -> tuple[Integers, Integers]:
        samples = self.completed[members]
        centered = samples - samples.mean(axis=0)
        direction = np.linalg.svd(centered, full_matrices=False)[2][0]
        above = centered @ direction > 0.0
        return members[above], members[~above]

    # What may take their place.

    def _can_afford(self, k: int, n_more: int) -> bool:
        """Whether a network has a sample at least for each of so many more parameters.

        Otherwise nobody would miss them; fits of fixed sizes do not ask.
        """
        count = self.state.networks[k].statistics.total_weight
        return self.price == 0.0 or count >= n_more

    def refit(self, k: int) -> Replacement | None:
        """Fit one network of the same size, from other starts."""
        network, shares = self.state.models[k].network, self.shares[:, k]
        return self._replace((k,), map(_alone, self._curves(shares, network.architecture)))

    def grow(self, k: int, afresh: bool) -> Replacement | None:
        """Fit one network with more hidden units, also from other starts if asked."""
        model, n_components = self.state.models[k], self.sizes.n_components
        n_units = sum(model.network.hidden_layer_sizes)
        n_more = max(2, n_units // 2) if n_units else _FIRST_UNITS * n_components
        if not self._can_afford(k, n_more * (model.network.n_features + n_components)):
            return None
        bent = self.sizes.bent(n_units + n_more)
        if n_units == 0:
            slopes, mean = model.network.coefs[-1], model.network.intercepts[-1]
            floors = self.problem.network.noise_floors
            parts = [bend_network(slopes, mean, model.noise, bent, floors)]
        else:
            points = self._latent_points(k)
            parts = [(add_units(model.network, points, n_more, self.generator), model.noise)]
        if n_units == 0 or afresh:
            n_methods = 1 if len(self.state.networks) > 1 else None
            parts += self._curves(self.shares[:, k], bent, n_methods)
        return self._replace((k,), map(_alone, parts))

    def shrink(self, k: int) -> Replacement | None:
        """Fit one network with fewer hidden units."""
        model, points = self.state.models[k], self._latent_points(k)
        n_units = sum(model.network.hidden_layer_sizes)
        numbers = [max(1, n_units // 3)]
        if n_units <= 2 * _FIRST_UNITS * self.sizes.n_components:
            numbers.append(n_units)  # a linear network
        fewer = [remove_units(model.network, model.noise, points, number) for number in numbers]
        return self._replace((k,), [_alone((network, model.noise)) for network in fewer])

    def move_units(self, k: int) -> Replacement | None:
        """Fit one network of which some units are where residuals ask for them."""
        model, points = self.state.models[k], self._latent_points(k)
        n_units = sum(model.network.hidden_layer_sizes)
        if n_units == 1:
            return None
        parts = []
        for number in self.generator.integers(n_units // 2, size=_N_MOVES) + 1:
            fewer = remove_units(model.network, model.noise, points, number)
            lost = model.network.forward(points.latent) - fewer.forward(points.latent)
            residuals = points.residuals + model.noise.whiten(lost)
            there = replace(points, residuals=residuals)
            moved = add_units(fewer, there, number, self.generator)
            if moved.hidden_layer_sizes == model.network.hidden_layer_sizes:  # there was room
                parts.append((moved, model.noise))
        return self._replace((k,), map(_alone, parts))

    def split(self, k: int) -> Replacement | None:
        """Fit two networks to the samples of one."""
        model = self.state.models[k]
        if not self._can_afford(k, model.n_parameters):
            return None
        candidates: list[Candidate] = [
            (counts / counts.sum(), networks)
            for counts, networks in map(self._straight, self._cuts(k))
        ]
        if not model.network.is_affine and isinstance(model.network.layers[0], Dense):
            halves = [(half, model.noise) for half in halve_latent_space(model.network)]
            candidates.append((np.full(2, 0.5), halves))
        return self._replace((k,), candidates)

    def merge(self, first: int, second: int) -> Replacement | None:
        """Fit one network to the samples of two."""
        pair = [first, second]
        shares, models = self.shares[:, pair].sum(axis=1), [self.state.models[k] for k in pair]
        if shares.sum() == 0.0:
            return None
        n_units = sum(sum(model.network.hidden_layer_sizes) for model in models)
        bent = self.sizes.bent(max(n_units, _FIRST_UNITS * self.sizes.n_components))
        parts = [(model.network, model.noise) for model in models]
        parts += self._straight([shares])[1]
        parts += self._curves(shares, bent, n_methods=1)
        return self._replace((first, second), map(_alone, parts))

    def _replace(
        self, replaced: tuple[int, ...], candidates: Iterable[Candidate]
    ) -> Replacement | None:
        """Hold a tournament of candidates; None if none of them can be."""
        chosen = list(replaced)
        problem = self._problem(self.shares[:, chosen].sum(axis=1))
        if len(problem.network.samples) == 0:
            return None
        states = []
        for weights, parts in candidates:
            try:
                states.append(problem.begin(weights, parts))
            except (TooManyRegionsError, np.linalg.LinAlgError):
                continue
        if not states:
            return None
        best = hold_tournament(
            states,
            (_FIRST_ROUND, (1, self.n_iterations)),
            lambda state: state.lower_bound * state.total_weight - self.price * self._count(state),
            lambda state, iterations: self._climb(problem, state, iterations),
        )
        weights = self.state.weights[chosen] + np.finfo(np.float64).tiny
        before = problem.evaluate(weights / weights.sum(), [self.state.models[k] for k in chosen])
        gain = (best.lower_bound - before.lower_bound) * before.total_weight
        n_more = self._count(best) - self._count(before)
        return Replacement(replaced, best.models, best.weights, gain, n_more)

    def _count(self, state: MixtureState) -> int:
        """Count parameters, if they have a price."""
        if self.price == 0.0:
            return 0
        return sum(model.n_parameters for model in state.models) + len(state.models)

    def _problem(self, shares: Floats) -> MixtureProblem:
        chosen = np.flatnonzero((shares > _SMALLEST_SHARE) & (self.weights > 0.0))
        own = replace(
            self.problem.network,
            samples=self.samples[chosen],
            sample_weights=shares[chosen] * self.weights[chosen],
        )
        return replace(self.problem, network=own, concentration=1.0)

    def _climb(self, problem: MixtureProblem, state: MixtureState, iterations: int) -> MixtureState:
        step = Step(problem, self.m_step, self.tol)
        improved: MixtureState = climb(step, state, iterations, self.tol).state
        return improved

    # Where candidates begin.

    def _straight(self, shares: Sequence[Floats]) -> tuple[Floats, list[Parts]]:
        """Lead straight networks through samples with these shares (n,) each.

        Returns the weights of their samples, and the networks.
        """
        weighted = self.weights[:, None] * np.stack(shares, axis=1)
        gaussians = Gaussians.of(self.completed, weighted)
        own = self.problem.network
        return gaussians.counts, make_networks(
            gaussians.join(self.problem.noise_prior),
            self.sizes.smallest,
            own.covariance_type,
            own.noise_floors,
            own.n_factors,
        )

    def _curves(
        self, shares: Floats, architecture: Architecture, n_methods: int | None = None
    ) -> list[Parts]:
        """Lead networks through the samples of which a share (n,) is more than a half."""
        members = np.flatnonzero(shares > 0.5)
        if len(members) < _FEWEST_MEMBERS or architecture.is_linear:
            return []
        methods = starting_methods(architecture)[:n_methods]
        return [self._curve(members, architecture, method) for method in methods]

    def _curve(self, members: Integers, architecture: Architecture, method: str) -> Parts:
        """Lead a network through samples, measured in units of their own."""
        samples, own = self.completed[members], self.problem.network
        center, deviations = samples.mean(axis=0), samples.std(axis=0)
        deviations = np.where(deviations > 0.0, deviations, 1.0)
        scaled = (samples - center) / deviations
        start = starting_network(scaled, architecture, method, self.generator)
        network = start.network.scale_features(deviations, after=center)
        variances = deviations**2 * np.maximum(start.residual_variances, _SMALLEST_VARIANCE)
        variances = np.maximum(variances, own.noise_floors)
        residuals = deviations * start.residuals
        kind = KINDS[own.covariance_type]
        return network, kind.from_residuals(residuals, variances, own.n_factors)

    def _cuts(self, k: int) -> list[tuple[Floats, Floats]]:
        """Cut the samples of a network in two, in several ways: shares (n,) of both parts."""
        shares = self.shares[:, k]
        members = np.flatnonzero((shares > _SMALLEST_SHARE) & (self.weights > 0.0))
        if members.size == 0:
            return []
        samples, weights = self.completed[members], (shares * self.weights)[members]
        center = weights @ samples / weights.sum()
        root = np.sqrt(weights)[:, None] * (samples - center)
        direction = np.linalg.svd(root, full_matrices=False)[2][0]
        likely = weights / weights.sum()
        chosen = self.generator.choice(len(members), 2, p=likely)
        sides = [(samples - center) @ direction > 0.0, _cluster(samples, weights, chosen)]
        cuts = []
        for side in sides:
            first, second = np.zeros_like(shares), np.zeros_like(shares)
            first[members[side]] = shares[members[side]]
            second[members[~side]] = shares[members[~side]]
            if min(self.weights @ first, self.weights @ second) >= _SMALLEST_PART:
                cuts.append((first, second))
        return cuts

    def _latent_points(self, k: int) -> LatentPoints:
        """Draw latent points of a network's samples, from Gaussians like their posteriors."""
        model = self.state.models[k]
        weights = self.shares[:, k] * self.weights
        members = np.flatnonzero((self.shares[:, k] > _SMALLEST_SHARE) & (weights > 0.0))
        if len(members) > _MOST_POINTS:
            members = self.generator.choice(members, _MOST_POINTS, replace=False)
        samples = self.samples[members]
        posterior = model.posterior(samples, Workers())
        variances, axes = np.linalg.eigh(posterior.covariance)
        factors = axes * np.sqrt(np.maximum(variances, 0.0))[:, None, :]  # rounded below zero
        steps = self.generator.standard_normal((_N_DRAWS, *posterior.mean.shape))
        latent = posterior.mean + np.einsum("nst,mnt->mns", factors, steps)
        latent = latent.reshape(-1, latent.shape[2])
        completed = np.tile(model.impute(samples, Workers())[0], (_N_DRAWS, 1))
        residuals = model.noise.whiten(completed - model.network.forward(latent))
        return LatentPoints(latent, residuals, np.tile(weights[members], _N_DRAWS))


def _alone(parts: Parts) -> Candidate:
    """A candidate of one network."""
    return np.ones(1), [parts]


def _cluster(samples: Floats, weights: Floats, chosen: Integers) -> Bools:
    """Cut samples (n, D) in two by k-means, from two of them."""
    first, second = samples[chosen]
    for _ in range(_CUTTING_STEPS):
        # Where the squared distances are equal.
        side = (samples - 0.5 * (first + second)) @ (first - second) > 0.0
        if side.all() or not side.any():
            break
        first, second = (
            weights[part] @ samples[part] / weights[part].sum() for part in (side, ~side)
        )
    return side
