"""Packages that need not be installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def require(package: str, extra: str, caller: str) -> Any:
    """Import a package, or raise an error that says what to install."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f'{caller} requires {package}. You can install it with `pip install "skdgn[{extra}]"`.'
        ) from error


__all__ = ["require"]
