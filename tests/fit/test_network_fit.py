"""Fits: known special cases, priors, awkward data, interruptions."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import skdgn._fit.fitting
import skdgn._fit.network_fit
from skdgn import PiecewiseAffineDGN
from skdgn._fit.em import loop as _em
from skdgn._fit.em.mixture import MixtureProblem
from skdgn._fit.scaling import Scaling
from skdgn._fit.search.mixture_search import Search
from skdgn._partition.enumeration import TooManyRegionsError
from skdgn._runtime.tables import merge_duplicates
from skdgn.datasets import make_noisy_circle
from tests.portions import usually

ignore_few_iterations = pytest.mark.filterwarnings(
    "ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"
)


@pytest.fixture(scope="module")
def circle() -> np.ndarray:
    return make_noisy_circle(200, random_state=0)


def factor_rows(n_rows: int, n_factors: int, spherical: bool, seed: int = 0) -> np.ndarray:
    """Draw rows of a linear model with eight features."""
    rng = np.random.default_rng(seed)
    loadings = np.linspace(1.0, 2.0, n_factors) * rng.normal(size=(8, n_factors))
    deviations = 0.5 if spherical else rng.uniform(0.3, 0.8, 8)
    latent = rng.normal(size=(n_rows, n_factors))
    return 3.0 + latent @ loadings.T + deviations * rng.normal(size=(n_rows, 8))


# --- no hidden layer


@pytest.mark.parametrize("n_components", [1, 3])
def test_spherical_noise_without_hidden_layer_is_probabilistic_pca(n_components):
    rows = factor_rows(300, 3, spherical=True)
    # EM's last steps are short: the likelihood is flat where PCA has its maximum.
    model = PiecewiseAffineDGN(
        n_components, hidden_layer_sizes=(), covariance_type="spherical", tol=1e-13, max_iter=2000
    ).fit(rows)
    pca = PCA(n_components).fit(rows)
    # PCA divides its covariance by n - 1, the maximum of the likelihood by n.
    shrink = (len(rows) - 1) / len(rows)
    centered = rows - pca.mean_
    covariance = shrink * pca.get_covariance()
    exact = stats.multivariate_normal(np.zeros(8), covariance)
    ours = model.coefs_[0] @ model.coefs_[0].T + model.noise_covariance_ * np.eye(8)
    np.testing.assert_allclose(ours, covariance, atol=1e-5)
    np.testing.assert_allclose(model.intercepts_[0], pca.mean_, atol=1e-6)
    assert model.noise_covariance_ == pytest.approx(shrink * pca.noise_variance_, rel=1e-6)
    np.testing.assert_allclose(model.score_samples(rows), exact.logpdf(centered), atol=1e-5)
    # Scores up to a rotation: the same lengths, and the same angles between rows.
    scale = np.sqrt(shrink * pca.explained_variance_ - model.noise_covariance_)
    expected = pca.transform(rows) * scale / (shrink * pca.explained_variance_)
    found = model.transform(rows)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-4)
    # Loadings up to a rotation, means, one variance.
    assert model.n_parameters_ == 8 * n_components - n_components * (n_components - 1) // 2 + 9


@pytest.mark.parametrize("n_components", [1, 2])
def test_diagonal_noise_without_hidden_layer_is_factor_analysis(n_components):
    rows = factor_rows(300, 2, spherical=False)
    model = PiecewiseAffineDGN(n_components, hidden_layer_sizes=(), tol=1e-12, max_iter=5000).fit(
        rows
    )
    analysis = FactorAnalysis(n_components, tol=1e-12, max_iter=20_000, svd_method="lapack")
    analysis.fit(rows)
    ours = model.coefs_[0] @ model.coefs_[0].T + np.diag(model.noise_covariance_)
    np.testing.assert_allclose(ours, analysis.get_covariance(), atol=2e-4)
    np.testing.assert_allclose(model.noise_covariance_, analysis.noise_variance_, atol=2e-4)
    np.testing.assert_allclose(model.score_samples(rows), analysis.score_samples(rows), atol=2e-3)
    found, expected = model.transform(rows), analysis.transform(rows)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=2e-2)
    assert model.n_parameters_ == 8 * n_components - n_components * (n_components - 1) // 2 + 16


@pytest.mark.parametrize("covariance_type", ["spherical", "diag"])
@pytest.mark.parametrize("n_factors", [1, 2])
def test_bic_picks_the_true_number_of_components(n_factors, covariance_type):
    rows = factor_rows(400, n_factors, spherical=covariance_type == "spherical", seed=1)
    criteria = [
        PiecewiseAffineDGN(
            n_components,
            hidden_layer_sizes=(),
            covariance_type=covariance_type,
            tol=1e-6,
            max_iter=2000,
        )
        .fit(rows)
        .bic(rows)
        for n_components in (1, 2, 3)
    ]
    assert 1 + int(np.argmin(criteria)) == n_factors


# --- priors

PRIORS = {
    "gaussian": (1.0, stats.norm(scale=1.0)),
    "laplace": (0.5, stats.laplace(scale=0.5)),
    "uniform": (1.5, stats.uniform(-1.5, 3.0)),
}


@ignore_few_iterations
@pytest.mark.parametrize("m_step", ["joint", "layerwise"])
@pytest.mark.parametrize("kind", PRIORS)
def test_the_objective_with_a_prior_can_be_verified(kind, m_step, circle):
    scale, distribution = PRIORS[kind]
    rows = circle * [1.0, 3.0]  # the prior is in these units, whatever happens inside
    weights = np.random.default_rng(0).integers(1, 3, len(rows))
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(6,),
        weight_prior=kind,
        prior_scale=scale,
        m_step=m_step,
        max_iter=30,
        random_state=0,
    ).fit(rows, sample_weight=weights)
    log_prior = sum(distribution.logpdf(coef).sum() for coef in model.coefs_)
    objective = (weights @ model.score_samples(rows) + log_prior) / weights.sum()
    assert model.lower_bound_ == pytest.approx(objective, rel=1e-10)
    assert model.lower_bound_ == model.lower_bounds_[-1]
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)
    coefs = np.concatenate([coef.ravel() for coef in model.coefs_])
    if kind == "uniform":
        assert np.abs(coefs).max() == scale


@ignore_few_iterations
@pytest.mark.parametrize("m_step", ["joint", "layerwise"])
def test_the_laplace_prior_makes_weights_exactly_zero(m_step, circle):
    noise = np.random.default_rng(0).normal(size=(len(circle), 2))
    rows = np.column_stack([circle, noise])
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(6,),
        weight_prior="laplace",
        prior_scale=0.2,
        m_step=m_step,
        max_iter=100,
        random_state=0,
    ).fit(rows)
    zeros = np.count_nonzero(model.coefs_[-1] == 0.0, axis=1)
    # Where there is nothing to explain, more than half of the weights vanish.
    assert zeros[2:].sum() > 6
    assert zeros[:2].sum() < 3
    model.set_params(weight_prior=None, max_iter=5).fit(rows)
    assert not np.any(model.coefs_[-1] == 0.0)


def test_a_stronger_prior_gives_smaller_weights():
    rows = factor_rows(200, 1, spherical=True)
    sizes = [
        np.linalg.norm(
            PiecewiseAffineDGN(
                hidden_layer_sizes=(),
                covariance_type="spherical",
                weight_prior="gaussian",
                prior_scale=scale,
                tol=1e-8,
            )
            .fit(rows)
            .coefs_[0]
        )
        for scale in (1.0, 0.1, 0.05)
    ]
    # Smaller and smaller, but not yet nothing.
    assert sizes[0] > 1.01 * sizes[1] > 1.02 * sizes[2] > 0.1 * sizes[0]


def test_a_gaussian_prior_of_the_linear_model_is_at_its_maximum():
    rows = factor_rows(200, 1, spherical=True)
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(),
        covariance_type="spherical",
        weight_prior="gaussian",
        prior_scale=0.05,
        tol=1e-13,
        max_iter=2000,
    ).fit(rows)

    def objective(change: np.ndarray) -> float:
        coef = model.coefs_[0] + change
        moved = PiecewiseAffineDGN.from_network(
            [coef], model.intercepts_, model.noise_covariance_, activation="relu"
        )
        return moved.score_samples(rows).sum() + stats.norm(scale=0.05).logpdf(coef).sum()

    step = 1e-4
    for feature in range(8):
        change = np.zeros((8, 1))
        change[feature] = step
        slope = (objective(change) - objective(-change)) / (2.0 * step)
        # The prior alone pulls with |w| / scale^2, in the hundreds.
        assert abs(slope) < 0.1


# --- weights, order, scale


@pytest.fixture(scope="module")
def short_fit() -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN(hidden_layer_sizes=(5,), max_iter=5, random_state=0)


@ignore_few_iterations
def test_weights_are_repetitions_and_the_order_does_not_matter(circle, short_fit):
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 4, len(circle))
    weighted = short_fit.fit(circle, sample_weight=weights)
    bound, scores = weighted.lower_bound_, weighted.score_samples(circle)
    repeated = short_fit.fit(rng.permutation(np.repeat(circle, weights, axis=0)))
    assert repeated.lower_bound_ == pytest.approx(bound, rel=1e-9)
    np.testing.assert_allclose(repeated.score_samples(circle), scores, rtol=1e-7, atol=1e-7)


@ignore_few_iterations
@pytest.mark.parametrize(
    ("scale", "covariance_type"), [(1e8, "spherical"), (1e-8, "diag"), (1e8, "full")]
)
def test_the_unit_of_measurement_does_not_matter(circle, scale, covariance_type):
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(5,), covariance_type=covariance_type, max_iter=5, random_state=0
    )
    expected = model.fit(circle).score_samples(circle)
    found = model.fit(scale * circle).score_samples(scale * circle) + 2.0 * np.log(scale)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    one_column = circle * [1.0, scale]
    found = model.fit(one_column).score_samples(one_column) + np.log(scale)
    if covariance_type != "spherical":
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.all(np.isfinite(found))


def test_scaling_there_and_back():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 3)) * [1e-3, 1.0, 1e5] + [5.0, 0.0, -1e6]
    model = PiecewiseAffineDGN.from_network(
        [rng.normal(size=(4, 1)), rng.normal(size=(3, 4))],
        [rng.normal(size=4), rng.normal(size=3)],
        0.1 * np.eye(3) + 0.05,
        activation="abs",
    )._model
    scaling = Scaling.of(rows, np.ones(50), "full")
    network, noise = scaling.restore(*scaling.scale(model.network, model.noise))
    np.testing.assert_allclose(network.coefs[-1], model.network.coefs[-1], rtol=1e-14)
    np.testing.assert_allclose(network.intercepts[-1], model.network.intercepts[-1], atol=1e-9)
    np.testing.assert_allclose(noise.covariance, model.noise.covariance, rtol=1e-12)
    scaled = np.asarray(scaling.apply(rows))
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(scaled.std(axis=0), 1.0, rtol=1e-12)


def test_equal_rows_are_merged():
    rows = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [5.0, 5.0]])
    merged, weights = merge_duplicates(rows, np.array([1.0, 2.0, 0.5, 0.0]))
    np.testing.assert_array_equal(merged, [[0.0, 1.0], [1.0, 2.0]])
    np.testing.assert_array_equal(weights, [2.0, 1.5])


# --- awkward rows


def awkward_rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3))
    constant, outlier = rows.copy(), rows.copy()
    constant[:, 1] = 7.0
    outlier[0] = 1e6
    return {
        "constant column": constant,
        "all constant": np.ones((10, 2)),
        "duplicated column": rows[:, [0, 1, 0, 1]],
        "duplicated rows": np.repeat(rows[:5], 8, axis=0),
        "two rows": rows[:2],
        "fewer rows than parameters": rows[:6],
        "one feature": rows[:, :1],
        "wild outlier": outlier,
        "far from the origin": rows + 1e9,
    }


@ignore_few_iterations
@pytest.mark.parametrize("covariance_type", usually(["full", "diag", "spherical"], 2))
@pytest.mark.parametrize("kind", awkward_rows())
def test_awkward_rows_are_fitted(kind, covariance_type):
    rows = awkward_rows()[kind]
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,), covariance_type=covariance_type, max_iter=10, random_state=0
    ).fit(rows)
    assert np.all(np.isfinite(model.score_samples(rows)))
    assert np.all(np.isfinite(model.transform(rows)))
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 3, "hidden_layer_sizes": (500,)}, r"hidden_layer_sizes=\(500,\)"),
        ({"n_components": 2, "hidden_layer_sizes": (40, 40, 40)}, "Reduce n_components or"),
    ],
)
def test_too_many_regions_are_refused(parameters, message, circle, monkeypatch):
    monkeypatch.setattr(skdgn._fit.fitting, "MOST_REGIONS", 1000)
    with pytest.raises(TooManyRegionsError, match=message):
        PiecewiseAffineDGN(**parameters, init_params="pca", random_state=0).fit(circle[:30])


def test_a_first_layer_with_too_many_regions_is_refused_before_any_work(circle, monkeypatch):
    def never(*_: object) -> None:
        raise AssertionError("no start should have been looked for")

    monkeypatch.setattr(skdgn._fit.network_fit, "_best_start", never)
    # It is an error of parameters, as much as one of memory.
    for kind in (TooManyRegionsError, ValueError, MemoryError):
        with pytest.raises(kind, match="n_components=3"):
            PiecewiseAffineDGN(3, hidden_layer_sizes=(200,)).fit(circle)


@ignore_few_iterations
@pytest.mark.parametrize("weight_prior", [None, "laplace"])
def test_layers_too_large_for_a_factorized_matrix_are_fitted(weight_prior):
    rng = np.random.default_rng(0)
    rows = np.cos(rng.normal(size=(200, 1)) * np.arange(1, 6)) + 0.1 * rng.normal(size=(200, 5))
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(64, 64),
        weight_prior=weight_prior,
        init_params="pca",
        max_iter=2,
        random_state=0,
    ).fit(rows)
    # The first iteration is a step of all layers: the objective rises by more than rounding.
    assert np.diff(model.lower_bounds_)[0] > 1e-3


# --- going on, and stopping


def test_warm_start_goes_on_from_the_last_fit(circle):
    model = PiecewiseAffineDGN(hidden_layer_sizes=(5,), max_iter=3, tol=1e-8, random_state=0)
    model.set_params(warm_start=True)
    bounds: list[float] = []
    for _ in range(3):
        with pytest.warns(ConvergenceWarning, match="max_iter=3"):
            model.fit(circle)
        bounds.extend(model.lower_bounds_)
    assert np.all(np.diff(bounds) >= -1e-12)
    assert bounds[-1] > bounds[2]
    with pytest.raises(ValueError, match=r"hidden_layer_sizes of the last fit, \(5,\), got \(4,\)"):
        model.set_params(hidden_layer_sizes=(4,)).fit(circle)
    with pytest.raises(ValueError, match="X has 1 features, but"):
        model.set_params(hidden_layer_sizes=(5,)).fit(circle[:, :1])
    assert model.n_features_in_ == 2


@ignore_few_iterations
def test_more_starts_are_never_worse(circle, monkeypatch):
    bounds = []

    def recorded(*arguments, **keywords):
        progress = _em.climb(*arguments, **keywords)
        bounds.append(progress.state.lower_bound)
        return progress

    monkeypatch.setattr(skdgn._fit.fitting, "climb", recorded)
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,), init_params="random", n_init=3, max_iter=10, random_state=0
    ).fit(circle)
    weights = np.ones(len(circle))
    volume = Scaling.of(circle, weights, "diag").log_volume(circle, weights)
    assert model.lower_bound_ == pytest.approx(max(bounds) - volume)
    assert len(set(bounds)) == 3  # one run a start, and they differ


def interrupt_after(monkeypatch, n_evaluations: int) -> None:
    """Raise KeyboardInterrupt in the E-step after so many of them."""
    counter = itertools.count()
    evaluate = MixtureProblem.evaluate

    def interrupted(self, *arguments):
        if next(counter) >= n_evaluations:
            raise KeyboardInterrupt
        return evaluate(self, *arguments)

    monkeypatch.setattr(MixtureProblem, "evaluate", interrupted)


@pytest.mark.parametrize(("init_params", "n_restarts"), [("random", 1), ("auto", 0)])
def test_a_start_that_was_not_compared_with_others_is_restarted_once(
    init_params, n_restarts, circle, monkeypatch
):
    restart, calls = Search.restart, []

    def count(search, state):
        calls.append(state.lower_bound)
        return restart(search, state)

    monkeypatch.setattr(Search, "restart", count)
    model = PiecewiseAffineDGN(hidden_layer_sizes=(8,), init_params=init_params, random_state=0)
    model.fit(circle)
    assert len(calls) == n_restarts
    calls.clear()
    model.set_params(warm_start=True).fit(circle)
    assert not calls


def test_an_interrupted_run_keeps_the_best_so_far(circle, monkeypatch):
    model = PiecewiseAffineDGN(hidden_layer_sizes=(5,), init_params="pca", random_state=0)
    interrupt_after(monkeypatch, 6)
    with pytest.raises(KeyboardInterrupt, match=r"after . iterations; the best .* were kept"):
        model.fit(circle)
    assert not model.converged_
    assert 0 < model.n_iter_ <= 5
    assert model.score(circle) == pytest.approx(model.lower_bound_)


def test_an_interrupted_search_for_a_start_keeps_the_best_start(circle, monkeypatch):
    model = PiecewiseAffineDGN(2, hidden_layer_sizes=(5,), random_state=0)  # two methods
    interrupt_after(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt, match=r"after 0 iterations; the best .* were kept"):
        model.fit(circle)
    assert model.n_iter_ == 0
    assert model.score(circle) == pytest.approx(model.lower_bound_)


def test_an_interrupted_second_start_leaves_the_first_run(circle, monkeypatch):
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(3,), init_params="random", tol=0.5, random_state=0
    ).fit(circle)
    evaluations = []
    evaluate = MixtureProblem.evaluate
    with monkeypatch.context() as patched:
        patched.setattr(
            MixtureProblem, "evaluate", lambda *a: evaluations.append(0) or evaluate(*a)
        )
        model.fit(circle)
    interrupt_after(monkeypatch, len(evaluations) + 1)  # a start has been found by then, no more
    several = clone(model).set_params(n_init=5)
    with pytest.raises(KeyboardInterrupt):
        several.fit(circle)
    assert several.lower_bound_ >= model.lower_bound_


def test_one_interrupt_ends_a_search(circle, monkeypatch):
    interrupt_after(monkeypatch, 6)
    network = PiecewiseAffineDGN(hidden_layer_sizes=(3,), init_params="pca", random_state=0)
    search = GridSearchCV(network, {"tol": [1e-3, 1e-2]}, cv=2)
    with pytest.raises(KeyboardInterrupt):
        search.fit(circle)
    assert not hasattr(search, "cv_results_")


@pytest.mark.parametrize("n_chunks", [0, 1])
def test_an_interrupted_chunk_leaves_the_estimator_as_it_was(circle, monkeypatch, n_chunks):
    model = PiecewiseAffineDGN(hidden_layer_sizes=(3,), init_params="pca", random_state=0)
    for _ in range(n_chunks):
        model.partial_fit(circle)
    before = dict(vars(model))
    interrupt_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(circle[:, ::-1])
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


def test_an_interrupt_before_anything_was_found_goes_through(circle, monkeypatch):
    model = PiecewiseAffineDGN(hidden_layer_sizes=(5,), random_state=0)
    interrupt_after(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(circle)
    assert not hasattr(model, "n_features_in_")


@ignore_few_iterations
def test_a_failed_fit_changes_nothing(circle, monkeypatch):
    model = PiecewiseAffineDGN(hidden_layer_sizes=(5,), max_iter=2, random_state=0).fit(circle)
    before, scores = dict(vars(model)), model.score_samples(circle)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.full((5, 3), np.inf))
    interrupt_after(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(np.ones((5, 4)))
    assert vars(model).keys() == before.keys()
    assert model.n_features_in_ == 2
    np.testing.assert_array_equal(model.score_samples(circle), scores)


# --- what is printed


def split_phases(text: str) -> tuple[list[str], list[str]]:
    """Return the names of the phases before iterations, and the lines of these."""
    lines = text.splitlines()
    phases = [line for line in lines if "iteration" not in line]
    assert all(re.fullmatch(r".*  \d+\.\d s", line) for line in phases)
    return [line.split("  ")[0] for line in phases], [line for line in lines if "iter" in line]


def test_verbose_prints_lines_or_a_bar(circle, capsys, monkeypatch):
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(3,), init_params="pca", max_iter=12, tol=0.0, random_state=0
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(circle)
    assert capsys.readouterr().out == ""
    with pytest.warns(ConvergenceWarning):
        model.set_params(verbose=2).fit(circle)
    phases, lines = split_phases(capsys.readouterr().out)
    assert phases == ["reading and scaling samples", "starting by pca"]
    assert len(lines) == model.n_iter_ == 12
    assert lines[0].startswith("iteration   1/12  log-likelihood")
    assert all(word in lines[-1] for word in ("change", "regions 4", " s"))
    assert f"{model.lower_bound_:.6f}" in lines[-1]
    with pytest.warns(ConvergenceWarning):
        model.set_params(verbose=1, n_init=2).fit(circle)
    phases, lines = split_phases(capsys.readouterr().out)
    assert phases == ["reading and scaling samples", "starting by pca", "starting by pca"]
    assert [line.split()[1:4:2] for line in lines] == [
        [run, f"{number}/12"] for run in ("1/2", "2/2") for number in (1, 2, 5, 10, 12)
    ]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.warns(ConvergenceWarning):
        model.set_params(n_init=1, weight_prior="gaussian").fit(circle)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out.count("\r") == 13
    assert "[####################]  iteration  12/12  log-posterior" in out
