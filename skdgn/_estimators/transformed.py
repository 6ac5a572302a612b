"""TransformedDensity: the density of samples, by one of their transformed features."""

from __future__ import annotations

from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.fits import DelegatingMixin, unchanged_by_failure
from skdgn._estimators.inputs import check_observed, check_sizes, check_weights, validate_samples
from skdgn._estimators.methods import (
    ANY_DENSITY,
    ExactDensity,
    InformationCriteria,
    is_frame,
    write_frame,
)
from skdgn._estimators.mixture import DGNMixture
from skdgn._estimators.sklearn_parts import WORK_CONSTRAINTS, HasMethods, StrOptions, fit_context
from skdgn._estimators.transformers import Chains, read_transformer
from skdgn._fit import fit_normal_scores, fit_power
from skdgn._posterior import ColumnMaps, TransformedModel
from skdgn._runtime import Floats, VersionedMixin, read, value_ranges

# Functions that are fitted to a column on its own.
_MARGINALS = {"power": fit_power, "normal_scores": fit_normal_scores}


class TransformedDensity(
    DelegatingMixin,
    DocumentedMixin,
    VersionedMixin,
    InformationCriteria,
    ExactDensity,
    BaseEstimator,
):
    """Exact density of samples whose features are transformed first.

    Models with Gaussian noise are not well suited to skewed features, heavy tails and values that
    must be positive.  Here each feature is transformed by a strictly increasing function, and a
    density is fitted to the transformed samples.  The slopes of these functions turn it into a
    density of the original samples, ``p(x) = p_T(T(x)) prod_j T_j'(x_j)``, which is equally exact.

    Parameters
    ----------
    estimator : PiecewiseAffineDGN, DGNMixture or DGNEnsemble, default=None
        The density to fit to the transformed samples.  None is ``DGNMixture()``.
    transformer : {"power", "normal_scores"} or transformer, default="power"
        Transformation of each feature.

        - ``"power"``: the feature is standardized, and the Yeo-Johnson transformation, fitted by
          maximum likelihood, makes it as symmetric as possible.
        - ``"normal_scores"``: a Gaussian mixture of up to four components, selected by BIC, is
          fitted to the feature, and its values are mapped to the normal quantiles of their
          probabilities, so that the feature is nearly Gaussian.  Farther from all values than their
          range, this transformation and ``"power"`` continue as straight lines, so that tails do
          not grow exponentially.
        - `StandardScaler`, `MinMaxScaler`, `MaxAbsScaler`, `RobustScaler`, `PowerTransformer` or
          `FunctionTransformer` of scikit-learn, or a `Pipeline` of these.  Supported functions are
          ``np.log``, ``np.log2``, ``np.log10``, ``np.log1p``, ``np.arcsinh`` and
          ``scipy.special.logit``; a value for which they are not defined has density zero.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the estimator, and of draws; None keeps its own setting.
    n_jobs : int, default=None
        Number of threads of the estimator; None keeps its own setting.
    verbose : int, default=0
        Verbosity of the estimator; 0 keeps its own setting.

    Attributes
    ----------
    estimator_ : estimator
        The fitted density of the transformed samples.
    transformer_ : transformer or None
        The fitted transformer, if one was given.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they were given as strings.

    See Also
    --------
    sklearn.compose.TransformedTargetRegressor : The same idea for a regression.

    Notes
    -----
    Log densities, conditional densities, quantiles and draws are as exact as those of the
    estimator.  The mean of a missing value has no closed form in the original units: it is an
    integral over its distribution function, accurate to about a thousandth of its standard
    deviation, and ``impute(X, return_error=True)`` also returns an estimate of the error.

    If the `fit` method of a scikit-learn transformer accepts sample weights, they are passed on;
    otherwise samples with zero weight are left out, and all others have equal weight.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgn import PiecewiseAffineDGN, TransformedDensity
    >>> rng = np.random.default_rng(0)
    >>> X, held_out = np.exp(rng.normal(size=(2, 200, 2)))  # skewed, and positive
    >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
    >>> model = TransformedDensity(linear).fit(X)
    >>> bool(model.score(held_out) > linear.fit(X).score(held_out))
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": [ANY_DENSITY, None],
        "transformer": [StrOptions(set(_MARGINALS)), HasMethods(["fit", "transform"])],
        **WORK_CONSTRAINTS,
    }

    # Set by fit.
    estimator_: Any
    transformer_: Any
    n_features_in_: int
    _maps: ColumnMaps

    def __init__(
        self,
        estimator: ExactDensity | None = None,
        transformer: Any = "power",
        *,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.transformer = transformer
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # The parameters of estimator and transformer are checked when these are fitted.
    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the transformation and the density of the transformed samples.

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
        self : TransformedDensity
            The fitted estimator.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.preprocessing import FunctionTransformer
        >>> from skdgn import PiecewiseAffineDGN, TransformedDensity
        >>> X = np.exp(np.random.default_rng(0).normal(size=(200, 1)))
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> model = TransformedDensity(linear, FunctionTransformer(np.log)).fit(X)
        >>> model.score_samples([[-1.0]])  # not defined, so impossible
        array([-inf])
        """
        with unchanged_by_failure(self):
            samples = validate_samples(self, X, reset=True, min_samples=2)
            weights = check_weights(sample_weight, samples, min_samples=2)
            check_observed(samples, weights, self._column_names(), self._workers())
            check_sizes(value_ranges(samples, weights), self._column_names())
            samples = read(samples)
            self.transformer_, chains = self._fit_columns(samples, weights)
            self._maps = ColumnMaps(chains)
            transformed = self._transform(samples, weights)
            template = DGNMixture() if self.estimator is None else self.estimator
            # Only frames bring the names along that a warning about a column is to mention.
            every = np.ones(self.n_features_in_, dtype=bool)
            table = write_frame(X, transformed, every) if is_frame(X) else transformed
            self.estimator_, interrupt = self._fit_copy(template, table, None, sample_weight)
        if interrupt is not None:
            raise interrupt
        return self

    def _fit_columns(self, samples: Floats, weights: Floats) -> tuple[Any, Chains]:
        """Fit the transformation; return the transformer, if there is one, and what it does."""
        if isinstance(self.transformer, str):
            fit = _MARGINALS[self.transformer]
            chains = []
            for column in samples.T:
                counted = ~np.isnan(column) & (weights > 0.0)
                chains.append(fit(column[counted], weights[counted]))
            return None, chains
        if isinstance(self.transformer, type):
            raise ValueError(
                f"transformer must be a transformer, not a class of them, got {self.transformer!r}."
            )
        transformer, counted = clone(self.transformer), weights > 0.0
        parameters = signature(transformer.fit).parameters
        named = {"sample_weight": weights[counted]} if "sample_weight" in parameters else {}
        try:
            with np.errstate(all="ignore"):  # what is not defined is refused
                transformer.fit(samples[counted], **named)
        except ValueError as error:
            raise ValueError(
                f"transformer={self.transformer!r} must be defined for all values of X: {error}"
            ) from error
        return transformer, read_transformer(transformer, self._column_names())

    def _transform(self, samples: Floats, weights: Floats) -> Floats:
        """Transform samples (n, D); refuse those for which a function is not defined."""
        transformed, _, outside = self._maps.forward(samples)
        outside &= (weights > 0.0)[:, None]
        if outside.any():
            sample, column = np.argwhere(outside)[0]
            raise ValueError(
                f"X must hold values for which transformer={self.transformer!r} is defined, got "
                f"{samples[sample, column]} in column {self._column_names()[column]!r} of sample "
                f"{sample}."
            )
        return transformed

    def _fitted_model(self) -> TransformedModel:
        check_is_fitted(self)
        return TransformedModel(self.estimator_._fitted_model(), self._maps)

    @property
    def n_parameters_(self) -> int:  # type: ignore[override]  # counted when it is asked for
        """Number of parameters of the estimator and of the transformations."""
        check_is_fitted(self)
        return int(self.estimator_.n_parameters_ + self._maps.n_parameters)
