"""DGNOutlierDetector: samples of low density, how sure that is, and why they are."""

from __future__ import annotations

import math
import warnings
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skdgn._estimators.anomalies.conformal import (
    Calibration,
    conformal_p_values,
    log_densities,
    own_p_values,
    reject,
)
from skdgn._estimators.anomalies.thresholds import natural_threshold, weighted_quantile
from skdgn._estimators.anomalies.trimming import fit_trimmed, without_small_components
from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.fits import (
    DelegatingMixin,
    collect_complaints,
    complain,
    unchanged_by_failure,
)
from skdgn._estimators.folds import FEWEST_SAMPLES, split
from skdgn._estimators.inputs import check_weights, validate_samples
from skdgn._estimators.methods import ExactDensity
from skdgn._estimators.mixture import DGNMixture, default_mixture
from skdgn._estimators.sklearn_parts import (
    WORK_CONSTRAINTS,
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
    take_samples,
)
from skdgn._runtime import Floats, Integers, Reporter, VersionedMixin, check_integer

_P_VALUES = ("cross", "split", "model")
# The threshold moves if so many standard errors more samples fall below it than should.
_STANDARD_ERRORS = 2.0


class DGNOutlierDetector(
    DelegatingMixin, DocumentedMixin, VersionedMixin, OutlierMixin, BaseEstimator
):
    """Outlier detection by the exact density of a deep generative network.

    Parameters
    ----------
    estimator : DGNMixture or other density estimator, default=None
        Any estimator with ``score_samples``, including a pipeline that ends in one.  None is
        ``DGNMixture(n_networks=4)``, with fewer networks if there are fewer than 40 samples.
    contamination : float or "auto", default=0.1
        Fraction of outliers among the training samples, in (0, 0.5], which sets the threshold.
        With ``"auto"``, the threshold is the log density that one in a hundred normal samples would
        fall below, estimated from the spread of the log densities in the middle, where there are no
        outliers.
    cv : int, cross-validation splitter, iterable of splits or None, default=5
        Number of folds for the threshold and `p_values`, see Notes; or splits as in scikit-learn,
        into samples to fit and samples to hold out.  None computes the threshold from the training
        samples, even if the estimator overfits them.
    trim : float, default=0.0
        Fraction of the samples, in [0, 0.5), that are left out of the fit: the least likely ones.
        Use it if there are outliers among the training samples, which the model would otherwise
        fit.
    smallest_component : float, default=0.0
        Fraction of the samples, in [0, 0.5), below which a network of a `DGNMixture` is considered
        to represent outliers that resemble each other: the density is that of the other networks.
    fdr : float, default=None
        If given, `predict` ignores the threshold and labels as outliers the samples whose
        `p_values` are so small that at most this fraction of them is expected to be normal, by the
        procedure of Benjamini and Hochberg.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the estimator and of all its parts that have one; None keeps their own settings.
    n_jobs : int, default=None
        Number of threads of the estimator, if it has this parameter; None keeps its own setting.
    verbose : int, default=0
        Verbosity of the estimator, if it has this parameter; 0 keeps its own setting.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator; a `DGNEnsemble` of the remaining networks of a mixture if
        ``smallest_component`` removed any.
    offset_ : float
        Log density below which a sample is an outlier: ``decision_function`` is
        ``score_samples - offset_``.
    trimmed_likelihoods_ : ndarray of shape (n_rounds,)
        Mean log density of the samples that are kept, after the fit to all samples and after every
        round without the least likely ones; it never decreases.  Empty if ``trim`` is 0.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during `fit`, if they were strings.

    Notes
    -----
    Log densities are exact however far out a sample is, so that even the most distant outliers are
    ranked correctly.  Missing values (NaN) are allowed if the estimator allows them; such a sample
    is scored by the density of its observed values.

    **Threshold.**  The threshold is the log density that a fraction `contamination` of the samples
    fall below.  A model that overfits few samples assigns lower densities to new samples, and
    raises false alarms.  The estimator is therefore fitted again without each of `cv` folds in
    turn, to compute log densities of the held-out samples.  If significantly more of them than
    `contamination` fall below the threshold (by two standard errors of this fraction), they set it
    instead: a fraction `contamination` of the held-out samples then falls below it, and a smaller
    fraction of the training samples.  Equal samples share a fold, and the folds do not depend on
    the order of the samples or on the seed.

    This requires ``cv + 1`` fits for tables of up to 500 samples.  For larger tables, only as many
    folds are held out as contain 500 samples, and a single one with 2,500 samples or more.  Tables
    with fewer than ten distinct samples, or larger than scikit-learn's ``working_memory``, are not
    folded.

    **Trimming.**  The estimator is fitted to all samples, and then again without the fraction
    ``trim`` of samples that are least likely, until the mean log density of the remaining samples
    no longer increases, ten times at most.  This removes scattered outliers.  A cluster of outliers
    has a high density once a network of a mixture has found it; use ``smallest_component`` to
    remove it.

    Examples
    --------
    >>> from skdgn.datasets import make_noisy_circle
    >>> from skdgn._estimators.anomalies.outliers import DGNOutlierDetector
    >>> X = make_noisy_circle(200, random_state=0)
    >>> detector = DGNOutlierDetector(contamination=0.05).fit(X)
    >>> detector.predict([[1.0, 0.0], [0.0, 0.0], [1e6, 0.0]])
    array([ 1, -1, -1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "score_samples"]), None],
        "contamination": [StrOptions({"auto"}), Interval(Real, 0, 0.5, closed="right")],
        "cv": ["cv_object"],
        "trim": [Interval(Real, 0, 0.5, closed="left")],
        "smallest_component": [Interval(Real, 0, 0.5, closed="left")],
        "fdr": [Interval(Real, 0, 1, closed="neither"), None],
        **WORK_CONSTRAINTS,
    }

    def __init__(
        self,
        estimator: Any = None,
        contamination: float | str = 0.1,
        *,
        cv: Any = 5,
        trim: float = 0.0,
        smallest_component: float = 0.0,
        fdr: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.contamination = contamination
        self.cv = cv
        self.trim = trim
        self.smallest_component = smallest_component
        self.fdr = fdr
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allows_nan()
        return tags

    def _template(self, n_samples: float = np.inf) -> Any:
        return default_mixture(n_samples) if self.estimator is None else self.estimator

    def _allows_nan(self) -> bool:
        return bool(get_tags(self._template()).input_tags.allow_nan)

    def _validate(self, X: Any, reset: bool) -> tuple[Any, NDArray[Any]]:
        """Check number and names of the features; the estimator checks the values.

        Frames are returned as they are, other tables as arrays; and an array of either.
        """
        is_finite = "allow-nan" if self._allows_nan() else True
        samples = validate_samples(self, X, reset=reset, ensure_all_finite=is_finite)
        return X if hasattr(X, "columns") else samples, samples

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the estimator and the threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, if the estimator allows them.
        y : None
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, if the estimator has them; a weight of 2 counts a sample twice.

        Returns
        -------
        self : DGNOutlierDetector
            The fitted estimator.

        Examples
        --------
        >>> from skdgn import DGNOutlierDetector, PiecewiseAffineDGN
        >>> X = [[0.0, 0.1], [1.0, 0.9], [2.0, 2.1], [3.0, 2.9], [4.0, 3.9]]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> detector = DGNOutlierDetector(linear, contamination=0.2).fit(X)
        >>> int((detector.score_samples(X) < detector.offset_).sum())  # a fifth of the samples
        1
        """
        with unchanged_by_failure(self):
            table, samples = self._validate(X, reset=True)
            weights = check_weights(sample_weight, samples, min_samples=2)
            if sample_weight is not None and _weight_parameter(self._template()) is None:
                raise ValueError(
                    "sample_weight needs an estimator with weights in fit, "
                    f"got {self._template()!r}."
                )
            if self.smallest_component > 0.0 and not isinstance(self._template(), DGNMixture):
                raise ValueError(
                    "smallest_component must be 0 unless the estimator is a DGNMixture, "
                    f"got {self.smallest_component} with {self._template()!r}."
                )
            splits = []
            if self.cv is not None and samples.nbytes <= 2.0**20 * get_config()["working_memory"]:
                splits = split(samples, weights, self.cv)
            if self.fdr is not None and not splits:
                raise ValueError(f"fdr must be None: {self._why_not_held_out()}")
            reporter = Reporter(self.verbose)
            reporter.head("fit to all samples")
            with collect_complaints() as complaints:
                estimator, objectives = self._fit_estimator(table, weights)
            scores = log_densities(estimator, table, samples)
            self._calibrations = self._calibrate(splits, table, samples, weights, reporter)
            self.estimator_, self.trimmed_likelihoods_ = estimator, objectives
            self.offset_ = self._find_threshold(scores, weights)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        advice = "in the fit to all samples. Increase max_iter or tol of the estimator."
        # One level for scikit-learn's wrapper of `fit`, one for this method.
        complain(complaints, advice, names, level=3)
        return self

    def _fit_estimator(self, table: Any, weights: Floats) -> tuple[Any, Floats]:
        """Fit the estimator to samples of positive weight, robustly if asked to."""
        template = self._template(weights.sum())

        def fit(weights: Floats) -> Any:
            estimator = self._configure(clone(template))
            used = np.flatnonzero(weights > 0.0)
            name, weights = _weight_parameter(estimator), weights[used]
            # Without weights, the sample that is left in for a part is left in.
            parameters = {} if name is None or np.all(weights == 1.0) else {name: weights}
            estimator.fit(take_samples(table, used), **parameters)
            if self.smallest_component > 0.0:
                return without_small_components(estimator, float(self.smallest_component))
            return estimator

        def score(estimator: Any) -> Floats:
            return np.asarray(estimator.score_samples(table), dtype=np.float64)

        if self.trim == 0.0:
            return fit(weights), np.empty(0)
        return fit_trimmed(fit, score, weights, float(self.trim))

    def _why_not_held_out(self) -> str:
        return (
            "no samples were held out. cv must not be None, and the samples of fit must be "
            f"{FEWEST_SAMPLES} different ones or more, and fit into scikit-learn's working_memory; "
            f"got cv={self.cv}."
        )

    def _calibrate(
        self,
        splits: list[tuple[Integers, Integers]],
        table: Any,
        samples: NDArray[Any],
        weights: Floats,
        reporter: Reporter,
    ) -> list[Calibration]:
        """Fit without each of some folds; with each estimator, return the samples left out."""
        calibrations = []
        for number, (training, left_out) in enumerate(splits, start=1):
            reporter.head(f"fit {number}/{len(splits)} to all but a fold, for the threshold")
            with warnings.catch_warnings():
                # The fit to all samples has said what there is to say.
                warnings.simplefilter("ignore", UserWarning)
                try:
                    estimator, _ = self._fit_estimator(
                        take_samples(table, training), weights[training]
                    )
                except ValueError as error:
                    raise ValueError(
                        f"cv={self.cv} needs an estimator that can be fitted without any one of "
                        f"the folds: {error} Use fewer folds, or cv=None."
                    ) from error
            unseen = np.asarray(samples[left_out], dtype=np.float64)
            own = take_samples(table, left_out)
            calibrations.append(Calibration(estimator, own, unseen, weights[left_out]))
        return calibrations

    def _find_threshold(self, scores: Floats, weights: Floats) -> float:
        """Find the threshold, given log densities of the samples."""
        unseen, unseen_weights = np.empty(0), np.empty(0)
        if self._calibrations:
            parts = [(part.estimator, part.table, part.samples) for part in self._calibrations]
            unseen = np.concatenate([log_densities(*part) for part in parts])
            unseen_weights = np.concatenate([part.weights for part in self._calibrations])
        if isinstance(self.contamination, str):
            judged = (unseen, unseen_weights) if len(unseen) > 0 else (scores, weights)
            return natural_threshold(*judged)
        offset = weighted_quantile(scores, weights, self.contamination)
        if _is_too_high(offset, unseen, unseen_weights, self.contamination):
            offset = weighted_quantile(unseen, unseen_weights, self.contamination)
        return offset

    def score_samples(self, X: ArrayLike) -> Floats:
        """Compute the log density of each sample; lower values are more abnormal.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, if the estimator allows them.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Log densities in nats.

        Examples
        --------
        >>> from skdgn import DGNOutlierDetector, PiecewiseAffineDGN
        >>> X = [[0.0, 0.1], [1.0, 0.9], [2.0, 2.1], [3.0, 2.9], [4.0, 3.9]]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> detector = DGNOutlierDetector(linear, contamination=0.2).fit(X)
        >>> near, off, far = detector.score_samples([[1.5, 1.5], [1.5, 2.5], [1e6, 0.0]])
        >>> bool(near > off > far)
        True
        """
        check_is_fitted(self)
        return log_densities(self.estimator_, *self._validate(X, reset=False))

    def decision_function(self, X: ArrayLike) -> Floats:
        """Compute the difference between the log density of each sample and the threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, if the estimator allows them.

        Returns
        -------
        decision : ndarray of shape (n_samples,)
            ``score_samples(X) - offset_`` in nats; negative for outliers.

        Examples
        --------
        >>> from skdgn import DGNOutlierDetector, PiecewiseAffineDGN
        >>> X = [[0.0, 0.1], [1.0, 0.9], [2.0, 2.1], [3.0, 2.9], [4.0, 3.9]]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> detector = DGNOutlierDetector(linear, contamination=0.2).fit(X)
        >>> detector.decision_function([[1.5, 1.5], [1.5, 2.5]]) > 0.0
        array([ True, False])
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> Integers:
        """Predict whether each sample is an inlier (1) or an outlier (-1).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, if the estimator allows them.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            -1 for outliers, 1 for inliers.

        Examples
        --------
        >>> from skdgn import DGNOutlierDetector, PiecewiseAffineDGN
        >>> X = [[0.0, 0.1], [1.0, 0.9], [2.0, 2.1], [3.0, 2.9], [4.0, 3.9]]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> detector = DGNOutlierDetector(linear, contamination=0.2).fit(X)
        >>> detector.predict([[1.5, 1.5], [1.5, 2.5]])
        array([ 1, -1])
        """
        if self.fdr is None:
            return np.where(self.decision_function(X) < 0.0, -1, 1)
        return np.where(reject(self.p_values(X), float(self.fdr)), -1, 1)

    def p_values(
        self, X: ArrayLike, method: str = "cross", *, n_draws: int = 1000, random_state: Any = None
    ) -> Floats:
        """Compute the probability that a normal sample has at most the density of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New samples; missing values are NaN, if the estimator allows them.
        method : {"cross", "split", "model"}, default="cross"
            Samples to compare with: those of all folds of ``cv``, each with the estimator fitted
            without it; those of one fold; or draws from the fitted density itself, which requires
            an exact density and assumes that it is correct.
        n_draws : int, default=1000
            Number of these draws.
        random_state : int, RandomState, Generator or None, default=None
            Seed of these draws.  None uses that of the fitted ``estimator_``.

        Returns
        -------
        p_values : ndarray of shape (n_samples,)
            P-values; smaller values are more abnormal.  They are at least one divided by one plus
            the number of samples compared with, and 1 for samples with no observed values.

        Notes
        -----
        ``"split"`` is valid for any estimator and any number of samples: if a sample is normal,
        that is, exchangeable with the samples that the detector was fitted to, its p-value is at
        most alpha with probability at most alpha.  The same holds for ``"cross"`` with one fold;
        with more folds the guarantee is 2 alpha (Vovk et al., 2018), but the probability is close
        to alpha, and based on more samples.  Outliers in `fit` make p-values larger, and hence
        conservative.

        A sample with missing values is compared by its observed features: with all samples in which
        these were observed, too, and only by these features.  P-values of samples with different
        missing values can therefore be compared, and are valid if values are missing at random.  If
        fewer than 99 samples have all these features, the missing values of others are drawn given
        the rest, by the estimator fitted without them; validity then depends on that estimator.

        Examples
        --------
        >>> from skdgn import DGNOutlierDetector, PiecewiseAffineDGN
        >>> from skdgn.datasets import make_noisy_circle
        >>> X = make_noisy_circle(200, random_state=0)
        >>> network = PiecewiseAffineDGN(hidden_layer_sizes=(8,), tol=0.01, random_state=0)
        >>> detector = DGNOutlierDetector(network).fit(X)
        >>> detector.p_values([[1.0, 0.0], [2.0, 0.0], [2.0, float("nan")]]) < 0.05
        array([False,  True,  True])
        """
        check_is_fitted(self)
        if not isinstance(method, str) or method not in _P_VALUES:
            raise ValueError(f"method must be one of {_P_VALUES}, got {method!r}.")
        check_integer(n_draws, "n_draws")
        table, samples = self._validate(X, reset=False)
        samples = np.asarray(samples, dtype=np.float64)
        if method == "model":
            return own_p_values(
                self._exact_density("p_values"), samples, int(n_draws), random_state
            )
        if not self._calibrations:
            raise ValueError(f"method must be 'model': {self._why_not_held_out()}")
        folds = self._calibrations if method == "cross" else self._calibrations[:1]
        return conformal_p_values(folds, table, samples)

    def explain(
        self,
        X: ArrayLike,
        method: str = "shapley",
        *,
        standardize: bool = False,
        n_permutations: int = 100,
        random_state: Any = None,
        return_error: bool = False,
    ) -> Any:
        """Compute the contribution of each value of a sample to its negative log density.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, and contribute 0.
        method : {"shapley", "leave_one_out"}, default="shapley"
            Contributions that add up to ``-score_samples(X)``; or the negative log density of each
            value given all others.
        standardize : bool, default=False
            Whether to measure each feature in its standard deviations under the model, so that
            contributions of features in different units can be compared.
        n_permutations : int, default=100
            Number of orders, for samples with more than 12 observed values.
        random_state : int, RandomState, Generator or None, default=None
            Seed of these orders.
        return_error : bool, default=False
            Whether to also return standard errors.

        Returns
        -------
        contributions : ndarray of shape (n_samples, n_features)
            Contributions in nats.
        errors : ndarray of shape (n_samples, n_features)
            Their standard errors, if ``return_error`` is True.

        See Also
        --------
        PiecewiseAffineDGN.explain : The same for any exact density, with details.

        Examples
        --------
        >>> from skdgn import DGNOutlierDetector, PiecewiseAffineDGN
        >>> X = [[0.0, 0.1], [1.0, 0.9], [2.0, 2.1], [3.0, 2.9], [4.0, 3.9]]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> detector = DGNOutlierDetector(linear).fit(X)
        >>> contributions = detector.explain([[2.0, 20.0]])
        >>> bool(abs(contributions.sum() + detector.score_samples([[2.0, 20.0]])[0]) < 1e-9)
        True
        """
        check_is_fitted(self)
        table, _ = self._validate(X, reset=False)
        density = self._exact_density("explain")
        with warnings.catch_warnings():
            # Once will do.
            warnings.filterwarnings("ignore", "X (has|does not have valid) feature names")
            return density.explain(
                table,
                method,
                standardize=standardize,
                n_permutations=n_permutations,
                random_state=random_state,
                return_error=return_error,
            )

    def _exact_density(self, method: str) -> ExactDensity:
        if not isinstance(self.estimator_, ExactDensity):
            raise ValueError(
                f"{method} needs marginals: the estimator must be an exact density, a "
                f"PiecewiseAffineDGN, DGNMixture or DGNEnsemble, got {self.estimator_!r}."
            )
        return self.estimator_


def _weight_parameter(estimator: Any) -> str | None:
    """Name of the weights of samples in an estimator's `fit`, or a pipeline's; None without."""
    if hasattr(estimator, "steps"):
        name, last = estimator.steps[-1]
        return f"{name}__sample_weight" if has_fit_parameter(last, "sample_weight") else None
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def _is_too_high(offset: float, unseen: Floats, weights: Floats, contamination: float) -> bool:
    """Whether significantly more of the log densities are below a threshold than should be."""
    n_expected = contamination * weights.sum()
    error = math.sqrt(n_expected * (1.0 - contamination))
    return bool(weights[unseen < offset].sum() > n_expected + _STANDARD_ERRORS * error)
