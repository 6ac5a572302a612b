"""What a fitted model answers: densities, posteriors, draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from skdgn._estimators.inputs import check_weights, validate_samples
from skdgn._posterior import Density, NetworkModel, Posterior, check_gaussians
from skdgn._runtime import Floats, Integers, RandomSource, Reporter, Workers, random_source


class ExactInference(DensityMixin):
    """Methods of an exact density that evaluate it.

    A mixin: the estimator provides ``_fitted_model``, the rest follows from it.
    """

    n_jobs: int | None
    random_state: Any
    verbose: int

    def _fitted_model(self) -> Density:
        raise NotImplementedError("a mixin: the estimator holds the model")

    def _workers(self) -> Workers:
        """Who does the work: batches take the memory that scikit-learn's configuration allows."""
        memory = 2.0**20 * float(get_config()["working_memory"])
        return Workers(self.n_jobs, memory, Reporter(self.verbose))

    def _validate_samples(self, X: ArrayLike) -> NDArray[Any]:
        """Check samples; they are not copied if they are floating-point numbers already."""
        check_is_fitted(self)
        return validate_samples(self, X, reset=False)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Compute the exact log density of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN. The density is that of the observed values, as in all
            methods of this class; a sample with no observed values has a log density of 0.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(x) in nats, exact to rounding for up to three latent dimensions, even for far
            outliers.  For more, an estimate to two or three digits:
            ``posterior(X).log_density_error`` is its standard error.  It is -inf if squares
            overflow, beyond 1e150 standard deviations of the noise; the posterior of the latent
            variables is then NaN.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise
        >>> model.score_samples([[1.0], [-1.0]]).round(2)
        array([-0.77, -4.04])
        >>> model.score_samples([[1000.0]]).round(2)  # no floor, however far out
        array([-400000.34])
        """
        samples = self._validate_samples(X)
        return self._fitted_model().log_density(samples, self._workers())

    def log_density_bounds(self, X: ArrayLike) -> tuple[Floats, Floats]:
        """Compute a lower and an upper bound of the log density of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        lower, upper : ndarray of shape (n_samples,)
            log p(x) lies between them.  If the regions of latent space are listed, both equal
            `score_samples`, which is exact to rounding.  If a network has too many regions, only
            those that matter are found: the lower bound is their contribution to the density, and
            the upper bound adds the most that all others could contribute.  With four or more
            latent dimensions, boxes of latent space are bounded from both sides and halved, for up
            to about a second per sample; with many dimensions, the bounds remain far apart.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise
        >>> lower, upper = model.log_density_bounds([[1.0], [-1.0]])
        >>> lower.round(2), upper.round(2)
        (array([-0.77, -4.04]), array([-0.77, -4.04]))
        """
        samples = self._validate_samples(X)
        return self._fitted_model().log_density_bounds(samples, self._workers())

    def score(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> float:
        """Compute the mean log density of the samples; higher is better.

        scikit-learn's `GridSearchCV` and `cross_val_score` use it to compare models.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.
        y : None
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 counts a sample twice.

        Returns
        -------
        score : float
            Mean log density, in nats per sample.  Samples of zero weight do not count, however
            unlikely they are.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise
        >>> round(model.score([[1.0], [-1.0]]), 2)
        -2.41
        """
        total, n_samples = self._total_log_density(X, sample_weight)
        return total / n_samples

    def _total_log_density(
        self, X: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[float, float]:
        """Return the weighted sum of the log densities, and the sum of the weights."""
        log_densities = self.score_samples(X)
        weights = check_weights(sample_weight, log_densities[:, None])
        heavy = weights > 0  # no weight is not even a share of -inf
        return float(weights[heavy] @ log_densities[heavy]), float(weights.sum())

    def _random_source(self, random_state: Any) -> RandomSource:
        """Where draws come from: the seed of a call, or the estimator's own."""
        return random_source(self.random_state if random_state is None else random_state)


class InformationCriteria(ExactInference):
    """Criteria for densities fitted by maximum likelihood; a mixin, like `ExactInference`."""

    n_parameters_: float

    def aic(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Compute Akaike's information criterion on X; lower is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples of the fit.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 counts a sample twice.

        Returns
        -------
        aic : float
            ``-2 sum(score_samples(X)) + 2 n_parameters_``, where the sum is weighted.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise
        >>> model.n_parameters_  # a slope, a boundary, an intercept, the noise
        4
        >>> round(model.aic([[1.0], [0.5], [2.0]]), 2)
        14.7
        """
        total, _ = self._total_log_density(X, sample_weight)
        return -2.0 * total + 2.0 * float(self.n_parameters_)

    def bic(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Compute the Bayesian information criterion on X; lower is better.

        It penalizes parameters more heavily than `aic` if there are more than seven samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples of the fit.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 counts a sample twice.

        Returns
        -------
        bic : float
            ``-2 sum(score_samples(X)) + n_parameters_ log(n_samples)``; with sample weights, the
            sum is weighted, and ``n_samples`` is the sum of the weights.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise
        >>> round(model.bic([[1.0], [0.5], [2.0]]), 2)
        11.1
        """
        total, n_samples = self._total_log_density(X, sample_weight)
        return -2.0 * total + float(self.n_parameters_) * math.log(n_samples)


class LatentInference(InformationCriteria, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Methods of `PiecewiseAffineDGN` that concern its latent variables.

    A mixin, like `ExactInference`.  It is a transformer itself because scikit-learn's
    ``set_output`` only wraps methods of such classes.
    """

    def _fitted_model(self) -> NetworkModel:
        raise NotImplementedError("a mixin: the estimator holds the model")

    def posterior(self, X: ArrayLike) -> Posterior:
        """Compute the exact posterior of the latent variables given each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        posterior : Posterior
            The posterior, with ``mean``, ``covariance``, ``responsibilities``, ``mode``,
            ``sample``, ``log_density``, ``kl_from`` and ``best_gaussian``.

        Notes
        -----
        The posterior stores the mean and covariance on each region that matters, for every sample:
        unlike for other methods, memory grows with the number of samples.  `transform`,
        `predict_proba`, `elbo` and `variational_gap` store only their results.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0], [1.0]]], [[0.0, 0.0]], 1.0, activation="relu"
        ... )
        >>> posterior = model.posterior([[1.0, 1.0]])
        >>> posterior
        Posterior(n_samples=1, n_components=1, n_regions=1)
        >>> posterior.mean.round(4)
        array([[0.6667]])
        """
        samples = self._validate_samples(X)
        return self._fitted_model().posterior(samples, self._workers())

    def elbo(self, X: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> Floats:
        """Compute the exact evidence lower bound of a Gaussian q(z | x) for each sample.

        A variational autoencoder maximizes this bound, which is at most the log density.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.
        means : array-like of shape (n_samples, n_components)
            Mean of q for each sample, as returned by an encoder.
        covariances : array-like of shape (n_samples, n_components, n_components)
            Covariance of q for each sample.

        Returns
        -------
        elbo : ndarray of shape (n_samples,)
            ``score_samples(X) - posterior(X).kl_from(means, covariances)`` in nats, without Monte
            Carlo.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise: two values of z explain an x
        >>> X, means, covariances = [[2.0]], [[1.6]], [[[0.2]]]
        >>> (model.score_samples(X) - model.elbo(X, means, covariances)).round(2)
        array([0.69])
        """
        samples = self._validate_samples(X)
        model = self._fitted_model()
        gaussians = check_gaussians(means, covariances, len(samples), model.network.n_components)
        return model.lower_bounds(samples, *gaussians, self._workers())

    def variational_gap(
        self, X: ArrayLike, means: ArrayLike, covariances: ArrayLike
    ) -> tuple[Floats, Floats]:
        """Split the gap between the log density and the lower bound of a Gaussian q(z | x).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.
        means : array-like of shape (n_samples, n_components)
            Mean of q for each sample, as returned by an encoder.
        covariances : array-like of shape (n_samples, n_components, n_components)
            Covariance of q for each sample.

        Returns
        -------
        amortization_gap : ndarray of shape (n_samples,)
            Loss because q is not the best Gaussian for its sample, in nats.
        family_gap : ndarray of shape (n_samples,)
            Loss of the best Gaussian because the posterior is not Gaussian, in nats.

        Notes
        -----
        The sum of the gaps is KL(q || posterior).  The best Gaussian is the best minimum found from
        several starts; see `Posterior.best_gaussian`.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise: two values of z explain an x
        >>> amortization_gap, family_gap = model.variational_gap([[2.0]], [[1.2]], [[[0.2]]])
        >>> amortization_gap.round(2), family_gap.round(2)
        (array([0.4]), array([0.69]))
        """
        samples = self._validate_samples(X)
        model = self._fitted_model()
        gaussians = check_gaussians(means, covariances, len(samples), model.network.n_components)
        gaps = model.variational_gaps(samples, *gaussians, self._workers())
        return gaps[:, 0], gaps[:, 1]

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Compute the posterior probability of each region given each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_regions)
            Posterior probabilities, which add up to 1 for every sample.  Regions are in the order
            of ``partition_``.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="leaky_relu"
        ... )  # x = z + noise, or z / 10 + noise if z is negative
        >>> model.predict_proba([[1.0], [-0.2]]).round(2)
        array([[0.15, 0.85],
               [0.75, 0.25]])
        """
        samples = self._validate_samples(X)
        return self._fitted_model().responsibilities(samples, self._workers())

    def predict(self, X: ArrayLike) -> Integers:
        """Predict the most probable region of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        regions : ndarray of shape (n_samples,)
            Indices of regions, in the order of ``partition_``.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="leaky_relu"
        ... )  # x = z + noise, or z / 10 + noise if z is negative
        >>> model.predict([[1.0], [-0.2]])
        array([1, 0])
        """
        samples = self._validate_samples(X)
        return self._fitted_model().most_responsible(samples, self._workers())

    def transform(self, X: ArrayLike) -> Floats:
        """Compute the posterior mean of the latent variables given each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_components)
            Posterior means.  If a posterior has several modes, its mean may lie between them, where
            its density is low: ``posterior(X).mode()`` is the most probable point instead.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0], [1.0]]], [[0.0, 0.0]], 1.0, activation="relu"
        ... )  # both features are z + noise
        >>> model.transform([[1.0, 1.0], [2.0, 4.0]]).round(4)
        array([[0.6667],
               [2.    ]])
        """
        samples = self._validate_samples(X)
        return self._fitted_model().means(samples, self._workers())

    def transform_factors(self, X: ArrayLike) -> Floats:
        """Compute the posterior mean of the linear factors of the noise given each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; missing values are NaN.

        Returns
        -------
        factors : ndarray of shape (n_samples, n_factors)
            Posterior means of the factors whose loadings are ``noise_factors_``; there are no
            columns unless ``covariance_type="factor"``.  Together with the result of `transform`,
            they describe the sample: if the network is affine,
            ``inverse_transform(Z) + factors @ noise_factors_.T`` is the sample without the noise of
            its own features.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0], [0.0], [0.0]]],
        ...     [[0.0, 0.0, 0.0]],
        ...     (np.array([[0.0], [2.0], [2.0]]), np.ones(3)),
        ...     activation="relu",
        ... )  # x_1 = z + noise, x_2 and x_3 share a factor
        >>> model.transform_factors([[0.0, 2.0, 2.0], [5.0, np.nan, 2.0]]).round(3)
        array([[0.889],
               [0.8  ]])
        """
        samples = self._validate_samples(X)
        return self._fitted_model().factor_means(samples, self._workers())

    def inverse_transform(self, Z: ArrayLike) -> Floats:
        """Evaluate the generator, which returns samples without noise.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            Latent points.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The mean of the samples that come from each point.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise
        >>> model.inverse_transform([[-1.5], [0.0], [2.0]])
        array([[1.5],
               [0. ],
               [2. ]])
        """
        check_is_fitted(self)
        network = self._fitted_model().network
        latent = check_array(Z, dtype=np.float64, input_name="Z")
        if latent.shape[1] != network.n_components:
            raise ValueError(
                f"Z must have {network.n_components} columns, one per latent dimension, "
                f"got {latent.shape[1]}."
            )
        return network.forward(latent)
