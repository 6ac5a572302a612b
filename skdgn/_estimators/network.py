"""PiecewiseAffineDGN: parameters, validation, fitted attributes."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from skdgn._estimators.construction import KnownNetworks
from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.fits import (
    FittedByEM,
    attributes_of_model,
    network_from_plain,
    plain_network,
)
from skdgn._estimators.inputs import (
    check_integers,
    check_observed,
    check_prior_scale,
    check_sizes,
    check_spreads,
)
from skdgn._estimators.methods import LatentInference
from skdgn._estimators.sklearn_parts import WORK_CONSTRAINTS, Interval, StrOptions
from skdgn._fit import (
    CRITERIA,
    M_STEPS,
    PRIORS,
    MixtureSettings,
    Parameters,
    Settings,
    SizeSettings,
    fit_network,
    take_step,
)
from skdgn._geometry import MOST_DIMENSIONS
from skdgn._network import (
    ACTIVATIONS,
    Activation,
    Architecture,
    Network,
    activations_per_layer,
)
from skdgn._network import Blueprint as Layer
from skdgn._noise import COVARIANCE_TYPES, Noise
from skdgn._partition import Partition
from skdgn._posterior import Model, NetworkModel, UnlistedModel
from skdgn._runtime import Floats, VersionedMixin, value_ranges

# What sizes that are left open may be.
AUTO = "auto"
# Full noise, as in scikit-learn's `GaussianMixture`: that of all networks of a mixture.
TIED = "tied"
_LATENT_DIMENSIONS = (1, 2)
_STARTS = ("auto", "tree", "isomap", "pca", "independent", "sheet", "random")
_KINDS_OF_NOISE = ("full", "diag")
# What ``hidden_layers`` say themselves, and the defaults.
_INSTEAD_OF_LAYERS = {
    "hidden_layer_sizes": (16,),
    "activation": "leaky_relu",
    "negative_slope": 0.1,
}


class PiecewiseAffineDGN(
    DocumentedMixin,
    VersionedMixin,
    KnownNetworks,
    LatentInference,
    FittedByEM,
    BaseEstimator,
):
    """Deep generative network with an exact density.

    The model generates a sample in three steps: a latent point ``z ~ N(0, I)`` is drawn, a network
    ``g`` maps it to the space of the samples, and Gaussian noise is added, ``x = g(z) + noise``.
    Activations are piecewise affine, so latent space is divided into regions on each of which ``g``
    is affine, and the likelihood, the posterior and its moments are sums of Gaussian integrals over
    these regions: exact to rounding for up to three latent dimensions, estimates with a standard
    error for more.

    The model is fitted by expectation-maximization.  Samples need no scaling beforehand, and
    missing values (NaN) are allowed everywhere.

    Parameters
    ----------
    n_components : int, "auto" or sequence of int, default=1
        Number of latent dimensions: with one the network describes a curve, with two a surface.
        The number of regions grows with every dimension: one or two are fast, three are feasible
        for small networks.  From a sequence such as ``(1, 2, 3)``, the best is chosen by
        `criterion`; ``"auto"`` is ``(1, 2)``.
    hidden_layer_sizes : tuple of int, int or "auto", default=(16,)
        Number of units in each hidden layer; 8 means ``(8,)``, and ``()`` is the linear model
        (probabilistic PCA, factor analysis).  More units allow the curve more bends.  ``"auto"`` is
        one hidden layer, or none, which grows as long as `criterion` improves; see Notes.
    hidden_layers : sequence of layers, default=None
        Layers of `skdgn.layers`, activations included, instead of ``hidden_layer_sizes``,
        ``activation`` and ``negative_slope``: convolutions, pooling, max-out and others.  The last
        one is the output layer if it has weights and as many outputs as there are features;
        otherwise a dense output layer is appended.  If layers have weights, the fit starts from
        these.
    activation : {"relu", "leaky_relu", "abs"} or sequence of these, default="leaky_relu"
        Activation of the hidden units, or one for each hidden layer.  Units with ``"relu"`` may
        become inactive for all samples; ``"abs"`` folds latent space at each of its boundaries.
    negative_slope : float or sequence of float, default=0.1
        Slope of ``"leaky_relu"`` for negative inputs, or one for each hidden layer.
    covariance_type : {"spherical", "diag", "full", "factor", "tied", "auto"} or sequence, \
default="diag"
        Structure of the noise covariance: one variance for all features, one for each feature, a
        full matrix, or a variance for each feature and ``n_factors`` linear factors that the
        features share.  Use ``"spherical"`` for features measured in the same way and in the same
        unit, ``"full"`` for correlated noise if there are many more samples than features, and
        ``"factor"`` for correlated noise of many features.  ``"tied"`` is ``"full"``, and all
        networks of a `DGNMixture` share it, as in `GaussianMixture`.  From a sequence, the best is
        chosen by `criterion`; ``"auto"`` is ``("full", "diag")``.
    n_factors : int, default=3
        Number of factors if ``covariance_type="factor"``; ignored otherwise.  Each factor is an
        additional linear latent dimension, which does not change the regions and integrals.  0 is
        equivalent to ``"diag"``.
    criterion : {"validation", "bic", "aic"}, default="validation"
        Criterion by which sizes that are ``"auto"`` are chosen: the mean log density of a fifth of
        the samples, which are held out until the sizes are chosen, or `bic` or `aic` of all
        samples.  With fewer than ten distinct samples, none are held out and `bic` is used instead.
    weight_prior : {"gaussian", "laplace", "uniform"} or None, default=None
        Independent prior on each of the weights ``coefs_``; intercepts have no prior.  None is
        maximum likelihood.  A prior helps if there are few samples for many weights; ``"laplace"``
        sets some weights to exactly zero.
    prior_scale : float, default=1.0
        Standard deviation of ``"gaussian"``, scale of ``"laplace"`` (the density falls as
        ``exp(-|w| / scale)``), bound of ``"uniform"``.  For the output layer, it is in the units of
        the samples.
    m_step : {"joint", "layerwise"}, default="joint"
        Damped Gauss-Newton steps over all layers at once, or closed-form updates of one layer after
        the other, as in the paper.  In both cases, a step that decreases the exact likelihood is
        rejected; ``"joint"`` usually reaches a higher likelihood.
    init_params : {"auto", "tree", "isomap", "pca", "independent", "sheet", "random"}, \
default="auto"
        Initialization of the latent coordinates to which the first network is fitted.  ``"tree"``
        follows a minimum spanning tree (with two or more latent dimensions, it is the same as
        ``"isomap"``), ``"isomap"`` preserves distances along the samples, ``"pca"`` uses principal
        components, ``"independent"`` rotates these so that each is as non-Gaussian as possible,
        ``"sheet"`` uses two dimensions of ``"isomap"`` and principal components of the residuals,
        and ``"random"`` uses random coordinates.  ``"auto"`` tries the first three briefly, or with
        four or more latent dimensions the last three before ``"random"``, and keeps the one with
        the highest likelihood.  A fit that began with any other, and makes no progress, tries these
        as well, and goes on with the one with the highest likelihood.
    n_init : int, default=1
        Number of starts; the fit with the highest likelihood is kept.  The time is proportional to
        it.  Several starts are worthwhile if fits with different ``random_state`` end differently,
        as with narrow deep networks.
    max_iter : int, default=500
        Maximum number of iterations.  A warning is issued if it is reached.
    tol : float, default=1e-4
        EM stops when two consecutive iterations each improve the mean log-likelihood by less than
        this (nats per sample). 1e-3 is sufficient for a first fit.
    reg_covar : float, default=1e-6
        Minimum variance of the noise, as a fraction of the variance of the features.  The minimum
        is larger for features with tied values; see Notes.
    integration_tol : float, default=0.01
        Target of the standard error of each sample's log density (nats) with four or more latent
        dimensions, where integrals are estimates.  A tenth of it takes about a hundred times as
        long.  Ignored with fewer dimensions, where integrals are exact to rounding.
    warm_start : bool, default=False
        Whether `fit` continues from the parameters of the last fit.
    n_jobs : int, default=None
        Number of threads, as in joblib: -1 is all cores, None is one.  Within
        ``joblib.parallel_config(backend)``, processes (``"loky"``) or a cluster (``"dask"``) are
        used instead; the results are the same.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the starting values, and of draws without a seed of their own.  Pass an int for
        reproducible results.
    verbose : int, default=0
        1 shows the current task, its progress and the elapsed time: a progress bar for fits, a
        count of samples for other methods that take longer than seconds. 2 prints a line for every
        iteration and for the steps before the first. 0 is silent, except for warnings of the logger
        ``"skdgn"`` (see `logging`): once if functions have to be compiled first, and if a fit will
        take long. -1 silences these, too, the first one for the whole process.

    Attributes
    ----------
    coefs_ : list of ndarray
        Weights; ``coefs_[l]`` has shape (fan_out, fan_in).
    intercepts_ : list of ndarray
        Biases; ``intercepts_[l]`` has shape (fan_out,).
    noise_covariance_ : float, ndarray or tuple of two ndarray
        Covariance of the noise.  Depending on ``covariance_type``, a variance, variances
        (n_features,), a matrix (n_features, n_features), or for ``"factor"`` a pair of loadings F
        (n_features, n_factors) and variances psi (n_features,), whose covariance is
        ``F F' + diag(psi)``.
    noise_factors_ : ndarray of shape (n_features, n_factors)
        Loadings of the factors, rotated so that the factors are independent given a sample: the
        factor about which samples are most informative comes first, and its largest loading, in
        units of the noise that features do not share, is positive.  It has no columns if there are
        no factors.
    n_regions_ : int
        Number of regions of latent space on which the network is affine; with four or more latent
        dimensions, the number of those that 4,096 draws from the prior fell into.
    weights_ : ndarray of shape (n_regions,)
        Prior probability of each region.
    weights_error_ : ndarray of shape (n_regions,)
        Standard error of ``weights_``: zero for up to three latent dimensions, where they are exact
        to rounding; for more, regions and weights are estimated by draws from the prior.
    partition_ : Partition
        The regions: their geometry ``cells``, the ``patterns`` (n_regions, n_hidden_units) of units
        with a positive input, and the affine map on each, ``maps.slopes`` (n_regions, n_features,
        n_components) and ``maps.offsets`` (n_regions, n_features).  ``vertices(region)`` computes
        the vertices and rays of a region, with the extra ``cdd``.
    converged_ : bool
        Whether EM converged: steps over all layers gained less than ``tol`` twice in a sample and,
        with one hidden layer, moving some of its units to where residuals are large gained no more
        in as many iterations.
    n_iter_ : int
        Number of EM iterations.
    lower_bound_ : float
        Mean log-likelihood of the samples at the end of the fit, in nats; with a prior, plus the
        log density of ``coefs_`` divided by the sum of the samples' weights.
    lower_bound_error_ : float
        Standard error of ``lower_bound_``: zero for up to three latent dimensions.
    lower_bounds_ : ndarray of shape (n_iter,)
        The same after every iteration; it never decreases.  With four or more latent dimensions it
        is an estimate from points that do not change during the fit; ``lower_bound_`` is an
        estimate from different points.
    n_parameters_ : int
        Number of identifiable parameters: weights, intercepts and noise, less one for the scale of
        every hidden unit and the rotations of latent space that change the first layer; without
        hidden layers, no more than a Gaussian has.  Weights without effect, such as those of a dead
        unit, are counted, too.
    path_ : dict
        The models that were tried if any size was ``"auto"``, as columns for `pandas.DataFrame`:
        ``"part"`` (of the search, from 0), ``"n_networks"``, ``"n_components"``,
        ``"hidden_layer_sizes"`` (of every network), ``"n_hidden_units"``, ``"covariance_type"``,
        ``"n_parameters"``, ``"log_likelihood"`` (per sample), ``"criterion"`` (lower is better) and
        ``"seconds"``.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they were given as strings.

    See Also
    --------
    DGNImputer : Fills in missing values, in a pipeline.
    DGNOutlierDetector : Finds samples with a low density.

    Notes
    -----
    **Tied values.**  A network can pass through values that occur many times, and the likelihood
    grows without bound as the noise vanishes there.  If any values of a feature are tied, its noise
    variance is therefore never below ``max(min(g**2, v) / 12, t * min(h**2 / 12, v / n))``: g is
    the smallest gap between distinct values (``g**2 / 12`` is the variance of the error of rounding
    to such a grid), h the mean gap, v the variance, n the number of distinct samples in which the
    feature was observed, and t the fraction of ties, ``1 - (m - 1) / (n - 1)`` for m distinct
    values.  Counts and rounded values keep at least the noise of their rounding; features that are
    mostly zero keep the noise of one sample; features without ties are not affected.  A warning
    names the features whose noise is at this floor, because it determines how high their densities
    are.  With ``covariance_type="full"``, the noise covariance minus the diagonal matrix of the
    floors is positive semidefinite; with ``"spherical"``, the variance is not below the mean of the
    floors; with ``"factor"``, the variances besides the factors are not below the floors.  In
    `partial_fit`, the first chunk sets the floors.

    **Automatic sizes.**  With ``"auto"``, a linear network is fitted first.  Then units are added
    where residuals are large, half as many again each time, and removed where others can replace
    them, as long as `criterion` improves; each network continues from the one before it.  The best
    network is fitted to all samples, and ``converged_``, ``n_iter_`` and ``lower_bounds_`` are
    those of that fit.  Sizes are chosen on at most 10,000 samples.  ``init_params`` and ``n_init``
    are not used.  With ``warm_start=True``, the path begins with the network of the last fit;
    `partial_fit` keeps the sizes that were chosen on the first chunk.

    Examples
    --------
    >>> from skdgn import PiecewiseAffineDGN
    >>> from skdgn.datasets import make_noisy_circle
    >>> X = make_noisy_circle(200, random_state=0)
    >>> model = PiecewiseAffineDGN(hidden_layer_sizes=(8,), tol=1e-2, random_state=0).fit(X)
    >>> on_the_circle, in_its_middle = model.score_samples([[1.0, 0.0], [0.0, 0.0]])
    >>> bool(on_the_circle > in_its_middle)
    True

    A network with known weights:

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
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            StrOptions({AUTO}),
            tuple,
            list,
        ],
        "hidden_layers": [None, tuple, list],
        "hidden_layer_sizes": [
            tuple,
            list,
            Interval(Integral, 1, None, closed="left"),
            StrOptions({AUTO}),
        ],
        "activation": [StrOptions(set(ACTIVATIONS)), tuple, list],
        "negative_slope": [Interval(Real, None, None, closed="neither"), tuple, list],
        "covariance_type": [StrOptions({*COVARIANCE_TYPES, TIED, AUTO}), tuple, list],
        "n_factors": [Interval(Integral, 0, None, closed="left")],
        "criterion": [StrOptions(set(CRITERIA))],
        "weight_prior": [None, StrOptions(set(PRIORS))],
        "prior_scale": [Interval(Real, 0.0, None, closed="neither")],
        "m_step": [StrOptions(set(M_STEPS))],
        "init_params": [StrOptions(set(_STARTS))],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "reg_covar": [Interval(Real, 0.0, None, closed="neither")],
        "integration_tol": [Interval(Real, 0.0, None, closed="neither")],
        "warm_start": ["boolean"],
        **WORK_CONSTRAINTS,
    }

    _fit_parameters = staticmethod(fit_network)
    _take_step = staticmethod(take_step)

    # Set by fit.
    coefs_: list[Floats]
    intercepts_: list[Floats]
    noise_covariance_: float | Floats | tuple[Floats, Floats]
    _network: Network
    _model: NetworkModel

    def __init__(
        self,
        n_components: int | str | Sequence[int] = 1,
        *,
        hidden_layer_sizes: int | str | Sequence[int] = (16,),
        hidden_layers: Sequence[Layer] | None = None,
        activation: str | Sequence[str] = "leaky_relu",
        negative_slope: float | Sequence[float] = 0.1,
        covariance_type: str | Sequence[str] = "diag",
        n_factors: int = 3,
        criterion: str = "validation",
        weight_prior: str | None = None,
        prior_scale: float = 1.0,
        m_step: str = "joint",
        init_params: str = "auto",
        n_init: int = 1,
        max_iter: int = 500,
        tol: float = 1e-4,
        reg_covar: float = 1e-6,
        integration_tol: float = 0.01,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.hidden_layers = hidden_layers
        self.activation = activation
        self.negative_slope = negative_slope
        self.covariance_type = covariance_type
        self.n_factors = n_factors
        self.criterion = criterion
        self.weight_prior = weight_prior
        self.prior_scale = prior_scale
        self.m_step = m_step
        self.init_params = init_params
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.reg_covar = reg_covar
        self.integration_tol = integration_tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_samples(
        self,
        samples: NDArray[Any],
        weights: Floats,
        settings: Settings | SizeSettings,
        continuation: str | None,
        sets_units: bool,
    ) -> Settings | SizeSettings:
        self._candidates()[0].architecture.check_features(samples.shape[1])
        if sets_units:
            check_observed(samples, weights, self._column_names(), self._workers())
        ranges = value_ranges(samples, weights)
        self._check_ranges(ranges, sets_units)
        if continuation is not None:
            self._check_continuation(ranges, continuation, self._column_names(), sets_units)
        return settings

    def _check_ranges(self, ranges: tuple[Floats, Floats], sets_units: bool) -> None:
        """Refuse values, of these ranges, of which a fit cannot compute squares."""
        names = self._column_names()
        check_sizes(ranges, names)
        if sets_units:
            for kind in self._kinds_of_noise():
                check_spreads(ranges, kind, float(self.reg_covar), names)
            if self.weight_prior is not None:
                check_prior_scale(float(self.prior_scale), ranges, names)

    def _settings(self) -> Settings | SizeSettings:
        """Check what scikit-learn's constraints leave open."""
        candidates = self._candidates()
        if not self._is_open():
            return candidates[0]
        branches = tuple(map(MixtureSettings.of_one, candidates))
        return SizeSettings(branches, self._activation_of_any(), False, self.criterion)

    def _is_open(self) -> bool:
        """Whether some sizes are to be chosen."""
        return (
            self._activation_of_any() is not None
            or len(self._latent_dimensions()) > 1
            or len(self._kinds_of_noise()) > 1
        )

    def _latent_dimensions(self) -> tuple[int, ...]:
        """Return the numbers of latent dimensions that may be."""
        if isinstance(self.n_components, str):
            return _LATENT_DIMENSIONS
        numbers = check_integers(self.n_components, "n_components")
        if not numbers:
            raise ValueError(f"n_components must not be empty, got {self.n_components!r}.")
        if max(numbers) > MOST_DIMENSIONS:
            raise ValueError(
                f"n_components must be between 1 and {MOST_DIMENSIONS}, got {max(numbers)}."
            )
        return numbers

    def _kinds_of_noise(self) -> tuple[str, ...]:
        """Return the kinds of noise that may be."""
        if isinstance(self.covariance_type, str):
            named = {AUTO: _KINDS_OF_NOISE, TIED: ("full",)}
            return named.get(self.covariance_type, (self.covariance_type,))
        kinds = tuple(self.covariance_type)
        for kind in kinds or ("nothing",):
            if kind not in COVARIANCE_TYPES:
                raise ValueError(
                    f"covariance_type must hold some of {COVARIANCE_TYPES}, "
                    f"got {kind!r} in {self.covariance_type!r}."
                )
        return kinds

    def _activation_of_any(self) -> Activation | None:
        """Return the activation of hidden units if their number is open."""
        if not isinstance(self.hidden_layer_sizes, str):
            return None
        return activations_per_layer(self.activation, self.negative_slope, 1)[0]

    def _candidates(self) -> list[Settings]:
        """Settings for all that is open, but for hidden layers: these are as small as may be."""
        return [
            Settings(
                architecture=self._architecture(n_components),
                covariance_type=kind,
                n_factors=int(self.n_factors),
                weight_prior=self.weight_prior,
                prior_scale=float(self.prior_scale),
                m_step=self.m_step,
                init_params=self.init_params,
                n_init=int(self.n_init),
                max_iter=int(self.max_iter),
                tol=float(self.tol),
                reg_covar=float(self.reg_covar),
                workers=self._workers(),
                integration_tol=float(self.integration_tol),
            )
            for n_components in self._latent_dimensions()
            for kind in self._kinds_of_noise()
        ]

    def _architecture(self, n_components: int) -> Architecture:
        if self.hidden_layers is not None:
            for name, default in _INSTEAD_OF_LAYERS.items():
                given = getattr(self, name)
                if not (isinstance(given, type(default)) and given == default):
                    raise ValueError(
                        f"{name} must be left at its default if hidden_layers are given, "
                        f"got {given!r}."
                    )
            return Architecture.of_layers(n_components, self.hidden_layers)
        if isinstance(self.hidden_layer_sizes, str):
            return Architecture(n_components)
        widths = check_integers(self.hidden_layer_sizes, "hidden_layer_sizes")
        activations = activations_per_layer(self.activation, self.negative_slope, len(widths))
        return Architecture(n_components, widths, activations)

    def _last_parameters(self, settings: Settings | SizeSettings, reason: str) -> Parameters:
        return np.ones(1), [self._last_network(self, reason)]

    def _last_network(self, template: PiecewiseAffineDGN, reason: str) -> tuple[Network, Noise]:
        """Return the network of the last fit, for one like a template to go on from."""
        model = self._fitted_model()
        fitted, noise = model.network.architecture, model.noise
        n_features = model.network.n_features
        # What is open is as it was.
        settings = max(
            template._candidates(),
            key=lambda own: (
                own.architecture.n_components == fitted.n_components,
                own.covariance_type == noise.covariance_type,
            ),
        )
        wanted = settings.architecture
        if (activation := template._activation_of_any()) is not None:
            # One hidden layer or none, of any size.
            widths = fitted.hidden_layer_sizes[:1]
            wanted = Architecture.alike(wanted.n_components, widths, activation)
        for name, new, old in (
            ("n_components", wanted.n_components, fitted.n_components),
            ("hidden_layer_sizes", wanted.hidden_layer_sizes, fitted.hidden_layer_sizes),
            ("activation", list(map(str, wanted.activations)), list(map(str, fitted.activations))),
            ("hidden_layers", wanted.outline(n_features), fitted.outline(n_features)),
            *((name, getattr(settings, name), old) for name, old in noise.parameters.items()),
        ):
            if new != old:
                raise ValueError(f"{reason} needs the {name} of the last fit, {old}, got {new}.")
        return model.network, noise

    def _attributes(self, weights: Floats, networks: list[tuple[Network, Noise]]) -> dict[str, Any]:
        tolerance = float(self.integration_tol)
        return attributes_of_model(Model.build(*networks[0], integration_tol=tolerance))

    def _has_prior(self) -> bool:
        return self.weight_prior is not None

    def _fitted_model(self) -> NetworkModel:
        check_is_fitted(self)
        if not hasattr(self, "_model"):
            noise = Noise.from_covariance(self.noise_covariance_, self._network.n_features)
            if "n_regions_" in vars(self):
                tolerance = float(self.integration_tol)
                self._model = Model.build(self._network, noise, integration_tol=tolerance)
            else:
                self._model = UnlistedModel(self._network, noise)
        return self._model

    # What can be computed again is not part of the state: it is large, and pickles stay simple.
    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_model", None)
        if "_network" in state:
            state["_network"] = plain_network(state["_network"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "_network"):
            self._network = network_from_plain(self._network, self.coefs_, self.intercepts_)

    def __getattr__(self, name: str) -> Any:
        if name in (
            "n_regions_",
            "partition_",
            "weights_",
            "weights_error_",
        ) and "_network" in vars(self):
            self._fitted_model().list_regions()  # which says why there are none
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def layers_(self) -> list[Layer]:
        """Layers of the network with their weights, as `from_network` takes them."""
        check_is_fitted(self)
        return self._network.filled_blueprints()

    @property
    def n_parameters_(self) -> int:  # type: ignore[override]  # counted when it is asked for
        """Number of identifiable parameters."""
        return self._fitted_model().n_parameters

    @property
    def noise_factors_(self) -> Floats:
        """Loadings of the factors of the noise, (n_features, n_factors)."""
        return self._fitted_model().noise.principal_loadings

    @property
    def weights_(self) -> Floats:
        """Prior probabilities of the regions, (n_regions,)."""
        return np.exp(self._fitted_model().prior.log_masses)

    @property
    def weights_error_(self) -> Floats:
        """Standard errors of the prior probabilities, (n_regions,)."""
        return self.weights_ * self._fitted_model().prior.errors

    @property
    def partition_(self) -> Partition:
        """Regions of latent space, with the affine map of the network on each of them."""
        return self._fitted_model().list_regions()

    @property
    def _n_features_out(self) -> int:
        """Number of columns of `transform`, for `get_feature_names_out`."""
        return self._network.n_components
