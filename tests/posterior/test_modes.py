"""Posterior modes: global maxima, and their limit for vanishing noise."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._estimators.network import PiecewiseAffineDGN
from skdgn._network import Network
from tests.networks import random_architecture, random_network

N_STARTS = 1000
N_STEPS = 60
# A local search ends this near to its maximum, and rounding adds to it.
ROUNDING = 1e-9


def make_model(network: Network, noise: object) -> PiecewiseAffineDGN:
    activation = network.activations[0]
    return PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, noise, activation=activation.name
    )


def local_searches(network: Network, variance: float, row: np.ndarray, seed: int) -> np.ndarray:
    """Climb log p(x, z) from random starts by steps that are taken only if they lead upward."""
    rng = np.random.default_rng(seed)
    points = 1.5 * rng.normal(size=(N_STARTS, network.n_components))

    def height(points: np.ndarray) -> np.ndarray:
        residuals = row - network.forward(points)
        return -0.5 * (residuals**2).sum(axis=1) / variance - 0.5 * (points**2).sum(axis=1)

    values = height(points)
    steps = np.ones((N_STARTS, 1))
    for _ in range(N_STEPS):
        trials = points + steps * rng.normal(size=points.shape)
        trial_values = height(trials)
        better = trial_values > values
        points[better], values[better] = trials[better], trial_values[better]
        steps = np.where(better[:, None], 2.0 * steps, 0.7 * steps)
    return points


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_no_local_search_finds_a_higher_point(n_components: int) -> None:
    for seed in range(17):
        widths, activation = random_architecture(seed)
        network = random_network(n_components, widths, activation=activation, seed=seed)
        variance = 0.2
        model = make_model(network, variance)
        rows = model.sample(1, random_state=seed)[0]
        posterior = model.posterior(rows)
        mode = posterior.mode()
        found = local_searches(network, variance, rows[0], seed)
        highest = posterior.log_density(found).max()
        assert posterior.log_density(mode)[0, 0] >= highest - ROUNDING, (n_components, seed)


@pytest.mark.parametrize("n_components", [1, 2])
def test_mode_without_noise_is_the_nearest_image(n_components: int) -> None:
    for seed in range(8):
        network = random_network(n_components, (5, 4), activation="relu", seed=seed)
        # Noise of different scales, to see that distances are measured in units of it.
        model = make_model(network, np.array([0.1, 1.0, 0.01]))
        rows = model.sample(1, random_state=seed)[0]
        point = model.posterior(rows).mode(zero_noise=True)
        scale = np.sqrt([0.1, 1.0, 0.01])
        distance = np.linalg.norm((rows - network.forward(point)) / scale)
        # Without its prior, a local search on log p(x, z) is one on the distance.
        grid = local_searches(network, 1.0, rows[0], seed)
        fine = grid[:, None] + 0.01 * np.random.default_rng(0).normal(size=(1, 20, n_components))
        images = network.forward(fine.reshape(-1, n_components))
        assert distance <= np.linalg.norm((rows - images) / scale, axis=1).min() + ROUNDING


def test_of_all_nearest_images_the_point_of_smallest_norm() -> None:
    # Two latent dimensions, one feature: lines of points have the same image.
    model = PiecewiseAffineDGN.from_network(
        [np.array([[3.0, 4.0]])], [np.array([1.0])], 0.1, activation="relu"
    )
    point = model.posterior([[6.0]]).mode(zero_noise=True)
    np.testing.assert_allclose(point, [[0.6, 0.8]], rtol=1e-9)


def test_mean_and_mode_meet_as_the_noise_shrinks() -> None:
    network = random_network(2, (6,), activation="leaky_relu", seed=1)
    rows = make_model(network, 1e-2).sample(4, random_state=0)[0]
    limit = make_model(network, 1.0).posterior(rows).mode(zero_noise=True)
    gaps, distances, spreads = [], [], []
    for variance in (1e-1, 1e-3, 1e-5, 1e-7, 1e-9):
        posterior = make_model(network, variance).posterior(rows)
        mode = posterior.mode()
        gaps.append(np.abs(posterior.mean - mode).max())
        distances.append(np.abs(mode - limit).max())
        spreads.append(np.abs(posterior.covariance).max())
    assert gaps[-1] < 1e-4
    assert distances[-1] < 1e-6
    assert spreads[-1] < 1e-6
    assert np.all(np.diff(spreads) < 0.0)


def test_modes_of_rows_with_holes() -> None:
    network = random_network(2, (6, 4), activation="relu", seed=3)
    model = make_model(network, np.diag([0.1, 0.2, 0.3]) + 0.05)
    rows = model.sample(3, random_state=0)[0]
    rows[0, 1] = np.nan
    rows[1] = np.nan
    posterior = model.posterior(rows)
    mode = posterior.mode()
    np.testing.assert_allclose(mode[1], 0.0, atol=1e-12)
    points = np.random.default_rng(0).normal(size=(20_000, 2))
    for n in range(3):
        near = mode[n] + 0.1 * points
        highest = posterior.log_density(np.concatenate([points, near])).max(axis=1)[n]
        assert posterior.log_density(mode)[n, n] >= highest
