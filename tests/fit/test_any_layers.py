"""Networks of any layers: starts, steps of EM that never lose, and what is counted of them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._fit.em.loop import Problem, State
from skdgn._fit.m_step import maximization as _maximization
from skdgn._fit.m_step.maximization import GaussNewtonSystem, gradient, linearize
from skdgn._fit.m_step.weight_priors import WeightPrior
from skdgn._fit.starts import any_layers
from skdgn._fit.starts.any_layers import fit_any_layers
from skdgn._network import Architecture, Network
from skdgn._noise import Noise
from skdgn._runtime.workers import Workers
from skdgn.datasets import make_noisy_circle
from skdgn.layers import (
    AvgPool,
    BatchNorm,
    Concatenate,
    Conv1d,
    ConvTranspose1d,
    ConvTranspose2d,
    Dense,
    Flatten,
    HardTanh,
    LeakyReLU,
    MaxOut,
    MaxPool,
    PReLU,
    Reshape,
    Residual,
    Upsample,
)
from tests.portions import usually

# Fits are short on purpose.
pytestmark = pytest.mark.filterwarnings(
    "ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"
)

N_FEATURES = 4

# Everything that learns, with a dense output layer and without one.
LEARNING: dict[str, list[Any]] = {
    "max_out": [Dense(6), MaxOut(2), Dense(N_FEATURES)],
    "max_out_3": [Dense(6), MaxOut(3), Dense(N_FEATURES)],
    "slopes": [Dense(5), PReLU(), Dense(N_FEATURES)],
    "shared_slope": [Dense(4), PReLU("layer"), Dense(3), LeakyReLU(0.1), Dense(N_FEATURES)],
    "convolution": [Dense(6), LeakyReLU(0.1), Reshape((2, 3)), Conv1d(2, 2)],
    "transposed": [Dense(4), LeakyReLU(0.1), Reshape((2, 2)), ConvTranspose1d(1, 2, stride=2)],
    "pooled": [Dense(8), Reshape((1, 8)), MaxPool(2), Conv1d(1, 1), Flatten()],
    "enlarged": [Dense(2), HardTanh(), Reshape((1, 2)), Upsample(2), Conv1d(1, 3, padding=1)],
    "residual": [Dense(3), Residual(Dense(3), LeakyReLU(0.2)), Dense(N_FEATURES)],
    "concatenated": [Dense(3), Concatenate([Dense(2), LeakyReLU(0.2)], []), Dense(N_FEATURES)],
    "averaged": [Dense(8), LeakyReLU(0.1), Reshape((2, 4)), AvgPool(2), Dense(N_FEATURES)],
    "normalized": [
        Dense(4),
        BatchNorm([0.1, 0.2, 0.3, 0.4], [1.0, 2.0, 3.0, 4.0]),
        LeakyReLU(0.1),
        Dense(N_FEATURES),
    ],
}


def rows_on_a_curve(n_samples: int, n_features: int = N_FEATURES, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spots = rng.normal(size=n_samples)
    places = np.linspace(-1.5, 1.5, n_features)
    return np.exp(-((spots[:, None] - places) ** 2)) + 0.05 * rng.normal(
        size=(n_samples, n_features)
    )


def state_of(name: str, n_components: int = 1, covariance: Any = 0.3) -> tuple[Problem, State]:
    rng = np.random.default_rng(1)
    network = Network.from_blueprints(LEARNING[name], n_components, rng)
    rows, weights = rng.normal(size=(25, N_FEATURES)), rng.uniform(0.5, 2.0, 25)
    noise = Noise.from_covariance(covariance, N_FEATURES)
    prior = WeightPrior(None, 1.0, np.ones(N_FEATURES))
    problem = Problem(
        rows, weights, noise.covariance_type, 1, np.full(N_FEATURES, 1e-6), prior, 1000, Workers()
    )
    return problem, problem.evaluate(network, noise)


def linearized(state: State) -> _maximization.Linearization:
    return linearize(state.statistics, state.network, state.noise, state.partition.patterns)


@pytest.mark.parametrize("name", LEARNING)
def test_gradient_of_every_layer_is_that_of_the_exact_likelihood(name: str) -> None:
    covariance = np.array([0.2, 0.3, 0.5, 0.4])
    problem, state = state_of(name, covariance=covariance)
    step, linearization, network = 1e-5, linearized(state), state.network
    for number, place in enumerate(network.learned):
        layer = network.layers[place]
        expected = gradient(linearization, number)
        if network.ends_dense and number == network.output_layer:  # that of the whitened layer
            block = expected.reshape(N_FEATURES, -1)
            expected = (block / np.sqrt(covariance)[:, None]).ravel()
        measured = np.empty_like(expected)
        for k, unit in enumerate(np.eye(layer.n_parameters)):
            ends = []
            for sign in (1.0, -1.0):
                moved = layer.with_parameters(layer.parameters + sign * step * unit)
                there = network.replace_layers([place], [moved])
                ends.append(problem.evaluate(there, state.noise).statistics.log_likelihood)
            measured[k] = (ends[0] - ends[1]) / (2.0 * step)
        scale = max(np.abs(expected).max(), 1.0)
        np.testing.assert_allclose(measured, expected, atol=1e-5 * scale, rtol=0)


@pytest.mark.parametrize("damping", [1e-4, 0.1])
@pytest.mark.parametrize("name", LEARNING)
def test_conjugate_gradients_find_the_step_of_the_factorization(
    name: str, damping: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, state = state_of(name)
    linearization, layers = linearized(state), range(len(state.network.learned))
    dense = GaussNewtonSystem(linearization, layers)
    expected = dense.solve(damping)
    monkeypatch.setattr(_maximization, "_DERIVATIVE_FLOATS", 1)  # one region at a time
    again = GaussNewtonSystem(linearization, layers)
    np.testing.assert_allclose(again.matrix, dense.matrix, rtol=1e-10, atol=1e-10)
    # Dampings are shares of a diagonal which, if weights are shared, the iterative solver only
    # knows the scale of: it is given the same.
    monkeypatch.setattr(_maximization, "LARGEST_DENSE_SYSTEM", 0)
    monkeypatch.setattr(_maximization, "CG_TOLERANCE", 1e-13)
    monkeypatch.setattr(_maximization, "MOST_CG_STEPS", 2000)
    iterative = GaussNewtonSystem(linearization, layers)
    scale = iterative.diagonal
    assert scale.shape == dense.diagonal.shape
    assert np.all(scale >= -1e-12)
    iterative.diagonal = dense.diagonal
    found = iterative.solve(damping)
    for one, other in zip([*expected[0], expected[1]], [*found[0], found[1]], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


def test_a_matrix_that_is_less_work_than_its_products_is_factorized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, state = state_of("convolution")
    linearization, layers = linearized(state), range(len(state.network.learned))
    n_weights = GaussNewtonSystem(linearization, layers).n_hidden_weights
    monkeypatch.setattr(_maximization, "LARGEST_DENSE_SYSTEM", n_weights - 1)
    assert GaussNewtonSystem(linearization, layers).dense
    monkeypatch.setattr(_maximization, "MOST_CG_STEPS", 0)
    assert not GaussNewtonSystem(linearization, layers).dense
    monkeypatch.undo()
    monkeypatch.setattr(_maximization, "LARGEST_DENSE_SYSTEM", n_weights // 4)
    assert not GaussNewtonSystem(linearization, layers).dense


@pytest.mark.parametrize("name", ["max_out", "slopes", "shared_slope", "normalized", "residual"])
def test_the_scale_of_the_diagonal_is_the_diagonal_where_nothing_is_shared(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, state = state_of(name)
    linearization, layers = linearized(state), range(len(state.network.learned))
    exact = np.diagonal(GaussNewtonSystem(linearization, layers).matrix)
    monkeypatch.setattr(_maximization, "LARGEST_DENSE_SYSTEM", 0)
    scale = GaussNewtonSystem(linearization, layers).diagonal
    own = np.ones(len(exact), dtype=bool)
    if name == "shared_slope":
        own[8] = False  # one slope for four units
    np.testing.assert_allclose(scale[own], exact[own], rtol=1e-9)


@pytest.mark.parametrize("name", LEARNING)
def test_a_start_is_nearer_than_its_mean(name: str) -> None:
    rng = np.random.default_rng(0)
    spots = rng.normal(size=(150, 1))
    rows = np.exp(-((spots - np.linspace(-1.5, 1.5, N_FEATURES)) ** 2))
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    architecture = Architecture.of_layers(1, LEARNING[name])
    network = fit_any_layers(spots, rows, architecture, np.random.default_rng(0))
    left = np.mean((network.forward(spots) - rows) ** 2)
    # Two units that saturate, or a single kernel, cannot do much better.
    assert left < (0.9 if name in ("enlarged", "pooled") else 0.5)


def test_large_networks_get_fewer_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    spots = np.random.default_rng(0).normal(size=(100, 1))
    rows = np.hstack([np.abs(spots), spots])
    architecture = Architecture.of_layers(1, [Dense(4), HardTanh(), Dense(2)])
    full = fit_any_layers(spots, rows, architecture, np.random.default_rng(0))
    monkeypatch.setattr(any_layers, "_MUCH_WORK", 0.0)
    brief = fit_any_layers(spots, rows, architecture, np.random.default_rng(0))
    losses = [np.mean((one.forward(spots) - rows) ** 2) for one in (full, brief)]
    assert losses[0] != losses[1]  # another search, and a start as well
    assert max(losses) < 0.1 * np.var(rows)


def test_a_hopeless_start_is_not_pursued() -> None:
    rng = np.random.default_rng(0)
    spots, rows = rng.normal(size=(100, 1)), rng.normal(size=(100, 3))
    architecture = Architecture.of_layers(1, [Dense(4), HardTanh()])
    brief = fit_any_layers(spots, rows, architecture, np.random.default_rng(0), to_beat=1e-6)
    full = fit_any_layers(spots, rows, architecture, np.random.default_rng(0))
    losses = [np.sum((one.forward(spots) - rows) ** 2) for one in (brief, full)]
    assert losses[0] > losses[1]


def test_an_exact_fit_ends_the_search() -> None:
    spots = np.linspace(-2.0, 2.0, 50)[:, None]
    rows = np.hstack([2.0 * spots, -spots])
    architecture = Architecture.of_layers(1, [Dense(2), PReLU("layer", [1.0]), Dense(2)])
    network = fit_any_layers(spots, rows, architecture, np.random.default_rng(0))
    np.testing.assert_allclose(network.forward(spots), rows, atol=1e-3)


# Fits


def assert_never_lower(model: PiecewiseAffineDGN) -> None:
    bounds = np.asarray(model.lower_bounds_)
    assert np.all(np.diff(bounds) >= -1e-9 * np.maximum(1.0, np.abs(bounds[1:])))


def fitted(layers: list[Any], rows: np.ndarray, **parameters: Any) -> PiecewiseAffineDGN:
    settings = {"max_iter": 8, "random_state": 0, **parameters}
    return PiecewiseAffineDGN(hidden_layers=layers, **settings).fit(rows)


SMALL = {
    "convolution": lambda: [
        Dense(6),
        LeakyReLU(0.1),
        Reshape((3, 2)),
        ConvTranspose1d(1, 2, stride=2),
    ],
    "max_out": lambda: [Dense(6), MaxOut(2)],
    "slopes": lambda: [Dense(4), PReLU()],
}


@pytest.mark.parametrize("seed", usually(range(17), 8))
@pytest.mark.parametrize("name", SMALL)
def test_em_never_loses(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rows_on_a_curve(60, seed=seed) * rng.uniform(0.5, 2.0, N_FEATURES)
    model = fitted(
        SMALL[name](),
        rows,
        n_components=1 + (seed % 5 == 0),
        covariance_type=["diag", "spherical", "full"][seed % 3],
        m_step=["joint", "layerwise"][seed % 4 == 3],
        init_params=["tree", "random", "pca"][seed // 2 % 3],
        max_iter=6,
        random_state=seed,
    )
    assert len(model.lower_bounds_) >= 1
    assert_never_lower(model)
    # What is reported is the exact likelihood of what is kept.
    assert model.lower_bound_ == pytest.approx(model.score(rows), abs=1e-8)


@pytest.mark.parametrize("weight_prior", ["gaussian", "laplace", "uniform"])
@pytest.mark.parametrize("name", ["convolution", "slopes"])
def test_em_under_a_prior_never_loses(name: str, weight_prior: str) -> None:
    rows = rows_on_a_curve(60)
    assert_never_lower(fitted(SMALL[name](), rows, weight_prior=weight_prior, prior_scale=2.0))


@pytest.mark.parametrize("name", [name for name in LEARNING if name not in SMALL])
def test_every_layer_learns(name: str) -> None:
    rows = rows_on_a_curve(60)
    model = fitted(LEARNING[name], rows, max_iter=5)
    assert_never_lower(model)
    assert model.lower_bounds_[-1] > model.lower_bounds_[0]
    same = PiecewiseAffineDGN.from_network(
        layers=model.layers_, noise_covariance=model.noise_covariance_
    )
    np.testing.assert_allclose(same.score_samples(rows), model.score_samples(rows), rtol=1e-10)


def test_kernels_stay_shared_and_slopes_are_learned() -> None:
    model = fitted(
        [Dense(6), PReLU("channel"), Reshape((3, 2)), ConvTranspose1d(1, 2, stride=2)],
        rows_on_a_curve(80),
        covariance_type="spherical",
    )
    assert [coef.shape for coef in model.coefs_] == [(6, 1), (3, 1, 2)]
    assert [intercept.shape for intercept in model.intercepts_] == [(6,), (1,)]
    (slopes,) = [layer.slopes for layer in model.layers_ if isinstance(layer, PReLU)]
    assert slopes.shape == (6,)
    assert np.all(slopes != 0.25)


def test_parameters_are_counted_where_the_output_layer_alone_learns() -> None:
    rows = rows_on_a_curve(80)
    model = fitted([LeakyReLU(0.2)], rows, n_components=2, max_iter=2)
    # Two weights, an intercept and a variance for every feature: kinks are along the axes, so that
    # no rotation leaves the generator as it is.
    assert model.n_parameters_ == N_FEATURES * 4
    assert fitted([LeakyReLU(0.2)], rows, max_iter=2).n_parameters_ == N_FEATURES * 3


def test_features_of_different_scales_keep_a_shared_kernel() -> None:
    """The factors of features are not the kernel's: a layer behind it has them."""
    scales = np.array([1.0, 10.0, 0.1, 3.0])
    rows = rows_on_a_curve(80)
    model = fitted(SMALL["convolution"](), rows * scales)
    assert_never_lower(model)
    assert model.coefs_[-1].shape == (3, 1, 2)
    restored = PiecewiseAffineDGN.from_network(
        layers=model.layers_, noise_covariance=model.noise_covariance_
    )
    assert restored.n_parameters_ <= model.n_parameters_


def test_missing_values_weights_and_chunks() -> None:
    rows = rows_on_a_curve(80)
    rows[np.random.default_rng(0).random(rows.shape) < 0.2] = np.nan
    rows = rows[~np.isnan(rows).all(axis=1)]
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(rows))
    model = PiecewiseAffineDGN(hidden_layers=SMALL["max_out"](), max_iter=5, random_state=0)
    model.fit(rows, sample_weight=weights)
    assert_never_lower(model)
    assert np.isfinite(model.impute(rows)).all()
    before = model.score(rows)
    model.partial_fit(rows)
    assert np.isfinite(model.score(rows))
    assert model.score(rows) > before - 1.0


def test_more_neurons_of_a_fit_go_on_from_the_last_one() -> None:
    rows = rows_on_a_curve(60)
    model = PiecewiseAffineDGN(
        hidden_layers=SMALL["slopes"](), max_iter=3, random_state=0, warm_start=True
    ).fit(rows)
    first = model.lower_bound_
    model.fit(rows)
    assert model.lower_bounds_[0] >= first - 1e-9
    model.set_params(hidden_layers=SMALL["max_out"]())
    with pytest.raises(ValueError, match=r"warm_start.* needs the hidden_layers of the last fit"):
        model.fit(rows)
    model.set_params(hidden_layers=[Dense(4), PReLU(), Dense(4), Dense(N_FEATURES)])
    model.fit(rows)  # dense layers with nothing between them are one
    model.set_params(hidden_layers=[Dense(5), PReLU()])
    with pytest.raises(ValueError, match=r"warm_start.* needs the hidden_layers of the last fit"):
        model.fit(rows)


def test_layers_with_weights_begin_with_them() -> None:
    rows = rows_on_a_curve(60)
    first = fitted(SMALL["max_out"](), rows, covariance_type="spherical")
    again = PiecewiseAffineDGN(
        hidden_layers=first.layers_, covariance_type="spherical", max_iter=1, random_state=0
    ).fit(rows)
    assert_never_lower(again)
    assert again.score(rows) > first.score(rows) - 0.5


@pytest.mark.parametrize("first", [PReLU(), MaxOut(2), Concatenate(LeakyReLU(0.2), [])])
def test_layers_of_a_fit_tell_the_number_of_latent_dimensions(first: Any) -> None:
    rows = rows_on_a_curve(60)
    model = fitted([first], rows, n_components=2, max_iter=2)
    same = PiecewiseAffineDGN.from_network(
        layers=model.layers_, noise_covariance=model.noise_covariance_
    )
    assert same.n_components == 2
    np.testing.assert_allclose(same.score_samples(rows), model.score_samples(rows), rtol=1e-10)


def test_estimators_of_layers_are_cloned_searched_and_stored() -> None:
    rows = rows_on_a_curve(60)
    model = PiecewiseAffineDGN(hidden_layers=[Dense(4), MaxOut(2)], max_iter=2, random_state=0)
    assert model.get_params()["hidden_layers"] == [Dense(4), MaxOut(2)]
    copy = clone(model)
    assert copy.hidden_layers == model.hidden_layers
    search = GridSearchCV(
        model, {"hidden_layers": [[Dense(4), MaxOut(2)], [Dense(3), PReLU()]]}, cv=2
    ).fit(rows)
    assert search.best_params_["hidden_layers"] in ([Dense(4), MaxOut(2)], [Dense(3), PReLU()])
    restored = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(
        restored.score_samples(rows), search.best_estimator_.score_samples(rows)
    )
    assert "MaxOut" in repr(model)


def test_sizes_and_layers_are_not_given_both() -> None:
    model = PiecewiseAffineDGN(hidden_layer_sizes=(4,), hidden_layers=[Dense(4), MaxOut(2)])
    with pytest.raises(ValueError, match="hidden_layer_sizes must be left at its default"):
        model.fit(rows_on_a_curve(20))
    for name, value in (("activation", "relu"), ("negative_slope", [0.1])):
        model = PiecewiseAffineDGN(hidden_layers=[Dense(4)], **{name: value})
        with pytest.raises(ValueError, match=f"{name} must be left at its default if hidden_lay"):
            model.fit(rows_on_a_curve(20))
    with pytest.raises(ValueError, match="'hidden_layers' parameter"):
        PiecewiseAffineDGN(hidden_layers=3).fit(rows_on_a_curve(20))


def test_networks_of_layers_may_be_mixed() -> None:
    rows = rows_on_a_curve(80)
    for layers in ([Dense(4), MaxOut(2)], SMALL["convolution"]()):
        network = PiecewiseAffineDGN(hidden_layers=layers)
        mixture = DGNMixture(network, 2, max_iter=3, random_state=0).fit(rows)
        assert np.all(np.diff(mixture.lower_bounds_) >= -1e-9)
        # Every network has the layers it was given, which none of a Gaussian mixture has.
        for own in mixture.networks_:
            kinds = [type(layer) for layer in own.layers_]
            assert kinds[: len(layers)] == [type(layer) for layer in layers]
        before = mixture.score(rows)
        assert mixture.partial_fit(rows).score(rows) > before - 1.0


def test_a_dense_layer_alone_is_the_linear_model() -> None:
    rows = rows_on_a_curve(60)
    # Probabilistic principal components, of which one has the solution from the first.
    settings = {"covariance_type": "spherical", "max_iter": 1000, "tol": 1e-10}
    model = fitted([Dense(N_FEATURES)], rows, **settings)
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), **settings).fit(rows)
    assert model.score(rows) == pytest.approx(linear.score(rows), abs=1e-7)


def test_an_image_is_drawn_by_a_transposed_convolution() -> None:
    rng = np.random.default_rng(0)
    layers = [Dense(8), LeakyReLU(0.1), Reshape((2, 2, 2)), ConvTranspose2d(1, 2, stride=2)]
    truth = Network.from_blueprints(layers, 1, rng)
    rows = truth.forward(rng.normal(size=(100, 1))) + 0.1 * rng.normal(size=(100, 16))
    model = fitted(layers, rows, covariance_type="spherical", max_iter=25)
    assert_never_lower(model)
    dense = PiecewiseAffineDGN(
        hidden_layer_sizes=(8,), covariance_type="spherical", max_iter=25, random_state=0
    ).fit(rows)
    assert model.n_parameters_ < 0.3 * dense.n_parameters_
    assert model.bic(rows) < dense.bic(rows)


@pytest.mark.parametrize("layers", [[Dense(6), MaxOut(2)], [Dense(4), PReLU()]])
def test_a_circle_is_found(layers: list[Any]) -> None:
    rows = make_noisy_circle(300, random_state=0)
    model = fitted(layers, rows, max_iter=60)
    assert_never_lower(model)
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0).fit(rows)
    assert model.score(rows) > linear.score(rows) + 0.3
