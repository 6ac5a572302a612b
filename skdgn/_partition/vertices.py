"""Vertices and rays of a cell of any dimension, by cddlib, which is for those who ask for it.

cddlib is under the GNU General Public License, which this package is not: hence an extra.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from skdgn._runtime import Floats

# How far a vertex may be from a facet that it lies on, relative to its distance from the middle of
# the cell: rounding errors, much less than the 1e-7 that cddlib takes for zero.
_ACCURACY = 1e-10

_TOO_THIN = (
    "The region has vertices that cddlib cannot tell apart: they are closer together, or the "
    "region is thinner, than about 1e-7 of its size. `partition_.cells.facets()` has its facets."
)


class Vertices(NamedTuple):
    """Corners of a region: it is what ``a @ vertices + b @ rays`` reaches.

    There ``a`` and ``b`` are nonnegative, and ``a`` adds up to one.

    Attributes
    ----------
    vertices : ndarray of shape (n_vertices, n_components)
        At least one point.  A region that contains a whole line has no vertices; the points are
        then any on its lowest-dimensional faces, one for each.
    rays : ndarray of shape (n_rays, n_components)
        Directions, of unit length, in which the region has no end: none if it is bounded.  A line
        that the region contains is two rays.
    """

    vertices: Floats
    rays: Floats


def import_cdd() -> Any:
    """Import cddlib, or say what to install."""
    try:
        import cdd
    except ImportError as error:
        raise ImportError(
            'Vertices of regions need pycddlib: pip install "skdgn[cdd]" (cddlib is under the GNU '
            "General Public License)."
        ) from error
    return cdd


def find_vertices(normals: Floats, offsets: Floats, middle: Floats) -> Vertices:
    """Find the vertices and rays of the cell where ``normals @ z >= offsets``.

    Parameters
    ----------
    normals : ndarray of shape (n_facets, n_components)
        Of unit length, none of them redundant.
    offsets : ndarray of shape (n_facets,)
    middle : ndarray of shape (n_components,)
        A point inside.

    Returns
    -------
    vertices : Vertices
    """
    cdd = import_cdd()
    if len(offsets) == 0:
        axes = np.eye(len(middle))
        return Vertices(middle[np.newaxis], np.concatenate([axes, -axes]))
    # What cddlib takes for zero is an absolute number: the middle is moved to the origin, and the
    # nearest facet to the distance one.
    distances = normals @ middle - offsets
    unit = distances.min()
    rows = np.column_stack([distances / unit, normals])
    matrix = cdd.matrix_from_array(rows, rep_type=cdd.RepType.INEQUALITY)
    try:
        generators = cdd.copy_generators(cdd.polyhedron_from_matrix(matrix))
    except RuntimeError as error:
        raise RuntimeError(_TOO_THIN) from error
    found = np.reshape(generators.array, (-1, rows.shape[1]))
    # cddlib writes 1 before a vertex and 0, but for rounding, before a ray.
    is_vertex = found[:, 0] > 0.5
    points = found[is_vertex, 1:]
    rays = np.concatenate([found[~is_vertex, 1:], -found[sorted(generators.lin_set), 1:]])
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    _verify(rows, points, rays)
    return Vertices(middle + unit * points, rays)


def _verify(rows: Floats, points: Floats, rays: Floats) -> None:
    """Raise an error unless all is inside, and every facet has as many corners as it must have."""
    sizes = 1.0 + np.linalg.norm(points, axis=1, keepdims=True)
    heights = np.concatenate([(points @ rows[:, 1:].T + rows[:, 0]) / sizes, rays @ rows[:, 1:].T])
    n_corners = np.count_nonzero(np.abs(heights) < _ACCURACY, axis=0)
    n_components = rows.shape[1] - 1
    if np.any(heights < -_ACCURACY) or np.any(n_corners < n_components):
        raise RuntimeError(_TOO_THIN)
