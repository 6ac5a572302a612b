"""Cells whitened one by one are those whitened together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skdgn._geometry.interface import make_room, whiten_cell
from skdgn._partition.enumeration import build_partition
from skdgn._runtime.compiler import kernel
from tests.networks import random_network


@kernel
def _whiten(cells: Any, region: int, factor: Any, room: Any) -> None:
    whiten_cell(cells, region, factor, room)


@pytest.mark.parametrize("n_components", [1, 2, 3, 4])
def test_whitening_one_by_one_equals_whitening_all(n_components: int) -> None:
    cells = build_partition(random_network(n_components, (5,), seed=3)).cells
    generator = np.random.default_rng(0)
    factors = np.linalg.inv(
        np.linalg.qr(generator.normal(size=(len(cells), 2 * n_components, n_components)), mode="r")
    )
    factors = np.ascontiguousarray(
        factors * np.sign(np.diagonal(factors, axis1=1, axis2=2))[:, None, :]
    )
    identity = np.broadcast_to(np.eye(n_components), factors.shape)
    together = cells.whiten(factors)
    cells_at_hand = cells.whiten(np.ascontiguousarray(identity))
    for r in range(len(cells)):
        room = make_room(cells_at_hand)
        _whiten(cells_at_hand, r, factors[r], room)
        alone = cells.take(np.array([r])).whiten(factors[r : r + 1])
        for name in together._fields:
            expected = getattr(alone, name)
            np.testing.assert_allclose(
                getattr(room, name)[: len(expected)], expected, rtol=1e-11, atol=1e-11
            )
