"""Densities and posteriors: against an independent integrator, closed forms, and all regions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from skdgn._network import ACTIVATIONS, Activation, Network
from skdgn._noise.gaussian import Noise
from skdgn._partition.enumeration import Partition, build_partition
from skdgn._posterior.listed.visits import Visitor, Visits
from tests.geometry.helpers import integrate_cells
from tests.networks import DEGENERATE, random_architecture, random_network
from tests.portions import usually
from tests.reference.latent_integral import integrate_over_latent_space
from tests.reference.line_posterior import line_posterior

DATA = Path(__file__).parents[1] / "data"

# The package aims at full accuracy; the reference has about 1e-11.
DENSITY_ACCURACY = 1e-10
MOMENT_ACCURACY = 1e-8
# The reference's own accuracy for moments of outliers.
OUTLIER_MOMENT_ACCURACY = 1e-6
# Twenty and more noise deviations off the manifold, three latent dimensions.
TAIL_ACCURACY = 1e-6
# A closed form, or the same integrals summed in another way.
ROUNDING = 1e-12
# Points with a lower log density are outliers.
TYPICAL = -10.0


def load_cases(name: str) -> list[Any]:
    cases = json.loads((DATA / name).read_text(encoding="utf-8"))
    return [
        pytest.param(case, id="-".join(map(str, _name_parts(case, index))))
        for index, case in enumerate(cases)
    ]


def _name_parts(case: dict[str, Any], index: int) -> list[Any]:
    return [index, case["n_components"], *case["hidden_layer_sizes"], case["activation"]]


def network_of(case: dict[str, Any]) -> Network:
    activation = Activation.from_name(case["activation"], case["negative_slope"])
    return Network.from_arrays(case["coefs"], case["intercepts"], activation)


def visit(network: Network, noise_covariance: Any, rows: np.ndarray) -> Visits:
    noise = Noise.from_covariance(noise_covariance, network.n_features)
    return Visitor.prepare(build_partition(network), noise).visit(rows)


class Posterior(NamedTuple):
    means: np.ndarray  # (n, S)
    second_moments: np.ndarray  # (n, S, S)


def posterior_of(visits: Visits) -> Posterior:
    """Mix the moments of the visited regions."""
    n_rows, n_components = len(visits.log_density), visits.means.shape[1]
    means = np.zeros((n_rows, n_components))
    second_moments = np.zeros((n_rows, n_components, n_components))
    rows = np.repeat(np.arange(n_rows), np.diff(visits.start))
    outer = np.einsum("vs,vt->vst", visits.means, visits.means)
    weights = visits.responsibilities
    np.add.at(means, rows, weights[:, None] * visits.means)
    np.add.at(second_moments, rows, weights[:, None, None] * (visits.covariances + outer))
    return Posterior(means, second_moments)


def relative_error(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Largest difference of each row, relative to max(1, |expected|)."""
    errors = np.abs(actual - expected) / np.maximum(1.0, np.abs(expected))
    return errors.reshape(len(errors), -1).max(axis=1)


# Against the independent integrator.

CASES = load_cases("latent_1_and_2.json")


def impossible(means: np.ndarray, second_moments: np.ndarray) -> np.ndarray:
    """Tell which rows have a second moment that no distribution with this mean has.

    For some points at 1e6 noise deviations the reference lost all digits of the moments.
    """
    diagonal = np.diagonal(second_moments, axis1=1, axis2=2)
    return np.any((diagonal < 0.0) | (diagonal < means**2), axis=1)


@pytest.mark.parametrize("case", CASES)
def test_log_density_equals_the_independent_integrator(case: dict[str, Any]) -> None:
    rows = np.array(case["X"])
    visits = visit(network_of(case), case["noise_covariance"], rows)
    errors = relative_error(visits.log_density, np.array(case["log_density"]))
    assert errors.max() <= DENSITY_ACCURACY


@pytest.mark.parametrize("case", CASES)
def test_moments_equal_the_independent_integrator(case: dict[str, Any]) -> None:
    rows = np.array(case["X"])
    expected = Posterior(
        np.array(case["posterior_mean"]), np.array(case["posterior_second_moment"])
    )
    posterior = posterior_of(visit(network_of(case), case["noise_covariance"], rows))
    typical = np.array(case["log_density"]) > TYPICAL
    assert typical.any()
    allowed = np.where(typical, MOMENT_ACCURACY, OUTLIER_MOMENT_ACCURACY)
    sound = ~impossible(*expected)
    assert np.all(sound[typical])
    for actual, wanted in zip(posterior, expected, strict=True):
        assert np.all((relative_error(actual, wanted) <= allowed)[sound])


def test_some_moments_of_the_reference_are_impossible() -> None:
    """Else the comparison in high precision below could go."""
    n_impossible = sum(
        int(
            impossible(
                np.array(case.values[0]["posterior_mean"]),
                np.array(case.values[0]["posterior_second_moment"]),
            ).sum()
        )
        for case in CASES
    )
    assert n_impossible == 4


LINES = [case for case in CASES if case.values[0]["n_components"] == 1]


@pytest.mark.no_cover
@pytest.mark.parametrize("case", LINES)
def test_one_latent_dimension_in_high_precision(case: dict[str, Any]) -> None:
    """Every third point, and those at 1e6 noise deviations whose stored moments are impossible."""
    stored = np.array(case["posterior_mean"]), np.array(case["posterior_second_moment"])
    chosen = impossible(*stored)
    chosen[::3] = True
    network, rows = network_of(case), np.array(case["X"])[chosen]
    visits = visit(network, case["noise_covariance"], rows)
    posterior = posterior_of(visits)
    exact = [line_posterior(network, case["noise_covariance"], row) for row in rows]
    log_density = np.array([line.log_density for line in exact])
    # Less than a unit in the last place per term; the package promises no more than the reference.
    assert relative_error(visits.log_density, log_density).max() <= ROUNDING
    means = np.array([[line.mean] for line in exact])
    second_moments = np.array([[[line.second_moment]] for line in exact])
    assert relative_error(posterior.means, means).max() <= MOMENT_ACCURACY
    assert relative_error(posterior.second_moments, second_moments).max() <= MOMENT_ACCURACY


@pytest.mark.parametrize("case", load_cases("latent_3.json"))
def test_three_latent_dimensions_equal_the_grid(case: dict[str, Any]) -> None:
    rows = np.array(case["X"])
    visits = visit(network_of(case), case["noise_covariance"], rows)
    errors = relative_error(visits.log_density, np.array(case["log_density"]))
    assert errors.max() <= case["tol"]
    means = posterior_of(visits).means
    # Moments of a grid are less accurate than its sum.
    assert relative_error(means, np.array(case["posterior_mean"])).max() <= 10.0 * case["tol"]


def row_off_the_manifold(
    network: Network, partition: Partition, factor: np.ndarray, deviations: float, seed: int
) -> np.ndarray:
    """A row this many noise deviations from a point of the manifold, perpendicular to it."""
    latent = np.random.default_rng(seed).normal(size=(1, network.n_components))
    (region,) = partition.locate(network.patterns(latent))
    whitened = np.linalg.solve(factor, partition.maps.slopes[region])
    normal = np.linalg.svd(whitened)[0][:, -1]
    return network.forward(latent)[0] + deviations * factor @ normal


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("activation", "deviations"),
    usually([("relu", -100.0), ("leaky_relu", -20.0), ("relu", 20.0), ("abs", 100.0)], 2),
)
def test_tail_for_three_latent_dimensions(activation: str, deviations: float) -> None:
    network = random_network(3, (4, 3), n_features=4, activation=activation, seed=2)
    covariance = 0.1 * random_covariance(4, np.random.default_rng(0))
    partition = build_partition(network)
    row = row_off_the_manifold(network, partition, np.linalg.cholesky(covariance), deviations, 2)
    visits = visit(network, covariance, row[None])
    expected = integrate_over_latent_space(
        network.coefs,
        network.intercepts,
        network.activations[0].negative_slope,
        covariance,
        row,
        tolerance=0.1 * TAIL_ACCURACY,
    )
    # Of the density, not only of its log, which is large.
    assert abs(visits.log_density[0] - expected.log_density) <= TAIL_ACCURACY
    np.testing.assert_allclose(posterior_of(visits).means[0], expected.mean, atol=TAIL_ACCURACY)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_dimension_that_no_unit_sees_changes_nothing(activation: str) -> None:
    """Regions are prisms, whose sections may be bounded by parallel lines: against polygons."""
    for seed in range(10):
        network = random_network(3, (2, 2), n_features=2, activation=activation, seed=seed)
        _, _, directions = np.linalg.svd(network.coefs[0])
        seen = network.coefs[0] @ directions[:2].T
        smaller = Network.from_arrays(
            [seen, *network.coefs[1:]], network.intercepts, network.activations[0]
        )
        rng = np.random.default_rng(seed)
        rows = network.forward(rng.normal(size=(50, 3))) + 0.3 * rng.normal(size=(50, 2))
        for covariance in (0.01, np.array([0.005, 0.02])):
            expected = visit(smaller, covariance, rows)
            found = visit(network, covariance, rows)
            np.testing.assert_allclose(
                found.log_density,
                expected.log_density,
                rtol=DENSITY_ACCURACY,
                atol=DENSITY_ACCURACY,
            )
            means = posterior_of(found).means @ directions.T
            np.testing.assert_allclose(
                means[:, :2], posterior_of(expected).means, atol=MOMENT_ACCURACY
            )
            np.testing.assert_allclose(means[:, 2], 0.0, atol=MOMENT_ACCURACY)


# Against a visit of every region.


class Everything(NamedTuple):
    log_density: np.ndarray  # (n,)
    responsibilities: np.ndarray  # (n, R)
    posterior: Posterior


def visit_every_region(
    partition: Partition, covariance: np.ndarray, rows: np.ndarray
) -> Everything:
    """Integrate over all regions to full relative accuracy and add up."""
    slopes, offsets = partition.maps.slopes, partition.maps.offsets
    n_features, n_components = slopes.shape[1:]
    precision = np.linalg.inv(covariance)
    weighted = np.einsum("de,res->rds", precision, slopes)
    curvatures = np.eye(n_components) + np.swapaxes(slopes, 1, 2) @ weighted
    covariances = np.linalg.inv(curvatures)
    factors = np.linalg.cholesky(covariances)
    log_determinants = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(curvatures)[1]
    log_density, responsibilities, means, second_moments = [], [], [], []
    for row in rows:
        residuals = row - offsets
        centers = np.einsum("rst,rdt,rd->rs", covariances, weighted, residuals)
        # From the residual: a difference of squares loses all digits for outliers.
        errors = residuals - np.einsum("rds,rs->rd", slopes, centers)
        squares = np.einsum("rd,de,re->r", errors, precision, errors) + (centers**2).sum(axis=1)
        log_evidence = -0.5 * (n_features * np.log(2 * np.pi) + log_determinants + squares)
        log_masses, cell_means, cell_covariances = integrate_cells(
            partition.cells, centers, factors
        )
        shares = log_evidence + log_masses
        largest = shares.max()
        weights = np.exp(shares - largest)
        log_density.append(largest + np.log(weights.sum()))
        weights /= weights.sum()
        responsibilities.append(weights)
        outer = np.einsum("rs,rt->rst", cell_means, cell_means)
        means.append(weights @ cell_means)
        second_moments.append(np.einsum("r,rst->st", weights, cell_covariances + outer))
    posterior = Posterior(np.array(means), np.array(second_moments))
    return Everything(np.array(log_density), np.array(responsibilities), posterior)


def dense_responsibilities(visits: Visits, n_regions: int) -> np.ndarray:
    dense = np.zeros((len(visits.log_density), n_regions))
    rows = np.repeat(np.arange(len(dense)), np.diff(visits.start))
    np.add.at(dense, (rows, visits.regions), visits.responsibilities)
    return dense


def rows_around(
    network: Network, covariance: np.ndarray, n_rows: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw rows from the model, then move half of them off by 3 to 1e4 deviations."""
    latent = rng.normal(size=(n_rows, network.n_components))
    noise = rng.normal(size=(n_rows, network.n_features)) @ np.linalg.cholesky(covariance).T
    scales = np.concatenate([np.ones(n_rows // 2), np.geomspace(3.0, 1e4, n_rows - n_rows // 2)])
    return network.forward(latent) + scales[:, None] * noise


def random_covariance(n_features: int, rng: np.random.Generator) -> np.ndarray:
    factor = 0.2 * np.eye(n_features) + 0.1 * rng.normal(size=(n_features, n_features))
    return factor @ factor.T + 0.01 * np.eye(n_features)


def assert_equals_everything(visits: Visits, everything: Everything) -> None:
    assert relative_error(visits.log_density, everything.log_density).max() <= ROUNDING
    dense = dense_responsibilities(visits, everything.responsibilities.shape[1])
    # Shares are differences of log densities, which for outliers are large numbers.
    unit = ROUNDING * np.maximum(1.0, np.abs(everything.log_density))
    assert np.all(np.abs(dense - everything.responsibilities).max(axis=1) <= unit)
    posterior = posterior_of(visits)
    for actual, wanted in zip(posterior, everything.posterior, strict=True):
        assert np.all(relative_error(actual, wanted) <= 100.0 * unit)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n_components", [1, 2])
def test_visiting_what_matters_equals_visiting_everything(n_components: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths, activation = random_architecture(300 + seed)
    network = random_network(n_components, widths, activation=activation, seed=seed)
    covariance = random_covariance(network.n_features, rng)
    rows = rows_around(network, covariance, 12, rng)
    partition = build_partition(network)
    noise = Noise.from_covariance(covariance, network.n_features)
    visits = Visitor.prepare(partition, noise).visit(rows)
    assert_equals_everything(visits, visit_every_region(partition, covariance, rows))


@pytest.mark.parametrize("n_components", [1, 2])
def test_many_regions_are_not_all_visited(n_components: int) -> None:
    """Groups are dismissed together here, and nothing is lost."""
    rng = np.random.default_rng(7)
    width = {1: 300, 2: 30}[n_components]
    network = random_network(n_components, (width,), activation="leaky_relu", seed=9)
    covariance = 4e-4 * np.eye(network.n_features)
    rows = rows_around(network, covariance, 8, rng)
    partition = build_partition(network)
    noise = Noise.from_covariance(covariance, network.n_features)
    visits = Visitor.prepare(partition, noise).visit(rows)
    assert np.diff(visits.start)[:4].max() < len(partition) / 4
    assert_equals_everything(visits, visit_every_region(partition, covariance, rows))


@pytest.mark.parametrize("name", ["duplicate_units", "constant_on_cells", "concurrent_boundaries"])
@pytest.mark.parametrize("n_components", [1, 2])
def test_degenerate_networks_have_densities_too(n_components: int, name: str) -> None:
    rng = np.random.default_rng(3)
    network = DEGENERATE[name](n_components, "relu")
    covariance = random_covariance(network.n_features, rng)
    rows = rows_around(network, covariance, 10, rng)
    # Where the image of a vertex is, the conditional mean is on a boundary.
    rows = np.concatenate([rows, network.forward(np.zeros((1, n_components)))])
    partition = build_partition(network)
    noise = Noise.from_covariance(covariance, network.n_features)
    visits = Visitor.prepare(partition, noise).visit(rows)
    assert_equals_everything(visits, visit_every_region(partition, covariance, rows))


def test_responsibilities_are_those_of_distinct_regions_and_sum_to_one() -> None:
    rng = np.random.default_rng(5)
    network = random_network(2, (8,), seed=4)
    rows = rows_around(network, 0.1 * np.eye(3), 20, rng)
    visits = visit(network, 0.1, rows)
    assert visits.start[0] == 0
    assert visits.start[-1] == len(visits.regions) == len(visits.responsibilities)
    for first, last in zip(visits.start[:-1], visits.start[1:], strict=True):
        assert len(set(visits.regions[first:last])) == last - first
        assert visits.responsibilities[first:last].sum() == pytest.approx(1.0, abs=ROUNDING)
        assert np.all(visits.responsibilities[first:last] >= 0.0)


def test_rows_do_not_depend_on_their_neighbors() -> None:
    rng = np.random.default_rng(6)
    network = random_network(2, (9,), activation="abs", seed=6)
    rows = rows_around(network, 0.05 * np.eye(3), 10, rng)
    together = visit(network, 0.05, rows)
    for n in range(len(rows)):
        alone = visit(network, 0.05, rows[n : n + 1])
        assert alone.log_density[0] == together.log_density[n]


# Without a hidden layer everything is Gaussian.

NOISES = {
    "spherical": 0.3,
    "diag": np.array([0.2, 0.5, 1.5, 0.1]),
    "full": np.array(
        [[0.5, 0.1, 0.0, 0.05], [0.1, 0.4, -0.1, 0.0], [0, -0.1, 0.3, 0.02], [0.05, 0, 0.02, 0.2]]
    ),
}


def gaussian_log_density(rows: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    factor = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(factor, (rows - mean).T)
    log_determinant = 2.0 * np.log(np.diagonal(factor)).sum()
    constant = len(mean) * np.log(2.0 * np.pi) + log_determinant
    return -0.5 * (constant + (whitened**2).sum(axis=0))


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("n_components", [1, 2, 3, 4])
def test_no_hidden_layer_is_a_gaussian(n_components: int, kind: str) -> None:
    network = random_network(n_components, (), n_features=4, seed=8)
    noise = np.asarray(NOISES[kind])
    covariance = noise if noise.ndim == 2 else np.diag(np.broadcast_to(noise, 4))
    rows = rows_around(network, covariance, 40, np.random.default_rng(8))
    visits = visit(network, noise, rows)
    slopes, offsets = network.coefs[0], network.intercepts[0]
    expected = gaussian_log_density(rows, offsets, covariance + slopes @ slopes.T)
    assert relative_error(visits.log_density, expected).max() <= ROUNDING
    np.testing.assert_array_equal(visits.responsibilities, np.ones(len(rows)))
    np.testing.assert_array_equal(visits.regions, np.zeros(len(rows)))
    gain = slopes.T @ np.linalg.inv(covariance + slopes @ slopes.T)
    means = (rows - offsets) @ gain.T
    assert relative_error(visits.means, means).max() <= ROUNDING
    posterior_covariance = np.eye(n_components) - gain @ slopes
    for actual in visits.covariances:
        np.testing.assert_allclose(actual, posterior_covariance, atol=ROUNDING)


# The density integrates to one.

# The trapezoidal rule converges like exp(-2 pi^2 deviation^2 / step^2) for what has been smoothed
# by Gaussian noise: with this step, in noise deviations, to 1e-12.
STEP = 0.8
TOTAL_ACCURACY = 1e-10


def integrate_on_a_grid(network: Network, deviation: float, reach: float) -> float:
    """Sum the density over a grid around the image of the origin."""
    n_features = network.n_features
    step = STEP * deviation
    ticks = np.arange(-reach, reach, step)
    grid = np.stack(np.meshgrid(*[ticks] * n_features, indexing="ij"), axis=-1)
    rows = grid.reshape(-1, n_features) + network.forward(np.zeros((1, network.n_components)))
    log_density = visit(network, deviation**2, rows).log_density
    return float(np.exp(log_density).sum() * step**n_features)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("n_components", "n_features"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_density_integrates_to_one(n_components: int, n_features: int, activation: str) -> None:
    network = random_network(
        n_components, (4, 3), n_features=n_features, activation=activation, seed=10
    )
    # Shrink the output so that nine deviations of the latent code fit into the grid.
    slopes = build_partition(network).maps.slopes
    steepest = np.linalg.norm(slopes, axis=(1, 2)).max()
    network = Network.from_arrays(
        [*network.coefs[:-1], network.coefs[-1] / steepest],
        network.intercepts,
        network.activations[0],
    )
    deviation = 0.5
    total = integrate_on_a_grid(network, deviation, reach=9.0 + 9.0 * deviation)
    assert total == pytest.approx(1.0, abs=TOTAL_ACCURACY)


def test_beyond_all_squares_a_straight_network_has_no_density() -> None:
    network = random_network(1, (), n_features=2)
    noise = Noise.from_covariance([0.1, 0.2], 2)
    visits = Visitor.prepare(build_partition(network), noise).visit(
        np.array([[1e308, 1e308], [1e308, -1e308], [0.0, 0.0]])
    )
    assert np.all(np.isneginf(visits.log_density[:2]))
    assert np.isfinite(visits.log_density[2])
