"""What fits warn of: at once, or together where several fits are one to whoever asked for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

# A warning names so many features.
_MOST_NAMES = 5


class Complaint(NamedTuple):
    """Of one fit."""

    has_converged: bool
    bound_by_ties: list[int]  # features whose noise is as small as ties allow


_collected: ContextVar[list[Complaint] | None] = ContextVar("collected complaints", default=None)


@contextmanager
def collect_complaints() -> Iterator[list[Complaint]]:
    """Collect what fits of this thread would warn of."""
    complaints: list[Complaint] = []
    token = _collected.set(complaints)
    try:
        yield complaints
    finally:
        _collected.reset(token)


def complain(
    complaints: Sequence[Complaint], advice: str, names: Sequence[Any], level: int
) -> None:
    """Warn of fits, in the name of whoever called so many levels above, or let it be collected.

    ``advice`` says what did not converge, and what to do; ``names`` are those of the features.
    """
    collected = _collected.get()
    if collected is not None:
        collected.extend(complaints)
        return
    if not all(complaint.has_converged for complaint in complaints):
        warnings.warn(f"EM did not converge {advice}", ConvergenceWarning, stacklevel=level + 1)
    numbers = np.unique([number for own in complaints for number in own.bound_by_ties])
    if numbers.size > 0:
        bound = [str(names[int(number)]) for number in numbers]
        listed = ", ".join(bound[:_MOST_NAMES])
        more = f" and {len(bound) - _MOST_NAMES} more" if len(bound) > _MOST_NAMES else ""
        warnings.warn(
            f"The noise of feature{'s' if len(bound) > 1 else ''} {listed}{more} is as small as "
            "tied values allow (see Notes of PiecewiseAffineDGN): how high the density is there is "
            "set by that floor. Compare such densities with each other only.",
            UserWarning,
            stacklevel=level + 1,
        )
