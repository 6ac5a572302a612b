"""DGNMixture: several networks, fitted together."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from skdgn._attributes import attributes_of_model
from skdgn._checks import check_observed, check_sizes
from skdgn._documentation import DocumentedMixin
from skdgn._mixture_fitting import MixtureIteration, MixtureResult, MixtureSettings, fit_mixture
from skdgn._model import Model
from skdgn._network import Floats
from skdgn._random import draw_seed, random_source
from skdgn.callbacks import CallbackSupportMixin
from skdgn._validation import check_weights as _check_weights
from skdgn.estimator import PiecewiseAffineDGN


class DGNMixture(DocumentedMixin, CallbackSupportMixin, DensityMixin, BaseEstimator):
    """Mixture of networks."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [None, PiecewiseAffineDGN],
        "n_networks": [Interval(Integral, 1, None, closed="left")],
        "init_params": [str, "array-like"],
        "weight_concentration_prior": [Interval(Real, 1.0, None, closed="left")],
        "noise_prior_weight": [Interval(Real, 0.0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "warm_start": ["boolean"],
        "n_jobs": [None, Integral],
        "random_state": ["random_state", np.random.Generator],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator: PiecewiseAffineDGN | None = None,
        n_networks: int = 4,
        *,
        init_params: Any = "gaussian_mixture",
        weight_concentration_prior: float = 2.0,
        noise_prior_weight: float = 1.0,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-3,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_networks = n_networks
        self.init_params = init_params
        self.weight_concentration_prior = weight_concentration_prior
        self.noise_prior_weight = noise_prior_weight
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit."""
        template = self._template()
        rows = validate_data(
            self,
            X,
            dtype=[np.float64, np.float32],
            ensure_min_samples=2,
            ensure_all_finite="allow-nan",
        )
        weights = _check_weights(sample_weight, rows)
        template.n_jobs = self.n_jobs
        init = self.init_params
        if not isinstance(init, str):
            init = np.asarray(init)
            if init.ndim == 1:
                init = np.eye(self.n_networks)[init]
        settings = MixtureSettings(
            template._settings(),
            int(self.n_networks),
            init,
            float(self.weight_concentration_prior),
            float(self.noise_prior_weight),
            int(self.n_init),
            int(self.max_iter),
            float(self.tol),
        )
        result = fit_mixture(
            rows,
            weights,
            settings,
            np.random.default_rng(draw_seed(self.random_state)),
            None,
            lambda iteration: False,
        )
        self.weights_ = result.weights
        self.networks_ = []
        for network, noise in result.networks:
            one = clone(template)
            one.n_features_in_ = rows.shape[1]
            one.__dict__.update(
                attributes_of_model(Model.build(network, noise)),
                converged_=result.converged, n_iter_=len(result.lower_bounds),
                lower_bounds_=np.empty(0), lower_bound_=math.nan, _running=None,
            )
            self.networks_.append(one)
        self.n_parameters_ = len(self.weights_) - 1 + sum(n.n_parameters_ for n in self.networks_)
        self.lower_bounds_ = result.lower_bounds
        self.lower_bound_ = result.lower_bound
        self.converged_ = result.converged
        self.n_iter_ = len(result.lower_bounds)
        return self

    def _template(self) -> PiecewiseAffineDGN:
        if self.estimator is None:
            return PiecewiseAffineDGN(hidden_layer_sizes=(4,), covariance_type="full")
        return clone(self.estimator)

    def _log_joint(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        with np.errstate(divide="ignore"):
            return np.log(self.weights_) + np.stack(
                [network.score_samples(X) for network in self.networks_], axis=1
            )

    def score_samples(self, X: ArrayLike) -> Floats:
        return logsumexp(self._log_joint(X), axis=1)

    def predict_proba(self, X: ArrayLike) -> Floats:
        joint = self._log_joint(X)
        return np.exp(joint - logsumexp(joint, axis=1, keepdims=True))

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        return self._log_joint(X).argmax(axis=1)

    def score(self, X: ArrayLike, y: None = None) -> float:
        return float(self.score_samples(X).mean())

    def aic(self, X: ArrayLike) -> float:
        return float(-2.0 * self.score_samples(X).sum() + 2.0 * self.n_parameters_)

    def bic(self, X: ArrayLike) -> float:
        scores = self.score_samples(X)
        return float(-2.0 * scores.sum() + self.n_parameters_ * math.log(len(scores)))
