"""Activation patterns of small dense networks: by linear programming, and by the paper's walk.

A network is a list of weights ``coefs[l]`` of shape (fan_out, fan_in) and a list of ``intercepts``;
the last layer is the linear output.  The activation of all hidden units is ``relu``, ``leaky_relu``
or ``abs``.  A pattern says of every hidden unit, in order, whether its preactivation is positive.
Its cell is where ``normals @ z >= offsets`` with one halfspace a unit.
"""

from __future__ import annotations

from collections.abc import Sequence

import cdd
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

Floats = NDArray[np.float64]
Pattern = tuple[bool, ...]

# A cell counts if a ball of this radius fits in.  HiGHS satisfies inequalities to 1e-10 at best.
SMALLEST_RADIUS = 1e-8
FEASIBILITY = 1e-10

# A unit whose preactivation has a gradient below this is constant on the cell: its inputs are dead.
CONSTANT = 1e-12


def all_patterns(
    coefs: Sequence[ArrayLike],
    intercepts: Sequence[ArrayLike],
    activation: str,
    negative_slope: float = 0.01,
) -> set[Pattern]:
    """Find all patterns with nonempty interior: try both signs of every unit, one by one."""
    weights, biases = _hidden_layers(coefs, intercepts)
    found: list[Pattern] = [()]
    for layer in range(len(weights)):
        for _ in range(len(biases[layer])):
            longer = [(*pattern, sign) for pattern in found for sign in (False, True)]
            found = [
                pattern
                for pattern in longer
                if _has_interior(*cell(weights, biases, pattern, activation, negative_slope))
            ]
    return set(found)


def walk(
    coefs: Sequence[ArrayLike],
    intercepts: Sequence[ArrayLike],
    activation: str,
    negative_slope: float = 0.01,
    start: ArrayLike | None = None,
) -> set[Pattern]:
    """Walk from cell to cell through all facets (Algorithm 1 of the paper).

    The facets of a cell are its halfspaces without the redundant ones, which cddlib finds.
    Weights must be in general position: crossing a facet flips one unit.

    Parameters
    ----------
    start : array-like of shape (S,), default=0
        Where the walk begins; it must not lie on the boundary of a cell.
    """
    weights, biases = _hidden_layers(coefs, intercepts)
    z = np.zeros(weights[0].shape[1]) if start is None else np.asarray(start, dtype=float)
    first = pattern_at(weights, biases, z, activation, negative_slope)
    found = {first}
    waiting = [first]
    while waiting:
        pattern = waiting.pop()
        normals, offsets = cell(weights, biases, pattern, activation, negative_slope)
        for unit in _facets(normals, offsets):
            flipped = (*pattern[:unit], not pattern[unit], *pattern[unit + 1 :])
            if flipped not in found:
                found.add(flipped)
                waiting.append(flipped)
    return found


def pattern_at(
    weights: Sequence[Floats],
    biases: Sequence[Floats],
    z: Floats,
    activation: str,
    negative_slope: float = 0.01,
) -> Pattern:
    """Return the pattern at a point, from the hidden layers."""
    pattern: list[bool] = []
    hidden = z
    for weight, bias in zip(weights, biases, strict=True):
        preactivation = weight @ hidden + bias
        positive = preactivation > 0
        hidden = _slopes(positive, activation, negative_slope) * preactivation
        pattern += positive.tolist()
    return tuple(pattern)


def cell(
    weights: Sequence[Floats],
    biases: Sequence[Floats],
    pattern: Pattern,
    activation: str,
    negative_slope: float = 0.01,
) -> tuple[Floats, Floats]:
    """Return the halfspaces ``normals @ z >= offsets`` of a pattern of the first units.

    The preactivation ``a @ z + b`` of a unit has the sign q where ``q (a @ z + b) > 0``.  (The
    paper's inequality, ``a @ z < -q b``, is right for neither sign.)

    Parameters
    ----------
    weights, biases : sequence of ndarray
        Of the hidden layers.
    pattern : tuple of bool
        May be shorter than there are units; then only the first ones have a say.

    Returns
    -------
    normals : ndarray of shape (len(pattern), S)
    offsets : ndarray of shape (len(pattern),)
    """
    slope, offset = np.eye(weights[0].shape[1]), np.zeros(weights[0].shape[1])
    normals, offsets = [np.empty((0, len(slope)))], [np.empty(0)]
    used = 0
    for weight, bias in zip(weights, biases, strict=True):
        slope, offset = weight @ slope, weight @ offset + bias
        positive = np.array(pattern[used : used + len(bias)], dtype=bool)
        used += len(positive)
        signs = np.where(positive, 1.0, -1.0)
        normals.append(signs[:, np.newaxis] * slope[: len(signs)])
        # A preactivation that is 0 everywhere is not positive anywhere.
        zero = (offset == 0) & ~np.any(slope, axis=1)
        never = positive & zero[: len(signs)]
        offsets.append(np.where(never, np.inf, -signs * offset[: len(signs)]))
        if used == len(pattern):
            break
        activation_slopes = _slopes(positive, activation, negative_slope)
        slope, offset = activation_slopes[:, np.newaxis] * slope, activation_slopes * offset
    return np.concatenate(normals), np.concatenate(offsets)


def _hidden_layers(
    coefs: Sequence[ArrayLike], intercepts: Sequence[ArrayLike]
) -> tuple[list[Floats], list[Floats]]:
    weights = [np.asarray(w, dtype=float) for w in coefs[:-1]]
    biases = [np.asarray(b, dtype=float) for b in intercepts[:-1]]
    if not weights:
        raise ValueError("a network without hidden layer has no patterns.")
    return weights, biases


def _slopes(positive: NDArray[np.bool_], activation: str, negative_slope: float) -> Floats:
    other = {"relu": 0.0, "leaky_relu": negative_slope, "abs": -1.0}[activation]
    return np.where(positive, 1.0, other)


def _has_interior(normals: Floats, offsets: Floats) -> bool:
    """Maximize the radius of a ball in the cell (at most 1)."""
    lengths = np.linalg.norm(normals, axis=1)
    constant = lengths < CONSTANT
    if np.any(offsets[constant] > 0):
        return False
    normals, offsets, lengths = normals[~constant], offsets[~constant], lengths[~constant]
    if len(offsets) == 0:
        return True
    # Unknowns z and r:  n @ z - |n| r >= c.
    result = linprog(
        np.append(np.zeros(normals.shape[1]), -1.0),
        A_ub=np.column_stack([-normals / lengths[:, np.newaxis], np.ones(len(lengths))]),
        b_ub=-offsets / lengths,
        bounds=[(None, None)] * normals.shape[1] + [(0.0, 1.0)],
        options={"primal_feasibility_tolerance": FEASIBILITY},
    )
    return result.status == 0 and -result.fun > SMALLEST_RADIUS


def _facets(normals: Floats, offsets: Floats) -> list[int]:
    """Find the halfspaces of a cell that are not redundant."""
    lengths = np.linalg.norm(normals, axis=1)
    units = np.flatnonzero(lengths > CONSTANT)
    rows = np.column_stack([-offsets, normals])[units] / lengths[units, np.newaxis]
    matrix = cdd.matrix_from_array(rows, rep_type=cdd.RepType.INEQUALITY)
    return np.delete(units, sorted(cdd.redundant_rows(matrix))).tolist()
