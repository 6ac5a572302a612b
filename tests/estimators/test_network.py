"""The public face: networks given from outside, and what is asked of them."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_wave
from tests.networks import random_network
from tests.reference.line_posterior import line_posterior

COEFS = [[[1.0], [-2.0]], [[1.0, 0.5], [0.3, -1.0], [0.0, 2.0]]]
INTERCEPTS = [[0.1, 0.2], [0.0, 1.0, -1.0]]


def make_model(noise_covariance=0.1, activation="relu"):
    return PiecewiseAffineDGN.from_network(
        COEFS, INTERCEPTS, noise_covariance, activation=activation
    )


def random_model(n_components, hidden_layer_sizes, noise_covariance=0.1, **kwargs):
    network = random_network(n_components, hidden_layer_sizes, **kwargs)
    return PiecewiseAffineDGN.from_network(
        network.coefs,
        network.intercepts,
        noise_covariance,
        activation=[activation.name for activation in network.activations],
        negative_slope=0.1,
    )


def test_from_network_is_fitted_and_carries_its_parameters():
    model = make_model(noise_covariance=[0.1, 0.2, 0.3])
    assert model.n_components == 1
    assert model.hidden_layer_sizes == (2,)
    assert model.covariance_type == "diag"
    assert model.n_features_in_ == 3
    assert model.n_regions_ == 3 == len(model.partition_) == len(model.weights_)
    assert abs(model.weights_.sum() - 1.0) < 1e-14
    # Weights 2 + 6 and biases 2 + 3, less two scales, plus three variances.
    assert model.n_parameters_ == 14
    np.testing.assert_array_equal(model.coefs_[0], COEFS[0])
    np.testing.assert_array_equal(model.intercepts_[1], INTERCEPTS[1])


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("covariance", [0.3, [0.1, 0.2, 0.5], "full"])
def test_no_hidden_layer_is_a_gaussian(n_components, covariance):
    if covariance == "full":
        covariance = np.array([[0.5, 0.1, 0.0], [0.1, 0.3, -0.1], [0.0, -0.1, 0.4]])
    model = random_model(n_components, (), covariance)
    slopes, offset = model.coefs_[0], model.intercepts_[0]
    noise = np.asarray(covariance) if np.ndim(covariance) == 2 else np.eye(3) * covariance
    gaussian = multivariate_normal(offset, slopes @ slopes.T + noise)
    rows = np.random.default_rng(0).normal(size=(50, 3)) * 3.0
    np.testing.assert_allclose(model.score_samples(rows), gaussian.logpdf(rows), rtol=1e-12)
    # The textbook posterior of a linear Gaussian model.
    precision = np.eye(n_components) + slopes.T @ np.linalg.solve(noise, slopes)
    mean = np.linalg.solve(precision, slopes.T @ np.linalg.solve(noise, (rows - offset).T)).T
    posterior = model.posterior(rows)
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-11, atol=1e-12)
    expected = np.broadcast_to(np.linalg.inv(precision), posterior.covariance.shape)
    np.testing.assert_allclose(posterior.covariance, expected, rtol=1e-10)
    np.testing.assert_array_equal(model.predict_proba(rows), 1.0)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_the_parts_of_the_posterior_agree(n_components):
    model = random_model(n_components, (5, 3), activation="abs")
    rows, _ = model.sample(40, random_state=0)
    posterior = model.posterior(rows)
    probabilities = model.predict_proba(rows)
    assert probabilities.shape == (40, model.n_regions_)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_array_equal(model.predict(rows), probabilities.argmax(axis=1))
    np.testing.assert_array_equal(model.transform(rows), posterior.mean)
    np.testing.assert_array_equal(posterior.responsibilities, probabilities)
    assert np.linalg.eigvalsh(posterior.covariance).min() > 0
    assert model.score(rows) == pytest.approx(model.score_samples(rows).mean())


@pytest.mark.parametrize("n_components", [1, 2])
def test_posterior_moments_by_importance_sampling(n_components):
    model = random_model(n_components, (6,), 0.3, activation="leaky_relu")
    row = model.sample(1, random_state=3)[0]
    latent = np.random.default_rng(0).normal(size=(400_000, n_components))
    squares = ((row - model.inverse_transform(latent)) ** 2).sum(axis=1)
    weights = np.exp(-0.5 * squares / 0.3)
    weights /= weights.sum()
    mean = weights @ latent
    covariance = np.cov(latent.T, aweights=weights, ddof=0).reshape(n_components, n_components)
    posterior = model.posterior(row)
    # 400,000 draws with an effective size above 10,000: two digits.
    assert 1.0 / (weights**2).sum() > 10_000
    np.testing.assert_allclose(posterior.mean[0], mean, atol=0.03)
    np.testing.assert_allclose(posterior.covariance[0], covariance, atol=0.03)


def test_inverse_transform_is_the_generator_and_checks_its_input():
    model = make_model()
    latent = np.array([[0.5], [-2.0]])
    hidden = np.maximum(latent @ np.transpose(COEFS[0]) + INTERCEPTS[0], 0.0)
    expected = hidden @ np.transpose(COEFS[1]) + INTERCEPTS[1]
    np.testing.assert_allclose(model.inverse_transform(latent), expected, rtol=1e-15)
    with pytest.raises(ValueError, match="Z must have 1 columns, one per latent dimension, got 2"):
        model.inverse_transform([[1.0, 2.0]])


def test_sample_follows_the_density():
    model = make_model(0.01, activation="abs")
    rows, regions = model.sample(20_000, random_state=0)
    again, _ = model.sample(20_000, random_state=0)
    np.testing.assert_array_equal(rows, again)
    frequencies = np.bincount(regions, minlength=model.n_regions_) / len(regions)
    # Four standard errors of a frequency.
    errors = np.sqrt(model.weights_ * (1.0 - model.weights_) / len(regions))
    assert np.all(np.abs(frequencies - model.weights_) < 4.0 * errors)
    # The mean of log p is minus the entropy: a second sample of the same size must agree.
    first, second = model.score(rows), model.score(model.sample(20_000, random_state=1)[0])
    assert abs(first - second) < 0.1


def test_pickle_and_clone():
    model = random_model(2, (4, 3), activation="leaky_relu")
    rows = model.sample(10, random_state=0)[0]
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.score_samples(rows), model.score_samples(rows))
    np.testing.assert_array_equal(restored.weights_, model.weights_)
    assert len(restored.partition_) == model.n_regions_
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        clone(model).score_samples(rows)


def test_threads_change_nothing():
    model = random_model(2, (6,))
    rows = model.sample(3000, random_state=0)[0]
    expected = model.score_samples(rows)
    np.testing.assert_array_equal(model.set_params(n_jobs=2).score_samples(rows), expected)


def test_single_precision_rows_are_computed_in_double():
    model = make_model()
    rows = model.sample(5, random_state=0)[0].astype(np.float32)
    np.testing.assert_array_equal(
        model.score_samples(rows), model.score_samples(rows.astype(np.float64))
    )
    assert model.score_samples(rows).dtype == np.float64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coefs": []}, "coefs must hold at least the output layer, got an empty list"),
        ({"intercepts": INTERCEPTS[:1]}, "got 2 coefs and 1 intercepts"),
        ({"coefs": [COEFS[0], [[1.0]]]}, r"coefs\[1\] must have 2 columns"),
        ({"intercepts": [[0.1], INTERCEPTS[1]]}, r"intercepts\[0\] must have shape \(2,\)"),
        ({"coefs": [[[1.0], [np.nan]], COEFS[1]]}, r"coefs\[0\] must be finite, got nan"),
        (
            {"intercepts": [[np.inf, 0.0], INTERCEPTS[1]]},
            r"intercepts\[0\] must be finite, got inf",
        ),
        ({"noise_covariance": 0.0}, "noise_covariance must be positive, got a variance of 0.0"),
        ({"noise_covariance": 1e-310}, r"must be at least 2\.23e-308, .* variance of 1e-310"),
        ({"noise_covariance": [1.0, -1.0, 1.0]}, "must be positive, got a variance of -1.0"),
        ({"noise_covariance": [1.0, 1.0]}, r"or have shape \(3,\) or \(3, 3\), got shape \(2,\)"),
        ({"noise_covariance": np.eye(3) - 0.9}, "must be positive definite, got a matrix with"),
        ({"noise_covariance": np.triu(np.ones((3, 3)))}, "must be symmetric"),
        ({"noise_covariance": np.nan}, "noise_covariance must be finite, got nan"),
        ({"activation": "tanh"}, r"activation must be one of .*, got 'tanh'"),
    ],
)
def test_bad_networks_are_refused(changes, message):
    arguments = {
        "coefs": COEFS,
        "intercepts": INTERCEPTS,
        "noise_covariance": 0.1,
        "activation": "relu",
    }
    with pytest.raises(ValueError, match=message):
        PiecewiseAffineDGN.from_network(**(arguments | changes))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, 2.0]], "X has 2 features, but PiecewiseAffineDGN is expecting 3 features"),
        ([[1.0, 2.0, np.inf]], "infinity"),
        ([1.0, 2.0, 3.0], "Expected 2D array"),
    ],
)
def test_bad_rows_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        make_model().score_samples(rows)


ACTIVATIONS_PER_LAYER = ["relu", "leaky_relu", "abs"]


def test_every_hidden_layer_may_have_its_own_activation():
    rng = np.random.default_rng(5)
    widths = [1, 3, 4, 3, 2]
    coefs = [rng.normal(size=(o, i)) for i, o in itertools.pairwise(widths)]
    intercepts = [rng.normal(size=width) for width in widths[1:]]
    model = PiecewiseAffineDGN.from_network(
        coefs,
        intercepts,
        0.2,
        activation=ACTIVATIONS_PER_LAYER,
        negative_slope=[0.1, 0.3, 0.1],
    )
    functions = [
        lambda t: np.maximum(t, 0.0),
        lambda t: np.where(t > 0, t, 0.3 * t),
        np.abs,
        lambda t: t,
    ]
    values = points = np.linspace(-4.0, 4.0, 41)[:, None]
    for coef, intercept, function in zip(coefs, intercepts, functions, strict=True):
        values = function(values @ coef.T + intercept)
    np.testing.assert_allclose(model.inverse_transform(points), values, rtol=1e-12, atol=1e-12)
    X, network = values[::8] + 0.3, model._fitted_model().network
    expected = [
        line_posterior(network, [[0.2, 0.0], [0.0, 0.2]], row).log_density for row in X.tolist()
    ]
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-10)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


def test_a_fit_with_an_activation_for_each_layer_never_decreases():
    X = make_wave(150, random_state=0)
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(4, 3),
        activation=("abs", "leaky_relu"),
        negative_slope=0.2,
        max_iter=15,
        tol=0.0,
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(X)
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)
    names = [str(activation) for activation in model._fitted_model().network.activations]
    assert names == ["abs", "leaky_relu (negative_slope=0.2)"]
    assert clone(model).activation == ("abs", "leaky_relu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": ["relu"]}, "activation must be one for all .* each of the 2, got"),
        ({"activation": ["relu", "tanh"]}, "activation must be one of .*, got 'tanh'"),
        ({"negative_slope": [0.1]}, "negative_slope must be one for all .* each of the 2, got"),
        (
            {"activation": "leaky_relu", "negative_slope": [0.1, "steep"]},
            "negative_slope must be a finite number, got 'steep'",
        ),
    ],
)
def test_activations_that_do_not_fit_the_layers_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PiecewiseAffineDGN(hidden_layer_sizes=(3, 2), **changes).fit(make_wave(20))
