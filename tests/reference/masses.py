"""Mass and moments of the standard Gaussian over convex cells, by slicing, in high precision.

A cell is where ``normals @ y >= offsets``, as everywhere in the package.  An interval has a closed
form.  A cell of more dimensions is cut into slices, parallel hyperplane by hyperplane, from the
point nearest to the origin outwards; each slice is a cell of one dimension less:

    int_cell y^p phi = int phi(s) (int_slice(s) y^p phi) ds

The integral over s is taken by Gauss-Legendre panels between the places where a vertex lies on the
slice (the integrand is analytic in between), halved until halving makes no difference.  All terms
of the mass are positive and exponents of mpmath numbers have no bounds, so accuracy is *relative*,
however thin or far away the cell is.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
from numpy.typing import ArrayLike, NDArray

Number = Any  # mpmath has no types
Row = tuple[list[Number], Number]  # unit normal and offset of a halfspace

# Working precision; it must leave room for thin cells, whose width is a difference of offsets.
DIGITS = 50

# More digits than any computation here works with.
with mp.workdps(300):
    SQRT_HALF = mp.sqrt(0.5)
    DENSITY_AT_ZERO = 1 / mp.sqrt(2 * mp.pi)

# Two points closer than this are the same, relative to 1 + their distance from the origin.
SAME = 1e-30

# The integral over s stops where the density has fallen by exp(-CUTOFF): by 1e-60, which leaves 35
# digits for slices to be wider there than at the nearest point.
CUTOFF = 138

# Slope at which the edge of a slice moves too fast for panels of the usual size.
STEEP = 10

# Nodes of a panel, and one more for every two digits wanted, then half as many again to check.
FEWEST_NODES = 4
MOST_HALVINGS = 300


class Moments(NamedTuple):
    """Unnormalized moments, as mpmath numbers: int phi, int y phi, int y y' phi."""

    mass: Number
    first: list[Number]
    second: list[list[Number]]

    def log_mass(self) -> float:
        return float(mp.log(self.mass)) if self.mass > 0 else -np.inf

    def mean(self) -> NDArray[np.float64]:
        """Mean of the truncated Gaussian."""
        return np.array([float(x / self.mass) for x in self.first])

    def covariance(self) -> NDArray[np.float64]:
        """Covariance of the truncated Gaussian."""
        with mp.workdps(DIGITS):
            mean = [x / self.mass for x in self.first]
            return np.array(
                [
                    [float(x / self.mass - mean[i] * mean[j]) for j, x in enumerate(row)]
                    for i, row in enumerate(self.second)
                ]
            )

    def to_floats(self) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        first = np.array([float(x) for x in self.first])
        second = np.array([[float(x) for x in row] for row in self.second])
        return float(self.mass), first, second


def interval(lower: float, upper: float) -> Moments:
    """Integrate over ``lower <= y <= upper``; the ends may be infinite."""
    with mp.workdps(DIGITS):
        return _interval(mp.mpf(lower), mp.mpf(upper))


def polygon(normals: ArrayLike, offsets: ArrayLike, tolerance: float = 1e-22) -> Moments:
    """Integrate over a convex polygon, bounded or not (a tenth of a second to seconds)."""
    return cell(np.reshape(normals, (-1, 2)), offsets, tolerance)


def polyhedron(normals: ArrayLike, offsets: ArrayLike, tolerance: float = 1e-8) -> Moments:
    """Integrate over a convex polyhedron, bounded or not (seconds to minutes)."""
    return cell(np.reshape(normals, (-1, 3)), offsets, tolerance)


def cell(normals: ArrayLike, offsets: ArrayLike, tolerance: float) -> Moments:
    """Integrate over a convex cell of any dimension, to a relative tolerance.

    Parameters
    ----------
    normals : array-like of shape (k, S)
        Inward normals, none of them zero.
    offsets : array-like of shape (k,)
    tolerance : float
        Panels are halved until that changes the mass by less than this share of it.  The error
        left is then mostly smaller than a thousandth of that.
    """
    normals = np.asarray(normals, dtype=float)
    with mp.workdps(DIGITS):
        rows = []
        for normal, offset in zip(normals.tolist(), np.ravel(offsets).tolist(), strict=True):
            length = mp.norm(normal)
            rows.append(([x / length for x in normal], offset / length))
        return _integrate(rows, normals.shape[1], mp.mpf(tolerance))


def _interval(a: Number, b: Number) -> Moments:
    if not a < b:
        return _nothing(1)
    # Differences of nearly equal numbers: the second moment of an interval of width w around 0 is
    # of order w^3.  (mag is the exponent of 2.)
    width = b - a
    lost = 3 * max(0, -mp.mag(width)) if mp.isfinite(width) else 0
    with mp.extraprec(lost + 20):
        left, right = a * SQRT_HALF, b * SQRT_HALF
        if a >= 0:
            mass = (mp.erfc(left) - mp.erfc(right)) / 2
        elif b <= 0:
            mass = (mp.erfc(-right) - mp.erfc(-left)) / 2
        else:
            mass = (mp.erf(right) - mp.erf(left)) / 2
        density_a, density_b = _density(a), _density(b)
        second = mass
        second += a * density_a if mp.isfinite(a) else 0
        second -= b * density_b if mp.isfinite(b) else 0
        return Moments(mass, [density_a - density_b], [[second]])


def _integrate(rows: Sequence[Row], dimension: int, tolerance: Number) -> Moments:
    if dimension == 1:
        # No normal is zero: hyperplanes parallel to the slices are left out of them.
        lower = max((c * n[0] for n, c in rows if n[0] > 0), default=-mp.inf)
        upper = min((c * n[0] for n, c in rows if n[0] < 0), default=mp.inf)
        return _interval(lower, upper)
    nearest, vertices = _nearest_point_and_vertices(rows, dimension)
    if nearest is None:
        return _nothing(dimension)
    distance = mp.norm(nearest)
    if distance > 0:
        start, direction = distance, [x / distance for x in nearest]
    else:
        start, direction = -mp.inf, rows[0][0] if rows else _unit_vector(0, dimension)
    basis = _basis(direction)

    # The halfspaces in a slice: normal, offset at s = 0 and slope, both over the normal's length.
    sliced, parallel = [], []
    for normal, offset in rows:
        along, *across = (_dot(normal, b) for b in basis)
        length = mp.norm(across)
        if length > SAME:
            sliced.append(([x / length for x in across], offset / length, along / length))
        else:
            parallel.append((along, offset))

    def slice_at(s: Number) -> Moments:
        """Integrate over the slice at s, moments about the nearest point."""
        if any(along * s < offset for along, offset in parallel):
            return _nothing(dimension)
        shifted = [(normal, offset - slope * s) for normal, offset, slope in sliced]
        inner = _integrate(shifted, dimension - 1, tolerance / 10)
        density = _density(s)
        depth = s - distance
        mass = density * inner.mass
        across = [density * x for x in inner.first]
        first = [depth * mass, *across]
        second = [[depth * x for x in first]]
        for x, row in zip(across, inner.second, strict=True):
            second.append([depth * x, *(density * y for y in row)])
        return Moments(mass, first, second)

    reach = mp.sqrt(distance**2 + 2 * CUTOFF)
    places = {start, -reach, reach, *(_dot(v, direction) for v in vertices)}
    places |= {offset / along for along, offset in parallel}
    # A plane nearly parallel to the slices passes through one in no time.
    width = mp.sqrt(2 * CUTOFF)
    for _, offset, slope in sliced:
        if abs(slope) > STEEP:
            places |= {(offset + t) / slope for t in (-width, 0, width)}
    places = sorted(s for s in places if max(start, -reach) <= s <= reach)
    # A vertex found twice is at two places, by a rounding error.
    places = [s for s, t in itertools.pairwise([*places, mp.inf]) if t - s > SAME * (1 + abs(s))]
    return _turn(_quadrature(slice_at, places, tolerance), basis, nearest)


def _nearest_point_and_vertices(
    rows: Sequence[Row], dimension: int
) -> tuple[list[Number] | None, list[list[Number]]]:
    """Try the points nearest to the origin of all intersections of up to `dimension` planes."""
    found = []
    vertices = []
    for size in range(dimension + 1):
        for subset in itertools.combinations(rows, size):
            gram = [[_dot(n, m) for m, _ in subset] for n, _ in subset]
            multipliers = _solve(gram, [c for _, c in subset])
            if multipliers is None:
                continue
            point = [mp.mpf(0)] * dimension
            for multiplier, (normal, _) in zip(multipliers, subset, strict=True):
                point = [x + multiplier * n for x, n in zip(point, normal, strict=True)]
            slack = SAME * (1 + mp.norm(point))
            if all(_dot(normal, point) >= offset - slack for normal, offset in rows):
                found.append(point)
                if size == dimension:
                    vertices.append(point)
    return min(found, key=mp.norm, default=None), vertices


def _quadrature(
    function: Callable[[Number], Moments], places: Sequence[Number], tolerance: Number
) -> Moments:
    """Integrate between the first and the last place, by panels, those with most error halved."""
    n_coarse = FEWEST_NODES - round(float(mp.log10(tolerance)) / 2)
    n_fine = n_coarse * 3 // 2

    def panel(a: Number, b: Number) -> tuple[Any, ...]:
        center, half = (a + b) / 2, (b - a) / 2
        coarse, fine = (
            _combine([(half * w, function(center + half * x)) for x, w in _gauss_legendre(n)])
            for n in (n_coarse, n_fine)
        )
        return (-abs(fine.mass - coarse.mass), next(ticket), fine, a, b)

    ticket = itertools.count()  # decides between equal errors
    panels = [panel(a, b) for a, b in itertools.pairwise(places)]
    heapq.heapify(panels)
    for _ in range(MOST_HALVINGS):
        total = _combine([(1, fine) for _, _, fine, _, _ in panels])
        if -sum(p[0] for p in panels) <= tolerance * total.mass:
            return total
        *_, a, b = heapq.heappop(panels)
        middle = (a + b) / 2
        heapq.heappush(panels, panel(a, middle))
        heapq.heappush(panels, panel(middle, b))
    raise ArithmeticError("the quadrature does not converge.")


@cache
def _gauss_legendre(n: int) -> list[tuple[Number, Number]]:
    with mp.workdps(DIGITS + 10):
        rule = []
        for guess in np.polynomial.legendre.leggauss(n)[0].tolist():
            x = mp.findroot(lambda x: mp.legendre(n, x), guess)
            slope = n * mp.legendre(n - 1, x) / (1 - x**2)
            rule.append((x, 2 / ((1 - x**2) * slope**2)))
        return rule


def _combine(terms: Sequence[tuple[Number, Moments]]) -> Moments:
    """Sum up moments with weights."""
    indices = range(len(terms[0][1].first))
    return Moments(
        mp.fdot((w, m.mass) for w, m in terms),
        [mp.fdot((w, m.first[i]) for w, m in terms) for i in indices],
        [[mp.fdot((w, m.second[i][j]) for w, m in terms) for j in indices] for i in indices],
    )


def _turn(moments: Moments, basis: list[list[Number]], origin: list[Number]) -> Moments:
    """Express moments about ``origin`` along a basis as moments about 0 along the axes."""
    indices = range(len(basis))
    mass = moments.mass
    first = [sum(moments.first[k] * basis[k][i] for k in indices) for i in indices]
    second = [
        [
            sum(moments.second[k][m] * basis[k][i] * basis[m][j] for k in indices for m in indices)
            + origin[i] * first[j]
            + first[i] * origin[j]
            + mass * origin[i] * origin[j]
            for j in indices
        ]
        for i in indices
    ]
    return Moments(mass, [f + mass * o for f, o in zip(first, origin, strict=True)], second)


def _basis(direction: list[Number]) -> list[list[Number]]:
    """Complete a direction to an orthonormal basis (Gram-Schmidt, twice for good measure)."""
    basis = [direction]
    # Axes most nearly orthogonal to the direction first.
    for axis in sorted(range(len(direction)), key=lambda i: abs(direction[i])):
        vector = _unit_vector(axis, len(direction))
        for _ in range(2):
            for b in basis:
                overlap = _dot(vector, b)
                vector = [x - overlap * y for x, y in zip(vector, b, strict=True)]
        length = mp.norm(vector)
        if length > 1e-3 and len(basis) < len(direction):
            basis.append([x / length for x in vector])
    return basis


def _solve(matrix: list[list[Number]], right: list[Number]) -> list[Number] | None:
    """Solve a positive definite system by elimination; None if it is singular."""
    rows = [[*row, x] for row, x in zip(matrix, right, strict=True)]
    n = len(rows)
    for i in range(n):
        if rows[i][i] < SAME:
            return None
        for j in range(n):
            if j != i:
                ratio = rows[j][i] / rows[i][i]
                rows[j] = [x - ratio * y for x, y in zip(rows[j], rows[i], strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def _density(x: Number) -> Number:
    return mp.exp(-x * x / 2) * DENSITY_AT_ZERO


def _unit_vector(axis: int, dimension: int) -> list[Number]:
    return [mp.mpf(int(i == axis)) for i in range(dimension)]


def _dot(a: Sequence[Number], b: Sequence[Number]) -> Number:
    return mp.fdot(a, b)


def _nothing(dimension: int) -> Moments:
    zero = mp.mpf(0)
    return Moments(zero, [zero] * dimension, [[zero] * dimension for _ in range(dimension)])
