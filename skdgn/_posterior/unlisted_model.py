"""A network with so many regions that they are not listed: those that matter are found for samples.

Their integrals, conditionals and draws are those of listed regions, of patches of latent space.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from skdgn._geometry import MOST_EXACT_DIMENSIONS
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._partition import LatentBoxes, TooManyRegionsError, refuse_hopeless
from skdgn._posterior.bounds import BoxExplorer
from skdgn._posterior.listed import Gaussians, count_coordinates
from skdgn._posterior.model import MOST_REGIONS, Model, NetworkModel
from skdgn._posterior.patches import (
    KnownSample,
    PatchVisitor,
    list_patch,
    list_patches,
    visit_patch,
)
from skdgn._runtime import Floats, Workers, read

# Regions that matter for a sample, and coordinates of their images: guesses, for memory.
_USUAL_VISITS, _USUAL_COORDINATES = 1 << 14, 1 << 7
# Regions are listed if the memory for their maps, and what is made of these, is below 2 GB.
_COPIES_OF_MAPS = 2
_MOST_BYTES = 2.0**31
# Rounding errors of a log density, relative to 1 + its size, by which bounds are widened.
_ROUNDING = 1e-12
# Half of the width of a box where it does not matter which.
_ANY_HALF = 1e-3
# Points whose patterns tell which parameters do anything.
_N_POINTS = 1024
# Of a distance, in units of the noise.
_LARGEST_SQUARE = 1e200
# A rest of the density beyond this share is worth a warning.
_LOG_LARGEST_REST = math.log(1e-6)


class RegionsNotListedError(AttributeError, ValueError):
    """Asked of a network's regions, which are too many to be listed."""

    def __init__(self, network: Network) -> None:
        super().__init__(
            f"The regions of a network with {network.architecture} are not listed: they are more "
            f"than {MOST_REGIONS}. Densities and posteriors are found without a list of them."
        )


def build_model(network: Network, noise: Noise) -> NetworkModel:
    """Build the model of any network, which lists its regions unless they are too many."""
    if network.n_components > MOST_EXACT_DIMENSIONS:
        return Model.build(network, noise)
    n_coordinates = count_coordinates(network.layers[-1])
    map_bytes = _COPIES_OF_MAPS * 8.0 * (network.n_components + 1) * n_coordinates
    most_regions = int(min(MOST_REGIONS, _MOST_BYTES / map_bytes))
    try:
        refuse_hopeless(network, most_regions)
        return Model.build(network, noise, most_regions)
    except TooManyRegionsError:
        return UnlistedModel(network, noise)


@dataclass(frozen=True)
class UnlistedModel(NetworkModel):
    """Parameters alone: regions are found when samples are there."""

    def with_noise(self, noise: Noise) -> Self:
        """Return the same network with other noise."""
        return replace(self, noise=noise)

    def list_regions(self) -> NoReturn:
        """Raise an error: there are too many."""
        raise RegionsNotListedError(self.network)

    @property
    def prior(self) -> NoReturn:
        """Raise an error: nobody can go through all regions."""
        raise RegionsNotListedError(self.network)

    def responsibilities(self, samples: NDArray[Any], workers: Workers) -> NoReturn:
        """Raise an error: regions have no numbers."""
        raise RegionsNotListedError(self.network)

    def most_responsible(self, samples: NDArray[Any], workers: Workers) -> NoReturn:
        """Raise an error: regions have no numbers."""
        raise RegionsNotListedError(self.network)

    def log_probability(
        self, bounds: tuple[Floats, Floats], n_draws: int, generator: np.random.Generator
    ) -> NoReturn:
        """Raise an error: it is an integral over all regions."""
        raise RegionsNotListedError(self.network)

    @property
    def line_regions(self) -> None:
        """None: regions are not listed."""
        return None

    @property
    def n_weights(self) -> int:
        """Number of identifiable parameters of the network, by the patterns of some points."""
        points = np.random.default_rng(0).standard_normal((_N_POINTS, self.network.n_components))
        patterns = np.unique(self.network.patterns(points), axis=0)
        return self.network.count_identifiable(patterns)

    def locate(self, latent: Floats) -> NDArray[np.intp]:
        """Return -1 for all latent points (n, S): regions have no numbers."""
        return np.full(len(latent), -1, dtype=np.intp)

    @property
    def sample_bytes(self) -> float:
        """Memory that a sample takes, roughly: some thousand visits."""
        return 8.0 * _USUAL_VISITS * (self.network.n_components + 1) ** 2

    @property
    def comparison_bytes(self) -> float:
        """Memory that a comparison takes for a sample: the maps of as many regions."""
        n_coordinates = min(self.network.n_features, _USUAL_COORDINATES)
        return 8.0 * _USUAL_VISITS * (self.network.n_components + 2) * n_coordinates

    def visitor_for(self, samples: Floats, gaussians: Gaussians | None = None) -> PatchVisitor:
        """Return who visits the regions that matter for samples (n, D), and for Gaussians."""
        # Of samples so far out that nothing is known, a visitor of any region says so.
        boxes = LatentBoxes(np.zeros((1, self.network.n_components)), np.full(1, _ANY_HALF))
        matters = np.ones((len(samples), 1), dtype=bool)
        log_floors, known = np.full(len(samples), -np.inf), self._are_known(samples)
        if known.any():
            if gaussians is not None:
                gaussians = gaussians[0][known], gaussians[1][known]
            explorer = BoxExplorer(self.network, self.noise, samples[known])
            found = explorer.explore(gaussians=gaussians)
            boxes, matters = found.boxes, np.zeros((len(samples), len(found.boxes.halves)), bool)
            matters[:, 0] = ~known
            matters[known], log_floors[known] = found.matters, found.log_lower
        return PatchVisitor(
            self.network,
            list_patches(self.network, boxes),
            self.noise,
            {
                sample.tobytes(): KnownSample(*own)
                for sample, *own in zip(samples, matters, log_floors, strict=True)
            },
            self.sample_bytes,
            self.visitor_for,
        )

    def log_density(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Log p(x) of every sample (n, D), from the regions that matter."""
        log_density, log_rest = self._integrate(samples, workers).T
        if np.any(log_rest > log_density + _LOG_LARGEST_REST):
            warnings.warn(
                "Some log densities may be too small: latent space was not explored to the end. "
                "log_density_bounds says by how much.",
                stacklevel=2,
            )
        return log_density

    def log_density_bounds(self, samples: NDArray[Any], workers: Workers) -> tuple[Floats, Floats]:
        """Bound log p(x) of every sample (n, D) from below and above: (n,) each."""
        log_density, log_rest = self._integrate(samples, workers).T
        finite = np.where(np.isfinite(log_density), log_density, 0.0)
        rounding = _ROUNDING * (1.0 + np.abs(finite))
        return log_density - rounding, np.logaddexp(log_density, log_rest) + rounding

    def _integrate(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Log density from the regions that matter, and the most there is elsewhere: (n, 2)."""
        return workers.fill(
            np.empty((len(samples), 2)),
            lambda batch: self._integrate_batch(read(batch)),
            self.sample_bytes,
            samples,
        )

    def _are_known(self, samples: Floats) -> NDArray[np.bool_]:
        """Tell which samples (n, D) are not so far out that squares overflow."""
        with np.errstate(over="ignore"):
            return np.nansum(samples**2 / self.noise.variances, axis=1) < _LARGEST_SQUARE

    def _integrate_batch(self, samples: Floats) -> Floats:
        # Without any feature there is nothing to integrate: all of the prior.
        result = np.full((len(samples), 2), [0.0, -np.inf])
        result[~self._are_known(samples), 0] = -np.inf
        asked = np.flatnonzero(self._are_known(samples) & ~np.isnan(samples).all(axis=1))
        if asked.size > 0:
            result[asked] = self._explore_and_integrate(samples[asked])
        return result

    def _explore_and_integrate(self, samples: Floats) -> Floats:
        found = BoxExplorer(self.network, self.noise, samples).explore()
        log_density, log_floors = np.full(len(samples), -np.inf), found.log_lower
        # One patch at a time: all regions that matter for all samples may take gigabytes.
        for number, matters in enumerate(found.matters.T):
            used = np.flatnonzero(matters)
            patch = list_patch(self.network, found.boxes.take(np.array([number])))
            own = visit_patch(patch, self.noise, samples[used], log_floors[used]).log_density
            log_density[used] = np.logaddexp(log_density[used], own)
            log_floors = np.maximum(log_floors, log_density)
        return np.stack([log_density, found.log_rest], axis=1)
