"""What a person sees of a fit."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self

from skdgn._fitting import Iteration

_BAR_WIDTH = 20
# Where a line cannot be rewritten, a bar becomes a line at these iterations, times powers of ten.
_MILESTONES = (1, 2, 5)


class ProgressPrinter:
    """Print how EM goes: 0 nothing, 1 a progress bar, 2 a line for every iteration.

    Into a file or a pipe, the bar becomes a line now and then.
    """

    def __init__(self, verbose: int, n_runs: int, max_iter: int, objective: str) -> None:
        self.verbose = int(verbose)
        self.n_runs = n_runs
        self.max_iter = max_iter
        self.objective = objective
        self._started = time.perf_counter()
        self._open_line = False

    def __enter__(self) -> Self:
        if self.verbose == 1 and sys.stdout.isatty():
            self._write("looking for a start", rewritten=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._open_line:
            print()
            self._open_line = False

    def __call__(self, iteration: Iteration) -> None:
        """Report an iteration."""
        if self.verbose < 1:
            return
        last = iteration.converged or iteration.number == self.max_iter
        if self.verbose > 1:
            self._write(self._describe(iteration))
        elif sys.stdout.isatty():
            done = round(_BAR_WIDTH * (1.0 if last else iteration.number / self.max_iter))
            bar = f"[{'#' * done}{'.' * (_BAR_WIDTH - done)}]  "
            self._write(bar + self._describe(iteration), rewritten=not last)
        elif last or int(str(iteration.number).rstrip("0")) in _MILESTONES:
            self._write(self._describe(iteration))

    def _describe(self, iteration: Iteration) -> str:
        run = f"start {iteration.run}/{self.n_runs}  " if self.n_runs > 1 else ""
        return (
            f"{run}iteration {iteration.number:3d}/{self.max_iter}  "
            f"{self.objective} {iteration.lower_bound: .6f}  change {iteration.change:.1e}  "
            f"regions {iteration.n_regions}  {time.perf_counter() - self._started:.1f} s"
            + ("  converged" if iteration.converged else "")
        )

    def _write(self, text: str, rewritten: bool = False) -> None:
        if rewritten:  # a line that wraps cannot be rewritten
            text = text[: shutil.get_terminal_size().columns - 1]
        # Back to the first column, and clear what the last text leaves behind.
        start = "\r\033[K" if self._open_line else ""
        print(start + text, end="" if rewritten else "\n", flush=True)
        self._open_line = rewritten
