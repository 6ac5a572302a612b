"""The picture of an audit."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from skdgn._runtime import Floats, require


class AuditDisplay:
    """Visualization of the lower bounds and gaps of an audited variational autoencoder.

    Use `Audit.plot` to create it.

    Parameters
    ----------
    log_likelihood : ndarray of shape (n_samples,)
        Exact log p(x) of each sample.
    elbo : ndarray of shape (n_samples,)
        Exact lower bound of each sample.
    amortization_gap : ndarray of shape (n_samples,)
        Loss of the encoder compared with the best Gaussian.
    family_gap : ndarray of shape (n_samples,)
        Loss of the best Gaussian.

    Attributes
    ----------
    figure_ : matplotlib Figure
        Figure of the plot.
    axes_ : ndarray of two matplotlib Axes
        Lower bound against log likelihood; the gaps of the samples, in the order of their sum.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgn.vae import AuditDisplay
    >>> gaps = np.array([0.1, 0.3])
    >>> display = AuditDisplay(
    ...     log_likelihood=np.array([-1.0, -2.0]),
    ...     elbo=np.array([-1.2, -2.6]),
    ...     amortization_gap=gaps,
    ...     family_gap=gaps,
    ... ).plot()
    >>> len(display.axes_)
    2
    """

    figure_: Any
    axes_: Any

    def __init__(
        self,
        *,
        log_likelihood: Floats,
        elbo: Floats,
        amortization_gap: Floats,
        family_gap: Floats,
    ) -> None:
        self.log_likelihood = log_likelihood
        self.elbo = elbo
        self.amortization_gap = amortization_gap
        self.family_gap = family_gap

    def plot(self, axes: Any = None) -> Self:
        """Plot the display.

        Parameters
        ----------
        axes : sequence of two matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.

        Returns
        -------
        display : AuditDisplay
            The display, with ``axes_`` and ``figure_``.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import numpy as np
        >>> from skdgn.vae import AuditDisplay
        >>> figure, axes = plt.subplots(2)
        >>> display = AuditDisplay(
        ...     log_likelihood=np.array([-1.0, -2.0]),
        ...     elbo=np.array([-1.25, -2.5]),
        ...     amortization_gap=np.array([0.25, 0.25]),
        ...     family_gap=np.array([0.0, 0.25]),
        ... ).plot(axes)
        >>> display.figure_ is figure
        True
        """
        if axes is None:
            require("matplotlib", "plot", "AuditDisplay.plot")
            import matplotlib.pyplot as plt

            _, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
        elif np.shape(axes) != (2,):
            raise ValueError(f"axes must hold two matplotlib Axes, got {axes!r}.")
        left, right = axes
        self.axes_, self.figure_ = np.asarray(axes, dtype=object), left.figure
        ends = [self.log_likelihood.min(), self.log_likelihood.max()]
        left.plot(ends, ends, color="black", linewidth=0.8, label="no gap")
        left.scatter(self.log_likelihood, self.elbo, s=8, color="tab:blue", label="samples")
        left.set(xlabel="exact log likelihood", ylabel="exact lower bound (ELBO)")
        left.legend()
        order = np.argsort(self.amortization_gap + self.family_gap)
        family = self.family_gap[order]
        total = family + self.amortization_gap[order]
        share = (np.arange(len(order)) + 0.5) / len(order)
        right.fill_between(
            share,
            family,
            color="tab:purple",
            step="mid",
            label=f"Gaussian family, {family.mean():.3f} on average",
        )
        right.fill_between(
            share,
            family,
            total,
            color="tab:orange",
            step="mid",
            label=f"amortization, {(total - family).mean():.3f} on average",
        )
        right.set(xlabel="share of the samples", ylabel="KL(q || posterior)", xlim=(0.0, 1.0))
        right.set_ylim(bottom=0.0)
        right.legend(loc="upper left")
        return self
