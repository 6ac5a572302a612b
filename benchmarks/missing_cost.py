"""Cost of an E-step over rows with holes, each with a pattern of its own, over complete rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skdgn._fit.statistics import expect
from skdgn._network import Network
from skdgn._noise.gaussian import Noise
from skdgn._partition.enumeration import build_partition
from skdgn._posterior.listed.visits import Visitor
from skdgn._runtime.workers import Workers

N_ROWS = 2000
# Enough features that every row can have holes of its own and still say where it comes from.
SHARE_MISSING = 0.3


def missing_cost(
    network: Network,
    rows: np.ndarray,
    covariance: float | np.ndarray,
    best_time: Callable[[Callable[[], object]], float],
) -> float:
    """Time of the E-step with holes over its time without."""
    noise = Noise.from_covariance(covariance, network.n_features)
    visitor = Visitor.prepare(build_partition(network), noise)
    rng = np.random.default_rng(3)
    patterns = np.unique(rng.random((3 * len(rows), rows.shape[1])) < SHARE_MISSING, axis=0)
    holed = np.where(rng.permutation(patterns)[: len(rows)], np.nan, rows)
    weights = np.ones(len(rows))
    seconds = []
    for table in (rows, holed):
        expect(visitor, table, weights, Workers())
        seconds.append(best_time(lambda table=table: expect(visitor, table, weights, Workers())))
    return seconds[1] / seconds[0]
