"""DGNMixture: several networks, fitted together."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
)
from sklearn.utils.validation import check_is_fitted

from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.fits import NOT_ITERATED, FittedByEM, attributes_of_model
from skdgn._estimators.inputs import check_observed
from skdgn._estimators.methods import InformationCriteria, SumOfDensities
from skdgn._estimators.network import AUTO, TIED, PiecewiseAffineDGN
from skdgn._estimators.sklearn_parts import WORK_CONSTRAINTS, Interval, StrOptions
from skdgn._fit import (
    CRITERIA,
    MixtureSettings,
    Parameters,
    SizeSettings,
    fit_mixture,
    take_mixture_step,
)
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._posterior import Model, NetworkModel
from skdgn._runtime import Floats, VersionedMixin, Workers, value_ranges

# Of a mixture that nobody has asked for: networks at most, and samples for each at least.
_MOST_DEFAULT_NETWORKS = 4
_DEFAULT_SAMPLES = 10
# Mixtures that are averaged where nobody says how many: fewer have a share worth mentioning.
_MOST_AVERAGED = 8
_STARTS = ("gaussian_mixture", "kmeans", "random")
# A sample's responsibilities, as users give them, add up to 1 but for this.
_ROUNDING = 1e-6


class DGNMixture(
    DocumentedMixin,
    VersionedMixin,
    InformationCriteria,
    FittedByEM,
    SumOfDensities,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseEstimator,
):
    """Mixture of deep generative networks with an exact density.

    The density is ``p(x) = sum_k weights_[k] p_k(x)``, where every ``p_k`` is a
    `PiecewiseAffineDGN` with its own parameters and noise.  The model is a Gaussian mixture whose
    components can bend: without hidden layers it is a Gaussian mixture
    (``covariance_type="full"``), a mixture of factor analyzers (``"diag"``, ``"factor"``) or of
    probabilistic principal components (``"spherical"``); with one network it is that network.  Use
    it for clusters, closed curves, and noise that differs from place to place.

    The model is fitted by expectation-maximization.  Samples need no scaling beforehand, and
    missing values (NaN) are allowed everywhere.

    Parameters
    ----------
    estimator : PiecewiseAffineDGN, default=None
        The kind of network: its ``n_components``, ``hidden_layer_sizes``, ``activation``,
        ``negative_slope``, ``covariance_type``, ``n_factors``, ``weight_prior``, ``prior_scale``,
        ``m_step`` and ``reg_covar`` are those of every network; its other parameters are not used.
        None is ``PiecewiseAffineDGN(hidden_layer_sizes="auto", covariance_type="auto")`` if
        ``n_networks`` is ``"auto"``, and otherwise
        ``PiecewiseAffineDGN(hidden_layer_sizes=(4,), covariance_type="full")``: a curve with four
        bends, which is sufficient if several networks share the samples, and noise of any Gaussian
        shape around it.  With more than a few dozen features, ``covariance_type="factor"`` has far
        fewer parameters.
    n_networks : int or "auto", default="auto"
        Number of networks; ``"auto"`` chooses it by `criterion`; see Notes.
    criterion : {"validation", "bic", "aic"}, default="validation"
        Criterion by which sizes that are ``"auto"`` are chosen: the mean log density of a fifth of
        the samples, which are held out until the sizes are chosen, or `bic` or `aic` of all
        samples.  With fewer than ten distinct samples, none are held out and `bic` is used instead.
    n_averaged : int or "auto", default="auto"
        Maximum number of mixtures on the path of sizes that are averaged, if any size is
        ``"auto"``: an average of mixtures is a mixture of all their networks, which predicts new
        samples better than any of them, but whose networks are not clusters.  The mixtures and
        their weights are those that maximize the likelihood of the held-out samples; with `bic` and
        `aic`, the weights are proportional to ``exp(-criterion / 2)``, which is close to zero for
        all but the best.  Each mixture is fitted to all samples; ``lower_bound_``,
        ``lower_bounds_`` and ``n_iter_`` are those of the one with the highest likelihood.
        ``"auto"`` is 8 if ``n_networks`` is ``"auto"``, ``criterion`` is ``"validation"`` and
        ``warm_start`` is False, and 1 otherwise.
    init_params : {"gaussian_mixture", "kmeans", "random"} or array-like, default="gaussian_mixture"
        How the fit is initialized.  ``"gaussian_mixture"`` starts from scikit-learn's
        `GaussianMixture`, or from a mixture of linear networks if values are missing or sample
        weights are not integers; each component is converted to an equivalent network, so that the
        likelihood of the fit is at least as high.  ``"kmeans"`` starts from the clusters of
        `KMeans`, and ``"random"`` from the samples nearest to each of ``n_networks`` samples drawn
        at random.  An array contains cluster labels (n_samples,), from 0 to ``n_networks - 1``, or
        responsibilities (n_samples, n_networks).
    weight_concentration_prior : float, default=2.0
        Concentration of the Dirichlet prior on ``weights_``, which has the effect of
        ``weight_concentration_prior - 1`` additional samples in each network.  1 is maximum
        likelihood, and may leave a network without samples.
    noise_prior_weight : "auto" or float, default="auto"
        Weight of the inverse Wishart prior on the noise of every network, in samples: the prior has
        the effect of this many additional samples in each network, with the noise that is typical
        of all networks.  It prevents networks with few samples from collapsing onto them.
        ``"auto"`` estimates the weight from the networks, by empirical Bayes: the more similar
        their noise, the larger the weight, up to the number of features.  0 is maximum likelihood.
    tied_noise : bool, default=False
        Whether all networks share one noise covariance, of the estimator's ``covariance_type``,
        which has far fewer parameters if there are many features.  If True, or if the estimator has
        ``covariance_type="tied"``, the noise has no prior, and ``refine`` has no effect.
    n_init : int, default=1
        Number of starts; the fit with the highest likelihood is kept.
    refine : bool, default=True
        Whether to search for better networks than EM alone finds.  At the start, each network is
        fitted to its own samples, from curves found on these; when EM converges, two networks are
        merged and another is split, up to three times.  Only changes that increase the objective
        are kept.  False takes a half to a tenth of the time, but most fits then end with a lower
        likelihood.
    max_iter : int, default=200
        Maximum number of iterations.  A warning is issued if it is reached.
    tol : float, default=1e-3
        EM stops when two consecutive iterations each improve the mean log-likelihood by less than
        this (nats per sample).
    warm_start : bool, default=False
        Whether `fit` continues from the parameters of the last fit.  The prior of the noise is
        estimated again from these, unless ``noise_prior_weight`` is a number; ``lower_bound_`` can
        then be lower than that of the last fit.
    n_jobs : int, default=None
        Number of threads, as in joblib: -1 is all cores, None is one.  Within
        ``joblib.parallel_config(backend)``, processes or a cluster are used instead; the results
        are the same.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the starting values, and of draws without a seed of their own.  Pass an int for
        reproducible results.
    verbose : int, default=0
        1 shows a progress bar, 2 prints a line for every iteration, -1 silences everything.

    Attributes
    ----------
    weights_ : ndarray of shape (n_networks,)
        Prior probability of each network.
    networks_ : list of PiecewiseAffineDGN
        The fitted networks.
    converged_ : bool
        Whether EM converged.
    n_iter_ : int
        Number of EM iterations.
    lower_bound_ : float
        Mean log-likelihood of the samples at the end of the fit, in nats, plus the log density of
        the priors divided by the sum of the samples' weights.  The log prior of the noise is
        relative to its mode, that of ``weights_`` is not normalized.
    lower_bounds_ : ndarray of shape (n_iter,)
        The same after every iteration; it never decreases.
    n_parameters_ : float
        Number of identifiable parameters.
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
    PiecewiseAffineDGN : One network.
    sklearn.mixture.GaussianMixture : Components that do not bend.

    Notes
    -----
    In each iteration, the samples are weighted by the responsibilities of every network, and all
    networks take a damped Gauss-Newton step.  If this decreases the sum of the exact log-likelihood
    and the log prior, networks whose own samples became less likely take shorter steps, until it no
    longer decreases.

    **Automatic sizes.**  With ``"auto"``, mixtures of one, two, four and more linear networks are
    fitted first, with every candidate for the noise.  From the best of them, and from a single
    network, a path of mixtures begins: hidden units are added to networks or removed, and networks
    are split or merged; each change is tried on the samples that belong to the network, and EM
    follows, as long as `criterion` improves.  The best mixture, or an average (``n_averaged``), is
    fitted to all samples.  To find clusters, set ``n_networks``, or use ``criterion="bic"``.  See
    `PiecewiseAffineDGN` for further details; ``n_init`` and ``refine`` are not used.  All networks
    have the same number of latent dimensions, but each has its own number of hidden units; the
    mixtures of an average may also differ in the kind of noise.

    Examples
    --------
    Two moons, one network each:

    >>> from sklearn.datasets import make_moons
    >>> from skdgn import DGNMixture
    >>> X, moons = make_moons(300, noise=0.05, random_state=0)
    >>> mixture = DGNMixture(n_networks=2, random_state=0).fit(X)
    >>> labels = mixture.predict(X)
    >>> bool(max((labels == moons).mean(), (labels != moons).mean()) > 0.99)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [None, PiecewiseAffineDGN],
        "n_networks": [Interval(Integral, 1, None, closed="left"), StrOptions({AUTO})],
        "criterion": [StrOptions(set(CRITERIA))],
        "n_averaged": [Interval(Integral, 1, None, closed="left"), StrOptions({AUTO})],
        "init_params": [str, "array-like"],
        "weight_concentration_prior": [Interval(Real, 1.0, None, closed="left")],
        "noise_prior_weight": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="left")],
        "tied_noise": ["boolean"],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "refine": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "warm_start": ["boolean"],
        **WORK_CONSTRAINTS,
    }

    _fit_parameters = staticmethod(fit_mixture)
    _take_step = staticmethod(take_mixture_step)

    # Set by fit.
    networks_: list[PiecewiseAffineDGN]

    def __init__(
        self,
        estimator: PiecewiseAffineDGN | None = None,
        n_networks: int | str = AUTO,
        *,
        criterion: str = "validation",
        n_averaged: int | str = AUTO,
        init_params: Any = "gaussian_mixture",
        weight_concentration_prior: float = 2.0,
        noise_prior_weight: str | float = "auto",
        tied_noise: bool = False,
        n_init: int = 1,
        refine: bool = True,
        max_iter: int = 200,
        tol: float = 1e-3,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_networks = n_networks
        self.criterion = criterion
        self.n_averaged = n_averaged
        self.init_params = init_params
        self.weight_concentration_prior = weight_concentration_prior
        self.noise_prior_weight = noise_prior_weight
        self.tied_noise = tied_noise
        self.n_init = n_init
        self.refine = refine
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def transform(self, X: ArrayLike) -> Floats:
        """Compute posterior means of the latent variables of each sample's most probable network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_components)
            Posterior means for the network returned by `predict`.  Latent points of different
            networks are not comparable.

        Examples
        --------
        >>> from skdgn import DGNMixture
        >>> from skdgn.datasets import make_noisy_circle
        >>> X = make_noisy_circle(200, random_state=0)
        >>> mixture = DGNMixture(n_networks=2, random_state=0).fit(X)
        >>> mixture.transform(X).shape
        (200, 1)
        """
        check_is_fitted(self)
        return self._ask_likeliest(X, self._n_features_out, NetworkModel.means)

    def transform_factors(self, X: ArrayLike) -> Floats:
        """Compute the posterior mean of the linear factors of each sample's most probable network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        factors : ndarray of shape (n_samples, n_factors)
            Posterior means for the network returned by `predict`, whose loadings are its
            ``noise_factors_``; zero if it has none.  There are no columns unless
            ``covariance_type="factor"``.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skdgn import DGNMixture, PiecewiseAffineDGN
        >>> X = load_iris().data
        >>> network = PiecewiseAffineDGN(
        ...     hidden_layer_sizes=(), covariance_type="factor", n_factors=2
        ... )
        >>> mixture = DGNMixture(network, n_networks=2, tol=1e-2, random_state=0).fit(X)
        >>> mixture.transform_factors(X).shape
        (150, 2)
        """
        check_is_fitted(self)
        n_factors = max(own._fitted_model().noise.n_factors for own in self.networks_)
        return self._ask_likeliest(X, n_factors, NetworkModel.factor_means)

    def _ask_likeliest(
        self, X: ArrayLike, n_columns: int, answer: Callable[[NetworkModel, Any, Workers], Floats]
    ) -> Floats:
        """Ask each sample's likeliest network for so many numbers."""
        samples = self._validate_samples(X)
        model, workers = self._fitted_model(), self._workers()
        labels = model.responsibilities(samples, workers).argmax(axis=1)
        answers = np.zeros((len(samples), n_columns))
        for number, network in enumerate(self.networks_):
            chosen = np.flatnonzero(labels == number)
            if chosen.size > 0:
                own = answer(network._fitted_model(), samples[chosen], workers)
                answers[chosen, : own.shape[1]] = own  # an average may have noise of several kinds
        return answers

    def _check_samples(
        self,
        samples: NDArray[Any],
        weights: Floats,
        settings: MixtureSettings | SizeSettings,
        continuation: str | None,
        sets_units: bool,
    ) -> MixtureSettings | SizeSettings:
        template = self._template()
        if sets_units:
            check_observed(samples, weights, self._column_names(), self._workers())
        ranges = value_ranges(samples, weights)
        template._check_ranges(ranges, sets_units)
        if continuation is not None:
            self._check_continuation(ranges, continuation, self._column_names(), sets_units)
        if not sets_units:
            return settings
        n_samples = int(np.count_nonzero(weights))
        if not isinstance(self.n_networks, str) and n_samples < self.n_networks:
            raise ValueError(
                "n_networks must be at most the number of samples of positive weight, "
                f"{n_samples}, got {self.n_networks}."
            )
        if isinstance(settings, MixtureSettings):
            return replace(settings, init=self._check_start(len(samples), settings.n_networks))
        if not isinstance(self.init_params, str) or self.init_params not in _STARTS:
            raise ValueError(
                f"init_params must be one of {_STARTS} if sizes are to be chosen, "
                f"got {self.init_params!r}."
            )
        branches = tuple(replace(own, init=self.init_params) for own in settings.branches)
        return replace(settings, branches=branches)

    def _template(self) -> PiecewiseAffineDGN:
        """Return an unfitted network of the kind that all are, its parameters checked."""
        template: PiecewiseAffineDGN
        if self.estimator is None and self.n_networks == AUTO:
            template = PiecewiseAffineDGN(hidden_layer_sizes=AUTO, covariance_type=AUTO)
        elif self.estimator is None:
            template = PiecewiseAffineDGN(hidden_layer_sizes=(4,), covariance_type="full")
        else:
            template = clone(self.estimator)
            template._validate_params()
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(template, name, getattr(self, name))
        return template.set_params(n_jobs=self.n_jobs, verbose=self.verbose)

    def _has_prior(self) -> bool:
        return (
            self._template()._has_prior()
            or self.weight_concentration_prior > 1.0
            or (self.noise_prior_weight != 0.0 and not self._shares_noise())
        )

    def _shares_noise(self) -> bool:
        """Whether all networks have one noise, however that is asked for."""
        return bool(self.tied_noise) or self._template().covariance_type == TIED

    def _settings(self) -> MixtureSettings | SizeSettings:
        template, any_networks = self._template(), self.n_networks == AUTO
        branches = tuple(
            MixtureSettings(
                network=network,
                n_networks=1 if any_networks else int(self.n_networks),
                init="gaussian_mixture",  # until the samples are known
                concentration=float(self.weight_concentration_prior),
                noise_prior_weight=(
                    None
                    if isinstance(self.noise_prior_weight, str)
                    else float(self.noise_prior_weight)
                ),
                is_tied=self._shares_noise(),
                n_init=int(self.n_init),
                refine=bool(self.refine),
                max_iter=int(self.max_iter),
                tol=float(self.tol),
            )
            for network in template._candidates()
        )
        if not any_networks and not template._is_open():
            if self.n_averaged not in (AUTO, 1):
                raise ValueError(
                    f'n_averaged must be 1 or "auto" if no size is "auto", got {self.n_averaged}.'
                )
            return branches[0]
        if self._shares_noise():
            raise ValueError(
                "tied_noise must be False if sizes are to be found, whose candidates are fits of "
                "single networks, "
                f"got {self.tied_noise} with covariance_type={template.covariance_type!r}."
            )
        activation = template._activation_of_any()
        n_averaged = self.n_averaged
        if n_averaged == AUTO:
            pays = any_networks and self.criterion == "validation" and not self.warm_start
            n_averaged = _MOST_AVERAGED if pays else 1
        return SizeSettings(branches, activation, any_networks, self.criterion, int(n_averaged))

    def _check_start(self, n_samples: int, n_networks: int) -> str | Floats:
        """Return a method, or responsibilities (n, K)."""
        start = self.init_params
        if isinstance(start, str):
            if start not in _STARTS:
                raise ValueError(
                    f"init_params must be one of {_STARTS} or an array, got {start!r}."
                )
            return start
        values = np.asarray(start)
        if (
            values.shape not in ((n_samples,), (n_samples, n_networks))
            or values.dtype.kind not in "biuf"
        ):
            raise ValueError(
                f"init_params must be labels of shape ({n_samples},) or responsibilities of shape "
                f"({n_samples}, {n_networks}), got {values.dtype} of shape {values.shape}."
            )
        if values.ndim == 1:
            wrong = ~np.isin(values, np.arange(n_networks))
            if wrong.any():
                raise ValueError(
                    f"init_params must hold labels from 0 to {n_networks - 1}, "
                    f"got {values[wrong][0]}."
                )
            return np.asarray(np.eye(n_networks)[values.astype(np.intp)])
        sums = values.sum(axis=1)
        if not np.all(values >= 0.0) or not np.all(np.abs(sums - 1.0) < _ROUNDING):
            raise ValueError(
                "init_params must hold responsibilities that are not negative and add up to 1 for "
                f"every sample, got values from {values.min()} to {values.max()} and sums from "
                f"{sums.min()} to {sums.max()}."
            )
        return np.asarray(values / sums[:, None], dtype=np.float64)

    def _attributes(self, weights: Floats, networks: list[tuple[Network, Noise]]) -> dict[str, Any]:
        template, fitted = self._template(), []
        for network, noise in networks:
            own = copy.copy(template)
            own.__dict__.update(attributes_of_model(Model.build(network, noise)), **NOT_ITERATED)
            if template._is_open():
                own.n_components = network.n_components
                own.covariance_type = noise.covariance_type
                if own.hidden_layer_sizes == AUTO:
                    own.hidden_layer_sizes = network.hidden_layer_sizes
            fitted.append(own)
        n_parameters = len(weights) - 1 + sum(own.n_parameters_ for own in fitted)
        if self._shares_noise():
            models = [own._fitted_model() for own in fitted]
            shared = models[0].noise.n_parameters
            shared += sum(model.n_weights for model in models)
            n_parameters = min(n_parameters, len(weights) - 1 + shared)
        return {"weights_": weights, "networks_": fitted, "n_parameters_": n_parameters}

    def _last_parameters(self, settings: MixtureSettings | SizeSettings, reason: str) -> Parameters:
        if self.n_networks not in (AUTO, len(self.networks_)):
            raise ValueError(
                f"{reason} needs the n_networks of the last fit, {len(self.networks_)}, "
                f"got {self.n_networks}."
            )
        template = self._template()
        return self.weights_, [
            network._last_network(template, reason) for network in self.networks_
        ]

    def _members(self) -> list[PiecewiseAffineDGN]:
        return self.networks_

    @property
    def _n_features_out(self) -> int:
        """Number of columns of `transform`, for `get_feature_names_out`."""
        return int(self.networks_[0]._n_features_out)


def default_mixture(total_weight: float = np.inf, covariance_type: str = "full") -> DGNMixture:
    """Return what is fitted to samples of this weight where no estimator was given.

    Chosen by `benchmarks/defaults.py`; of few samples, fewer networks than usual take their share.
    """
    network = PiecewiseAffineDGN(1, hidden_layer_sizes=(4,), covariance_type=covariance_type)
    n_networks = min(_MOST_DEFAULT_NETWORKS, max(1, total_weight // _DEFAULT_SAMPLES))
    return DGNMixture(network, int(n_networks))
