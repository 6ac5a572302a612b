"""Examples in docstrings and pages that need PyTorch are skipped where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

NEEDS_TORCH = ("import torch", "skdgn.vae")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the examples; tests skip themselves."""
    if find_spec("torch") is not None:
        return
    skip = pytest.mark.skip(reason="PyTorch is not installed")
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            source = "".join(example.source for example in item.dtest.examples)
            if any(phrase in source for phrase in NEEDS_TORCH):
                item.add_marker(skip)
