"""Levenberg-Marquardt: steps that are damped until one is accepted, and grow bolder then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Trial = TypeVar("Trial")


@dataclass
class Damping:
    """How much steps are damped, relative to the diagonal of their system; and the rules of that.

    The defaults are those of EM.
    """

    value: float = 1e-1
    decrease: float = 0.25
    increase: float = 6.0
    smallest: float = 1e-7
    largest: float = 1e6

    def search(self, attempt: Callable[[float], Trial | None], most_trials: int) -> Trial | None:
        """Try shorter and shorter steps; return the first that is accepted (not None)."""
        for _ in range(most_trials):
            trial = attempt(self.value)
            if trial is not None:
                return trial
            self.tighten()
        return None

    def tighten(self) -> None:
        """Take a shorter step next time."""
        self.value = min(self.increase * max(self.value, self.smallest), self.largest)

    def relax(self) -> None:
        """Take a bolder step next time."""
        self.value = max(self.decrease * self.value, self.smallest)


# What leaves a system definite and a step whole.
SMALLEST_DAMPING = Damping.smallest
FIRST_DAMPING = Damping.value
