"""What a person sees of the iterations of a fit."""

from __future__ import annotations

from skdgn._fit import Iteration
from skdgn._runtime import Reporter

_BAR_WIDTH = 20
# Where a line cannot be rewritten, a bar becomes a line at these iterations, times powers of ten.
_MILESTONES = (1, 2, 5)


def describe_interrupt(n_iterations: int) -> str:
    """Say what is left of a fit that was interrupted."""
    return (
        f"The fit was interrupted after {n_iterations} iterations; "
        "the best parameters so far were kept."
    )


class IterationPrinter:
    """Prints how EM goes: a progress bar, or a line for every iteration if there is to be more.

    Into a file or a pipe, the bar becomes a line now and then.
    """

    def __init__(self, reporter: Reporter, max_iter: int, objective: str) -> None:
        self.reporter = reporter
        self.max_iter = max_iter
        self.objective = objective

    def __call__(self, iteration: Iteration) -> None:
        """Report an iteration."""
        reporter = self.reporter
        if reporter.verbose < 1:
            return
        last = iteration.converged or iteration.number == self.max_iter
        if reporter.verbose > 1:
            reporter.write(self._describe(iteration))
        elif reporter.is_rewriting:
            done = round(_BAR_WIDTH * (1.0 if last else iteration.number / self.max_iter))
            bar = f"[{'#' * done}{'.' * (_BAR_WIDTH - done)}]  "
            reporter.write(bar + self._describe(iteration), lasting=last)
        elif last or int(str(iteration.number).rstrip("0")) in _MILESTONES:
            reporter.write(self._describe(iteration))
        reporter.name(f"iteration {iteration.number + 1}/{self.max_iter}")

    def _describe(self, iteration: Iteration) -> str:
        run = f"run {iteration.run}/{iteration.n_runs}  " if iteration.n_runs > 1 else ""
        return (
            f"{run}iteration {iteration.number:3d}/{self.max_iter}  "
            f"{self.objective} {iteration.lower_bound: .6f}  change {iteration.change:.1e}  "
            f"regions {iteration.n_regions}  {self.reporter.seconds:.1f} s"
            + ("  converged" if iteration.converged else "")
        )
