"""Kinds of cells, chosen by the number of latent dimensions."""

from __future__ import annotations

from skdgn._geometry.interface import Cells
from skdgn._geometry.intervals import Intervals
from skdgn._geometry.polygons import Polygons
from skdgn._geometry.polyhedra import Polyhedra
from skdgn._geometry.polytopes import Polytopes

# Integrals over cells of more dimensions are estimates, with an error.
MOST_EXACT_DIMENSIONS = 3


def whole_space(n_dimensions: int) -> Cells:
    """Return all of latent space as one cell of the kind made for this dimension."""
    if n_dimensions == 1:
        return Intervals.whole_space(n_dimensions)
    if n_dimensions == 2:
        return Polygons.whole_space(n_dimensions)
    if n_dimensions == 3:
        return Polyhedra.whole_space(n_dimensions)
    return Polytopes.whole_space(n_dimensions)
