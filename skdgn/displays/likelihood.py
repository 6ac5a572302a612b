"""LikelihoodCurveDisplay: how the likelihood grew during a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skdgn._estimators import SumOfDensities, check_density
from skdgn._runtime import Floats, require
from skdgn.displays._canvas import choose_axes, merge_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

# Okabe and Ito's, which everybody can tell apart.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "black")


class LikelihoodCurveDisplay:
    """Visualization of the mean log-likelihood after each EM iteration, for one or several fits.

    The likelihood never decreases.  Use `from_estimator` to create the display; the parameters are
    stored as attributes.

    Parameters
    ----------
    lower_bounds : list of ndarray of shape (n_iter,)
        Mean log-likelihood after every iteration, one array per fit.
    names : list of str, default=None
        Names of the fits, for the legend.
    scores : list of float, default=None
        Mean log density of held-out samples at the end of each fit.
    value_name : str, default="mean log-likelihood"
        Label of the vertical axis.

    Attributes
    ----------
    lines_ : list of Line2D
        One curve per fit.
    score_lines_ : list of Line2D
        One dashed level per score.
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the plot.

    Examples
    --------
    >>> from skdgn import LikelihoodCurveDisplay, PiecewiseAffineDGN
    >>> from skdgn.datasets import make_wave
    >>> model = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0).fit(make_wave(50))
    >>> display = LikelihoodCurveDisplay.from_estimator(model)
    >>> bool((display.lines_[0].get_ydata() == model.lower_bounds_).all())
    True
    """

    # Set by `plot`.
    lines_: list[Line2D]
    score_lines_: list[Line2D]
    ax_: Axes
    figure_: Figure | SubFigure

    def __init__(
        self,
        *,
        lower_bounds: Sequence[Floats],
        names: Sequence[str] | None = None,
        scores: Sequence[float] | None = None,
        value_name: str = "mean log-likelihood",
    ) -> None:
        self.lower_bounds = lower_bounds
        self.names = names
        self.scores = scores
        self.value_name = value_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike | None = None,
        *,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the likelihood curve of one or several fits.

        Parameters
        ----------
        estimator : PiecewiseAffineDGN or DGNMixture, or a list or dict of them
            Estimators fitted by `fit`.  The keys of a dict are the names in the legend.
        X : array-like of shape (n_samples, n_features), default=None
            Held-out samples.  Their mean log density at the end of a fit is drawn as a dashed line:
            if it is far below the curve, the model overfits.
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.
        **kwargs : dict
            Passed to matplotlib's `plot` for every curve.

        Returns
        -------
        display : LikelihoodCurveDisplay
            The display, with ``ax_``, ``figure_`` and the artists.

        Examples
        --------
        >>> from skdgn import LikelihoodCurveDisplay, PiecewiseAffineDGN
        >>> from skdgn.datasets import make_wave
        >>> X = make_wave(50, random_state=0)
        >>> linear = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0).fit(X)
        >>> bent = PiecewiseAffineDGN(hidden_layer_sizes=(2,), tol=0.01, random_state=0).fit(X)
        >>> display = LikelihoodCurveDisplay.from_estimator({"linear": linear, "bent": bent})
        >>> [line.get_label() for line in display.lines_]
        ['linear', 'bent']
        """
        require("matplotlib", "plot", f"{cls.__name__}.from_estimator")
        names: list[str] | None = None
        if isinstance(estimator, Mapping):
            names = [str(name) for name in estimator]
            given = [(f"estimator[{name!r}]", model) for name, model in estimator.items()]
        elif isinstance(estimator, Sequence) and not isinstance(estimator, str):
            names = [f"fit {number}" for number in range(len(estimator))]
            given = [(f"estimator[{i}]", model) for i, model in enumerate(estimator)]
        else:
            given = [("estimator", estimator)]
        if not given:
            raise ValueError(f"estimator must hold at least one estimator, got {estimator!r}.")
        for name, model in given:
            check_density(model, name)
        models = [_check_curve(model, name) for name, model in given]
        is_penalized = any(_is_penalized(model) for model in models)
        display = cls(
            lower_bounds=[model.lower_bounds_ for model in models],
            names=names,
            scores=None if X is None else [model.score(X) for model in models],
            value_name=f"mean log-likelihood{' and log prior' if is_penalized else ''}",
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Plot again.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.
        **kwargs : dict
            Passed to matplotlib's `plot` for every curve.

        Returns
        -------
        display : LikelihoodCurveDisplay
            The display, with ``ax_``, ``figure_`` and the artists.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn import LikelihoodCurveDisplay
        >>> display = LikelihoodCurveDisplay(lower_bounds=[np.array([-2.0, -1.5, -1.4])]).plot()
        >>> display.lines_[0].get_xdata()
        array([1, 2, 3])
        """
        self.ax_ = choose_axes(ax, f"{type(self).__name__}.plot")
        from matplotlib.lines import Line2D
        from matplotlib.ticker import MaxNLocator

        self.figure_ = self.ax_.figure
        self.lines_, self.score_lines_ = [], []
        for number, bounds in enumerate(self.lower_bounds):
            color = _COLORS[number % len(_COLORS)]
            style = merge_style({"marker": ".", "color": color}, kwargs, Line2D)
            if self.names is not None:
                style.setdefault("label", self.names[number])
            iterations = np.arange(1, len(bounds) + 1)
            self.lines_ += self.ax_.plot(iterations, bounds, **style)
            if self.scores is not None:
                level, shade = self.scores[number], self.lines_[-1].get_color()
                self.score_lines_.append(self.ax_.axhline(level, color=shade, linestyle="--"))
        self.ax_.set(xlabel="EM iteration", ylabel=self.value_name)
        self.ax_.xaxis.set_major_locator(MaxNLocator(integer=True))
        named = list(self.lines_) if self.names is not None else []
        if self.score_lines_:
            self.score_lines_[0].set_label("held-out samples")
            named.append(self.score_lines_[0])
        if named:
            self.ax_.legend(handles=named)
        return self


def _check_curve(model: Any, name: str) -> Any:
    """Refuse what was not fitted iteration by iteration."""
    if not hasattr(model, "lower_bounds_"):
        raise ValueError(
            f"{name} must have been fitted by EM, as a PiecewiseAffineDGN or a DGNMixture is. "
            f"Pass what it has fitted, estimators_ or estimator_, instead of {model!r}."
        )
    if len(model.lower_bounds_) == 0:
        raise ValueError(
            "estimator must have been fitted by fit, iteration by iteration, "
            f"got n_iter_={model.n_iter_} as from_network gives it."
        )
    return model


def _is_penalized(model: Any) -> bool:
    """Whether the objective of a fit has the log density of parameters in it."""
    # A mixture has priors that keep its networks apart from single samples.
    return isinstance(model, SumOfDensities) or model.weight_prior is not None
