"""Weighted sums of exact densities, p = sum_k w_k p_k: exact densities again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from skdgn._posterior.features import (
    NEGLIGIBLE_SHARE,
    FeatureDistributions,
    LineRegions,
    mix,
)
from skdgn._runtime import (
    MOST_SAMPLES,
    Bools,
    Floats,
    Integers,
    RandomSource,
    Workers,
    sample_batches,
)


class Density(Protocol):
    """What is asked of a fitted density: a network's, a weighted sum or a transformed one.

    NaN stands for a missing value everywhere, and is integrated out.
    """

    def widen(self, factor: float) -> Density:
        """Return the same density with the variances of all noise multiplied by a factor."""
        ...

    def blur(self, scales: Floats, weights: Floats) -> Density:
        """Average copies of itself with variances of all noise multiplied by scales (s,)."""
        ...

    def log_density(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Log density of every sample (n, D)."""
        ...

    def log_density_bounds(self, samples: NDArray[Any], workers: Workers) -> tuple[Floats, Floats]:
        """Bounds of the log density of every sample (n, D) from below and above: (n,) each."""
        ...

    def conditional_log_density(
        self, samples: NDArray[Any], features: Bools, workers: Workers
    ) -> Floats:
        """Log density of some features of every sample (n, D), given the others."""
        ...

    @property
    def distribution_bytes(self) -> float:
        """Memory that `feature_distributions` takes for a sample."""
        ...

    def feature_distributions(self, samples: Floats, features: Integers) -> FeatureDistributions:
        """Distributions of features given samples (n, D), in which these are missing."""
        ...

    @property
    def line_regions(self) -> LineRegions | None:
        """Its regions, if there is one latent dimension and noise is independent."""
        ...

    def log_probability(
        self, bounds: tuple[Floats, Floats], n_draws: int, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Log probabilities of boxes between bounds (n, D), and standard errors: (n,) each."""
        ...

    def impute(self, samples: Floats, workers: Workers) -> tuple[Floats, Floats]:
        """Replace missing values of samples (n, D) by conditional means; tell their errors."""
        ...

    def draw_missing(
        self, samples: Floats, n_draws: int, generator: RandomSource, workers: Workers
    ) -> Floats:
        """Replace missing values of samples (n, D) by independent draws: (n_draws, n, D)."""
        ...

    def draw(self, n_samples: int, generator: RandomSource) -> tuple[Floats, Integers]:
        """Draw samples (n, D), and the number of the component each comes from."""
        ...


@dataclass(frozen=True)
class WeightedSum:
    """A sum of densities with weights that add up to one; members may be sums themselves.

    All of it is done in logs.  So a sample far from every member still has a log density, and
    responsibilities that tell which member is the nearest.
    """

    weights: Floats  # (K,)
    members: Sequence[Density]

    def widen(self, factor: float) -> WeightedSum:
        """Return the sum of members whose noise has variances multiplied by a factor."""
        return WeightedSum(self.weights, [member.widen(factor) for member in self.members])

    def blur(self, scales: Floats, weights: Floats) -> WeightedSum:
        """Average copies of itself with variances of all noise multiplied by scales (s,)."""
        return WeightedSum(weights, [self.widen(scale) for scale in scales.tolist()])

    def member_log_densities(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Compute log w_k + log p_k(x) for every sample (n, D) and member: (n, K)."""
        terms = np.full((len(samples), len(self.members)), -np.inf)
        for k, member in enumerate(self.members):
            if self.weights[k] > 0.0:  # those without weight cost nothing
                terms[:, k] = np.log(self.weights[k]) + member.log_density(samples, workers)
        return terms

    def log_density(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Log density of every sample (n, D)."""
        result = np.empty(len(samples))
        for batch in self._batches(samples, workers):
            terms = self.member_log_densities(samples[batch], workers)
            result[batch] = np.logaddexp.reduce(terms, axis=1)
        return result

    def log_density_bounds(self, samples: NDArray[Any], workers: Workers) -> tuple[Floats, Floats]:
        """Bounds of the log density of every sample (n, D): the sums of the members' bounds."""
        lower, upper = np.full((2, len(samples)), -np.inf)
        for weight, member in zip(self.weights, self.members, strict=True):
            if weight > 0.0:
                below, above = member.log_density_bounds(samples, workers)
                lower = np.logaddexp(lower, np.log(weight) + below)
                upper = np.logaddexp(upper, np.log(weight) + above)
        return lower, upper

    def responsibilities(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Posterior probability of each member, given every sample (n, D): (n, K).

        NaN where the log density is -inf: nothing is known of such a sample.
        """
        result = np.empty((len(samples), len(self.members)))
        for batch in self._batches(samples, workers):
            result[batch] = normalize_logs(self.member_log_densities(samples[batch], workers))
        return result

    def conditional_log_density(
        self, samples: NDArray[Any], features: Bools, workers: Workers
    ) -> Floats:
        """Log density of some features of every sample (n, D), given the others."""
        result = np.empty(len(samples))
        for batch in self._batches(samples, workers):
            condition = np.where(features, np.nan, samples[batch])
            joint = self.log_density(samples[batch], workers)
            # Where both are -inf, nothing is known.
            with np.errstate(invalid="ignore"):
                result[batch] = joint - self.log_density(condition, workers)
        return result

    @property
    def distribution_bytes(self) -> float:
        """Memory that `feature_distributions` takes for a sample: members' are kept together."""
        return sum(member.distribution_bytes for member in self.members)

    def feature_distributions(self, samples: Floats, features: Integers) -> FeatureDistributions:
        """Distributions of features given samples (n, D), in which these are missing."""
        parts = [member.feature_distributions(samples, features) for member in self.members]
        return mix(parts, self.weights)

    @property
    def line_regions(self) -> LineRegions | None:
        """The regions of all members, if each has one latent dimension and independent noise."""
        parts = [member.line_regions for member in self.members]
        known = [part for part in parts if part is not None]
        return LineRegions.join(self.weights, known) if len(known) == len(parts) else None

    def log_probability(
        self, bounds: tuple[Floats, Floats], n_draws: int, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Log probabilities of boxes between bounds (n, D), and standard errors: (n,) each."""
        heavy = np.flatnonzero(self.weights > 0.0)
        parts = [self.members[int(k)].log_probability(bounds, n_draws, generator) for k in heavy]
        logs = np.stack([log for log, _ in parts], axis=1) + np.log(self.weights[heavy])
        errors = np.stack([error for _, error in parts], axis=1)
        shares = np.nan_to_num(normalize_logs(logs))
        error = np.sqrt(((shares * errors) ** 2).sum(axis=1))
        # Weights add up to one but for rounding.
        return np.minimum(np.logaddexp.reduce(logs, axis=1), 0.0), error

    def impute(self, samples: Floats, workers: Workers) -> tuple[Floats, Floats]:
        """Replace missing values of samples (n, D) by conditional means; tell their errors."""
        shares = self.responsibilities(samples, workers)
        means, squares = np.zeros(samples.shape), np.zeros(samples.shape)
        for k, member in enumerate(self.members):
            # NaN, where nothing is known, goes on to the result.
            used = np.flatnonzero(~(shares[:, k] < NEGLIGIBLE_SHARE))
            if used.size > 0:
                filled, errors = member.impute(samples[used], workers)
                means[used] += shares[used, k, None] * filled
                squares[used] += (shares[used, k, None] * errors) ** 2
        return np.where(np.isnan(samples), means, samples), np.sqrt(squares)

    def draw_missing(
        self, samples: Floats, n_draws: int, generator: RandomSource, workers: Workers
    ) -> Floats:
        """Replace missing values of samples (n, D) by independent draws: (n_draws, n, D).

        A member is drawn by its responsibility, given what was observed; then what is missing,
        from that member.
        """
        tables = np.empty((n_draws, *samples.shape))
        shares = self.responsibilities(samples, workers)
        chosen = np.stack([draw_labels(shares, generator) for _ in range(n_draws)])
        for k, member in enumerate(self.members):
            is_chosen = chosen == k  # (n_draws, n)
            most = int(is_chosen.sum(axis=0).max(initial=0))
            if most == 0:
                continue
            used = np.flatnonzero(is_chosen.any(axis=0))
            filled = member.draw_missing(samples[used], most, generator, workers)
            # The first draw that wants this member takes the first of its tables, and so on.
            turns = np.cumsum(is_chosen[:, used], axis=0) - 1
            draws, places = np.nonzero(is_chosen[:, used])
            tables[draws, used[places]] = filled[turns[draws, places], places]
        return tables

    def draw(self, n_samples: int, generator: RandomSource) -> tuple[Floats, Integers]:
        """Draw samples (n, D), and the member each comes from."""
        shares = np.broadcast_to(self.weights, (n_samples, len(self.weights)))
        labels = draw_labels(shares, generator)
        counts = np.bincount(labels, minlength=len(self.members))
        drawn = np.concatenate(
            [
                member.draw(int(count), generator)[0]
                for member, count in zip(self.members, counts, strict=True)
                if count > 0
            ]
        )
        samples = np.empty_like(drawn)
        samples[np.argsort(labels, kind="stable")] = drawn
        return samples, labels

    def _batches(self, samples: NDArray[Any], workers: Workers) -> Iterator[slice]:
        """Cut tables that do not fit; small batches would leave nothing to share among workers."""
        sample_bytes = 8.0 * (2 * samples.shape[1] + 4 * len(self.members))
        return sample_batches(len(samples), max(MOST_SAMPLES, int(workers.memory / sample_bytes)))


def normalize_logs(terms: Floats) -> Floats:
    """Turn logs of weights (n, K) into weights that add up to one; NaN where all are -inf."""
    with np.errstate(invalid="ignore"):
        shares = np.exp(terms - terms.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def draw_labels(shares: Floats, generator: RandomSource) -> Integers:
    """Draw a number below K for every sample, by its probabilities (n, K): (n,)."""
    cumulative = np.cumsum(shares, axis=1)
    levels = generator.uniform(size=len(shares)) * cumulative[:, -1]
    return (cumulative <= levels[:, None]).sum(axis=1, dtype=np.intp)
