"""Where the time of a fit goes: compiled kernels, BLAS and LAPACK, and the rest by module.

Processor time under Python's own profiler, in one thread, kernels compiled beforehand.  What a
module spends in NumPy and SciPy counts as its own, and so do products of matrices: the profiler
does not see operators.  So what is called BLAS and LAPACK here is less than there is of it.
"""

from __future__ import annotations

import cProfile
import pkgutil
import pstats
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from tables import make_curve, make_sheet
from threadpoolctl import threadpool_limits

import skdgn
from skdgn import PiecewiseAffineDGN

Row = tuple[str, float, str, bool]  # what, value, target, whether it is met
Function = tuple[str, int, str]  # file, line, name: how the profiler calls a function

MOST_OF_A_MODULE = 0.15
PACKAGE = Path(skdgn.__file__).parent
DEEPEST_CALL = 30  # of what is nobody's, such as NumPy's functions that call each other
LINEAR_ALGEBRA = ("lapack", "linalg", "fortran", "numpy.dot", "matmul", "einsum")


def find_kernels() -> set[tuple[str, int]]:
    """List file and line of every compiled function."""
    kernels = set()
    for module in pkgutil.walk_packages([str(PACKAGE)], "skdgn."):
        try:
            members = vars(import_module(module.name)).values()
        except ImportError:
            continue  # needs what is not installed, so that no fit needs it
        codes = (member.py_func.__code__ for member in members if hasattr(member, "py_func"))
        kernels.update((code.co_filename, code.co_firstlineno) for code in codes)
    return kernels


def shares_by_owner(profile: cProfile.Profile) -> dict[str, float]:
    """Return the share of the time of kernels, linear algebra, and each module of the package."""
    entries = pstats.Stats(profile).stats
    kernels = find_kernels()

    def own(function: Function) -> str | None:
        file, line, name = function
        if (file, line) in kernels:
            return "kernels"
        if Path(file).is_relative_to(PACKAGE):
            return Path(file).relative_to(PACKAGE).as_posix()
        if file == "~" and any(word in name.lower() for word in LINEAR_ALGEBRA):
            return "BLAS and LAPACK"
        return None

    # A function of nobody's is shared among those who called it, by the time spent for them; these
    # may be nobody's as well, or call each other: so shares move up one call in every round.
    shares = {function: {own(function) or "elsewhere": 1.0} for function in entries}
    callers = {
        function: {caller: counts[3] + 1e-9 for caller, counts in entries[function][4].items()}
        for function in entries
        if own(function) is None and entries[function][4]
    }
    for _ in range(DEEPEST_CALL):
        shares |= {function: mix(above, shares) for function, above in callers.items()}
    seconds: dict[str, float] = defaultdict(float)
    for function, (_, _, own_seconds, _, _) in entries.items():
        for name, share in shares[function].items():
            seconds[name] += share * own_seconds
    total = sum(seconds.values())
    return {name: value / total for name, value in seconds.items()}


def mix(
    callers: dict[Function, float], shares: dict[Function, dict[str, float]]
) -> dict[str, float]:
    """Average the shares of callers, weighted by time (a call may be too short to be seen)."""
    result: dict[str, float] = defaultdict(float)
    total = sum(callers.values())
    for caller, seconds in callers.items():
        for name, share in shares[caller].items():
            result[name] += share * seconds / total
    return result


def profile_fit(rows: np.ndarray, n_components: int) -> dict[str, float]:
    """Profile a fit by shares."""
    model = PiecewiseAffineDGN(n_components, random_state=0)
    with threadpool_limits(1), warnings.catch_warnings():
        # Whether it converges within its iterations does not matter here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows)  # compiles: a shorter fit would not need all kernels
        profile = cProfile.Profile(time.process_time)
        profile.enable()
        model.fit(rows)
        profile.disable()
    return shares_by_owner(profile)


def measure() -> list[Row]:
    """Return name, value, target and whether it is met."""
    table: list[Row] = []
    fits: tuple[tuple[int, Callable[[int], np.ndarray]], ...] = ((1, make_curve), (2, make_sheet))
    for n_components, make_table in fits:
        shares = profile_fit(make_table(0), n_components)
        title = f"fit of 10,000 x 10, n_components={n_components}, share of"
        computing = {name: shares.pop(name, 0.0) for name in ("kernels", "BLAS and LAPACK")}
        for name, share in computing.items():
            table.append((f"{title} {name}", share, "", True))
        for place, name in enumerate(sorted(shares, key=lambda name: -shares[name])[:4]):
            met = shares[name] <= MOST_OF_A_MODULE
            target = f"<= {MOST_OF_A_MODULE}" if place == 0 else ""
            table.append((f"{title} {name}", shares[name], target, met))
        table.append((f"{title} everything else", sum(sorted(shares.values())[:-4]), "", True))
    return table


if __name__ == "__main__":
    for name, value, target, met in measure():
        print(
            f"{name:72s} {value:8.3f}  {target:8s} {('met' if met else 'NOT MET') * bool(target)}"
        )
