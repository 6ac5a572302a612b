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

from skdgn._estimators.attributes import unchanged_by_failure
from skdgn._estimators.conformal import (
    Calibration,
    conformal_p_values,
    log_densities,
    own_p_values,
    reject,
)
from skdgn._estimators.delegation import DelegatingMixin
from skdgn._estimators.density import ExactDensity
from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.folds import FEWEST_SAMPLES, split
from skdgn._estimators.mixture import DGNMixture, default_mixture
from skdgn._estimators.sklearn_parts import (
    WORK_CONSTRAINTS,
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
    take_samples,
)
from skdgn._estimators.thresholds import natural_threshold, weighted_quantile
from skdgn._estimators.trimming import fit_trimmed, without_small_components
from skdgn._estimators.validation import check_weights, validate_rows
from skdgn._runtime import Floats, Integers, Reporter, VersionedMixin, check_integer

_P_VALUES = ("cross", "split", "model")
# The threshold moves if so many standard errors more samples fall below it than should.
_STANDARD_ERRORS = 2.0


class DGNOutlierDetector(
    DelegatingMixin, DocumentedMixin, VersionedMixin, OutlierMixin, BaseEstimator
):
    """Detect outliers by their exact density under a deep generative network.

    Parameters
    ----------
    estimator : DGNMixture or other density estimator, default=None
        Anything with ``score_samples``; a pipeline that ends in one will do.  None stands for
        ``DGNMixture(n_networks=4)``, with fewer networks if there are fewer than 40 samples.
    contamination : float or "auto", default=0.1
        Share of outliers among the samples it is fitted to, in (0, 0.5]: it sets the threshold.
        ``"auto"`` assumes no share: the threshold is what one in a hundred normal samples would
        fall below, as their log densities spread in the middle, where no outliers are.
    cv : int, cross-validation splitter, iterable of splits or None, default=5
        Number of folds for the threshold and `p_values`, see Notes; or splits as scikit-learn makes
        them, into samples to fit to and samples to hold out.  None takes the threshold from the
        samples that the estimator was fitted to, whatever they say about others.
    trim : float, default=0.0
        Share of the samples, in [0, 0.5), that the estimator is fitted without: the least likely
        ones.  For tables with outliers in them, which a model would learn otherwise.
    smallest_component : float, default=0.0
        Share of the samples, in [0, 0.5), below which a network of a `DGNMixture` is taken for
        outliers that resemble each other: the density is that of the other networks.
    fdr : float, default=None
        If given, `predict` calls those samples outliers whose `p_values` are so small that at most
        this share of them is expected to be normal, by the procedure of Benjamini and Hochberg,
        whatever the threshold is.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the estimator and of all its parts that have one; None leaves theirs as they are.
    n_jobs : int, default=None
        Number of threads of the estimator, if it has such a parameter; None leaves its own as it
        is.
    verbose : int, default=0
        How much the estimator prints, if it has such a parameter; 0 leaves its own as it is.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator; a `DGNEnsemble` of those networks of a mixture that are left if
        ``smallest_component`` left any out.
    offset_ : float
        Log density below which a sample is an outlier.
    trimmed_likelihoods_ : ndarray of shape (n_rounds,)
        Mean log density of the samples left in, after the fit to all samples and after every round
        without the least likely ones; it never decreases.  Empty if ``trim`` is 0.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during `fit`, if they were strings.

    Notes
    -----
    Log densities are exact however far out a sample is, so that even the most distant outliers are
    ranked.  Missing values (NaN) are allowed if the estimator allows them; such a sample is judged
    by the density of what was observed.

    **Threshold.**  It is the log density that a share `contamination` of the samples fall below.
    A model that has learned few samples by heart finds others less likely than those, and raises
    false alarms.  So the estimator is fitted again without each of `cv` folds in turn, and gives
    log densities to the samples left out.  If significantly more of them than `contamination` fall
    below the threshold (by two standard errors of such a share), they set it instead: it is then
    `contamination` of these that fall below, and fewer of the samples that the final model was
    fitted to.  Equal samples share a fold, and neither order nor seed changes the folds.

    That takes ``cv + 1`` fits for tables of up to 500 samples.  Larger ones leave out as many folds
    as make 500 samples, a single one from 2,500 on.  Tables with fewer than ten different samples,
    or larger than scikit-learn's ``working_memory``, are not folded.

    **Trimming.**  The estimator is fitted to all samples, and then again without the share ``trim``
    of them that is least likely, until the mean log density of those left in rises no more.  That
    leaves scattered outliers out.  A cluster of them is likely once a network of a mixture has
    found it, and is left out by ``smallest_component``.

    Examples
    --------
    >>> from skdgn.datasets import make_noisy_circle
    >>> from skdgn._estimators.outliers import DGNOutlierDetector
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
        rows = validate_rows(self, X, reset=reset, ensure_all_finite=is_finite)
        return X if hasattr(X, "columns") else rows, rows

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the estimator, and the threshold.

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
            table, rows = self._validate(X, reset=True)
            weights = check_weights(sample_weight, rows)
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
            if self.cv is not None and rows.nbytes <= 2.0**20 * get_config()["working_memory"]:
                splits = split(rows, weights, self.cv)
            if self.fdr is not None and not splits:
                raise ValueError(f"fdr must be None: {self._why_not_held_out()}")
            reporter = Reporter(self.verbose)
            reporter.head("fit to all samples")
            estimator, objectives = self._fit_estimator(table, weights)
            scores = log_densities(estimator, table, rows)
            self._calibrations = self._calibrate(splits, table, rows, weights, reporter)
            self.estimator_, self.trimmed_likelihoods_ = estimator, objectives
            self.offset_ = self._find_threshold(scores, weights)
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
        rows: NDArray[Any],
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
            unseen = np.asarray(rows[left_out], dtype=np.float64)
            own = take_samples(table, left_out)
            calibrations.append(Calibration(estimator, own, unseen, weights[left_out]))
        return calibrations

    def _find_threshold(self, scores: Floats, weights: Floats) -> float:
        """Find the threshold, given log densities of the samples."""
        unseen, unseen_weights = np.empty(0), np.empty(0)
        if self._calibrations:
            parts = [(part.estimator, part.table, part.rows) for part in self._calibrations]
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
        """Compute the log density of each sample: the lower, the more abnormal.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, if the estimator allows them.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            In nats.

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
        """Compute by how much the log density of each sample exceeds the threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, if the estimator allows them.

        Returns
        -------
        decision : ndarray of shape (n_samples,)
            In nats; negative for outliers.

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
        """Tell outliers (-1) from inliers (1).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, if the estimator allows them.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            -1 or 1.

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
        """Compute the probability that a normal sample is at most as likely as each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New samples; NaN where a value is missing, if the estimator allows it.
        method : {"cross", "split", "model"}, default="cross"
            What samples are compared with: those of all folds of ``cv``, each by the estimator
            fitted without it; those of one fold; or draws from the fitted density itself, which
            needs an exact one and trusts that it is right.
        n_draws : int, default=1000
            Number of these draws.
        random_state : int, RandomState, Generator or None, default=None
            Seed of these draws.  None takes that of the fitted ``estimator_``.

        Returns
        -------
        p_values : ndarray of shape (n_samples,)
            The smaller, the more abnormal; at least one by one more than the number of samples
            compared with.  1 for samples without any value.

        Notes
        -----
        ``"split"`` is valid whatever the estimator, and for any number of samples: if a sample is
        normal, in that it might as well have been one of those that the detector was fitted to,
        its p-value is at most alpha with probability at most alpha.  So it is for ``"cross"`` if
        there is one fold; with more of them the guarantee is 2 alpha (Vovk et al., 2018), while the
        probability is close to alpha, and comes from more samples.  Outliers in `fit` make p-values
        larger, hence cautious.

        A sample with missing values is compared by what was observed of it: with all samples in
        which it was observed, too, and by nothing else of these.  So p-values of samples with
        different missing values can be compared, and are valid if values are missing at random.  If
        fewer than 99 samples have all these features, what others lack of them is drawn given the
        rest, by the estimator fitted without them; validity then rests on that one.

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
        table, rows = self._validate(X, reset=False)
        rows = np.asarray(rows, dtype=np.float64)
        if method == "model":
            return own_p_values(self._exact_density("p_values"), rows, int(n_draws), random_state)
        if not self._calibrations:
            raise ValueError(f"method must be 'model': {self._why_not_held_out()}")
        folds = self._calibrations if method == "cross" else self._calibrations[:1]
        return conformal_p_values(folds, table, rows)

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
        """Compute what each value of a sample contributes to how abnormal it is.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing: it contributes 0.
        method : {"shapley", "leave_one_out"}, default="shapley"
            Contributions that add up to ``-score_samples(X)``; or the surprise at each value once
            all others are known.
        standardize : bool, default=False
            Whether to measure each feature in its standard deviations under the model, so that
            contributions of features in different units can be compared.
        n_permutations : int, default=100
            Number of orders, for samples with more than 12 observed values.
        random_state : int, RandomState, Generator or None, default=None
            Seed of these orders.
        return_error : bool, default=False
            Whether to return standard errors, too.

        Returns
        -------
        contributions : ndarray of shape (n_samples, n_features)
            In nats.
        errors : ndarray of shape (n_samples, n_features)
            Their standard errors, if ``return_error``.

        See Also
        --------
        PiecewiseAffineDGN.explain : The same for any exact density, and what it means.

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
            warnings.filterwarnings("ignore", "X does not have valid feature names")  # once will do
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
