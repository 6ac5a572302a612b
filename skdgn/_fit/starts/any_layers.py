"""Any layers fitted to latent coordinates and samples by least squares: a start for EM.

Every sample is a region of its own, whose posterior is the point of its coordinates: so a step of
least squares is an M-step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from skdgn._fit.m_step import Damping, GaussNewtonSystem, linearize, step_network
from skdgn._fit.starts.counterparts import dense_counterparts, imitate
from skdgn._fit.starts.least_squares import Pairs, average_pairs, fit_to_coordinates
from skdgn._fit.starts.tournament import hold_tournament
from skdgn._fit.statistics import SufficientStatistics
from skdgn._network import Architecture, Layer, Network
from skdgn._noise import KINDS, Noise
from skdgn._runtime import Floats

# How many candidates enter a round, and how many steps each is given.
_ROUNDS = ((12, 3), (4, 8), (2, 15), (1, 30))
# The same where the product of parameters and values to be fitted is large.
_FEWER_ROUNDS = ((2, 2), (1, 6))
_MUCH_WORK = 1e7
# Latent points for each dimension at which a network is to equal a linear map.
_POINTS_OF_A_MAP = 100
# A search whose residuals after a round are so many times those of another start goes no further.
_HOPELESS = 4.0
# A step is shortened so often, and a candidate is left alone that gains less than this share.
_MOST_TRIALS = 8
_TOLERANCE = 1e-4


class _Candidate(NamedTuple):
    network: Network
    loss: float
    damping: float


def fit_any_layers(
    coordinates: Floats,
    samples: Floats,
    architecture: Architecture,
    generator: np.random.Generator,
    to_beat: float = np.inf,
) -> Network:
    """Fit a network to coordinates (n, s) and samples (n, d); see `fit_to_coordinates`."""
    pairs = average_pairs(Pairs(coordinates, samples))
    imitations = [
        imitate(
            fit_to_coordinates(coordinates, samples, counterpart, generator, to_beat),
            architecture,
            pairs.latent,
        )
        for counterpart in dense_counterparts(architecture, samples.shape[1])
    ]
    if imitations:
        return min(imitations, key=lambda network: _loss(network, Pairs(coordinates, samples)))
    statistics = _statistics(pairs)
    noise = KINDS["spherical"].from_variances(np.ones(samples.shape[1]))
    networks = [architecture.draw(samples.shape[1], generator) for _ in range(_ROUNDS[0][0])]
    n_parameters = sum(layer.n_parameters for layer in networks[0].layers)
    efforts = _ROUNDS if n_parameters * pairs.targets.size <= _MUCH_WORK else _FEWER_ROUNDS
    networks = [
        _bend_at_samples(network, pairs.latent, generator) for network in networks[: efforts[0][0]]
    ]
    candidates = [_Candidate(network, _loss(network, pairs), Damping.value) for network in networks]

    def improve(candidate: _Candidate, n_steps: int) -> _Candidate:
        return _improve(candidate, pairs, statistics, noise, n_steps)

    def rounds() -> Iterator[tuple[int, int]]:
        for place, effort in enumerate(efforts):
            best = min(candidate.loss for candidate in candidates)
            if place == 0 or best <= _HOPELESS * to_beat * pairs.targets.size:
                yield effort

    return hold_tournament(candidates, rounds(), lambda own: -own.loss, improve).network


def fit_linear_map(slopes: Floats, mean: Floats, architecture: Architecture) -> Network:
    """Fit a network to ``slopes @ z + mean``, which its layers need not be able to compute."""
    generator = np.random.default_rng(0)
    latent = generator.standard_normal((_POINTS_OF_A_MAP * slopes.shape[1], slopes.shape[1]))
    return fit_any_layers(latent, latent @ slopes.T + mean, architecture, generator)


def _bend_at_samples(network: Network, latent: Floats, generator: np.random.Generator) -> Network:
    """Choose intercepts such that every unit has its kink at a sample, and no two at the same.

    Members of a group whose maximum is taken are equal there.
    """
    values = latent
    for place, layer in enumerate(network.layers[:-1]):
        behind = network.layers[place + 1]
        if behind.n_codes and layer.n_parameters and layer.n_codes == 0:
            moved = layer.forward(values)
            groups = np.arange(layer.n_outputs)
            if behind.contests is not None:
                groups[behind.contests.ravel()] = (
                    behind.contests[:, :1].repeat(behind.contests.shape[1], axis=1).ravel()
                )
            ranks = generator.permutation(np.arange(layer.n_outputs) % len(values))
            # Spread evenly over the samples, in the order of what the units see.
            spots = (ranks + generator.uniform(size=len(ranks))) / (ranks.max() + 1)
            order = np.argsort(moved, axis=0)
            chosen = order[(spots * len(values)).astype(np.intp), np.arange(len(ranks))][groups]
            parameters = layer.parameters.copy()
            shift = moved[chosen, np.arange(len(chosen))][: layer.core.n_outputs]
            felt, counts = (
                layer.core.pull(
                    force[None, :, None], _constant(layer.core), layer.codes(values[:1])
                )
                for force in (-shift, np.ones_like(shift))
            )
            own = ~layer.is_weight
            parameters[own] += felt[own] / np.maximum(counts[own], 1.0)
            network = network.replace_layers([place], [layer.with_parameters(parameters)])
        values = network.layers[place].forward(values)
    return network


def _constant(layer: Layer) -> Floats:
    """Inputs that are all zero, and the constant: what the intercepts alone see."""
    upstream = np.zeros((1, layer.n_inputs + 1, 1))
    upstream[0, -1, 0] = 1.0
    return upstream


def _statistics(pairs: Pairs) -> SufficientStatistics:
    latent, targets = pairs
    return SufficientStatistics(
        weights=np.ones(len(latent)),
        first=latent,
        second=latent[:, :, None] * latent[:, None, :],
        data=targets,
        cross=targets[:, :, None] * latent[:, None, :],
        squares=np.zeros(1),  # the noise is not estimated
        total_weight=float(len(latent)),
        log_likelihood=0.0,
    )


def _loss(network: Network, pairs: Pairs) -> float:
    return float(np.sum((pairs.targets - network.forward(pairs.latent)) ** 2))


def _improve(
    candidate: _Candidate,
    pairs: Pairs,
    statistics: SufficientStatistics,
    noise: Noise,
    n_steps: int,
) -> _Candidate:
    """Take damped Gauss-Newton steps."""
    damping = Damping(candidate.damping)
    for _ in range(n_steps):
        before = candidate.loss
        propose = _proposal(candidate.network, pairs, statistics, noise)
        trial = damping.search(partial(_attempt, propose, pairs, candidate.loss), _MOST_TRIALS)
        if trial is None:
            break
        damping.relax()
        candidate = trial._replace(damping=damping.value)
        if candidate.loss > (1.0 - _TOLERANCE) * before:
            break
    return candidate


def _proposal(
    network: Network, pairs: Pairs, statistics: SufficientStatistics, noise: Noise
) -> Callable[[float], Network]:
    """Return the damped step over all layers, as a function of the damping."""
    patterns, layers = network.patterns(pairs.latent), range(len(network.learned))
    system = GaussNewtonSystem(linearize(statistics, network, noise, patterns), layers)
    return lambda damping: step_network(network, noise, layers, system.solve(damping))


def _attempt(
    propose: Callable[[float], Network], pairs: Pairs, to_beat: float, damping: float
) -> _Candidate | None:
    network = propose(damping)
    loss = _loss(network, pairs)
    return _Candidate(network, loss, damping) if loss < to_beat else None
