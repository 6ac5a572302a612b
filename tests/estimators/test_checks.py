"""What a user may get wrong: errors name the parameter, the requirement and the value."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

import skdgn
from skdgn import DGNImputer, DGNOutlierDetector, PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle

ROWS = make_noisy_circle(30, random_state=0)
PARAMETERS = {
    "coefs": [[[1.0], [-0.5]], [[1.0, 0.5], [0.2, -1.0]]],
    "intercepts": [[0.0, 0.5], [0.0, 0.0]],
    "noise_covariance": 0.1,
    "activation": "leaky_relu",
}


@pytest.fixture(scope="module")
def model() -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN.from_network(**PARAMETERS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coefs": None}, "coefs must be a list with an array per layer, got None"),
        ({"intercepts": 0.0}, r"intercepts must be a list with an array per layer, got 0\.0"),
        ({"coefs": [[[1j], [0.0]], np.eye(2)]}, r"coefs\[0\] must be .* numbers: complex"),
        ({"negative_slope": "steep"}, "negative_slope must be a finite number, got 'steep'"),
        ({"negative_slope": None}, "negative_slope must be a finite number, got None"),
        (
            {"coefs": [[[1e200], [1.0]], [[1e200, 0.0], [0.0, 1.0]]]},
            r"coefs and intercepts must have finite products over the layers, got .* 1e\+200",
        ),
    ],
)
def test_networks(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PiecewiseAffineDGN.from_network(**(PARAMETERS | changes))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_jobs": 0}, r"'n_jobs' parameter of .* must be None, an int .* Got 0 instead"),
        ({"activation": "Relu"}, r"'activation' parameter .* must be .* Got 'Relu' instead"),
        ({"covariance_type": "band"}, r"'covariance_type' parameter .* Got 'band' instead"),
        ({"n_components": 34}, "n_components must be between 1 and 33, got 34"),
        ({"n_components": (1, 10**30)}, "n_components must be between 1 and 33, got 1000"),
        ({"tol": -1.0}, r"'tol' parameter .* in the range \[0.0, inf\). Got -1.0 instead"),
        ({"random_state": -1}, r"'random_state' parameter .* Got -1 instead"),
    ],
)
def test_parameters(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PiecewiseAffineDGN(**parameters).fit(ROWS)


def test_rows_whose_squares_overflow_are_not_fitted() -> None:
    rows = ROWS.copy()
    rows[3, 1] = -1e300
    with pytest.raises(ValueError, match=r"at most 1e\+150, .* got 1e\+300 in column 1\. Rescale"):
        PiecewiseAffineDGN().fit(rows)


@pytest.mark.parametrize("scale", [1e-148, 1e-160, 1e-162, 1e-200])
def test_columns_whose_variances_underflow_are_not_fitted(scale: float) -> None:
    rows = ROWS * [1.0, scale]
    message = (
        rf"vary by at least 1e-147 .* reg_covar=1e-06 .* got values from .*e-{-np.log10(scale):.0f}"
    )
    with pytest.raises(ValueError, match=rf"{message}.* in column 1\. Rescale it"):
        PiecewiseAffineDGN().fit(rows)
    # With one variance for all columns, the widest counts.
    model = PiecewiseAffineDGN(
        covariance_type="spherical", hidden_layer_sizes=(), random_state=0
    ).fit(rows)
    assert np.isfinite(model.score(rows))


def test_small_columns_are_fitted_as_others_are() -> None:
    parameters = {"hidden_layer_sizes": (4,), "tol": 1e-2, "random_state": 0}
    expected = PiecewiseAffineDGN(**parameters).fit(ROWS)
    scale = 2.0**-480  # 3e-145
    small = PiecewiseAffineDGN(**parameters).fit(scale * ROWS)
    assert small.lower_bound_ + 2.0 * np.log(scale) == pytest.approx(expected.lower_bound_)
    np.testing.assert_allclose(small.noise_covariance_ / scale / scale, expected.noise_covariance_)
    # What is constant has no scale, however small it is.
    constant = np.column_stack([ROWS, np.full(len(ROWS), 1e-200)])
    assert np.isfinite(PiecewiseAffineDGN(**parameters).fit(constant).lower_bound_)


@pytest.mark.parametrize("weight_prior", ["gaussian", "laplace", "uniform"])
def test_scales_of_priors_whose_squares_overflow(weight_prior: str) -> None:
    model = PiecewiseAffineDGN(weight_prior=weight_prior, prior_scale=1e-300)
    with pytest.raises(ValueError, match=r"prior_scale must be at least 1e-100 .* got 1e-300"):
        model.fit(ROWS)
    model.set_params(prior_scale=1e-20)
    with pytest.raises(ValueError, match=r"prior_scale must .* that of column 1 \(.*got 1e-20"):
        model.fit(ROWS * [1.0, 1e90])
    # Without a prior its scale does not matter.
    model.set_params(weight_prior=None, hidden_layer_sizes=(), prior_scale=1e-300).fit(ROWS)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(("factor", "shift"), [(1e8, 0.0), (1.0, 1e9), (1e100, 0.0)])
def test_models_do_not_go_on_from_another_scale(method: str, factor: float, shift: float) -> None:
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,), tol=1e-2, warm_start=True, random_state=0
    ).fit(ROWS)
    before = model.lower_bound_
    reason = "warm_start=True" if method == "fit" else "partial_fit"
    message = (
        rf"{reason} needs samples on the scale of the model .* in column 1, .* mean .* standard"
    )
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(np.column_stack([ROWS[:, 0], factor * ROWS[:, 1] + shift]))
    assert model.lower_bound_ == before
    getattr(model, method)(100.0 * ROWS)


def test_a_narrow_chunk_is_learned_but_no_narrow_table() -> None:
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,), tol=1e-2, warm_start=True, random_state=0
    ).fit(ROWS)
    narrow = np.column_stack([ROWS[:, 0], 1e-8 * ROWS[:, 1]])
    with pytest.raises(ValueError, match=r"warm_start=True needs samples on the scale .* column 1"):
        model.fit(narrow)
    assert np.isfinite(model.partial_fit(narrow).lower_bound_)


@pytest.mark.parametrize("kind", ["fit", "score_samples", "posterior", "impute", "transform"])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[0], "Expected 2D array, got 1D array"),
        (ROWS[:, :0], "0 feature"),
        (ROWS[:0], "0 sample"),
        ([["a", "b"], ["c", "d"]], "column 0 does not: could not convert string to float: 'a'"),
        (scipy.sparse.csr_array(ROWS), "Sparse data was passed for X"),
        ([[np.inf, 0.0], [0.0, 1.0]], "X contains infinity"),
    ],
)
def test_rows(model: PiecewiseAffineDGN, kind: str, rows: object, message: str) -> None:
    method = PiecewiseAffineDGN().fit if kind == "fit" else getattr(model, kind)
    with pytest.raises((TypeError, ValueError), match=message):
        method(rows)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.sample(True), "n_samples must be a positive integer, got True"),
        (lambda m: m.sample(1, random_state=-1), "random_state must be .* got -1"),
        (lambda m: m.sample(1, random_state="a"), "random_state must be .* got 'a'"),
        (lambda m: m.impute([[0.0, np.nan]], method=["mean"]), r"method must be .* got \['mean'\]"),
        (lambda m: m.impute([[0.0, np.nan]], np.array(["mean", "a"])), "method must be .* got arr"),
        (
            lambda m: m.impute([[0.0, np.nan]], method="sample", random_state=1.5),
            r"random_state must be .* got 1\.5",
        ),
        (lambda m: m.conditional_score_samples(ROWS, given=None), "given must hold .* got None"),
        (lambda m: m.conditional_score_samples(ROWS, given=1.5), r"given must hold .* got 1\.5"),
        (lambda m: m.conditional_score_samples(ROWS, given=b"a"), "given must hold .* got b'a'"),
        (lambda m: m.inverse_transform([[0.0, 0.0]]), "Z must have 1 columns, .* got 2"),
        (lambda m: m.inverse_transform([[np.nan]]), "Z contains NaN"),
        (lambda m: m.elbo(ROWS, None, None), "means must be given .* got None"),
        (lambda m: m.elbo(ROWS, np.zeros((30, 1)), np.zeros((30, 1, 1))), "must be positive defin"),
        (lambda m: m.variational_gap(ROWS, 0.0, 1.0), r"means must have shape \(30, 1\), got .*\("),
    ],
)
def test_methods(
    model: PiecewiseAffineDGN, call: Callable[[PiecewiseAffineDGN], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call(model)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.sample(0), "n_draws must be a positive integer, got 0"),
        (lambda p: p.sample(1, random_state="a"), "random_state must be .* got 'a'"),
        (lambda p: p.mode(zero_noise="no"), "zero_noise must be True or False, got 'no'"),
        (lambda p: p.log_density([["a"]]), "Z must be a rectangular array of numbers: could not"),
        (lambda p: p.log_density([[1j]]), "Z must be a rectangular array of numbers: complex"),
        (lambda p: p.log_density([[0.0], []]), "Z must be a rectangular array of numbers"),
        (lambda p: p.kl_from([["a"]], [[[1.0]]]), "means must be a rectangular array of numbers"),
        (lambda p: p.best_gaussian(["kl"]), r"criterion must be .* got \['kl'\]"),
        (lambda p: p.best_gaussian(means=[[0.0]]), "covariances must be given .* got None"),
        (lambda p: p.best_gaussian(covariances=[[[1.0]]]), "means must be given .* got None"),
    ],
)
def test_posteriors(
    model: PiecewiseAffineDGN, call: Callable[[object], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call(model.posterior(ROWS[:1]))


def test_covariances_that_are_not_symmetric() -> None:
    plane = PiecewiseAffineDGN.from_network([np.eye(2)], [[0.0, 0.0]], 0.1, activation="relu")
    with pytest.raises(ValueError, match=r"covariances must be symmetric, got .* by up to 0\.9"):
        plane.elbo([[0.0, 0.0]], [[0.0, 0.0]], [[[1.0, 0.9], [0.0, 1.0]]])


def test_estimators_of_the_wrong_kind() -> None:
    with pytest.raises(ValueError, match=r"'estimator' parameter of DGNImputer must be .* Got 3"):
        DGNImputer(3).fit(ROWS)
    with pytest.raises(ValueError, match=r"'estimator' parameter of DGNOutlierDetector .* Got 3"):
        DGNOutlierDetector(3).fit(ROWS)


def test_rows_too_far_out_to_be_squared_are_outliers_of_which_nothing_else_is_known(
    model: PiecewiseAffineDGN,
) -> None:
    rows = np.array([[1e300, 0.0], [0.5, 0.2]])
    np.testing.assert_array_equal(np.isneginf(model.score_samples(rows)), [True, False])
    posterior = model.posterior(rows)
    gaussians = np.zeros((2, 1)), np.ones((2, 1, 1))
    # Neither has NumPy anything to warn of.
    for answer in (
        posterior.mean,
        posterior.responsibilities,
        posterior.mode(),
        posterior.sample(1, random_state=0)[0],
        posterior.log_density([[0.0]]),
        posterior.best_gaussian()[0],
        model.conditional_score_samples(rows, given=[0]),
        np.stack(model.variational_gap(rows, *gaussians), axis=1),
    ):
        assert np.isnan(answer[0]).all()
        assert np.isfinite(answer[1]).all()


# Methods that a new estimator has to answer, and those that scikit-learn adds.
_BEFORE_FIT = ("fit", "set_", "get_params", "get_metadata_routing", "partial_fit", "from_")


@pytest.mark.parametrize(
    "kind",
    [getattr(skdgn, name) for name in skdgn.__all__ if hasattr(getattr(skdgn, name), "fit")],
)
def test_methods_need_a_fit(kind: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith(("_", *_BEFORE_FIT)):
            continue
        required = [
            parameter
            for parameter in list(inspect.signature(method).parameters.values())[1:]
            if parameter.default is parameter.empty
        ]
        with pytest.raises(NotFittedError, match=kind.__name__):
            method(kind(), *[ROWS] * len(required))
