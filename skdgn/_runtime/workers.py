"""Work on tables batch by batch, in any joblib backend, within the memory allowed.

Batches return what is kept of them, and a table is only ever read in pieces: how much memory a
pass takes does not depend on the number of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, TypeVar

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import NDArray

from skdgn._runtime.reporter import Reporter
from skdgn._runtime.transport import Parcel, PortableFunction

Result = TypeVar("Result")

# Samples of one batch at most: enough to keep a thread busy, few enough to share the work evenly.
MOST_SAMPLES = 1024
# Tasks handed out to each worker before the first of their results is collected.
TASKS_PER_WORKER = 16
# Sums are made of so many tasks at most, whatever the number of workers: so it does not change
# them, and few partial sums are in memory at a time.
_MOST_PARTIAL_SUMS = 64


@dataclass(frozen=True)
class Workers:
    """Who does the work, and the bytes that each of them may use for it."""

    n_jobs: int | None = None
    memory: float = 2.0**30
    reporter: Reporter = field(default_factory=Reporter, compare=False)  # is told how far it is

    def batch_size(self, sample_bytes: float, most_samples: int = MOST_SAMPLES) -> int:
        """Return how many samples each worker takes at a time, if one needs so many bytes."""
        return int(min(max(1.0, self.memory / sample_bytes), most_samples))

    def map(
        self, function: Callable[..., Result], sample_bytes: float, *tables: Any
    ) -> Iterator[tuple[slice, Result]]:
        """Apply a function to batches of tables of as many samples; yield results in order."""
        yield from self._map(function, self.batch_size(sample_bytes), tables)

    def fill(
        self,
        result: NDArray[Any],
        function: Callable[..., NDArray[Any]],
        sample_bytes: float,
        *tables: Any,
    ) -> NDArray[Any]:
        """Apply a function to batches of tables; write what it returns into an array."""
        # Results wait until those handed out together have all been computed.
        waiting = TASKS_PER_WORKER * result.nbytes / max(1, len(result))
        for batch, values in self.map(function, sample_bytes + waiting, *tables):
            result[batch] = values
        return result

    def sum(
        self,
        function: Callable[..., Result],
        sample_bytes: float,
        *tables: Any,
        most_samples: int = MOST_SAMPLES,
    ) -> Result:
        """Apply a function to batches of tables and add the results up."""
        size = self.batch_size(sample_bytes, most_samples)
        n_batches = -(-len(tables[0]) // size)
        batches_per_task = -(-n_batches // _MOST_PARTIAL_SUMS)

        def sum_task(*parts: Any) -> Result:
            return reduce(
                add,
                (
                    function(*(part[b] for part in parts))
                    for b in sample_batches(len(parts[0]), size)
                ),
            )

        total: Any = None
        for _, partial in self._map(sum_task, size * batches_per_task, tables):
            total = partial if total is None else total + partial
        return total

    def _map(
        self, function: Callable[..., Result], size: int, tables: tuple[Any, ...]
    ) -> Iterator[tuple[slice, Result]]:
        portable = PortableFunction(function)
        batches = list(sample_batches(len(tables[0]), size))
        with self.reporter.count(len(tables[0])) as advance:
            if len(batches) == 1:
                # Nothing to share: not worth a journey.
                yield batches[0], function(*(table[batches[0]] for table in tables))
                return
            # Threads by default: the kernels release the GIL.
            parallel = joblib.Parallel(
                n_jobs=self.n_jobs,
                prefer="threads",
                return_as=way_of_returning(prefer="threads"),
                pre_dispatch=TASKS_PER_WORKER * joblib.effective_n_jobs(self.n_jobs),
            )
            results = parallel(
                joblib.delayed(portable)(Parcel(*(table[batch] for table in tables)))
                for batch in batches
            )
            for batch, result in zip(batches, results, strict=True):
                advance(batch.stop)
                yield batch, result


def way_of_returning(prefer: str | None = None) -> str:
    """Choose ``return_as`` of `joblib.Parallel`: not every backend returns results one by one."""
    backend, _ = get_active_backend(prefer=prefer)
    return "generator" if backend.supports_return_generator else "list"


def sample_batches(n_samples: int, size: int) -> Iterator[slice]:
    """Yield slices that cover all samples."""
    for first in range(0, n_samples, size):
        yield slice(first, min(first + size, n_samples))


def read(batch: Any) -> NDArray[np.float64]:
    """Return a batch of a table as it is computed with: contiguous, in double precision.

    It can be written to: for other arrays, Numba would compile every kernel once more.
    """
    table = np.ascontiguousarray(batch, dtype=np.float64)
    return table if table.flags.writeable else table.copy()
