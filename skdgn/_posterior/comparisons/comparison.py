"""Posteriors compared with points and with Gaussians: densities, divergences, bounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._noise import Noise
from skdgn._posterior.comparisons.variational import (
    Quadratics,
    References,
    Regions,
    entropies,
    expect_log_joint,
    improve_gaussian,
    log_masses,
)
from skdgn._posterior.listed import (
    Frame,
    Gaussians,
    ListedRegions,
    Visits,
    choose_frame,
    group_by_observed,
    restrict_features,
    restrict_noise,
)
from skdgn._runtime import LOG_SQRT_2PI, Floats, Integers

# Besides the posterior's moments, so many of its heaviest regions are starting points.
_N_REGIONS_TO_START_FROM = 2


class _Part(NamedTuple):
    """Samples with the same features observed, in units of the noise."""

    indices: Integers
    samples: Floats  # (n, f, C) in all frames
    regions: Regions
    references: References
    log_constant: float  # of p(x | z)
    features: Integers
    noise: Noise
    residuals: Floats  # (n, d) of the samples from the images of their references


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
    def _complete(self) -> tuple[list[Frame], Regions]:
        """What complete samples are compared with."""
        return self._regions_of(np.arange(self._table.shape[1]), self._visitor.noise)

    def _regions_of(self, features: Integers, noise: Noise) -> tuple[list[Frame], Regions]:
        """Return the frames of some features, and the regions in these."""
        visitor, parts = self._visitor, self._visitor.parts
        frames = [choose_frame(restrict_features(part.maps, features), noise) for part in parts]
        cells = visitor.partition.cells
        facets = cells.facets()
        n_regions, _, n_components = visitor.partition.maps.shape
        n_coordinates = max(frame.shape[1] for frame in frames)
        slopes = np.zeros((n_regions, n_coordinates, n_components))
        offsets, begin = np.zeros((n_regions, n_coordinates)), 0
        for frame in frames:
            maps, own = frame.compose(), slice(begin, begin + frame.shape[0])
            slopes[own, : frame.shape[1]] = maps.slopes
            offsets[own, : frame.shape[1]] = maps.offsets
            begin = own.stop
        return frames, Regions(
            np.repeat(np.arange(len(frames)), [frame.shape[0] for frame in frames]),
            slopes,
            offsets,
            cells.interior_points(),
            facets._replace(normals=np.ascontiguousarray(facets.normals)),
            visitor.cells,
            *visitor.bounds,
        )

    def _parts(self, relative: bool = True) -> Iterator[_Part]:
        """Group samples by what was observed; their references, or nothing in place of these."""
        visitor = self._visitor
        for indices, features in group_by_observed(self._table):
            is_complete = len(features) == self._table.shape[1]
            noise = restrict_noise(visitor.noise, features)
            frames, regions = self._complete if is_complete else self._regions_of(features, noise)
            samples = self._table[np.ix_(indices, features)]
            if relative:
                latent = self._latent[indices]
                numbers = self._visits.regions[self._heaviest[indices]]
                maps = visitor.partition.maps.take(numbers)
                images = maps.offsets + np.einsum("nds,ns->nd", maps.slopes, latent)
                residuals = noise.whiten(samples - images[:, features])
            else:
                numbers, latent = np.full(len(indices), -1), np.zeros_like(self._latent[indices])
                residuals = np.zeros_like(samples)
            shape = len(indices), len(frames), regions.offsets.shape[1]
            coordinates, others = np.zeros((2, *shape))
            excess = np.empty(shape[:2])
            for number, frame in enumerate(frames):
                own = slice(frame.shape[1])
                compared = frame.compare(samples, residuals)
                coordinates[:, number, own], others[:, number, own], excess[:, number] = compared
            references = References(numbers, np.ascontiguousarray(latent), others, excess)
            log_constant = frames[0].log_constant
            yield _Part(
                indices, coordinates, regions, references, log_constant, features, noise, residuals
            )

    def log_density(self, latent: Floats) -> Floats:
        """Log p(z | x) at latent points (m, S) for every sample: (n, m)."""
        regions, images = self._visitor.find_regions(latent), self._visitor.generate(latent)
        log_density = np.empty((len(self._table), len(latent)))
        for part in self._parts():
            for i, n in enumerate(part.indices):
                if not self._is_known[n]:
                    log_density[n] = np.nan
                    continue
                residual, reference = part.residuals[i], part.references.latent[i]
                region = part.references.regions[i]
                same = regions == region
                # What overflows has a log density of -inf.
                with np.errstate(over="ignore"):
                    here = self._table[n, part.features] - images[:, part.features]
                    here = part.noise.whiten(here)
                    # A difference of squares, without squares: outliers would lose all digits.
                    squares = ((here - residual) * (here + residual)).sum(axis=1)
                    squares += ((latent - reference) * (latent + reference)).sum(axis=1)
                    # In its own region, the gradient at the reference is zero.
                    shifts = latent[same] - reference
                    moved = shifts @ part.regions.slopes[region].T
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
        for part in self._parts(relative=False):  # the sum itself
            n = part.indices
            expected = expect_log_joint(
                part.regions, part.samples, part.references, means[n], factors[n]
            )
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
            quadratics = Quadratics.make(part.regions)
            for i, n in enumerate(part.indices):
                if not self._is_known[n]:
                    continue
                quadratics.forget()
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
                        part.regions,
                        quadratics,
                        part.samples[i],
                        part.references.of(i),
                        mean,
                        factor,
                    )
                    if value < smallest[n]:
                        smallest[n] = value
                        best_means[n], best_factors[n] = best_mean, best_factor
        # The search need not be as accurate as its result.
        return best_means, best_factors, self.divergences(best_means, best_factors)
