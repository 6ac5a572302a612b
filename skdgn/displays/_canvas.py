"""Where displays draw, and in which style; matplotlib is imported when it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def require_matplotlib(caller: str) -> None:
    """Raise an error that says what to install."""
    try:
        import matplotlib  # noqa: F401  (is it there?)
    except ImportError as error:
        raise ImportError(
            f"{caller} requires matplotlib. You can install it with `pip install skdgn[plot]`."
        ) from error


def choose_axes(ax: Axes | None, caller: str) -> Axes:
    """Return the axes given, or those of a new figure."""
    require_matplotlib(caller)
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes

    if ax is None:
        return plt.subplots(layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise ValueError(f"ax must be matplotlib Axes or None, got {ax!r}.")
    return ax


def merge_style(
    defaults: Mapping[str, Any], given: Mapping[str, Any], artist: type
) -> dict[str, Any]:
    """Override the style of an artist; what is given may go by other names (``lw``, ``c``)."""
    from matplotlib.cbook import normalize_kwargs

    return {**defaults, **normalize_kwargs(dict(given), artist)}
