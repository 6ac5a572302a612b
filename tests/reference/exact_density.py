"""Density and posterior mean in high precision, region by region: one and two latent dimensions.

Cells are lists of halfspaces, cut unit by unit; on each the posterior is a truncated Gaussian,
whose mass comes from `tests.reference.masses`.  Weights, rows and covariances count as given: they
are numbers of mpmath from the start, so that nothing here is lost to cancellation.  Latent
dimensions that the first layer does not see are left out; so three are fine behind a layer of one
or two units, and without hidden layers any number is.  Nothing of the package is on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np

from tests.reference import masses

Number = Any  # mpmath has no types
Halfspace = tuple[list[Number], Number]  # unit normal n and offset c of n.z >= c

# Singular values from 1e-12 to 1e12 are squared, and determinants are products of them.
DIGITS = 120
# Of the integrals over polygons.
TOLERANCE = 1e-16
# Regions with a share of less than exp(-45) = 3e-20 do not matter.
NEGLIGIBLE = 45


class Exact(NamedTuple):
    """What is known of one row."""

    log_density: Number
    mean: list[Number]
    precision: Any  # (S, S) inverse of the posterior covariance

    def deviations(self, mean: Any) -> float:
        """Distance of another mean, in deviations of the posterior."""
        with mp.workdps(DIGITS):
            error = mp.matrix([mp.mpf(float(x)) - y for x, y in zip(mean, self.mean, strict=True)])
            return float(mp.sqrt((error.T * self.precision * error)[0]))


class _Region(NamedTuple):
    halfspaces: list[Halfspace]
    slopes: Any  # mp.matrix (D, S)
    offsets: Any  # mp.matrix (D, 1)


@dataclass(frozen=True)
class ExactNetwork:
    """The regions of a network in coordinates z' with z = basis z', and its noise."""

    regions: list[_Region]
    basis: Any  # mp.matrix (S, S')
    covariance: Any  # mp.matrix (D, D)

    @classmethod
    def build(
        cls,
        coefs: list[Any],
        intercepts: list[Any],
        negative_slope: float,
        covariance: Any,
        variance: int = 1,
    ) -> ExactNetwork:
        """Find all regions; the covariance is a number, a vector or a matrix.

        Latent variables may have another variance than 1, but do not in what is returned.
        """
        with mp.workdps(DIGITS):
            n_features, n_components = len(coefs[-1]), np.shape(coefs[0])[1]
            noise = np.asarray(covariance, dtype=float)
            matrix = noise if noise.ndim == 2 else np.diag(np.broadcast_to(noise, (n_features,)))
            first = mp.matrix(np.asarray(coefs[0], dtype=float).tolist()) * mp.sqrt(variance)
            basis = mp.eye(n_components)
            if first.rows < n_components:
                basis = _row_space(first)
            layers = [first * basis]
            layers += [mp.matrix(np.asarray(coef, dtype=float).tolist()) for coef in coefs[1:]]
            biases = [mp.matrix(np.asarray(v, dtype=float).tolist()) for v in intercepts]
            n_hidden = len(layers) - 1
            if n_hidden > 0 and basis.cols > 2:
                raise ValueError("more than two latent dimensions that matter.")
            identity = _Region([], mp.eye(basis.cols), mp.zeros(basis.cols, 1))
            regions = [identity]
            for coef, bias in zip(layers[:-1], biases[:-1], strict=True):
                slope = mp.mpf(negative_slope)
                regions = [r for region in regions for r in _cut(region, coef, bias, slope)]
            regions = [_apply(region, layers[-1], biases[-1]) for region in regions]
            return cls(regions, basis, mp.matrix(matrix.tolist()))

    def evaluate(self, row: Any) -> Exact:
        """Integrate over latent space; NaN where a value of the row is missing."""
        with mp.workdps(DIGITS):
            values = np.asarray(row, dtype=float)
            observed = [int(d) for d in np.flatnonzero(~np.isnan(values))]
            covariance = mp.matrix(
                [[self.covariance[d, e] for e in observed] for d in observed] or 0
            )
            factor = mp.cholesky(covariance) if observed else mp.zeros(0)
            log_constant = -len(observed) * mp.log(2 * mp.pi) / 2
            log_constant -= mp.fsum(mp.log(factor[i, i]) for i in range(len(observed)))
            row_values = [mp.mpf(float(values[d])) for d in observed]
            parts = [_condition(region, observed, row_values, factor) for region in self.regions]
            parts.sort(key=lambda part: -part.bound)
            log_total, shares = -mp.inf, []
            for part in parts:
                if part.bound < log_total - NEGLIGIBLE:
                    break
                share, mean, covariance = _integrate(part)
                if share == -mp.inf:
                    continue
                shares.append((share, mean, covariance))
                largest = max(share, log_total)
                log_total = largest + mp.log1p(mp.exp(min(share, log_total) - largest))
            weights = [mp.exp(share - log_total) for share, _, _ in shares]
            dimension = self.basis.cols
            mean, spread = mp.zeros(dimension, 1), mp.zeros(dimension)
            for weight, (_, part_mean, _) in zip(weights, shares, strict=True):
                mean += weight * part_mean
            for weight, (_, part_mean, covariance) in zip(weights, shares, strict=True):
                between = part_mean - mean
                spread += weight * (covariance + between * between.T)
            # Along what the network does not see, the variance is 1.
            unseen = mp.eye(self.basis.rows) - self.basis * self.basis.T
            precision = self.basis * spread**-1 * self.basis.T + unseen
            return Exact(log_total + log_constant, list(self.basis * mean), precision)

    def snr(self) -> float:
        """Compute the largest slope or offset of all maps, in units of the noise."""
        with mp.workdps(DIGITS):
            factor = mp.cholesky(self.covariance)
            largest = mp.mpf(0)
            for region in self.regions:
                for part in (region.slopes, region.offsets):
                    largest = max(largest, mp.norm(_solve_lower(factor, part), 2))
            return float(largest)


class _Part(NamedTuple):
    """The Gaussian of one region, given a row."""

    bound: Number  # on the log share
    evidence: Number
    halfspaces: list[Halfspace]  # in whitened coordinates y = triangle (z - mean)
    mean: Any
    triangle: Any  # upper triangular, triangle' triangle is the precision


def _row_space(matrix: Any) -> Any:
    """Orthonormal basis (S, H) of the space spanned by rows (H, S)."""
    vectors: list[list[Number]] = []
    for i in range(matrix.rows):
        vector = [matrix[i, s] for s in range(matrix.cols)]
        before = mp.norm(vector)
        for _ in range(2):
            for other in vectors:
                along = mp.fdot(vector, other)
                vector = [x - along * y for x, y in zip(vector, other, strict=True)]
        length = mp.norm(vector)
        if length > mp.mpf(10) ** (20 - DIGITS) * before:
            vectors.append([x / length for x in vector])
    if not vectors:
        vectors = [[mp.mpf(int(s == 0)) for s in range(matrix.cols)]]
    return mp.matrix(vectors).T


def _apply(region: _Region, coef: Any, bias: Any) -> _Region:
    return _Region(region.halfspaces, coef * region.slopes, coef * region.offsets + bias)


def _cut(region: _Region, coef: Any, bias: Any, negative_slope: Number) -> list[_Region]:
    """Apply a layer and its activation, on every cell its units cut out."""
    dimension = region.slopes.cols
    applied = _apply(region, coef, bias)
    pieces = [(region.halfspaces, applied.slopes.copy(), applied.offsets.copy())]
    for unit in range(coef.rows):
        gradient = [applied.slopes[unit, s] for s in range(dimension)]
        value = applied.offsets[unit]
        length = mp.norm(gradient)
        finer = []
        for halfspaces, slopes, offsets in pieces:
            for sign in (1, -1):
                if length > 0:
                    side = ([sign * x / length for x in gradient], -sign * value / length)
                    cell = _shrink([*halfspaces, side], dimension)
                    if cell is None:
                        continue
                else:
                    if (value > 0) != (sign > 0):
                        continue
                    cell = halfspaces
                steeper, higher = slopes.copy(), offsets.copy()
                if sign < 0:
                    higher[unit] *= negative_slope
                    for s in range(dimension):
                        steeper[unit, s] *= negative_slope
                finer.append((cell, steeper, higher))
        pieces = finer
    return [_Region(*piece) for piece in pieces]


def _shrink(halfspaces: list[Halfspace], dimension: int) -> list[Halfspace] | None:
    """Leave out what does not bound the cell; None if nothing is left of it."""
    if dimension == 1:
        lower = max((c * n[0] for n, c in halfspaces if n[0] > 0), default=-mp.inf)
        upper = min((c * n[0] for n, c in halfspaces if n[0] < 0), default=mp.inf)
        ends = [([mp.mpf(1)], lower)] if lower > -mp.inf else []
        ends += [([mp.mpf(-1)], -upper)] if upper < mp.inf else []
        return ends if lower < upper else None
    nearest, _ = masses._nearest_point_and_vertices(halfspaces, dimension)
    if nearest is None:
        return None
    kept = []
    for i, (normal, offset) in enumerate(halfspaces):
        others = [h for j, h in enumerate(halfspaces) if j != i]
        # Is there a point of the others beyond this one?
        beyond = ([-x for x in normal], -offset)
        far, _ = masses._nearest_point_and_vertices([*others, beyond], dimension)
        if far is not None:
            kept.append((normal, offset))
    return kept


def _solve_lower(factor: Any, right: Any) -> Any:
    """Solve factor @ x = right, with a lower triangle."""
    solution = right.copy()
    for column in range(right.cols):
        for i in range(right.rows):
            rest = right[i, column]
            rest -= mp.fsum(factor[i, j] * solution[j, column] for j in range(i))
            solution[i, column] = rest / factor[i, i]
    return solution


def _condition(region: _Region, observed: list[int], values: list[Number], factor: Any) -> _Part:
    dimension = region.slopes.cols
    if observed:
        slopes = mp.matrix([[region.slopes[d, s] for s in range(dimension)] for d in observed])
        residual = mp.matrix([x - region.offsets[d] for d, x in zip(observed, values, strict=True)])
        slopes, residual = _solve_lower(factor, slopes), _solve_lower(factor, residual)
        precision = mp.eye(dimension) + slopes.T * slopes
        triangle = mp.cholesky(precision).T
        mean = mp.lu_solve(precision, slopes.T * residual)
        rest = residual - slopes * mean
        square = (rest.T * rest)[0] + (mean.T * mean)[0]
    else:
        triangle, mean, square = mp.eye(dimension), mp.zeros(dimension, 1), mp.mpf(0)
    evidence = -square / 2 - mp.fsum(mp.log(triangle[s, s]) for s in range(dimension))
    whitened = []
    for normal, offset in region.halfspaces:
        # n.z = n.mean + (triangle^-T n).y
        turned = _solve_lower(triangle.T, mp.matrix(normal))
        length = mp.norm(turned)
        along = mp.fdot(normal, list(mean))
        whitened.append(([x / length for x in turned], (offset - along) / length))
    outside = max((c for _, c in whitened), default=mp.mpf(0))
    bound = evidence - max(outside, 0) ** 2 / 2
    return _Part(bound, evidence, whitened, mean, triangle)


def _integrate(part: _Part) -> tuple[Number, Any, Any]:
    """Log share of a region, mean and covariance of z there."""
    dimension = part.mean.rows
    inverse = part.triangle**-1
    if not part.halfspaces:
        return part.evidence, part.mean, inverse * inverse.T
    moments = masses._integrate(part.halfspaces, dimension, mp.mpf(TOLERANCE))
    if moments.mass == 0:
        return -mp.inf, part.mean, inverse
    center = mp.matrix([x / moments.mass for x in moments.first])
    covariance = mp.matrix(moments.second) / moments.mass - center * center.T
    return (
        part.evidence + mp.log(moments.mass),
        part.mean + inverse * center,
        inverse * covariance * inverse.T,
    )
