"""OutlierDisplay: a sample against the conditional densities of its features."""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skdgn._estimators import DGNOutlierDetector, check_density
from skdgn._runtime import Floats, check_integer, require
from skdgn.displays._canvas import merge_style
from skdgn.displays._checks import check_resolution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A curve covers all but this probability at either end, the value, and a margin of this share.
_TAIL = 0.001
_MARGIN = 0.08
_MOST_COLUMNS = 4


class OutlierDisplay:
    """Visualization of each value of a sample and its conditional density given all others.

    There is one panel for each feature, starting with the features that contribute most to the
    negative log density of the sample.  Use `from_estimator` to create the display; the parameters
    are stored as attributes.

    Parameters
    ----------
    sample : ndarray of shape (n_features,)
        The sample; missing values are NaN.
    features : ndarray of shape (n_panels,)
        Features drawn, in the order of the panels.
    contributions : ndarray of shape (n_features,)
        Contribution of each value to ``-log p`` of the sample, in nats, with every feature in units
        of its standard deviation.
    grids : ndarray of shape (n_panels, grid_resolution)
        Values at which the densities are drawn.
    densities : ndarray of shape (n_panels, grid_resolution)
        Conditional densities at these values.
    feature_names : list of str
        Names of all features.

    Attributes
    ----------
    axes_ : ndarray of shape (n_panels,)
        Axes of the panels.
    densities_ : list of Line2D
        The curves.
    values_ : list of Line2D or None
        Values of the sample; None for missing values.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    DGNOutlierDetector.explain : The contributions.

    Examples
    --------
    >>> from skdgn import OutlierDisplay, PiecewiseAffineDGN
    >>> model = PiecewiseAffineDGN.from_network(
    ...     [[[1.0], [1.0], [0.0]]], [[0.0, 0.0, 0.0]], 0.1, activation="relu"
    ... )
    >>> display = OutlierDisplay.from_estimator(model, [0.1, 0.1, 5.0])
    >>> int(display.features[0])  # the third value is the odd one
    2
    """

    # Set by `plot`.
    axes_: Any
    densities_: list[Any]
    values_: list[Any]
    figure_: Figure

    def __init__(
        self,
        *,
        sample: Floats,
        features: Any,
        contributions: Floats,
        grids: Floats,
        densities: Floats,
        feature_names: list[str],
    ) -> None:
        self.sample = sample
        self.features = features
        self.contributions = contributions
        self.grids = grids
        self.densities = densities
        self.feature_names = feature_names

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        sample: ArrayLike,
        *,
        n_panels: int = 8,
        grid_resolution: int = 200,
        axes: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw a sample against the conditional densities of its features.

        Parameters
        ----------
        estimator : DGNOutlierDetector, PiecewiseAffineDGN, DGNMixture or DGNEnsemble
            Fitted estimator; the estimator of a detector must be an exact density.
        sample : array-like of shape (n_features,) or (1, n_features)
            The sample; missing values are NaN.
        n_panels : int, default=8
            Maximum number of features to draw: those that contribute most.
        grid_resolution : int, default=200
            Number of points of each curve.
        axes : array-like of matplotlib Axes, default=None
            Axes to plot on, one for each panel; None creates a new figure.
        **kwargs : dict
            Passed to matplotlib's `plot` for the curves.

        Returns
        -------
        display : OutlierDisplay
            The display, with ``axes_``, ``figure_`` and the artists.

        Examples
        --------
        >>> from skdgn import OutlierDisplay, PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0], [1.0], [0.0]]], [[0.0, 0.0, 0.0]], 0.1, activation="relu"
        ... )
        >>> display = OutlierDisplay.from_estimator(model, [0.1, 0.1, 5.0], n_panels=2)
        >>> len(display.axes_)
        2
        """
        require("matplotlib", "plot", f"{cls.__name__}.from_estimator")
        if isinstance(estimator, DGNOutlierDetector):
            estimator = estimator._exact_density("OutlierDisplay")
        model = check_density(estimator)
        check_integer(n_panels, "n_panels")
        resolution = check_resolution(grid_resolution)
        values = np.array(sample, dtype=np.float64).ravel()
        if values.shape != (model.n_features_in_,) or np.isinf(values).any():
            raise ValueError(
                f"sample must be one sample of {model.n_features_in_} features without infinite "
                f"values, got {sample!r}."
            )
        names = [str(name) for name in model._column_names()]
        if not hasattr(model, "feature_names_in_"):
            names = [f"feature {name}" for name in names]
        density, workers = model._fitted_model(), model._workers()
        plain = _without_names(model)
        contributions = plain.explain(values[None], standardize=True, random_state=0)[0]
        features = np.argsort(-contributions, kind="stable")[:n_panels]
        grids, curves = [], []
        for feature in features:
            given = np.delete(np.arange(len(values)), feature)
            ends = plain.conditional_quantiles(values[None], given, [_TAIL, 1.0 - _TAIL])[:, 0, 0]
            low, high = np.nanmin([*ends, values[feature]]), np.nanmax([*ends, values[feature]])
            margin = _MARGIN * (high - low)
            grid = np.linspace(low - margin, high + margin, resolution)
            samples = np.tile(values, (resolution, 1))
            samples[:, feature] = grid
            condition = values.copy()[None]
            condition[0, feature] = np.nan
            log_joint = density.log_density(samples, workers)
            curves.append(np.exp(log_joint - density.log_density(condition, workers)))
            grids.append(grid)
        display = cls(
            sample=values,
            features=features,
            contributions=contributions,
            grids=np.array(grids),
            densities=np.array(curves),
            feature_names=names,
        )
        return display.plot(axes=axes, **kwargs)

    def plot(self, axes: Any = None, **kwargs: Any) -> Self:
        """Plot the display.

        Parameters
        ----------
        axes : array-like of matplotlib Axes, default=None
            Axes to plot on, one for each panel; None creates a new figure.
        **kwargs : dict
            Passed to matplotlib's `plot` for the curves.

        Returns
        -------
        display : OutlierDisplay
            The display, with ``axes_``, ``figure_`` and the artists.

        Examples
        --------
        >>> from skdgn import OutlierDisplay, PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0], [1.0], [0.0]]], [[0.0, 0.0, 0.0]], 0.1, activation="relu"
        ... )
        >>> display = OutlierDisplay.from_estimator(model, [0.1, 0.1, 5.0])
        >>> display.plot(color="tab:red").densities_[0].get_color()
        'tab:red'
        """
        require("matplotlib", "plot", f"{type(self).__name__}.plot")
        from matplotlib.lines import Line2D

        self.axes_ = _choose_panels(axes, len(self.features))
        self.figure_ = self.axes_[0].figure
        self.densities_, self.values_ = [], []
        style = merge_style({"color": "tab:blue"}, kwargs, Line2D)
        for ax, feature, grid, curve in zip(
            self.axes_, self.features, self.grids, self.densities, strict=True
        ):
            (line,) = ax.plot(grid, curve, **style)
            ax.fill_between(grid, curve, color=line.get_color(), alpha=0.2, linewidth=0.0)
            self.densities_.append(line)
            value = self.sample[feature]
            drawn = None if np.isnan(value) else ax.axvline(value, color="tab:red", linewidth=1.5)
            self.values_.append(drawn)
            what = "missing" if drawn is None else f"{self.contributions[feature]:+.1f} nats"
            ax.set(title=f"{self.feature_names[feature]}: {what}", yticks=[], ylim=(0.0, None))
            ax.title.set_fontsize("medium")
        return self


def _without_names(model: Any) -> Any:
    """Return the density as one that was fitted to an array: samples are given as arrays here."""
    plain = copy(model)
    plain.__dict__.pop("feature_names_in_", None)
    return plain


def _choose_panels(axes: Any, n_panels: int) -> Any:
    """Return the axes given, or those of a new figure: (n_panels,)."""
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes

    if axes is None:
        n_columns = min(_MOST_COLUMNS, n_panels)
        n_rows = math.ceil(n_panels / n_columns)
        _, grid = plt.subplots(
            n_rows,
            n_columns,
            squeeze=False,
            figsize=(3.0 * n_columns, 2.2 * n_rows),
            layout="constrained",
        )
        for spare in grid.ravel()[n_panels:]:
            spare.remove()
        return grid.ravel()[:n_panels]
    panels: list[Axes] = list(np.ravel(axes))
    if len(panels) != n_panels or not all(isinstance(panel, Axes) for panel in panels):
        raise ValueError(f"axes must be {n_panels} matplotlib Axes or None, got {axes!r}.")
    return np.array(panels, dtype=object)
