"""Samples centered and scaled, so that any unit of measurement will do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._network import Network
from skdgn._noise import KINDS, Noise
from skdgn._runtime import (
    PASS_BYTES,
    Floats,
    Samples,
    ScaledSamples,
    Workers,
    observed_weights,
    read,
)


@dataclass(frozen=True)
class Scaling:
    """Where samples are centered, and the units in which they have unit variance."""

    center: Floats  # (D,)
    deviations: Floats  # (D,)

    @classmethod
    def of(
        cls,
        samples: Samples,
        sample_weights: Floats,
        covariance_type: str,
        workers: Workers | None = None,
        is_common: bool = False,
    ) -> Scaling:
        """Measure what was observed; spherical noise needs the same unit for all features.

        ``is_common`` gives all features the same center, too.
        """
        workers = workers or Workers()
        n_features = samples.shape[1]

        def average(power: int, center: Floats) -> Floats:
            def add_up(batch: NDArray[Any], weights: Floats) -> Floats:
                powers = np.nan_to_num((read(batch) - center) ** power)
                return (read(weights) / heaviest) @ powers

            return workers.sum(add_up, PASS_BYTES * n_features, samples, sample_weights) / totals

        # Large weights of large values would overflow.
        heaviest = sample_weights.max()
        totals = observed_weights(samples, sample_weights, workers) / heaviest
        center = average(1, np.zeros(n_features))
        # Sums of many samples are rounded: what is left of the mean is small, and its error is
        # less.
        center = center + average(1, center)
        variances = average(2, center)
        if is_common:
            variances = np.full_like(variances, variances.mean() + center.var())
            center = np.full_like(center, center.mean())
        variances = KINDS[covariance_type].units_of(variances)
        # What is constant but for rounding has no scale of its own.
        constant = variances <= (8.0 * np.finfo(float).eps * np.abs(center)) ** 2
        return cls(center, np.where(constant, 1.0, np.sqrt(variances)))

    def log_volume(
        self, samples: Samples, sample_weights: Floats, workers: Workers | None = None
    ) -> float:
        """What scaling adds to the mean log density: every observed entry counts."""
        totals = observed_weights(samples, sample_weights, workers or Workers())
        return float(totals @ np.log(self.deviations) / sample_weights.sum())

    def apply(self, samples: Samples) -> ScaledSamples:
        """Scale samples as they are read."""
        return ScaledSamples(samples, self.center, self.deviations)

    def scale(self, network: Network, noise: Noise) -> tuple[Network, Noise]:
        """Express parameters of the model for the original samples in scaled units."""
        factors = 1.0 / self.deviations
        return network.scale_features(factors, before=-self.center), noise.rescale(factors)

    def restore(self, network: Network, noise: Noise) -> tuple[Network, Noise]:
        """Express parameters found on scaled samples in the original units."""
        scaled = network.scale_features(self.deviations, after=self.center)
        return scaled, noise.rescale(self.deviations)
