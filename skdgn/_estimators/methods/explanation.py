"""Which values of a sample make it unlikely: a method of all exact densities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdgn._estimators.methods.conditioning import ExactConditioning
from skdgn._posterior import shapley_values, surprises
from skdgn._runtime import Floats, check_integer

_METHODS = ("shapley", "leave_one_out")


class ExactExplanation(ExactConditioning):
    """Method of an exact density that divides a log density among features.

    A mixin, like `ExactInference`.
    """

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
            Samples, not necessarily those of `fit`; missing values are NaN, and contribute 0.
        method : {"shapley", "leave_one_out"}, default="shapley"
            ``"shapley"`` divides ``-score_samples(X)`` among the values of a sample: its
            contributions add up to it; see Notes.  ``"leave_one_out"`` is the negative log density
            of a value given all others of its sample, ``-log p(x_j | others)``; these contributions
            do not add up to a known total.
        standardize : bool, default=False
            Whether to measure each feature in its standard deviations under the model, so that
            contributions of features in different units can be compared.  This only subtracts the
            log of the standard deviation of a feature from its contributions.
        n_permutations : int, default=100
            Number of orders, at least 4, for samples with more than 12 observed values.
        random_state : int, RandomState, Generator or None, default=None
            Seed of these orders.  None uses the ``random_state`` of the estimator.
        return_error : bool, default=False
            Whether to also return standard errors.

        Returns
        -------
        contributions : ndarray of shape (n_samples, n_features)
            Contributions in nats.  A value with a large contribution makes its sample unlikely; the
            contribution is negative if it makes the sample more likely.  Not finite for samples
            with a log density of -inf.
        errors : ndarray of shape (n_samples, n_features)
            Standard errors of the contributions, if ``return_error`` is True; zero except for
            Shapley values of more than 12 observed values.

        Notes
        -----
        The Shapley value of a value is the amount that it adds to ``-log p`` of the values before
        it, averaged over all orders of the values.  All of these are exact marginals of the
        density, not samples with values replaced.  With up to 12 observed values all orders are
        considered, through the 4,096 subsets; with more, orders are drawn, each with its reverse.
        Contributions add up to ``-score_samples(X)`` in either case.

        If two values contradict each other, the contribution is divided between them.  A value that
        is rare on its own has a contribution even if another value explains it; with
        ``"leave_one_out"`` it has none.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0], [1.0], [0.0]]], [[0.0, 0.0, 0.0]], 0.1, activation="relu"
        ... )  # two features that are alike, and a third of its own
        >>> model.explain([[1.0, -1.0, 0.0]]).round(1)
        array([[ 5.5,  5.5, -0.2]])
        >>> model.explain([[1.0, -1.0, 0.0]], method="leave_one_out").round(1)
        array([[ 9.6,  9.6, -0.2]])
        """
        if not isinstance(method, str) or method not in _METHODS:
            raise ValueError(f"method must be one of {_METHODS}, got {method!r}.")
        check_integer(n_permutations, "n_permutations", 4)
        samples = np.asarray(self._validate_samples(X), dtype=np.float64)
        model, workers = self._fitted_model(), self._workers()

        def log_density(marginals: Floats) -> Floats:
            return model.log_density(marginals, workers)

        if method == "leave_one_out":
            values, errors = surprises(log_density, samples), np.zeros(samples.shape)
        else:
            generator = self._random_source(random_state)
            values, errors = shapley_values(log_density, samples, int(n_permutations), generator)
        if standardize:
            values = np.where(
                np.isnan(samples), 0.0, values - 0.5 * np.log(self._marginals().variance[0])
            )
        return (values, errors) if return_error else values
