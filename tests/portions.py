"""Cases in portions: one for every run of the tests, all of them for `make thorough`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def portions(total: int, size: int) -> list[Any]:
    """Return the first case of each portion, as parameters of a test that goes through one."""
    return usually(range(0, total, size), 1)


def usually(cases: Sequence[Any], n_usual: int) -> list[Any]:
    """Return cases of which every run takes the first; a case that is a tuple has several names."""
    later = [case if isinstance(case, tuple) else (case,) for case in cases[n_usual:]]
    return [
        *cases[:n_usual],
        *(pytest.param(*case, marks=pytest.mark.thorough) for case in later),
    ]
