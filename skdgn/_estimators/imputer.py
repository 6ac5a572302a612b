"""DGNImputer: missing values filled in before any other scikit-learn model."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.impute import MissingIndicator
from sklearn.utils.validation import check_is_fitted

from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.fits import DelegatingMixin, unchanged_by_failure
from skdgn._estimators.inputs import check_weights, validate_samples
from skdgn._estimators.methods import ANY_DENSITY, ExactDensity
from skdgn._estimators.mixture import default_mixture
from skdgn._estimators.sklearn_parts import WORK_CONSTRAINTS, fit_context
from skdgn._runtime import VersionedMixin


class DGNImputer(
    DelegatingMixin,
    DocumentedMixin,
    VersionedMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
    BaseEstimator,
):
    """Imputation by the exact conditional mean of a deep generative network.

    Use this transformer before an estimator that does not accept missing values.

    Parameters
    ----------
    estimator : PiecewiseAffineDGN, DGNMixture or DGNEnsemble, default=None
        The model to fit to the samples, with any pattern of missing values.  None is
        ``DGNMixture(PiecewiseAffineDGN(hidden_layer_sizes=(4,)), n_networks=4)``, with fewer
        networks if there are fewer than 40 samples.
    add_indicator : bool, default=False
        Whether to append a column of zeros and ones for each feature that had missing values in
        `fit`, 1 where a value was missing.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the estimator; None keeps its own setting.
    n_jobs : int, default=None
        Number of threads of the estimator; None keeps its own setting.
    verbose : int, default=0
        Verbosity of the estimator; 0 keeps its own setting.

    Attributes
    ----------
    estimator_ : estimator
        The fitted model.
    indicator_ : MissingIndicator or None
        Fitted if ``add_indicator`` is set.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they were given as strings.

    See Also
    --------
    PiecewiseAffineDGN.impute : The same for a fitted model, with draws for multiple imputation.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgn import DGNImputer, PiecewiseAffineDGN
    >>> X = np.array([[0.0, 0.1], [1.0, 0.9], [2.0, 2.1], [3.0, np.nan], [4.0, 3.9]])
    >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
    >>> DGNImputer(linear).fit_transform(X).round(1)
    array([[0. , 0.1],
           [1. , 0.9],
           [2. , 2.1],
           [3. , 3. ],
           [4. , 3.9]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [ANY_DENSITY, None],
        "add_indicator": ["boolean"],
        **WORK_CONSTRAINTS,
    }

    def __init__(
        self,
        estimator: ExactDensity | None = None,
        add_indicator: bool = False,
        *,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.add_indicator = add_indicator
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # The estimator's own parameters are checked when it is fitted.
    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model to the observed values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.  Every feature needs at least one observed value.
        y : None
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 counts a sample twice.

        Returns
        -------
        self : DGNImputer
            The fitted estimator.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import DGNImputer, PiecewiseAffineDGN
        >>> X = [[0.0, 0.1], [1.0, 0.9], [2.0, 2.1], [3.0, np.nan], [4.0, 3.9]]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> DGNImputer(linear).fit(X).estimator_.n_features_in_
        2
        """
        with unchanged_by_failure(self):
            samples = self._validate(X, reset=True)
            template = self.estimator
            if template is None:
                weights = check_weights(sample_weight, samples, min_samples=2)
                template = default_mixture(weights.sum(), covariance_type="diag")
            # Only frames bring the names along that an error about a column is to mention.
            table = X if hasattr(X, "columns") else samples
            self.estimator_, interrupt = self._fit_copy(template, table, None, sample_weight)
            self.indicator_ = None
            if self.add_indicator:
                self.indicator_ = MissingIndicator(error_on_new=False).fit(samples)
        if interrupt is not None:
            raise interrupt
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Fill in missing values, and append the indicator if there is one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        X_imputed : ndarray of shape (n_samples, n_features_out)
            The samples with missing values filled in; observed values are unchanged.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import DGNImputer, PiecewiseAffineDGN
        >>> X = [[0.0, 0.1], [1.0, 0.9], [2.0, 2.1], [3.0, 2.9], [4.0, 3.9]]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> DGNImputer(linear).fit(X).transform([[2.5, np.nan], [np.nan, 0.5]]).round(1)
        array([[2.5, 2.5],
               [0.5, 0.5]])
        """
        check_is_fitted(self)
        samples = self._validate(X, reset=False)
        (filled,), _ = self.estimator_._complete(samples)
        if self.indicator_ is None:
            return filled
        return np.concatenate(
            [filled, self.indicator_.transform(samples)], axis=1, dtype=filled.dtype
        )

    def _validate(self, X: ArrayLike, reset: bool) -> NDArray[Any]:
        return validate_samples(self, X, reset=reset, min_samples=2 if reset else 1)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Get the names of the columns of `transform`.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features; None uses those seen in `fit`, or x0, x1, ...

        Returns
        -------
        names : ndarray of str
            Names of the features, then those of the indicators.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import DGNImputer, PiecewiseAffineDGN
        >>> X = [[0.0, 0.1], [1.0, 0.9], [2.0, 2.1], [3.0, np.nan], [4.0, 3.9]]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> DGNImputer(linear, add_indicator=True).fit(X).get_feature_names_out()
        array(['x0', 'x1', 'missingindicator_x1'], dtype=object)
        """
        names = super().get_feature_names_out(input_features)
        if self.indicator_ is None:
            return names
        return np.concatenate([names, self.indicator_.get_feature_names_out(names)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
