"""Bounds on the distance of a sample with missing values from a box."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from skdgn._noise import Noise, NoiseUnits, make_observation, observe
from skdgn._posterior.listed.incomplete_conditionals import make_sample, scale_sample
from skdgn._posterior.listed.latent_boxes import Boxes, bound_box, bound_correlated, split_spread

D, N_BOXES = 5, 30


@pytest.mark.parametrize("seed", range(3))
def test_bounds_never_exceed_the_distance_and_the_second_is_near_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    deviations = rng.uniform(0.5, 2.0, D)
    correlations = 0.8 + np.diag(rng.uniform(0.1, 0.3, D))
    noise = Noise.from_covariance(correlations * np.outer(deviations, deviations), D)
    units = NoiseUnits.of(noise)
    lower = rng.normal(scale=4.0, size=(N_BOXES, D))
    upper = lower + rng.uniform(0.0, 1.0, size=(N_BOXES, D))
    upper[:5, 0], lower[5:10, 1] = np.inf, -np.inf
    boxes = Boxes(lower, upper, np.full(N_BOXES, np.inf), units.spread, *split_spread(units))
    sample = rng.normal(size=D) * noise.deviations
    sample[seed] = np.nan
    observation, row = make_observation(units), make_sample(1, D)
    n_observed = observe(sample, units, observation)
    scale_sample(sample, units, observation, row)

    o = observation.order[:n_observed]
    whitening = np.linalg.inv(np.linalg.cholesky(units.correlations[np.ix_(o, o)]))
    firsts, seconds, distances = [], [], []
    for box in range(N_BOXES):
        ends = (lower[box, o] - row.scaled[:n_observed], upper[box, o] - row.scaled[:n_observed])
        distances.append(2.0 * lsq_linear(whitening, np.zeros(n_observed), ends, tol=1e-14).cost)
        firsts.append(bound_box(boxes, box, observation, row.scaled))
        seconds.append(bound_correlated(boxes, box, observation, row))
    assert np.all(np.array(firsts) <= distances)
    assert np.all(np.array(seconds) <= np.array(distances) * (1.0 + 1e-12))
    # Division by the largest variance loses most of the distance.
    assert np.median(np.array(firsts) / distances) < 0.5
    assert np.median(np.array(seconds) / distances) > 0.7


def test_the_split_is_an_upper_bound_of_the_correlations() -> None:
    rng = np.random.default_rng(0)
    for n_features in (1, 2, 6):
        factor = rng.normal(size=(n_features, n_features))
        units = NoiseUnits.of(Noise.from_covariance(factor @ factor.T, n_features))
        other, direction = split_spread(units)
        excess = other * np.eye(n_features) + np.outer(direction, direction)
        if units.correlations.size:
            excess -= units.correlations
            assert np.linalg.eigvalsh(excess)[0] >= -1e-14
        assert other <= units.spread * (1.0 + 1e-12)
