"""A network with its noise, ready to be asked: density, posterior, draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from skdgn._cells import CellIntegrals, integrate_gaussian
from skdgn._imputation import fill_with_draws, fill_with_means
from skdgn._network import Floats, Network
from skdgn._noise import Noise
from skdgn._partition import Partition, build_partition
from skdgn._posterior import Posterior, log_density, posterior
from skdgn._regional_noise import AnyNoise, RegionalNoise
from skdgn._tables import TableVisitor

# A partition with more regions would take gigabytes, and hours.
MOST_REGIONS = 200_000
# Absolute error of a prior mass.
_LOG_WEIGHT_ERROR = math.log(1e-14)


@dataclass(frozen=True)
class Model:
    """Parameters and what is computed once from them: the partition, and what visits need."""

    network: Network
    noise: AnyNoise
    partition: Partition
    visitor: TableVisitor

    @classmethod
    def build(
        cls,
        network: Network,
        noise: AnyNoise | Callable[[Partition], AnyNoise],
        most_regions: int = MOST_REGIONS,
    ) -> Model:
        """Find the regions; TooManyRegionsError if there are more than ``most_regions``.

        The noise may depend on the regions.
        """
        partition = build_partition(network, most_regions)
        if not isinstance(noise, Noise | RegionalNoise):
            noise = noise(partition)
        return cls(network, noise, partition, TableVisitor.prepare(partition, noise))

    @cached_property
    def prior(self) -> CellIntegrals:
        """Integrals of the prior over the regions."""
        n_components = self.network.n_components
        return integrate_gaussian(
            self.partition.cells, np.zeros(n_components), np.eye(n_components), _LOG_WEIGHT_ERROR
        )

    @property
    def n_parameters(self) -> float:
        """Number of identifiable parameters."""
        return self.network.n_identifiable_weights + self.noise.n_parameters

    def locate(self, latent: Floats) -> NDArray[np.intp]:
        """Find the regions of latent points (n, S)."""
        return self.partition.locate(self.network.patterns(latent))

    def log_density(self, rows: Floats, n_jobs: int | None = None) -> Floats:
        """Exact log p(x) of every row (n, D)."""
        return log_density(self.visitor, rows, n_jobs)

    def posterior(self, rows: Floats, n_jobs: int | None = None) -> Posterior:
        """Exact posterior of every row (n, D)."""
        return posterior(self.visitor, rows, n_jobs)

    def impute(self, rows: Floats, n_jobs: int | None = None) -> Floats:
        """Replace what is missing from rows (n, D) by its conditional mean."""
        return fill_with_means(self.visitor, rows, n_jobs)

    def draw_missing(
        self,
        rows: Floats,
        n_draws: int,
        generator: np.random.RandomState,
        n_jobs: int | None = None,
    ) -> Floats:
        """Replace what is missing from rows (n, D) by independent draws: (n_draws, n, D)."""
        latent = self.posterior(rows, n_jobs).sample(n_draws, generator)
        units = self.visitor.incomplete.units
        tables = np.tile(rows, (n_draws, 1, 1))
        for table, points in zip(tables, latent, strict=True):
            regions = self.locate(points)
            noise = self.noise.color_at(regions, generator.standard_normal(rows.shape))
            fill_with_draws(table, self.network.forward(points) + noise, regions, units)
        return tables

    def draw(
        self, n_samples: int, generator: np.random.RandomState
    ) -> tuple[Floats, NDArray[np.intp]]:
        """Draw rows (n, D), and the region each comes from."""
        latent = generator.standard_normal((n_samples, self.network.n_components))
        regions = self.locate(latent)
        rows = self.network.forward(latent)
        noise = self.noise.color_at(regions, generator.standard_normal(rows.shape))
        return rows + noise, regions
