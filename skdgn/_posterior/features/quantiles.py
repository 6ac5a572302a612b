"""Quantiles: where distribution functions reach a share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from skdgn._runtime import Floats

# Brackets of quantiles are halved or better at every step; they are closed long before.
_MOST_STEPS = 200
# A quantile is found when its bracket is so narrow, in standard deviations.
_QUANTILE_TOLERANCE = 1e-13


class _Distributions(Protocol):
    """What has to be known of distributions of n samples and k features."""

    def bracket(self, share: float | Floats) -> tuple[Floats, Floats]:
        """Values (n, k) between which lies the quantile of a share."""

    def cdf(self, values: Floats) -> Floats:
        """Probabilities of at most these values (n, k): (n, k)."""


def find_quantiles(distributions: _Distributions, share: float | Floats) -> Floats:
    """Find the values (n, k) where distribution functions reach a share, or one of each feature."""
    low, high = distributions.bracket(share)
    # The standard deviation, if the bracket is Cantelli's.
    deviation = np.sqrt(share * (1.0 - share)) * (high - low)
    return find_roots(
        lambda values: distributions.cdf(values) - share,
        low,
        high,
        _QUANTILE_TOLERANCE * deviation,
        _QUANTILE_TOLERANCE,
    )


def find_roots(
    function: Callable[[Floats], Floats],
    low: Floats,
    high: Floats,
    tolerance: Floats,
    relative_tolerance: float = 0.0,
) -> Floats:
    """Find a root between each two values at which a function has different signs.

    Chandrupatla's method: inverse quadratic interpolation where that is safe, bisection where it is
    not.
    """
    newest, other, f_newest, f_other = low, high, function(low), function(high)
    step = np.full_like(low, 0.5)
    for _ in range(_MOST_STEPS):
        trial = newest + step * (other - newest)
        f_trial = function(trial)
        same = np.sign(f_trial) == np.sign(f_newest)
        last, f_last = np.where(same, newest, other), np.where(same, f_newest, f_other)
        other, f_other = np.where(same, other, newest), np.where(same, f_other, f_newest)
        newest, f_newest = trial, f_trial
        nearer = np.abs(f_newest) < np.abs(f_other)
        best = np.where(nearer, newest, other)
        tolerances = tolerance + relative_tolerance * np.abs(best)
        width = np.abs(other - newest)
        # A bracket without a width, where there is no root to be found, ends as NaN.
        if np.all(~(width > 2.0 * tolerances) | (f_newest == 0.0) | (f_other == 0.0)):
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            shrink = np.minimum(0.5, tolerances / width)
            xi = (newest - other) / (last - other)
            phi = (f_newest - f_other) / (f_last - f_other)
            interpolated = f_newest / (f_other - f_newest) * f_last / (f_other - f_last) + (
                last - newest
            ) / (other - newest) * f_newest / (f_last - f_newest) * f_other / (f_last - f_other)
            safe = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
        step = np.clip(np.where(safe, interpolated, 0.5), shrink, 1.0 - shrink)
    return best
