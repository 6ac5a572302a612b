"""Two dimensions: polygons, integrals over them by their edges, and slice by slice far out."""

from skdgn._geometry.polygons.boundaries import nearest_point, polygon_moments, sort
from skdgn._geometry.polygons.cells import (
    Polygons,
    copy_run,
    cut_polygon,
    interior_point,
    long_edges,
    read_edge,
)
from skdgn._geometry.polygons.slices import negated

__all__ = [
    "Polygons",
    "copy_run",
    "cut_polygon",
    "interior_point",
    "long_edges",
    "nearest_point",
    "negated",
    "polygon_moments",
    "read_edge",
    "sort",
]
