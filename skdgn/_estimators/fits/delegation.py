"""Estimators that fit another one: how their own parameters reach it."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import clone


class DelegatingMixin:
    """For estimators with parameters ``estimator``, ``random_state``, ``n_jobs``, ``verbose``."""

    estimator: Any
    random_state: Any
    n_jobs: int | None
    verbose: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # of the BaseEstimator mixed in
        tags.input_tags.allow_nan = True
        return tags

    def _configure(self, estimator: Any) -> Any:
        """Hand the last three parameters to an estimator and all its parts that have them.

        None, and a ``verbose`` of 0, leave it as it is.
        """
        wanted = {"random_state": self.random_state, "n_jobs": self.n_jobs}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        if self.verbose:
            wanted["verbose"] = self.verbose
        parameters = {
            name: wanted[last]
            for name, value in estimator.get_params().items()
            if (last := name.rpartition("__")[2]) in wanted
            and not isinstance(value, bool)  # a pipeline's switch is not a level
        }
        return estimator.set_params(**parameters) if parameters else estimator

    def _fit_copy(self, template: Any, *arguments: Any) -> tuple[Any, KeyboardInterrupt | None]:
        """Fit a copy of an estimator; an interrupt after which it kept its best is handed on.

        Whoever called has to raise it, once that best is kept, too.
        """
        estimator = self._configure(clone(template))
        try:
            return estimator.fit(*arguments), None
        except KeyboardInterrupt as interrupt:
            if not hasattr(estimator, "n_features_in_"):
                raise  # there is no best that it could have kept
            return estimator, interrupt

    def set_params(self, **params: Any) -> Self:
        """Set parameters of this estimator, and ``estimator__...`` of the one it fits.

        Parameters
        ----------
        **params : dict
            Parameters by name.

        Returns
        -------
        self : estimator
            The estimator itself.

        Examples
        --------
        >>> from skdgn import DGNImputer, PiecewiseAffineDGN
        >>> imputer = DGNImputer(PiecewiseAffineDGN()).set_params(estimator__tol=0.01)
        >>> imputer.estimator.tol
        0.01
        """
        nested = [name for name in params if name.startswith("estimator__")]
        if nested and params.get("estimator", self.estimator) is None:
            raise ValueError(
                f"{nested[0]} needs an estimator to set it on, got estimator=None; "
                "pass one, for example estimator=PiecewiseAffineDGN()."
            )
        super().set_params(**params)  # type: ignore[misc]  # of the BaseEstimator mixed in
        return self
