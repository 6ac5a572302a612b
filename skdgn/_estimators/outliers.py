"""Outliers: samples of low density under a fitted generator."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from skdgn._estimators.delegation import DelegatingMixin
from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.mixture import default_mixture
from skdgn._estimators.sklearn_parts import VERBOSE, HasMethods, Interval, fit_context, take_samples
from skdgn._estimators.validation import fill_masked
from skdgn._runtime import Floats, Reporter, VersionedMixin

# So many samples that were held out tell a threshold to about 1 %: large tables need no more folds.
_ENOUGH_SAMPLES = 500
# Fewer different samples than this tell nothing by being held out.
_FEWEST_SAMPLES = 10
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
    contamination : float, default=0.1
        Share of outliers among the samples it is fitted to, in (0, 0.5]: it sets the threshold.
    cv : int or None, default=5
        Number of folds for the threshold, see Notes; None takes it from the samples that the
        estimator was fitted to, whatever they say about others.
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
        The fitted estimator.
    offset_ : float
        Log density below which a sample is an outlier.
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
        "contamination": [Interval(Real, 0, 0.5, closed="right")],
        "cv": [Interval(Integral, 2, None, closed="left"), None],
        "random_state": ["random_state", np.random.Generator],
        "n_jobs": [Integral, None],
        "verbose": VERBOSE,
    }

    def __init__(
        self,
        estimator: Any = None,
        contamination: float = 0.1,
        *,
        cv: int | None = 5,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.contamination = contamination
        self.cv = cv
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
        X = fill_masked(X)
        rows: NDArray[Any] = validate_data(
            self, X, reset=reset, ensure_all_finite="allow-nan" if self._allows_nan() else True
        )
        return X if hasattr(X, "columns") else rows, rows

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: None = None) -> Self:
        """Fit the estimator, and the threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing, if the estimator allows it.
        y : None
            Ignored, present for scikit-learn's conventions.

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
        table, rows = self._validate(X, reset=True)
        reporter = Reporter(self.verbose)
        reporter.head("fit to all samples")
        estimator = self._configure(clone(self._template(len(rows)))).fit(table)
        offset = np.quantile(estimator.score_samples(table), self.contamination)
        if self.cv is not None and rows.nbytes <= 2.0**20 * get_config()["working_memory"]:
            unseen = self._score_unseen(table, rows, self.cv, reporter)
            if _is_too_high(offset, unseen, self.contamination):
                offset = np.quantile(unseen, self.contamination)
        self.estimator_, self.offset_ = estimator, float(offset)
        return self

    def _score_unseen(self, table: Any, rows: NDArray[Any], cv: int, reporter: Reporter) -> Floats:
        """Log densities of samples under models fitted without them; none if there are too few."""
        folds = _assign_folds(rows, cv)
        n_folds = int(folds.max()) + 1
        if n_folds == 1:
            return np.empty(0)
        scores: list[Floats] = []
        n_fits = math.ceil(n_folds * min(1.0, _ENOUGH_SAMPLES / len(rows)))
        for fold in range(n_fits):
            reporter.head(f"fit {fold + 1}/{n_fits} to all but a fold, for the threshold")
            training, left_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            estimator = self._configure(clone(self._template(len(training))))
            with warnings.catch_warnings():
                # The fit to all samples has said what there is to say.
                warnings.simplefilter("ignore", UserWarning)
                try:
                    estimator.fit(take_samples(table, training))
                except ValueError as error:
                    raise ValueError(
                        f"cv={cv} needs an estimator that can be fitted without any one of "
                        f"the folds: {error} Use fewer folds, or cv=None."
                    ) from error
            scores.append(estimator.score_samples(take_samples(table, left_out)))
        return np.concatenate(scores)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Compute the log density of each sample: the lower, the more abnormal.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing, if the estimator allows it.

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
        table, _ = self._validate(X, reset=False)
        return np.asarray(self.estimator_.score_samples(table), dtype=np.float64)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Compute by how much the log density of each sample exceeds the threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing, if the estimator allows it.

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

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Tell outliers (-1) from inliers (1).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing, if the estimator allows it.

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
        return np.where(self.decision_function(X) < 0.0, -1, 1)


def _assign_folds(rows: NDArray[Any], n_folds: int) -> NDArray[np.intp]:
    """Number the folds of samples: equal ones share one, and their order does not matter."""
    # There are two zeros, and many NaN: bytes tell equal from different only once they are alike.
    alike = np.ascontiguousarray(np.where(np.isnan(rows), np.nan, rows + 0.0))
    keys = alike.view(np.dtype((np.void, alike.itemsize * alike.shape[1]))).ravel()
    distinct, places = np.unique(keys, return_inverse=True)
    if len(distinct) < _FEWEST_SAMPLES:
        return np.zeros(len(rows), dtype=np.intp)
    n_folds = min(n_folds, len(distinct))
    # Neighbors in that order are similar: chance tells them apart, always in the same way.
    folds = np.random.default_rng(0).permutation(len(distinct)) % n_folds
    return np.asarray(folds[places], dtype=np.intp)


def _is_too_high(offset: float, unseen: Floats, contamination: float) -> bool:
    """Whether significantly more of the log densities are below a threshold than should be."""
    n_expected = contamination * len(unseen)
    error = math.sqrt(n_expected * (1.0 - contamination))
    return bool(np.sum(unseen < offset) > n_expected + _STANDARD_ERRORS * error)
