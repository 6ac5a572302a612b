"""Four dimensions and more: half-spaces, integrals one half-space after the other."""

import skdgn._geometry.polytopes.conditioning  # noqa: F401  (registers the integral over polytopes)
from skdgn._geometry.polytopes.cells import MOST_DIMENSIONS, Polytopes
from skdgn._geometry.polytopes.quadratic_program import nearest_point

__all__ = ["MOST_DIMENSIONS", "Polytopes", "nearest_point"]
