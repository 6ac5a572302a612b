"""Where displays draw, and in which style; matplotlib is imported when it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skdgn._runtime import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def choose_axes(ax: Axes | None, caller: str) -> Axes:
    """Return the axes given, or those of a new figure."""
    require("matplotlib", "plot", caller)
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
