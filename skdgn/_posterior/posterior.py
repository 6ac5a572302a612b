"""The exact posterior p(z | x): a mixture of Gaussians, each truncated to its region."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdgn._posterior.comparisons import Comparison, SampledComparison, check_gaussians
from skdgn._posterior.explored import Explorer
from skdgn._posterior.listed import Gaussians, ListedRegions, Visits
from skdgn._posterior.modes import find_modes
from skdgn._posterior.truncated_mixtures import Mixtures, draw_mixtures
from skdgn._runtime import Floats, Reporter, check_integer, finite_array, make_generator

# Share of a region's variance, if it were not truncated, that is left of it at least: a guess.
_LEAST_SHARE = 1e-3


class Posterior:
    """Exact posterior of the latent variables given each of n samples.

    It is returned by `PiecewiseAffineDGN.posterior`, and should not be constructed directly.  It
    stores the mean and covariance on every region that matters for each sample, so memory grows
    with the number of samples.

    Attributes
    ----------
    mean : ndarray of shape (n_samples, n_components)
        Posterior mean of the latent variables.
    covariance : ndarray of shape (n_samples, n_components, n_components)
        Posterior covariance.
    responsibilities : ndarray of shape (n_samples, n_regions)
        Posterior probability of each region of latent space.
    most_responsible : ndarray of shape (n_samples,)
        Index of the region with the largest responsibility.
    log_density_error : ndarray of shape (n_samples,)
        Standard error of the samples' log densities: zero for up to three latent dimensions, where
        all results are exact to rounding; for more, integrals over regions are estimates.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgn import PiecewiseAffineDGN
    >>> model = PiecewiseAffineDGN.from_network(
    ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
    ... )  # x = |z| + noise: two values of z explain an x
    >>> posterior = model.posterior([[2.0]])
    >>> np.abs(posterior.mode())
    array([[1.6]])
    >>> posterior.log_density([[1.6], [-1.6]]).round(2)
    array([[-0.81, -0.81]])
    >>> draws = posterior.sample(4, random_state=0)
    >>> draws.shape
    (4, 1, 1)
    """

    def __init__(
        self,
        visitor: ListedRegions | Explorer,
        samples: Floats,
        visits: Visits,
        reporter: Reporter | None = None,
    ) -> None:
        self._visitor = visitor
        self._table = samples
        self._visits = visits
        self._reporter = reporter or Reporter()
        self._n_regions = len(visitor.partition)

    def __len__(self) -> int:
        return len(self._visits.log_density)

    def __repr__(self) -> str:
        n_components = self._visits.means.shape[1]
        return (
            f"Posterior(n_samples={len(self)}, n_components={n_components}, "
            f"n_regions={self._n_regions})"
        )

    @cached_property
    def _samples(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Sample of each visit."""
        return np.repeat(np.arange(len(self)), np.diff(self._visits.start))

    def _sum_over_regions(self, values: Floats) -> Floats:
        """Add up one value per visit to one value per sample."""
        # Every sample visits at least one region, as reduceat needs.
        return np.add.reduceat(values, self._visits.start[:-1], axis=0)

    @property
    def log_density_error(self) -> Floats:
        """Standard error of the log densities, (n_samples,)."""
        return self._visits.log_density_error

    @cached_property
    def mean(self) -> Floats:
        """Posterior mean, (n_samples, n_components)."""
        weights = self._visits.responsibilities[:, None]
        return self._sum_over_regions(weights * self._visits.means)

    @cached_property
    def covariance(self) -> Floats:
        """Posterior covariance, (n_samples, n_components, n_components)."""
        # Within regions plus between regions, about the mean: nothing large cancels.
        deviations = self._visits.means - self.mean[self._samples]
        weights = self._visits.responsibilities[:, None, None]
        within_and_between = (
            self._visits.covariances + deviations[:, :, None] * deviations[:, None, :]
        )
        return self._sum_over_regions(weights * within_and_between)

    @cached_property
    def responsibilities(self) -> Floats:
        """Posterior probability of each region, (n_samples, n_regions)."""
        dense = np.zeros((len(self), self._n_regions))
        regions = self._visitor.locate(self._visits)
        np.add.at(dense, (self._samples, regions), self._visits.responsibilities)
        dense[~self._is_known] = np.nan
        return dense

    @cached_property
    def most_responsible(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Region with the largest responsibility, (n_samples,)."""
        order = np.lexsort((-self._visits.responsibilities, self._samples))
        return self._visitor.locate(self._visits)[order[self._visits.start[:-1]]]

    @cached_property
    def _conditional(self) -> tuple[Floats, Floats]:
        """Factors (v, S, S) and whitened centers (v, S) of the visits' untruncated Gaussians."""
        return self._settled.condition(self._table, self._visits)

    @cached_property
    def _settled(self) -> ListedRegions:
        """What knows the regions of the visits, by the numbers they have there."""
        return self._visitor.settle(self._visits)

    @cached_property
    def _is_known(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Samples whose density is a number: others are too far out for anything to be known."""
        return np.isfinite(self._visits.log_density)

    def sample(self, n_draws: int = 1, random_state: Any = None) -> Floats:
        """Draw exact and independent samples from the posterior of each sample.

        Parameters
        ----------
        n_draws : int, default=1
            Number of latent points for each sample.
        random_state : int, RandomState, Generator or None, default=None
            Seed of the draws.  Pass an int for reproducible results.

        Returns
        -------
        draws : ndarray of shape (n_draws, n_samples, n_components)
            Draws; NaN for a sample whose log density is -inf.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise: two values of z explain an x
        >>> posterior = model.posterior([[2.0]])
        >>> draws = posterior.sample(1000, random_state=0)
        >>> draws.shape
        (1000, 1, 1)
        >>> bool(abs(np.mean(draws > 0.0) - 0.5) < 0.05)  # as often on the one side as on the other
        True
        """
        check_integer(n_draws, "n_draws")
        generator = make_generator(random_state)
        visits = self._visits
        factors, centers = self._conditional
        known = np.flatnonzero(self._is_known)
        sizes = np.diff(visits.start)
        kept = self._is_known[self._samples]
        mixtures = Mixtures(
            np.concatenate([[0], np.cumsum(sizes[known])]),
            visits.regions[kept],
            visits.responsibilities[kept],
            factors[kept],
            centers[kept],
            visits.means[kept],
            _guess_covariances(visits.covariances[kept], factors[kept]),
        )
        draws = np.full((int(n_draws), len(self), visits.means.shape[1]), np.nan)
        facets = self._settled.partition.cells.facets()
        draws[:, known] = draw_mixtures(facets, mixtures, int(n_draws), generator, self._reporter)
        return draws

    def mode(self, zero_noise: bool = False) -> Floats:
        """Find the maximum of each sample's posterior density over all regions.

        Parameters
        ----------
        zero_noise : bool, default=False
            Whether to return the limit of the maximum as the noise shrinks instead: the point whose
            image is nearest to the sample (in units of the noise), and the one with the smallest
            norm if there are several.

        Returns
        -------
        mode : ndarray of shape (n_samples, n_components)
            Modes; one of the maxima if several are equally high.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise: two values of z explain an x
        >>> posterior = model.posterior([[2.0]])
        >>> np.abs(posterior.mode())
        array([[1.6]])
        >>> np.abs(posterior.mode(zero_noise=True))
        array([[2.]])
        """
        if not isinstance(zero_noise, bool | np.bool_):
            raise ValueError(f"zero_noise must be True or False, got {zero_noise!r}.")
        return find_modes(self._settled, self._table, bool(zero_noise))

    def log_density(self, Z: ArrayLike) -> Floats:
        """Compute the log density of each sample's posterior at latent points.

        Parameters
        ----------
        Z : array-like of shape (n_points, n_components)
            Latent points, the same for all samples.

        Returns
        -------
        log_density : ndarray of shape (n_samples, n_points)
            log p(z | x).

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise: two values of z explain an x
        >>> posterior = model.posterior([[2.0]])
        >>> posterior.log_density([[1.6], [0.0], [-1.6]]).round(2)
        array([[-0.81, -7.21, -0.81]])
        """
        n_components = self._visits.means.shape[1]
        latent = finite_array(Z, "Z")
        if latent.ndim != 2 or latent.shape[1] != n_components:
            raise ValueError(
                f"Z must have shape (n_points, {n_components}), got shape {latent.shape}."
            )
        return self._comparison.log_density(latent)

    def kl_from(self, means: ArrayLike, covariances: ArrayLike) -> Floats:
        """Compute the exact Kullback-Leibler divergence of the posterior from Gaussians.

        Parameters
        ----------
        means : array-like of shape (n_samples, n_components)
            Mean of a Gaussian q for each sample.
        covariances : array-like of shape (n_samples, n_components, n_components)
            Covariance of q for each sample.

        Returns
        -------
        divergence : ndarray of shape (n_samples,)
            KL(q || posterior) in nats: the expectation under q of log q(z) - log p(z | x).

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise: two values of z explain an x
        >>> posterior = model.posterior([[2.0]])
        >>> posterior.kl_from([[1.6]], [[[0.2]]]).round(2)  # one of two modes: log(2)
        array([0.69])
        """
        checked, factors = check_gaussians(means, covariances, *self.mean.shape)
        return self._compared_with((checked, factors)).divergences(checked, factors)

    def best_gaussian(
        self,
        criterion: str = "kl",
        means: ArrayLike | None = None,
        covariances: ArrayLike | None = None,
    ) -> tuple[Floats, Floats]:
        """Find the Gaussian nearest to each sample's posterior.

        Parameters
        ----------
        criterion : {"kl", "moments"}, default="kl"
            ``"kl"`` minimizes KL(q || posterior), as variational inference does; ``"moments"``
            returns the mean and covariance of the posterior, which minimize KL(posterior || q).
        means : array-like of shape (n_samples, n_components), default=None
            Mean of a Gaussian for each sample, which is an additional start of the search (only for
            ``"kl"``).
        covariances : array-like of shape (n_samples, n_components, n_components), default=None
            Covariance of this Gaussian.

        Returns
        -------
        means : ndarray of shape (n_samples, n_components)
            Mean of the best Gaussian for each sample.
        covariances : ndarray of shape (n_samples, n_components, n_components)
            Covariance of the best Gaussian for each sample.

        Notes
        -----
        The divergence may have several minima, one for each mode.  The search starts from the
        moments of the posterior, from its most probable regions and from the given Gaussian, if
        any.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise: two values of z explain an x
        >>> posterior = model.posterior([[2.0]])
        >>> means, covariances = posterior.best_gaussian("kl")  # one of the modes
        >>> np.abs(means).round(1), covariances.round(1)
        (array([[1.6]]), array([[[0.2]]]))
        >>> means, covariances = posterior.best_gaussian("moments")  # both, and what is between
        >>> np.abs(means).round(1), covariances.round(1)
        (array([[0.]]), array([[[2.8]]]))
        """
        if not isinstance(criterion, str) or criterion not in ("kl", "moments"):
            raise ValueError(f'criterion must be "kl" or "moments", got {criterion!r}.')
        if criterion == "moments":
            return self.mean.copy(), self.covariance.copy()
        given = None
        if means is not None or covariances is not None:
            given = check_gaussians(means, covariances, *self.mean.shape)
        comparison = self._comparison if given is None else self._compared_with(given)
        best_means, factors, _ = comparison.best_gaussians(self.mean, self.covariance, given)
        return best_means, factors @ np.swapaxes(factors, 1, 2)

    def _compared_with(self, gaussians: Gaussians) -> Comparison | SampledComparison:
        """Return what compares with Gaussians, wherever these have their mass."""
        if isinstance(self._visitor, Explorer):
            return self._comparison
        visitor = self._visitor.reach(self._table, gaussians)
        if visitor is self._visitor:
            return self._comparison
        return Posterior(visitor, self._table, visitor.visit(self._table))._comparison

    @cached_property
    def _comparison(self) -> Comparison | SampledComparison:
        """What densities and divergences are computed with."""
        visits, visitor = self._visits, self._visitor
        if isinstance(visitor, Explorer):
            return SampledComparison(visitor.network, visitor.noise, self._table, visits)
        # The heaviest visit of each sample is its reference.
        order = np.lexsort((-visits.responsibilities, self._samples))
        factors, centers = self._conditional
        return Comparison(visitor, self._table, visits, order, factors, centers)


def _guess_covariances(covariances: Floats, factors: Floats) -> Floats:
    """Return covariances (v, S, S) of regions that decide how fast these are drawn from.

    Of a region with few points, they are hardly known.
    """
    return np.asarray(covariances + _LEAST_SHARE * factors @ np.swapaxes(factors, 1, 2))
