"""Cells of latent space as far as they lie in a window.

Cells may be unbounded, a picture is not: every cell is cut to the window, and those outside it are
left out.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from skdgn._geometry import Cells
from skdgn._runtime import Floats, Integers


class Outlines(NamedTuple):
    """The cells that meet a window."""

    regions: Integers  # (V,) which they are
    corners: list[Floats]  # V arrays: (2, 1) ends of intervals, or (k, 2) corners of polygons


def cut_to_window(cells: Cells, window: Floats) -> Outlines:
    """Cut cells of one or two dimensions to a window (S, 2) of lowest and highest values."""
    facets = cells.facets()
    cut = _cut_interval if len(window) == 1 else _cut_polygon
    outlines = [
        cut(facets.normals[first:last], facets.offsets[first:last], window)
        for first, last in itertools.pairwise(facets.start)
    ]
    regions = [region for region, outline in enumerate(outlines) if len(outline) > 0]
    return Outlines(np.array(regions, dtype=np.intp), [outlines[region] for region in regions])


def _cut_interval(normals: Floats, offsets: Floats, window: Floats) -> Floats:
    """Ends (2, 1) of the interval that facets leave of a window, or none."""
    lower = offsets[normals[:, 0] > 0.0].max(initial=window[0, 0])
    upper = -offsets[normals[:, 0] < 0.0].max(initial=-window[0, 1])
    return np.array([[lower], [upper]]) if lower < upper else np.empty((0, 1))


def _cut_polygon(normals: Floats, offsets: Floats, window: Floats) -> Floats:
    """Corners (k, 2) of the polygon that facets leave of a window, or none."""
    (left, right), (bottom, top) = window
    outline = np.array([[left, bottom], [right, bottom], [right, top], [left, top]])
    for normal, offset in zip(normals, offsets, strict=True):
        distances = outline @ normal - offset
        inside = distances > 0.0
        if not inside.any():
            return outline[:0]
        # Where one corner is inside and the next is not, the facet passes between them.
        following = np.roll(np.arange(len(outline)), -1)
        crossing = inside != inside[following]
        share = distances / np.where(crossing, distances - distances[following], 1.0)
        crossings = outline + share[:, None] * (outline[following] - outline)
        both = np.stack([outline, crossings], axis=1).reshape(-1, 2)
        outline = both[np.stack([inside, crossing], axis=1).ravel()]
    return outline
