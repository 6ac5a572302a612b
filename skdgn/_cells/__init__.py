"""Kinds of cells, one file each, chosen by the number of latent dimensions."""

from __future__ import annotations

import skdgn._cells.boundaries  # (registers the integral over polygons)
import skdgn._cells.conditioning  # (registers the integral over polytopes)
import skdgn._cells.flags  # noqa: F401  (registers the integral over polyhedra)
from skdgn._cells._interface import (
    Cells,
    Corners,
    Facets,
    Pieces,
    integrate_cell,
    integrate_cell_with_error,
    make_room,
    whiten_cell,
)
from skdgn._cells.integrals import CellIntegrals, integrate_gaussian
from skdgn._cells.intervals import Intervals, integrate_interval
from skdgn._cells.polygons import Polygons
from skdgn._cells.polyhedra import Polyhedra
from skdgn._cells.polytopes import Polytopes

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


__all__ = [
    "MOST_EXACT_DIMENSIONS",
    "CellIntegrals",
    "Cells",
    "Corners",
    "Facets",
    "Intervals",
    "Pieces",
    "integrate_cell",
    "integrate_cell_with_error",
    "integrate_gaussian",
    "integrate_interval",
    "make_room",
    "whiten_cell",
    "whole_space",
]
