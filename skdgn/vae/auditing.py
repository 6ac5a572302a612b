"""How far a trained variational autoencoder is from the truth, sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array

from skdgn._estimators import PiecewiseAffineDGN
from skdgn._network import import_torch, to_array
from skdgn._runtime import Floats, finite_array
from skdgn.vae.display import AuditDisplay

_QUANTILES = {"min": 0.0, "25%": 0.25, "50%": 0.5, "75%": 0.75, "max": 1.0}


@dataclass(frozen=True)
class Audit:
    """Results of an audit; every array has one value for each sample, in nats.

    Attributes
    ----------
    log_likelihood : ndarray of shape (n_samples,)
        Exact log p(x) given the decoder and the noise.
    elbo : ndarray of shape (n_samples,)
        Exact lower bound for the encoder's q(z | x), without Monte Carlo.
    kl : ndarray of shape (n_samples,)
        Exact KL(q || posterior); log p(x) is the sum of this and the lower bound.
    amortization_gap : ndarray of shape (n_samples,)
        The part of the divergence that the best Gaussian for the sample would avoid: the encoder
        has not found it.
    family_gap : ndarray of shape (n_samples,)
        The part that remains with the best Gaussian: the posterior is not Gaussian.
    identity_error : float
        Largest deviation of ``elbo + kl`` from ``log_likelihood``; each is computed independently.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgn.vae import Audit
    >>> found = Audit(
    ...     log_likelihood=np.array([-1.0, -2.0]),
    ...     elbo=np.array([-1.25, -2.5]),
    ...     kl=np.array([0.25, 0.5]),
    ...     amortization_gap=np.array([0.25, 0.25]),
    ...     family_gap=np.array([0.0, 0.25]),
    ... )
    >>> found.identity_error
    0.0
    """

    log_likelihood: Floats
    elbo: Floats
    kl: Floats
    amortization_gap: Floats
    family_gap: Floats

    @property
    def identity_error(self) -> float:
        """Largest deviation from log p(x) = lower bound + divergence, computed independently."""
        return float(np.abs(self.log_likelihood - self.elbo - self.kl).max())

    def _columns(self) -> dict[str, Floats]:
        return {
            "log likelihood": self.log_likelihood,
            "ELBO": self.elbo,
            "KL": self.kl,
            "amortization gap": self.amortization_gap,
            "Gaussian-family gap": self.family_gap,
        }

    def summary(self) -> str:
        """Return a table of means, standard deviations and quantiles over the samples.

        Returns
        -------
        table : str
            The formatted table.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn.vae import Audit
        >>> found = Audit(
        ...     log_likelihood=np.array([-1.0, -2.0]),
        ...     elbo=np.array([-1.25, -2.5]),
        ...     kl=np.array([0.25, 0.5]),
        ...     amortization_gap=np.array([0.25, 0.25]),
        ...     family_gap=np.array([0.0, 0.25]),
        ... )
        >>> print(found.summary())
                                 mean       std       min       25%       50%       75%       max
        log likelihood         -1.500     0.500    -2.000    -1.750    -1.500    -1.250    -1.000
        ELBO                   -1.875     0.625    -2.500    -2.188    -1.875    -1.562    -1.250
        KL                      0.375     0.125     0.250     0.312     0.375     0.438     0.500
        amortization gap        0.250     0.000     0.250     0.250     0.250     0.250     0.250
        Gaussian-family gap     0.125     0.125     0.000     0.062     0.125     0.188     0.250
        2 samples; log likelihood = ELBO + KL to 0e+00
        """
        names = ["mean", "std", *_QUANTILES]
        lines = [" " * 19 + "".join(f"{name:>10s}" for name in names)]
        for title, values in self._columns().items():
            numbers = [values.mean(), values.std()]
            numbers += [np.quantile(values, level) for level in _QUANTILES.values()]
            lines.append(f"{title:19s}" + "".join(f"{number:10.3f}" for number in numbers))
        lines.append(
            f"{len(self.elbo)} samples; log likelihood = ELBO + KL to {self.identity_error:.0e}"
        )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each sample.

        Returns
        -------
        frame : DataFrame
            One column per quantity, in nats.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn.vae import Audit
        >>> found = Audit(
        ...     log_likelihood=np.array([-1.0, -2.0]),
        ...     elbo=np.array([-1.25, -2.5]),
        ...     kl=np.array([0.25, 0.5]),
        ...     amortization_gap=np.array([0.25, 0.25]),
        ...     family_gap=np.array([0.0, 0.25]),
        ... )
        >>> found.to_frame()["KL"].tolist()
        [0.25, 0.5]
        """
        import pandas as pd

        return pd.DataFrame(self._columns())

    def plot(self, axes: Any = None) -> AuditDisplay:
        """Plot the lower bound against the log likelihood, and the gaps of each sample.

        Parameters
        ----------
        axes : sequence of two matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.

        Returns
        -------
        display : AuditDisplay
            The display, with ``figure_`` and ``axes_``.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgn.vae import Audit
        >>> found = Audit(
        ...     log_likelihood=np.array([-1.0, -2.0]),
        ...     elbo=np.array([-1.25, -2.5]),
        ...     kl=np.array([0.25, 0.5]),
        ...     amortization_gap=np.array([0.25, 0.25]),
        ...     family_gap=np.array([0.0, 0.25]),
        ... )
        >>> found.plot().axes_[1].get_ylabel()
        'KL(q || posterior)'
        """
        display = AuditDisplay(
            log_likelihood=self.log_likelihood,
            elbo=self.elbo,
            amortization_gap=self.amortization_gap,
            family_gap=self.family_gap,
        )
        return display.plot(axes)


def audit(
    decoder: Any,
    encoder: Callable[[Any], tuple[Any, Any]],
    X: ArrayLike,
    noise_covariance: Any,
    *,
    encoder_scale: str = "log_variance",
) -> Audit:
    """Compare the encoder of a variational autoencoder with the exact posterior of each sample.

    Parameters
    ----------
    decoder : torch.nn.Sequential
        A decoder that `PiecewiseAffineDGN.from_torch` accepts.  The prior of z is standard normal.
    encoder : callable or torch.nn.Module
        Called once, without gradients, with a tensor of shape (n_samples, n_features) in its own
        precision (that of the decoder, if it has no parameters); modules are set to evaluation mode
        during the call.  It returns means, of shape (n_samples, n_components), and either a second
        tensor of this shape, see ``encoder_scale``, or covariance matrices, of shape (n_samples,
        n_components, n_components).  Arrays are accepted, too.
    X : array-like of shape (n_samples, n_features)
        Samples to audit, preferably not those of the training.
    noise_covariance : float, array-like or torch.Tensor
        Covariance of the noise: a number, (n_features,) or (n_features, n_features).
    encoder_scale : {"log_variance", "variance"}, default="log_variance"
        Meaning of the second output of the encoder, if it has one number for each latent dimension.

    Returns
    -------
    audit : Audit
        Exact log likelihood, lower bound, divergence and its two parts for each sample, with tables
        (``summary``, ``to_frame``) and a plot (``plot``) of them.

    See Also
    --------
    skdgn.PiecewiseAffineDGN.variational_gap : The gaps for any Gaussians.

    Notes
    -----
    The search for the best Gaussian of each sample, which separates the two gaps, takes most of the
    time: milliseconds per sample.  A few hundred samples are usually sufficient.

    Examples
    --------
    >>> import torch
    >>> from skdgn.vae import audit
    >>> decoder = torch.nn.Sequential(torch.nn.Linear(1, 2))
    >>> _ = torch.nn.init.ones_(decoder[0].weight), torch.nn.init.zeros_(decoder[0].bias)
    >>> def encoder(samples):  # the prior, whatever the sample
    ...     return torch.zeros(len(samples), 1), torch.zeros(len(samples), 1)
    >>> found = audit(decoder, encoder, [[1.0, 1.0], [0.0, 0.0]], noise_covariance=1.0)
    >>> found.kl.round(4)
    array([1.1174, 0.4507])
    >>> found.family_gap.round(4)  # here, the posterior is a Gaussian
    array([0., 0.])
    """
    if not callable(encoder):
        raise ValueError(f"encoder must be callable, got {encoder!r}.")
    if encoder_scale not in ("log_variance", "variance"):
        raise ValueError(
            f'encoder_scale must be "log_variance" or "variance", got {encoder_scale!r}.'
        )
    model = PiecewiseAffineDGN.from_torch(decoder, noise_covariance)
    samples = check_array(X, dtype=np.float64, input_name="X")
    if samples.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X must have {model.n_features_in_} columns, the decoder's outputs, "
            f"got {samples.shape[1]}."
        )
    assert isinstance(model.n_components, int)  # not open, of a network that is known
    means, covariances = _encode(encoder, samples, decoder, model.n_components, encoder_scale)
    amortization_gap, family_gap = model.variational_gap(samples, means, covariances)
    return Audit(
        log_likelihood=model.score_samples(samples),
        elbo=model.elbo(samples, means, covariances),
        kl=amortization_gap + family_gap,
        amortization_gap=amortization_gap,
        family_gap=family_gap,
    )


def _encode(
    encoder: Any, samples: Floats, decoder: Any, n_components: int, scale: str
) -> tuple[Floats, Floats]:
    """Ask the encoder for its Gaussians: means (n, S) and covariances (n, S, S)."""
    torch = import_torch()
    is_module = isinstance(encoder, torch.nn.Module)
    weights = [*encoder.parameters()] if is_module else []
    tensor = torch.from_numpy(samples).to(next(iter([*weights, *decoder.parameters()])).dtype)
    was_training = is_module and encoder.training
    try:
        if was_training:
            encoder.eval()
        with torch.no_grad():
            result = encoder(tensor)
    finally:
        if was_training:
            encoder.train()
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ValueError(
            "encoder must return a pair, means and log variances (or covariances), "
            f"got {type(result).__name__}."
        )
    means = finite_array(to_array(result[0]), "encoder's means")
    spread = finite_array(to_array(result[1]), "encoder's second result")
    shape = (len(samples), n_components)
    if means.shape != shape:
        raise ValueError(f"encoder must return means of shape {shape}, got {means.shape}.")
    if spread.shape == (*shape, n_components):
        return means, spread
    if spread.shape != shape:
        raise ValueError(
            f"encoder must return a second result of shape {shape} or {(*shape, n_components)}, "
            f"got {spread.shape}."
        )
    variances = np.exp(spread) if scale == "log_variance" else spread
    if not (np.all(variances > 0.0) and np.all(np.isfinite(variances))):
        raise ValueError(
            "encoder must return positive, finite variances, "
            f"got one of {variances.flat[np.argmin((variances > 0.0) & np.isfinite(variances))]}."
        )
    return means, variances[:, :, None] * np.eye(n_components)
