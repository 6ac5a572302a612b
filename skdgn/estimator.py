"""PiecewiseAffineDGN: parameters, validation, fitted attributes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    DensityMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from skdgn._cells import integrate_gaussian
from skdgn._em import STEPS
from skdgn._fitting import Settings, fit_network
from skdgn._network import ACTIVATIONS, Activation, Floats, Network
from skdgn._noise import COVARIANCE_TYPES, Noise
from skdgn._partition import Partition, build_partition
from skdgn._posterior import Posterior, log_density, posterior
from skdgn._progress import ProgressPrinter
from skdgn._visits import Visitor

# A partition with more regions would take gigabytes, and hours.
_MOST_REGIONS = 200_000
# Absolute error of a prior mass.
_LOG_WEIGHT_ERROR = math.log(1e-14)


class PiecewiseAffineDGN(
    DensityMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Deep generative network with an exact density.

    ``z ~ N(0, I)`` in a latent space of ``n_components`` dimensions, ``x | z ~ N(g(z), noise)``,
    and ``g`` a network whose activations are piecewise affine.  On each region of a polyhedral
    partition of latent space ``g`` is affine, so that likelihood, posterior and moments have
    closed forms.

    Parameters
    ----------
    n_components : int, default=1
        Number of latent dimensions.
    hidden_layer_sizes : tuple of int, default=(16,)
        Widths of the hidden layers; ``()`` is the linear model (probabilistic PCA, factor
        analysis).
    activation : {"relu", "leaky_relu", "abs"}, default="leaky_relu"
        Activation of the hidden units.
    negative_slope : float, default=0.1
        Slope of ``"leaky_relu"`` for negative inputs.
    covariance_type : {"spherical", "diag", "full"}, default="diag"
        Shape of the noise covariance.
    m_step : {"joint", "layerwise"}, default="joint"
        Damped Gauss-Newton steps over all layers at once, or one layer after the other in closed
        form. Either way a step that lowers the exact likelihood is refused.
    init_params : {"auto", "tree", "isomap", "pca", "random"}, default="auto"
        Where the fit starts: a coordinate found on the data.  ``"auto"`` tries several briefly
        and keeps the likeliest.
    n_init : int, default=1
        Number of starts; the likeliest fit is kept.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float, default=1e-4
        EM stops when an iteration adds less than this to the mean log-likelihood, twice in a row.
    reg_covar : float, default=1e-6
        Smallest variance of the noise, relative to the variance of the features.
    warm_start : bool, default=False
        Whether `fit` goes on from the parameters of the last fit.
    n_jobs : int, default=None
        Number of threads, as in joblib.
    random_state : int, RandomState instance or None, default=None
        Seed of the starting values.
    verbose : int, default=0
        1 prints the end of every run, 2 every iteration.

    Attributes
    ----------
    coefs_ : list of ndarray
        Weights; ``coefs_[l]`` has shape (fan_out, fan_in).
    intercepts_ : list of ndarray
        Biases; ``intercepts_[l]`` has shape (fan_out,).
    noise_covariance_ : float or ndarray of shape (n_features,) or (n_features, n_features)
        Covariance of the noise, by ``covariance_type``.
    n_regions_ : int
        Number of regions of latent space on which the network is affine.
    weights_ : ndarray of shape (n_regions,)
        Prior probability of each region.
    weights_error_ : ndarray of shape (n_regions,)
        Standard error of ``weights_``: zero for up to three latent dimensions, where they are exact
        to rounding; about 0.2 % of the weight for more.
    partition_ : Partition
        The regions: ``cells``, ``patterns`` and affine ``maps``.
    converged_ : bool
        Whether EM stopped because the likelihood stood still.
    n_iter_ : int
        Number of EM iterations.
    lower_bound_ : float
        Mean log-likelihood of the training rows at the end of the fit.
    lower_bounds_ : ndarray of shape (n_iter_,)
        Mean log-likelihood after every iteration; it never decreases.
    n_parameters_ : int
        Number of identifiable parameters.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if they were given as strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgn import PiecewiseAffineDGN
    >>> model = PiecewiseAffineDGN.from_network(
    ...     coefs=[[[1.0]], [[1.0], [2.0]]],
    ...     intercepts=[[0.0], [0.0, 0.0]],
    ...     noise_covariance=0.01,
    ...     activation="relu",
    ... )
    >>> model.n_regions_
    2
    >>> model.weights_
    array([0.5, 0.5])
    >>> model.score_samples([[1.0, 2.0], [-1.0, 1.0]]).round(6)
    array([ -0.840012, -90.360456])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "hidden_layer_sizes": [tuple, list],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "negative_slope": [Interval(Real, None, None, closed="neither")],
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "m_step": [StrOptions(set(STEPS))],
        "init_params": [StrOptions({"auto", "tree", "isomap", "pca", "random"})],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "reg_covar": [Interval(Real, 0.0, None, closed="neither")],
        "warm_start": ["boolean"],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int = 1,
        *,
        hidden_layer_sizes: Sequence[int] = (16,),
        activation: str = "leaky_relu",
        negative_slope: float = 0.1,
        covariance_type: str = "diag",
        m_step: str = "joint",
        init_params: str = "auto",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        reg_covar: float = 1e-6,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.negative_slope = negative_slope
        self.covariance_type = covariance_type
        self.m_step = m_step
        self.init_params = init_params
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.reg_covar = reg_covar
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def from_network(
        cls,
        coefs: Sequence[ArrayLike],
        intercepts: Sequence[ArrayLike],
        noise_covariance: ArrayLike,
        *,
        activation: str,
        negative_slope: float = 0.1,
    ) -> Self:
        """Return a fitted estimator with these parameters.

        Parameters
        ----------
        coefs : sequence of array-like
            ``coefs[l]`` has shape (fan_out, fan_in); the last layer has no activation.
        intercepts : sequence of array-like
            ``intercepts[l]`` has shape (fan_out,).
        noise_covariance : float or array-like of shape (n_features,) or (n_features, n_features)
            Covariance of the noise: spherical, diagonal or full.
        activation : {"relu", "leaky_relu", "abs"}
        negative_slope : float, default=0.1
            Slope of ``"leaky_relu"`` for negative inputs.

        Returns
        -------
        estimator : PiecewiseAffineDGN
        """
        network = Network.from_arrays(
            coefs, intercepts, Activation.from_name(activation, negative_slope)
        )
        noise = Noise.from_covariance(noise_covariance, network.n_features)
        estimator = cls(
            network.n_components,
            hidden_layer_sizes=network.hidden_layer_sizes,
            activation=activation,
            negative_slope=negative_slope,
            covariance_type=noise.covariance_type,
        )
        estimator.n_features_in_ = network.n_features
        estimator._set_parameters(network, noise, build_partition(network))
        estimator.converged_ = True
        estimator.n_iter_ = 0
        estimator.lower_bounds_ = np.empty(0)
        estimator.lower_bound_ = math.nan
        return estimator

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit network and noise by exact expectation-maximisation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : None
            Ignored, present for scikit-learn's conventions.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; a weight of 2 counts a row twice.

        Returns
        -------
        self : PiecewiseAffineDGN
        """
        hidden_layer_sizes = _check_hidden_layer_sizes(self.hidden_layer_sizes)
        continues = self.warm_start and hasattr(self, "coefs_")
        rows = np.asarray(
            validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2),
            dtype=np.float64,
        )
        row_weights = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        if not row_weights.sum() > 0:
            raise ValueError("sample_weight must have a positive sum, got weights that are all 0.")
        settings = Settings(
            n_components=int(self.n_components),
            hidden_layer_sizes=hidden_layer_sizes,
            activation=Activation.from_name(self.activation, self.negative_slope),
            covariance_type=self.covariance_type,
            m_step=self.m_step,
            init_params=self.init_params,
            n_init=int(self.n_init),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            reg_covar=float(self.reg_covar),
            most_regions=_MOST_REGIONS,
            n_jobs=self.n_jobs,
        )
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        warm_start = None
        if continues:
            noise = Noise.from_covariance(self.noise_covariance_, self.n_features_in_)
            warm_start = (self._network(), noise)
        result = fit_network(
            rows,
            row_weights,
            settings,
            np.random.default_rng(seed),
            warm_start,
            ProgressPrinter(self.verbose),
        )
        self._set_parameters(result.network, result.noise, build_partition(result.network))
        self.converged_ = result.converged
        self.n_iter_ = len(result.lower_bounds)
        self.lower_bounds_ = result.lower_bounds
        self.lower_bound_ = float(result.lower_bounds[-1])
        if result.interrupted:
            warnings.warn(
                f"The fit was interrupted after {self.n_iter_} iterations; "
                "the best parameters so far were kept.",
                ConvergenceWarning,
                stacklevel=2,
            )
        elif not result.converged:
            warnings.warn(
                f"EM did not converge within max_iter={self.max_iter} iterations. "
                "Increase max_iter or tol.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _set_parameters(self, network: Network, noise: Noise, partition: Partition) -> None:
        """Make a network and its noise the fitted ones."""
        self.coefs_ = list(network.coefs)
        self.intercepts_ = list(network.intercepts)
        covariance = noise.covariance
        self.noise_covariance_ = float(covariance) if covariance.ndim == 0 else covariance
        self.n_regions_ = len(partition)
        identity = np.eye(network.n_components)
        prior = integrate_gaussian(partition.cells, identity[0] * 0.0, identity, _LOG_WEIGHT_ERROR)
        self.weights_ = np.exp(prior.log_masses)
        self.weights_error_ = self.weights_ * prior.errors
        self.n_parameters_ = network.n_identifiable_weights + noise.n_parameters
        self._partition = partition
        self._visitor = Visitor.prepare(partition, noise)

    # What can be computed again is not part of the state: it is large, and pickles stay simple.
    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_partition", None)
        state.pop("_visitor", None)
        return state

    def _network(self) -> Network:
        return Network.from_arrays(
            self.coefs_,
            self.intercepts_,
            Activation.from_name(self.activation, self.negative_slope),
        )

    @property
    def partition_(self) -> Partition:
        """Regions of latent space, with the affine map of the network on each of them."""
        check_is_fitted(self)
        if not hasattr(self, "_partition"):
            self._partition = build_partition(self._network())
        return self._partition

    def _fitted_visitor(self) -> Visitor:
        if not hasattr(self, "_visitor"):
            noise = Noise.from_covariance(self.noise_covariance_, self.n_features_in_)
            self._visitor = Visitor.prepare(self.partition_, noise)
        return self._visitor

    def _validate_rows(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        return np.asarray(
            validate_data(self, X, reset=False, dtype=[np.float64, np.float32]), dtype=np.float64
        )

    def score_samples(self, X: ArrayLike) -> Floats:
        """Compute the exact log density of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(x), exact to rounding for up to three latent dimensions, far outliers included.
            For more, an estimate to two or three digits: ``posterior(X).log_density_error`` holds
            its standard error.
        """
        rows = self._validate_rows(X)
        return log_density(self._fitted_visitor(), rows, self.n_jobs)

    def score(self, X: ArrayLike, y: None = None) -> float:
        """Compute the mean log density of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : None
            Ignored, present for scikit-learn's conventions.

        Returns
        -------
        score : float
        """
        return float(self.score_samples(X).mean())

    def aic(self, X: ArrayLike) -> float:
        """Compute Akaike's information criterion on X; the lower the better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        aic : float
        """
        return float(-2.0 * self.score_samples(X).sum() + 2.0 * self.n_parameters_)

    def bic(self, X: ArrayLike) -> float:
        """Compute the Bayesian information criterion on X; the lower the better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        bic : float
        """
        log_densities = self.score_samples(X)
        return float(-2.0 * log_densities.sum() + self.n_parameters_ * math.log(len(log_densities)))

    def sample(
        self, n_samples: int = 1, random_state: Any = None
    ) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.intp]]]:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None
            None takes the estimator's own.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        regions : ndarray of shape (n_samples,)
            Region of latent space each row was drawn from.
        """
        check_is_fitted(self)
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}.")
        generator = check_random_state(self.random_state if random_state is None else random_state)
        network = self._network()
        noise = Noise.from_covariance(self.noise_covariance_, self.n_features_in_)
        latent = generator.standard_normal((n_samples, network.n_components))
        regions = self.partition_.locate(network.patterns(latent))
        rows = network.forward(latent)
        return rows + noise.color(generator.standard_normal(rows.shape)), regions

    def posterior(self, X: ArrayLike) -> Posterior:
        """Compute the exact posterior of the latent variables, given each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        posterior : Posterior
            With ``mean``, ``covariance`` and ``responsibilities``.
        """
        rows = self._validate_rows(X)
        return posterior(self._fitted_visitor(), rows, self.n_jobs)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Compute the posterior probability of each region, given each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_regions)
        """
        return self.posterior(X).responsibilities

    def predict(self, X: ArrayLike) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Find the most responsible region of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        regions : ndarray of shape (n_samples,)
        """
        return self.posterior(X).most_responsible

    def transform(self, X: ArrayLike) -> Floats:
        """Compute the posterior mean of the latent variables, given each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray of shape (n_samples, n_components)
        """
        return self.posterior(X).mean

    def inverse_transform(self, Z: ArrayLike) -> Floats:
        """Evaluate the generator.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        network = self._network()
        latent = check_array(Z, dtype=np.float64, input_name="Z")
        if latent.shape[1] != network.n_components:
            raise ValueError(
                f"Z must have {network.n_components} columns, one per latent dimension, "
                f"got {latent.shape[1]}."
            )
        return network.forward(latent)

    @property
    def _n_features_out(self) -> int:
        """Number of columns of `transform`, for `get_feature_names_out`."""
        return int(self.coefs_[0].shape[1])


def _check_hidden_layer_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    for size in sizes:
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(
                f"hidden_layer_sizes must hold positive integers, got {size!r} in {sizes!r}."
            )
    return tuple(int(size) for size in sizes)
