"""What a fitted model says of some features, given others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdgn._estimators.inputs import index_of_feature
from skdgn._estimators.methods.inference import ExactInference
from skdgn._posterior import FeatureDistributions
from skdgn._runtime import Bools, Floats, Integers, finite_array, read

# Probabilities of quantiles must stand out from the errors of distribution functions.
_SMALLEST_SHARE = 1e-12

# Features by index, by name, or by a mask.
Given = int | str | Sequence[int] | Sequence[str] | Sequence[bool] | NDArray[Any]


class ExactConditioning(ExactInference):
    """Methods of an exact density that condition on some of the features.

    A mixin, like `ExactInference`.
    """

    n_features_in_: int

    def _column_names(self) -> list[Any]:
        """Names of the features, or their numbers."""
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def _marginals(self) -> FeatureDistributions:
        """Return the distributions of all features, given nothing: of one sample."""
        nothing, features = (
            np.full((1, self.n_features_in_), np.nan),
            np.arange(self.n_features_in_),
        )
        return self._fitted_model().feature_distributions(nothing, features)

    def _complete(
        self, observed: NDArray[Any], n_draws: int | None = None, random_state: Any = None
    ) -> tuple[list[Any], Floats]:
        """Fill in what is missing from samples (n, D), by means, or by so many independent draws.

        Returns tables of the same kind, in which what was observed is as it was, and the errors of
        means (n, D).
        """
        missing = np.isnan(observed)
        chosen = np.flatnonzero(missing.any(axis=1))
        samples = np.asarray(observed[chosen], dtype=np.float64)
        model, workers, errors = self._fitted_model(), self._workers(), np.zeros(observed.shape)
        if chosen.size == 0:
            filled = np.empty((n_draws or 1, *samples.shape))
        elif n_draws is None:
            means, errors[chosen] = model.impute(samples, workers)
            filled = means[None]
        else:
            filled = model.draw_missing(
                samples, n_draws, self._random_source(random_state), workers
            )
        self._refuse_unknown(samples, np.isnan(filled[0]).any(axis=1), chosen)
        tables = [observed.copy() for _ in filled]
        for table, values in zip(tables, filled, strict=True):
            table[missing] = values[missing[chosen]]
        return tables, errors

    def conditional_score_samples(self, X: ArrayLike, given: Given) -> Floats:
        """Compute the exact log density of some features of each sample given the others.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, and integrated out on both sides.
        given : int, str or sequence of them, or array-like of bool of shape (n_features,)
            Features b to condition on, selected by index, by a mask or, if names are known from
            `fit`, by name; the density is that of all others.  Without features the result is
            `score_samples`, with all of them it is 0.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(x_a | x_b) in nats; NaN if x_b is so far out that its log density is -inf.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     coefs=[[[1.0], [1.0]]],
        ...     intercepts=[[0.0, 0.0]],
        ...     noise_covariance=1.0,
        ...     activation="relu",
        ... )
        >>> model.conditional_score_samples([[0.0, 1.0]], given=1).round(4)
        array([-1.205...])
        """
        samples = self._validate_samples(X)
        others, workers = self._other_features(given), self._workers()
        return self._fitted_model().conditional_log_density(samples, others, workers)

    def conditional_mean(self, X: ArrayLike, given: Given) -> Floats:
        """Compute the mean of each of the other features given some features of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, and not conditioned on.  Values of features that are
            not given are ignored.
        given : int, str or sequence of them, or array-like of bool of shape (n_features,)
            Features to condition on, selected by index, by a mask or, if names are known from
            `fit`, by name.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_other_features)
            Conditional means: a column for each feature that is not given, in order.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     coefs=[[[1.0]], [[1.0], [2.0]]],
        ...     intercepts=[[0.0], [0.0, 0.0]],
        ...     noise_covariance=0.01,
        ...     activation="abs",
        ... )  # x_1 = |z|, x_2 = 2 |z|, and noise
        >>> model.conditional_mean([[1.0, 0.0], [2.0, 0.0]], given=0).round(2)
        array([[1.98],
               [3.96]])
        """

        def means(distributions: FeatureDistributions, values: Floats) -> Floats:
            return distributions.mean

        samples, others = self._validate_samples(X), self._other_features(given)
        return self._describe(samples, others, means)

    def conditional_cdf(self, X: ArrayLike, given: Given) -> Floats:
        """Compute the distribution function of each of the other features given some features.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Values of the features to condition on, and values of the others at which their
            distribution functions are evaluated.  Missing values are NaN.
        given : int, str or sequence of them, or array-like of bool of shape (n_features,)
            Features to condition on, selected by index, by a mask or, if names are known from
            `fit`, by name.

        Returns
        -------
        probability : ndarray of shape (n_samples, n_other_features)
            For each feature that is not given, in order, the probability that it is at most its
            value in X, regardless of the values of the others.  NaN if that value is missing.

        See Also
        --------
        conditional_quantiles : The inverse.
        conditional_score_samples : The joint log density of all other features.

        Notes
        -----
        The probability is a sum of Gaussian integrals over regions with one more dimension than
        latent space.  For one and two latent dimensions errors are below 1e-10, and below 1e-9 if
        the given features are hundreds of standard deviations away from everything that the model
        generates.  Beyond a thousand, the distribution of a feature on each region is replaced by a
        Gaussian with the same mean and variance; no bound is known for the error, which is small
        unless the slope of the feature is that many times its noise.  For more latent dimensions
        the probability is an estimate to two or three digits.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     coefs=[[[1.0]], [[1.0], [2.0]]],
        ...     intercepts=[[0.0], [0.0, 0.0]],
        ...     noise_covariance=0.01,
        ...     activation="abs",
        ... )  # x_1 = |z|, x_2 = 2 |z|, and noise
        >>> model.conditional_cdf([[1.0, 1.98], [1.0, 2.2], [1.0, 1.0]], given=0).round(2)
        array([[0.5 ],
               [0.84],
               [0.  ]])
        """

        def probabilities(distributions: FeatureDistributions, values: Floats) -> Floats:
            missing = np.isnan(values)
            result = distributions.cdf(np.where(missing, 0.0, values))
            return np.where(missing, np.nan, result)

        samples, others = self._validate_samples(X), self._other_features(given)
        return self._describe(samples, others, probabilities)

    def conditional_quantiles(
        self, X: ArrayLike, given: Given, q: float | ArrayLike = (0.05, 0.5, 0.95)
    ) -> Floats:
        """Compute quantiles of each of the other features given some features of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, and not conditioned on.  Values of features that are
            not given are ignored.
        given : int, str or sequence of them, or array-like of bool of shape (n_features,)
            Features to condition on, selected by index, by a mask or, if names are known from
            `fit`, by name.
        q : float or array-like of shape (n_quantiles,), default=(0.05, 0.5, 0.95)
            Probabilities from 1e-12 to 1 - 1e-12.

        Returns
        -------
        quantiles : ndarray of shape (n_samples, n_other_features) or (n_quantiles, n_samples, \
n_other_features)
            For each feature that is not given, in order, the value below which it lies with
            probability q.  As in `numpy.quantile`, the first axis is present if q is an array.

        See Also
        --------
        conditional_cdf : The inverse, and its accuracy.

        Notes
        -----
        Quantiles are roots of `conditional_cdf`, found to 13 digits of the value or of the standard
        deviation, whichever is larger, with about ten evaluations for each q.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     coefs=[[[1.0]], [[1.0], [2.0]]],
        ...     intercepts=[[0.0], [0.0, 0.0]],
        ...     noise_covariance=0.01,
        ...     activation="abs",
        ... )  # x_1 = |z|, x_2 = 2 |z|, and noise
        >>> model.conditional_quantiles([[1.0, 0.0], [2.0, 0.0]], given=0, q=0.95).round(2)
        array([[2.35],
               [4.33]])
        >>> model.conditional_quantiles([[1.0, 0.0]], given=0).shape
        (3, 1, 1)
        """
        shares = finite_array(q, "q")
        if shares.ndim > 1 or np.any(np.minimum(shares, 1.0 - shares) < _SMALLEST_SHARE):
            raise ValueError(
                f"q must be a probability from {_SMALLEST_SHARE} to 1 - {_SMALLEST_SHARE}, or "
                f"several in one axis, got {q!r}."
            )

        def values_at(distributions: FeatureDistributions, values: Floats) -> Floats:
            found = [distributions.quantile(float(share)) for share in shares.ravel()]
            return np.stack(found, axis=1) if found else np.empty((len(values), 0, values.shape[1]))

        samples, others = self._validate_samples(X), self._other_features(given)
        result = np.moveaxis(self._describe(samples, others, values_at, (shares.size,)), 1, 0)
        return result[0] if shares.ndim == 0 else result

    def _describe(
        self,
        samples: NDArray[Any],
        others: Bools,
        describe: Callable[[FeatureDistributions, Floats], Floats],
        shape: tuple[int, ...] = (),
    ) -> Floats:
        """Describe the distributions of some features given the others: (n, *shape, k).

        ``describe`` is given the distributions, and the values (n, k) that were observed.
        """
        features = np.flatnonzero(others)
        result = np.empty((len(samples), *shape, len(features)))
        if features.size == 0:
            return result
        model = self._fitted_model()

        def describe_batch(batch: NDArray[Any]) -> Floats:
            table = read(batch)
            distributions = model.feature_distributions(np.where(others, np.nan, table), features)
            found = describe(distributions, table[:, features])
            found[np.isneginf(distributions.log_density)] = np.inf
            return found

        self._workers().fill(result, describe_batch, model.distribution_bytes, samples)
        # What was marked, and quantiles that are infinite of features that are known.
        unknown = np.asarray(np.isinf(result).reshape(len(samples), -1).any(axis=1))
        condition = np.where(others, np.nan, samples)
        marked = np.flatnonzero(unknown)
        unknown[marked] = np.isneginf(model.log_density(condition[marked], self._workers()))
        self._refuse_unknown(condition, unknown)
        return result

    def _refuse_unknown(
        self,
        samples: NDArray[Any],
        unknown: Bools,
        numbers: Integers | None = None,
    ) -> None:
        """Refuse samples (n, D) too far out for anything to be known of what is missing."""
        if not unknown.any():
            return
        first = int(np.flatnonzero(unknown)[0])
        column = int(np.nanargmax(np.abs(samples[first])))
        raise ValueError(
            "X must hold values whose distances from the model, in standard deviations of the "
            "noise, have finite squares: nothing is known of other features otherwise. "
            f"Got {samples[first, column]} in column {self._column_names()[column]!r} of sample "
            f"{first if numbers is None else numbers[first]}."
        )

    def _other_features(self, given: Given) -> Bools:
        """Mark the features that are not given."""
        names = getattr(self, "feature_names_in_", np.empty(0, dtype=object)).tolist()
        if isinstance(given, str | Integral):
            features: list[Any] = [given]
        elif isinstance(given, Iterable) and not isinstance(given, bytes):
            features = list(given)
        else:
            raise ValueError(f"given must hold indices or names of features, got {given!r}.")
        n_features = self.n_features_in_
        if features and all(isinstance(feature, bool | np.bool_) for feature in features):
            if len(features) != n_features or isinstance(given, bool):
                raise ValueError(
                    f"given must be a mask of the {n_features} features, or hold indices or names "
                    f"of them, got {given!r}."
                )
            return ~np.array(features, dtype=bool)
        others = np.ones(n_features, dtype=bool)
        for feature in features:
            others[index_of_feature(feature, names, n_features, "given")] = False
        return others


def is_frame(X: Any) -> bool:
    """Whether a table is a data frame of pandas or polars."""
    return hasattr(X, "columns") and (hasattr(X, "isetitem") or hasattr(X, "with_columns"))


def write_frame(X: Any, table: NDArray[Any], is_changed: Bools) -> Any:
    """Copy a data frame, with some of its columns replaced by those of a table (n, D)."""
    if hasattr(X, "isetitem"):  # pandas
        frame = X.copy()
        for d in np.flatnonzero(is_changed):
            dtype = X.dtypes.iloc[d]
            column = table[:, d]
            frame.isetitem(d, column.astype(dtype) if dtype == np.float32 else column)
        return frame
    columns = [X[name] for name in X.columns]  # polars
    return X.with_columns(
        *(
            type(columns[d])(
                columns[d].name,
                table[:, d],
                dtype=columns[d].dtype if columns[d].dtype.is_float() else None,
            )
            for d in np.flatnonzero(is_changed)
        )
    )
