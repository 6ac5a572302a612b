from __future__ import annotations

import re

import numpy as np
import pytest

from skdgn._network import ACTIVATIONS, AffineMaps, Network
from skdgn._partition import composed_maps, enumeration
from skdgn._partition.enumeration import Partition, build_partition
from skdgn.layers import Dense, HardTanh, MaxOut
from tests.geometry.helpers import prior_masses
from tests.networks import (
    DEGENERATE,
    NEGATIVE_SLOPE,
    nearly_concurrent,
    preactivations,
    random_architecture,
    random_network,
    regions_of_patterns,
)
from tests.portions import usually
from tests.reference import patterns as reference

LATENT_DIMENSIONS = (1, 2, 3)

pytestmark = pytest.mark.no_cover

# Each cell's mass has full relative accuracy; 1e-11 leaves room for the sum over many cells.
TOTAL_MASS_ACCURACY = 1e-11

# Maps are products of up to four matrices: they agree to rounding errors times their size.
MAP_ACCURACY = 1e-9

# How far behind a facet to look for the neighbor, relative to the distance to the facet and to the
# distance from the origin: too little to skip many cells, more than rounding.
STEP = 1e-7
SMALLEST_STEP = 1e-11

# A point on a facet is off by rounding errors; deep facets come from sums with some cancellation.
FACET_ACCURACY = 1e-13

# 200 random networks.
SEEDS = {1: range(70), 2: range(100, 180), 3: range(200, 250)}
PORTION = 10
PORTIONS = [
    portion
    for n_components, seeds in SEEDS.items()
    for portion in usually([(n_components, first) for first in seeds[::PORTION]], 1)
]


def random_networks(n_components: int, seeds: range) -> list[Network]:
    networks = []
    for seed in seeds:
        widths, activation = random_architecture(seed)
        networks.append(random_network(n_components, widths, activation=activation, seed=seed))
    return networks


def latent_points(n_components: int, n_points: int = 10_000) -> np.ndarray:
    """Draw points near the origin and far out."""
    scales = np.repeat([1.0, 10.0, 1e3, 1e6], n_points // 4)
    normal = np.random.default_rng(0).normal(size=(len(scales), n_components))
    return scales[:, None] * normal


def evaluate(maps: AffineMaps, regions: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Value of each point's region's map."""
    return np.einsum("nds,ns->nd", maps.slopes[regions], points) + maps.offsets[regions]


def map_scales(maps: AffineMaps, regions: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Size of the terms that `evaluate` adds up."""
    slopes, offsets = np.abs(maps.slopes[regions]), np.abs(maps.offsets[regions])
    return np.einsum("nds,ns->n", slopes, np.abs(points)) + offsets.sum(axis=1) + 1.0


def regions_of_points(network: Network, partition: Partition, points: np.ndarray) -> np.ndarray:
    """Region of each point by its pattern, -1 if there is none.

    Units whose pre-activation is rounding noise (those that are zero on a whole cell) may have
    either side.
    """
    values, errors = preactivations(network, points)
    regions = regions_of_patterns(partition, values > 0)
    for n in np.flatnonzero(regions < 0):
        clear = np.abs(values[n]) > errors[n]
        same = (partition.patterns[:, clear] == (values[n] > 0)[clear]).all(axis=1)
        # Patterns in this sense may be shared by several regions: take the one around the point.
        for r in np.flatnonzero(same):
            if contains(partition, r, points[n]):
                regions[n] = r
    return regions


def contains(partition: Partition, region: int, point: np.ndarray) -> bool:
    facets = partition.cells.facets()
    own = slice(facets.start[region], facets.start[region + 1])
    slack = FACET_ACCURACY * (np.linalg.norm(point) + np.abs(facets.offsets[own]))
    return bool(np.all(facets.normals[own] @ point >= facets.offsets[own] - slack))


def shoot(partition: Partition, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Shoot a ray from inside every region; return regions, ends and points a step behind them."""
    points = partition.cells.interior_points()
    facets = partition.cells.facets()
    directions = rng.normal(size=points.shape)
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    distances = np.full(len(points), np.inf)
    for r in range(len(points)):
        own = slice(facets.start[r], facets.start[r + 1])
        depth = facets.normals[own] @ points[r] - facets.offsets[own]
        speed = -facets.normals[own] @ directions[r]
        ahead = speed > 1e-3  # not at a glancing angle, at which a step behind is none
        distances[r] = np.min(depth[ahead] / speed[ahead], initial=np.inf)
    left = np.flatnonzero(np.isfinite(distances))
    ends = points[left] + distances[left, None] * directions[left]
    steps = np.maximum(STEP * distances[left], SMALLEST_STEP * np.linalg.norm(ends, axis=1))
    return left, ends, ends + steps[:, None] * directions[left]


def check_patterns_are_unique(partition: Partition) -> None:
    assert len(np.unique(partition.patterns, axis=0)) == len(partition)


def check_masses_sum_to_one(partition: Partition, n_components: int) -> None:
    masses = prior_masses(partition.cells, n_components)
    assert np.all(masses >= 0.0)
    assert masses.sum() == pytest.approx(1.0, abs=TOTAL_MASS_ACCURACY)


def check_interior_points(network: Network, partition: Partition) -> None:
    points = partition.cells.interior_points()
    facets = partition.cells.facets()
    owner = np.repeat(np.arange(len(partition)), np.diff(facets.start))
    depth = np.einsum("fs,fs->f", facets.normals, points[owner]) - facets.offsets
    assert np.all(depth > 0.0)
    values, errors = preactivations(network, points)
    clear = np.abs(values) > errors
    assert np.array_equal((values > 0) & clear, partition.patterns & clear)


def check_points(network: Network, partition: Partition, points: np.ndarray) -> None:
    """All points are in a region, whose map gives the value of the network there."""
    regions = regions_of_points(network, partition, points)
    assert np.all(regions >= 0), f"no region for {points[regions < 0][:3]}"
    values = evaluate(partition.maps, regions, points)
    scales = map_scales(partition.maps, regions, points)
    differences = np.abs(values - network.forward(points)).max(axis=1)
    assert np.all(differences <= MAP_ACCURACY * scales)


def check_maps_agree_on_facets(network: Network, partition: Partition) -> int:
    """Compare the maps on either side where rays leave cells; return the number of comparisons."""
    regions, ends, behind = shoot(partition, np.random.default_rng(1))
    neighbors = regions_of_points(network, partition, behind)
    assert np.all(neighbors >= 0)
    # Some steps skip a thin cell: compare those that have the end of the ray in common.
    common = [
        r != t and contains(partition, r, end) and contains(partition, t, end)
        for r, t, end in zip(regions, neighbors, ends, strict=True)
    ]
    regions, neighbors, ends = regions[common], neighbors[common], ends[common]
    here = evaluate(partition.maps, regions, ends)
    there = evaluate(partition.maps, neighbors, ends)
    scales = map_scales(partition.maps, regions, ends)
    scales += map_scales(partition.maps, neighbors, ends)
    assert np.all(np.abs(here - there).max(axis=1) <= MAP_ACCURACY * scales)
    return len(ends)


@pytest.mark.parametrize(("n_components", "first"), PORTIONS)
def test_random_networks(n_components: int, first: int) -> None:
    points = latent_points(n_components)
    crossings, regions = 0, 0
    for network in random_networks(n_components, range(first, first + PORTION)):
        partition = build_partition(network)
        assert partition.patterns.shape == (len(partition), sum(network.hidden_layer_sizes))
        # No unit is identically zero here: every pattern that is met must be listed as it is.
        met = regions_of_patterns(partition, network.patterns(points))
        assert np.all(met >= 0)
        check_patterns_are_unique(partition)
        check_points(network, partition, points[::10])
        check_masses_sum_to_one(partition, n_components)
        check_interior_points(network, partition)
        crossings += check_maps_agree_on_facets(network, partition)
        regions += len(partition)
    # Unbounded cells let many rays escape, but most must have met a neighbor.
    assert crossings > 0.5 * regions


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("n_components", LATENT_DIMENSIONS)
def test_degenerate_networks(n_components: int, name: str, activation: str) -> None:
    network = DEGENERATE[name](n_components, activation)
    partition = build_partition(network)
    check_points(network, partition, latent_points(n_components, 2000))
    check_patterns_are_unique(partition)
    check_interior_points(network, partition)
    check_maps_agree_on_facets(network, partition)
    check_masses_sum_to_one(partition, n_components)


@pytest.mark.parametrize("n_components", LATENT_DIMENSIONS)
def test_no_hidden_layer_is_one_region(n_components: int) -> None:
    network = random_network(n_components, ())
    partition = build_partition(network)
    assert len(partition) == 1
    assert partition.patterns.shape == (1, 0)
    assert len(partition.cells.facets().offsets) == 0
    np.testing.assert_array_equal(partition.maps.slopes[0], network.coefs[0])
    np.testing.assert_array_equal(partition.maps.offsets[0], network.intercepts[0])
    check_masses_sum_to_one(partition, n_components)


def n_regions_of_general_arrangement(n_components: int, n_planes: int) -> int:
    """Zaslavsky: hyperplanes in general position make sum_k binomial(n, k) regions, k <= S."""
    binomial, total = 1, 0
    for k in range(n_components + 1):
        total += binomial
        binomial = binomial * (n_planes - k) // (k + 1)
    return total


@pytest.mark.parametrize(("n_components", "width"), [(1, 1), (1, 500), (2, 3), (2, 200), (3, 25)])
def test_one_layer_in_general_position_has_as_many_regions_as_an_arrangement(
    n_components: int, width: int
) -> None:
    network = random_network(n_components, (width,), seed=7)
    partition = build_partition(network)
    assert len(partition) == n_regions_of_general_arrangement(n_components, width)
    check_patterns_are_unique(partition)
    check_interior_points(network, partition)
    check_points(network, partition, latent_points(n_components, 2000))
    check_masses_sum_to_one(partition, n_components)


@pytest.mark.parametrize("width", [2, 5, 9])
def test_lines_through_one_point_make_two_regions_each(width: int) -> None:
    network = random_network(2, (width,), seed=1)
    point = np.array([0.3, -0.7])
    through = Network.from_arrays(
        network.coefs, [-network.coefs[0] @ point, network.intercepts[1]], network.activations[0]
    )
    # Rounding moves each line by an ulp or so; a region that appears by it is as small.
    partition = build_partition(through)
    masses = prior_masses(partition.cells, 2)
    assert np.count_nonzero(masses > 1e-12) == 2 * width


def test_parallel_lines_make_strips() -> None:
    network = random_network(2, (6,), seed=2)
    normal = network.coefs[0][0]
    signs = np.array([1.0, -2.0, 3.0, -0.5, 1.0, 7.0])
    parallel = Network.from_arrays(
        [signs[:, None] * normal, network.coefs[1]], network.intercepts, network.activations[0]
    )
    partition = build_partition(parallel)
    assert len(partition) == 7
    assert np.diff(partition.cells.facets().start).tolist().count(2) == 5


@pytest.mark.parametrize("n_components", LATENT_DIMENSIONS)
def test_duplicate_and_opposite_units_cut_once(n_components: int) -> None:
    network = random_network(n_components, (3,), seed=3)
    (coef, output), (intercept, output_intercept) = network.coefs, network.intercepts
    repeated = Network.from_arrays(
        [np.concatenate([coef, -coef, 3.7 * coef]), np.tile(output, (1, 3))],
        [np.concatenate([intercept, -intercept, 3.7 * intercept]), output_intercept],
        network.activations[0],
    )
    assert len(build_partition(repeated)) == len(build_partition(network))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("n_components", LATENT_DIMENSIONS)
def test_units_that_cancel_cut_nothing(n_components: int, activation: str) -> None:
    network = DEGENERATE["canceled_duplicates"](n_components, activation)
    partition = build_partition(network)
    # The first two units of the second layer are zero everywhere, but for rounding.
    assert np.all(partition.patterns[:, 6] == partition.patterns[0, 6])
    without = np.delete(partition.patterns, [6, 7], axis=1)
    assert len(np.unique(without, axis=0)) == len(partition)


def test_regions_are_located_by_their_pattern() -> None:
    network = random_network(2, (6, 3), seed=5)
    partition = build_partition(network)
    points = latent_points(2, 400)
    regions = partition.locate(network.patterns(points))
    np.testing.assert_array_equal(partition.patterns[regions], network.patterns(points))


def test_a_pattern_that_no_region_has_is_located_at_one_of_the_most_similar() -> None:
    # Units 0 and 3 are equal: no region has them on different sides, but some are one unit away.
    partition = build_partition(DEGENERATE["duplicate_units"](1, "relu"))
    for pattern in partition.patterns:
        assert pattern[0] == pattern[3]
        impossible = pattern.copy()
        impossible[3] = not impossible[3]
        (found,) = partition.locate(impossible[None])
        assert np.count_nonzero(partition.patterns[found] != impossible) == 1


SMALL_NETWORKS = [
    (1, (3,), 11),
    (1, (4, 3), 12),
    (1, (3, 2, 2), 13),
    (2, (4,), 14),
    (2, (3, 3), 15),
    (2, (3, 2, 2), 16),
    (3, (4,), 17),
    (3, (3, 2), 18),
]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("n_components", "widths", "seed"), SMALL_NETWORKS)
def test_patterns_equal_those_of_linear_programming_and_of_a_walk(
    n_components: int, widths: tuple[int, ...], seed: int, activation: str
) -> None:
    network = random_network(n_components, widths, activation=activation, seed=seed)
    arguments = (network.coefs, network.intercepts, activation, NEGATIVE_SLOPE)
    found = {tuple(row) for row in build_partition(network).patterns.tolist()}
    assert found == reference.all_patterns(*arguments)
    assert found == reference.walk(*arguments, start=np.full(n_components, 0.123))


@pytest.mark.parametrize("seed", range(50))
def test_algorithm_1_of_the_paper_finds_the_regions_of_random_networks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_components, depth = 1 + seed % 3, 1 + seed // 3 % 3
    widths = tuple(rng.integers(2, 7 - depth, size=depth).tolist())
    activation = ACTIVATIONS[rng.integers(len(ACTIVATIONS))]
    network = random_network(n_components, widths, activation=activation, seed=seed)
    found = {tuple(row) for row in build_partition(network).patterns.tolist()}
    start = rng.normal(size=n_components)
    walked = reference.walk(
        network.coefs, network.intercepts, activation, NEGATIVE_SLOPE, start=start
    )
    assert found == walked


@pytest.mark.parametrize(("n_components", "widths"), [(1, (40,)), (2, (12, 10)), (3, (9,))])
def test_too_many_regions_are_refused_with_the_names_of_what_to_change(
    n_components: int, widths: tuple[int, ...]
) -> None:
    network = random_network(n_components, widths)
    received = re.escape(f"n_components={n_components} and hidden_layer_sizes={widths}")
    with pytest.raises(MemoryError, match=rf"{received} has more than 20 .*Reduce n_components"):
        build_partition(network, most_regions=20)


def test_as_many_regions_as_allowed_are_not_refused() -> None:
    assert len(build_partition(random_network(1, (19,)), most_regions=20)) == 20
    with pytest.raises(MemoryError, match="more than 19"):
        build_partition(random_network(1, (19,)), most_regions=19)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize(("n_components", "n_networks"), [(1, 50), (2, 50), (3, 30)])
def test_boundaries_that_nearly_are_equal_and_nearly_meet_in_one_point(
    n_components: int, n_networks: int, n_layers: int
) -> None:
    # benchmarks/degenerate.py has thousands of them.
    for seed in range(n_networks):
        network, point = nearly_concurrent(n_components, n_layers, seed)
        partition = build_partition(network)
        masses = prior_masses(partition.cells, n_components)
        assert masses.sum() == pytest.approx(1.0, abs=TOTAL_MASS_ACCURACY), seed
        # Next to the point and away from it, the maps are those of the network.
        rng = np.random.default_rng(seed)
        for scale in (1e-9, 1e-4, 1.0, 1e3):
            points = point + scale * rng.normal(size=(20, n_components))
            regions = partition.locate(network.patterns(points))
            values = evaluate(partition.maps, regions, points)
            scales = map_scales(partition.maps, regions, points)
            differences = np.abs(values - network.forward(points)).max(axis=1)
            assert np.all(differences <= MAP_ACCURACY * scales), (seed, scale)


@pytest.mark.parametrize("seed", [511, 690, 808, 848])
def test_where_cutting_fails_boundaries_are_moved(seed: int) -> None:
    network, _ = nearly_concurrent(3, 2, seed)
    masses = prior_masses(build_partition(network).cells, 3)
    assert masses.sum() == pytest.approx(1.0, abs=TOTAL_MASS_ACCURACY)


@pytest.mark.parametrize("exponent", [12, 18, 31, 150])
@pytest.mark.parametrize("n_components", LATENT_DIMENSIONS)
def test_boundaries_that_are_very_far_out_change_nothing(n_components: int, exponent: int) -> None:
    """Units that a weight prior has shrunk: parallel boundaries, 10^exponent from the origin."""
    rng = np.random.default_rng(0)
    coef, intercept = rng.normal(size=(6, n_components)), rng.normal(size=6)
    coef[:2] *= 10.0**-exponent
    intercept[:2] = [0.5, 0.6]
    output = Dense(3, rng.normal(size=(3, 6)))
    layers = [Dense(6, coef, intercept), HardTanh(0.2, 0.9), output]
    partition = build_partition(Network.from_blueprints(layers, n_components))
    check_patterns_are_unique(partition)
    check_masses_sum_to_one(partition, n_components)
    near = Dense(6, np.where(np.abs(coef) < 1e-9, 0.0, coef), intercept)
    others = build_partition(Network.from_blueprints([near, *layers[1:]], n_components))
    masses = (np.sort(prior_masses(own.cells, n_components)) for own in (partition, others))
    ours, theirs = (own[own > 1e-12] for own in masses)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


# Maxima


def max_out_network(n_components: int, n_groups: int, n_pieces: int) -> Network:
    layers = [Dense(n_groups * n_pieces), MaxOut(n_pieces), Dense(3)]
    return Network.from_blueprints(layers, n_components, np.random.default_rng(n_components))


@pytest.mark.parametrize("n_components", LATENT_DIMENSIONS)
def test_equal_members_of_a_group_make_one_region(n_components: int) -> None:
    rng = np.random.default_rng(0)
    one, intercept = rng.normal(size=(1, n_components)), rng.normal(size=1)
    # The second group: two copies, and one that is behind everywhere.
    coef = np.concatenate([rng.normal(size=(3, n_components)), one, one, one])
    biases = np.concatenate([rng.normal(size=3), intercept, intercept, intercept - 1.0])
    layers = [Dense(6, coef, biases), MaxOut(3), Dense(2, np.eye(2))]
    partition = build_partition(Network.from_blueprints(layers, n_components))
    assert np.all(partition.patterns[:, 1] == 0)  # of equals, the first
    first = Network.from_blueprints(
        [Dense(3, coef[:3], biases[:3]), MaxOut(3), Dense(1, [[1.0]])], n_components
    )
    assert len(partition) == len(build_partition(first))
    check_patterns_are_unique(partition)
    check_masses_sum_to_one(partition, n_components)


@pytest.mark.parametrize("n_components", LATENT_DIMENSIONS)
def test_too_many_regions_of_maxima_are_refused(n_components: int) -> None:
    network = max_out_network(n_components, 8, 3)
    n_regions = len(build_partition(network))
    assert len(build_partition(network, n_regions)) == n_regions
    message = rf"n_components={n_components} and hidden_layers=\[Dense.*has more than 4 regions"
    with pytest.raises(MemoryError, match=message):
        build_partition(network, most_regions=4)


def test_boundaries_of_maxima_are_moved_where_cutting_fails(monkeypatch) -> None:
    network, errors = max_out_network(3, 3, 2), iter([1.0, 1.0, 0.0])
    monkeypatch.setattr(enumeration, "_mass_error", lambda cells, within: next(errors))
    moved = build_partition(network)
    monkeypatch.undo()
    plain = build_partition(network)
    assert {row.tobytes() for row in moved.patterns} == {row.tobytes() for row in plain.patterns}
    facets, others = moved.cells.facets(), plain.cells.facets()
    assert not np.array_equal(facets.offsets, others.offsets)
    np.testing.assert_allclose(np.sort(facets.offsets), np.sort(others.offsets), atol=1e-8)


def test_the_least_wrong_of_many_attempts_is_kept(monkeypatch) -> None:
    errors = iter([0.9, 0.8, 0.1, *[0.7] * 6])
    monkeypatch.setattr(enumeration, "_mass_error", lambda cells, within: next(errors))
    partition = build_partition(max_out_network(3, 2, 2))
    assert next(errors, None) is None
    check_patterns_are_unique(partition)


def test_maps_of_many_regions_are_gathered_in_parts(monkeypatch) -> None:
    network = max_out_network(2, 4, 2)
    expected = build_partition(network).maps
    monkeypatch.setattr(composed_maps, "_REGIONS_AT_A_TIME", 3)
    found = build_partition(network).maps
    np.testing.assert_array_equal(found.slopes, expected.slopes)
    np.testing.assert_array_equal(found.offsets, expected.offsets)
    assert found.shape == expected.slopes.shape
    same = composed_maps.ComposedMaps.of(AffineMaps(found.slopes, found.offsets))
    assert same.shape == found.shape
    np.testing.assert_array_equal(same.take(np.array([1])).slopes, found.slopes[1:2])
