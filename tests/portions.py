"""Random cases in portions: one for every run of the tests, all of them for `make thorough`."""

from __future__ import annotations

from typing import Any

import pytest


def portions(total: int, size: int) -> list[Any]:
    """Return the first case of each portion, as parameters of a test that goes through one."""
    later = (pytest.param(first, marks=pytest.mark.thorough) for first in range(size, total, size))
    return [0, *later]
