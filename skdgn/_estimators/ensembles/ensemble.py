"""DGNEnsemble: the average of exact densities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch

from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.ensembles.member_fits import Fits, Questions, Task, reseed, run_tasks
from skdgn._estimators.ensembles.members import default_members
from skdgn._estimators.fits import complain, unchanged_by_failure
from skdgn._estimators.inputs import check_observed, check_weights, validate_samples
from skdgn._estimators.methods import (
    ExactDensity,
    InformationCriteria,
    SumOfDensities,
    check_density,
)
from skdgn._estimators.sklearn_parts import WORK_CONSTRAINTS, Interval, NamedParts, fit_context
from skdgn._fit import bootstrap_weights, stack_with_scales, subsample_weights
from skdgn._posterior import WeightedSum
from skdgn._runtime import (
    Floats,
    VersionedMixin,
    fits_into,
    make_generator,
    merge_duplicates,
)

_RULES = ("equal", "stacked", "bic")
# Share of the samples that are drawn for a member, and what tells this draw from its other seeds.
_SHARE, _DRAWS = 0.8, 1
# Parts of the samples of which one after the other is held out, to stack fits to all of them.
_N_FOLDS = 5
# So many members leave out all samples once, whatever rounding makes of the share.
_ROUNDING = 1e-9
# Weights are chosen by at most so many samples.
_MOST_ASKED = 20_000


class DGNEnsemble(DocumentedMixin, VersionedMixin, SumOfDensities, NamedParts):
    """Average of exact densities, itself an exact density.

    Each member is fitted separately, to a random subset of the samples, from a different seed, or
    with a different size.  The densities of the members are averaged, not their logs: the average
    is itself a density, and its log is at least as high as the average of the logs.  Averaging
    reduces the variance of a single fit, which helps most if there are few samples.

    Parameters
    ----------
    estimator : exact density, list of them or list of (str, exact density), default=None
        The density to fit: a `PiecewiseAffineDGN`, a `DGNMixture`, a `TransformedDensity` or
        another ensemble.  None alternates between a mixture that chooses its sizes and large
        mixtures that follow their samples closely; the last member is a single Gaussian.  These are
        fitted in turn to untransformed features, to power-transformed features and to normal
        scores.  With a list, each item is a member, of any kind and size; its names are those of
        ``named_estimators_``, and give access to the parameters of the members, as in a pipeline:
        ``set_params(name__tol=0.01)``.
    n_estimators : int, default=10
        Number of members, if ``estimator`` is not a list.
    bootstrap : bool, default=False
        Whether the samples of each member are drawn with replacement.
    max_samples : float, default=None
        Fraction of the samples that are drawn for each member, in (0, 1].  None is 0.8, or 1.0 with
        ``bootstrap=True`` or if members are compared by `bic`.  Without bootstrap, 1.0 fits all
        members to the same samples, from different seeds.
    weights : {"equal", "stacked", "bic"} or array-like of shape (n_members,), default="equal"
        Weights of the members.  ``"stacked"`` maximizes the likelihood of samples that a member has
        not seen: those that were not drawn for it or, if all were drawn, those of five folds, for
        which every member is fitted five more times.  ``"bic"`` uses ``exp(-bic / 2)``, the
        approximate posterior probability of a member fitted to all samples.  Numbers are divided by
        their sum.
    noise_scales : array-like of shape (n_scales,), default=(1, 3, 10, 100)
        Factors by which the noise variances of the members are multiplied; the first is 1.  Each
        member is averaged with copies of itself that have these variances, with the weights that
        maximize the likelihood of samples that members have not seen (``scale_weights_``).  This
        corrects members that are overconfident, as all fits to few samples are, and reduces the
        influence of single samples far from all others.  If members have seen all samples, these
        weights cannot be estimated, and the noise is not changed; ``(1,)`` never changes it.
    n_best : int, default=None
        Number of members to keep: those with the lowest `bic` after fits to all samples.  None
        keeps all.  With a list of candidates and equal weights, the ensemble is the plain average
        of the best.
    n_jobs : int, default=None
        Number of members fitted in parallel, as in joblib: -1 is all cores, None is one.  Each
        member is fitted by one thread.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the bootstrap samples, of the seeds of the members, and of draws without a seed of
        their own.
    verbose : int, default=0
        1 prints a line for every member; -1 silences everything, as in `PiecewiseAffineDGN`.

    Attributes
    ----------
    estimators_ : list of estimators
        The fitted members.
    named_estimators_ : Bunch
        The fitted members by name, if ``estimator`` is a list with names.
    weights_ : ndarray of shape (n_members,)
        Their weights, which add up to 1.
    noise_scales_ : ndarray of shape (n_scales,)
        Factors of the variances of the members' noise.
    scale_weights_ : ndarray of shape (n_scales,)
        Weights of the copies of each member with these factors, which add up to 1.
    bics_ : ndarray of shape (n_members,)
        Bayesian information criterion of the members kept, if the weights or ``n_best`` require it.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they were given as strings.

    See Also
    --------
    PiecewiseAffineDGN : One network.
    DGNImputer : Fills in missing values, in a pipeline.
    DGNOutlierDetector : Finds samples with a low density.

    Notes
    -----
    The density is ``sum_k weights_[k] sum_s scale_weights_[s] p_ks(x)``, where ``p_ks`` is member k
    with the variances of its noise multiplied by ``noise_scales_[s]``.  Weights are estimated from
    at most 20,000 samples.

    Ensembles have neither ``aic`` nor ``bic``: an average is not fitted by maximum likelihood, and
    the number of parameters of its members says nothing about how closely it can follow its
    samples.  Compare ensembles by `score` on held-out samples.

    A member whose fit fails is left out, with a warning.  If the fit is interrupted (Ctrl-C), the
    members fitted so far are kept, and the interrupt is raised again.

    Examples
    --------
    >>> from skdgn import DGNEnsemble, PiecewiseAffineDGN
    >>> from skdgn.datasets import make_wave
    >>> X = make_wave(80, random_state=0)
    >>> network = PiecewiseAffineDGN(hidden_layer_sizes=(4,), tol=0.01)
    >>> ensemble = DGNEnsemble(network, n_estimators=5, random_state=0).fit(X)
    >>> ensemble.weights_
    array([0.2, 0.2, 0.2, 0.2, 0.2])
    >>> held_out = make_wave(1000, random_state=1)
    >>> member_scores = [member.score(held_out) for member in ensemble.estimators_]
    >>> bool(ensemble.score(held_out) > max(member_scores))
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": "no_validation",  # checked with an error that names what fits
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "bootstrap": ["boolean"],
        "max_samples": [None, Interval(Real, 0, 1, closed="right")],
        "weights": "no_validation",
        "noise_scales": ["array-like"],
        "n_best": [None, Interval(Integral, 1, None, closed="left")],
        **WORK_CONSTRAINTS,
    }

    # Set by fit.
    estimators_: list[Any]
    noise_scales_: Floats
    scale_weights_: Floats

    def __init__(
        self,
        estimator: Any = None,
        n_estimators: int = 10,
        *,
        bootstrap: bool = False,
        max_samples: float | None = None,
        weights: Any = "equal",
        noise_scales: ArrayLike = (1.0, 3.0, 10.0, 100.0),
        n_best: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.bootstrap = bootstrap
        self.max_samples = max_samples
        self.weights = weights
        self.noise_scales = noise_scales
        self.n_best = n_best
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def from_estimators(
        cls, estimators: Sequence[ExactDensity], weights: ArrayLike | None = None
    ) -> Self:
        """Return the average of densities that are already fitted.

        Parameters
        ----------
        estimators : sequence of exact densities
            Fitted, with the same features.
        weights : array-like of shape (n_members,), default=None
            Weights of the estimators, which are divided by their sum; None weights them equally.

        Returns
        -------
        ensemble : DGNEnsemble
            A fitted ensemble; `fit` would start again.

        Examples
        --------
        >>> from skdgn import DGNEnsemble, PiecewiseAffineDGN
        >>> low, high = (
        ...     PiecewiseAffineDGN.from_network([[[1.0]]], [[mean]], 1.0, activation="relu")
        ...     for mean in (-2.0, 2.0)
        ... )
        >>> ensemble = DGNEnsemble.from_estimators([low, high], weights=[3, 1])
        >>> ensemble.weights_
        array([0.75, 0.25])
        >>> ensemble.score_samples([[0.0]]) == low.score_samples([[0.0]])
        array([ True])
        """
        if not isinstance(estimators, Sequence) or len(estimators) == 0:
            raise ValueError(
                f"estimators must be a sequence of fitted exact densities, got {estimators!r}."
            )
        for i, estimator in enumerate(estimators):
            check_density(estimator, f"estimators[{i}]")
        _check_same_features(estimators)
        ensemble = cls(
            list(estimators),
            len(estimators),
            weights="equal" if weights is None else weights,
            noise_scales=(1.0,),
        )
        ensemble.noise_scales_ = ensemble.scale_weights_ = np.ones(1)
        ensemble.weights_ = _check_member_weights(
            np.ones(len(estimators)) if weights is None else weights, len(estimators)
        )
        ensemble.estimators_ = list(estimators)
        ensemble.n_features_in_ = estimators[0].n_features_in_
        if hasattr(estimators[0], "feature_names_in_"):
            ensemble.feature_names_in_ = estimators[0].feature_names_in_
        return ensemble

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get the parameters of this estimator, and of its members that have names.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include members and their parameters: ``name`` and ``name__...``, or
            ``estimator__...`` if all members are of one kind.

        Returns
        -------
        params : dict
            Values by name.

        Examples
        --------
        >>> from skdgn import DGNEnsemble, PiecewiseAffineDGN
        >>> ensemble = DGNEnsemble([("bent", PiecewiseAffineDGN(tol=0.01))])
        >>> ensemble.get_params()["bent__tol"]
        0.01
        """
        has_names = isinstance(self.estimator, list | tuple) and all(map(_is_pair, self.estimator))
        parameters: dict[str, Any] = (
            self._get_params("estimator", deep) if has_names else super().get_params(deep)
        )
        return parameters

    def set_params(self, **params: Any) -> Self:
        """Set parameters of this estimator and of its members, or replace members by name.

        Parameters
        ----------
        **params : dict
            Values by name; see `get_params`.

        Returns
        -------
        self : DGNEnsemble
            The estimator itself.

        Examples
        --------
        >>> from skdgn import DGNEnsemble, DGNMixture, PiecewiseAffineDGN
        >>> ensemble = DGNEnsemble([("bent", PiecewiseAffineDGN()), ("several", DGNMixture())])
        >>> ensemble.set_params(bent__tol=0.01).get_params()["bent__tol"]
        0.01
        """
        self._set_params("estimator", **params)
        return self

    # The members' own parameters are checked before any of them is fitted.
    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the members and their weights.

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
        self : DGNEnsemble
            The fitted estimator.

        Examples
        --------
        The average of the two best of four sizes by BIC:

        >>> from skdgn import DGNEnsemble, PiecewiseAffineDGN
        >>> from skdgn.datasets import make_wave
        >>> X = make_wave(80, random_state=0)
        >>> candidates = [
        ...     PiecewiseAffineDGN(hidden_layer_sizes=(width,), tol=0.01) for width in (1, 2, 4, 6)
        ... ]
        >>> ensemble = DGNEnsemble(candidates, n_best=2, random_state=0).fit(X)
        >>> len(ensemble.estimators_)
        2
        """
        names, templates = self._check_templates()
        given_weights = self._check_weights(templates)
        scales = self._check_scales()
        with unchanged_by_failure(self):
            table = validate_samples(self, X, reset=True, min_samples=2)
            table_weights = check_weights(sample_weight, table, min_samples=2)
            if self.estimator is None:
                templates = default_members(len(templates), self._share() * table_weights.sum())
            check_observed(table, table_weights, self._column_names(), self._workers())
            # Neither order nor repetition of the samples matters, as in the fit of a member.
            samples, sample_weights = table, table_weights
            if fits_into(self._workers().memory, table):
                samples, sample_weights = merge_duplicates(table, table_weights)
            if len(samples) == 1:  # members would ask for two samples
                samples, sample_weights = table, table_weights
            fits = self._fit_members(templates, samples, sample_weights, scales)
            members = fits.members
            kept = [k for k, member in enumerate(members) if member is not None]
            bics: Floats | None = None
            if self._needs_bic():
                bics = np.array([members[k].bic(samples, sample_weights) for k in kept])
                order = np.sort(np.argsort(bics, kind="stable")[: self.n_best])
                kept, bics = [kept[i] for i in order], bics[order]
            weights: Floats | None = None
            if given_weights is not None:
                weights = given_weights[kept]
                if not weights.sum() > 0.0:
                    raise ValueError(
                        "weights must be positive for a member that is kept, got only zeros for "
                        f"members {kept}."
                    )
            elif self.weights == "bic":
                assert bics is not None  # the rule asks for them
                weights = np.exp(-0.5 * (bics - bics.min()))
            elif self.weights != "stacked":
                weights = np.ones(len(kept))
            if weights is not None:
                weights = weights / weights.sum()
            weights, scale_weights = stack_with_scales(
                fits.log_densities[:, kept], fits.sample_weights, weights
            )
            is_used = scale_weights > 0.0  # nobody can tell where nothing was held out
            self.__dict__.pop("named_estimators_", None)
            self.__dict__.pop("bics_", None)
            self.estimators_ = [members[k] for k in kept]
            self.weights_ = weights
            self.noise_scales_, self.scale_weights_ = scales[is_used], scale_weights[is_used]
            if bics is not None:
                self.bics_ = bics
            if names is not None:
                self.named_estimators_ = Bunch(**{names[k]: members[k] for k in kept})
            for member in self.estimators_:
                if hasattr(self, "feature_names_in_"):
                    member.feature_names_in_ = self.feature_names_in_
        n_unfinished = sum(not complaint.has_converged for complaint in fits.complaints)
        advice = f"in {n_unfinished} fits of members. Increase max_iter or tol of the estimator."
        # One level for scikit-learn's wrapper of `fit`, one for this method.
        complain(fits.complaints, advice, self._column_names(), level=3)
        if fits.were_interrupted:
            raise KeyboardInterrupt(
                f"The fit was interrupted; {len(kept)} of {len(members)} members were kept."
            )
        return self

    def log_density_std(self, X: ArrayLike) -> Floats:
        """Compute the standard error of the log density of each sample, between members.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        standard_error : ndarray of shape (n_samples,)
            How much ``score_samples(X)`` would vary between ensembles with as many members, in
            nats.  It decreases with the number of members, and is large where they disagree, for
            example far from all samples.

        Notes
        -----
        This is the jackknife estimate, from the log densities of all ensembles with one member left
        out.

        Examples
        --------
        >>> from skdgn import DGNEnsemble, PiecewiseAffineDGN
        >>> from skdgn.datasets import make_wave
        >>> X = make_wave(80, random_state=0)
        >>> network = PiecewiseAffineDGN(hidden_layer_sizes=(4,), tol=0.01)
        >>> ensemble = DGNEnsemble(network, n_estimators=5, random_state=0).fit(X)
        >>> near, far = ensemble.log_density_std([X[0], [10.0, 10.0]])
        >>> bool(near < 1.0 < far)
        True
        """
        samples, workers, average = self._validate_samples(X), self._workers(), self._fitted_model()
        counted = average.weights > 0.0
        n_members = int(counted.sum())
        if n_members < 2:
            raise ValueError(
                f"log_density_std needs two members of positive weight to compare, got {n_members}."
            )
        terms = average.member_log_densities(samples, workers)[:, counted]
        # Sums of the terms before each member, and after it: nothing is subtracted.
        before, after = (
            np.concatenate(
                [np.full((len(samples), 1), -np.inf), np.logaddexp.accumulate(part, axis=1)], axis=1
            )[:, :-1]
            for part in (terms, terms[:, ::-1])
        )
        others = np.logaddexp(before, after[:, ::-1]) - np.log1p(-average.weights[counted])
        # Of the same -inf, which nobody can compare, nothing is known.
        with np.errstate(invalid="ignore"):
            return np.sqrt(n_members - 1.0) * others.std(axis=1)

    def _members(self) -> Sequence[ExactDensity]:
        return self.estimators_

    def _fitted_model(self) -> WeightedSum:
        average = super()._fitted_model()
        if len(self.noise_scales_) == 1:
            return average
        scales = self.noise_scales_, self.scale_weights_
        return WeightedSum(average.weights, [member.blur(*scales) for member in average.members])

    def _needs_bic(self) -> bool:
        return self.n_best is not None or (isinstance(self.weights, str) and self.weights == "bic")

    def _share(self) -> float:
        """Share of the samples that are drawn for a member."""
        if self.max_samples is not None:
            return float(self.max_samples)
        return 1.0 if self.bootstrap or self._needs_bic() else _SHARE

    def _check_templates(self) -> tuple[list[str] | None, list[Any]]:
        """Return what is to be fitted, a template for each member, and their names."""
        requirement = (
            "estimator must be an exact density (PiecewiseAffineDGN, DGNMixture, DGNEnsemble or "
            "TransformedDensity), a list of them or a list of (name, exact density), got "
        )
        names: list[str] | None = None
        if self.estimator is None:
            templates: list[Any] = default_members(1)
        elif isinstance(self.estimator, list | tuple):
            templates = list(self.estimator)
            if templates and all(_is_pair(item) for item in templates):
                names = [name for name, _ in templates]
                templates = [template for _, template in templates]
                if len(set(names)) < len(names):
                    raise ValueError(f"estimator must have different names, got {names}.")
                taken = [name for name in names if "__" in name or name in self._get_param_names()]
                if taken:
                    raise ValueError(
                        "estimator must have names without '__' that are no parameters of "
                        f"DGNEnsemble, got {taken[0]!r}."
                    )
        else:
            templates = [self.estimator]
        if not templates:
            raise ValueError(f"{requirement}an empty list.")
        for template in templates:
            if not isinstance(template, ExactDensity):
                raise ValueError(f"{requirement}{template!r}.")
            template._validate_params()
        if not isinstance(self.estimator, list | tuple):
            templates *= int(self.n_estimators)
        return names, templates

    def _check_weights(self, templates: list[Any]) -> Floats | None:
        """Check what scikit-learn's constraints leave open; return weights given as numbers."""
        weights: Floats | None = None
        if isinstance(self.weights, str):
            if self.weights not in _RULES:
                raise ValueError(
                    f"weights must be one of {_RULES} or an array, got {self.weights!r}."
                )
        else:
            weights = _check_member_weights(self.weights, len(templates))
        if self._needs_bic():
            reason = 'weights="bic"' if self.n_best is None else f"n_best={self.n_best}"
            compares = f"{reason} compares members fitted to the same samples: "
            if self.bootstrap:
                raise ValueError(f"{compares}bootstrap must be False, got True.")
            if self._share() < 1.0:
                raise ValueError(
                    f"{compares}max_samples must be None or 1.0, got {self.max_samples}."
                )
            for template in templates:
                if not isinstance(template, InformationCriteria):
                    raise ValueError(f"{reason} needs members with a bic, got {template!r}.")
        if self.n_best is not None and self.n_best > len(templates):
            raise ValueError(
                f"n_best must be at most the number of members, {len(templates)}, "
                f"got {self.n_best}."
            )
        return weights

    def _check_scales(self) -> Floats:
        """Return the factors of the noise."""
        requirement = (
            "noise_scales must be positive numbers, the first of which is 1, got "
            f"{self.noise_scales!r}."
        )
        try:
            scales = np.array(self.noise_scales, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(requirement) from error
        if scales.ndim != 1 or not np.isfinite(scales).all() or not (scales > 0.0).all():
            raise ValueError(requirement)
        if scales.size == 0 or scales[0] != 1.0:
            raise ValueError(requirement)
        return scales

    def _fit_members(
        self, templates: list[Any], samples: NDArray[Any], sample_weights: Floats, scales: Floats
    ) -> Fits:
        """Fit all members, and ask each for the log densities of samples it has not seen."""
        generator = make_generator(self.random_state)
        seeds = generator.integers(np.iinfo(np.int32).max, size=len(templates))
        seeded = [
            reseed(template, int(seed)) for template, seed in zip(templates, seeds, strict=True)
        ]
        is_stacked = isinstance(self.weights, str) and self.weights == "stacked"
        share = self._share()
        are_all_drawn = not self.bootstrap and share == 1.0
        asked = np.flatnonzero(sample_weights > 0.0)
        if len(asked) > _MOST_ASKED:
            asked = np.sort(generator.choice(asked, _MOST_ASKED, replace=False))
        tasks = []
        for k, template in enumerate(seeded):
            weights = sample_weights
            if self.bootstrap:
                # Of a seed of its own: the first members are the same, however many there are.
                chooser = np.random.default_rng([seeds[k], _DRAWS])
                weights = bootstrap_weights(samples, sample_weights, share, chooser)
            elif not are_all_drawn:
                n_turns = math.floor(1.0 / (1.0 - share) + _ROUNDING)
                chooser = np.random.default_rng([seeds[k - k % n_turns], _DRAWS])
                weights = subsample_weights(samples, sample_weights, share, chooser, k % n_turns)
            held_out = np.flatnonzero(weights[asked] == 0.0)
            tasks.append(Task(k, template, weights, held_out, is_member=True))
        if is_stacked and are_all_drawn:
            folds = generator.permutation(len(samples)) % min(_N_FOLDS, len(samples))
            for fold in range(folds.max() + 1):
                weights = np.where(folds == fold, 0.0, sample_weights)
                held_out = np.flatnonzero(folds[asked] == fold)
                tasks += [
                    Task(k, template, weights, held_out, is_member=False)
                    for k, template in enumerate(seeded)
                ]
        questions = Questions(samples[asked], sample_weights[asked], scales)
        return run_tasks(tasks, samples, questions, len(templates), self.n_jobs, self.verbose)


def _is_pair(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)


def _check_same_features(estimators: Sequence[Any]) -> None:
    """Refuse members of different numbers or names of features."""
    first = estimators[0]
    for i, estimator in enumerate(estimators):
        if estimator.n_features_in_ != first.n_features_in_:
            raise ValueError(
                "estimators must have the same features, got "
                f"{first.n_features_in_} in estimators[0] and "
                f"{estimator.n_features_in_} in estimators[{i}]."
            )
        expected, names = (
            list(getattr(model, "feature_names_in_", [])) for model in (first, estimator)
        )
        if names != expected:
            raise ValueError(
                "estimators must have the same names of features, got "
                f"{expected} in estimators[0] and {names} in estimators[{i}]."
            )


def _check_member_weights(weights: Any, n_members: int) -> Floats:
    """Return weights that add up to one."""
    requirement = (
        f"weights must be one of {_RULES} or {n_members} non-negative numbers with a positive sum, "
        f"one per member, got {weights!r}."
    )
    try:
        numbers = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(requirement) from error
    if numbers.shape != (n_members,) or not np.isfinite(numbers).all():
        raise ValueError(requirement)
    if numbers.min() < 0.0 or not numbers.sum() > 0.0:
        raise ValueError(requirement)
    return numbers / numbers.sum()
