"""Estimators fitted by exact expectation-maximization, to a table or to chunks of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdgn._estimators.fits.attributes import unchanged_by_failure
from skdgn._estimators.fits.callbacks import FitTasks
from skdgn._estimators.fits.complaints import Complaint, complain
from skdgn._estimators.fits.progress import IterationPrinter, describe_interrupt
from skdgn._estimators.inputs import check_weights, validate_samples
from skdgn._estimators.methods import ExactDensity
from skdgn._estimators.sklearn_parts import CallbackSupportMixin, fit_context
from skdgn._fit import (
    FitResult,
    Iteration,
    Parameters,
    Running,
    SizeSettings,
    StepResult,
    fit_sizes,
    take_mixture_step,
)
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._runtime import Floats, draw_seed


class FittedByEM(CallbackSupportMixin, ExactDensity):
    """The methods `fit` and `partial_fit` of `PiecewiseAffineDGN` and `DGNMixture`.

    An abstract mixin, like `ExactDensity`.  An estimator fills in ``_settings``,
    ``_check_samples``, ``_last_parameters``, ``_fit_parameters``, ``_take_step``, ``_attributes``
    and ``_has_prior``, which are called in this order.
    """

    max_iter: int
    warm_start: bool

    # Set by fit.
    n_features_in_: int
    n_iter_: int
    _running: list[dict[str, Any]]  # statistics of the samples so far, for `partial_fit`

    # Called with arguments of the same kinds: `skdgn._fit.fit_network`, `skdgn._fit.take_step`.
    _fit_parameters: ClassVar[Callable[..., FitResult]]
    _take_step: ClassVar[Callable[..., StepResult]]

    def _settings(self) -> Any:
        """Check what scikit-learn's constraints leave open."""
        raise NotImplementedError("a mixin: the estimator has the parameters")

    def _check_samples(
        self,
        samples: NDArray[Any],
        weights: Floats,
        settings: Any,
        continuation: str | None,
        sets_units: bool,
    ) -> Any:
        """Refuse samples that cannot be fitted; return the settings that go with them.

        ``continuation`` says why a fit goes on from a model, if it does; ``sets_units`` whether
        these samples are the first.
        """
        raise NotImplementedError("a mixin: the estimator knows what it needs")

    def _last_parameters(self, settings: Any, reason: str) -> Parameters:
        """Return the parameters of the last fit, for the next one to start from."""
        raise NotImplementedError("a mixin: the estimator holds the parameters")

    def _attributes(self, weights: Floats, networks: list[tuple[Network, Noise]]) -> dict[str, Any]:
        """Return the fitted attributes that describe parameters."""
        raise NotImplementedError("a mixin: the estimator holds the parameters")

    def _has_prior(self) -> bool:
        raise NotImplementedError("a mixin: the estimator has the parameters")

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit all parameters by exact expectation-maximization.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN, or masked.  Every feature needs at least one observed
            value, and a mixture at least as many samples as networks.
        y : None
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 counts a sample twice.

        Returns
        -------
        self : PiecewiseAffineDGN or DGNMixture
            The fitted estimator.

        Notes
        -----
        Except for rounding, the result does not depend on the order of the samples or features.  A
        table that cannot be sorted within the ``working_memory`` of scikit-learn's configuration
        (this takes about eight times its size in double precision) is read in batches at every
        iteration, from disk if it is a `numpy.memmap`, and never copied; a mixture then starts from
        20,000 of its samples.

        A fit that is interrupted (Ctrl-C) keeps the best parameters so far, if there are any, and
        raises the interrupt again, which also ends a loop of fits or a search.  If no iteration has
        been completed, ``lower_bound_`` is that of the samples on which starts are compared.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> from skdgn.datasets import make_wave
        >>> X = make_wave(100, random_state=0)
        >>> model = PiecewiseAffineDGN(hidden_layer_sizes=(4,), tol=0.01, random_state=0).fit(X)
        >>> model.converged_
        True
        >>> bool((model.lower_bounds_[1:] >= model.lower_bounds_[:-1]).all())
        True
        """
        result = self._fit(X, sample_weight)
        if result.interrupted:
            raise KeyboardInterrupt(describe_interrupt(self.n_iter_))
        complaint = Complaint(
            result.converged or result.stopped, np.flatnonzero(result.bound_by_ties).tolist()
        )
        advice = (
            f"within max_iter={self.max_iter} iterations. Increase max_iter or tol, or call fit "
            "again with warm_start=True."
        )
        # One level for scikit-learn's wrapper of `fit`, one for this method.
        complain([complaint], advice, self._column_names(), level=3)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Update the fit with a chunk of samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN. In the first chunk, every feature needs at least one
            observed value.
        y : None
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 counts a sample twice.

        Returns
        -------
        self : PiecewiseAffineDGN or DGNMixture
            The fitted estimator.

        Notes
        -----
        This is stepwise EM [1]_. The first chunk is fitted as by `fit`; after an earlier `fit`, its
        samples are the first chunk.  Every other chunk adds its statistics to running statistics,
        in which older chunks have less and less weight, and takes one step.  Chunks should not
        differ systematically: shuffle the samples before dividing them.  ``lower_bound_`` and
        ``lower_bounds_`` are those of the last chunk, which may be less likely than the one before;
        ``n_iter_`` counts the steps.  An interrupt (Ctrl-C) leaves the estimator unchanged.

        References
        ----------
        .. [1] O. Cappe and E. Moulines, On-line expectation-maximization algorithm for latent data
           models, Journal of the Royal Statistical Society B 71 (2009).

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> from skdgn.datasets import make_noisy_circle
        >>> model = PiecewiseAffineDGN(hidden_layer_sizes=(8,), random_state=0)
        >>> for chunk in range(3):
        ...     model = model.partial_fit(make_noisy_circle(200, random_state=chunk))
        >>> model.n_features_in_
        2
        """
        with unchanged_by_failure(self):
            if not hasattr(self, "n_iter_"):
                if self._fit(X, sample_weight).interrupted:
                    raise KeyboardInterrupt
                return self
            settings = self._settings()
            parameters = self._last_parameters(settings, "partial_fit")
            samples = self._validate_samples(X)
            weights = check_weights(sample_weight, samples)
            running = [Running.from_state(state) for state in self._running]
            settings = self._check_samples(samples, weights, settings, "partial_fit", not running)
            take_step = self._take_step
            if isinstance(settings, SizeSettings):  # chosen by the first fit
                settings, take_step = settings.branch_of(parameters), take_mixture_step
            result = take_step(parameters, running, samples, weights, settings)
            self.__dict__.update(
                self._attributes(result.weights, result.networks),
                converged_=False,
                n_iter_=self.n_iter_ + 1,
                lower_bounds_=np.array([result.lower_bound]),
                lower_bound_=result.lower_bound,
                lower_bound_error_=result.lower_bound_error,
                _running=[own.to_state() for own in result.running],
            )
        return self

    def _fit(self, X: ArrayLike, sample_weight: ArrayLike | None) -> FitResult:
        with unchanged_by_failure(self):
            settings = self._settings()
            warm_start = reason = None
            if self.warm_start and hasattr(self, "n_iter_"):
                reason = "warm_start=True"
                warm_start = self._last_parameters(settings, reason)
            samples = validate_samples(self, X, reset=warm_start is None, min_samples=2)
            weights = check_weights(sample_weight, samples, min_samples=2)
            settings = self._check_samples(samples, weights, settings, reason, True)
            generator = np.random.default_rng(draw_seed(self.random_state))
            n_runs = settings.n_init if warm_start is None else 1
            max_iter = settings.max_iter
            tasks = FitTasks(self, n_runs, max_iter, X, sample_weight, self._attributes_of_result)
            objective = "log-posterior" if self._has_prior() else "log-likelihood"
            with settings.workers.reporter as reporter:
                printer = IterationPrinter(reporter, max_iter, objective)

                def watch(iteration: Iteration) -> bool:
                    printer(iteration)
                    return tasks(iteration)

                fit = fit_sizes if isinstance(settings, SizeSettings) else self._fit_parameters
                result = fit(samples, weights, settings, generator, warm_start, watch)
            attributes = self._attributes_of_result(result)
            tasks.end(attributes)
            self.__dict__.pop("path_", None)
            self.__dict__.update(attributes)
        return result

    def _attributes_of_result(self, result: FitResult) -> dict[str, Any]:
        """Return all fitted attributes."""
        path = {} if result.path is None else {"path_": result.path}
        return {
            **path,
            **self._attributes(result.weights, result.networks),
            "converged_": result.converged,
            "n_iter_": len(result.lower_bounds),
            "lower_bounds_": result.lower_bounds,
            "lower_bound_": result.lower_bound,
            "lower_bound_error_": result.lower_bound_error,
            "_running": [own.to_state() for own in result.running],
        }
