"""A network with its noise, ready to be asked: density, posterior, draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skdgn._geometry import MOST_EXACT_DIMENSIONS, CellIntegrals, Intervals
from skdgn._network import Network
from skdgn._noise import Independent, Noise, NoiseUnits
from skdgn._partition import Partition, build_partition
from skdgn._posterior.bounds import bound_log_densities
from skdgn._posterior.explored import Explorer
from skdgn._posterior.features import (
    FeatureDistributions,
    LineRegions,
    box_log_probabilities,
    distributions_given,
)
from skdgn._posterior.imputation import fill_with_draws, fill_with_means
from skdgn._posterior.listed import ListedRegions, Visitor, Visits, concatenate
from skdgn._posterior.posterior import Posterior
from skdgn._posterior.weighted_sums import WeightedSum
from skdgn._runtime import (
    MOST_SAMPLES,
    Bools,
    Floats,
    Integers,
    RandomSource,
    Workers,
    read,
    sample_batches,
)

# A partition with more regions would take gigabytes, and hours.
MOST_REGIONS = 200_000
# A visit's cell in one more dimension, its pieces, and what they are made of, beside the visit.
_COPIES_OF_CELLS = 8
# Visits, and as many Gaussians that are not truncated.
_COMPARISON_COPIES = 2
# Samples that are bounded together, each of which may take a second.
_BOUNDED_AT_A_TIME = 16
# Standard error of a log density where it is an estimate, if nobody asks for another one.
INTEGRATION_TOL = 0.01


@dataclass(frozen=True)
class NetworkModel(ABC):
    """What models of a network answer, by the regions that matter for the samples in question."""

    network: Network
    noise: Noise

    @abstractmethod
    def with_noise(self, noise: Noise) -> Self:
        """Return the same network with other noise."""

    @abstractmethod
    def list_regions(self) -> Partition:
        """Return the regions; an error where they are not listed."""

    @abstractmethod
    def visitor_for(
        self, samples: Floats, gaussians: tuple[Floats, Floats] | None = None
    ) -> ListedRegions | Explorer:
        """Return who visits the regions that matter for samples (n, D), and for Gaussians."""

    @property
    @abstractmethod
    def sample_bytes(self) -> float:
        """Memory that a sample takes while its regions are visited."""

    @property
    def comparison_bytes(self) -> float:
        """Memory that a sample takes while its posterior is compared with Gaussians."""
        return _COMPARISON_COPIES * self.sample_bytes

    @property
    @abstractmethod
    def n_weights(self) -> int:
        """Number of identifiable parameters of the network."""

    @abstractmethod
    def log_density_bounds(self, samples: NDArray[Any], workers: Workers) -> tuple[Floats, Floats]:
        """Bound log p(x) of every sample (n, D) from below and above: (n,) each."""

    @abstractmethod
    def responsibilities(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Posterior probability of each region, given every sample (n, D): (n, R)."""

    @abstractmethod
    def most_responsible(self, samples: NDArray[Any], workers: Workers) -> Integers:
        """Likeliest region of every sample (n, D)."""

    @abstractmethod
    def log_probability(
        self, bounds: tuple[Floats, Floats], n_draws: int, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Log probabilities of boxes between bounds (n, D), and standard errors: (n,) each."""

    @abstractmethod
    def locate(self, latent: Floats) -> Integers:
        """Find the regions of latent points (n, S)."""

    @property
    @abstractmethod
    def line_regions(self) -> LineRegions | None:
        """The regions, if there is one latent dimension and noise is independent."""

    @property
    def listed(self) -> dict[str, Any]:
        """What estimators keep of the regions: nothing where they are not listed."""
        return {}

    @property
    @abstractmethod
    def prior(self) -> CellIntegrals:
        """Integrals of the prior over the regions."""

    @cached_property
    def n_parameters(self) -> int:
        """Number of identifiable parameters."""
        n_parameters = self.n_weights + self.noise.n_parameters
        if self.network.is_affine:
            # The model is a Gaussian, which has no more than a mean and a covariance; rotations
            # that mix latent variables and factors leave it as it is.
            n_features, n_components = self.network.n_features, self.network.n_components
            n_factors = self.noise.n_factors
            most = n_features + n_features * (n_features + 1) // 2
            if n_factors > 0 and n_components + n_factors >= n_features:
                return most
            n_parameters = min(n_parameters - n_components * n_factors, most)
        return n_parameters

    @cached_property
    def _widened(self) -> dict[float, Self]:
        """The same with more noise, as far as it was asked for."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_widened"}

    def widen(self, factor: float) -> Self:
        """Return the same network with the variances of its noise multiplied by a factor."""
        if factor == 1.0:
            return self
        if factor not in self._widened:
            deviations = np.full(self.noise.n_features, np.sqrt(factor))
            self._widened[factor] = self.with_noise(self.noise.rescale(deviations))
        return self._widened[factor]

    def blur(self, scales: Floats, weights: Floats) -> WeightedSum:
        """Average copies of itself with variances of the noise multiplied by scales (s,)."""
        return WeightedSum(weights, [self.widen(scale) for scale in scales.tolist()])

    def log_density(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Exact log p(x) of every sample (n, D)."""
        return workers.fill(
            np.empty(len(samples)),
            lambda batch: self._visit(read(batch)).log_density,
            self.sample_bytes,
            samples,
        )

    def conditional_log_density(
        self, samples: NDArray[Any], features: Bools, workers: Workers
    ) -> Floats:
        """Exact log density of some features of every sample (n, D), given the others."""

        def compare_batch(batch: NDArray[Any]) -> Floats:
            joint = read(batch)
            condition = np.where(features, np.nan, joint)
            log_joint = self._visit(joint).log_density
            # Where both are -inf, nothing is known.
            with np.errstate(invalid="ignore"):
                return log_joint - self._visit(condition).log_density

        sample_bytes = 2.0 * self.sample_bytes
        return workers.fill(np.empty(len(samples)), compare_batch, sample_bytes, samples)

    def posterior(self, samples: NDArray[Any], workers: Workers) -> Posterior:
        """Exact posterior of every sample (n, D)."""
        visitor = self.visitor_for(read(samples))
        parts = workers.map(lambda batch: visitor.visit(read(batch)), self.sample_bytes, samples)
        visits = concatenate([visits for _, visits in parts])
        return Posterior(visitor, read(samples), visits, workers.reporter)

    def lower_bounds(
        self, samples: NDArray[Any], means: Floats, factors: Floats, workers: Workers
    ) -> Floats:
        """Exact evidence lower bound of every sample (n, D) and its Gaussian."""

        def bound_batch(batch: NDArray[Any], means: Floats, factors: Floats) -> Floats:
            return self._posterior_of(batch, (means, factors))._comparison.elbo(means, factors)

        result = np.empty(len(samples))
        return workers.fill(result, bound_batch, self.comparison_bytes, samples, means, factors)

    def variational_gaps(
        self, samples: NDArray[Any], means: Floats, factors: Floats, workers: Workers
    ) -> Floats:
        """Divergence of Gaussians beyond the best ones, and that of the best ones: (n, 2)."""

        def compare_batch(batch: NDArray[Any], means: Floats, factors: Floats) -> Floats:
            posterior = self._posterior_of(batch, (means, factors))
            divergences = posterior._comparison.divergences(means, factors)
            _, _, smallest = posterior._comparison.best_gaussians(
                posterior.mean, posterior.covariance, (means, factors)
            )
            family = np.minimum(smallest, divergences)
            return np.stack([divergences - family, family], axis=1)

        result = np.empty((len(samples), 2))
        return workers.fill(result, compare_batch, self.comparison_bytes, samples, means, factors)

    def means(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Posterior mean of every sample (n, D): (n, S)."""
        result = np.empty((len(samples), self.network.n_components))
        return self._summarize(samples, lambda posterior: posterior.mean, result, workers)

    def factor_means(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Posterior mean of the factors of the noise, given every sample (n, D): (n, k).

        Given z and a complete sample, it is linear in the residual.  So it is the same of their
        posterior means.
        """

        def infer_batch(batch: NDArray[Any]) -> Floats:
            table = read(batch)
            visitor = self.visitor_for(table)
            visits = visitor.visit(table)
            maps = visitor.settle(visits).partition.maps.take(visits.regions)
            images = maps.offsets + np.einsum("vds,vs->vd", maps.slopes, visits.means)
            generated = np.add.reduceat(
                visits.responsibilities[:, None] * images, visits.start[:-1], axis=0
            )
            if np.isnan(table).any():
                table = fill_with_means(visitor, table, Workers())
            return self.noise.principal_factors(table - generated)

        result = np.empty((len(samples), self.noise.n_factors))
        return workers.fill(result, infer_batch, self.sample_bytes, samples)

    def _summarize(
        self,
        samples: NDArray[Any],
        summary: Callable[[Posterior], NDArray[Any]],
        result: NDArray[Any],
        workers: Workers,
    ) -> NDArray[Any]:
        """Fill in one entry per sample (n, D) from its posterior, which is not kept."""
        return workers.fill(
            result,
            lambda batch: summary(self._posterior_of(batch)),
            self.sample_bytes,
            samples,
        )

    def _visit(self, samples: Floats) -> Visits:
        return self.visitor_for(samples).visit(samples)

    def _posterior_of(
        self, batch: NDArray[Any], gaussians: tuple[Floats, Floats] | None = None
    ) -> Posterior:
        table = read(batch)
        visitor = self.visitor_for(table, gaussians)
        return Posterior(visitor, table, visitor.visit(table))

    @property
    def distribution_bytes(self) -> float:
        """Memory that `feature_distributions` takes for a sample."""
        return _COPIES_OF_CELLS * self.sample_bytes

    def feature_distributions(self, samples: Floats, features: Integers) -> FeatureDistributions:
        """Distributions of features given samples (n, D), NaN where these are not observed."""
        return distributions_given(self.visitor_for(samples), samples, features)

    def impute(self, samples: Floats, workers: Workers) -> tuple[Floats, Floats]:
        """Replace what is missing from samples (n, D) by its conditional mean, without an error."""
        return fill_with_means(self.visitor_for(samples), samples, workers), np.zeros(samples.shape)

    def draw_missing(
        self,
        samples: Floats,
        n_draws: int,
        generator: RandomSource,
        workers: Workers,
    ) -> Floats:
        """Replace what is missing from samples (n, D) by independent draws: (n_draws, n, D)."""
        units = NoiseUnits.of(self.noise)
        tables = np.tile(samples, (n_draws, 1, 1))
        # Draws of a seed must not depend on the memory at hand: all batches are of the same size.
        with workers.reporter.count(len(samples)) as advance:
            for batch in sample_batches(len(samples), MOST_SAMPLES):
                latent = self.posterior(samples[batch], workers).sample(n_draws, generator)
                for table, points in zip(tables[:, batch], latent, strict=True):
                    noise = self.noise.color(generator.standard_normal(table.shape))
                    fill_with_draws(table, self.network.forward(points) + noise, units)
                advance(batch.stop)
        return tables

    def draw(self, n_samples: int, generator: RandomSource) -> tuple[Floats, Integers]:
        """Draw samples (n, D), and the region each comes from."""
        latent = generator.standard_normal((n_samples, self.network.n_components))
        regions = self.locate(latent)
        samples = self.network.forward(latent)
        noise = self.noise.color(generator.standard_normal(samples.shape))
        return samples + noise, regions


@dataclass(frozen=True)
class Model(NetworkModel):
    """Parameters and what is computed once from them: the partition, and what visits need."""

    partition: Partition
    visitor: Visitor | Explorer

    @classmethod
    def build(
        cls,
        network: Network,
        noise: Noise,
        most_regions: int = MOST_REGIONS,
        integration_tol: float = INTEGRATION_TOL,
        seed: int = 0,
    ) -> Model:
        """Find the regions; TooManyRegionsError if there are more than ``most_regions``.

        Where integrals are estimates, regions are explored instead, by points of this seed, and
        standard errors of log densities are to be below the tolerance.
        """
        if network.n_components > MOST_EXACT_DIMENSIONS and not network.is_affine:
            explorer = Explorer.prepare(network, noise, integration_tol, seed)
            return cls(network, noise, explorer.partition, explorer)
        partition = build_partition(network, most_regions)
        return cls(network, noise, partition, Visitor.prepare(partition, noise))

    def with_noise(self, noise: Noise) -> Self:
        """Return the same network with other noise."""
        return replace(self, noise=noise, visitor=self.visitor.with_noise(noise))

    @cached_property
    def prior(self) -> CellIntegrals:
        """Integrals of the prior over the regions."""
        return self.visitor.prior

    @cached_property
    def n_weights(self) -> int:
        """Number of those of the network."""
        return self.network.count_identifiable(self.partition.patterns)

    def locate(self, latent: Floats) -> Integers:
        """Find the regions of latent points (n, S)."""
        return self.partition.locate(self.network.patterns(latent))

    def list_regions(self) -> Partition:
        """Return the regions."""
        return self.partition

    def visitor_for(
        self, samples: Floats, gaussians: tuple[Floats, Floats] | None = None
    ) -> Visitor | Explorer:
        """Return who visits the regions: the same for all samples."""
        return self.visitor

    @property
    def sample_bytes(self) -> float:
        """Memory that a sample takes while its regions are visited."""
        return self.visitor.sample_bytes

    def log_density_bounds(self, samples: NDArray[Any], workers: Workers) -> tuple[Floats, Floats]:
        """Bound log p(x) of every sample (n, D): where regions are listed, exact to rounding."""
        explorer = self.visitor
        if isinstance(explorer, Explorer):
            sample_bytes = max(self.sample_bytes, workers.memory / _BOUNDED_AT_A_TIME)
            lower, upper = workers.fill(
                np.empty((len(samples), 2)),
                lambda batch: bound_log_densities(explorer, read(batch)),
                sample_bytes,
                samples,
            ).T
            return lower, upper
        log_density = self.log_density(samples, workers)
        return log_density, log_density.copy()

    @property
    def listed(self) -> dict[str, Any]:
        """What estimators keep of the regions: their number."""
        return {"n_regions_": len(self.partition)}

    @cached_property
    def line_regions(self) -> LineRegions | None:
        """The regions, if there is one latent dimension and noise is independent."""
        cells, noise = self.partition.cells, self.noise
        if not (isinstance(cells, Intervals) and isinstance(noise, Independent)):
            return None
        numbers = np.arange(len(self.partition))
        maps = self.partition.maps.take(numbers)
        return LineRegions(
            ends=np.stack([cells.lower, cells.upper], axis=1),
            slopes=np.ascontiguousarray(maps.slopes[:, :, 0]),
            offsets=np.ascontiguousarray(maps.offsets),
            deviations=np.tile(noise.deviations, (len(numbers), 1)),
            log_weights=np.zeros(len(numbers)),
            labels=numbers,
        )

    def responsibilities(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Posterior probability of each region, given every sample (n, D): (n, R)."""
        result = np.empty((len(samples), len(self.partition)))
        return self._summarize(
            samples, lambda posterior: posterior.responsibilities, result, workers
        )

    def most_responsible(self, samples: NDArray[Any], workers: Workers) -> Integers:
        """Likeliest region of every sample (n, D)."""
        result = np.empty(len(samples), dtype=np.intp)
        return self._summarize(
            samples, lambda posterior: posterior.most_responsible, result, workers
        )

    def log_probability(
        self, bounds: tuple[Floats, Floats], n_draws: int, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Log probabilities of boxes between bounds (n, D), and standard errors: (n,) each."""
        return box_log_probabilities(self, bounds, n_draws, generator)
