from __future__ import annotations

import re

import numpy as np
import pytest
from numba import typeof

from skdgn._noise.gaussian import Noise
from skdgn._noise.missing import NoiseUnits

# Products of 3 x 3 matrices with entries of order one.
ROUNDING = 1e-13

FULL = np.array([[2.0, 0.3, -0.4], [0.3, 1.0, 0.2], [-0.4, 0.2, 0.5]])
COVARIANCES = {"spherical": 0.7, "diag": np.array([0.5, 2.0, 1.5]), "full": FULL}


def as_matrix(covariance: np.ndarray | float) -> np.ndarray:
    values = np.asarray(covariance)
    if values.ndim == 2:
        return values
    return np.diag(np.broadcast_to(values, 3))


@pytest.fixture(params=COVARIANCES)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_kind_is_read_off_the_shape(kind: str) -> None:
    assert Noise.from_covariance(COVARIANCES[kind], 3).covariance_type == kind


def test_number_of_parameters() -> None:
    counts = [Noise.from_covariance(value, 3).n_parameters for value in COVARIANCES.values()]
    assert counts == [1, 3, 6]


def test_missing_values_are_compiled_for_once(kind: str) -> None:
    covariance = np.array(COVARIANCES[kind])
    covariance.flags.writeable = False  # as that of a fitted model is
    units = NoiseUnits.of(Noise.from_covariance(covariance, 3))
    assert typeof(units) == typeof(NoiseUnits.for_nobody(3))


def test_log_determinant(kind: str) -> None:
    noise = Noise.from_covariance(COVARIANCES[kind], 3)
    expected = np.log(np.linalg.det(as_matrix(COVARIANCES[kind])))
    assert noise.log_determinant == pytest.approx(expected, rel=ROUNDING)


def test_color_gives_the_covariance(kind: str) -> None:
    noise = Noise.from_covariance(COVARIANCES[kind], 3)
    colored = noise.color(np.eye(3))  # rows: columns of the factor
    np.testing.assert_allclose(colored.T @ colored, as_matrix(COVARIANCES[kind]), atol=ROUNDING)


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 4, 3)])
def test_whiten_undoes_color_for_any_leading_axes(kind: str, shape: tuple[int, ...]) -> None:
    noise = Noise.from_covariance(COVARIANCES[kind], 3)
    rows = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(noise.whiten(noise.color(rows)), rows, atol=ROUNDING)
    assert noise.whiten(rows).shape == shape


def test_whitened_squares_are_mahalanobis_distances(kind: str) -> None:
    noise = Noise.from_covariance(COVARIANCES[kind], 3)
    rows = np.random.default_rng(1).normal(size=(10, 3))
    inverse = np.linalg.inv(as_matrix(COVARIANCES[kind]))
    expected = np.einsum("nd,de,ne->n", rows, inverse, rows)
    np.testing.assert_allclose((noise.whiten(rows) ** 2).sum(axis=1), expected, rtol=ROUNDING)


def test_single_feature_takes_every_shape() -> None:
    kinds = [Noise.from_covariance(value, 1).covariance_type for value in (2.0, [2.0], [[2.0]])]
    assert kinds == ["spherical", "diag", "full"]


def test_covariance_is_copied() -> None:
    values = np.array([1.0, 2.0])
    noise = Noise.from_covariance(values, 2)
    values[:] = 9.0
    assert noise.covariance.tolist() == [1.0, 2.0]


def test_rounding_asymmetry_is_removed() -> None:
    matrix = FULL.copy()
    matrix[0, 1] *= 1.0 + 1e-12
    covariance = Noise.from_covariance(matrix, 3).covariance
    assert np.array_equal(covariance, covariance.T)
    assert covariance[0, 1] == pytest.approx(0.3, rel=1e-11)


ASYMMETRIC = FULL + np.array([[0, 0, 0.25], [0, 0, 0], [0, 0, 0]])
INDEFINITE = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
SINGULAR = np.ones((3, 3))

BAD_COVARIANCES = {
    "wrong length": ([1.0, 2.0], ["a number", "(3,)", "(3, 3)", "got shape (2,)"]),
    "wrong matrix": (np.eye(2), ["a number", "(3,)", "(3, 3)", "got shape (2, 2)"]),
    "column": (np.ones((3, 1)), ["a number", "(3,)", "(3, 3)", "got shape (3, 1)"]),
    "three axes": (np.ones((3, 3, 3)), ["a number", "got shape (3, 3, 3)"]),
    "empty": ([], ["a number", "got shape (0,)"]),
    "NaN": ([1.0, np.nan, 1.0], ["finite", "got nan"]),
    "infinity": (np.inf, ["finite", "got inf"]),
    "zero": (0.0, ["positive", "got a variance of 0.0"]),
    "negative variance": ([1.0, -0.5, 1.0], ["positive", "got a variance of -0.5"]),
    "asymmetric": (ASYMMETRIC, ["symmetric", "mirror image", "0.25"]),
    "indefinite": (INDEFINITE, ["positive definite", "smallest eigenvalue -"]),
    "ragged": ([[1.0, 0.0], [1.0]], ["an array of numbers", "got [[1.0, 0.0], [1.0]]"]),
    "word": ("large", ["an array of numbers", "got 'large'"]),
}


@pytest.mark.parametrize("case", BAD_COVARIANCES)
def test_bad_covariances_are_named(case: str) -> None:
    covariance, parts = BAD_COVARIANCES[case]
    pattern = ".*".join(re.escape(part) for part in ("noise_covariance", *parts))
    with pytest.raises(ValueError, match=pattern):
        Noise.from_covariance(covariance, 3)


def test_singular_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="noise_covariance must be positive definite"):
        Noise.from_covariance(SINGULAR, 3)
