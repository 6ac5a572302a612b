"""The E-step: what the M-step needs to know of the data, additive over batches of samples.

Per region, sums over samples of ``w``, ``w z``, ``w z z'``, ``w x``, ``w x z'`` under the
posterior, ``w`` being the sample's weight times the region's responsibility.  Memory does not
depend on the number of samples.

What is missing from a sample enters through its expectations: given z and what was observed, it is
Gaussian, with a mean that is affine in z on each region (`skdgn._noise.missing`).  So the M-step
need not know of missing values, and its gradient is that of the likelihood of what was observed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from skdgn._network import Codes
from skdgn._noise import (
    Noise,
    NoiseUnits,
    Observation,
    make_observation,
    missing_covariance,
    observe,
    predict_missing,
)
from skdgn._partition import add_regions
from skdgn._posterior import Explorer, RegionMaps, Visitor, Visits
from skdgn._runtime import (
    Bools,
    Floats,
    Integers,
    Table,
    Workers,
    inlined_sum_kernel,
    read,
    sum_kernel,
)


class Explored(NamedTuple):
    """Regions that were explored."""

    patterns: Codes  # (R, c)
    points: Floats  # (R, S) inside


@dataclass(frozen=True)
class SufficientStatistics:
    """Sums over samples (all unnormalized: they carry the responsibilities)."""

    weights: Floats  # (R,) sum of w
    first: Floats  # (R, S) sum of w z
    second: Floats  # (R, S, S) sum of w z z'
    data: Floats  # (R, D) sum of w x
    cross: Floats  # (R, D, S) sum of w x z'
    squares: Floats  # sum over all regions of what the noise asks for: see `Noise.collect`
    total_weight: float  # sum of the samples' weights
    log_likelihood: float  # weighted sum of log p(x)
    regions: Explored | None = None  # which they are, unless they are those of the partition

    @classmethod
    def none(
        cls, visitor: Visitor | Explorer, regions: Explored | None = None
    ) -> SufficientStatistics:
        """Return the statistics of no sample, for regions that were explored, if any were."""
        n_regions, n_features, n_components = visitor.partition.maps.shape
        if visitor.is_exact:
            regions = None
        else:
            patterns = visitor.partition.patterns[:0]
            regions = regions or Explored(patterns, np.empty((0, n_components)))
            n_regions = len(regions.patterns)
        return cls(
            np.zeros(n_regions),
            np.zeros((n_regions, n_components)),
            np.zeros((n_regions, n_components, n_components)),
            np.zeros((n_regions, n_features)),
            np.zeros((n_regions, n_features, n_components)),
            visitor.noise.collect(np.empty((0, n_features)), np.empty(0)),
            0.0,
            0.0,
            regions,
        )

    def take_features(self, features: Integers, kind: type[Noise]) -> SufficientStatistics:
        """Return the statistics of these features, in this order, for this kind of noise."""
        return replace(
            self,
            data=self.data[:, features],
            cross=self.cross[:, features],
            squares=kind.take_squares(self.squares, features),
        )

    def __mul__(self, factor: float) -> SufficientStatistics:
        sums = {name: own for name, own in vars(self).items() if name != "regions"}
        return replace(self, **{name: factor * own for name, own in sums.items()})

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        if self.regions is None or other.regions is None:
            return self._add(other)
        # Explored by different samples: those with the same pattern are the same.
        numbers, new = add_regions(self.regions.patterns, other.regions.patterns)
        n_regions = len(self.weights) + len(new)
        regions = Explored(
            np.concatenate([self.regions.patterns, other.regions.patterns[new]]),
            np.concatenate([self.regions.points, other.regions.points[new]]),
        )
        own = np.arange(len(self.weights))
        return self._spread(own, n_regions, regions)._add(
            other._spread(numbers, n_regions, regions)
        )

    def _add(self, other: SufficientStatistics) -> SufficientStatistics:
        """Add the statistics of the same regions."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        return replace(self, **sums)

    def _spread(self, numbers: Integers, n_regions: int, regions: Explored) -> SufficientStatistics:
        """Return the same sums among other regions, in which these have such numbers."""

        def spread(own: Floats) -> Floats:
            more = np.zeros((n_regions, *own.shape[1:]))
            more[numbers] = own
            return more

        sums: dict[str, Any] = {name: spread(getattr(self, name)) for name in _BY_REGION}
        return replace(self, **sums, regions=regions)


# What is added up, and what of it for each region.
_BY_REGION = ("weights", "first", "second", "data", "cross")
SUMS = (*_BY_REGION, "squares", "total_weight", "log_likelihood")


class _Sums(NamedTuple):
    """Arrays of `SufficientStatistics`, for kernels to add to."""

    weights: Floats
    first: Floats
    second: Floats
    data: Floats
    cross: Floats
    squares: Floats


def accumulate(
    visitor: Visitor | Explorer, visits: Visits, samples: Floats, sample_weights: Floats
) -> SufficientStatistics:
    """Sum the statistics of a batch of samples (n, D) over its sparse posterior.

    Either all samples are complete, or none of them is.
    """
    none = SufficientStatistics.none(visitor, Explored(visits.patterns, visits.points))
    sums = _Sums(*(vars(none)[name] for name in _Sums._fields))
    if np.isnan(samples).any():
        regions, samples = visitor.settle(visits), np.ascontiguousarray(samples)
        gains = np.ascontiguousarray(visitor.noise.gains)
        completed = _Completed.make(samples.shape[1], visits.means.shape[1], len(gains))
        _accumulate_incomplete(
            visits,
            samples,
            sample_weights,
            regions.units,
            regions.region_maps,
            gains,
            make_observation(regions.units),
            completed,
            sums,
        )
    else:
        _accumulate(visits, samples, sample_weights, sums)
        # A sample's responsibilities add up to one.
        sums = sums._replace(squares=visitor.noise.collect(samples, sample_weights))
    return SufficientStatistics(
        *sums,
        total_weight=float(sample_weights.sum()),
        log_likelihood=float(sample_weights @ visits.log_density),
        regions=none.regions,
    )


@sum_kernel
def _accumulate(visits: Visits, samples: Floats, sample_weights: Floats, sums: _Sums) -> None:
    """Add complete samples, but for the squares."""
    for n in range(len(samples)):
        for v in range(visits.start[n], visits.start[n + 1]):
            r = visits.regions[v]
            w = sample_weights[n] * visits.responsibilities[v]
            _add_latent(r, w, visits, v, sums)
            for d in range(samples.shape[1]):
                x = w * samples[n, d]
                sums.data[r, d] += x
                for s in range(visits.means.shape[1]):
                    sums.cross[r, d, s] += x * visits.means[v, s]


@inlined_sum_kernel
def _add_latent(r: int, w: float, visits: Visits, v: int, sums: _Sums) -> None:
    """Add what a visit says of z."""
    sums.weights[r] += w
    for s in range(visits.means.shape[1]):
        z = visits.means[v, s]
        sums.first[r, s] += w * z
        for t in range(visits.means.shape[1]):
            product = visits.covariances[v, s, t] + z * visits.means[v, t]
            sums.second[r, s, t] += w * product


class _Completed(NamedTuple):
    """A sample whose missing values are expected at ``values + rates (z - mean of z)``."""

    values: Floats  # (D,)
    rates: Floats  # (D, S), zero where a value was observed
    spreads: Floats  # (D, S) rates times the covariance of z
    sums: Floats  # (D,) of the values, over the regions
    noise: Floats  # (D,) buffer
    factors: Floats  # (k, 1 + S) buffer

    @classmethod
    def make(cls, n_features: int, n_components: int, n_factors: int) -> _Completed:
        """Make room for a sample."""
        return cls(
            np.empty(n_features),
            np.empty((n_features, n_components)),
            np.empty((n_features, n_components)),
            np.empty(n_features),
            np.empty(n_features),
            np.empty((n_factors, 1 + n_components)),
        )


@sum_kernel
def _accumulate_incomplete(
    visits: Visits,
    samples: Floats,
    sample_weights: Floats,
    units: NoiseUnits,
    maps: RegionMaps,
    gains: Floats,
    observation: Observation,
    completed: _Completed,
    sums: _Sums,
) -> None:
    """Add samples with missing values; ``gains`` (k, D) as in `Noise.gains`."""
    n_components, n_features = visits.means.shape[1], samples.shape[1]
    for n in range(len(samples)):
        observe(samples[n], units, observation)
        _keep_observed(samples[n], observation, completed)
        _add_constant_squares(sample_weights[n], samples[n], units, observation, sums.squares)
        _add_missing_factors(sample_weights[n], gains, units, observation, sums.squares)
        for v in range(visits.start[n], visits.start[n + 1]):
            r = visits.regions[v]
            w = sample_weights[n] * visits.responsibilities[v]
            mean, covariance = visits.means[v], visits.covariances[v]
            _add_latent(r, w, visits, v, sums)
            _expect_missing(samples[n], r, mean, covariance, units, maps, observation, completed)
            for d in range(n_features):
                sums.data[r, d] += w * completed.values[d]
                for s in range(n_components):
                    product = completed.values[d] * mean[s] + completed.spreads[d, s]
                    sums.cross[r, d, s] += w * product
            _add_squares(w, observation, completed, sums.squares)
            _add_factors(w, gains, completed, sums.squares)
        if observation.is_dense:
            _add_products(samples[n], observation, completed, sums.squares)


@inlined_sum_kernel
def _keep_observed(sample: Floats, observation: Observation, completed: _Completed) -> None:
    """Fill in what was observed, which does not depend on z."""
    for d in range(sample.size):
        completed.sums[d] = 0.0
    for i in range(observation.n_observed[0]):
        d = observation.order[i]
        completed.values[d] = sample[d]
        for s in range(completed.rates.shape[1]):
            completed.rates[d, s] = 0.0
            completed.spreads[d, s] = 0.0


@inlined_sum_kernel
def _expect_missing(
    sample: Floats,
    r: int,
    mean: Floats,
    covariance: Floats,
    units: NoiseUnits,
    maps: RegionMaps,
    observation: Observation,
    completed: _Completed,
) -> None:
    """Fill in what is missing, as it is expected on a region given z."""
    order, n_observed, n_features = observation.order, observation.n_observed[0], sample.size
    values, rates, spreads = completed.values, completed.rates, completed.spreads
    noise = completed.noise
    for i in range(n_observed, n_features):
        d = order[i]
        values[d] = maps.offsets[r, d]
        for s in range(mean.size):
            rates[d, s] = maps.slopes[r, d, s]
            values[d] += maps.slopes[r, d, s] * mean[s]
    if observation.is_correlated:
        # What is observed of the noise, at the mean of z and as z moves, tells of what is not.
        for column in range(-1, mean.size):
            for i in range(n_observed):
                d = order[i]
                if column >= 0:
                    noise[i] = maps.slopes[r, d, column]
                else:
                    noise[i] = maps.offsets[r, d] - sample[d] / units.deviations[d]
                    for s in range(mean.size):
                        noise[i] += maps.slopes[r, d, s] * mean[s]
            predict_missing(observation, noise)
            for i in range(n_observed, n_features):
                if column >= 0:
                    rates[order[i], column] -= noise[i]
                else:
                    values[order[i]] -= noise[i]
    for i in range(n_observed, n_features):
        d = order[i]
        values[d] *= units.deviations[d]
        for s in range(mean.size):
            rates[d, s] *= units.deviations[d]
        for s in range(mean.size):
            spreads[d, s] = 0.0
            for t in range(mean.size):
                spreads[d, s] += rates[d, t] * covariance[t, s]


@inlined_sum_kernel
def _add_constant_squares(
    weight: float, sample: Floats, units: NoiseUnits, observation: Observation, squares: Floats
) -> None:
    """Add what does not depend on z: products of observed values, and the noise of the others.

    Of correlations that are a matrix, all products; of other noise, the squares.
    """
    order, n_observed = observation.order, observation.n_observed[0]
    for i in range(sample.size):
        d = order[i]
        first = 0 if i < n_observed else n_observed
        for j in range(first if observation.is_dense else i, i + 1):
            e = order[j]
            if i < n_observed:
                product = sample[d] * sample[e]
            else:
                product = units.deviations[d] * units.deviations[e]
                if observation.is_correlated:
                    product *= missing_covariance(i, j, units, observation)
            _add_square(d, e, weight * product, observation, squares)


@inlined_sum_kernel
def _add_squares(
    w: float, observation: Observation, completed: _Completed, squares: Floats
) -> None:
    """Add the products of expectations of what is missing, on one region."""
    values, rates, spreads = completed.values, completed.rates, completed.spreads
    n_observed = observation.n_observed[0]
    for i in range(n_observed, values.size):
        d = observation.order[i]
        completed.sums[d] += w * values[d]
        for j in range(n_observed if observation.is_dense else i, i + 1):
            e = observation.order[j]
            product = values[d] * values[e]
            for s in range(rates.shape[1]):
                product += spreads[d, s] * rates[e, s]
            _add_square(d, e, w * product, observation, squares)


@inlined_sum_kernel
def _add_products(
    sample: Floats, observation: Observation, completed: _Completed, squares: Floats
) -> None:
    """Add the products of what is missing, summed over the regions, and what was observed."""
    n_observed = observation.n_observed[0]
    for i in range(n_observed, sample.size):
        d = observation.order[i]
        for j in range(n_observed):
            e = observation.order[j]
            _add_square(d, e, completed.sums[d] * sample[e], observation, squares)


@inlined_sum_kernel
def _add_square(d: int, e: int, product: float, observation: Observation, squares: Floats) -> None:
    """Add to the squares of two features, both ways around."""
    squares[d if observation.is_dense else 0, e] += product
    if d != e:
        squares[e, d] += product


@inlined_sum_kernel
def _add_missing_factors(
    weight: float, gains: Floats, units: NoiseUnits, observation: Observation, squares: Floats
) -> None:
    """Add gains times the covariance of the noise that is missing, given what was observed."""
    n_factors, first = len(gains), observation.n_observed[0]
    along = np.empty(n_factors)
    for k in range(n_factors):
        for m in range(n_factors):
            along[m] = 0.0
        for i in range(first, len(observation.order)):
            d = observation.order[i]
            for m in range(n_factors):
                along[m] += gains[k, d] * units.deviations[d] * observation.loadings[i, m]
        for m in range(n_factors):
            observation.factors[m] = 0.0
            for other in range(n_factors):
                observation.factors[m] += along[other] * observation.factor_covariance[other, m]
        for i in range(first, len(observation.order)):
            d = observation.order[i]
            product = gains[k, d] * units.deviations[d] * units.errors[d]
            for m in range(n_factors):
                product += observation.factors[m] * observation.loadings[i, m]
            squares[1 + k, d] += weight * units.deviations[d] * product


@inlined_sum_kernel
def _add_factors(w: float, gains: Floats, completed: _Completed, squares: Floats) -> None:
    """Add gains times the products of expectations, on one region."""
    values, rates, spreads = completed.values, completed.rates, completed.spreads
    for k in range(len(gains)):
        factors = completed.factors[k]  # at the mean of z, and as z moves
        for s in range(factors.size):
            factors[s] = 0.0
        for d in range(values.size):
            factors[0] += gains[k, d] * values[d]
            for s in range(rates.shape[1]):
                factors[1 + s] += gains[k, d] * rates[d, s]
        for d in range(values.size):
            product = factors[0] * values[d]
            for s in range(rates.shape[1]):
                product += factors[1 + s] * spreads[d, s]
            squares[1 + k, d] += w * product


def expect(
    visitor: Visitor | Explorer, samples: Table, sample_weights: Floats, workers: Workers
) -> SufficientStatistics:
    """Run the E-step over batches of samples (n, D), NaN where a value is missing."""

    def expect_batch(batch: Table, batch_weights: Floats) -> SufficientStatistics:
        table, weights = take_heavy(batch, batch_weights)
        is_complete: Bools = np.logical_not(np.isnan(table).any(axis=1))
        parts = []
        for chosen in (is_complete, ~is_complete):
            if chosen.any():
                some, own_weights = choose(table, weights, chosen)
                parts.append(accumulate(visitor, visitor.visit(some), some, own_weights))
        return reduce(add, parts) if parts else SufficientStatistics.none(visitor)

    return workers.sum(expect_batch, visitor.sample_bytes, samples, sample_weights)


def take_heavy(batch: Table, weights: Floats) -> tuple[Floats, Floats]:
    """Read the samples that have a weight: others may be so far out that nothing is known."""
    return choose(read(batch), read(weights), weights > 0)


def choose(samples: Floats, weights: Floats, chosen: Bools) -> tuple[Floats, Floats]:
    """Take some samples and their weights; do not copy them if these are all."""
    return (samples, weights) if chosen.all() else (samples[chosen], weights[chosen])
