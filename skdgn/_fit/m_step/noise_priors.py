"""A prior for the noise of the networks of a mixture: what one of them lacks, the others know.

A network with few samples would take their scatter for its noise, which is too small in directions
that none of them happens to leave.  So its noise is estimated as if it had some more samples, with
a covariance that is common to all networks (`Noise.pool`): an inverse Wishart prior.  How
many more, the networks themselves tell: the more alike their noise is, the more
(`estimate_weight`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from skdgn._fit.statistics import SufficientStatistics
from skdgn._noise import KINDS, Covariance, Noise, Sum
from skdgn._runtime import Floats

# The least weight that is tried.  The most is the number of features: by more, the noise would stay
# where it was when the prior was made.
_LEAST_WEIGHT = 0.03
_N_WEIGHTS = 16


@dataclass(frozen=True)
class NoisePrior:
    """An inverse Wishart prior of every network's noise: some more samples, of known covariance."""

    weight: float  # of these samples
    common: Noise  # that has it

    @classmethod
    def none(cls, floors: Floats) -> NoisePrior:
        """Return a prior that says nothing."""
        return cls(0.0, KINDS["diag"].from_variances(floors))

    @classmethod
    def pool(
        cls,
        weight: float | None,
        counts: Floats,
        covariances: Sequence[Covariance],
        n_estimated: Floats | float,
        covariance_type: str,
        floors: Floats,
    ) -> NoisePrior:
        """Return what the noises of networks with so many samples (K,) have in common.

        If the weight is None, it is the one that explains these noises best, given that so many
        parameters were estimated for each feature of a network, or (K,) of the networks.
        """
        common = KINDS[covariance_type].pool(counts, covariances, floors)
        if weight is None:
            weight = estimate_weight(counts, covariances, n_estimated, common, covariance_type)
        return cls(weight, common)

    def log_density(self, noise: Noise) -> float:
        """Log density, relative to that of these samples' own covariance."""
        if self.weight == 0.0:
            return 0.0
        excess = noise.expected_square(self.common) - noise.n_features
        excess += noise.log_determinant - self.common.log_determinant
        return float(-0.5 * self.weight * excess)

    def join(self, statistics: SufficientStatistics, noise: Noise) -> SufficientStatistics:
        """Add these samples to the statistics, taken at this noise, of which better is made."""
        return replace(
            statistics,
            squares=statistics.squares + self.weight * noise.squares_of(self.common),
            total_weight=statistics.total_weight + self.weight,
        )

    def part(self, noise: Noise, count: float, floors: Floats) -> Covariance:
        """Take these samples away again from a noise to which so many others have added."""
        return noise.without(self.common, self.weight / max(count, 1.0), floors)


def estimate_weight(
    counts: Floats,
    covariances: Sequence[Covariance],
    n_estimated: Floats | float,
    common: Covariance,
    covariance_type: str,
) -> float:
    """Return the weight of the prior that makes the covariances of samples likeliest.

    Given the prior, the scatter of a network's samples has a density in closed form, with the
    covariance integrated out: empirical Bayes.
    """
    kind = KINDS[covariance_type]
    if len(counts) < kind.fewest_to_compare:
        return 0.0  # it has nothing but its own variances to be compared with
    scatters = [Sum([count], [own]) for count, own in zip(counts, covariances, strict=True)]
    # What is left of the samples once the network has gone where they are.
    counts = np.maximum(counts - n_estimated, 0.0)
    weights = np.geomspace(_LEAST_WEIGHT, max(len(common.variances), 1.0), _N_WEIGHTS)
    evidences = [kind.log_evidence(counts, scatters, common, weight) for weight in weights]
    return float(weights[np.argmax(evidences)])
