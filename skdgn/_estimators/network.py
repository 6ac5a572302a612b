"""PiecewiseAffineDGN: parameters, validation, fitted attributes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skdgn._estimators.attributes import attributes_of_model, attributes_of_result
from skdgn._estimators.callbacks import FitTasks
from skdgn._estimators.checks import (
    check_hidden_layer_sizes,
    check_observed,
    check_prior_scale,
    check_sizes,
    check_spreads,
)
from skdgn._estimators.construction import KnownNetworks
from skdgn._estimators.density import ExactDensity
from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.inference import LatentInference
from skdgn._estimators.progress import IterationPrinter, describe_interrupt
from skdgn._estimators.sklearn_parts import (
    VERBOSE,
    CallbackSupportMixin,
    Interval,
    StrOptions,
    fit_context,
)
from skdgn._estimators.validation import check_weights, validate_rows
from skdgn._fit import (
    PRIORS,
    STEPS,
    FitResult,
    Iteration,
    Running,
    Settings,
    fit_network,
    take_step,
)
from skdgn._network import ACTIVATIONS, Activation, Network
from skdgn._noise import COVARIANCE_TYPES, Noise
from skdgn._partition import Partition
from skdgn._posterior import Model
from skdgn._runtime import Floats, VersionedMixin, draw_seed, value_ranges

# So many features are named in a warning.
_MOST_NAMES = 5


class PiecewiseAffineDGN(
    DocumentedMixin,
    VersionedMixin,
    KnownNetworks,
    CallbackSupportMixin,
    LatentInference,
    ExactDensity,
    BaseEstimator,
):
    """Deep generative network with an exact density.

    A sample is made in three steps: a latent point ``z ~ N(0, I)`` is drawn, a network ``g`` turns
    it into a point among the samples, and Gaussian noise is added, ``x = g(z) + noise``.
    Activations are piecewise affine.  So latent space falls into regions on each of which ``g`` is
    affine, and likelihood, posterior and moments are sums of Gaussian integrals over them: exact to
    rounding for up to three latent dimensions, estimates with a standard error for more.

    It is fitted by expectation-maximization.  Samples need no scaling beforehand, and missing
    values (NaN) are allowed everywhere.

    Parameters
    ----------
    n_components : int, default=1
        Number of latent dimensions: one draws a curve through the samples, two a sheet.  The number
        of regions grows with every one of them: one or two are comfortable, three are for small
        networks.  Begin with one, and compare by `score` on samples that were held out.
    hidden_layer_sizes : tuple of int or int, default=(16,)
        Widths of the hidden layers; 8 means ``(8,)``, and ``()`` is the linear model (probabilistic
        PCA, factor analysis).  More units bend the curve more often: choose by `bic`, or by `score`
        on samples that were held out.
    activation : {"relu", "leaky_relu", "abs"}, default="leaky_relu"
        Activation of the hidden units.  Units of ``"relu"`` may become constant and be lost;
        ``"abs"`` folds latent space at each of its borders.
    negative_slope : float, default=0.1
        Slope of ``"leaky_relu"`` for negative inputs.
    covariance_type : {"spherical", "diag", "full"}, default="diag"
        Shape of the noise covariance: one variance for all features, one for each of them, or a
        full matrix.  ``"spherical"`` is for features in the same unit, measured alike; ``"full"``
        for correlated noise, if there are many more samples than features.
    weight_prior : {"gaussian", "laplace", "uniform"} or None, default=None
        Prior of the weights ``coefs_``, each on its own; intercepts have none.  None is maximum
        likelihood.  A prior helps if there are few samples for many weights; ``"laplace"`` makes
        some of them exactly zero.
    prior_scale : float, default=1.0
        Standard deviation of ``"gaussian"``, scale of ``"laplace"`` (the density falls as
        ``exp(-|w| / scale)``), bound of ``"uniform"``.  Those of the output layer are in the
        units of the samples.
    m_step : {"joint", "layerwise"}, default="joint"
        Damped Gauss-Newton steps over all layers at once, or one layer after the other in closed
        form, as in the paper.  Either way a step that lowers the exact likelihood is refused;
        ``"joint"`` usually ends higher.
    init_params : {"auto", "tree", "isomap", "pca", "random"}, default="auto"
        Where the fit starts: latent coordinates found on the samples, to which a network is fitted.
        ``"tree"`` walks along a minimum spanning tree (of two latent dimensions and more, it is
        ``"isomap"``), ``"isomap"`` keeps distances along the samples, ``"pca"`` takes principal
        components, ``"random"`` random coordinates.  ``"auto"`` tries the first three briefly and
        keeps the likeliest.
    n_init : int, default=1
        Number of starts; the likeliest fit is kept.  More take as many times longer; they pay
        where fits with different ``random_state`` end differently, as with narrow deep networks.
    max_iter : int, default=200
        Largest number of iterations.  A warning says if it was reached.
    tol : float, default=1e-4
        EM stops when an iteration adds less than this to the mean log-likelihood (nats per sample),
        twice in a row.  1e-3 is enough for a first look.
    reg_covar : float, default=1e-6
        Smallest variance of the noise, as a share of the variance of the features.  Features with
        tied values have a larger one, see Notes.
    warm_start : bool, default=False
        Whether `fit` goes on from the parameters of the last fit.
    n_jobs : int, default=None
        Number of threads, as in joblib: -1 is all cores, None is one.  Within
        ``joblib.parallel_config(backend)`` the work goes to processes (``"loky"``) or to a cluster
        (``"dask"``) instead; results are the same.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the starting values, and of draws that are given none: an integer gives the same
        fit each time.
    verbose : int, default=0
        1 shows what is being done, how far it is, and since when: a progress bar for fits, a count
        of samples for other methods that take longer than seconds.  2 prints a line for every
        iteration and whatever comes before the first.  0 is silent, but for warnings of the logger
        ``"skdgn"`` (see `logging`): once if functions have to be compiled first, and if a fit will
        be long.  -1 silences these, too, the first one for the whole process.

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
        The regions: their geometry ``cells``, the ``patterns`` (n_regions, n_hidden_units) of units
        with a positive input, and the affine map on each, ``maps.slopes`` (n_regions, n_features,
        n_components) and ``maps.offsets`` (n_regions, n_features).  ``vertices(region)`` finds the
        vertices and rays of a region, with the extra ``cdd``.
    converged_ : bool
        Whether EM stopped because the likelihood stood still.
    n_iter_ : int
        Number of EM iterations.
    lower_bound_ : float
        Mean log-likelihood of the samples at the end of the fit, in nats; with a prior, plus the
        log density of ``coefs_`` divided by the sum of the rows' weights.
    lower_bounds_ : ndarray of shape (n_iter,)
        The same after every iteration; it never decreases.
    n_parameters_ : int
        Number of identifiable parameters: weights, intercepts and noise, less one for the scale of
        every hidden unit and the rotations of latent space that change the first layer; without
        hidden layers, no more than a Gaussian has.  Weights without effect, as those of a dead
        unit, count as any others.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they were given as strings.

    See Also
    --------
    DGNImputer : Fills in missing values, in a pipeline.
    DGNOutlierDetector : Finds samples of low density.

    Notes
    -----
    **Tied values.**  A network can pass through values that occur many times, and the likelihood
    grows without bound as the noise vanishes there.  So the noise variance of a feature is never
    below ``max(min(g**2, v) / 12, t * min(h**2 / 12, v / n))`` if any of its values are tied: g is
    the smallest gap between distinct values (``g**2 / 12`` is the variance of the error of rounding
    to such a grid), h the mean gap, v the variance, n the number of different samples in which it
    was observed, and t the share of ties, ``1 - (m - 1) / (n - 1)`` for m distinct values.  Counts
    and rounded values keep at least the noise of their rounding; columns that are mostly zero keep
    noise worth one sample; features without ties are left alone.  A warning names the features
    whose noise is at this floor: how high their densities are is set by it.  With
    ``covariance_type="full"``, the noise covariance minus the
    diagonal matrix of the floors is positive semidefinite; with ``"spherical"``, the variance is
    not below the mean of the floors.  In `partial_fit`, the first chunk sets the floors.

    Examples
    --------
    >>> from skdgn import PiecewiseAffineDGN
    >>> from skdgn.datasets import make_noisy_circle
    >>> X = make_noisy_circle(200, random_state=0)
    >>> model = PiecewiseAffineDGN(hidden_layer_sizes=(8,), tol=1e-2, random_state=0).fit(X)
    >>> on_the_circle, in_its_middle = model.score_samples([[1.0, 0.0], [0.0, 0.0]])
    >>> bool(on_the_circle > in_its_middle)
    True

    A network that is known already:

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
        "hidden_layer_sizes": [tuple, list, Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "negative_slope": [Interval(Real, None, None, closed="neither")],
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "weight_prior": [None, StrOptions(set(PRIORS))],
        "prior_scale": [Interval(Real, 0.0, None, closed="neither")],
        "m_step": [StrOptions(set(STEPS))],
        "init_params": [StrOptions({"auto", "tree", "isomap", "pca", "random"})],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "reg_covar": [Interval(Real, 0.0, None, closed="neither")],
        "warm_start": ["boolean"],
        "n_jobs": [
            None,
            Interval(Integral, 1, None, closed="left"),
            Interval(Integral, None, -1, closed="right"),
        ],
        "random_state": ["random_state", np.random.Generator],
        "verbose": VERBOSE,
    }

    # Set by fit.
    coefs_: list[Floats]
    intercepts_: list[Floats]
    noise_covariance_: float | Floats
    n_features_in_: int
    n_iter_: int
    _fitted_activation: tuple[str, float]
    _model: Model
    _running: dict[str, Any] | None  # statistics of the rows so far, for `partial_fit`

    def __init__(
        self,
        n_components: int = 1,
        *,
        hidden_layer_sizes: int | Sequence[int] = (16,),
        activation: str = "leaky_relu",
        negative_slope: float = 0.1,
        covariance_type: str = "diag",
        weight_prior: str | None = None,
        prior_scale: float = 1.0,
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
        self.weight_prior = weight_prior
        self.prior_scale = prior_scale
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

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit network and noise by exact expectation-maximization.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing, or masked; every column needs a value.
        y : None
            Ignored, present for scikit-learn's conventions.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 counts a sample twice.

        Returns
        -------
        self : PiecewiseAffineDGN
            The fitted estimator.

        Notes
        -----
        Neither the order of the samples nor that of the features matters, beyond rounding.  A table
        that cannot be sorted in the ``working_memory`` of scikit-learn's configuration (it takes
        about eight times its size in double precision) is read in batches at every iteration, from
        disk if it is a `numpy.memmap`, and never copied.

        A fit that is interrupted (Ctrl-C) keeps the best parameters so far, if there are any, and
        lets the interrupt through: it ends a loop of fits, or a search, as well.  If no iteration
        was done by then, ``lower_bound_`` is that of the samples on which starts are compared.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> from skdgn.datasets import make_wave
        >>> X = make_wave(100, random_state=0)
        >>> model = PiecewiseAffineDGN(hidden_layer_sizes=(4,), tol=0.01, random_state=0).fit(X)
        >>> model.converged_
        True
        >>> bool((model.lower_bounds_[1:] >= model.lower_bounds_[:-1]).all())
        True
        """
        result = self._fit(X, sample_weight)
        if result.interrupted:
            raise KeyboardInterrupt(describe_interrupt(self.n_iter_))
        # One level for scikit-learn's wrapper of `fit`, one for this method.
        if not result.converged and not result.stopped:
            warnings.warn(
                f"EM did not converge within max_iter={self.max_iter} iterations. "
                "Increase max_iter or tol, or call fit again with warm_start=True.",
                ConvergenceWarning,
                stacklevel=3,
            )
        if result.bound_by_ties.any():
            warnings.warn(self._describe_ties(result.bound_by_ties), UserWarning, stacklevel=3)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from a chunk of samples, and keep what was learned from others before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing; in the first chunk, every column needs a value.
        y : None
            Ignored, present for scikit-learn's conventions.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 counts a sample twice.

        Returns
        -------
        self : PiecewiseAffineDGN
            The fitted estimator.

        Notes
        -----
        Stepwise EM [1]_.  The first chunk is fitted as by `fit`; samples of an earlier `fit` count
        as a first chunk.  Every other one adds its statistics to running ones, in which older
        chunks count less and less, and makes one step.  Chunks should not differ systematically:
        shuffle a table before it is cut.  ``lower_bound_`` and ``lower_bounds_`` are those of the
        last chunk, which may be less likely than the one before; ``n_iter_`` counts the steps.  An
        interrupt (Ctrl-C) leaves the estimator as it was.

        References
        ----------
        .. [1] O. Cappe and E. Moulines, On-line expectation-maximization algorithm for latent data
           models, Journal of the Royal Statistical Society B 71 (2009).

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> from skdgn.datasets import make_noisy_circle
        >>> model = PiecewiseAffineDGN(hidden_layer_sizes=(8,), random_state=0)
        >>> for chunk in range(3):
        ...     model = model.partial_fit(make_noisy_circle(200, random_state=chunk))
        >>> model.n_features_in_
        2
        """
        if not hasattr(self, "coefs_"):
            with self._unchanged_by_failure():
                if self._fit(X, sample_weight).interrupted:
                    raise KeyboardInterrupt
            return self
        with self._unchanged_by_failure():
            settings = self._settings()
            network, noise = self._last_parameters(settings, "partial_fit")
            rows = self._validate_rows(X)
            row_weights = check_weights(sample_weight, rows)
            self._check_scales(rows, row_weights, "partial_fit", self._running is None)
            running = None if self._running is None else Running.from_state(self._running)
            if running is None:
                self._check_observed(rows, row_weights)
            result = take_step(network, noise, running, rows, row_weights, settings)
            self.__dict__.update(
                attributes_of_model(Model.build(result.network, result.noise)),
                converged_=False,
                n_iter_=self.n_iter_ + 1,
                lower_bounds_=np.array([result.lower_bound]),
                lower_bound_=result.lower_bound,
                _running=result.running.to_state(),
            )
        return self

    def _fit(self, X: ArrayLike, sample_weight: ArrayLike | None) -> FitResult:
        with self._unchanged_by_failure():
            settings = self._settings()
            warm_start = None
            if self.warm_start and hasattr(self, "coefs_"):
                warm_start = self._last_parameters(settings, "warm_start=True")
            rows = validate_rows(self, X, reset=warm_start is None, min_samples=2)
            row_weights = check_weights(sample_weight, rows)
            self._check_observed(rows, row_weights)
            self._check_scales(rows, row_weights, "warm_start=True" if warm_start else None)
            seed = draw_seed(self.random_state)
            n_runs = 1 if warm_start else settings.n_init
            tasks = FitTasks(
                self, n_runs, settings.max_iter, X, sample_weight, attributes_of_result
            )
            objective = "log-likelihood" if self.weight_prior is None else "log-posterior"
            with settings.workers.reporter as reporter:
                printer = IterationPrinter(reporter, n_runs, settings.max_iter, objective)

                def watch(iteration: Iteration) -> bool:
                    printer(iteration)
                    return tasks(iteration)

                generator = np.random.default_rng(seed)
                result = fit_network(rows, row_weights, settings, generator, warm_start, watch)
            attributes = attributes_of_result(result)
            tasks.end(attributes)
            self.__dict__.update(attributes)
        return result

    def _column_names(self) -> list[Any]:
        """Names of the features, or their numbers."""
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def _describe_ties(self, bound_by_ties: NDArray[np.bool_]) -> str:
        """Say that the noise of some features (D,) is at its floor."""
        names = [str(self._column_names()[j]) for j in np.flatnonzero(bound_by_ties)]
        return (
            f"The noise of {_enumerate('feature', names)} is as small as tied values allow "
            "(see Notes of PiecewiseAffineDGN): how high the density is there is set by that "
            "floor. Compare such densities with each other only."
        )

    def _check_observed(self, rows: NDArray[Any], row_weights: Floats) -> None:
        check_observed(rows, row_weights, self._column_names(), self._workers())

    def _check_scales(
        self,
        rows: NDArray[Any],
        row_weights: Floats,
        continuation: str | None,
        sets_units: bool = True,
    ) -> None:
        """Refuse values of which a fit cannot compute squares, or that its model is far from.

        ``continuation`` says why it goes on from a model, if it does; ``sets_units`` whether these
        samples are the first.
        """
        ranges, names = value_ranges(rows, row_weights), self._column_names()
        check_sizes(ranges, names)
        if sets_units:
            check_spreads(ranges, self.covariance_type, float(self.reg_covar), names)
            if self.weight_prior is not None:
                check_prior_scale(float(self.prior_scale), ranges, names)
        if continuation is not None:
            self._check_continuation(ranges, continuation, names, sets_units)

    def _settings(self) -> Settings:
        """Check what scikit-learn's constraints leave open."""
        return Settings(
            n_components=int(self.n_components),
            hidden_layer_sizes=check_hidden_layer_sizes(self.hidden_layer_sizes),
            activation=Activation.from_name(self.activation, self.negative_slope),
            covariance_type=self.covariance_type,
            weight_prior=self.weight_prior,
            prior_scale=float(self.prior_scale),
            m_step=self.m_step,
            init_params=self.init_params,
            n_init=int(self.n_init),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            reg_covar=float(self.reg_covar),
            workers=self._workers(),
        )

    def _last_parameters(self, settings: Settings, reason: str) -> tuple[Network, Noise]:
        """Return the parameters of the last fit, for the next one to start from."""
        model = self._fitted_model()
        for name, wanted, fitted in (
            ("n_components", settings.n_components, model.network.n_components),
            ("hidden_layer_sizes", settings.hidden_layer_sizes, model.network.hidden_layer_sizes),
            ("activation", settings.activation, model.network.activation),
            ("covariance_type", settings.covariance_type, model.noise.covariance_type),
        ):
            if wanted != fitted:
                raise ValueError(
                    f"{reason} needs the {name} of the last fit, {fitted}, got {wanted}."
                )
        return model.network, model.noise

    def _fitted_model(self) -> Model:
        check_is_fitted(self)
        if not hasattr(self, "_model"):
            network = Network.from_arrays(
                self.coefs_, self.intercepts_, Activation.from_name(*self._fitted_activation)
            )
            noise = Noise.from_covariance(self.noise_covariance_, network.n_features)
            self._model = Model.build(network, noise)
        return self._model

    # What can be computed again is not part of the state: it is large, and pickles stay simple.
    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_model", None)
        return state

    @property
    def partition_(self) -> Partition:
        """Regions of latent space, with the affine map of the network on each of them."""
        return self._fitted_model().partition

    @property
    def _n_features_out(self) -> int:
        """Number of columns of `transform`, for `get_feature_names_out`."""
        return int(self.coefs_[0].shape[1])


def _enumerate(noun: str, names: list[str]) -> str:
    """List names, the first few of many."""
    listed = ", ".join(names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {listed}{more}"
