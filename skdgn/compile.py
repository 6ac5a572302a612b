"""Compile the kernels that the first calls would otherwise compile.

Run ``python -m skdgn.compile`` in a shell; ``--help`` lists its options.  Numba caches the compiled
kernels in the package folder, in the user's cache folder, or in the folder given by the environment
variable ``NUMBA_CACHE_DIR``.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba.core import event
from sklearn.exceptions import ConvergenceWarning

from skdgn._estimators import PiecewiseAffineDGN
from skdgn._runtime import is_integer

__all__ = ["compile_ahead", "main"]

_BAR_WIDTH = 20

# What is called for the first time, one after the other, with a model and an incomplete table.
_CALLS: dict[str, Callable[[PiecewiseAffineDGN, Any], object]] = {
    "fit": lambda model, X: model.fit(X),
    "score_samples": lambda model, X: model.score_samples(X),
    "posterior": lambda model, X: model.posterior(X).mode(),
    "impute": lambda model, X: model.impute(X),
    "sample": lambda model, X: model.impute(X, method="sample", random_state=0),
}


def compile_ahead(n_components: Sequence[int] = (1, 2, 3), verbose: int = 1) -> int:
    """Compile the kernels that `fit`, `score_samples`, `posterior` and `impute` require.

    Parameters
    ----------
    n_components : sequence of int, default=(1, 2, 3)
        Numbers of latent dimensions to compile for.
    verbose : int, default=1
        1 shows a progress bar on standard error, 0 shows nothing.

    Returns
    -------
    n_compiled : int
        Number of functions that had to be compiled; 0 if all of them were cached.

    Examples
    --------
    >>> from skdgn.compile import compile_ahead
    >>> n_compiled = compile_ahead([1], verbose=0)
    >>> compile_ahead([1], verbose=0)
    0
    """
    sizes = list(n_components)
    if not all(is_integer(size) and size > 0 for size in sizes):
        raise ValueError(f"n_components must be a sequence of positive integers, got {sizes}.")
    counter = _Counter()
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[::2, 0] = np.nan
    n_tasks, n_done, started = len(sizes) * len(_CALLS), 0, time.perf_counter()
    with warnings.catch_warnings(), event.install_listener("numba:compile", counter):
        warnings.simplefilter("ignore", ConvergenceWarning)  # two iterations are not many
        for size in sizes:
            model = PiecewiseAffineDGN(
                size, hidden_layer_sizes=(2,), max_iter=2, random_state=0, verbose=-1
            )
            for name, call in _CALLS.items():
                if verbose > 0:
                    label = f"{name}, n_components={size}"
                    _show(n_done / n_tasks, label, time.perf_counter() - started)
                call(model, X)
                n_done += 1
    if verbose > 0:
        _show(1.0, f"{counter.n_compiled} functions compiled", time.perf_counter() - started)
        if sys.stderr.isatty():
            print(file=sys.stderr)
    return counter.n_compiled


class _Counter(event.Listener):
    """Counts compiled functions."""

    def __init__(self) -> None:
        self.n_compiled = 0

    def on_start(self, event: Any) -> None:
        """Numba begins to compile one."""
        self.n_compiled += 1

    def on_end(self, event: Any) -> None:
        """It is done."""


def _show(share: float, label: str, seconds: float) -> None:
    """Draw a bar: over the last one on a terminal, in a line of its own elsewhere."""
    done = round(_BAR_WIDTH * share)
    line = f"[{'#' * done}{'.' * (_BAR_WIDTH - done)}]  {seconds:5.1f} s  {label}"
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command ``python -m skdgn.compile``.

    Parameters
    ----------
    arguments : sequence of str, default=None
        Options of the command; None uses those of this process.

    Examples
    --------
    >>> from skdgn.compile import main
    >>> main(["--n-components", "1", "--quiet"])
    """
    parser = argparse.ArgumentParser(
        prog="python -m skdgn.compile",
        description="Compile ahead of time what the first calls would have to wait for.",
    )
    parser.add_argument(
        "--n-components",
        type=int,
        nargs="+",
        default=[1, 2, 3],
        metavar="S",
        help="numbers of latent dimensions to compile for (default: 1 2 3)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    options = parser.parse_args(arguments)
    try:
        compile_ahead(options.n_components, verbose=0 if options.quiet else 1)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
