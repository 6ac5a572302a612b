"""Convex cells, and Gaussian integrals over them."""

from skdgn._geometry.integrals import CellIntegrals, integrate_gaussian
from skdgn._geometry.interface import (
    Cells,
    Corners,
    Facets,
    Pieces,
    integrate_cell,
    integrate_cell_with_error,
    join_cells,
    make_room,
    whiten_cell,
)
from skdgn._geometry.intervals import Intervals, integrate_interval
from skdgn._geometry.kinds import MOST_EXACT_DIMENSIONS, whole_space
from skdgn._geometry.polytopes import MOST_DIMENSIONS, Polytopes, nearest_point
from skdgn._geometry.truncated_draws import log_integral, quantile, truncated_mean
from skdgn._geometry.truncated_normal import integrate_along

__all__ = [
    "MOST_DIMENSIONS",
    "MOST_EXACT_DIMENSIONS",
    "CellIntegrals",
    "Cells",
    "Corners",
    "Facets",
    "Intervals",
    "Pieces",
    "Polytopes",
    "integrate_along",
    "integrate_cell",
    "integrate_cell_with_error",
    "integrate_gaussian",
    "integrate_interval",
    "join_cells",
    "log_integral",
    "make_room",
    "nearest_point",
    "quantile",
    "truncated_mean",
    "whiten_cell",
    "whole_space",
]
