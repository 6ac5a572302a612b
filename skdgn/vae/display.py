"""The picture of an audit."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from skdgn._network import Floats


class AuditDisplay:
    """Lower bounds and gaps of an audited variational autoencoder, drawn row by row.

    `Audit.plot` makes one.

    Parameters
    ----------
    log_likelihood : ndarray of shape (n_samples,)
    elbo : ndarray of shape (n_samples,)
    amortisation_gap : ndarray of shape (n_samples,)
    family_gap : ndarray of shape (n_samples,)

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : ndarray of two matplotlib Axes
        Lower bound against log likelihood; the gaps of the rows, in the order of their sum.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgn.vae import AuditDisplay
    >>> gaps = np.array([0.1, 0.3])
    >>> display = AuditDisplay(
    ...     log_likelihood=np.array([-1.0, -2.0]),
    ...     elbo=np.array([-1.2, -2.6]),
    ...     amortisation_gap=gaps,
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
        amortisation_gap: Floats,
        family_gap: Floats,
    ) -> None:
        self.log_likelihood = log_likelihood
        self.elbo = elbo
        self.amortisation_gap = amortisation_gap
        self.family_gap = family_gap

    def plot(self, axes: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        axes : sequence of two matplotlib Axes, default=None
            None makes a new figure.

        Returns
        -------
        display : AuditDisplay
        """
        if axes is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise ImportError(
                    'matplotlib is needed for this: pip install "skdgn[plot]".'
                ) from error
            _, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
        elif np.shape(axes) != (2,):
            raise ValueError(f"axes must hold two matplotlib Axes, got {axes!r}.")
        left, right = axes
        self.axes_, self.figure_ = np.asarray(axes, dtype=object), left.figure
        ends = [self.log_likelihood.min(), self.log_likelihood.max()]
        left.plot(ends, ends, color="black", linewidth=0.8, label="no gap")
        left.scatter(self.log_likelihood, self.elbo, s=8, color="tab:blue", label="rows")
        left.set(xlabel="exact log likelihood", ylabel="exact lower bound (ELBO)")
        left.legend()
        order = np.argsort(self.amortisation_gap + self.family_gap)
        family = self.family_gap[order]
        total = family + self.amortisation_gap[order]
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
            label=f"amortisation, {(total - family).mean():.3f} on average",
        )
        right.set(xlabel="share of the rows", ylabel="KL(q || posterior)", xlim=(0.0, 1.0))
        right.set_ylim(bottom=0.0)
        right.legend(loc="upper left")
        return self
