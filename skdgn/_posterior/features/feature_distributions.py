"""The distribution of single features, given others: mean, variance, distribution function.

Given what was observed of a sample, the posterior of z is a mixture of Gaussians, each truncated to
its region, and on a region a feature is an affine function of z plus Gaussian noise.  So (z, noise)
is a truncated Gaussian in one more dimension, the feature an affine function of it, and the
probability that the feature is at most t is the mass of the cell beyond one more cut:

    P(x_j <= t) = sum over regions of  responsibility * mass(cell cut at t) / mass(cell)

These are cells of `skdgn._geometry` with one dimension more than latent space, and as exact as they
are: to rounding for one and two latent dimensions, estimates for more.  A share is a difference of
logs, so digits go where a sample lies far from all that the model generates.

Shapes: ``n`` samples, ``k`` features, ``v`` visits (a sample and a region that matters for it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from skdgn._geometry import Cells, Facets, integrate_gaussian, whole_space
from skdgn._posterior.explored import Explorer
from skdgn._posterior.features.gaussian_distributions import GaussianDistributions
from skdgn._posterior.features.quantiles import find_quantiles
from skdgn._posterior.listed import ListedRegions
from skdgn._runtime import Floats, Integers

# Largest error of a probability, from each region.
_LOG_ERROR = math.log(1e-15)
# Logs of masses are rounded: shares of smaller ones would have errors above 2e-10.  So far out, at
# more than a thousand standard deviations, a Gaussian stands for the feature: an approximation,
# good if what is left of z moves the feature by less than its noise does.
_SMALLEST_LOG_MASS = -1e6
# What has a smaller share than this in a sum is lost to rounding, and left out.
NEGLIGIBLE_SHARE = 1e-17


class FeatureDistributions(Protocol):
    """One distribution for each of n samples and k features."""

    @property
    def log_density(self) -> Floats:
        """Log density of what each sample was conditioned on, (n,)."""

    @property
    def mean(self) -> Floats:
        """Means, (n, k)."""

    @property
    def variance(self) -> Floats:
        """Variances, (n, k)."""

    def bracket(self, share: float | Floats) -> tuple[Floats, Floats]:
        """Values (n, k) between which lies the quantile of a share."""

    def quantile(self, share: float | Floats) -> Floats:
        """Values (n, k) below which lies a share, or one of each feature (k,)."""

    def cdf(self, values: Floats) -> Floats:
        """Probabilities of at most these values (n, k): (n, k)."""

    def log_pdf(self, values: Floats) -> Floats:
        """Log densities of these values (n, k): (n, k)."""


@dataclass(frozen=True)
class MixedDistributions:
    """Mixtures of distributions, each part with the weight that the condition leaves it."""

    parts: Sequence[FeatureDistributions]
    weights: Floats  # (K, n), given the condition
    log_density: Floats  # (n,) of the condition

    @property
    def mean(self) -> Floats:
        """Means, (n, k)."""
        return self._average([part.mean for part in self.parts])

    @property
    def variance(self) -> Floats:
        """Variances, (n, k): within the parts and between them."""
        mean = self.mean
        return self._average([part.variance + (part.mean - mean) ** 2 for part in self.parts])

    def bracket(self, share: float | Floats) -> tuple[Floats, Floats]:
        """Values (n, k) between which lies the quantile of a share: those of all parts do."""
        ends = [part.bracket(share) for part in self.parts]
        return np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0)

    def quantile(self, share: float | Floats) -> Floats:
        """Values (n, k) below which lies a share, or one of each feature (k,)."""
        return find_quantiles(self, share)

    def cdf(self, values: Floats) -> Floats:
        """Probabilities of at most these values (n, k): (n, k)."""
        return self._average([part.cdf(values) for part in self.parts])

    def log_pdf(self, values: Floats) -> Floats:
        """Log densities of these values (n, k): (n, k)."""
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)[:, :, None]
        log_densities = np.stack([part.log_pdf(values) for part in self.parts])
        with np.errstate(invalid="ignore"):  # of NaN, NaN
            return np.logaddexp.reduce(log_weights + log_densities, axis=0)

    def _average(self, of_parts: list[Floats]) -> Floats:
        return np.einsum("pn,pnk->nk", self.weights, np.stack(of_parts))


def mix(parts: Sequence[FeatureDistributions], weights: Floats) -> FeatureDistributions:
    """Mix the conditional distributions of densities with these weights (K,)."""
    with np.errstate(divide="ignore"):
        joint = np.log(weights)[:, None] + np.stack([part.log_density for part in parts])
    log_density = np.logaddexp.reduce(joint, axis=0)
    # Where nothing is known, no part is likelier than another.
    joint[:, np.isneginf(log_density)] = -math.log(len(parts))
    given = np.exp(joint - np.logaddexp.reduce(joint, axis=0))
    # Distributions of a kind are many, and quick if they are taken together.
    kinds: dict[int, list[tuple[Floats, Any]]] = {}
    others: list[tuple[Floats, FeatureDistributions]] = []
    for weight, part in zip(given, parts, strict=True):
        leaves: list[tuple[Any, Any]] = [(1.0, part)]
        if isinstance(part, MixedDistributions):
            leaves = list(zip(part.weights, part.parts, strict=True))
        for own, leaf in leaves:
            if isinstance(leaf, GaussianDistributions | RegionDistributions):
                kinds.setdefault(leaf.n_dimensions, []).append((weight * own, leaf))
            else:
                others.append((weight * own, leaf))
    for alike in kinds.values():
        own = np.array([weight for weight, _ in alike])
        total = own.sum(axis=0)
        shares = np.divide(own, total, out=np.full(own.shape, 1.0 / len(own)), where=total > 0.0)
        joined = alike[0][1].join([leaf for _, leaf in alike], shares, log_density)
        others.append((total, joined))
    if len(kinds) == len(others) == 1:
        return others[0][1]
    return MixedDistributions(
        [leaf for _, leaf in others], np.array([weight for weight, _ in others]), log_density
    )


# Fields that have an entry for each visit, and stay as they are in a mixture.
_OF_VISITS = (
    "slopes",
    "offsets",
    "deviations",
    "region_means",
    "region_variances",
    "factors",
    "centers",
)


@dataclass(frozen=True)
class RegionDistributions:
    """The features' distributions under one network: mixtures over the regions of latent space.

    On the region of visit v, with ``z = factor @ (center + u)``, feature j is
    ``offsets[v, j] + slopes[v, j] @ u + deviations[v, j] e``; u and e are standard normal, but for
    u being in the region.
    """

    log_density: Floats  # (n,)
    start: Integers  # (n + 1,) visits of each sample
    responsibilities: Floats  # (v,)
    slopes: Floats  # (v, k, S)
    offsets: Floats  # (v, k)
    deviations: Floats  # (v, k)
    region_means: Floats  # (v, k) over the region
    region_variances: Floats  # (v, k)
    regions: Integers  # (v,)
    facets: Facets  # of regions
    factors: Floats  # (v, S, S)
    centers: Floats  # (v, S)
    log_pdf: Callable[[Floats], Floats]  # log densities of values (n, k): (n, k)

    @property
    def n_dimensions(self) -> int:
        """Number of latent dimensions."""
        return self.slopes.shape[2]

    @classmethod
    def join(cls, parts: Sequence[Self], weights: Floats, log_density: Floats) -> Self:
        """Mix distributions with these weights (p, n); regions without a share are left out."""
        samples = np.concatenate([part._repeat(np.arange(len(log_density))) for part in parts])
        shares = np.concatenate(
            [
                part.responsibilities * part._repeat(own)
                for own, part in zip(weights, parts, strict=True)
            ]
        )
        largest = np.zeros(len(log_density))
        np.maximum.at(largest, samples, shares)
        kept = np.flatnonzero(shares >= NEGLIGIBLE_SHARE * largest[samples])
        kept = kept[np.argsort(samples[kept], kind="stable")]

        def gather(name: str) -> NDArray[Any]:
            return np.asarray(np.concatenate([getattr(part, name) for part in parts])[kept])

        counts = [np.diff(part.facets.start) for part in parts]
        first = np.cumsum([0] + [len(own) for own in counts[:-1]])
        regions = np.concatenate([part.regions + f for part, f in zip(parts, first, strict=True)])
        facets = Facets(
            np.concatenate([[0], np.cumsum(np.concatenate(counts))]),
            np.concatenate([part.facets.normals for part in parts]),
            np.concatenate([part.facets.offsets for part in parts]),
        )

        def log_pdf(values: Floats) -> Floats:
            with np.errstate(divide="ignore"):
                log_weights = np.log(weights)[:, :, None]
            log_densities = np.stack([part.log_pdf(values) for part in parts])
            with np.errstate(invalid="ignore"):  # of NaN, NaN
                return np.logaddexp.reduce(log_weights + log_densities, axis=0)

        return cls(
            log_density=log_density,
            start=np.searchsorted(samples[kept], np.arange(len(log_density) + 1)),
            responsibilities=shares[kept],
            regions=regions[kept],
            facets=facets,
            log_pdf=log_pdf,
            **{name: gather(name) for name in _OF_VISITS},
        )

    @property
    def mean(self) -> Floats:
        """Means, (n, k)."""
        return self._sum_over_regions(self.region_means)

    @property
    def variance(self) -> Floats:
        """Variances, (n, k): within the regions and between them."""
        between = (self.region_means - self._repeat(self.mean)) ** 2
        return self._sum_over_regions(self.region_variances + between)

    @cached_property
    def _cells(self) -> tuple[Cells, Integers, Floats]:
        """Cells in coordinates (u, e), the visits they are those of, and their log masses.

        Not those of which a share of the mass cannot be told.
        """
        cells, places = _lift_cells(self.facets, self.regions, self.factors, self.centers)
        log_masses = _log_masses(cells)
        near = np.flatnonzero(log_masses > _SMALLEST_LOG_MASS)
        return cells.take(near), places[near], log_masses[near]

    def bracket(self, share: float | Floats) -> tuple[Floats, Floats]:
        """Values (n, k) between which lies the quantile of a share, by Cantelli's inequality."""
        # A little wider than they need be, lest rounding close them.
        mean, deviation = self.mean, 1.01 * np.sqrt(self.variance)
        odds = np.sqrt(share / (1.0 - share))
        return mean - deviation / odds, mean + deviation * odds

    def quantile(self, share: float | Floats) -> Floats:
        """Values (n, k) below which lies a share, or one of each feature (k,)."""
        return find_quantiles(self, share)

    def cdf(self, values: Floats) -> Floats:
        """Probabilities of at most these values (n, k): (n, k)."""
        _, places, _ = self._cells
        of_visits = self._repeat(values)
        # Gaussian where a cell is all of space; that stands for cells too thin or too far out, too.
        shares = ndtr((of_visits - self.region_means) / np.sqrt(self.region_variances))
        for feature in range(values.shape[1] if places.size > 0 else 0):
            shares[places, feature] = self._shares_below(of_visits[places, feature], feature)
        return np.clip(self._sum_over_regions(shares), 0.0, 1.0)

    def _shares_below(self, values: Floats, feature: int) -> Floats:
        """Share of each cell's mass where a feature is at most its value (c,)."""
        cells, places, whole = self._cells
        normals = -np.concatenate(
            [self.slopes[places, feature], self.deviations[places, feature, None]], axis=1
        )
        lengths = np.linalg.norm(normals, axis=1)
        pieces = cells.split(
            normals / lengths[:, None], (values - self.offsets[places, feature]) / lengths
        )
        below = np.flatnonzero(pieces.positive)
        parents = pieces.parents[below]
        with np.errstate(divide="ignore"):  # what has no share in the result may have any error
            log_shares = np.log(self.responsibilities[places[parents]])
        log_masses = _log_masses(pieces.cells.take(below), _LOG_ERROR + whole[parents] - log_shares)
        shares = np.zeros(len(values))
        shares[parents] = np.exp(log_masses - whole[parents])
        return shares

    def _repeat(self, values: NDArray[Any]) -> NDArray[Any]:
        """Repeat what there is for every sample for every visit."""
        return np.repeat(values, np.diff(self.start), axis=0)

    def _sum_over_regions(self, values: Floats) -> Floats:
        # Every sample visits at least one region, as reduceat needs.
        return np.add.reduceat(self.responsibilities[:, None] * values, self.start[:-1], axis=0)


def distributions_given(
    visitor: ListedRegions | Explorer, samples: Floats, features: Integers
) -> FeatureDistributions:
    """Condition on what was observed of samples (n, D), which is none of these features.

    A sample so far out that its density is zero is conditioned on nothing instead.
    """
    visits = visitor.visit(samples)
    log_density = visits.log_density
    unknown = np.isneginf(log_density)
    if unknown.any():
        samples = np.where(unknown[:, None], np.nan, samples)
        visits = visitor.visit(samples)
    settled = visitor.settle(visits)
    factors, centers = settled.condition(samples, visits)
    maps = settled.partition.maps.take(visits.regions)
    latent_slopes, latent_offsets, deviations = visitor.noise.predict(
        maps.slopes, maps.offsets, np.repeat(samples, np.diff(visits.start), axis=0), features
    )
    spread = np.einsum("vks,vst,vkt->vk", latent_slopes, visits.covariances, latent_slopes)
    means = latent_offsets + np.einsum("vks,vs->vk", latent_slopes, visits.means)
    variances = np.maximum(spread, 0.0) + deviations**2
    if isinstance(visitor, ListedRegions) and len(visitor.partition) == 1:
        whole = np.ones((1, len(samples)))
        return GaussianDistributions(log_density, whole, means[None], np.sqrt(variances)[None])
    slopes = latent_slopes @ factors

    def log_pdf(values: Floats) -> Floats:
        log_joint = np.empty(values.shape)
        for column, feature in enumerate(features):
            joint = samples.copy()
            joint[:, feature] = values[:, column]
            log_joint[:, column] = visitor.visit(joint).log_density
        # What is too far out is conditioned on nothing, whose log density is zero.
        return log_joint - np.where(unknown, 0.0, log_density)[:, None]

    return RegionDistributions(
        log_density=log_density,
        start=visits.start,
        responsibilities=visits.responsibilities,
        slopes=slopes,
        offsets=latent_offsets + np.einsum("vks,vs->vk", slopes, centers),
        deviations=deviations,
        region_means=means,
        region_variances=variances,
        regions=visits.regions,
        facets=settled.partition.cells.facets(),
        factors=factors,
        centers=centers,
        log_pdf=log_pdf,
    )


def _lift_cells(
    facets: Facets, regions: Integers, factors: Floats, centers: Floats
) -> tuple[Cells, Integers]:
    """Express the cells of visits in coordinates (u, e), with ``z = factor @ (center + u)``.

    Returns the cells, which are unbounded in e, and their visits: a cell too thin to be cut out of
    space has none, nor has all of space, on which a feature is Gaussian.
    """
    n_dimensions = centers.shape[1] + 1
    counts = np.diff(facets.start)[regions]
    places = np.flatnonzero(counts)
    cells = whole_space(n_dimensions).take(np.zeros(len(places), dtype=np.intp))
    for cut in range(counts.max(initial=0)):
        # Cells with fewer facets are cut by a function that is positive everywhere.
        gradients, values = np.zeros((len(places), n_dimensions)), np.ones(len(places))
        cut_now = np.flatnonzero(counts[places] > cut)
        visits = places[cut_now]
        facet = facets.start[regions[visits]] + cut
        normals = np.einsum("vst,vs->vt", factors[visits], facets.normals[facet])
        lengths = np.linalg.norm(normals, axis=1)
        distances = facets.offsets[facet] - np.einsum("vs,vs->v", normals, centers[visits])
        gradients[cut_now, :-1] = normals / lengths[:, None]
        values[cut_now] = -distances / lengths
        pieces = cells.split(gradients, values)
        inside = np.flatnonzero(pieces.positive)
        cells, places = pieces.cells.take(inside), places[pieces.parents[inside]]
    return cells, places


def _log_masses(cells: Cells, log_tolerances: float | Floats = -math.inf) -> Floats:
    """Log masses of cells under the standard normal distribution, as exact as they need be."""
    n_dimensions = cells.facets().normals.shape[1]
    center, covariance = np.zeros(n_dimensions), np.eye(n_dimensions)
    return integrate_gaussian(cells, center, covariance, log_tolerances).log_masses
