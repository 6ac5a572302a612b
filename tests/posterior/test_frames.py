"""Coordinates in which samples are compared with regions: the same as by all of the features."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn import PiecewiseAffineDGN
from skdgn._noise import KINDS, Noise
from skdgn._partition import build_partition
from skdgn._posterior.listed.frames import choose_frame, count_coordinates
from skdgn._posterior.listed.visits import Visitor, Visits
from tests.networks import random_network

N_FEATURES, N_UNITS = 90, 6
ROUNDING = 1e-12


def draw_noise(kind: str, seed: int = 0) -> Noise:
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.3, 3.0, N_FEATURES)
    loadings = rng.normal(size=(N_FEATURES, 2))
    covariances = {
        "spherical": 0.5,
        "diag": scales,
        "full": np.diag(scales) + loadings @ loadings.T,
        "factor": (loadings, scales),
    }
    return KINDS[kind].read(covariances[kind], N_FEATURES)


@pytest.mark.parametrize("kind", ["spherical", "diag", "full", "factor"])
@pytest.mark.parametrize("n_components", [1, 2])
def test_a_plane_has_the_distances_of_all_features(kind: str, n_components: int) -> None:
    network = random_network(n_components, (N_UNITS,), n_features=N_FEATURES, seed=1)
    partition, noise = build_partition(network), draw_noise(kind)
    frame = choose_frame(partition.maps, noise)
    assert frame.shape[1] == N_UNITS + 1 == count_coordinates(network.layers[-1])
    rng = np.random.default_rng(2)
    rows = 3.0 * rng.normal(size=(5, N_FEATURES)) * np.array([1.0, 1.0, 1.0, 1e6, 1e-6])[:, None]
    latent = rng.normal(size=(5, n_components))
    regions = partition.locate(network.patterns(latent))
    maps, whitened = frame.take(regions), frame.whiten(rows)
    images = maps.offsets + np.einsum("nds,ns->nd", maps.slopes, latent)
    squares = np.square(whitened - images).sum(axis=1)
    expected = np.square(noise.whiten(rows - network.forward(latent))).sum(axis=1)
    np.testing.assert_allclose(squares, expected, rtol=ROUNDING)


@pytest.mark.parametrize("kind", ["spherical", "diag", "full", "factor"])
@pytest.mark.parametrize(("n_components", "sizes"), [(1, (12, N_UNITS)), (2, (N_UNITS,)), (1, ())])
def test_densities_and_posteriors_are_those_of_all_features(
    kind: str, n_components: int, sizes: tuple[int, ...]
) -> None:
    network = random_network(n_components, sizes, n_features=N_FEATURES, seed=3)
    noise = draw_noise(kind)
    visitor = Visitor.prepare(build_partition(network), noise)
    rng = np.random.default_rng(4)
    rows = network.forward(rng.normal(size=(6, n_components)))
    rows += noise.color(rng.normal(size=rows.shape))
    rows[4:] *= 30.0
    # As if values were missing, samples are compared feature by feature.
    ours, theirs = visitor.visit(rows), visitor.visit(rows, prepared=False)
    np.testing.assert_allclose(ours.log_density, theirs.log_density, rtol=ROUNDING)
    for own, other in zip(_moments(ours), _moments(theirs), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)
    if sizes:
        rows[0, :3] = np.nan  # complete samples beside incomplete ones
        mixed = visitor.visit(rows)
        np.testing.assert_allclose(mixed.log_density[1:], ours.log_density[1:], rtol=ROUNDING)


def _moments(visits: Visits) -> tuple[np.ndarray, np.ndarray]:
    weights = visits.responsibilities[:, None]
    means = np.add.reduceat(weights * visits.means, visits.start[:-1])
    squares = visits.covariances + visits.means[:, :, None] * visits.means[:, None]
    return means, np.add.reduceat(weights[:, None] * squares, visits.start[:-1])


def test_bounds_by_gaussians_do_not_depend_on_coordinates() -> None:
    network = random_network(2, (N_UNITS,), n_features=N_FEATURES, seed=5)
    model = PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, 0.5, activation="relu"
    )
    rows, _ = model.sample(3, random_state=0)
    posterior = model.posterior(rows)
    means, covariances = posterior.mean, posterior.covariance
    divergences = posterior.kl_from(means, covariances)
    elbo = model.elbo(rows, means, covariances)
    np.testing.assert_allclose(elbo + divergences, model.score_samples(rows), rtol=1e-11)
    # A missing value that tells nothing: the same, by the features that are left.
    extended = PiecewiseAffineDGN.from_network(
        [network.coefs[0], np.vstack([network.coefs[1], np.zeros(N_UNITS)])],
        [network.intercepts[0], np.append(network.intercepts[1], 0.0)],
        0.5,
        activation="relu",
    )
    incomplete = np.column_stack([rows, np.full(len(rows), np.nan)])
    np.testing.assert_allclose(extended.elbo(incomplete, means, covariances), elbo, rtol=ROUNDING)
    np.testing.assert_allclose(
        extended.posterior(incomplete).mode(), posterior.mode(), rtol=1e-9, atol=1e-12
    )


def test_samples_too_far_out_have_no_density() -> None:
    network = random_network(1, (N_UNITS,), n_features=N_FEATURES, seed=6)
    model = PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, 0.5, activation="relu"
    )
    rows = np.array([[1e200], [1e308], [1e150], [1.0]]) * np.ones(N_FEATURES)
    log_density = model.score_samples(rows)
    assert np.all(log_density[:2] == -np.inf)
    assert np.isfinite(log_density[2:]).all()


def test_few_features_stay_as_they_are() -> None:
    network = random_network(1, (4,), n_features=20, seed=0)
    noise = Noise.from_covariance(0.5, 20)
    frame = choose_frame(build_partition(network).maps, noise)
    rows = np.random.default_rng(0).normal(size=(3, 20))
    np.testing.assert_array_equal(frame.whiten(rows), noise.whiten(rows))
