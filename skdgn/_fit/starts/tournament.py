"""A tournament of candidates: rounds of fewer of them, with more work on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Candidate = TypeVar("Candidate")


def hold_tournament(
    candidates: list[Candidate],
    rounds: Iterable[tuple[int, int]],
    score: Callable[[Candidate], float],
    improve: Callable[[Candidate, int], Candidate],
) -> Candidate:
    """Improve the best of the candidates, and the best of these again; return the winner.

    A round says how many enter it, and how much work there is on each.  The list holds who is left
    at any time, as an interrupt may find it.  Rounds may depend on those before: they are asked for
    one at a time.
    """
    for n_candidates, effort in rounds:
        candidates.sort(key=score, reverse=True)
        del candidates[n_candidates:]
        for place, candidate in enumerate(candidates):
            candidates[place] = improve(candidate, effort)
    return max(candidates, key=score)
