"""Networks whose regions are not listed answer as if they were."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from skdgn import DGNEnsemble, PiecewiseAffineDGN
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._partition import LatentBoxes
from skdgn._posterior import Model, UnlistedModel, Visitor
from skdgn._posterior.bounds.box_exploration import BoxExplorer
from skdgn._posterior.patches import list_patch
from skdgn._runtime import Workers
from skdgn.layers import Dense, MaxOut, Reshape
from tests.networks import random_network

SIZES = {1: (20, 10), 2: (16, 12), 3: (8,)}
N_FEATURES = 4
NOISES = {"spherical": 0.05, "full": 0.05 * (np.eye(N_FEATURES) + 0.5)}


def draw_case(n_components: int, noise: str = "spherical") -> tuple[Model, UnlistedModel]:
    network = random_network(n_components, SIZES[n_components], n_features=N_FEATURES, seed=1)
    own = Noise.from_covariance(NOISES[noise], N_FEATURES)
    return Model.build(network, own), UnlistedModel(network, own)


def draw_rows(model: Model) -> np.ndarray:
    """Some from the model, one far away, one with missing values, one without anything."""
    rows, _ = model.draw(7, np.random.RandomState(0))
    rows[1] += 20.0
    rows[2, :2] = np.nan
    rows[3] = np.nan
    return rows


@pytest.fixture(autouse=True)
def _few_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small networks be explored, too."""
    monkeypatch.setattr("skdgn._posterior.bounds.box_exploration._FEW_CUTS", (4, 8, 6))


@pytest.mark.parametrize(
    ("n_components", "noise"), [(1, "spherical"), (2, "spherical"), (2, "full"), (3, "spherical")]
)
def test_bounds_contain_the_exact_log_density(n_components: int, noise: str) -> None:
    listed, unlisted = draw_case(n_components, noise)
    rows = draw_rows(listed)
    exact = listed.log_density(rows, Workers())
    lower, upper = unlisted.log_density_bounds(rows, Workers())
    assert np.all(lower <= exact)
    assert np.all(exact <= upper)
    assert np.all(upper - lower <= 1e-9 + 1e-11 * np.abs(exact))
    np.testing.assert_allclose(unlisted.log_density(rows, Workers()), exact, rtol=1e-10)
    for bound in listed.log_density_bounds(rows, Workers()):
        np.testing.assert_array_equal(bound, exact)


def test_boundaries_may_meet_at_corners_of_boxes() -> None:
    network = Network.from_blueprints(
        [Reshape((3,)), MaxOut(3), Dense(2, [[-0.3], [-0.1]], [0.2, -0.8])], 3
    )
    noise = Noise.from_covariance(0.5, 2)
    listed, unlisted = Model.build(network, noise), UnlistedModel(network, noise)
    rows, _ = listed.draw(20, np.random.RandomState(0))
    expected = listed.log_density(rows, Workers())
    np.testing.assert_allclose(unlisted.log_density(rows, Workers()), expected, rtol=1e-10)


@pytest.mark.parametrize("n_features", [4, 90])
def test_samples_far_out_lose_no_digits(n_features: int) -> None:
    # Bounds from which patches are known to count have rounding errors of their own.
    network = random_network(2, (16, 8), n_features=n_features, seed=1)
    noise = Noise.from_covariance(0.05, n_features)
    directions = np.random.default_rng(0).normal(size=(6, n_features))
    rows = directions * np.array([1e2, 1e4, 1e6, 1e9, 1e12, 1e60])[:, None]
    ours, exact = (
        model.log_density(rows, Workers())
        for model in (UnlistedModel(network, noise), Model.build(network, noise))
    )
    np.testing.assert_allclose(ours, exact, rtol=1e-12)


def test_bounds_hold_however_early_exploration_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    listed, unlisted = draw_case(2)
    rows = draw_rows(listed)
    exact = listed.log_density(rows, Workers())
    widths = []
    explore = BoxExplorer.explore
    for most_boxes in (8, 60, 120):
        monkeypatch.setattr(
            BoxExplorer, "explore", lambda self, most=most_boxes: explore(self, most_boxes=most)
        )
        lower, upper = unlisted.log_density_bounds(rows, Workers())
        assert np.all(lower <= exact)
        assert np.all(exact <= upper)
        widths.append(np.exp(lower - upper))
    assert np.all(widths[0] <= widths[1] + 1e-9)
    assert np.all(widths[1] <= widths[2] + 1e-9)
    assert widths[0].min() < 1e-6
    monkeypatch.setattr(BoxExplorer, "explore", lambda self: explore(self, most_boxes=8))
    with pytest.warns(UserWarning, match="log_density_bounds says by how much"):
        unlisted.log_density(rows, Workers())


@pytest.mark.parametrize("n_components", [1, 2])
def test_posteriors_are_those_of_listed_regions(n_components: int) -> None:
    listed, unlisted = draw_case(n_components)
    rows = draw_rows(listed)[:5]
    posterior, expected = (model.posterior(rows, Workers()) for model in (unlisted, listed))
    densities = (own._visits.log_density for own in (posterior, expected))
    np.testing.assert_allclose(*densities, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(posterior.mean, expected.mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(posterior.covariance, expected.covariance, rtol=0, atol=1e-9)
    np.testing.assert_allclose(posterior.mode(), expected.mode(), rtol=0, atol=1e-9)
    draws = posterior.sample(2000, random_state=0)
    deviations = np.sqrt(np.diagonal(expected.covariance, axis1=1, axis2=2))
    assert np.all(np.abs(draws.mean(axis=0) - expected.mean) < 5.0 * deviations / np.sqrt(2000))
    np.testing.assert_allclose(
        unlisted.impute(rows, Workers()), listed.impute(rows, Workers()), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("zero_noise", [False, True])
def test_modes_are_those_of_listed_regions(n_components: int, zero_noise: bool) -> None:
    listed, unlisted = draw_case(n_components, "full")
    rows = draw_rows(listed)
    posterior, expected = (model.posterior(rows, Workers()) for model in (unlisted, listed))
    assert len(posterior._visitor.parts) > 1
    found, modes = posterior.mode(zero_noise), expected.mode(zero_noise)
    if zero_noise:
        # Of points that are equally near, rounding may choose another one.
        known = ~np.isnan(rows).any(axis=1)
        distances = [
            np.linalg.norm(rows[known] - listed.network.forward(own[known]), axis=1)
            for own in (found, modes)
        ]
        assert np.all(distances[0] <= distances[1] + 1e-6)
    else:
        np.testing.assert_allclose(found, modes, rtol=0, atol=1e-7)


def test_log_densities_of_points_outside_of_all_patches_are_exact() -> None:
    listed, unlisted = draw_case(2)
    rows = draw_rows(listed)[[0, 1, 2, 4]]
    latent = 4.0 * np.random.default_rng(0).normal(size=(30, 2))
    posterior, expected = (model.posterior(rows, Workers()) for model in (unlisted, listed))
    assert (posterior._visitor.find_regions(latent) == -1).any()
    np.testing.assert_allclose(
        posterior.log_density(latent), expected.log_density(latent), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("n_features", [4, 90])
def test_gaps_are_those_of_listed_regions(n_features: int) -> None:
    # With many features, every patch has a plane of its own.
    network = random_network(2, (16, 8), n_features=n_features, seed=1)
    noise = Noise.from_covariance(0.5, n_features)
    listed, unlisted = Model.build(network, noise), UnlistedModel(network, noise)
    rows = listed.draw(4, np.random.default_rng(0))[0]
    rows[1] *= 30.0
    rows[2, :2] = np.nan
    posterior = listed.posterior(rows, Workers())
    means, factors = posterior.mean + 0.1, 2.0 * np.linalg.cholesky(posterior.covariance)
    for method in ("lower_bounds", "variational_gaps"):
        ours, expected = (
            getattr(model, method)(rows, means, factors, Workers()) for model in (unlisted, listed)
        )
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-8)
    kl, expected = (
        model.posterior(rows, Workers()).kl_from(means, factors @ factors.swapaxes(1, 2))
        for model in (unlisted, listed)
    )
    np.testing.assert_allclose(kl, expected, rtol=1e-9, atol=1e-9)


def test_lower_bounds_of_gaussians_far_from_the_posterior_are_exact() -> None:
    listed, unlisted = draw_case(2)
    rows = draw_rows(listed)[:2]
    means = np.array([[1.0, -1.0], [-2.0, 0.0]])
    factors = np.array([np.diag([0.5, 0.2]), np.eye(2)])
    elbo, expected = (
        model.lower_bounds(rows, means, factors, Workers()) for model in (unlisted, listed)
    )
    np.testing.assert_allclose(elbo, expected, rtol=1e-10)


def test_an_estimator_of_a_large_network_does_not_list_its_regions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("skdgn._posterior.unlisted_model.MOST_REGIONS", 50)
    network = random_network(2, (16, 12), seed=2)
    model = PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, 0.1, activation="relu"
    )
    for name in ("n_regions_", "weights_", "weights_error_", "partition_"):
        with pytest.raises(AttributeError, match=r"hidden_layer_sizes=\(16, 12\) are not listed"):
            getattr(model, name)
    with pytest.raises(ValueError, match="are not listed"):
        model.predict([[0.0, 0.0, 0.0]])
    rows, labels = model.sample(3, random_state=0)
    assert labels.tolist() == [-1, -1, -1]
    copy = pickle.loads(pickle.dumps(model))
    assert isinstance(copy._fitted_model(), UnlistedModel)
    far = rows[:1] + 1e160
    assert copy.score_samples(far)[0] == -np.inf
    assert np.isnan(copy.posterior(far).mean).all()


def test_sums_of_densities_add_their_bounds() -> None:
    networks = [random_network(1, (4,), seed=seed) for seed in (0, 1)]
    members = [
        PiecewiseAffineDGN.from_network(own.coefs, own.intercepts, 0.1, activation="relu")
        for own in networks
    ]
    rows = members[0].sample(5, random_state=0)[0]
    ensemble = DGNEnsemble.from_estimators(members, weights=[1, 3])
    # One member whose regions are not listed.
    members[1]._model = UnlistedModel(networks[1], members[1]._model.noise)
    lower, upper = ensemble.log_density_bounds(rows)
    exact = DGNEnsemble.from_estimators(members, weights=[1, 3]).score_samples(rows)
    assert np.all(lower <= exact)
    assert np.all(exact <= upper)
    assert np.all(upper - lower < 1e-9)


def test_noise_is_widened_as_if_regions_were_listed() -> None:
    network, noise = random_network(2, (4,), seed=3), Noise.from_covariance([0.1, 0.2, 0.3], 3)
    listed, unlisted = Model.build(network, noise), UnlistedModel(network, noise)
    rows = listed.draw(4, np.random.default_rng(0))[0]
    wider = Model.build(network, Noise.from_covariance([0.4, 0.8, 1.2], 3))
    expected = wider.log_density(rows, Workers())
    for model in (listed, unlisted):
        np.testing.assert_allclose(model.widen(4.0).log_density(rows, Workers()), expected)
        assert model.widen(4.0) is model.widen(4.0)
        assert model.widen(1.0) is model
        assert "_widened" not in vars(pickle.loads(pickle.dumps(model)))


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_a_single_region_within_a_box_is_not_all_of_space(n_components: int) -> None:
    network = random_network(n_components, (3,), seed=4)
    noise = Noise.from_covariance(0.5, network.n_features)
    box = LatentBoxes(np.full((1, n_components), 0.3), np.array([1e-3]))
    partition = list_patch(network, box)
    assert len(partition) == 1
    rows = network.forward(box.centers)
    log_density = Visitor.prepare(partition, noise).visit(rows).log_density
    # So small that the density is constant.
    expected = box.log_masses() - 0.5 * network.n_features * np.log(2.0 * np.pi * 0.5)
    np.testing.assert_allclose(log_density, expected, rtol=0, atol=1e-4)
