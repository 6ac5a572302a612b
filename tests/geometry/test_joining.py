"""Collections of cells behind each other."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._geometry import integrate_gaussian, join_cells, whole_space


@pytest.mark.parametrize("n_dimensions", [1, 2, 3, 4])
def test_joined_cells_are_those_of_the_parts(n_dimensions: int) -> None:
    rng = np.random.default_rng(0)
    parts = []
    for n_cuts in (2, 0, 3):
        cells = whole_space(n_dimensions)
        for _ in range(n_cuts):
            normals = rng.normal(size=(1, n_dimensions))
            normals = np.repeat(normals / np.linalg.norm(normals), len(cells), axis=0)
            cells = cells.split(normals, np.full(len(cells), 0.3 * rng.normal())).cells
        parts.append(cells)
    joined = join_cells(parts)
    assert len(joined) == sum(map(len, parts))
    np.testing.assert_array_equal(
        joined.facets().normals, np.concatenate([cells.facets().normals for cells in parts])
    )
    if n_dimensions <= 3:  # with more, integrals are estimates
        mean, covariance = np.full(n_dimensions, 0.2), np.eye(n_dimensions)
        expected = [integrate_gaussian(cells, mean, covariance).log_masses for cells in parts]
        masses = integrate_gaussian(joined, mean, covariance).log_masses
        np.testing.assert_array_equal(masses, np.concatenate(expected))
    last = join_cells([joined, joined]).take(np.arange(len(joined), 2 * len(joined)))
    np.testing.assert_array_equal(last.interior_points(), joined.interior_points())
