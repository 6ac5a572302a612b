"""Strictly increasing functions of single features, each onto all real numbers.

A density of transformed features, ``y = T(x)``, is one of the features themselves,

    p(x) = p_Y(T(x)) prod_j T_j'(x_j),

and integrates to one because every T_j reaches every real number.  A value outside of the interval
on which T_j is defined has density zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import expit, log_ndtr, logit, ndtri_exp

from skdgn._runtime import LOG_SQRT_2PI, Bools, Floats, Integers

_Function = Callable[[Floats], Floats]

# Bounds of a root are halved at every step, or better: to the last digits.
_MOST_STEPS = 100
_ROUNDING = 1e-15


class ColumnMap(Protocol):
    """What is asked of a function of one feature; arguments and results have shape (n,)."""

    @property
    def n_parameters(self) -> int:
        """Number of parameters that a density of any location and scale does not have."""
        ...

    @property
    def domain(self) -> tuple[float, float]:
        """The open interval on which it is defined."""
        ...

    def forward(self, values: Floats) -> Floats:
        """T(x)."""
        ...

    def backward(self, transformed: Floats) -> Floats:
        """The x with T(x) = y."""
        ...

    def log_slope(self, values: Floats) -> Floats:
        """Log of T'(x)."""
        ...


@dataclass(frozen=True)
class Line:
    """``T(x) = (x - offset) / scale`` with a positive scale."""

    offset: float
    scale: float
    n_parameters = 0
    domain = (-math.inf, math.inf)

    def forward(self, values: Floats) -> Floats:
        """T(x)."""
        with np.errstate(over="ignore"):  # infinity, which is too far out for all models
            return (values - self.offset) / self.scale

    def backward(self, transformed: Floats) -> Floats:
        """The x with T(x) = y."""
        return transformed * self.scale + self.offset

    def log_slope(self, values: Floats) -> Floats:
        """Log of T'(x)."""
        return np.full(values.shape, -math.log(self.scale))


@dataclass(frozen=True)
class YeoJohnson:
    """Yeo and Johnson's power transformation, with an exponent between 0 and 2.

    Beyond these, it does not reach every number.
    """

    exponent: float
    n_parameters = 1
    domain = (-math.inf, math.inf)

    def forward(self, values: Floats) -> Floats:
        """T(x)."""
        logs, exponents = np.log1p(np.abs(values)), self._exponents(values)
        divisors = np.where(exponents == 0.0, 1.0, exponents)
        with np.errstate(over="ignore"):  # infinity, which is too far out for all models
            powers = np.expm1(exponents * logs) / divisors
        return np.copysign(np.where(exponents == 0.0, logs, powers), values)

    def backward(self, transformed: Floats) -> Floats:
        """The x with T(x) = y."""
        sizes, exponents = np.abs(transformed), self._exponents(transformed)
        divisors = np.where(exponents == 0.0, 1.0, exponents)
        logs = np.where(exponents == 0.0, sizes, np.log1p(exponents * sizes) / divisors)
        with np.errstate(over="ignore"):
            return np.copysign(np.expm1(logs), transformed)

    def _exponents(self, values: Floats) -> Floats:
        """Return the exponent for positive values, and that for negative ones."""
        return np.where(values >= 0.0, self.exponent, 2.0 - self.exponent)

    def log_slope(self, values: Floats) -> Floats:
        """Log of T'(x)."""
        return (self.exponent - 1.0) * np.sign(values) * np.log1p(np.abs(values))


@dataclass(frozen=True)
class NormalScores:
    """The normal quantile of a Gaussian mixture's distribution function: a mixture made Gaussian.

    Both tails are computed in logs, so that no value is too far out.
    """

    weights: Floats  # (K,)
    means: Floats  # (K,)
    deviations: Floats  # (K,)
    domain = (-math.inf, math.inf)

    @property
    def n_parameters(self) -> int:
        """Number of parameters that a density of any location and scale does not have."""
        return 3 * len(self.weights) - 3

    def forward(self, values: Floats) -> Floats:
        """T(x)."""
        below, above = self._log_tails(values)
        return np.where(below < above, ndtri_exp(below), -ndtri_exp(above))

    def backward(self, transformed: Floats) -> Floats:
        """The x with T(x) = y, by Newton's steps that stay between the bounds of a root."""
        # T(x) is between the scores of x under the single Gaussians.
        scores = self.means + self.deviations * transformed[:, None]
        low, high = scores.min(axis=1), scores.max(axis=1)
        found = 0.5 * (low + high)
        for _ in range(_MOST_STEPS):
            scores = self.forward(found)
            excess = scores - transformed
            low, high = np.where(excess < 0.0, found, low), np.where(excess < 0.0, high, found)
            # Between values far apart the slope is next to zero: bounds are halved there.
            with np.errstate(over="ignore", invalid="ignore"):
                new = found - excess * np.exp(-self._log_slope(found, scores))
            new = np.where((low <= new) & (new <= high), new, 0.5 * (low + high))
            is_done = np.abs(excess) <= _ROUNDING * np.maximum(np.abs(transformed), 1.0)
            found = new
            if np.all(is_done | ~np.isfinite(transformed)):
                break
        return found

    def log_slope(self, values: Floats) -> Floats:
        """Log of T'(x)."""
        return self._log_slope(values, self.forward(values))

    def _log_slope(self, values: Floats, transformed: Floats) -> Floats:
        log_density = np.logaddexp.reduce(self.log_terms(values), axis=1)
        return log_density + 0.5 * transformed**2 + LOG_SQRT_2PI

    def log_terms(self, values: Floats) -> Floats:
        """Log densities of the single Gaussians, weighted: (n, K)."""
        log_factors = np.log(self.weights / self.deviations) - LOG_SQRT_2PI
        return np.asarray(log_factors - 0.5 * self._scores(values) ** 2)

    def _scores(self, values: Floats) -> Floats:
        return np.asarray((values[..., None] - self.means) / self.deviations)

    def _log_tails(self, values: Floats) -> tuple[Floats, Floats]:
        """Log probabilities of less and of more than values."""
        scores, log_weights = self._scores(values), np.log(self.weights)
        return (
            np.logaddexp.reduce(log_weights + log_ndtr(scores), axis=-1),
            np.logaddexp.reduce(log_weights + log_ndtr(-scores), axis=-1),
        )


@dataclass(frozen=True)
class StraightTails:
    """A function that goes on as a line beyond some values, with the slope that it has there.

    What was fitted to values knows nothing far from them, and its inverse may grow as fast as an
    exponential function does.
    """

    function: ColumnMap
    low: float
    high: float
    domain = (-math.inf, math.inf)

    @property
    def n_parameters(self) -> int:
        """Number of parameters that a density of any location and scale does not have."""
        return self.function.n_parameters

    def forward(self, values: Floats) -> Floats:
        """T(x)."""
        near = np.clip(values, self.low, self.high)
        beyond = values - near
        with np.errstate(over="ignore"):  # infinity, which is too far out for all models
            return self.function.forward(near) + self._slopes(beyond) * beyond

    def backward(self, transformed: Floats) -> Floats:
        """The x with T(x) = y."""
        near = np.clip(transformed, *self._ends[0])
        values = np.clip(self.function.backward(near), self.low, self.high)
        beyond = transformed - near
        return values + beyond / self._slopes(beyond)

    def log_slope(self, values: Floats) -> Floats:
        """Log of T'(x)."""
        return self.function.log_slope(np.clip(values, self.low, self.high))

    @cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        """The function at both ends, and its slopes."""
        ends = np.array([self.low, self.high])
        return self.function.forward(ends), np.exp(self.function.log_slope(ends))

    def _slopes(self, beyond: Floats) -> Floats:
        """Slopes of the line below, and of that above."""
        below, above = self._ends[1]
        return np.where(beyond < 0.0, below, above)


_POSITIVE = (0.0, math.inf)
# Functions that people apply to skewed columns: domain, function, inverse and log slope.
_FUNCTIONS: dict[str, tuple[tuple[float, float], _Function, _Function, _Function]] = {
    "log": (_POSITIVE, np.log, np.exp, lambda x: -np.log(x)),
    "log2": (_POSITIVE, np.log2, np.exp2, lambda x: -np.log(x * math.log(2.0))),
    "log10": (
        _POSITIVE,
        np.log10,
        lambda y: np.power(10.0, y),
        lambda x: -np.log(x * math.log(10.0)),
    ),
    "log1p": ((-1.0, math.inf), np.log1p, np.expm1, lambda x: -np.log1p(x)),
    "arcsinh": (
        (-math.inf, math.inf),
        np.arcsinh,
        np.sinh,
        lambda x: -np.log(np.hypot(1.0, x)),
    ),
    "logit": ((0.0, 1.0), logit, expit, lambda x: -np.log(x) - np.log1p(-x)),
}
NAMED_FUNCTIONS = tuple(sorted(_FUNCTIONS))


@dataclass(frozen=True)
class NamedFunction:
    """One of `NAMED_FUNCTIONS`."""

    name: str
    n_parameters = 0

    @property
    def domain(self) -> tuple[float, float]:
        """The open interval on which it is defined."""
        return _FUNCTIONS[self.name][0]

    def forward(self, values: Floats) -> Floats:
        """T(x)."""
        return _FUNCTIONS[self.name][1](values)

    def backward(self, transformed: Floats) -> Floats:
        """The x with T(x) = y."""
        return _FUNCTIONS[self.name][2](transformed)

    def log_slope(self, values: Floats) -> Floats:
        """Log of T'(x)."""
        return _FUNCTIONS[self.name][3](values)


@dataclass(frozen=True)
class ColumnMaps:
    """Functions of all features: a chain for each, applied one after the other."""

    chains: Sequence[tuple[ColumnMap, ...]]

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all functions."""
        return sum(step.n_parameters for chain in self.chains for step in chain)

    def take(self, features: Integers) -> ColumnMaps:
        """Return the functions of some features."""
        return ColumnMaps([self.chains[int(feature)] for feature in features])

    def forward(self, values: Floats) -> tuple[Floats, Floats, Bools]:
        """Transform values (n, D), NaN where one is missing.

        Returns them, the logs of the slopes, zero where a value is missing, and which values are
        not in the domain: these are missing from the result.
        """
        transformed, log_slopes = np.full(values.shape, np.nan), np.zeros(values.shape)
        outside = np.zeros(values.shape, dtype=bool)
        for j, chain in enumerate(self.chains):
            seen = np.flatnonzero(~np.isnan(values[:, j]))
            column = np.asarray(values[seen, j], dtype=np.float64)
            for step in chain:
                low, high = step.domain
                inside = (column > low) & (column < high)
                outside[seen[~inside], j] = True
                seen, column = seen[inside], column[inside]
                log_slopes[seen, j] += step.log_slope(column)
                column = step.forward(column)
            transformed[seen, j] = column
        log_slopes[outside] = 0.0
        return transformed, log_slopes, outside

    def limits(self, bounds: Floats) -> Floats:
        """Transform bounds (n, D), which may be infinite or beyond the domain."""
        transformed, _, outside = self.forward(np.where(np.isinf(bounds), np.nan, bounds))
        beyond = np.where(bounds > self._middles, np.inf, -np.inf)
        return np.where(outside | np.isinf(bounds), beyond, transformed)

    def backward(self, transformed: Floats) -> Floats:
        """Undo the transformation of values (..., D); NaN stays NaN."""
        values = np.empty(transformed.shape)
        for j, chain in enumerate(self.chains):
            column = transformed[..., j].reshape(-1)
            for step in reversed(chain):
                column = step.backward(column)
            values[..., j] = column.reshape(transformed.shape[:-1])
        return values

    @cached_property
    def _middles(self) -> Floats:
        """A point of each feature's domain."""
        return self.backward(np.zeros(len(self.chains)))
