"""Random models whose density is known in high precision, however far they go.

A model of S latent dimensions is put together from networks of one or two, which act on different
latent coordinates and have features of their own: log densities add up (`exact_density` has those
of the parts).  The coordinates are turned by a matrix of small integers, and the first layer's
weights are short binary fractions: nothing is rounded when the parts are put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mpmath as mp
import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from skdgn import PiecewiseAffineDGN
from tests.reference.exact_density import ExactNetwork

Floats = NDArray[np.float64]

# Orthogonal but for their scale.
TURNS = {
    1: np.array([[1.0]]),
    2: np.array([[1.0, 1.0], [1.0, -1.0]]),
    3: np.array([[2.0, -1.0, 2.0], [2.0, 2.0, -1.0], [-1.0, 2.0, 2.0]]),
}
# Bits of the first layer's weights.
BITS = 26
NEGATIVE_SLOPES = {"relu": 0.0, "leaky_relu": 0.1, "abs": -1.0}
# Widths of hidden layers, by their number: what high precision can bear in one and two dimensions.
MOST_UNITS = {1: (1, 64, 12, 6, 5), 2: (1, 4, 2, 2, 1)}
# Beyond, not one digit could be expected.
LARGEST_SNR = 1e12
CONDITION = 1e12


@dataclass(frozen=True)
class Part:
    """A network of one or two latent dimensions, and the noise of its features."""

    coefs: list[Floats]
    intercepts: list[Floats]
    covariance: Floats  # (D, D)


@dataclass(frozen=True)
class Case:
    """A model made of parts, and rows to try it on."""

    parts: list[Part]
    activation: str
    rows: Floats  # (n, D), NaN where a value is missing

    @property
    def n_components(self) -> int:
        return sum(part.coefs[0].shape[1] for part in self.parts)

    @property
    def negative_slope(self) -> float:
        return NEGATIVE_SLOPES[self.activation]

    @cached_property
    def coefs(self) -> list[Floats]:
        """Return the weights of the whole."""
        layers = zip(*(part.coefs for part in self.parts), strict=True)
        first, *others = (scipy.linalg.block_diag(*blocks) for blocks in layers)
        return [first @ TURNS[self.n_components], *others]

    @cached_property
    def intercepts(self) -> list[Floats]:
        layers = zip(*(part.intercepts for part in self.parts), strict=True)
        return [np.concatenate(vectors) for vectors in layers]

    @cached_property
    def covariance(self) -> Floats:
        return np.asarray(scipy.linalg.block_diag(*(part.covariance for part in self.parts)))

    @cached_property
    def _exact(self) -> list[ExactNetwork]:
        variance = int(TURNS[self.n_components][0] @ TURNS[self.n_components][0])
        return [
            ExactNetwork.build(
                part.coefs, part.intercepts, self.negative_slope, part.covariance, variance
            )
            for part in self.parts
        ]

    def model(self) -> PiecewiseAffineDGN:
        """Make an estimator of the whole."""
        slope = {"negative_slope": self.negative_slope} if self.activation == "leaky_relu" else {}
        return PiecewiseAffineDGN.from_network(
            self.coefs, self.intercepts, self.covariance, activation=self.activation, **slope
        )

    def log_density(self, row: Floats) -> Any:
        """Log density of a row, in high precision."""
        ends = np.cumsum([len(part.covariance) for part in self.parts])[:-1]
        pairs = zip(self._exact, np.split(row, ends), strict=True)
        with mp.workdps(50):
            return mp.fsum(exact.evaluate(values).log_density for exact, values in pairs)

    def largest_error(self) -> float:
        """Largest error of the rows' log densities, relative where these exceed 1."""
        errors = []
        for row, found in zip(self.rows, self.model().score_samples(self.rows), strict=True):
            exact = self.log_density(row)
            with mp.workdps(50):
                errors.append(float(abs(mp.mpf(float(found)) - exact) / max(1, abs(exact))))
        return max(errors)

    @cached_property
    def difficulty(self) -> float:
        """Return what multiplies rounding errors: the SNR or the condition of the correlations.

        The SNR is the largest slope or offset of the network, in units of the noise.
        """
        deviations = np.sqrt(np.diagonal(self.covariance))
        correlations = self.covariance / np.outer(deviations, deviations)
        condition = float(np.linalg.cond(correlations))
        snr = max(exact.snr() for exact in self._exact)
        return max(1.0, snr, condition if condition > 2.0 else 1.0)


def draw_case(rng: np.random.Generator, n_components: int, n_rows: int, planes: bool) -> Case:
    """Draw a model and rows; with planes, two of its dimensions are not independent."""
    sizes = [2] + [1] * (n_components - 2) if planes else [1] * n_components
    n_hidden = int(rng.integers(5))
    activation = str(rng.choice(list(NEGATIVE_SLOPES)))
    kind = str(rng.choice(["spherical", "diag", "full"]))
    while True:
        scales = 10.0 ** rng.uniform(-6.0, 6.0, n_hidden + 1)
        deviation = 10.0 ** rng.uniform(-8.0, 4.0)
        if 1e-2 < scales.prod() / deviation < 0.01 * LARGEST_SNR:
            break
    parts = [
        _draw_part(rng, size, n_hidden, scales, deviation, kind, int(rng.integers(1, 4)))
        for size in sizes
    ]
    case = Case(parts, activation, np.empty((0, 0)))
    return Case(parts, activation, _draw_rows(rng, case, n_rows))


def _draw_part(
    rng: np.random.Generator,
    n_components: int,
    n_hidden: int,
    scales: Floats,
    deviation: float,
    kind: str,
    n_features: int,
) -> Part:
    most = MOST_UNITS[n_components][n_hidden]
    # Few units as often as many.
    widths = np.exp(rng.uniform(0.0, np.log(most + 1), n_hidden)).astype(int)
    widths = [n_components, *np.clip(widths, 1, most), n_features]
    coefs, intercepts = [], []
    size = 1.0
    for layer, scale in enumerate(scales):
        coef = scale * rng.normal(size=(widths[layer + 1], widths[layer]))
        if layer == 0:
            grid = 2.0 ** (np.floor(np.log2(np.abs(coef).max())) - BITS)
            coef = grid * np.round(coef / grid)
        size *= scale
        coefs.append(coef)
        intercepts.append(size * rng.normal(size=widths[layer + 1]))
    variances = np.full(n_features, deviation**2)
    if kind == "diag":
        variances = variances * 10.0 ** rng.uniform(-1.0, 1.0, n_features)
    covariance = np.diag(variances)
    if kind == "full" and n_features > 1:
        turn = np.linalg.qr(rng.normal(size=(n_features, n_features)))[0]
        values = deviation**2 * np.geomspace(1.0, 1.0 / CONDITION, n_features)
        covariance = (turn * values) @ turn.T
        covariance = 0.5 * (covariance + covariance.T)
    return Part(coefs, intercepts, covariance)


def _draw_rows(rng: np.random.Generator, case: Case, n_rows: int) -> Floats:
    values = rng.normal(size=(n_rows, case.n_components))
    slope = case.negative_slope
    for layer, (coef, intercept) in enumerate(zip(case.coefs, case.intercepts, strict=True)):
        values = values @ coef.T + intercept
        if layer + 1 < len(case.coefs):
            values = np.where(values > 0.0, values, slope * values)
    noise = rng.normal(size=values.shape)
    directions = rng.normal(size=values.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    distances = np.where(rng.random(n_rows) < 0.5, 0.0, 10.0 ** rng.uniform(0.0, 4.0, n_rows))
    noise += distances[:, None] * directions
    rows = values + noise @ np.linalg.cholesky(case.covariance).T
    missing = (rng.random(rows.shape) < 0.3) & (rng.random(n_rows) < 0.5)[:, None]
    return np.where(missing, np.nan, rows)
