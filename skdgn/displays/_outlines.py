"""Cells of latent space as far as they lie in a window.

Cells may be unbounded, a picture is not: every cell is cut to the window, and those outside it are
left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._cells import Cells
from skdgn._network import Floats


class Outlines(NamedTuple):
    """The cells that meet a window."""

    regions: NDArray[np.intp]  # (V,) which they are
    corners: list[Floats]  # V arrays: (2, 1) ends of intervals, or (k, 2) corners of polygons


def cut_to_window(cells: Cells, window: Floats) -> Outlines:
    """Cut cells of one or two dimensions to a window (S, 2) of lowest and highest values."""
    facets = cells.facets()
    if len(window) == 1:
        whole = window.T
    else:
        (left, right), (bottom, top) = window
        whole = np.array([[left, bottom], [right, bottom], [right, top], [left, top]])
    regions, corners = [], []
    for region in range(len(cells)):
        outline = whole
        for facet in range(facets.start[region], facets.start[region + 1]):
            distances = outline @ facets.normals[facet] - facets.offsets[facet]
            outline = _keep_inside(outline, distances)
            if len(outline) == 0:
                break
        else:
            regions.append(region)
            corners.append(outline)
    return Outlines(np.array(regions, dtype=np.intp), corners)


def _keep_inside(outline: Floats, distances: Floats) -> Floats:
    """Cut a convex outline (k, S) to where its corners' distances from a facet are positive."""
    inside = distances > 0.0
    if inside.all():
        return outline
    if not inside.any():
        return outline[:0]
    # Where one corner is inside and the next is not, the facet passes between them.
    following = np.roll(np.arange(len(outline)), -1)
    crossing = inside != inside[following]
    share = distances / np.where(crossing, distances - distances[following], 1.0)
    crossings = outline + share[:, None] * (outline[following] - outline)
    if outline.shape[1] == 1:
        # The two ends of an interval follow each other: both steps cross at the same point.
        return np.where(inside[:, None], outline, crossings)
    both = np.stack([outline, crossings], axis=1).reshape(-1, 2)
    return both[np.stack([inside, crossing], axis=1).ravel()]
