"""SizePathDisplay: which sizes were tried, and what the criterion said of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from skdgn._estimators import check_density
from skdgn._runtime import require
from skdgn.displays._canvas import choose_axes, merge_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

_LABELS = {
    "bic": "BIC",
    "aic": "AIC",
    "validation": "mean log density of held-out samples, negative",
}


class SizePathDisplay:
    """Visualization of the criterion of all sizes tried, by the number of parameters.

    Use `from_estimator` to create it; the parameters are stored as attributes.

    Parameters
    ----------
    path : dict of array-like
        ``path_`` of a fitted estimator.  A line is interrupted where a new ``"part"`` begins, if
        there is such a column.
    value_name : str, default="criterion"
        Label of the vertical axis.

    Attributes
    ----------
    lines_ : list of Line2D
        One for each kind of noise and number of latent dimensions, in the order in which sizes
        were tried.
    best_ : Line2D
        The chosen sizes.
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the plot.

    Examples
    --------
    >>> from skdgn import PiecewiseAffineDGN, SizePathDisplay
    >>> from skdgn.datasets import make_wave
    >>> X = make_wave(100, random_state=0)
    >>> model = PiecewiseAffineDGN(hidden_layer_sizes="auto", random_state=0).fit(X)
    >>> display = SizePathDisplay.from_estimator(model)
    >>> bool(display.best_.get_ydata()[0] == min(model.path_["criterion"]))
    True
    """

    # Set by `plot`.
    lines_: list[Line2D]
    best_: Line2D
    ax_: Axes
    figure_: Figure | SubFigure

    def __init__(self, *, path: Mapping[str, Any], value_name: str = "criterion") -> None:
        self.path = path
        self.value_name = value_name

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the sizes that a fit has tried.

        Parameters
        ----------
        estimator : PiecewiseAffineDGN or DGNMixture
            Estimator fitted with automatic sizes, ``"auto"``.
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.
        **kwargs : dict
            Passed to matplotlib's `plot` for every line.

        Returns
        -------
        display : SizePathDisplay
            The display, with ``ax_``, ``figure_`` and the artists.

        Examples
        --------
        >>> from skdgn import DGNMixture, SizePathDisplay
        >>> from skdgn.datasets import make_noisy_circle
        >>> X = make_noisy_circle(100, random_state=0)
        >>> mixture = DGNMixture(n_networks="auto", random_state=0).fit(X)
        >>> display = SizePathDisplay.from_estimator(mixture)
        >>> [line.get_label() for line in display.lines_]
        ['full noise', 'diag noise']
        """
        require("matplotlib", "plot", f"{cls.__name__}.from_estimator")
        check_density(estimator)
        if not hasattr(estimator, "path_"):
            raise ValueError(
                'estimator must have been fitted with sizes that were left to it, as "auto", '
                f"got {estimator!r}."
            )
        display = cls(path=estimator.path_, value_name=_LABELS[estimator.criterion])
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Plot again.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.
        **kwargs : dict
            Passed to matplotlib's `plot` for every line.

        Returns
        -------
        display : SizePathDisplay
            The display, with ``ax_``, ``figure_`` and the artists.

        Examples
        --------
        >>> from skdgn import SizePathDisplay
        >>> path = {
        ...     "n_parameters": [5, 17],
        ...     "n_components": [1, 1],
        ...     "covariance_type": ["full", "full"],
        ...     "criterion": [400.0, 300.0],
        ... }
        >>> display = SizePathDisplay(path=path).plot()
        >>> display.best_.get_xdata()
        array([17])
        """
        self.ax_ = choose_axes(ax, f"{type(self).__name__}.plot")
        from matplotlib.lines import Line2D
        from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

        self.figure_ = self.ax_.figure
        sizes, values = (np.asarray(self.path[name]) for name in ("n_parameters", "criterion"))
        dimensions = self.path["n_components"]
        parts = np.asarray(self.path.get("part", np.zeros(len(sizes))))
        kinds = list(zip(dimensions, self.path["covariance_type"], strict=True))
        self.lines_ = []
        for kind in dict.fromkeys(kinds):
            own = [place for place, other in enumerate(kinds) if other == kind]
            latent = f", n_components={kind[0]}" if len(set(dimensions)) > 1 else ""
            label = f"{kind[1]} noise{latent}"
            style = merge_style({"marker": ".", "label": label}, kwargs, Line2D)
            gaps = np.flatnonzero(np.diff(parts[own])) + 1
            drawn = [
                np.insert(column[own].astype(float), gaps, np.nan) for column in (sizes, values)
            ]
            self.lines_ += self.ax_.plot(*drawn, **style)
        best = [int(np.argmin(values))]
        (self.best_,) = self.ax_.plot(
            sizes[best], values[best], "*", color="black", markersize=12, label="chosen"
        )
        self.ax_.set(xscale="log", xlabel="number of parameters", ylabel=self.value_name)
        # Plain numbers, few enough not to overlap where the axis spans less than a decade.
        self.ax_.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        self.ax_.xaxis.set_major_formatter(ScalarFormatter())
        self.ax_.xaxis.set_minor_formatter(NullFormatter())
        self.ax_.legend()
        return self
