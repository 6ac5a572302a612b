"""Clusters strung on a line, and where regional noise begins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import skdgn._fitting
import skdgn._regional_starts
from skdgn import PiecewiseAffineDGN
from skdgn._chains import Chain, find_clusters, make_chain
from skdgn._network import Activation
from skdgn._noise import COVARIANCE_TYPES
from skdgn._shrinkage import NoisePrior
from tests.regional_models import fit_quietly

CENTERS = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 3.0], [-8.0, 7.0, 0.0], [0.0, -9.0, -7.0]])
COUNTS = (40, 60, 30, 70)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Four clusters, far from each other, of different shapes."""
    rng = np.random.default_rng(0)
    parts = [
        center + rng.normal(size=(count, 3)) @ (0.6 * rng.normal(size=(3, 3)))
        for center, count in zip(CENTERS, COUNTS, strict=True)
    ]
    return np.concatenate(parts)


def chain_of(rows: np.ndarray, activation: str = "relu", kind: str = "full") -> Chain:
    chain = make_chain(
        rows,
        np.ones(len(rows)),
        8,
        Activation.from_name(activation, 0.1),
        NoisePrior.of(10.0, kind, rows.shape[1]),
        kind,
        1e-4,
        np.random.default_rng(0),
    )
    assert chain is not None
    return chain


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_separate_clusters_are_found(rows: np.ndarray, kind: str) -> None:
    # Every row counts twice.
    clusters = find_clusters(
        rows,
        np.full(len(rows), 2.0),
        4,
        NoisePrior(1e-6),
        kind,
        1e-4,
        np.random.default_rng(0),
    )
    parts = np.split(rows, np.cumsum(COUNTS)[:-1])
    for share, mean, covariance in zip(
        clusters.shares, clusters.means, clusters.noise.covariance, strict=True
    ):
        nearest = np.linalg.norm(CENTERS - mean, axis=1).argmin()
        part = parts[nearest]
        assert share == pytest.approx(len(part) / len(rows), abs=1e-6)
        np.testing.assert_allclose(mean, part.mean(axis=0), atol=1e-5)
        expected = np.cov(part.T, bias=True)
        if kind != "full":
            expected = np.diagonal(expected) if kind == "diag" else np.trace(expected) / 3.0
        np.testing.assert_allclose(covariance, expected, atol=1e-4)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "abs"])
def test_the_network_visits_every_cluster(rows: np.ndarray, activation: str) -> None:
    chain = chain_of(rows, activation)
    shares, means, noise = chain.clusters
    ends = chain.network.forward(chain.kinks[:, None])
    assert len(chain.kinks) == 6
    for cluster in (1, 2):  # those between two others
        left, right = 2 * cluster - 1, 2 * cluster
        np.testing.assert_allclose(0.5 * (ends[left] + ends[right]), means[cluster], atol=1e-9)
        # The step is short in the units of the noise.
        step = np.linalg.solve(noise.factor[cluster], ends[right] - ends[left])
        assert np.linalg.norm(step) == pytest.approx(0.6, abs=1e-9)
    masses = np.diff(ndtr(np.concatenate([[-np.inf], chain.kinks, [np.inf]])))
    np.testing.assert_allclose(masses[::2], 0.99 * shares, atol=1e-12)


def test_the_model_is_nearly_the_mixture(rows: np.ndarray) -> None:
    chain = chain_of(rows)
    points = np.linspace(-5.0, 5.0, 2001)[:, None]
    noise = chain.noise_at(points)
    inside = np.searchsorted(chain.kinks, points[:, 0]) % 2 == 0
    pooled = np.broadcast_to(noise.pooled.covariance, noise.covariance[~inside].shape)
    np.testing.assert_array_equal(noise.covariance[~inside], pooled)
    shared = PiecewiseAffineDGN.from_network(
        chain.network.coefs, chain.network.intercepts, 1.0, activation="relu"
    )
    model = PiecewiseAffineDGN.from_network(
        chain.network.coefs,
        chain.network.intercepts,
        chain.noise_at(shared.partition_.cells.interior_points()).covariance,
        activation="relu",
        noise="regional",
    )
    mixture = GaussianMixture(4, random_state=0).fit(rows)
    mixture.means_, mixture.weights_ = chain.clusters.means, chain.clusters.shares
    precisions = np.linalg.inv(chain.clusters.noise.covariance)
    mixture.precisions_cholesky_ = np.linalg.cholesky(precisions)
    # A hundredth of the mass lies between the clusters, and each is stretched a little.
    assert model.score(rows) == pytest.approx(mixture.score(rows), abs=0.05)


def test_few_units_or_rows_make_no_chain(rows: np.ndarray) -> None:
    relu, prior = Activation.from_name("relu", 0.0), NoisePrior(1.0)
    for n_rows, n_units in ((200, 2), (3, 8)):
        few, generator = rows[:n_rows], np.random.default_rng(0)
        assert (
            make_chain(few, np.ones(n_rows), n_units, relu, prior, "diag", 1e-4, generator) is None
        )


def test_rows_that_are_all_equal_make_no_chain() -> None:
    relu, generator = Activation.from_name("relu", 0.0), np.random.default_rng(0)
    same = np.zeros((20, 2))
    assert make_chain(same, np.ones(20), 8, relu, NoisePrior(1.0), "full", 1e-4, generator) is None


def test_clusters_are_a_better_beginning_where_there_are_clusters(
    rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(8,),
        covariance_type="full",
        noise="regional",
        noise_prior_weight=1.0,
        max_iter=20,
        random_state=0,
    )
    with_chain = fit_quietly(model, rows).lower_bound_
    monkeypatch.setattr(skdgn._fitting, "make_chain", lambda *_: None)
    assert with_chain > fit_quietly(model, rows).lower_bound_ + 0.05


@pytest.mark.parametrize("during", ["clusters", "trials"])
def test_an_interrupted_beginning_keeps_the_best(
    rows: np.ndarray, during: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if during == "clusters":
        monkeypatch.setattr(skdgn._fitting, "make_chain", interrupt)
    else:
        monkeypatch.setattr(skdgn._regional_starts, "_first_state", interrupt)
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(8,), noise="regional", max_iter=10, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="interrupted after 0 iterations"):
        model.fit(rows)
    assert model.noise_covariance_.shape == (model.n_regions_, 3)
    assert np.all(np.isfinite(model.score_samples(rows)))
