"""Outliers: rows of low density under a fitted generator."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin, _fit_context, clone
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from skdgn._documentation import DocumentedMixin
from skdgn._network import Floats
from skdgn.estimator import PiecewiseAffineDGN


class DGNOutlierDetector(DocumentedMixin, OutlierMixin, BaseEstimator):
    """Detect outliers by their exact density under a deep generative network.

    Parameters
    ----------
    estimator : PiecewiseAffineDGN or other density estimator, default=None
        Anything with ``score_samples``; a pipeline that ends in one will do.  None stands for
        ``PiecewiseAffineDGN()``.
    contamination : float, default=0.1
        Share of outliers among the rows it is fitted to, in (0, 0.5]: it sets the threshold.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator.
    offset_ : float
        Log density below which a row is an outlier.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features seen during `fit`, if they were strings.

    Notes
    -----
    Log densities are exact however far out a row is, so that even the most distant outliers are
    ranked.  Missing values (NaN) are allowed if the estimator allows them; such a row is judged by
    the density of what was observed.

    Examples
    --------
    >>> from skdgn.datasets import make_noisy_circle
    >>> from skdgn.outliers import DGNOutlierDetector
    >>> X = make_noisy_circle(200, random_state=0)
    >>> detector = DGNOutlierDetector(contamination=0.05).fit(X)
    >>> detector.predict([[1.0, 0.0], [0.0, 0.0], [1e6, 0.0]])
    array([ 1, -1, -1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "score_samples"]), None],
        "contamination": [Interval(Real, 0, 0.5, closed="right")],
    }

    def __init__(self, estimator: Any = None, contamination: float = 0.1) -> None:
        self.estimator = estimator
        self.contamination = contamination

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = get_tags(self._template()).input_tags.allow_nan
        return tags

    def _template(self) -> Any:
        return PiecewiseAffineDGN() if self.estimator is None else self.estimator

    def _validate(self, X: ArrayLike, reset: bool) -> None:
        """Check number and names of the features; the estimator checks the values."""
        allow_nan = get_tags(self._template()).input_tags.allow_nan
        validate_data(self, X, reset=reset, ensure_all_finite="allow-nan" if allow_nan else True)

    @_fit_context(prefer_skip_nested_validation=False)
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
        >>> int((detector.score_samples(X) < detector.offset_).sum())  # a fifth of the rows
        1
        """
        self._validate(X, reset=True)
        self.estimator_ = clone(self._template()).fit(X)
        log_density = self.estimator_.score_samples(X)
        self.offset_ = float(np.quantile(log_density, self.contamination))
        return self

    def score_samples(self, X: ArrayLike) -> Floats:
        """Compute the log density of each row: the lower, the more abnormal.

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
        self._validate(X, reset=False)
        return np.asarray(self.estimator_.score_samples(X), dtype=np.float64)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Compute by how much the log density of each row exceeds the threshold.

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
