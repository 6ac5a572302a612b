"""Posteriors compared with points and with Gaussians: densities, divergences, bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._network import AffineMaps
from skdgn._posterior.comparisons.variational import (
    References,
    Regions,
    entropies,
    expect_log_joint,
    improve_gaussian,
    log_masses,
)
from skdgn._posterior.listed import ListedRegions, Visits, choose_frame, observed_parts
from skdgn._runtime import LOG_SQRT_2PI, Floats, Integers, kernel

# Besides the posterior's moments, so many of its heaviest regions are starting points.
_N_REGIONS_TO_START_FROM = 2
Gaussians = tuple[Floats, Floats]  # means, lower factors of the covariances


class _Part(NamedTuple):
    """Samples with the same features observed, in units of the noise."""

    indices: Integers
    samples: Floats
    regions: Regions
    references: References
    log_constant: float  # of p(x | z)


class Comparison:
    """The posteriors of some samples, ready to be compared.

    Parameters
    ----------
    visitor : ListedRegions
    table : ndarray of shape (n, D)
    visits : Visits
    order : ndarray of shape (v,)
        The visits of each sample, those of large responsibility first.
    factors, centers : ndarray of shape (v, S, S) and (v, S)
        Of the visits' untruncated Gaussians.
    """

    def __init__(
        self,
        visitor: ListedRegions,
        table: Floats,
        visits: Visits,
        order: Integers,
        factors: Floats,
        centers: Floats,
    ) -> None:
        self._visitor = visitor
        self._table = table
        self._visits = visits
        self._order = order
        self._factors = factors
        self._centers = centers

    @cached_property
    def _is_known(self) -> NDArray[np.bool_]:
        """Samples that are not too far out for anything to be known."""
        return np.isfinite(self._visits.log_density)

    @cached_property
    def _heaviest(self) -> Integers:
        return self._order[self._visits.start[:-1]]

    @cached_property
    def _latent(self) -> Floats:
        """Conditional mean of each sample's heaviest region: its reference."""
        heaviest = self._heaviest
        return np.einsum("nst,nt->ns", self._factors[heaviest], self._centers[heaviest])

    @cached_property
    def _log_excess(self) -> Floats:
        """Log of p(x) over the density p(x, z) at the reference z, if that were in its region.

        From the mass on the heaviest region and its responsibility: no large numbers cancel.
        """
        visits, heaviest = self._visits, self._heaviest
        masses = log_masses(
            self._visitor.cells,
            visits.regions[heaviest],
            self._factors[heaviest],
            self._centers[heaviest],
        )
        n_components = visits.means.shape[1]
        # The Gaussian integral over all of latent space is its height at the mean times this.
        _, log_determinants = np.linalg.slogdet(self._factors[heaviest])
        log_volumes = log_determinants + n_components * LOG_SQRT_2PI
        return np.asarray(log_volumes + masses - np.log(visits.responsibilities[heaviest]))

    @cached_property
    def _complete_maps(self) -> AffineMaps:
        """Maps of all regions, as complete samples see them."""
        return self._visitor.frame.compose()

    def _parts(self) -> Iterator[_Part]:
        partition, noise = self._visitor.partition, self._visitor.noise
        facets = partition.cells.facets()
        facets = facets._replace(normals=np.ascontiguousarray(facets.normals))
        heaviest_regions = self._visits.regions[self._heaviest]
        for part in observed_parts(partition, noise, self._table):
            if part.partition is partition:
                frame, maps = self._visitor.frame, self._complete_maps
            else:
                frame = choose_frame(part.partition.maps, part.noise)
                maps = frame.compose()
            samples = frame.whiten(part.samples)
            latent = self._latent[part.indices]
            regions = heaviest_regions[part.indices]
            images = np.einsum("nds,ns->nd", maps.slopes[regions], latent)
            residuals = samples - maps.offsets[regions] - images
            yield _Part(
                part.indices,
                np.ascontiguousarray(samples),
                Regions(
                    maps.slopes,
                    maps.offsets,
                    facets,
                    self._visitor.cells,
                    *self._visitor.bounds,
                ),
                References(regions, np.ascontiguousarray(residuals), np.ascontiguousarray(latent)),
                frame.log_constant,
            )

    def log_density(self, latent: Floats) -> Floats:
        """Log p(z | x) at latent points (m, S) for every sample: (n, m)."""
        partition = self._visitor.partition
        facets = partition.cells.facets()
        regions = _locate(
            facets.start, np.ascontiguousarray(facets.normals), facets.offsets, latent
        )
        log_density = np.empty((len(self._table), len(latent)))
        for part in self._parts():
            maps = part.regions
            images = maps.offsets[regions] + np.einsum("mds,ms->md", maps.slopes[regions], latent)
            for i, n in enumerate(part.indices):
                if not self._is_known[n]:
                    log_density[n] = np.nan
                    continue
                residual = part.references.residuals[i]
                region = part.references.regions[i]
                reference = self._latent[n]
                same = regions == region
                # What overflows has a log density of -inf.
                with np.errstate(over="ignore"):
                    here = part.samples[i] - images
                    # A difference of squares, without squares: outliers would lose all digits.
                    squares = ((here - residual) * (here + residual)).sum(axis=1)
                    squares += ((latent - reference) * (latent + reference)).sum(axis=1)
                    # In its own region, the gradient at the reference is zero.
                    shifts = latent[same] - reference
                    moved = shifts @ maps.slopes[region].T
                    squares[same] = (shifts**2).sum(axis=1) + (moved**2).sum(axis=1)
                log_density[n] = -0.5 * squares - self._log_excess[n]
        return log_density

    def divergences(self, means: Floats, factors: Floats) -> Floats:
        """KL(q || posterior) of a Gaussian for each sample: (n,)."""
        divergences = np.empty(len(self._table))
        for part in self._parts():
            n = part.indices
            expected = expect_log_joint(
                part.regions, part.samples, part.references, means[n], factors[n]
            )
            divergences[n] = self._log_excess[n] - expected - entropies(factors[n])
        # What is negative is zero: it is a sum of terms of either sign, with rounding errors.
        return np.maximum(divergences, 0.0)

    def elbo(self, means: Floats, factors: Floats) -> Floats:
        """Evidence lower bounds of Gaussians, one for each sample: (n,)."""
        elbo = np.empty(len(self._table))
        n_components = means.shape[1]
        for part in self._parts():
            n = part.indices
            # Relative to nothing: the sum itself.
            nowhere = np.full(len(n), -1)
            zeros = References(nowhere, np.zeros_like(part.samples), np.zeros_like(means[n]))
            expected = expect_log_joint(part.regions, part.samples, zeros, means[n], factors[n])
            log_prior = -n_components * LOG_SQRT_2PI
            elbo[n] = part.log_constant + log_prior + expected + entropies(factors[n])
        return elbo

    def best_gaussians(
        self, means: Floats, covariances: Floats, given: Gaussians | None
    ) -> tuple[Floats, Floats, Floats]:
        """Find the Gaussian of the smallest divergence for each sample.

        Means and covariances are the posterior's.  Returns means, factors and divergences.
        """
        visits = self._visits
        best_means, best_factors = np.full_like(means, np.nan), np.full_like(covariances, np.nan)
        smallest = np.full(len(means), np.inf)
        for part in self._parts():
            for i, n in enumerate(part.indices):
                if not self._is_known[n]:
                    continue
                # A region's own Gaussian, not truncated, is the posterior around its mode.
                end = min(visits.start[n] + _N_REGIONS_TO_START_FROM, visits.start[n + 1])
                starts = [(means[n], covariances[n])]
                for v in self._order[visits.start[n] : end]:
                    starts.append((visits.means[v], self._factors[v] @ self._factors[v].T))
                gaussians = [(mean, np.linalg.cholesky(matrix)) for mean, matrix in starts]
                if given is not None:
                    gaussians.append((given[0][n], given[1][n]))
                for mean, factor in gaussians:
                    value, best_mean, best_factor = improve_gaussian(
                        part.regions, part.samples[i], part.references.of(i), mean, factor
                    )
                    if value < smallest[n]:
                        smallest[n] = value
                        best_means[n], best_factors[n] = best_mean, best_factor
        # The search need not be as accurate as its result.
        return best_means, best_factors, self.divergences(best_means, best_factors)


@kernel
def _locate(start: Integers, normals: Floats, offsets: Floats, points: Floats) -> Integers:
    """Find the region in which each point is deepest; on a boundary, either side will do."""
    regions = np.zeros(len(points), dtype=np.intp)
    for i in range(len(points)):
        deepest = -math.inf
        for r in range(start.size - 1):
            depth = math.inf
            for f in range(start[r], start[r + 1]):
                distance = -offsets[f]
                for s in range(points.shape[1]):
                    distance += normals[f, s] * points[i, s]
                depth = min(depth, distance)
                if depth <= deepest:
                    break
            if depth > deepest:
                deepest, regions[i] = depth, r
    return regions
