"""scikit-learn's callback protocol, where scikit-learn has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from skdgn._fit import Iteration

__all__ = ["FitTasks"]


class FitTasks:
    """The tasks of a fit that callbacks receive: the fit, its runs, their iterations.

    Callbacks are those of scikit-learn 1.9 or later, in which estimators have ``set_callbacks``.
    The fit creates this object itself.

    Parameters
    ----------
    estimator : BaseEstimator
        The estimator being fitted.
    n_runs : int
        Number of starts.
    max_iter : int
        Maximum number of iterations of each.
    X : array-like of shape (n_samples, n_features)
        The samples as passed by the user.
    sample_weight : array-like of shape (n_samples,) or None
        Weights of the samples.
    attributes : callable
        Function that converts the result of an iteration to fitted attributes.

    Examples
    --------
    A callback that stops a fit after three iterations:

    >>> from skdgn import PiecewiseAffineDGN
    >>> from skdgn.datasets import make_wave
    >>> class Stop:
    ...     def setup(self, estimator, context):
    ...         pass
    ...
    ...     def teardown(self, estimator, context):
    ...         pass
    ...
    ...     def on_fit_task_begin(self, estimator, context):
    ...         pass
    ...
    ...     def on_fit_task_end(self, estimator, context):
    ...         return context.task_name == "iteration" and context.task_id == 2
    >>> model = PiecewiseAffineDGN(hidden_layer_sizes=(4,), tol=0.0, random_state=0)
    >>> if hasattr(model, "set_callbacks"):  # scikit-learn 1.9 or later
    ...     model = model.set_callbacks(Stop()).fit(make_wave(100, random_state=0))
    ...     assert model.n_iter_ == 3
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        n_runs: int,
        max_iter: int,
        X: ArrayLike,
        sample_weight: ArrayLike | None,
        attributes: Callable[[Any], dict[str, Any]],
    ) -> None:
        self._estimator = estimator
        self._max_iter = max_iter
        self._attributes = attributes
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self._arguments = {"estimator": estimator, "X": X, "y": None, "metadata": metadata}
        self._fit: Any = None
        self._run: Any = None
        self._run_number = 0
        if hasattr(estimator, "_init_callback_context"):
            self._fit = estimator._init_callback_context(max_subtasks=n_runs)
            self._fit.call_on_fit_task_begin(**self._arguments)

    def __call__(self, iteration: Iteration) -> bool:
        """Tell the callbacks of an iteration; True if one of them wants the run to stop."""
        # Tasks of estimators without callbacks are of no interest to anybody.
        if self._fit is None or not hasattr(self._estimator, "_skl_callbacks"):
            return False
        if iteration.run != self._run_number:
            self._end_run()
            self._run_number = iteration.run
            self._run = self._fit.subcontext(task_name="run", max_subtasks=self._max_iter)
            self._run.call_on_fit_task_begin(**self._arguments)
        task = self._run.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(**self._arguments)
        return bool(
            task.call_on_fit_task_end(
                **self._arguments,
                reconstruction_attributes=lambda: self._attributes(iteration.result()),
            )
        )

    def end(self, attributes: dict[str, Any]) -> None:
        """Tell the callbacks that the fit is over."""
        self._end_run()
        if self._fit is not None:
            self._fit.call_on_fit_task_end(**self._arguments, reconstruction_attributes=attributes)

    def _end_run(self) -> None:
        if self._run is not None:
            self._run.call_on_fit_task_end(**self._arguments)
            self._run = None
