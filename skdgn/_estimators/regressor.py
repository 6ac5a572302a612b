"""DGNRegressor: the distribution of targets given inputs, from an exact density of both."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.ensembles import DGNEnsemble
from skdgn._estimators.fits import (
    DelegatingMixin,
    collect_complaints,
    complain,
    unchanged_by_failure,
)
from skdgn._estimators.folds import FEWEST_SAMPLES, split
from skdgn._estimators.inputs import check_observed, check_weights, validate_samples
from skdgn._estimators.methods import ANY_DENSITY, ExactDensity
from skdgn._estimators.mixture import DGNMixture
from skdgn._estimators.network import PiecewiseAffineDGN
from skdgn._estimators.sklearn_parts import WORK_CONSTRAINTS, StrOptions, fit_context
from skdgn._posterior import (
    MOST_INTERVALS,
    FeatureDistributions,
    feature_modes,
    highest_density_sets,
    smallest_coverages,
)
from skdgn._runtime import Bools, Floats, VersionedMixin, Workers, check_integer

_KINDS = ("central", "highest_density")
# The grid on which sets of highest density are found ends at a probability of 1e-6 on either side.
_SMALLEST_COVERAGE, _LARGEST_COVERAGE = 1e-6, 0.9999
# Of the density that is fitted if none is given: samples for each network of a mixture and most of
# these, for every size; mixtures of each size.
_SIZES = ((20, 64), (40, 32), (80, 16))
_N_STARTS = 3


class DGNRegressor(DelegatingMixin, DocumentedMixin, VersionedMixin, RegressorMixin, BaseEstimator):
    """Regression by the exact conditional distribution of a deep generative network.

    A joint density of inputs and targets is fitted, from which everything is computed exactly:
    means, quantiles, intervals, densities, draws.  The distribution of a target may have several
    modes, and its spread may depend on the inputs.  Missing inputs (NaN) are allowed everywhere:
    predictions are then conditional on the observed inputs.

    Parameters
    ----------
    estimator : PiecewiseAffineDGN, DGNMixture or DGNEnsemble, default=None
        The density to fit to inputs and targets.  None is a `DGNEnsemble` of ten mixtures of linear
        networks with full noise, each fitted to 80 % of the samples from a random start: three with
        a network for every 20 samples and at most 64, three each with a half and a quarter as many,
        and one Gaussian.  The large mixtures follow their samples closely, the small ones are
        robust, and their average combines both.
    prediction : {"mean", "median", "mode"}, default="mean"
        Statistic of the distribution of each target that `predict` returns.
    cv : int, cross-validation splitter, iterable of splits or None, default=None
        If given, held-out samples determine the width of `predict_interval`; see Notes.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the estimator; None keeps its own setting.
    n_jobs : int, default=None
        Number of threads of the estimator; None keeps its own setting.
    verbose : int, default=0
        Verbosity of the estimator; 0 keeps its own setting.

    Attributes
    ----------
    estimator_ : estimator
        The fitted density of inputs and targets: inputs are its first features.
    n_outputs_ : int
        Number of targets.
    n_features_in_ : int
        Number of inputs.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the inputs, if they were strings.

    See Also
    --------
    DGNClassifier : The same for classes.
    DGNMixture.conditional_quantiles : Any features given any others.

    Notes
    -----
    Multiple targets have a joint distribution: `score_samples` and `sample` take their dependence
    into account.  All other methods treat each target separately.

    **Calibrated intervals.**  The intervals of the density have the nominal coverage if the density
    is correct; with few samples most are too narrow.  With `cv` the density is fitted again without
    each of several folds in turn, to compute for each held-out sample the probability of the
    smallest interval that would have contained its target.  `predict_interval` then replaces
    ``coverage`` by the probability that would have been sufficient for a fraction ``coverage`` of
    them.  This is conformal prediction, whose coverage is valid on average over new samples like
    those of `fit`, whatever the density.  Folds are those of `DGNOutlierDetector`.

    Inputs that are unrelated to the targets are modeled, too.  If there are many of them, remove
    them, or use an estimator with diagonal noise.

    Examples
    --------
    Two modes, and two intervals:

    >>> import numpy as np
    >>> from skdgn import DGNRegressor
    >>> rng = np.random.default_rng(0)
    >>> y = rng.normal(size=400)
    >>> X = np.abs(y)[:, None] + 0.05 * rng.normal(size=(400, 1))
    >>> regressor = DGNRegressor(random_state=0).fit(X, y)
    >>> regressor.predict_interval([[1.0]], coverage=0.9, kind="highest_density").round(1)
    array([[[-1.2, -0.8],
            [ 0.8,  1.1]]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [ANY_DENSITY, None],
        "prediction": [StrOptions({"mean", "median", "mode"})],
        "cv": ["cv_object"],
        **WORK_CONSTRAINTS,
    }

    # Set by fit.
    n_features_in_: int
    n_outputs_: int
    # Densities, samples that these were not fitted to, and their weights.
    _held_out: list[tuple[ExactDensity, NDArray[Any], Floats]]

    def __init__(
        self,
        estimator: ExactDensity | None = None,
        *,
        prediction: str = "mean",
        cv: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.prediction = prediction
        self.cv = cv
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # The estimator's own parameters are checked when it is fitted.
    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the joint density of inputs and targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs; missing values are NaN.  Every input needs at least one observed value.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets; missing values are NaN. Every target needs at least one observed value.
            Samples without targets contribute to the distribution of the inputs.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 counts a sample twice.

        Returns
        -------
        self : DGNRegressor
            The fitted estimator.

        Examples
        --------
        >>> from skdgn import DGNRegressor, PiecewiseAffineDGN
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0.1, 0.9, 2.1, 2.9, 3.9]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> DGNRegressor(linear).fit(X, y).predict([[2.5]]).round(1)
        array([2.5])
        """
        with unchanged_by_failure(self):
            samples = validate_samples(self, X, reset=True, min_samples=2)
            targets = self._read_targets(y, samples)
            weights = check_weights(sample_weight, samples, min_samples=2)
            names = list(getattr(self, "feature_names_in_", range(samples.shape[1])))
            check_observed(samples, weights, names, Workers())
            joint = np.column_stack([samples, targets])
            if not (~np.isnan(joint[weights > 0.0, samples.shape[1] :])).any(axis=0).all():
                raise ValueError("y must have an observed value of positive weight of each target.")
            splits = [] if self.cv is None else split(joint, weights, self.cv)
            if self.cv is not None and not splits:
                raise ValueError(
                    f"cv must be None unless there are {FEWEST_SAMPLES} different samples or more, "
                    f"got {self.cv}."
                )
            with collect_complaints() as complaints:
                self.estimator_, interrupt = self._fit_density(joint, weights)
            if interrupt is not None and splits:
                raise interrupt  # nothing says how wide intervals have to be
            self.n_outputs_ = joint.shape[1] - samples.shape[1]
            self._has_one_axis = targets.ndim == 1
            self._held_out = []
            for training, left_out in splits:
                with warnings.catch_warnings():
                    # The fit to all samples has said what there is to say.
                    warnings.simplefilter("ignore", UserWarning)
                    density, interrupt = self._fit_density(joint[training], weights[training])
                if interrupt is not None:
                    raise interrupt
                self._held_out.append((density, joint[left_out], weights[left_out]))
        if interrupt is not None:
            raise interrupt
        names += ["y"] if self._has_one_axis else [f"y[{k}]" for k in range(self.n_outputs_)]
        advice = "in the joint fit. Increase max_iter or tol of the estimator."
        # One level for scikit-learn's wrapper of `fit`, one for this method.
        complain(complaints, advice, names, level=3)
        return self

    def _fit_density(
        self, joint: NDArray[Any], weights: Floats
    ) -> tuple[ExactDensity, KeyboardInterrupt | None]:
        template = _default_density(weights.sum()) if self.estimator is None else self.estimator
        return self._fit_copy(template, joint, None, weights)

    def predict(self, X: ArrayLike) -> Floats:
        """Predict the mean, median or mode of each target, depending on ``prediction``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs; missing values are NaN.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions, in the shape of the targets of `fit`.

        Examples
        --------
        >>> from skdgn import DGNRegressor, PiecewiseAffineDGN
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0.1, 0.9, 2.1, 2.9, 3.9]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> regressor = DGNRegressor(linear, prediction="median").fit(X, y)
        >>> regressor.predict([[2.5], [float("nan")]]).round(1)
        array([2.5, 2. ])
        """
        describe = {
            "mean": lambda distributions, _: distributions.mean,
            "median": lambda distributions, _: distributions.quantile(0.5),
            "mode": lambda distributions, _: feature_modes(distributions),
        }[self.prediction]
        return self._shaped(self._describe(X, describe))

    def predict_std(self, X: ArrayLike) -> Floats:
        """Predict the standard deviation of each target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs; missing values are NaN.

        Returns
        -------
        deviation : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Standard deviations given the inputs.

        Examples
        --------
        >>> from skdgn import DGNRegressor, PiecewiseAffineDGN
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0.1, 0.9, 2.1, 2.9, 3.9]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> known, unknown = DGNRegressor(linear).fit(X, y).predict_std([[2.5], [float("nan")]])
        >>> bool(known < 0.2 < unknown)
        True
        """
        return self._shaped(
            self._describe(X, lambda distributions, _: np.sqrt(distributions.variance))
        )

    def predict_quantiles(self, X: ArrayLike, q: float | ArrayLike = (0.05, 0.5, 0.95)) -> Floats:
        """Predict quantiles of each target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs; missing values are NaN.
        q : float or array-like of shape (n_quantiles,), default=(0.05, 0.5, 0.95)
            Probabilities from 1e-12 to 1 - 1e-12.

        Returns
        -------
        quantiles : ndarray of shape ([n_quantiles,] n_samples[, n_outputs])
            Values below which a target lies with probability q.  As in `numpy.quantile`, the first
            axis is present if q is an array; the last one if the targets of `fit` had it.

        Examples
        --------
        >>> from skdgn import DGNRegressor, PiecewiseAffineDGN
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0.1, 0.9, 2.1, 2.9, 3.9]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> DGNRegressor(linear).fit(X, y).predict_quantiles([[2.5], [3.5]], q=[0.1, 0.9]).shape
        (2, 2)
        """
        samples = self._join(X)
        given = np.arange(self.n_features_in_)
        return self._shaped(self.estimator_.conditional_quantiles(samples, given, q))

    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.9, kind: str = "central"
    ) -> Floats:
        """Predict intervals that contain each target with a given probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs; missing values are NaN.
        coverage : float, default=0.9
            Probability, positive and at most 0.9999.
        kind : {"central", "highest_density"}, default="central"
            One interval between two quantiles, with the same probability on either side of it; or
            the smallest set with this probability, which may consist of several intervals, one
            around each mode.

        Returns
        -------
        interval : ndarray of shape (n_samples[, n_outputs][, n_intervals], 2)
            Lower and upper ends.  ``"highest_density"`` has an axis for the intervals of a set, in
            ascending order; sets with fewer intervals than others are padded with NaN.

        Notes
        -----
        The probability is that of the fitted density; with ``cv`` it is the fraction of new
        samples.  Ends and probabilities are exact: to rounding for central intervals, to 1e-6 for
        sets of highest density.  Modes of a density are searched for on a grid of 131 points, most
        of them evenly spaced in probability: one with a probability of less than a percent may be
        missed.

        Examples
        --------
        >>> from skdgn import DGNRegressor, PiecewiseAffineDGN
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0.1, 0.9, 2.1, 2.9, 3.9]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> regressor = DGNRegressor(linear).fit(X, y)
        >>> (lower, upper), = regressor.predict_interval([[2.5]], coverage=0.5)
        >>> bool(lower < 2.5 < upper)
        True
        >>> regressor.predict_interval([[2.5]], kind="highest_density").shape
        (1, 1, 2)
        """
        if not isinstance(kind, str) or kind not in _KINDS:
            raise ValueError(f"kind must be one of {_KINDS}, got {kind!r}.")
        if not isinstance(coverage, Real) or not 0.0 < coverage <= _LARGEST_COVERAGE:
            raise ValueError(
                f"coverage must be a probability, positive and at most {_LARGEST_COVERAGE}, "
                f"got {coverage!r}."
            )
        check_is_fitted(self)
        levels = self._find_levels(float(coverage), kind)
        if kind == "central":
            tails = 0.5 - 0.5 * levels
            ends = self._describe(
                X,
                lambda distributions, _: np.stack(
                    [distributions.quantile(tails), distributions.quantile(1.0 - tails)], axis=1
                ),
                (2,),
            )  # (n, 2, k)
            return self._shaped(ends, axis=1)

        sets = self._describe(
            X,
            lambda distributions, _: highest_density_sets(distributions, levels),
            (MOST_INTERVALS, 2),
        )  # (n, i, 2, k)
        n_intervals = int((~np.isnan(sets)).any(axis=(0, 2, 3)).sum())
        return self._shaped(sets[:, :n_intervals], axis=1)

    def _find_levels(self, coverage: float, kind: str) -> Floats:
        """Find the probability (k,) that intervals must have to cover a share of new targets."""
        levels = np.full(self.n_outputs_, coverage)
        if not self._held_out:
            return levels
        describe = _central_coverages if kind == "central" else _smallest_coverages
        enough = np.concatenate(
            [
                density._describe(samples, self._targets, describe)
                for density, samples, _ in self._held_out
            ]
        )
        weights = np.concatenate([weights for _, _, weights in self._held_out])
        for target, found in enumerate(enough.T):
            known = np.flatnonzero(~np.isnan(found))
            order = known[np.argsort(found[known])]
            # The new sample counts, too, as if it were the one that needs most.
            shares = np.cumsum(weights[order]) / (weights[order].sum() + 1.0)
            place = int(np.searchsorted(shares, coverage))
            if place == len(order):
                raise ValueError(
                    f"coverage must be at most {shares[-1]:.4g}, with as many samples as were held "
                    f"out, got {coverage}."
                )
            levels[target] = np.clip(found[order[place]], _SMALLEST_COVERAGE, _LARGEST_COVERAGE)
        return levels

    def cdf(self, X: ArrayLike, y: ArrayLike) -> Floats:
        """Compute the probability that each target is at most a value.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs; missing values are NaN.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Values at which the distribution functions are evaluated; NaN gives NaN.

        Returns
        -------
        probability : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Probabilities, for each target separately.

        Examples
        --------
        >>> from skdgn import DGNRegressor, PiecewiseAffineDGN
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0.1, 0.9, 2.1, 2.9, 3.9]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> regressor = DGNRegressor(linear).fit(X, y)
        >>> regressor.cdf([[2.5]], regressor.predict([[2.5]])).round(2)
        array([0.5])
        """
        if y is None:
            raise ValueError("y must hold values of the targets, got None.")
        samples = self._join(X, y)
        given = np.arange(self.n_features_in_)
        return self._shaped(self.estimator_.conditional_cdf(samples, given))

    def score_samples(self, X: ArrayLike, y: ArrayLike | None = None) -> Floats:
        """Compute the exact log density of the targets given the inputs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs; missing values are NaN.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Targets; missing values are NaN, and integrated out.  With None, the log density of the
            inputs is returned: if it is low, predictions are extrapolations from the samples of
            `fit`.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(y | x) in nats, of all targets jointly; log p(x) if ``y`` is None.

        Examples
        --------
        >>> from skdgn import DGNRegressor, PiecewiseAffineDGN
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0.1, 0.9, 2.1, 2.9, 3.9]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> near, far = DGNRegressor(linear).fit(X, y).score_samples([[2.5], [2.5]], [2.5, 3.5])
        >>> bool(near > far)
        True
        """
        samples = self._join(X, y)
        given = np.arange(0 if y is None else self.n_features_in_)
        return np.asarray(self.estimator_.conditional_score_samples(samples, given))

    def sample(
        self, X: ArrayLike, n_draws: int | None = None, random_state: Any = None
    ) -> NDArray[Any]:
        """Draw targets given the inputs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs; missing values are NaN.
        n_draws : int, default=None
            Number of independent draws for each sample.  None returns one, without an axis for it.
        random_state : int, RandomState, Generator or None, default=None
            Seed of the draws.  Pass an int for reproducible results.  None uses that of the fitted
            ``estimator_``.

        Returns
        -------
        y : ndarray of shape ([n_draws,] n_samples[, n_outputs])
            Drawn targets; the targets of one draw and sample are drawn jointly.

        Examples
        --------
        >>> from skdgn import DGNRegressor, PiecewiseAffineDGN
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0.1, 0.9, 2.1, 2.9, 3.9]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> DGNRegressor(linear).fit(X, y).sample([[2.5], [3.5]], n_draws=3, random_state=0).shape
        (3, 2)
        """
        if n_draws is not None:
            check_integer(n_draws, "n_draws", or_none=" or None")
        samples = self._join(X)
        tables, _ = self.estimator_._complete(samples, int(n_draws or 1), random_state)
        draws = self._shaped(np.stack(tables)[:, :, self.n_features_in_ :])
        return draws[0] if n_draws is None else draws

    def _join(self, X: ArrayLike, y: ArrayLike | None = None) -> Floats:
        """Put inputs and targets, NaN if there are none, side by side: (n, D + n_outputs)."""
        check_is_fitted(self)
        samples = validate_samples(self, X, reset=False)
        if y is None:
            targets = np.full((len(samples), self.n_outputs_), np.nan)
        else:
            targets = self._read_targets(y, samples)
            if targets.size != len(samples) * self.n_outputs_:
                raise ValueError(
                    f"y must have {self.n_outputs_} values for each sample, as in fit, "
                    f"got shape {targets.shape}."
                )
        targets = targets.reshape(len(samples), self.n_outputs_)
        return np.column_stack([samples, targets]).astype(np.float64, copy=False)

    def _read_targets(self, y: ArrayLike, samples: NDArray[Any]) -> Floats:
        """Check targets (n,) or (n, n_outputs) of samples; NaN where a value is missing."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        try:
            targets: Floats = check_array(
                y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y"
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"y must hold numbers: {error}") from error
        check_consistent_length(samples, targets)
        return targets

    def _describe(
        self,
        X: ArrayLike,
        describe: Callable[[FeatureDistributions, Floats], Floats],
        shape: tuple[int, ...] = (),
    ) -> Floats:
        """Describe the distribution of each target: (n, *shape, k)."""
        samples = self._join(X)
        return self.estimator_._describe(samples, self._targets, describe, shape)

    @property
    def _targets(self) -> Bools:
        """Mark the targets among the features of the density."""
        return np.arange(self.n_features_in_ + self.n_outputs_) >= self.n_features_in_

    def _shaped(self, values: Floats, axis: int = -1) -> Floats:
        """Move the last axis, that of the targets, or drop it if those of `fit` had none."""
        return values[..., 0] if self._has_one_axis else np.moveaxis(values, -1, axis)


def _central_coverages(distributions: FeatureDistributions, values: Floats) -> Floats:
    """Find the probability of the smallest central interval that holds each value (n, k)."""
    return _where_known(values, lambda known: np.abs(2.0 * distributions.cdf(known) - 1.0))


def _smallest_coverages(distributions: FeatureDistributions, values: Floats) -> Floats:
    """Find the probability of the smallest set that holds each value (n, k)."""
    return _where_known(values, lambda known: smallest_coverages(distributions, known))


def _where_known(values: Floats, describe: Callable[[Floats], Floats]) -> Floats:
    missing = np.isnan(values)
    return np.where(missing, np.nan, describe(np.where(missing, 0.0, values)))


def _default_density(total_weight: float) -> DGNEnsemble:
    """Return what is fitted to samples of this weight where no estimator was given."""
    sizes = [min(most, max(1, int(total_weight // n_samples))) for n_samples, most in _SIZES]
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full")
    return DGNEnsemble(
        [
            DGNMixture(linear, n_networks, init_params="random", refine=False, tol=1e-2)
            for n_networks in (*(sizes * _N_STARTS), 1)
        ],
        noise_scales=(1.0,),
    )
