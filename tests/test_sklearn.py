"""scikit-learn: its own checks, and life among its other estimators."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import skops.io
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import skdgn
from skdgn import (
    DGNClassifier,
    DGNEnsemble,
    DGNImputer,
    DGNMixture,
    DGNOutlierDetector,
    DGNRegressor,
    PiecewiseAffineDGN,
    TransformedDensity,
)
from skdgn._estimators import sklearn_parts as _sklearn
from skdgn.datasets import make_noisy_circle

pytestmark = [
    pytest.mark.filterwarnings("ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"),
    # Some of scikit-learn's tables are made of a few integers.
    pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning"),
]
# The same sums in another order.
ROUNDING = 1e-9


def test_private_parts_of_scikit_learn_are_imported_in_one_place() -> None:
    folder = Path(skdgn.__file__).parent
    importing = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                names = [*node.module.split("."), *(name.name for name in node.names)]
                if any(name.startswith("_") for name in names):
                    importing.add(path.relative_to(folder).as_posix())
    assert importing == {"_estimators/sklearn_parts.py"}


def small_network(n_components: int, **parameters: object) -> PiecewiseAffineDGN:
    defaults = {"hidden_layer_sizes": (2,), "init_params": "pca", "max_iter": 2}
    return PiecewiseAffineDGN(n_components, **(defaults | parameters))


def small_mixture(n_components: int, **parameters: object) -> DGNMixture:
    defaults = {"n_networks": 2, "max_iter": 2, "refine": False}
    return DGNMixture(small_network(n_components), **(defaults | parameters))


# Every class; and networks and mixtures with two latent dimensions, too.  Fits are as short as
# those of scikit-learn's own classes in these checks.
@pytest.mark.no_cover
@parametrize_with_checks(
    [
        small_network(1, init_params="auto"),
        small_network(2, covariance_type="full", weight_prior="laplace", m_step="layerwise"),
        small_network(1, covariance_type="factor", n_factors=2),
        small_mixture(1),
        small_mixture(2),
        DGNEnsemble(small_network(1), n_estimators=2),
        DGNImputer(small_network(2), add_indicator=True),
        DGNOutlierDetector(small_network(1)),
        DGNRegressor(small_network(1)),
        DGNClassifier(small_network(1)),
        TransformedDensity(small_network(1)),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Fits that take longer: four latent dimensions (estimates in place of exact integrals), searches
# for better mixtures, and for sizes.
LONGER = [
    small_network(4),
    small_network(1, hidden_layer_sizes="auto", covariance_type="auto"),
    small_mixture(1, max_iter=5, refine=True),
    small_mixture(4),
    DGNMixture(max_iter=2),
]
# Many fits to see how tables and weights are read, before it matters how they are fitted: the same
# classes are asked above.
ABOUT_INPUT = {
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_f_contiguous_array_estimator",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_score_takes_y",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_pandas_series",
    "check_transformer_data_not_an_array",
    "check_transformer_general",
    "check_transformer_preserve_dtypes",
}


def checks_of_longer_fits():
    for estimator in LONGER:
        for own, check in estimator_checks_generator(estimator):
            name = check.func.__name__
            is_thorough = name in ABOUT_INPUT or "readonly_memmap" in check.keywords
            yield pytest.param(
                own,
                check,
                id=f"{''.join(str(estimator).split())}-{name}",
                marks=[pytest.mark.thorough] if is_thorough else [],
            )


@pytest.mark.no_cover
@pytest.mark.parametrize(("estimator", "check"), list(checks_of_longer_fits()))
def test_scikit_learn_checks_of_longer_fits(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def circle() -> np.ndarray:
    return make_noisy_circle(120, random_state=0)


@pytest.fixture(scope="module")
def model(circle) -> PiecewiseAffineDGN:
    return short_model().fit(circle)


def short_model(**parameters) -> PiecewiseAffineDGN:
    defaults = {"hidden_layer_sizes": (4,), "init_params": "pca", "max_iter": 4, "random_state": 0}
    return PiecewiseAffineDGN(**(defaults | parameters))


def test_pipeline_scores_like_its_parts(circle):
    pipeline = make_pipeline(StandardScaler(), short_model()).fit(circle)
    scaler = StandardScaler().fit(circle)
    direct = short_model().fit(scaler.transform(circle))
    assert pipeline.score(circle) == direct.score(scaler.transform(circle))
    assert pipeline[:-1].transform(circle).shape == circle.shape
    assert list(pipeline.get_feature_names_out()) == ["piecewiseaffinedgn0"]


def test_grid_search_and_cross_validation(circle):
    grid = {
        "n_components": [1, 2],
        "hidden_layer_sizes": [(), (3,)],
        "covariance_type": ["spherical", "diag"],
    }
    search = GridSearchCV(short_model(max_iter=2), grid, cv=2).fit(circle)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    best = search.cv_results_["mean_test_score"].max()
    scores = cross_val_score(clone(search.best_estimator_), circle, cv=2)
    assert scores.mean() == pytest.approx(best, rel=ROUNDING)


def test_stored_models_score_the_same(model, circle, tmp_path):
    expected = model.score_samples(circle)
    joblib.dump(model, tmp_path / "model.joblib")
    skops.io.dump(model, tmp_path / "model.skops")
    unknown = skops.io.get_untrusted_types(file=tmp_path / "model.skops")
    # Nothing but the estimator itself has to be trusted.
    assert unknown == ["skdgn._estimators.network.PiecewiseAffineDGN"]
    for restored in (
        pickle.loads(pickle.dumps(model)),
        joblib.load(tmp_path / "model.joblib"),
        skops.io.load(tmp_path / "model.skops", trusted=unknown),
    ):
        np.testing.assert_array_equal(restored.score_samples(circle), expected)
        np.testing.assert_array_equal(restored.lower_bounds_, model.lower_bounds_)
        assert restored.get_params() == model.get_params()


def test_a_parameter_set_after_the_fit_changes_nothing_before_the_next(model, circle):
    changed = pickle.loads(pickle.dumps(model)).set_params(activation="abs", n_components=2)
    restored = pickle.loads(pickle.dumps(changed))
    np.testing.assert_array_equal(restored.score_samples(circle), model.score_samples(circle))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_give_names_and_the_same_model(frame, model, circle):
    rows = frame({"x": circle[:, 0], "y": circle[:, 1]})
    named = short_model().fit(rows)
    assert list(named.feature_names_in_) == ["x", "y"]
    np.testing.assert_array_equal(named.score_samples(rows), model.score_samples(circle))
    library = "pandas" if frame is pd.DataFrame else "polars"
    latent = named.set_output(transform=library).transform(rows)
    assert isinstance(latent, frame)
    assert list(latent.columns) == ["piecewiseaffinedgn0"]
    np.testing.assert_array_equal(np.asarray(latent), model.transform(circle))


def test_single_precision_rows_give_almost_the_same_model(model, circle):
    single = short_model().fit(circle.astype(np.float32))
    assert single.coefs_[0].dtype == np.float64
    assert single.lower_bound_ == pytest.approx(model.lower_bound_, abs=1e-4)


def test_the_same_random_state_gives_the_same_model(model, circle):
    again = short_model().fit(circle)
    for found, expected in zip(again.coefs_, model.coefs_, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again.noise_covariance_, model.noise_covariance_)
    other = short_model(init_params="random", random_state=1).fit(circle)
    assert other.lower_bound_ != model.lower_bound_


@pytest.mark.parametrize("backend", ["threading", "loky", "multiprocessing"])
def test_the_number_of_jobs_changes_nothing(backend):
    rows = make_noisy_circle(1500, random_state=0)  # more than one batch
    # Processes are started for every pass over the samples: of these, one iteration takes enough.
    expected = short_model(max_iter=1).fit(rows)
    with joblib.parallel_config(backend=backend):
        found = short_model(max_iter=1, n_jobs=2).fit(rows)
        scores = found.score_samples(rows)
    np.testing.assert_allclose(found.lower_bounds_, expected.lower_bounds_, rtol=ROUNDING)
    np.testing.assert_allclose(scores, expected.score_samples(rows), rtol=ROUNDING, atol=ROUNDING)


def test_aic_and_bic_count_the_identifiable_parameters(model, circle):
    log_likelihood = model.score_samples(circle).sum()
    # Weights 4 + 8, biases 4 + 2, less four scales of units; two variances.
    assert model.n_parameters_ == 16
    assert model.aic(circle) == pytest.approx(-2.0 * log_likelihood + 32.0)
    assert model.bic(circle) == pytest.approx(-2.0 * log_likelihood + 16.0 * np.log(120))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden_layer_sizes": (4, 0)}, r"hidden_layer_sizes must hold positive .*, got 0 in"),
        ({"hidden_layer_sizes": (2.5,)}, "hidden_layer_sizes must hold positive integers, got 2.5"),
        ({"hidden_layer_sizes": "4"}, "The 'hidden_layer_sizes' parameter of"),
        ({"n_components": 0}, "The 'n_components' parameter of"),
        ({"weight_prior": "cauchy"}, "The 'weight_prior' parameter of"),
        ({"prior_scale": 0.0}, "The 'prior_scale' parameter of"),
        ({"m_step": "none"}, "The 'm_step' parameter of"),
        ({"negative_slope": float("nan")}, "The 'negative_slope' parameter of"),
    ],
)
def test_bad_parameters_are_refused(parameters, message, circle):
    with pytest.raises(ValueError, match=message):
        short_model(**parameters).fit(circle)


def test_bad_sample_weights_are_refused(circle):
    # Recent versions of scikit-learn refuse this themselves.
    with pytest.raises(ValueError, match=r"must have a positive sum|at least one non-zero number"):
        short_model().fit(circle, sample_weight=np.zeros(120))
    with pytest.raises(ValueError, match="Negative values"):
        short_model().fit(circle, sample_weight=-np.ones(120))
    with pytest.raises(ValueError, match="sample_weight"):
        short_model().fit(circle, sample_weight=np.ones(7))


class Recorder:
    """A callback that notes the tasks, and may ask to stop."""

    def __init__(self, last_iteration: int) -> None:
        self.last_iteration = last_iteration
        self.events: list[tuple[str, str, int]] = []
        self.scores: list[float] = []

    def setup(self, estimator, context):
        self.events.append(("setup", context.task_name, context.task_id))

    def teardown(self, estimator, context):
        self.events.append(("teardown", context.task_name, context.task_id))

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
        self.events.append(("end", context.task_name, context.task_id))
        if fitted_estimator is not None:
            self.scores.append(fitted_estimator.score(X))
        return context.task_name == "iteration" and context.task_id == self.last_iteration


@pytest.mark.skipif(
    not hasattr(_sklearn.CallbackSupportMixin, "set_callbacks"),
    reason="scikit-learn before 1.9 has no callbacks",
)
def test_callbacks_see_every_iteration_and_can_stop(circle):
    recorder = Recorder(last_iteration=2)
    model = short_model(max_iter=50, tol=0.0).set_callbacks(recorder).fit(circle)
    iterations = [(kind, "iteration", n) for n in range(3) for kind in ("begin", "end")]
    assert recorder.events == [
        ("setup", "fit", 0),
        ("begin", "fit", 0),
        ("begin", "run", 0),
        *iterations,
        ("end", "run", 0),
        ("end", "fit", 0),
        ("teardown", "fit", 0),
    ]
    np.testing.assert_allclose(
        recorder.scores, [*model.lower_bounds_, model.lower_bound_], rtol=ROUNDING
    )
    assert model.n_iter_ == 3
    assert not model.converged_
