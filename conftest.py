"""Settings of all tests, and of the examples in docstrings and pages."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

# No window is opened, whatever the machine: set before anything imports matplotlib.
os.environ["MPLBACKEND"] = "Agg"

NEEDS_TORCH = ("import torch", "skdgn.vae")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Close what a test has drawn; matplotlib warns of too many open figures."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def pytest_collection_finish() -> None:
    """Do not look for garbage among what was imported, again and again (joblib: for every fork)."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip examples that need PyTorch where it is not installed; tests skip themselves."""
    if find_spec("torch") is not None:
        return
    skip = pytest.mark.skip(reason="PyTorch is not installed")
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            source = "".join(example.source for example in item.dtest.examples)
            if any(phrase in source for phrase in NEEDS_TORCH):
                item.add_marker(skip)
