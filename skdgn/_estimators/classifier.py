"""DGNClassifier: one exact density per class, and Bayes' rule."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from skdgn._estimators.documentation import DocumentedMixin
from skdgn._estimators.fits import (
    DelegatingMixin,
    collect_complaints,
    complain,
    unchanged_by_failure,
)
from skdgn._estimators.inputs import check_weights, validate_samples, validate_samples_and_targets
from skdgn._estimators.methods import ANY_DENSITY, ExactDensity
from skdgn._estimators.mixture import default_mixture
from skdgn._estimators.sklearn_parts import WORK_CONSTRAINTS, fit_context
from skdgn._runtime import Floats, Integers, VersionedMixin

# A class with fewer samples borrows the spread of the others, with this weight in all.
_ENOUGH_SAMPLES = 20.0
# What is borrowed by a class of more samples in which a feature was never observed.
_LEAST_BORROWED = 1.0
# Priors as users give them add up to 1 but for this.
_ROUNDING = 1e-6


class DGNClassifier(
    DelegatingMixin, DocumentedMixin, VersionedMixin, ClassifierMixin, BaseEstimator
):
    """Classification by one exact density per class.

    ``p(class | x)`` follows from ``priors`` and the densities of the classes by Bayes' rule.
    Missing values (NaN) are allowed everywhere: samples are classified by their observed values.

    Parameters
    ----------
    estimator : PiecewiseAffineDGN, DGNMixture or DGNEnsemble, default=None
        The density to fit to the samples of each class.  None is ``DGNMixture(n_networks=4)``, with
        fewer networks for classes with fewer than 40 samples.
    priors : array-like of shape (n_classes,), default=None
        Prior probabilities of the classes, in sorted order.  None uses the fractions of the samples
        in each class.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the estimator; None keeps its own setting.
    n_jobs : int, default=None
        Number of threads of the estimator; None keeps its own setting.
    verbose : int, default=0
        Verbosity of the estimator; 0 keeps its own setting.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    priors_ : ndarray of shape (n_classes,)
        Prior probability of each class.
    estimators_ : list of estimators
        The fitted density of each class.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they were strings.

    See Also
    --------
    DGNRegressor : The same for continuous targets.
    sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis : One Gaussian per class.

    Notes
    -----
    A class with fewer than 20 samples is fitted together with the samples of the other classes,
    shifted to its mean and weighted so that the total weight is 20: a few samples are enough to
    locate a class, and the others determine its spread.  The same is done for classes in which a
    feature was never observed, with a weight of at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from skdgn import DGNClassifier, PiecewiseAffineDGN
    >>> X, y = load_iris(return_X_y=True)
    >>> network = PiecewiseAffineDGN(hidden_layer_sizes=(2,), covariance_type="full", tol=0.01)
    >>> classifier = DGNClassifier(network, random_state=0).fit(X, y)
    >>> bool(classifier.score(X, y) > 0.97)
    True
    >>> classifier.predict_proba([[np.nan, np.nan, 1.5, np.nan]]).round(3)
    array([[1., 0., 0.]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [ANY_DENSITY, None],
        "priors": ["array-like", None],
        **WORK_CONSTRAINTS,
    }

    def __init__(
        self,
        estimator: ExactDensity | None = None,
        *,
        priors: ArrayLike | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.priors = priors
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # The estimator's own parameters are checked when it is fitted.
    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.  Every feature needs at least one observed value.
        y : array-like of shape (n_samples,)
            Classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 counts a sample twice.  Classes with zero total
            weight are ignored.

        Returns
        -------
        self : DGNClassifier
            The fitted estimator.

        Examples
        --------
        >>> from skdgn import DGNClassifier, PiecewiseAffineDGN
        >>> X, y = [[0.0], [0.2], [0.4], [2.0], [2.2], [2.4]], ["a", "a", "a", "b", "b", "b"]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> DGNClassifier(linear).fit(X, y).predict([[0.5], [1.9]]).tolist()
        ['a', 'b']
        """
        with unchanged_by_failure(self):
            samples, labels = validate_samples_and_targets(self, X, y, ensure_min_samples=2)
            _check_labels(labels)
            weights = check_weights(sample_weight, samples, min_samples=2)
            heavy = np.flatnonzero(weights > 0.0)
            samples, weights = samples[heavy], weights[heavy]
            self.classes_, numbers = np.unique(labels[heavy], return_inverse=True)
            totals = np.bincount(numbers, weights).astype(np.float64)
            self.priors_ = self._check_priors(totals)
            self.estimators_ = []
            with collect_complaints() as complaints:
                for number, total in enumerate(totals):
                    own_samples, own_weights = _borrow(samples, weights, numbers, number)
                    template = default_mixture(total) if self.estimator is None else self.estimator
                    estimator = self._configure(clone(template))
                    self.estimators_.append(estimator.fit(own_samples, None, own_weights))
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        n_unfinished = sum(not complaint.has_converged for complaint in complaints)
        advice = f"in {n_unfinished} fits of classes. Increase max_iter or tol of the estimator."
        # One level for scikit-learn's wrapper of `fit`, one for this method.
        complain(complaints, advice, names, level=3)
        return self

    def _check_priors(self, totals: Floats) -> Floats:
        if self.priors is None:
            return totals / totals.sum()
        requirement = (
            f"priors must hold a probability for each of the {len(totals)} classes, and add "
            f"up to 1, got {self.priors!r}."
        )
        try:
            priors = np.asarray(self.priors, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(requirement) from error
        if (
            priors.shape != totals.shape
            or not np.all(priors >= 0.0)
            or not abs(priors.sum() - 1.0) < _ROUNDING
        ):
            raise ValueError(requirement)
        return priors / priors.sum()

    def score_samples(self, X: ArrayLike) -> Floats:
        """Compute the exact log density of each sample, regardless of its class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Log densities in nats.  A sample with a low density is unlike all classes, whatever its
            probabilities.

        Examples
        --------
        >>> from skdgn import DGNClassifier, PiecewiseAffineDGN
        >>> X, y = [[0.0], [0.2], [0.4], [2.0], [2.2], [2.4]], ["a", "a", "a", "b", "b", "b"]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> near, far = DGNClassifier(linear).fit(X, y).score_samples([[0.2], [9.0]])
        >>> bool(near > far)
        True
        """
        return np.logaddexp.reduce(self._joint_log_densities(X), axis=1)

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Compute the log probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            Log probabilities in the order of ``classes_``, accurate however small the probabilities
            are.

        Examples
        --------
        >>> from skdgn import DGNClassifier, PiecewiseAffineDGN
        >>> X, y = [[0.0], [0.2], [0.4], [2.0], [2.2], [2.4]], ["a", "a", "a", "b", "b", "b"]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> (own, other), = DGNClassifier(linear).fit(X, y).predict_log_proba([[-50.0]])
        >>> bool(own == 0.0 and other < -1e3)
        True
        """
        joint = self._joint_log_densities(X)
        # Beyond 1e150 standard deviations of every class nothing but the priors is known.
        unknown = np.isneginf(joint).all(axis=1)
        with np.errstate(divide="ignore"):
            joint[unknown] = np.log(self.priors_)
        return np.asarray(log_softmax(joint, axis=1))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Compute the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            Probabilities in the order of ``classes_``; ``priors_`` for samples with no observed
            values.

        Examples
        --------
        >>> from skdgn import DGNClassifier, PiecewiseAffineDGN
        >>> X, y = [[0.0], [0.2], [0.4], [2.0], [2.2], [2.4]], ["a", "a", "a", "b", "b", "b"]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> DGNClassifier(linear).fit(X, y).predict_proba([[0.2], [float("nan")]]).round(2)
        array([[1. , 0. ],
               [0.5, 0.5]])
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            The most probable class.

        Examples
        --------
        >>> from skdgn import DGNClassifier, PiecewiseAffineDGN
        >>> X, y = [[0.0], [0.2], [0.4], [2.0], [2.2], [2.4]], [0, 0, 0, 1, 1, 1]
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0)
        >>> DGNClassifier(linear).fit(X, y).predict([[0.5], [1.9]])
        array([0, 1])
        """
        log_probabilities = self.predict_log_proba(X)
        return np.asarray(self.classes_[log_probabilities.argmax(axis=1)])

    def _joint_log_densities(self, X: ArrayLike) -> Floats:
        """Log densities of samples and classes together, (n, n_classes)."""
        check_is_fitted(self)
        samples = validate_samples(self, X, reset=False)
        with np.errstate(divide="ignore"):
            log_priors = np.log(self.priors_)
        log_densities = [estimator.score_samples(samples) for estimator in self.estimators_]
        return np.stack(log_densities, axis=1) + log_priors


def _borrow(
    samples: NDArray[Any], weights: Floats, numbers: Integers, number: int
) -> tuple[NDArray[Any], Floats]:
    """Return what a class is fitted to: its samples, and others moved to its mean, if need be."""
    own = numbers == number
    lacking = _ENOUGH_SAMPLES - weights[own].sum()
    if np.isnan(samples[own]).all(axis=0).any():
        lacking = max(lacking, _LEAST_BORROWED)
    if lacking <= 0.0 or own.all():
        return samples[own], weights[own]
    moved = samples.astype(np.float64)
    everywhere = _means(samples, weights, np.zeros(samples.shape[1]))
    here = _means(samples[own], weights[own], everywhere)
    for other in np.unique(numbers[~own]):
        its = numbers == other
        moved[its] += here - _means(samples[its], weights[its], everywhere)
    others = weights[~own] * (lacking / weights[~own].sum())
    return np.concatenate([moved[own], moved[~own]]), np.concatenate([weights[own], others])


def _means(samples: NDArray[Any], weights: Floats, default: Floats) -> Floats:
    """Means of features (D,) over what was observed of them; a default where nothing was."""
    observed = ~np.isnan(samples)
    totals = weights @ observed
    sums = weights @ np.where(observed, samples, 0.0)
    return np.where(totals > 0.0, sums / np.where(totals > 0.0, totals, 1.0), default)


def _check_labels(labels: NDArray[Any]) -> None:
    """Refuse targets that are no classes."""
    try:
        check_classification_targets(labels)
    except TypeError as error:  # they cannot be sorted
        kinds = sorted({type(label).__name__ for label in labels})
        raise ValueError(f"y must hold labels of one kind, got {', '.join(kinds)}.") from error
