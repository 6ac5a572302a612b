"""Exact densities: what all of them offer, and weighted sums of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skdgn._estimators.inputs import check_continuation
from skdgn._estimators.methods.explanation import ExactExplanation
from skdgn._estimators.methods.ranges import ExactRanges
from skdgn._estimators.sklearn_parts import HasMethods
from skdgn._posterior import WeightedSum
from skdgn._runtime import Floats, Integers

_DENSITIES = "exact density, a PiecewiseAffineDGN, DGNMixture, DGNEnsemble or TransformedDensity"


class ExactDensity(ExactExplanation, ExactRanges):
    """The protocol *exact density*, which imputers, detectors, displays and ensembles require.

    All densities of this package derive from it, so they are interchangeable.  Once fitted, all of
    them have ``n_features_in_`` and the methods ``score_samples``, ``score``, ``sample``,
    ``impute``, ``conditional_score_samples``, ``explain`` and ``log_probability``; missing values
    (NaN) are allowed everywhere, in `fit` too, and ``fit(X, y, sample_weight)`` counts a sample of
    weight 2 twice.

    An abstract mixin, which must precede `BaseEstimator`.  The estimator has the parameters
    ``n_jobs`` and ``random_state``, and provides ``_fitted_model``: a
    `skdgn._posterior.weighted_sums.Density`, from which the rest follows.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _check_continuation(
        self, ranges: tuple[Floats, Floats], reason: str, names: list[Any], sets_units: bool
    ) -> None:
        """Refuse samples, of these ranges, that the fitted density is far from."""
        prior = self._marginals()
        mean, deviations = prior.mean[0], np.sqrt(prior.variance[0])
        check_continuation(ranges, mean, deviations, reason, names, sets_units)


class _AnyDensity(HasMethods):
    """What scikit-learn checks parameters by that must be exact densities."""

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether a value is one."""
        return isinstance(val, ExactDensity)

    def __str__(self) -> str:
        return f"an {_DENSITIES}"


ANY_DENSITY = _AnyDensity("score_samples")


def check_density(estimator: Any, name: str = "estimator") -> ExactDensity:
    """Refuse what is not a fitted exact density."""
    if not isinstance(estimator, ExactDensity):
        raise ValueError(f"{name} must be a fitted {_DENSITIES}, got {estimator!r}.")
    check_is_fitted(estimator)
    return estimator


class SumOfDensities(ExactDensity):
    """Methods of a density that is a sum of others, p = sum_k w_k p_k.

    An abstract mixin, like `ExactDensity`.  The estimator has ``weights_`` (K,), and provides
    ``_members``.
    """

    weights_: Floats

    def _members(self) -> Sequence[ExactDensity]:
        """Return the fitted densities that are added up."""
        raise NotImplementedError("a mixin: the estimator holds the members")

    def _fitted_model(self) -> WeightedSum:
        check_is_fitted(self)
        return WeightedSum(self.weights_, [member._fitted_model() for member in self._members()])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Compute the posterior probability of each component given each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN. Probabilities are those given the observed values, and
            ``weights_`` if there are none.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_weights)
            Posterior probabilities of the networks of a mixture or the members of an ensemble, in
            the order of ``weights_``.  They add up to 1, however far out a sample is; NaN if its
            log density is -inf.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import DGNEnsemble, PiecewiseAffineDGN
        >>> low, high = (
        ...     PiecewiseAffineDGN.from_network([[[1.0]]], [[mean]], 1.0, activation="relu")
        ...     for mean in (-2.0, 2.0)
        ... )
        >>> ensemble = DGNEnsemble.from_estimators([low, high], weights=[3, 1])
        >>> ensemble.predict_proba([[0.0], [1.0], [1e6], [np.nan]]).round(2)
        array([[0.75, 0.25],
               [0.29, 0.71],
               [0.  , 1.  ],
               [0.75, 0.25]])
        """
        samples = self._validate_samples(X)
        return self._fitted_model().responsibilities(samples, self._workers())

    def predict(self, X: ArrayLike) -> Integers:
        """Predict the most probable component of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Indices of the networks of a mixture or the members of an ensemble, in the order of
            ``weights_``.

        Examples
        --------
        >>> from skdgn import DGNEnsemble, PiecewiseAffineDGN
        >>> low, high = (
        ...     PiecewiseAffineDGN.from_network([[[1.0]]], [[mean]], 1.0, activation="relu")
        ...     for mean in (-2.0, 2.0)
        ... )
        >>> ensemble = DGNEnsemble.from_estimators([low, high], weights=[3, 1])
        >>> ensemble.predict([[0.0], [1.0]])
        array([0, 1])
        """
        return np.argmax(self.predict_proba(X), axis=1)
