"""The probability of ranges of values: a method of all exact densities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, check_is_fitted

from skdgn._estimators.conditioning import ExactConditioning
from skdgn._runtime import Floats, check_integer, make_generator


class ExactRanges(ExactConditioning):
    """The method of an exact density that integrates it over boxes.

    A mixin, like `ExactInference`.
    """

    def log_probability(
        self,
        lower: ArrayLike,
        upper: ArrayLike,
        *,
        n_draws: int = 256,
        random_state: Any = None,
        return_error: bool = False,
    ) -> Any:
        """Compute the log of the probability that all features lie between bounds.

        Parameters
        ----------
        lower, upper : array-like of shape (n_boxes, n_features)
            Bounds of each feature.  NaN stands for none, as -inf and inf do.
        n_draws : int, default=256
            Number of draws for each box, where the probability is an estimate, see Notes.
        random_state : int, RandomState, Generator or None, default=None
            Seed of these draws.  None takes the estimator's own ``random_state``.
        return_error : bool, default=False
            Whether to return standard errors, too.

        Returns
        -------
        log_probability : ndarray of shape (n_boxes,)
            log P(lower <= x <= upper) in nats, at most 0; -inf for boxes without an inside.
        error : ndarray of shape (n_boxes,)
            Standard error of each, if ``return_error``: of an estimate, or what is left of an
            integral.

        Notes
        -----
        For networks with one latent dimension whose noise is independent between features
        (``covariance_type`` "diag" or "spherical"), and sums of such, it is exact: one-dimensional
        normal integrals inside a quadrature over latent space, to 1e-8 or better however small the
        probability is.

        For others, bounds on one feature are exact, too, as `conditional_cdf` is.  Bounds on more
        are an estimate: features are drawn within their bounds, one after the other, each from its
        exact distribution given those before it.  Its error is small unless bounds are far out;
        probabilities below 1e-12 are lost to rounding.

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
        bounds = (
            _check_bounds(lower, "lower", self.n_features_in_, -np.inf),
            _check_bounds(upper, "upper", self.n_features_in_, np.inf),
        )
        if bounds[0].shape != bounds[1].shape:
            raise ValueError(
                "lower and upper must have the same shape, "
                f"got {bounds[0].shape} and {bounds[1].shape}."
            )
        crossed = np.argwhere(bounds[0] > bounds[1])
        if crossed.size > 0:
            box, column = crossed[0]
            raise ValueError(
                f"lower must be at most upper, got {bounds[0][box, column]} and "
                f"{bounds[1][box, column]} in column {self._column_names()[column]!r} of box {box}."
            )
        generator = make_generator(self.random_state if random_state is None else random_state)
        values, errors = self._fitted_model().log_probability(bounds, int(n_draws), generator)
        return (values, errors) if return_error else values


def _check_bounds(bounds: ArrayLike, name: str, n_features: int, absent: float) -> Floats:
    """Check bounds (n, D) of features; NaN is replaced by infinity."""
    checked: Floats = check_array(
        bounds, dtype=np.float64, ensure_all_finite=False, input_name=name
    )
    if checked.shape[1] != n_features:
        raise ValueError(
            f"{name} must have {n_features} columns, one for each feature, got {checked.shape[1]}."
        )
    return np.where(np.isnan(checked), absent, checked)
