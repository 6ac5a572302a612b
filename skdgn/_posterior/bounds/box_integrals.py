"""What a box of latent space contributes to the density of a sample: bounds from both sides.

In coordinates v of a box, from -1 to 1, the residual of a sample in units of the noise is
``a(v) - G d``, with ``a(v) = r - A v`` affine and ``|d| <= 1`` unknown: the remainders of units
that bend within the box, each with its column g of G.  The prior is ``exp(-|c + h v|^2 / 2)``.  So

    |a - G d|^2 >= |a|^2 - 2 sum |g . a|,
    |a - G d|^2 >= 2 y . (a - G d) - |y|^2 for any y,
    |a - G d|^2 <= |a|^2 + 2 sum |g . a| + |G d|^2.

From above, the exponent is bounded by a concave quadratic function of v, and that by one without
mixed terms, whose integral is a product.  The first is good for small boxes, the second for large
ones, with the smallest residual for y.  From below, Jensen's inequality holds for any density on
the box: here a product of truncated normals, the best that a few sweeps over the axes find.
"""

from __future__ import annotations

import math

import numpy as np

from skdgn._geometry import integrate_along
from skdgn._runtime import Floats, kernel

# Sweeps over the axes to the largest exponent of a box, and to the best product of densities.
_N_SWEEPS = 3
# A precision per half-width that is as good as none: the exponent is raised by half of it.
_FLAT = 1e-9
# Shares of the mixed terms that are tried, and what is zero but for rounding.
_N_SHARES = 6
_TINY = 1e-12


@kernel
def bound_boxes(
    slopes: Floats,
    residuals: Floats,
    tail: Floats,
    radii: Floats,
    shares: Floats,
    centers: Floats,
    halves: Floats,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Bound the log of the integral of exp(-(residual^2 + prior) / 2) over boxes: (b,) each.

    ``slopes`` (b, D, S) and ``residuals`` (b, D) are A and r, ``tail`` (D, K) times the radii
    (b, K) is G.  ``shares`` (b, K, S) tell how much of a radius is due to the width along each
    axis.  Also returns how much the bounds gain from a smaller width, (b, S), roughly.
    """
    n_boxes, n_features, n_components = slopes.shape
    n_units = tail.shape[1]
    lower, middle, upper = np.empty(n_boxes), np.empty(n_boxes), np.empty(n_boxes)
    scores = np.zeros((n_boxes, n_components))
    precision, linear = np.empty((n_components, n_components)), np.empty(n_components)
    heights, bends = np.empty(n_units), np.empty((n_units, n_components))
    spread, near = np.empty(n_features), np.empty(n_features)
    moments = np.empty((3, n_components))
    for n in range(n_boxes):
        slope, residual, half, center = slopes[n], residuals[n], halves[n], centers[n]
        square = _expand(slope, residual, center, half, precision, linear)
        n_bent, length = _bend(
            slope, residual, tail, radii[n], shares[n], heights, bends, spread, scores[n]
        )
        log_scale = -0.5 * square
        for s in range(n_components):
            log_scale += math.log(half[s])
            for t in range(s):
                own = abs(precision[s, t])
                own /= math.sqrt(max(1.0, precision[s, s]) * max(1.0, precision[t, t]))
                scores[n, s] += 0.5 * own
                scores[n, t] += 0.5 * own
        middle[n] = log_scale + _best_product(precision, linear, moments)
        lower[n] = middle[n] - 0.5 * length * length
        for k in range(n_bent):
            mean, variance = heights[k], 0.0
            for s in range(n_components):
                mean -= bends[k, s] * moments[0, s]
                variance += bends[k, s] * bends[k, s] * moments[1, s]
            lower[n] -= math.sqrt(mean * mean + max(variance, 0.0))
        raised = _tilt(heights[:n_bent], bends, linear)
        upper[n] = log_scale + raised + _bound_above(precision, linear, half)
        if n_bent > 0:
            log_volume = log_scale + 0.5 * square
            other = _bound_by_features(slope, residual, spread, center, half)
            upper[n] = min(upper[n], log_volume + other)
            other = _bound_by_tangent(slope, residual, tail, radii[n], center, half, near)
            upper[n] = min(upper[n], log_volume + other)
    return lower, middle, upper, scores


@kernel
def _expand(
    slope: Floats,
    residual: Floats,
    center: Floats,
    half: Floats,
    precision: Floats,
    linear: Floats,
) -> float:
    """Expand |r - A v|^2 + |c + h v|^2 = square - 2 linear v + v precision v."""
    n_features, n_components = slope.shape
    square = 0.0
    for s in range(n_components):
        square += center[s] * center[s]
        linear[s] = -half[s] * center[s]
        for t in range(s):
            precision[s, t] = 0.0
        precision[s, s] = half[s] * half[s]
    for d in range(n_features):
        square += residual[d] * residual[d]
        for s in range(n_components):
            linear[s] += slope[d, s] * residual[d]
            for t in range(s + 1):
                precision[s, t] += slope[d, s] * slope[d, t]
    for s in range(n_components):
        for t in range(s):
            precision[t, s] = precision[s, t]
    return square


@kernel
def _bend(
    slope: Floats,
    residual: Floats,
    tail: Floats,
    radii: Floats,
    shares: Floats,
    heights: Floats,
    bends: Floats,
    spread: Floats,
    scores: Floats,
) -> tuple[int, float]:
    """Find g . a(v) = height - bend v for all units that bend; returns their number, and max |G d|.

    Also by how much they move each feature, and what a smaller width would gain.
    """
    n_features, n_components = slope.shape
    n_bent, length, square = 0, 0.0, 0.0
    spread[:] = 0.0
    for k in range(len(radii)):
        if radii[k] == 0.0:
            continue
        own, height, bend = 0.0, 0.0, bends[n_bent]
        bend[:] = 0.0
        for d in range(n_features):
            part = tail[d, k] * radii[k]
            own += part * part
            height += part * residual[d]
            spread[d] += abs(part)
            for s in range(n_components):
                bend[s] += part * slope[d, s]
        heights[n_bent] = height
        length += math.sqrt(own)
        gain = abs(height) + 0.5 * own
        for s in range(n_components):
            gain += abs(bend[s])
        for s in range(n_components):
            scores[s] += gain * shares[k, s]
        n_bent += 1
    for d in range(n_features):
        square += spread[d] * spread[d]
    return n_bent, min(length, math.sqrt(square))


@kernel
def _tilt(heights: Floats, bends: Floats, linear: Floats) -> float:
    """Add chords of |g . a| = |height - bend v| to an exponent; returns what is constant of them.

    Between -reach and reach about the height: |t| <= reach + height / reach (t - height).
    """
    constant = 0.0
    for k in range(len(heights)):
        reach = 0.0
        for s in range(len(linear)):
            reach += abs(bends[k, s])
        constant += max(abs(heights[k]), reach)
        ratio = 0.0
        if heights[k] != 0.0:
            ratio = heights[k] / max(abs(heights[k]), reach)
        for s in range(len(linear)):
            linear[s] -= ratio * bends[k, s]
    return constant


@kernel
def _bound_by_features(
    slope: Floats, residual: Floats, spread: Floats, center: Floats, half: Floats
) -> float:
    """Bound the log of the integral over a box by the nearest values of single features."""
    n_features, n_components = slope.shape
    total = 0.0
    for d in range(n_features):
        reach = spread[d]
        for s in range(n_components):
            reach += abs(slope[d, s])
        gap = max(abs(residual[d]) - reach, 0.0)
        total -= 0.5 * gap * gap
    for s in range(n_components):
        total += integrate_along(-1.0, 1.0, -half[s] * center[s], half[s] * half[s])[0]
        total -= 0.5 * center[s] * center[s]
    return total


@kernel
def _bound_by_tangent(
    slope: Floats,
    residual: Floats,
    tail: Floats,
    radii: Floats,
    center: Floats,
    half: Floats,
    near: Floats,
) -> float:
    """Bound the log of the integral over a box, by |y|^2 >= 2 y . near - |near|^2.

    For the nearest of all residuals y = r - A v - G d that there may be, beside the prior, nearly.
    """
    n_features, n_components = slope.shape
    n_units = len(radii)
    near[:] = residual
    point, remainders = np.zeros(n_components), np.zeros(n_units)
    for _ in range(_N_SWEEPS):
        for s in range(n_components):
            gradient, curvature = -half[s] * (center[s] + half[s] * point[s]), half[s] * half[s]
            for d in range(n_features):
                gradient += slope[d, s] * near[d]
                curvature += slope[d, s] * slope[d, s]
            old = point[s]
            point[s] = min(max(old + gradient / curvature, -1.0), 1.0)
            for d in range(n_features):
                near[d] -= slope[d, s] * (point[s] - old)
        for k in range(n_units):
            if radii[k] == 0.0:
                continue
            gradient, curvature = 0.0, 0.0
            for d in range(n_features):
                gradient += tail[d, k] * near[d]
                curvature += tail[d, k] * tail[d, k]
            if curvature == 0.0:
                continue
            old = remainders[k]
            remainders[k] = min(max(old + gradient / (curvature * radii[k]), -1.0), 1.0)
            for d in range(n_features):
                near[d] -= tail[d, k] * radii[k] * (remainders[k] - old)
    # What y . near is at least, by the remainders and by all, relative to |near|^2.
    least, square = 0.0, 0.0
    for d in range(n_features):
        least += near[d] * residual[d]
        square += near[d] * near[d]
    for k in range(n_units):
        if radii[k] > 0.0:
            height = 0.0
            for d in range(n_features):
                height += near[d] * tail[d, k]
            least -= abs(height) * radii[k]
    surely = least
    for s in range(n_components):
        point[s] = 0.0
        for d in range(n_features):
            point[s] += near[d] * slope[d, s]
        surely -= abs(point[s])
    if square == 0.0:
        return math.inf
    share = min(max(surely / square, 0.0), 1.0) if surely < 0.5 * square else 1.0
    total = share * (0.5 * share * square - least)
    for s in range(n_components):
        gradient = share * point[s] - half[s] * center[s]
        total += integrate_along(-1.0, 1.0, gradient, half[s] * half[s])[0]
        total -= 0.5 * center[s] * center[s]
    return total


@kernel
def _find_peak(precision: Floats, linear: Floats) -> Floats:
    """Find where linear v - v precision v / 2 is largest in the box, nearly."""
    n_components = len(linear)
    peak = np.zeros(n_components)
    for _ in range(_N_SWEEPS):
        for s in range(n_components):
            slope = linear[s]
            for t in range(n_components):
                if t != s:
                    slope -= precision[s, t] * peak[t]
            peak[s] = min(max(slope / precision[s, s], -1.0), 1.0)
    return peak


@kernel
def _bound_above(precision: Floats, linear: Floats, half: Floats) -> float:
    """Bound the log of the integral of exp(linear v - v precision v / 2) over the box.

    About the peak, less than all squares and mixed terms is taken away: squares alone.  By
    Gershgorin's theorem it is enough to reduce the squares by the mixed terms; a share of these may
    be enough, and is if a Cholesky decomposition says so.  Either squares may become negative, or
    they stay above those of the prior, half^2, which are surely less than the precision.
    """
    peak, squares = _find_peak(precision, linear), np.empty(len(linear))
    work = np.empty(precision.shape)
    n_components, best = len(linear), math.inf
    for floored in range(2):
        good, bad, share = (-1.0 if floored else 1.0), 0.0, 0.5
        for _ in range(_N_SHARES):
            _reduce_squares(precision, half, share, floored, squares)
            if _is_positive(precision, squares, work):
                good = share
            else:
                bad = share
            share = 2.0 * bad if good < 0.0 else 0.5 * (bad + good)
        if good > 0.0:
            _reduce_squares(precision, half, good, floored, squares)
        else:
            for s in range(n_components):
                squares[s] = half[s] * half[s]
        total = 0.0
        for s in range(n_components):
            slope, own = linear[s], squares[s]
            for t in range(n_components):
                slope -= precision[s, t] * peak[t]
            # The exponent is slope v - own v^2 / 2, v from the peak on.
            total += 0.5 * (linear[s] - slope - own * peak[s]) * peak[s]
            slope += own * peak[s]
            if own < _FLAT:
                total += 0.5 * (_FLAT - own)  # v^2 <= 1
                own = _FLAT
            total += integrate_along(-1.0, 1.0, slope, own)[0]
        best = min(best, total)
    return best


@kernel
def _reduce_squares(
    precision: Floats, half: Floats, share: float, floored: int, squares: Floats
) -> None:
    """Reduce the squares of a precision by a share of its mixed terms."""
    n_components = len(squares)
    for s in range(n_components):
        mixed = 0.0
        for t in range(n_components):
            if t != s:
                ratio = max(1.0, precision[s, s]) / max(1.0, precision[t, t])
                mixed += abs(precision[s, t]) * math.sqrt(ratio)
        squares[s] = precision[s, s] - share * mixed
        if floored:
            squares[s] = max(squares[s], half[s] * half[s])


@kernel
def _is_positive(precision: Floats, squares: Floats, work: Floats) -> bool:
    """Tell whether the precision minus squares on its diagonal has a Cholesky decomposition."""
    n_components = len(squares)
    for s in range(n_components):
        for t in range(s + 1):
            value = precision[s, t] - (squares[s] if s == t else 0.0)
            for u in range(t):
                value -= work[s, u] * work[t, u]
            if s == t:
                if value <= _TINY * precision[s, s]:
                    return False
                work[s, s] = math.sqrt(value)
            else:
                work[s, t] = value / work[t, t]
    return True


@kernel
def _best_product(precision: Floats, linear: Floats, moments: Floats) -> float:
    """Bound the log of the integral of exp(linear v - v precision v / 2) over the box from below.

    The first two rows of ``moments`` become means and variances of the product of densities.
    """
    n_components = len(linear)
    moments[0] = 0.0
    total = 0.0
    for _ in range(_N_SWEEPS):
        total = 0.0
        for s in range(n_components):
            slope = linear[s]
            for t in range(n_components):
                if t != s:
                    slope -= precision[s, t] * moments[0, t]
            log_integral, anchor, excess, variance = integrate_along(
                -1.0, 1.0, slope, precision[s, s]
            )
            moments[0, s], moments[1, s], moments[2, s] = anchor + excess, variance, slope
            total += log_integral
    # Every density is exp(slope v - precision v^2 / 2 - log_integral), by its own slope.
    for s in range(n_components):
        total += (linear[s] - moments[2, s]) * moments[0, s]
        for t in range(s):
            total -= precision[s, t] * moments[0, s] * moments[0, t]
    return total
