"""LatentPartitionDisplay: the regions of latent space on which the generator is affine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skdgn._runtime import Floats, require
from skdgn.displays._canvas import choose_axes, merge_style
from skdgn.displays._checks import (
    check_drawable,
    check_samples,
    check_window,
)
from skdgn.displays._outlines import cut_to_window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

_MANY_CELLS = 300


class LatentPartitionDisplay:
    """Visualization of the regions of latent space, colored by prior mass or responsibility.

    The generator is affine on each region.  Use `from_estimator` to create the display; the
    parameters are stored as attributes.

    Parameters
    ----------
    corners : list of ndarray of shape (2, 1) or (n_corners, 2)
        For each region drawn, the ends of an interval or the corners of a polygon.
    values : ndarray of shape (n_drawn,)
        Values that determine the colors of the regions.
    window : ndarray of shape (n_components, 2)
        Lowest and highest value of every latent dimension.
    value_name : str, default="prior mass"
        Label of the color bar.

    Attributes
    ----------
    cells_ : PolyCollection
        One polygon per region drawn.
    prior_ : Line2D or None
        Density of the prior, if there is one latent dimension: the area under it between two
        neighboring boundaries is the prior mass of the region between them.
    colorbar_ : Colorbar or None
        Color bar of the plot.
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the plot.

    See Also
    --------
    PosteriorDisplay : Posterior of the latent variables given a sample.

    Examples
    --------
    >>> from skdgn import LatentPartitionDisplay, PiecewiseAffineDGN
    >>> model = PiecewiseAffineDGN.from_network(
    ...     coefs=[[[1.0], [1.0]], [[1.0, 0.5], [0.0, 2.0]]],
    ...     intercepts=[[0.0, 1.0], [0.0, 0.0]],
    ...     noise_covariance=0.1,
    ...     activation="relu",
    ... )
    >>> display = LatentPartitionDisplay.from_estimator(model)
    >>> display.values.round(3)  # boundaries at -1 and 0
    array([0.159, 0.341, 0.5  ])
    """

    # Set by `plot`.
    cells_: PolyCollection
    prior_: Line2D | None
    colorbar_: Colorbar | None
    ax_: Axes
    figure_: Figure | SubFigure

    def __init__(
        self,
        *,
        corners: Sequence[Floats],
        values: Floats,
        window: Floats,
        value_name: str = "prior mass",
    ) -> None:
        self.corners = corners
        self.values = values
        self.window = window
        self.value_name = value_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike | None = None,
        *,
        window: ArrayLike = (-4.0, 4.0),
        colorbar: bool = True,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the regions of a fitted model.

        Parameters
        ----------
        estimator : PiecewiseAffineDGN
            Fitted estimator with one or two latent dimensions.
        X : array-like of shape (n_samples, n_features), default=None
            Samples whose responsibilities color the regions, averaged if there are several.  None
            colors the regions by prior mass.
        window : pair of float or pair of pairs, default=(-4.0, 4.0)
            Lowest and highest value of the latent variables, the same for both or one pair each.
            Only the parts of regions inside the window are drawn.
        colorbar : bool, default=True
            Whether to add a color bar.
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.
        **kwargs : dict
            Passed to matplotlib's `PolyCollection`, such as ``cmap``, ``norm`` or ``edgecolor``.

        Returns
        -------
        display : LatentPartitionDisplay
            The display, with ``ax_``, ``figure_`` and the artists.

        Examples
        --------
        >>> from skdgn import LatentPartitionDisplay, PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )  # x = |z| + noise: both regions explain an x
        >>> LatentPartitionDisplay.from_estimator(model, [[2.0]]).values
        array([0.5, 0.5])
        """
        require("matplotlib", "plot", f"{cls.__name__}.from_estimator")
        model = check_drawable(estimator)
        limits = check_window(window, model._n_features_out)
        if X is None:
            values, name = model.weights_, "prior mass"
        else:
            responsibilities = check_samples(X, model).responsibilities
            values = responsibilities.mean(axis=0)
            name = "responsibility" if len(responsibilities) == 1 else "mean responsibility"
        outlines = cut_to_window(model.partition_.cells, limits)
        display = cls(
            corners=outlines.corners,
            values=values[outlines.regions],
            window=limits,
            value_name=name,
        )
        return display.plot(ax=ax, colorbar=colorbar, **kwargs)

    def plot(self, ax: Axes | None = None, *, colorbar: bool = True, **kwargs: Any) -> Self:
        """Plot again.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.
        colorbar : bool, default=True
            Whether to add a color bar.
        **kwargs : dict
            Passed to matplotlib's `PolyCollection`, such as ``cmap``, ``norm`` or ``edgecolor``.

        Returns
        -------
        display : LatentPartitionDisplay
            The display, with ``ax_``, ``figure_`` and the artists.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import LatentPartitionDisplay
        >>> triangle = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> display = LatentPartitionDisplay(
        ...     corners=[triangle, 1.0 - triangle],
        ...     values=np.array([0.2, 0.1]),
        ...     window=np.array([[0.0, 1.0], [0.0, 1.0]]),
        ... ).plot(cmap="cividis")
        >>> display.cells_.get_array()
        masked_array(data=[0.2, 0.1], ...
        """
        self.ax_ = choose_axes(ax, f"{type(self).__name__}.plot")
        from matplotlib.collections import PolyCollection
        from matplotlib.colors import Normalize

        is_line = len(self.window) == 1
        corners = [_as_band(ends) for ends in self.corners] if is_line else self.corners
        # Of many cells, the lines between them would cover the rest.
        linewidth = 0.8 * min(1.0, math.sqrt(_MANY_CELLS / max(1, len(corners))))
        defaults: dict[str, Any] = {"cmap": "Blues", "edgecolor": "0.45", "linewidth": linewidth}
        # Nothing has the palest color, whatever the smallest value is.
        if "norm" not in kwargs:
            defaults["norm"] = Normalize(vmin=0.0)
        style = merge_style(defaults, kwargs, PolyCollection)
        self.cells_ = PolyCollection(corners, array=self.values, **style)
        if is_line:
            self.cells_.set_transform(self.ax_.get_xaxis_transform())
        self.ax_.add_collection(self.cells_, autolim=False)
        self.ax_.set_xlim(*self.window[0])
        self.prior_ = None
        if is_line:
            latent = np.linspace(self.window[0, 0], self.window[0, 1], 400)
            density = np.exp(-0.5 * latent**2) / math.sqrt(2.0 * math.pi)
            (self.prior_,) = self.ax_.plot(latent, density, color="tab:orange", linewidth=2.0)
            self.ax_.set(xlabel="$z$", ylabel="prior density")
            self.ax_.set_ylim(bottom=0.0)
        else:
            self.ax_.set(ylim=self.window[1], xlabel="$z_1$", ylabel="$z_2$", aspect="equal")
        self.figure_ = self.ax_.figure
        self.colorbar_ = None
        if colorbar:
            label = f"{self.value_name} of the region"
            self.colorbar_ = self.figure_.colorbar(self.cells_, ax=self.ax_, label=label)
        return self


def _as_band(ends: Floats) -> Floats:
    """Turn an interval into a rectangle over the whole height of the axes."""
    (lower,), (upper,) = ends
    return np.array([[lower, 0.0], [upper, 0.0], [upper, 1.0], [lower, 1.0]])
