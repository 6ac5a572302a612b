"""Packages that need not be installed."""

from __future__ import annotations

from importlib import import_module


def require(package: str, extra: str, caller: str) -> None:
    """Raise an error that says what to install, unless a package can be imported."""
    try:
        import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{caller} requires {package}. You can install it with `pip install skdgn[{extra}]`."
        ) from error


__all__ = ["require"]
