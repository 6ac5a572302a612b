"""Exact densities of all kinds, wherever one of them fits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture

from skdgn import (
    DensityDisplay,
    DGNEnsemble,
    DGNImputer,
    DGNMixture,
    DGNOutlierDetector,
    LatentPartitionDisplay,
    LikelihoodCurveDisplay,
    PiecewiseAffineDGN,
    PosteriorDisplay,
    TransformedDensity,
)
from skdgn._estimators.methods.density import ExactDensity, check_density
from skdgn.datasets import make_wave

LINE = PiecewiseAffineDGN(hidden_layer_sizes=(), tol=0.01)
DENSITIES = {
    "network": LINE,
    "mixture": DGNMixture(LINE, n_networks=2, tol=0.01),
    "ensemble": DGNEnsemble(LINE, n_estimators=2),
    "transformed": TransformedDensity(LINE),
}


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rows = make_wave(60, random_state=0)
    rows[::5, 1] = np.nan
    return rows


@pytest.fixture(scope="module", params=DENSITIES)
def fitted(request, rows) -> ExactDensity:
    return clone(DENSITIES[request.param]).set_params(random_state=0).fit(rows)


def test_all_offer_the_same(fitted, rows):
    assert check_density(fitted) is fitted
    log_densities = fitted.score_samples(rows)
    assert fitted.score(rows, sample_weight=np.ones(60)) == pytest.approx(log_densities.mean())
    assert fitted.sample(3, random_state=0)[0].shape == (3, 2)
    given = np.where([True, False], rows, np.nan)
    joint = fitted.conditional_score_samples(rows, given=0) + fitted.score_samples(given)
    np.testing.assert_allclose(joint, log_densities, rtol=1e-10)
    imputed = fitted.impute(given)[:, 1]
    np.testing.assert_allclose(imputed, fitted.conditional_mean(rows, given=0)[:, 0], rtol=1e-9)
    medians = fitted.conditional_quantiles(rows[1:3], given=0, q=0.5)
    at_medians = np.column_stack([rows[1:3, 0], medians[:, 0]])
    np.testing.assert_allclose(fitted.conditional_cdf(at_medians, given=0), 0.5, atol=1e-10)


def test_all_fit_into_imputers_detectors_and_ensembles(fitted, rows):
    template = clone(fitted)
    imputer = DGNImputer(template).fit(rows)
    np.testing.assert_allclose(imputer.transform(rows), fitted.impute(rows), rtol=1e-12)
    detector = DGNOutlierDetector(template, contamination=0.1, cv=None).fit(rows)
    assert detector.predict([[1e9, np.nan]]) == [-1]
    ensemble = DGNEnsemble([template], max_samples=1.0, random_state=0).fit(rows)
    assert type(ensemble.estimators_[0]) is type(template)
    assert DGNEnsemble.from_estimators([fitted]).score(rows) == pytest.approx(fitted.score(rows))


def test_all_densities_are_drawn(fitted, rows):
    display = DensityDisplay.from_estimator(fitted, rows, features=0, grid_resolution=5)
    points = np.column_stack([display.axes_values[0], np.full(5, np.nan)])
    np.testing.assert_array_equal(display.log_density, fitted.score_samples(points))


def test_likelihood_curves_of_networks_and_mixtures(fitted, rows):
    if isinstance(fitted, DGNEnsemble | TransformedDensity):
        with pytest.raises(ValueError, match="Pass what it has fitted, estimators_ or estimator_"):
            LikelihoodCurveDisplay.from_estimator({"average": fitted})
        return
    display = LikelihoodCurveDisplay.from_estimator(fitted, rows)
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), fitted.lower_bounds_)
    penalty = " and log prior" if isinstance(fitted, DGNMixture) else ""
    assert display.ax_.get_ylabel() == f"mean log-likelihood{penalty}"


def test_latent_spaces_belong_to_single_networks(fitted, rows):
    for kind, arguments in ((LatentPartitionDisplay, ()), (PosteriorDisplay, (rows[:1],))):
        if isinstance(fitted, PiecewiseAffineDGN):
            kind.from_estimator(fitted, *arguments)
            continue
        with pytest.raises(ValueError, match=r"a single network, .* Pass a part of it, ") as error:
            kind.from_estimator(fitted, *arguments)
        part = str(error.value).split("Pass a part of it, ")[1].split(",")[0]
        assert isinstance(eval(f"fitted.{part}", {"fitted": fitted, "k": 0}), PiecewiseAffineDGN)


def test_other_densities_are_refused_by_name(rows):
    gaussians = GaussianMixture().fit(rows[:, :1])
    for refuse in (check_density, DensityDisplay.from_estimator):
        with pytest.raises(ValueError, match="TransformedDensity, got GaussianMixture"):
            refuse(gaussians)
    with pytest.raises(ValueError, match="parameter of DGNImputer must be an exact density, a"):
        DGNImputer(gaussians).fit(rows)
