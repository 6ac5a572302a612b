"""Three dimensions: polyhedra, integrals over them by facets, and section by section far out."""

import skdgn._geometry.polyhedra.flags  # noqa: F401  (registers the integral over polyhedra)
from skdgn._geometry.polyhedra.cells import Polyhedra

__all__ = ["Polyhedra"]
