"""Draws, imputation and probabilities, between bounds on features: methods of all densities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from skdgn._estimators.methods.conditioning import ExactConditioning, is_frame, write_frame
from skdgn._estimators.sklearn_parts import name_columns
from skdgn._posterior import (
    Known,
    conditional_means,
    draw_known,
    keep_inside,
    log_probabilities,
)
from skdgn._runtime import Bools, Floats, Integers, RandomSource, check_integer, make_generator

_METHODS = ("mean", "sample")
# Means that cannot be integrated are those of so many draws.
_N_AVERAGED = 1000

Bounds = tuple[Floats, Floats]


class ExactRanges(ExactConditioning):
    """Methods of an exact density that accept bounds of the features.

    A mixin, like `ExactInference`.
    """

    def sample(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ) -> tuple[Any, Integers]:
        """Draw samples from the model, optionally between bounds.

        Parameters
        ----------
        n_samples : int, default=1
            Number of samples.
        random_state : int, RandomState, Generator or None, default=None
            Seed of the draws.  Pass an int for reproducible results.  None uses the
            ``random_state`` of the estimator.
        lower, upper : float or array-like of shape (n_features,), default=None
            Bounds of each feature: samples are drawn given that all features lie between their
            bounds.  NaN, -inf and inf mean no bound.

        Returns
        -------
        X : ndarray or frame of shape (n_samples, n_features)
            The samples; a data frame with the names of the features if configured by
            ``set_output``.
        labels : ndarray of shape (n_samples,)
            Component that each sample was drawn from: a region of latent space for a network, a
            network for a mixture, a member for an ensemble.

        Notes
        -----
        Draws between bounds are exact.  If `log_probability` is exact, they take the same time
        however small the probability of the bounds is.  For other models, draws outside the bounds
        are rejected; an error is raised if fewer than one in ten thousand lies between them.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0], [1.0]]], [[0.0, 0.0]], 1.0, activation="relu"
        ... )
        >>> X, labels = model.sample(3, random_state=0)
        >>> X.shape, labels
        ((3, 2), array([0, 0, 0]))
        >>> X, _ = model.sample(1000, random_state=0, lower=[30.0, float("nan")])
        >>> bool(X[:, 0].min() >= 30.0), X[:, 1].mean().round()  # half of the way up
        (True, np.float64(15.0))
        """
        check_is_fitted(self)
        check_integer(n_samples, "n_samples")
        model, generator = self._fitted_model(), self._random_source(random_state)
        if lower is None and upper is None:
            samples, labels = model.draw(int(n_samples), generator)
            return name_columns(self, samples), labels
        bounds = self._check_bounds(lower, upper, (1, self.n_features_in_))
        if model.line_regions is not None:
            known = Known(np.full_like(bounds[0], np.nan), *bounds)
            self._refuse_impossible(known, log_probabilities(model.line_regions, known)[0])
            drawn, numbers = draw_known(model.line_regions, known, int(n_samples), generator)
            return name_columns(self, drawn[:, 0]), numbers[:, 0]
        samples, labels = keep_inside(
            lambda size: model.draw(size, generator), bounds[0][0], bounds[1][0], int(n_samples)
        )
        self._refuse_unlikely(len(samples), int(n_samples))
        return name_columns(self, samples), labels

    def impute(
        self,
        X: ArrayLike,
        method: str = "mean",
        n_draws: int | None = None,
        random_state: Any = None,
        *,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        return_error: bool = False,
    ) -> Any:
        """Fill in missing values given the observed values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN. Samples with no observed values are accepted.
        method : {"mean", "sample"}, default="mean"
            The conditional mean, or an independent draw from the conditional distribution: of the
            network of a mixture or the member of an ensemble, then of the region, of the latent
            point in it, and of the noise.
        n_draws : int, default=None
            Number of completed tables; only for ``method="sample"``.  None returns one, without an
            axis for it.
        random_state : int, RandomState, Generator or None, default=None
            Seed of the draws.  Pass an int for reproducible results.  None uses the
            ``random_state`` of the estimator.
        lower, upper : float or array-like of shape (n_features,) or (n_samples, n_features), \
default=None
            Bounds of missing values, for example of values that are censored, rounded, or cannot be
            negative.  NaN, -inf and inf mean no bound; bounds of observed values are ignored.
        return_error : bool, default=False
            Whether to also return standard errors; only for ``method="mean"``.

        Returns
        -------
        X_imputed : array-like of shape (n_samples, n_features) or (n_draws, n_samples, n_features)
            The samples with missing values filled in; observed values are unchanged.  For a data
            frame, a data frame with the same columns and index is returned, and for several draws a
            list of them.
        error : ndarray of shape (n_samples, n_features)
            Estimated errors of the means, if ``return_error`` is True; zero if they are exact.

        Notes
        -----
        For samples without bounds everything is exact, except the means of a `TransformedDensity`:
        they are integrals, to about a thousandth of a standard deviation.  With bounds, draws are
        exact, as in `sample`, and means are exact if `log_probability` is: for networks with one
        latent dimension whose noise is independent between features, and for sums of these.  For
        other models, the mean of 1,000 draws is returned.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     coefs=[[[1.0]], [[1.0], [2.0]]],
        ...     intercepts=[[0.0], [0.0, 0.0]],
        ...     noise_covariance=0.01,
        ...     activation="abs",
        ... )
        >>> model.impute([[1.0, np.nan], [np.nan, 4.0]]).round(2)
        array([[1.  , 1.98],
               [2.  , 4.  ]])

        The second feature is known to be 4 or more:

        >>> model.impute([[np.nan, np.nan]], lower=[np.nan, 4.0]).round(2)
        array([[2.37, 4.74]])
        """
        check_is_fitted(self)
        if not isinstance(method, str) or method not in _METHODS:
            raise ValueError(f"method must be one of {_METHODS}, got {method!r}.")
        if n_draws is not None:
            if method != "sample":
                raise ValueError(
                    f'n_draws must be None unless method="sample", got {n_draws!r} with '
                    f"method={method!r}."
                )
            check_integer(n_draws, "n_draws", or_none=" or None")
        if return_error and method != "mean":
            raise ValueError(
                f'return_error must be False unless method="mean", got method={method!r}.'
            )
        observed = self._validate_samples(X)
        bounds = self._check_bounds(lower, upper, observed.shape, np.isnan(observed))
        n_tables = None if method == "mean" else int(n_draws or 1)
        tables, errors = self._complete_between(observed, bounds, n_tables, random_state)
        if is_frame(X):
            tables = [write_frame(X, table, np.isnan(observed).any(axis=0)) for table in tables]
        if n_draws is None:
            return (tables[0], errors) if return_error else tables[0]
        return tables if is_frame(X) else np.stack(tables)

    def _complete_between(
        self, observed: NDArray[Any], bounds: Bounds, n_draws: int | None, random_state: Any
    ) -> tuple[list[Any], Floats]:
        """Fill in what is missing between bounds, and say how exact means are: (n, D)."""
        errors = np.zeros(observed.shape)
        generator = self._random_source(random_state)
        is_bounded = (bounds[0] > -np.inf) | (bounds[1] < np.inf)
        chosen = np.flatnonzero(is_bounded.any(axis=1))
        if chosen.size == 0:
            return self._complete(observed, n_draws, generator)
        free = np.flatnonzero(~is_bounded.any(axis=1))
        values = np.asarray(observed[chosen], dtype=np.float64)
        known = Known(values, bounds[0][chosen], bounds[1][chosen])
        tables = [observed.copy() for _ in range(n_draws or 1)]
        if free.size > 0:
            completed, errors[free] = self._complete(observed[free], n_draws, generator)
            for table, part in zip(tables, completed, strict=True):
                table[free] = part
        regions = self._fitted_model().line_regions
        if regions is None:
            filled, errors[chosen] = self._fill_by_rejection(known, chosen, n_draws, generator)
        else:
            self._refuse_impossible(known, log_probabilities(regions, known)[0], chosen)
            if n_draws is None:
                filled = conditional_means(regions, known)[None]
            else:
                filled, _ = draw_known(regions, known, n_draws, generator)
        missing = np.isnan(values)
        for table, part in zip(tables, filled, strict=True):
            table[chosen] = np.where(missing, part, table[chosen])
        return tables, errors

    def _fill_by_rejection(
        self, known: Known, numbers: Integers, n_draws: int | None, generator: RandomSource
    ) -> tuple[Floats, Floats]:
        """Fill in what is known of samples (n, D), by draws or means: (m, n, D), and errors."""
        model, workers = self._fitted_model(), self._workers()
        n_wanted = _N_AVERAGED if n_draws is None else n_draws
        filled = np.empty((n_draws or 1, *known.values.shape))
        errors = np.zeros(known.values.shape)
        for i, number in enumerate(numbers):

            def propose(size: int, sample: Floats = known.values[[i]]) -> Any:
                if np.isnan(sample).all():
                    return model.draw(size, generator)
                drawn = model.draw_missing(sample, size, generator, workers)[:, 0]
                return drawn, np.zeros(size, dtype=np.intp)

            drawn, _ = keep_inside(propose, known.lower[i], known.upper[i], n_wanted)
            self._refuse_unlikely(len(drawn), n_wanted, f" for sample {number}")
            if n_draws is None:
                filled[0, i] = drawn.mean(axis=0)
                errors[i] = drawn.std(axis=0, ddof=1) / math.sqrt(n_wanted)
            else:
                filled[:, i] = drawn
        return filled, np.where(np.isnan(known.values), errors, 0.0)

    def log_probability(
        self,
        lower: ArrayLike | None,
        upper: ArrayLike | None,
        *,
        n_draws: int = 256,
        random_state: Any = None,
        return_error: bool = False,
    ) -> Any:
        """Compute the log probability that all features lie between bounds.

        Parameters
        ----------
        lower, upper : array-like of shape (n_boxes, n_features), (n_features,), float or None
            Bounds of each feature.  NaN, -inf, inf and None mean no bound.
        n_draws : int, default=256
            Number of draws for each box, if the probability is estimated; see Notes.
        random_state : int, RandomState, Generator or None, default=None
            Seed of these draws.  None uses the ``random_state`` of the estimator.
        return_error : bool, default=False
            Whether to also return standard errors.

        Returns
        -------
        log_probability : ndarray of shape (n_boxes,)
            log P(lower <= x <= upper) in nats, at most 0; -inf for boxes with an empty interior.
        error : ndarray of shape (n_boxes,)
            Standard error of an estimate, or remainder of an integral, if ``return_error`` is True;
            infinite if no probability was found in a box with a nonempty interior.

        Notes
        -----
        For networks with one latent dimension whose noise is independent between features
        (``covariance_type`` "diag" or "spherical"), and for sums of these, the result is exact:
        one-dimensional normal integrals inside a quadrature over latent space, to 1e-8 or better
        however small the probability is.

        For other models, the result is as exact as `conditional_cdf` if there are bounds on only
        one feature.  With bounds on more, it is an estimate: features are drawn within their
        bounds, one after the other, each from its exact distribution given those before it.  The
        error is small unless bounds are far out; probabilities below 1e-12 are lost to rounding.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0], [2.0]]], [[0.0], [0.0, 0.0]], 0.01, activation="abs"
        ... )  # x_1 = |z|, x_2 = 2 |z|, and noise
        >>> lower = [[1.0, np.nan], [1.0, 3.0], [30.0, np.nan]]
        >>> upper = [[np.inf, np.nan], [2.0, np.inf], [np.inf, np.nan]]
        >>> model.log_probability(lower, upper).round(3)
        array([  -1.14 ,   -2.436, -449.168])
        """
        check_is_fitted(self)
        check_integer(n_draws, "n_draws")
        bounds = self._read_bounds(lower, "lower"), self._read_bounds(upper, "upper")
        if len(bounds[0]) != len(bounds[1]) and 1 not in (len(bounds[0]), len(bounds[1])):
            raise ValueError(
                "lower and upper must have the same number of boxes, "
                f"got {len(bounds[0])} and {len(bounds[1])}."
            )
        low, high = (part.copy() for part in np.broadcast_arrays(*bounds))
        self._refuse_crossed((low, high), low > high, "at most", "box")
        generator = make_generator(self.random_state if random_state is None else random_state)
        values, errors = self._fitted_model().log_probability((low, high), int(n_draws), generator)
        errors[np.isneginf(values) & np.all(low < high, axis=1)] = np.inf
        return (values, errors) if return_error else values

    def _check_bounds(
        self,
        lower: ArrayLike | None,
        upper: ArrayLike | None,
        shape: tuple[int, ...],
        is_missing: Bools | None = None,
    ) -> Bounds:
        """Check bounds of missing values, and repeat those that all samples share: (n, D) each."""
        bounds = []
        for given, name, absent in ((lower, "lower", -np.inf), (upper, "upper", np.inf)):
            read = self._read_bounds(given, name)
            if len(read) not in (1, shape[0]):
                raise ValueError(
                    f"{name} must have shape {(shape[1],)} or {shape}, got {read.shape}."
                )
            read = np.broadcast_to(read, shape)
            bounds.append(np.where(True if is_missing is None else is_missing, read, absent))
        self._refuse_crossed((bounds[0], bounds[1]), ~(bounds[0] < bounds[1]), "below", "sample")
        return bounds[0], bounds[1]

    def _read_bounds(self, bounds: ArrayLike | None, name: str) -> Floats:
        """Read bounds (n, D), (D,) of one box, or one of all; NaN is replaced by infinity."""
        try:
            samples = np.asarray(np.nan if bounds is None else bounds, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must be an array of numbers: {error}.") from error
        samples = np.atleast_2d(
            np.full(self.n_features_in_, samples) if samples.ndim == 0 else samples
        )
        if samples.ndim > 2:
            raise ValueError(f"{name} must have one or two axes, got shape {samples.shape}.")
        if samples.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{name} must have {self.n_features_in_} columns, one for each feature, "
                f"got {samples.shape[1]}."
            )
        return np.where(np.isnan(samples), -np.inf if name == "lower" else np.inf, samples)

    def _refuse_crossed(self, bounds: Bounds, crossed: Bools, relation: str, noun: str) -> None:
        """Refuse bounds (n, D) that leave nothing between them."""
        if crossed.any():
            box, column = np.argwhere(crossed)[0]
            raise ValueError(
                f"lower must be {relation} upper, got {bounds[0][box, column]} and "
                f"{bounds[1][box, column]} in column {self._column_names()[column]!r} of {noun} "
                f"{box}."
            )

    def _refuse_impossible(
        self, known: Known, log_probability: Floats, numbers: Integers | None = None
    ) -> None:
        """Refuse boxes of probability zero, or around values of which nothing is known."""
        if np.isneginf(log_probability).any():
            first = int(np.flatnonzero(np.isneginf(log_probability))[0])
            where = "" if numbers is None else f" for sample {numbers[first]}"
            raise ValueError(
                "lower and upper must leave some probability between them, got a box of "
                f"probability zero{where}: {known.lower[first]} to {known.upper[first]}."
            )

    def _refuse_unlikely(self, n_found: int, n_wanted: int, where: str = "") -> None:
        """Refuse boxes in which draws do not lie."""
        if n_found < n_wanted:
            raise ValueError(
                "lower and upper must hold one in 10,000 draws, unless there is one latent "
                "dimension and covariance_type is 'diag' or 'spherical'; got a box in which fewer "
                f"lie{where}."
            )
