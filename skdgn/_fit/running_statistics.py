"""What is kept of the samples of a stream: statistics that follow the regions as these move.

Stepwise EM (Cappe and Moulines, 2009): the statistics of a chunk of samples, taken at the current
parameters, are averaged with those of all chunks before it, which were taken at older ones and
count less and less.  Each belongs to a region, known by its activation pattern; when hidden layers
have moved, it goes to the region with the same pattern now, or with the most similar one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from skdgn._fit.statistics import SUMS, SufficientStatistics
from skdgn._network import Codes
from skdgn._noise import Noise
from skdgn._partition import find_similar
from skdgn._runtime import Floats, Integers

# A chunk has the share (its weight / that of all samples so far) ** _FORGETTING in the average.
# Any exponent in (1/2, 1] converges (Cappe and Moulines, 2009, assumption 1); 1 never forgets the
# first steps, at poor parameters.
_FORGETTING = 0.55


@dataclass(frozen=True)
class Running:
    """Statistics in the units of a stream, made to weigh as much as all its samples so far."""

    center: Floats  # (D,) and
    deviations: Floats  # (D,): the units
    floors: Floats  # (D,): smallest variances of the noise, in these units
    patterns: Codes  # (R, total hidden units)
    statistics: SufficientStatistics
    damping: float  # of the next step of the hidden layers

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Running:
        """Undo `to_state`."""
        statistics = SufficientStatistics(**{name: state[name] for name in SUMS})
        own = {field.name: state[field.name] for field in fields(cls) if field.name in state}
        return cls(**own, statistics=statistics)

    def to_state(self) -> dict[str, Any]:
        """Return arrays and numbers only: any format can store them."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        own.pop("statistics")
        return {**own, **{name: getattr(self.statistics, name) for name in SUMS}}

    def take_features(self, features: Integers, kind: type[Noise]) -> Running:
        """Return what is known of these features, in this order, for this kind of noise."""
        return replace(
            self,
            center=self.center[features],
            deviations=self.deviations[features],
            floors=self.floors[features],
            statistics=self.statistics.take_features(features, kind),
        )

    def mix(
        self, chunk: SufficientStatistics, patterns: Codes, old: float, new: float
    ) -> SufficientStatistics:
        """Add the statistics of a chunk, of the regions with these patterns, in these shares."""
        before = self.statistics
        regions = find_similar(self.patterns, patterns)

        def mix(name: str) -> Any:
            here, there = getattr(before, name), getattr(chunk, name)
            if np.ndim(here) == 0 or name == "squares":
                return old * here + new * there  # of all regions together
            mixed = new * there
            np.add.at(mixed, regions, old * here)
            return mixed

        return replace(chunk, **{name: mix(name) for name in SUMS})


def share_weights(chunk_weight: float, total: float, before: float) -> tuple[float, float]:
    """Return the factors of older statistics, of this weight before, and of those of a chunk.

    Both are to weigh ``total`` together: as much as all samples so far, the chunk included, which
    is what the statistics of the chunk were made to weigh.
    """
    new = (chunk_weight / total) ** _FORGETTING
    return (1.0 - new) * total / before, new
