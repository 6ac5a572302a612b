"""Layers of every kind: the partition they make, the density, and how they learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from skdgn import PiecewiseAffineDGN
from skdgn._network import AffineMaps, Layer, Network, identifiability
from skdgn._noise import Noise
from skdgn._partition import Partition, build_partition
from skdgn._posterior import Model
from skdgn._runtime import Workers
from skdgn.layers import (
    Abs,
    AvgPool,
    BatchNorm,
    Concatenate,
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
    Dense,
    Flatten,
    HardSigmoid,
    HardTanh,
    LeakyReLU,
    MaxOut,
    MaxPool,
    MaxUpsample,
    PiecewiseAffine,
    PReLU,
    ReLU,
    ReLU6,
    Reshape,
    Residual,
    Softshrink,
    Upsample,
)
from tests.portions import usually

N_FEATURES = 3
VARIANCE = 0.4
LARGER_VARIANCE = 4.0  # so that fewer nodes are enough in three dimensions
REACH = 7.0  # of latent points: beyond are 3e-12 of them
OFFSET = np.array([0.2, -0.4, 0.3])

# What stands between two dense layers; the first has as many units as is said here.
CUTTING = {
    "relu": (5, [ReLU()]),
    "leaky_relu": (5, [LeakyReLU(0.2)]),
    "abs": (4, [Abs()]),
    "hard_tanh": (4, [HardTanh(-0.5, 1.0)]),
    "relu6": (4, [ReLU6()]),
    "hard_sigmoid": (4, [HardSigmoid()]),
    "softshrink": (4, [Softshrink(0.4)]),
    "piecewise_affine": (3, [PiecewiseAffine([-1.0, 0.2, 0.9], [0.5, -1.0, 2.0, 0.1], 0.3)]),
    "prelu": (5, [PReLU("unit", [0.3, -0.4, 0.0, 1.5, -1.0])]),
    "max_out_2": (6, [MaxOut(2)]),
    "max_out_3": (6, [MaxOut(3)]),
    "max_pool": (8, [Reshape((2, 4)), MaxPool(2), Flatten()]),
    "max_pool_overlapping": (3, [Reshape((1, 3)), MaxPool(2, stride=1, padding=1)]),
    "max_pool_of_relu": (4, [ReLU(), Reshape((1, 2, 2)), MaxPool(2), Flatten()]),
    "max_upsample": (4, [Reshape((1, 2, 2)), MaxUpsample(2)]),
    "residual": (3, [ReLU(), Residual(Dense(3), LeakyReLU(0.1), Dense(3))]),
    "concatenate": (3, [ReLU(), Concatenate([Dense(2), Abs()], [])]),
    "convolution": (6, [ReLU(), Reshape((2, 3)), Conv1d(2, 2), LeakyReLU(0.1)]),
}


def random_network(name: str, n_components: int, seed: int = 0) -> Network:
    n_units, between = CUTTING[name]
    generator = np.random.default_rng([seed, n_components])
    layers = [Dense(n_units), *between, Dense(N_FEATURES)]
    network = Network.from_blueprints(layers, n_components, generator)
    moved = [
        network.layers[place].with_parameters(
            network.layers[place].parameters
            + 0.3 * generator.normal(size=network.layers[place].n_parameters)
        )
        for place in network.learned
    ]
    return network.replace_layers(network.learned, moved)


def model_of(network: Network) -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN.from_network(
        layers=network.filled_blueprints(), noise_covariance=VARIANCE
    )


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("name", CUTTING)
def test_the_partition_is_complete_and_continuous(name: str, n_components: int) -> None:
    model = model_of(random_network(name, n_components))
    network, partition = model._network, model.partition_
    assert model.weights_.sum() == pytest.approx(1.0, abs=1e-11)
    known = {pattern.tobytes() for pattern in partition.patterns}
    assert len(known) == len(partition)
    points = 2.0 * np.random.default_rng(1).normal(size=(10_000, n_components))
    patterns = network.patterns(points)
    assert {pattern.tobytes() for pattern in patterns} <= known
    regions = partition.locate(patterns)
    images = np.einsum("nds,ns->nd", partition.maps.slopes[regions], points)
    images += partition.maps.offsets[regions]
    np.testing.assert_allclose(images, network.forward(points), rtol=0, atol=1e-12)
    check_neighbors_agree(network, points)


@pytest.mark.parametrize("name", CUTTING)
def test_no_points_have_no_maps(name: str) -> None:
    network = random_network(name, 2)
    maps = network.maps(network.patterns(np.empty((0, 2))))[-1]
    assert maps.slopes.shape == (0, N_FEATURES, 2)
    assert maps.offsets.shape == (0, N_FEATURES)


def check_neighbors_agree(network: Network, points: np.ndarray) -> None:
    """Maps on both sides of a boundary have the same value on it."""
    starts, ends = points[:500], points[500:1000]
    for _ in range(60):  # to where the pattern changes on the way from one point to another
        middles = 0.5 * (starts + ends)
        same = (network.patterns(middles) == network.patterns(starts)).all(axis=1)[:, None]
        starts, ends = np.where(same, middles, starts), np.where(same, ends, middles)
    values = [
        np.einsum("nds,ns->nd", maps.slopes, starts) + maps.offsets
        for maps in (network.maps(network.patterns(side))[-1] for side in (starts, ends))
    ]
    np.testing.assert_allclose(values[0], values[1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", CUTTING)
def test_log_densities_on_a_line_equal_quadrature(name: str) -> None:
    model = model_of(random_network(name, 1))
    network = model._network
    rows = network.forward(np.array([[-1.0], [0.3], [2.0]])) + OFFSET
    # Between boundaries, which are found by bisection, integrands are smooth.
    grid = np.linspace(-12.0, 12.0, 4001)
    patterns = network.patterns(grid[:, None])
    edges = [-12.0]
    for index in np.flatnonzero((patterns[1:] != patterns[:-1]).any(axis=1)):
        low, high = grid[index], grid[index + 1]
        for _ in range(60):
            middle = 0.5 * (low + high)
            is_low = np.array_equal(network.patterns(np.array([[middle]]))[0], patterns[index])
            low, high = (middle, high) if is_low else (low, middle)
        edges.append(low)
    edges.append(12.0)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    points, logs = [], []
    for low, high in itertools.pairwise(edges):
        for a, b in itertools.pairwise(np.linspace(low, high, 9)):
            points.append(0.5 * (a + b) + 0.5 * (b - a) * nodes)
            logs.append(np.log(np.maximum(0.5 * (b - a) * weights, 1e-300)))
    latent, logs = np.concatenate(points)[:, None], np.concatenate(logs)
    np.testing.assert_allclose(
        model.score_samples(rows), log_density(network, rows, latent, logs), rtol=0, atol=1e-8
    )


# Three dimensions take millions of points: some of the networks, with few boundaries.
DIRECT = [(name, 2) for name in CUTTING]
DIRECT += usually([(name, 3) for name in ("max_pool_overlapping", "abs", "max_out_2")], 1)


@pytest.mark.parametrize(("name", "n_components"), DIRECT)
def test_log_densities_equal_quadrature(name: str, n_components: int) -> None:
    """Points of latent space and what the network makes of them, nothing else."""
    network = random_network(name, n_components)
    variance = VARIANCE if n_components == 2 else LARGER_VARIANCE
    model = Model.build(network, Noise.from_covariance(variance, N_FEATURES))
    rows = network.forward(np.array([[0.3] * n_components, [-1.0] * n_components])) + OFFSET
    grid = np.linspace(-REACH, REACH, {2: 57, 3: 15}[n_components])
    planes, turn = turned(boundaries(model.partition))
    points, log_weights = np.empty((1, 0)), np.zeros(1)
    while points.shape[1] < n_components - 1:
        points, log_weights = extend(points, log_weights, planes, grid)
    parts = []
    for begin in range(0, len(points), 100):
        some = slice(begin, begin + 100)
        latent, logs = extend(points[some], log_weights[some], planes, grid)
        parts.append(log_density(network, rows, latent @ turn.T, logs, variance))
    expected = logsumexp(parts, axis=0)
    np.testing.assert_allclose(model.log_density(rows, Workers()), expected, rtol=0, atol=1e-8)


def boundaries(partition: Partition) -> np.ndarray:
    """Hyperplanes in which regions meet, (n, S + 1), each once."""
    _, normals, offsets = partition.cells.facets()
    planes = np.column_stack([normals, offsets])
    planes *= np.sign(planes[np.arange(len(planes)), np.argmax(np.abs(normals), axis=1)])[:, None]
    return np.unique(np.round(planes, 9), axis=0)


def turned(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotate latent space such that no hyperplane runs along the last axis.

    Where one nearly does, what is behind it changes fast with the other coordinates.
    """
    rng, n_components = np.random.default_rng(0), planes.shape[1] - 1
    turns = [np.linalg.qr(rng.normal(size=(n_components,) * 2))[0] for _ in range(200)]
    turn = max(turns, key=lambda own: np.abs(planes[:, :-1] @ own[:, -1]).min())
    return np.column_stack([planes[:, :-1] @ turn, planes[:, -1]]), turn


def extend(
    points: np.ndarray, log_weights: np.ndarray, planes: np.ndarray, grid: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Add a coordinate to points (n, a): Gauss-Legendre nodes between all breaks, and a grid.

    Integrals over the coordinates behind it break where as many hyperplanes meet as there are of
    these, itself included.
    """
    normals, offsets = planes[:, :-1], planes[:, -1]
    n_known = points.shape[1]
    breaks = [np.repeat(grid[None], len(points), axis=0)]
    for chosen in itertools.combinations(range(len(planes)), normals.shape[1] - n_known):
        own = normals[list(chosen)]
        if abs(np.linalg.det(own[:, n_known:])) > 1e-9:
            left = offsets[list(chosen)] - points @ own[:, :n_known].T
            breaks.append((left @ np.linalg.inv(own[:, n_known:])[0])[:, None])
    edges = np.sort(np.clip(np.hstack(breaks), -REACH, REACH), axis=1)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    halves = 0.5 * np.diff(edges)[:, :, None]
    last = (edges[:, :-1, None] + halves * (1.0 + nodes)).reshape(len(points), -1)
    logs = np.log(np.maximum(halves * weights, 1e-300)).reshape(len(points), -1)
    extended = np.column_stack([np.repeat(points, last.shape[1], axis=0), last.ravel()])
    return extended, (log_weights[:, None] + logs).ravel()


def log_density(
    network: Network,
    rows: np.ndarray,
    latent: np.ndarray,
    log_weights: np.ndarray,
    variance: float = VARIANCE,
) -> np.ndarray:
    squares = ((rows[:, None] - network.forward(latent)) ** 2).sum(axis=2) / variance
    constant = -0.5 * N_FEATURES * np.log(2.0 * np.pi * variance)
    prior = -0.5 * (latent**2).sum(axis=1) - 0.5 * latent.shape[1] * np.log(2.0 * np.pi)
    return constant + logsumexp(log_weights + prior - 0.5 * squares, axis=1)


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("name", CUTTING)
def test_densities_are_those_of_rectifiers_that_compute_the_same(
    name: str, n_components: int
) -> None:
    model = model_of(random_network(name, n_components))
    coefs, intercepts = as_rectifiers(model._network)
    same = PiecewiseAffineDGN.from_network(coefs, intercepts, VARIANCE, activation="relu")
    points = np.random.default_rng(2).normal(size=(6, n_components))
    rows = model.inverse_transform(points) + OFFSET
    np.testing.assert_allclose(
        same.inverse_transform(points), model.inverse_transform(points), atol=1e-11
    )
    np.testing.assert_allclose(
        model.score_samples(rows), same.score_samples(rows), rtol=1e-9, atol=1e-10
    )
    np.testing.assert_allclose(model.transform(rows), same.transform(rows), rtol=0, atol=1e-7)


def as_rectifiers(network: Network) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Write any network as dense layers of rectifiers."""
    coefs, intercepts = [], []
    # The values before a layer are readings of the last hidden layer.
    reading, shift = np.eye(network.n_components), np.zeros(network.n_components)

    def rectify(weights: np.ndarray, offsets: np.ndarray) -> None:
        coefs.append(weights)
        intercepts.append(offsets)

    for layer in network.layers:
        if layer.n_codes == 0:
            start = layer.forward(np.zeros((1, layer.n_inputs)))[0]
            matrix = (layer.forward(np.eye(layer.n_inputs)) - start).T
            reading, shift = matrix @ reading, matrix @ shift + start
        elif layer.contests is None:
            # f(x) = f(0) + slope at the left x + what the slope changes by at each kink
            tables = unit_functions(layer)
            rows, offsets, combine, constants = [], [], [], []
            n_hidden = sum(len(kinks) + 2 for kinks, _, _ in tables)
            for unit, (kinks, slopes, at_zero) in enumerate(tables):
                jumps = np.diff(slopes)
                weights = np.zeros(n_hidden)
                weights[len(rows) : len(rows) + 2] = slopes[0], -slopes[0]
                weights[len(rows) + 2 : len(rows) + 2 + len(kinks)] = jumps
                rows += [reading[unit], -reading[unit], *[reading[unit]] * len(kinks)]
                offsets += [shift[unit], -shift[unit], *(shift[unit] - np.array(kinks))]
                combine.append(weights)
                constants.append(at_zero - np.maximum(-np.array(kinks), 0.0) @ jumps)
            rectify(np.array(rows), np.array(offsets))
            reading, shift = np.array(combine), np.array(constants)
        else:
            # max(a, b) = b + max(a - b, 0), one rival after the other
            best, constants = reading[layer.contests[:, 0]], shift[layer.contests[:, 0]]
            n_groups, n_members = layer.contests.shape
            for member in range(1, n_members):
                rival = layer.contests[:, member]
                rest = np.concatenate([reading, best - reading[rival]])
                rest_shift = np.concatenate([shift, constants - shift[rival]])
                rectify(np.concatenate([rest, -reading]), np.concatenate([rest_shift, -shift]))
                n_values = len(reading)
                reading = np.hstack(
                    [np.eye(n_values), np.zeros((n_values, n_groups)), -np.eye(n_values)]
                )
                shift = np.zeros(n_values)
                ahead = np.zeros((n_groups, reading.shape[1]))
                ahead[np.arange(n_groups), n_values + np.arange(n_groups)] = 1.0
                best, constants = reading[rival] + ahead, np.zeros(n_groups)
            reading, shift = best, constants
    return [*coefs, reading], [*intercepts, shift]


def unit_functions(layer: Layer) -> list[tuple[tuple[float, ...], tuple[float, ...], float]]:
    """Kinks, slopes and value at zero of the function of every unit."""
    if hasattr(layer, "n_passed"):
        return unit_functions(layer.layer) + [((), (1.0,), 0.0)] * layer.n_passed
    if hasattr(layer, "activation"):
        function = layer.activation
        return [(function.kinks, function.piece_slopes, function.value_at_zero)] * layer.n_inputs
    slopes = layer.negative_slopes[layer.groups]
    return [((0.0,), (float(slope), 1.0), 0.0) for slope in slopes]


@pytest.mark.parametrize("name", CUTTING)
def test_everything_else_works(name: str) -> None:
    model = model_of(random_network(name, 2))
    rows, _ = model.sample(20, random_state=0)
    posterior = model.posterior(rows)
    draws = posterior.sample(2000, random_state=0)
    errors = np.abs(draws.mean(axis=0) - posterior.mean)
    assert errors.max() < 0.15
    modes = posterior.mode()
    assert np.all(
        posterior.log_density(modes)[np.arange(20), np.arange(20)]
        >= posterior.log_density(posterior.mean)[np.arange(20), np.arange(20)] - 1e-9
    )
    gaps = posterior.kl_from(posterior.mean, posterior.covariance)
    assert np.all(gaps >= -1e-10)
    bound = model.elbo(rows, posterior.mean, posterior.covariance)
    np.testing.assert_allclose(model.score_samples(rows) - bound, gaps, rtol=0, atol=1e-8)
    holes = np.where(np.random.default_rng(0).random(rows.shape) < 0.3, np.nan, rows)
    filled = model.impute(holes)
    assert np.all(np.isfinite(filled))
    np.testing.assert_array_equal(filled[~np.isnan(holes)], rows[~np.isnan(holes)])


# How parameters move the outputs


def layers_with_parameters() -> dict[str, tuple[Layer, int]]:
    generator = np.random.default_rng(3)
    blueprints = {
        "dense": (Dense(4), (3,)),
        "conv1d": (Conv1d(4, 3, stride=2, padding=1, groups=2), (2, 7)),
        "conv2d": (Conv2d(2, (3, 2), dilation=(1, 2)), (3, 5, 6)),
        "transposed1d": (ConvTranspose1d(2, 3, stride=2, output_padding=1), (2, 4)),
        "transposed2d": (ConvTranspose2d(2, 4, stride=2, padding=1, groups=2), (4, 2, 3)),
        "prelu": (PReLU("channel"), (2, 3)),
    }
    return {
        name: (blueprint._build(shape, generator)[0], int(np.prod(shape)))
        for name, (blueprint, shape) in blueprints.items()
    }


LEARNING = layers_with_parameters()


@pytest.mark.parametrize("name", LEARNING)
def test_push_is_the_derivative_and_pull_its_transpose(name: str) -> None:
    layer, n_inputs = LEARNING[name]
    rng = np.random.default_rng(4)
    maps = AffineMaps(rng.normal(size=(5, n_inputs, 2)), rng.normal(size=(5, n_inputs)))
    codes = rng.integers(0, 2, size=(5, layer.n_codes)).astype(np.uint8)
    change = rng.normal(size=layer.n_parameters)
    upstream = maps.homogeneous(5)
    pushed = layer.push(change, upstream, codes)
    # Outputs are linear in the parameters: no step is too large.
    moved = layer.with_parameters(layer.parameters + change).apply(maps, codes)
    before = layer.apply(maps, codes)
    np.testing.assert_allclose(pushed[:, :, :-1], moved.slopes - before.slopes, atol=1e-12)
    np.testing.assert_allclose(pushed[:, :, -1], moved.offsets - before.offsets, atol=1e-12)
    forces = rng.normal(size=pushed.shape)
    pulled = layer.pull(forces, upstream, codes)
    assert float(pulled @ change) == pytest.approx(float((forces * pushed).sum()), rel=1e-11)
    downstream = rng.normal(size=(5, 2, layer.n_outputs))
    derivatives = layer.derivatives(downstream, upstream, codes)
    assert derivatives.shape == (layer.n_parameters, 5, 2, 3)
    np.testing.assert_allclose(
        np.tensordot(change, derivatives, axes=1), downstream @ pushed, atol=1e-11
    )


@pytest.mark.parametrize("name", [*LEARNING, "average", "upsample", "normalization", "maximum"])
def test_transpose_is_that_of_the_linear_part(name: str) -> None:
    fixed = {
        "average": (AvgPool(2, stride=1, padding=1), (2, 3, 3)),
        "upsample": (Upsample(2, "bilinear"), (1, 3, 2)),
        "normalization": (BatchNorm([0.1, 0.2], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]), (2, 3)),
        "maximum": (MaxPool(2, stride=1), (2, 3, 3)),
    }
    rng = np.random.default_rng(5)
    if name in LEARNING:
        layer, n_inputs = LEARNING[name]
    else:
        blueprint, shape = fixed[name]
        (layer,) = blueprint._build(shape, rng)
        n_inputs = int(np.prod(shape))
    maps = AffineMaps(rng.normal(size=(4, n_inputs, 3)), np.zeros((4, n_inputs)))
    codes = layer.codes(rng.normal(size=(4, n_inputs)))
    behind = rng.normal(size=(4, 2, layer.n_outputs))
    through = layer.transpose(behind, codes) @ maps.slopes
    np.testing.assert_allclose(through, behind @ layer.apply(maps, codes).slopes, atol=1e-12)
    # The value at a point is that of the map of its region.
    points = rng.normal(size=(4, n_inputs))
    at = AffineMaps(np.zeros((4, n_inputs, 1)), points)
    np.testing.assert_allclose(
        layer.apply(at, layer.codes(points)).offsets, layer.forward(points), atol=1e-12
    )


# Parameters that can be told apart


def test_parameters_of_many_regions_and_dimensions_are_counted_by_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers = [Dense(4), PReLU("layer", [0.3]), Dense(6)]
    network = Network.from_blueprints(layers, 3, np.random.default_rng(8))
    # As the formula of dense networks has it, and one slope: two layers less factors of units and
    # rotations of three dimensions.
    expected = (4 * 3 + 4) + (6 * 4 + 6) - 4 - 3 + 1
    patterns = build_partition(network).patterns
    assert network.count_identifiable(patterns) == expected
    monkeypatch.setattr(identifiability, "_MOST_REGIONS", 10)
    monkeypatch.setattr(identifiability, "_DERIVATIVES_AT_A_TIME", 1)
    assert network.count_identifiable(patterns) == expected


@pytest.mark.parametrize("name", CUTTING)
def test_parameters_are_counted_as_finite_differences_have_it(name: str) -> None:
    """The rank of the derivatives of the generator, at many points, by all parameters."""
    network = random_network(name, 1)
    points = np.random.default_rng(0).normal(size=(400, 1)) * 3.0
    patterns = network.patterns(points)
    columns = []
    for place in network.learned:
        layer = network.layers[place]
        for unit in np.eye(layer.n_parameters):
            ends = []
            for sign in (1.0, -1.0):
                moved = layer.with_parameters(layer.parameters + sign * unit)
                # Maps are linear in each parameter: no step is too large.
                maps = network.replace_layers([place], [moved]).maps(patterns)[-1]
                ends.append((maps.slopes @ points[:, :, None])[:, :, 0] + maps.offsets)
            columns.append((ends[0] - ends[1]).ravel() / 2.0)
    matrix = np.array(columns)
    sizes = np.linalg.norm(matrix, axis=1)
    matrix = matrix[sizes > 0] / sizes[sizes > 0, None]
    values = np.linalg.svd(matrix, compute_uv=False)
    met = np.unique(patterns, axis=0)
    assert network.count_identifiable(met) == np.sum(values > 1e-9)


def test_a_layer_that_sees_nothing_has_no_parameters_to_count() -> None:
    layers = [Dense(1, [[0.0]], [-1.0]), ReLU(), Reshape((1, 1)), Conv1d(2, 1, coef=[[[0.0]]] * 2)]
    network = Network.from_blueprints(layers, 1)
    # Two intercepts: the unit is off everywhere.
    assert network.count_identifiable(build_partition(network).patterns) == 2


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        # The formula of dense networks, by rank: weights less a factor of each unit.
        ([Dense(4), PReLU("layer", [0.3]), Dense(3)], None),
        # A curve with two kinks, each between two pieces of two groups: where, two slopes in
        # front of the first and what each kink adds to them, an offset.
        ([Dense(4), MaxOut(2), Dense(2)], 2 + 2 + 2 * 2 + 2),
    ],
)
def test_parameters_are_counted_by_rank(layers: list, expected: int | None) -> None:
    network = Network.from_blueprints(layers, 1, np.random.default_rng(8))
    model = PiecewiseAffineDGN.from_network(
        layers=network.filled_blueprints(), noise_covariance=0.1
    )
    n_noise = 1
    if expected is None:
        dense = [Dense(4), LeakyReLU(0.3), Dense(3)]
        same = Network.from_blueprints(dense, 1, np.random.default_rng(8))
        leaky = PiecewiseAffineDGN.from_network(
            layers=same.filled_blueprints(), noise_covariance=0.1
        )
        # The slope of a whole layer is one more.
        assert model.n_parameters_ == leaky.n_parameters_ + 1
    else:
        assert model.n_parameters_ == expected + n_noise
