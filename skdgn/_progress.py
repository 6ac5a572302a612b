"""What a person sees of a fit."""

from __future__ import annotations

import time

from skdgn._em import Progress


class ProgressPrinter:
    """Print how EM goes: 0 nothing, 1 the end of every run, 2 every iteration."""

    def __init__(self, verbose: int) -> None:
        self.verbose = int(verbose)
        self._started = time.perf_counter()
        self._previous = -float("inf")

    def __call__(self, number: int, progress: Progress, log_volume: float) -> None:
        """Report an iteration of run ``number``."""
        if self.verbose < 1:
            return
        bound = progress.lower_bounds[-1] - log_volume
        iteration = len(progress.lower_bounds)
        if iteration == 1:
            self._previous = -float("inf")
        if self.verbose > 1 or progress.converged:
            print(
                f"start {number + 1}  iteration {iteration:4d}  log-likelihood {bound: .6f}  "
                f"change {bound - self._previous:.2e}  regions {len(progress.state.partition):5d}  "
                f"{time.perf_counter() - self._started:7.1f} s"
                + ("  converged" if progress.converged else "")
            )
        self._previous = bound
