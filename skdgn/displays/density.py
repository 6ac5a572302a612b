"""DensityDisplay: the exact density of one or two features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skdgn._estimators import ExactDensity, check_density
from skdgn._runtime import Floats, require
from skdgn.displays._canvas import choose_axes, merge_style
from skdgn.displays._checks import (
    check_features,
    check_resolution,
    check_window,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure, SubFigure

PLOT_METHODS = ("pcolormesh", "contourf", "contour")

# Colors of a log density end this far below its peak: what is rarer looks the same.
_DEEPEST = 12.0
# A window holds this many samples drawn from the model, and a margin of this share of their range.
_N_DRAWN = 1000
_MARGIN = 0.1


class DensityDisplay:
    """Visualization of the exact density of two features as a map, or of one as a curve.

    The display shows the marginal density: all other features are integrated out exactly.  Use
    `from_estimator` to create it; the parameters are stored as attributes.

    Parameters
    ----------
    axes_values : list of ndarray of shape (grid_resolution,)
        Grid values of each feature drawn.
    log_density : ndarray of shape (grid_resolution,) or (grid_resolution, grid_resolution)
        Log density on the grid; the first axis corresponds to the last feature, as in matplotlib.
    feature_names : list of str
        Labels of the axes.
    data : ndarray of shape (n_samples, n_drawn_features), default=None
        Samples to draw over the density.

    Attributes
    ----------
    density_ : QuadMesh, QuadContourSet or Line2D
        The map, or the curve.
    data_ : PathCollection, Line2D, StepPatch or None
        The samples: points of a map, a histogram under a density, marks below a log density.
    colorbar_ : Colorbar or None
        Color bar of the plot.
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the plot.

    See Also
    --------
    PiecewiseAffineDGN.score_samples : The density itself.

    Examples
    --------
    >>> from skdgn import DensityDisplay, PiecewiseAffineDGN
    >>> model = PiecewiseAffineDGN.from_network(
    ...     coefs=[[[1.0]], [[1.0], [2.0], [0.5]]],
    ...     intercepts=[[0.0], [0.0, 0.0, 0.0]],
    ...     noise_covariance=0.1,
    ...     activation="abs",
    ... )
    >>> display = DensityDisplay.from_estimator(model, features=[0, 2], grid_resolution=20)
    >>> display.log_density.shape
    (20, 20)
    """

    # Set by `plot`.
    density_: Any
    data_: Any
    colorbar_: Colorbar | None
    ax_: Axes
    figure_: Figure | SubFigure

    def __init__(
        self,
        *,
        axes_values: Sequence[Floats],
        log_density: Floats,
        feature_names: Sequence[str],
        data: Floats | None = None,
    ) -> None:
        self.axes_values = axes_values
        self.log_density = log_density
        self.feature_names = feature_names
        self.data = data

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike | None = None,
        *,
        features: int | str | Sequence[int | str] | None = None,
        window: ArrayLike | None = None,
        grid_resolution: int = 100,
        log: bool | None = None,
        plot_method: str = "pcolormesh",
        colorbar: bool = True,
        data_kwargs: Mapping[str, Any] | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the density of one or two features of a fitted model.

        Parameters
        ----------
        estimator : PiecewiseAffineDGN, DGNMixture or DGNEnsemble
            Fitted estimator with any number of latent dimensions.
        X : array-like of shape (n_samples, n_features), default=None
            Samples to draw over the density; those with a missing value in one of the features are
            left out.
        features : int, str or pair of them, default=None
            Features to draw, by index or, if names are known from `fit`, by name: the first on the
            horizontal axis, the second on the vertical axis.  None draws the first two.
        window : pair of float or pair of pairs, default=None
            Lowest and highest value of the features, the same for both or one pair each.  None
            covers a thousand samples drawn from the model, and those of ``X``.
        grid_resolution : int, default=100
            Number of grid points along each axis.  The time for two features grows with its square.
        log : bool, default=None
            Whether to draw the log density, in nats.  None does so for two features, whose density
            often has a narrow peak, and not for one.
        plot_method : {"pcolormesh", "contourf", "contour"}, default="pcolormesh"
            Matplotlib method that draws a map.
        colorbar : bool, default=True
            Whether to add a color bar to a map.
        data_kwargs : dict, default=None
            Passed to matplotlib's `scatter` (two features), `stairs` or `plot` (one) for the
            samples.
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.
        **kwargs : dict
            Passed to the method given by ``plot_method``, or to `plot` for one feature.

        Returns
        -------
        display : DensityDisplay
            The display, with ``ax_``, ``figure_`` and the artists.

        Examples
        --------
        >>> from skdgn import DensityDisplay, PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0], [2.0]]], [[0.0, 0.0]], 1.0, activation="relu"
        ... )  # the second feature is N(0, 5)
        >>> display = DensityDisplay.from_estimator(
        ...     model, features=1, window=(-5.0, 5.0), grid_resolution=3
        ... )
        >>> display.log_density.round(3)
        array([-4.224, -1.724, -4.224])
        """
        require("matplotlib", "plot", f"{cls.__name__}.from_estimator")
        model = check_density(estimator)
        indices, names = check_features(features, model)
        resolution = check_resolution(grid_resolution)
        _check_method(plot_method)
        data = None if X is None else _check_data(X, model, indices)
        if window is None:
            limits = _window_of(model, indices, data)
        else:
            limits = check_window(window, len(indices))
        axes_values = [np.linspace(lowest, highest, resolution) for lowest, highest in limits]
        grid = np.meshgrid(*axes_values)
        # What is not drawn is missing: the density is then that of the rest.
        samples = np.full((grid[0].size, model.n_features_in_), np.nan)
        for d, values in zip(indices, grid, strict=True):
            samples[:, d] = values.ravel()
        log_density = model._fitted_model().log_density(samples, model._workers())
        display = cls(
            axes_values=axes_values,
            log_density=log_density.reshape(grid[0].shape),
            feature_names=names,
            data=data,
        )
        return display.plot(
            ax=ax,
            log=log,
            plot_method=plot_method,
            colorbar=colorbar,
            data_kwargs=data_kwargs,
            **kwargs,
        )

    def plot(
        self,
        ax: Axes | None = None,
        *,
        log: bool | None = None,
        plot_method: str = "pcolormesh",
        colorbar: bool = True,
        data_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Plot again.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.
        log : bool, default=None
            Whether to draw the log density, in nats; None does so for two features.
        plot_method : {"pcolormesh", "contourf", "contour"}, default="pcolormesh"
            Matplotlib method that draws a map.
        colorbar : bool, default=True
            Whether to add a color bar to a map.
        data_kwargs : dict, default=None
            Passed to matplotlib's `scatter` (two features), `stairs` or `plot` (one) for the
            samples.
        **kwargs : dict
            Passed to the method given by ``plot_method``, or to `plot` for one feature.

        Returns
        -------
        display : DensityDisplay
            The display, with ``ax_``, ``figure_`` and the artists.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import DensityDisplay
        >>> display = DensityDisplay(
        ...     axes_values=[np.array([0.0, 1.0, 2.0])],
        ...     log_density=np.log([0.2, 0.6, 0.2]),
        ...     feature_names=["height"],
        ... ).plot(color="black")
        >>> display.density_.get_ydata()
        array([0.2, 0.6, 0.2])
        """
        _check_method(plot_method)
        self.ax_ = choose_axes(ax, f"{type(self).__name__}.plot")
        self.figure_ = self.ax_.figure
        self.colorbar_ = None
        style = dict(data_kwargs or {})
        if len(self.axes_values) == 1:
            self._plot_curve(bool(log), style, kwargs)
        else:
            self._plot_map(log is None or bool(log), plot_method, colorbar, style, kwargs)
        return self

    def _plot_curve(self, log: bool, data_style: dict[str, Any], style: dict[str, Any]) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import StepPatch

        (positions,) = self.axes_values
        density = self.log_density if log else np.exp(self.log_density)
        self.data_ = None
        if self.data is not None and log:
            marks = merge_style(
                {"marker": "|", "linestyle": "", "color": "0.4", "alpha": 0.5}, data_style, Line2D
            )
            height = np.full(len(self.data), 0.02)  # of the axes
            (self.data_,) = self.ax_.plot(
                self.data[:, 0], height, transform=self.ax_.get_xaxis_transform(), **marks
            )
        elif self.data is not None:
            heights, edges = np.histogram(self.data[:, 0], bins="auto", density=True)
            bars = merge_style({"fill": True, "color": "0.85"}, data_style, StepPatch)
            self.data_ = self.ax_.stairs(heights, edges, **bars)
        (self.density_,) = self.ax_.plot(
            positions, density, **merge_style({"color": "tab:blue"}, style, Line2D)
        )
        self.ax_.set(
            xlabel=self.feature_names[0], ylabel=_label(log), xlim=(positions[0], positions[-1])
        )

    def _plot_map(
        self,
        log: bool,
        plot_method: str,
        colorbar: bool,
        data_style: dict[str, Any],
        style: dict[str, Any],
    ) -> None:
        from matplotlib.collections import PathCollection

        density = self.log_density if log else np.exp(self.log_density)
        defaults: dict[str, Any] = {"cmap": "viridis"}
        if "colors" in style:
            defaults = {}
        lowest = density.max() - _DEEPEST
        if plot_method == "pcolormesh":
            defaults["shading"] = "gouraud"
            if log and "norm" not in style:
                defaults["vmin"] = lowest
        elif log:
            levels = np.arange(np.floor(lowest), np.ceil(density.max()) + 1.0)
            defaults |= {"levels": levels, "extend": "min"}
        else:
            defaults["levels"] = 12
        self.density_ = getattr(self.ax_, plot_method)(
            *self.axes_values, density, **(defaults | style)
        )
        self.data_ = None
        if self.data is not None:
            points: dict[str, Any] = {"s": 8, "edgecolor": "black", "linewidth": 0.3}
            if "c" not in data_style:  # colors by value, which matplotlib wants alone
                points["color"] = "white"
            self.data_ = self.ax_.scatter(
                *self.data.T, **merge_style(points, data_style, PathCollection)
            )
        if colorbar:
            self.colorbar_ = self.figure_.colorbar(
                self.density_, ax=self.ax_, label=_label(log), extend="min" if log else "neither"
            )
        across, upward = self.axes_values
        self.ax_.set(
            xlabel=self.feature_names[0],
            ylabel=self.feature_names[1],
            xlim=(across[0], across[-1]),
            ylim=(upward[0], upward[-1]),
        )


def _label(log: bool) -> str:
    return "log density (nats)" if log else "density"


def _check_method(plot_method: Any) -> None:
    if not isinstance(plot_method, str) or plot_method not in PLOT_METHODS:
        raise ValueError(f"plot_method must be one of {PLOT_METHODS}, got {plot_method!r}.")


def _check_data(X: ArrayLike, model: ExactDensity, indices: Sequence[int]) -> Floats:
    """Return the features drawn of those samples that have them."""
    data = np.asarray(model._validate_samples(X)[:, indices], dtype=np.float64)
    data = data[~np.isnan(data).any(axis=1)]
    if len(data) == 0:
        raise ValueError(
            "X must have a sample in which the features drawn were observed, "
            f"got none for features {list(indices)}."
        )
    return data


def _window_of(model: ExactDensity, indices: Sequence[int], data: Floats | None) -> Floats:
    """Find lowest and highest values (n_axes, 2) to draw."""
    covered = np.asarray(model.sample(_N_DRAWN, random_state=0)[0])[:, indices]
    if data is not None:
        covered = np.concatenate([covered, data])
    lowest, highest = covered.min(axis=0), covered.max(axis=0)
    margin = _MARGIN * (highest - lowest)
    return np.stack([lowest - margin, highest + margin], axis=1)
