"""Settings of all tests and doctests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

# No window is opened, whatever the machine: set before anything imports matplotlib.
os.environ["MPLBACKEND"] = "Agg"


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Close what a test has drawn; matplotlib warns of too many open figures."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
