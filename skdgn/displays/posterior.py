"""PosteriorDisplay: the latent points that explain a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skdgn._posterior import Posterior
from skdgn._runtime import Floats, require
from skdgn.displays._canvas import choose_axes, merge_style
from skdgn.displays._checks import (
    check_drawable,
    check_resolution,
    check_samples,
    check_window,
)
from skdgn.displays._outlines import cut_to_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

# The window holds the regions of at least this share of the largest responsibility, up to this many
# deviations from the mean in each of them: almost all of the mass, whatever its shape.
_LEAST_SHARE = 0.01
_REACH = 4.0


class PosteriorDisplay:
    """Visualization of the exact posterior of the latent variables given a sample.

    The posterior is drawn as a curve or a map, with its mean, its mode and the boundaries of the
    regions.  Use `from_estimator` to create the display; the parameters are stored as attributes.

    Parameters
    ----------
    axes_values : list of ndarray of shape (n_points,)
        Grid values of each latent dimension.
    density : ndarray of shape (n_points,) or (n_points, n_points)
        Posterior density on the grid; the first axis corresponds to the last latent dimension, as
        in matplotlib.
    corners : list of ndarray of shape (2, 1) or (n_corners, 2)
        Ends or corners of the regions in the window.
    mean, mode : ndarray of shape (n_components,)
        Mean and mode of the posterior.
    mean_density, mode_density : float
        Posterior density at the mean and at the mode.

    Attributes
    ----------
    density_ : Line2D or QuadMesh
        The curve, or the map.
    borders_ : LineCollection or PolyCollection
        The boundaries of the regions.
    mean_, mode_ : Line2D
        Markers of the mean and the mode; for one latent dimension, they lie on the curve.
    colorbar_ : Colorbar or None
        Color bar of a map.
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the plot.

    See Also
    --------
    PiecewiseAffineDGN.posterior : The posterior itself.
    LatentPartitionDisplay : The regions.

    Examples
    --------
    >>> from skdgn import PiecewiseAffineDGN, PosteriorDisplay
    >>> model = PiecewiseAffineDGN.from_network(
    ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
    ... )  # x = |z| + noise: two values of z explain an x
    >>> display = PosteriorDisplay.from_estimator(model, [[2.0]])
    >>> abs(display.mean.round(6)), abs(display.mode)
    (array([0.]), array([1.6]))
    """

    # Set by `plot`.
    density_: Any
    borders_: LineCollection | PolyCollection
    mean_: Line2D
    mode_: Line2D
    colorbar_: Colorbar | None
    ax_: Axes
    figure_: Figure | SubFigure

    def __init__(
        self,
        *,
        axes_values: Sequence[Floats],
        density: Floats,
        corners: Sequence[Floats],
        mean: Floats,
        mode: Floats,
        mean_density: float,
        mode_density: float,
    ) -> None:
        self.axes_values = axes_values
        self.density = density
        self.corners = corners
        self.mean = mean
        self.mode = mode
        self.mean_density = mean_density
        self.mode_density = mode_density

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        window: ArrayLike | None = None,
        grid_resolution: int = 200,
        colorbar: bool = True,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the posterior of one sample under a fitted model.

        Parameters
        ----------
        estimator : PiecewiseAffineDGN
            Fitted estimator with one or two latent dimensions.
        X : array-like of shape (1, n_features)
            The sample; missing values are NaN.
        window : pair of float or pair of pairs, default=None
            Lowest and highest value of the latent variables, the same for both or one pair each.
            None covers almost all of the posterior mass.
        grid_resolution : int, default=200
            Number of grid points along each axis.  A curve has two additional points next to every
            boundary.
        colorbar : bool, default=True
            Whether to add a color bar to a map.
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.
        **kwargs : dict
            Passed to matplotlib's `plot` (one latent dimension) or `pcolormesh` (two).

        Returns
        -------
        display : PosteriorDisplay
            The display, with ``ax_``, ``figure_`` and the artists.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN, PosteriorDisplay
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0], [2.0]]], [[0.0, 0.0]], 1.0, activation="relu"
        ... )
        >>> display = PosteriorDisplay.from_estimator(model, [[1.0, 2.0]], color="black")
        >>> display.mean.round(4), display.mode.round(4)
        (array([0.8333]), array([0.8333]))
        """
        require("matplotlib", "plot", f"{cls.__name__}.from_estimator")
        model = check_drawable(estimator)
        resolution = check_resolution(grid_resolution)
        n_components = model._n_features_out
        limits = None if window is None else check_window(window, n_components)
        posterior = check_samples(X, model)
        if len(posterior) != 1:
            raise ValueError(
                f"X must be one sample, of shape (1, n_features), got {len(posterior)}."
            )
        mean, mode = posterior.mean[0], posterior.mode()[0]
        if limits is None:
            limits = _window_of(posterior, mode)
        outlines = cut_to_window(model.partition_.cells, limits)
        axes_values = [np.linspace(lowest, highest, resolution) for lowest, highest in limits]
        if n_components == 1:
            # The curve has a corner at every border.
            axes_values = [np.union1d(axes_values[0], _borders(outlines.corners))]
        grid = np.stack(np.meshgrid(*axes_values), axis=-1)
        points = np.concatenate([grid.reshape(-1, n_components), [mean], [mode]])
        density = np.exp(posterior.log_density(points)[0])
        display = cls(
            axes_values=axes_values,
            density=density[:-2].reshape(grid.shape[:-1]),
            corners=outlines.corners,
            mean=mean,
            mode=mode,
            mean_density=float(density[-2]),
            mode_density=float(density[-1]),
        )
        return display.plot(ax=ax, colorbar=colorbar, **kwargs)

    def plot(self, ax: Axes | None = None, *, colorbar: bool = True, **kwargs: Any) -> Self:
        """Plot again.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.
        colorbar : bool, default=True
            Whether to add a color bar to a map.
        **kwargs : dict
            Passed to matplotlib's `plot` (one latent dimension) or `pcolormesh` (two).

        Returns
        -------
        display : PosteriorDisplay
            The display, with ``ax_``, ``figure_`` and the artists.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN, PosteriorDisplay
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0]]], [[0.0], [0.0]], 0.25, activation="abs"
        ... )
        >>> display = PosteriorDisplay.from_estimator(model, [[2.0]])
        >>> display.plot(ax=display.ax_, linestyle="--").density_.get_linestyle()
        '--'
        """
        self.ax_ = choose_axes(ax, f"{type(self).__name__}.plot")
        self.figure_ = self.ax_.figure
        self.colorbar_ = None
        if len(self.axes_values) == 1:
            self._plot_curve(kwargs)
            heights = [[self.mean_density], [self.mode_density]]
        else:
            self._plot_map(colorbar, kwargs)
            heights = [[], []]
        # The smaller on top of the larger one: they often coincide.
        circle: dict[str, Any] = {"marker": "o", "color": "white", "markersize": 5.0, "zorder": 4}
        star: dict[str, Any] = {"marker": "*", "color": "tab:orange", "markersize": 15.0}
        common: dict[str, Any] = {
            "linestyle": "",
            "markeredgecolor": "black",
            "markeredgewidth": 0.8,
        }
        markers = []
        for point, height, label, style in (
            (self.mean, heights[0], "mean", circle),
            (self.mode, heights[1], "mode", star),
        ):
            position = np.append(point, height)[:, None]
            markers += self.ax_.plot(*position, label=label, **common, **style)
            # A marker on the frame is not cut in halves; one beyond it is not drawn.
            markers[-1].set_clip_on(not self._holds(point))
        self.mean_, self.mode_ = markers
        self.ax_.legend(handles=markers)
        return self

    def _holds(self, point: Floats) -> bool:
        """Tell whether a latent point is in the window."""
        pairs = zip(point, self.axes_values, strict=True)
        return all(bool(axis[0] <= value <= axis[-1]) for value, axis in pairs)

    def _plot_curve(self, style: dict[str, Any]) -> None:
        from matplotlib.collections import LineCollection
        from matplotlib.lines import Line2D

        (latent,) = self.axes_values
        lines = [[(z, 0.0), (z, 1.0)] for z in _borders(self.corners)]
        self.borders_ = LineCollection(
            lines, transform=self.ax_.get_xaxis_transform(), color="0.8", linewidth=0.8
        )
        self.ax_.add_collection(self.borders_, autolim=False)
        (self.density_,) = self.ax_.plot(
            latent, self.density, **merge_style({"color": "tab:blue"}, style, Line2D)
        )
        self.ax_.set(xlabel="$z$", ylabel="posterior density", xlim=(latent[0], latent[-1]))
        self.ax_.set_ylim(bottom=0.0)

    def _plot_map(self, colorbar: bool, style: dict[str, Any]) -> None:
        from matplotlib.collections import PolyCollection

        defaults: dict[str, Any] = {"cmap": "viridis", "shading": "gouraud"}
        self.density_ = self.ax_.pcolormesh(*self.axes_values, self.density, **(defaults | style))
        self.borders_ = PolyCollection(
            self.corners, facecolor="none", edgecolor="white", linewidth=0.5, alpha=0.6
        )
        self.ax_.add_collection(self.borders_, autolim=False)
        if colorbar:
            self.colorbar_ = self.figure_.colorbar(
                self.density_, ax=self.ax_, label="posterior density"
            )
        across, upward = self.axes_values
        self.ax_.set(
            xlabel="$z_1$",
            ylabel="$z_2$",
            xlim=(across[0], across[-1]),
            ylim=(upward[0], upward[-1]),
        )


def _window_of(posterior: Posterior, mode: Floats) -> Floats:
    """Lowest and highest values (S, 2) worth drawing."""
    visits = posterior._visits
    heavy = visits.responsibilities >= _LEAST_SHARE * visits.responsibilities.max()
    means = visits.means[heavy]
    reach = _REACH * np.sqrt(np.diagonal(visits.covariances[heavy], axis1=1, axis2=2))
    lowest = np.minimum((means - reach).min(axis=0), mode)
    highest = np.maximum((means + reach).max(axis=0), mode)
    return np.stack([lowest, highest], axis=1)


def _borders(corners: Sequence[Floats]) -> Floats:
    """Where intervals meet, in order."""
    return np.sort([ends[0, 0] for ends in corners])[1:]
