"""A variational autoencoder with a Gaussian encoder, trained by Adam."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from skdgn._estimators import (
    DocumentedMixin,
    Interval,
    PiecewiseAffineDGN,
    check_integers,
    fit_context,
)
from skdgn._network import import_torch, read_decoder, to_array
from skdgn._noise import Independent, Noise
from skdgn._runtime import LOG_SQRT_2PI, Floats, VersionedMixin, check_integer, draw_seed


class Epoch(NamedTuple):
    """Results of an epoch of training.

    Attributes
    ----------
    elbo : float
        Mean lower bound of the samples during the epoch, with one draw of z each.
    seconds : float
        Seconds of training since the first epoch, excluding callbacks.

    Examples
    --------
    >>> from skdgn.vae import Epoch
    >>> Epoch(elbo=-1.5, seconds=0.2)
    Epoch(elbo=-1.5, seconds=0.2)
    """

    elbo: float
    seconds: float


class GaussianEncoder:
    """Encoder of samples as Gaussians q(z | x) with independent components.

    Parameters
    ----------
    layers : torch.nn.Module
        Layers that map samples (n, n_features) to (n, 2 n_components): means, then log variances.

    Examples
    --------
    >>> import torch
    >>> from skdgn.vae import GaussianEncoder
    >>> encoder = GaussianEncoder(torch.nn.Linear(2, 2))
    >>> means, log_variances = encoder(torch.zeros(5, 2))
    >>> means.shape, log_variances.shape
    (torch.Size([5, 1]), torch.Size([5, 1]))
    """

    def __init__(self, layers: Any) -> None:
        self.layers = layers

    def __call__(self, samples: Any) -> tuple[Any, Any]:
        """Return means and log variances, tensors of shape (n, n_components)."""
        means, log_variances = self.layers(samples).chunk(2, dim=-1)
        return means, log_variances


class GaussianVAE(DocumentedMixin, VersionedMixin, BaseEstimator):
    """Variational autoencoder whose decoder is the generator of `PiecewiseAffineDGN`.

    The model is the same, ``z ~ N(0, I)`` and ``x | z ~ N(g(z), noise)``, but the weights and the
    noise are learned by Adam, from a lower bound of the likelihood.  It serves as a reference for
    comparisons.

    Parameters
    ----------
    decoder : torch.nn.Sequential
        The initial generator, as for `PiecewiseAffineDGN.from_torch`, including convolutions; it is
        not modified.  Training uses its precision and its mode: batch normalization and dropout
        behave as in training, unless it is in eval mode.  `make_decoder` makes a decoder from the
        weights of an estimator.
    noise_covariance : float or array-like of shape (n_features,), default=1.0
        Initial variance of the noise, which is learned: one for all features, or one for each.
    encoder_layer_sizes : tuple of int, default=(32, 32)
        Number of units in each hidden layer of the encoder, with ReLU activations.
    learning_rate : float, default=1e-3
        Learning rate of Adam.
    batch_size : int, default=50
        Number of samples in a mini-batch.
    max_iter : int, default=1000
        Maximum number of epochs.
    tol : float, default=1e-3
        Training stops when the average of the lower bound over the last ``n_iter_no_change`` epochs
        exceeds its average over as many epochs before by less than this.
    n_iter_no_change : int, default=100
        Number of epochs over which the lower bound is averaged, because that of a single epoch is
        noisy.
    callback : callable, default=None
        Called with this object before the first and after every epoch, with the attributes below up
        to date.  Its time is not counted as training.  Training stops if it returns True.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the encoder's weights, of the order of the samples and of the draws of z.

    Attributes
    ----------
    decoder_ : torch.nn.Sequential
        The trained generator, in eval mode.
    encoder_ : GaussianEncoder
        The trained encoder.
    noise_covariance_ : float or ndarray of shape (n_features,)
        The learned variance of the noise.
    history_ : list of Epoch
        For every epoch, ``elbo``, the mean lower bound of the samples during the epoch, and
        ``seconds``, the training time up to its end.
    n_iter_ : int
        Number of epochs.
    converged_ : bool
        Whether training converged.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> import torch
    >>> from skdgn.datasets import make_noisy_circle
    >>> from skdgn.vae import GaussianVAE
    >>> X = make_noisy_circle(100, random_state=0)
    >>> start = torch.nn.Sequential(
    ...     torch.nn.Linear(1, 4), torch.nn.LeakyReLU(0.1), torch.nn.Linear(4, 2)
    ... )
    >>> vae = GaussianVAE(start, max_iter=2, random_state=0).fit(X)
    >>> len(vae.history_), vae.converged_
    (2, False)
    >>> vae.to_estimator().score_samples(X).shape  # the exact log density
    (100,)
    """

    _imported_from: ClassVar[str] = "skdgn.vae"
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "decoder": "no_validation",  # here, that is: `fit` reads it
        "noise_covariance": "no_validation",
        "encoder_layer_sizes": [tuple, list],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, None, None, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "callback": [callable, None],
        "random_state": ["random_state", np.random.Generator],
    }

    decoder_: Any
    encoder_: GaussianEncoder
    noise_covariance_: float | Floats
    history_: list[Epoch]
    n_iter_: int
    converged_: bool
    n_features_in_: int

    def __init__(
        self,
        decoder: Any,
        noise_covariance: ArrayLike = 1.0,
        *,
        encoder_layer_sizes: Sequence[int] = (32, 32),
        learning_rate: float = 1e-3,
        batch_size: int = 50,
        max_iter: int = 1000,
        tol: float = 1e-3,
        n_iter_no_change: int = 100,
        callback: Callable[[GaussianVAE], bool | None] | None = None,
        random_state: Any = None,
    ) -> None:
        self.decoder = decoder
        self.noise_covariance = noise_covariance
        self.encoder_layer_sizes = encoder_layer_sizes
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.callback = callback
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: None = None) -> Self:
        """Train the decoder, the encoder and the noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples without missing values.
        y : None
            Not used, present for API consistency by convention.

        Returns
        -------
        self : GaussianVAE
            The fitted estimator.

        Examples
        --------
        >>> import torch
        >>> from skdgn.datasets import make_noisy_circle
        >>> from skdgn.vae import GaussianVAE
        >>> X = make_noisy_circle(100, random_state=0)
        >>> start = torch.nn.Sequential(
        ...     torch.nn.Linear(1, 4), torch.nn.LeakyReLU(0.1), torch.nn.Linear(4, 2)
        ... )
        >>> vae = GaussianVAE(start, max_iter=2, random_state=0).fit(X)
        >>> vae.n_iter_
        2
        """
        torch = import_torch()
        decoder, is_training = copy.deepcopy(self.decoder), getattr(self.decoder, "training", False)
        if isinstance(decoder, torch.nn.Module):
            decoder.eval()  # as it is read, now and after training
        _, n_components, n_features = read_decoder(decoder)
        noise = Noise.from_covariance(to_array(self.noise_covariance), n_features)
        if not isinstance(noise, Independent):
            raise ValueError(
                f"noise_covariance must be a number or have shape ({n_features},), "
                f"got shape {noise.covariance.shape}."
            )
        sizes = check_integers(self.encoder_layer_sizes, "encoder_layer_sizes")
        table = validate_data(self, X, dtype=np.float64)
        if table.shape[1] != n_features:
            raise ValueError(
                f"X must have {n_features} columns, the decoder's outputs, got {table.shape[1]}."
            )
        seed = draw_seed(self.random_state)
        generator = torch.Generator().manual_seed(seed)
        decoder.requires_grad_(True)
        dtype = next(decoder.parameters()).dtype
        samples = torch.from_numpy(table).to(dtype)
        encoder = _make_encoder((n_features, *sizes, 2 * n_components), dtype, seed)
        log_variance = torch.tensor(np.log(noise.covariance), dtype=dtype, requires_grad=True)
        self.decoder_, self.encoder_ = decoder, encoder
        self.history_, self.converged_ = [], False
        weights = [*decoder.parameters(), *encoder.layers.parameters(), log_variance]
        optimizer = torch.optim.Adam(weights, lr=float(self.learning_rate), fused=True)
        seconds = 0.0
        while not self._report(log_variance) and len(self.history_) < self.max_iter:
            started = time.perf_counter()
            decoder.train(is_training)
            total = torch.zeros((), dtype=dtype)
            order = torch.randperm(len(samples), generator=generator)
            for batch in samples[order].split(int(self.batch_size)):
                draws = torch.randn((len(batch), n_components), generator=generator, dtype=dtype)
                elbo = _elbo(decoder, encoder, log_variance, batch, draws[None])
                optimizer.zero_grad()
                (-elbo.mean()).backward()
                optimizer.step()
                total += elbo.detach().sum()
            decoder.eval()
            mean = float(total) / len(samples)
            seconds += time.perf_counter() - started
            if not math.isfinite(mean):
                raise FloatingPointError(
                    f"the lower bound became {mean} in epoch {len(self.history_) + 1}. "
                    f"Try a learning_rate below {self.learning_rate}, or rescale X."
                )
            self.history_.append(Epoch(mean, seconds))
        return self

    def _report(self, log_variance: Any) -> bool:
        """Bring the attributes up to date and tell the callback; True if training is over."""
        self.n_iter_ = len(self.history_)
        variance = np.exp(to_array(log_variance))
        self.noise_covariance_ = float(variance) if variance.ndim == 0 else variance
        wants_to_stop = self.callback is not None and self.callback(self) is True
        n = int(self.n_iter_no_change)
        if self.n_iter_ >= 2 * n:
            bounds = [epoch.elbo for epoch in self.history_[-2 * n :]]
            self.converged_ = bool(np.mean(bounds[n:]) - np.mean(bounds[:n]) < self.tol)
        return wants_to_stop or self.converged_

    def to_estimator(self) -> PiecewiseAffineDGN:
        """Return the decoder and its noise as an estimator with an exact density.

        Returns
        -------
        estimator : PiecewiseAffineDGN
            The estimator, as returned by `PiecewiseAffineDGN.from_torch`.

        Examples
        --------
        >>> import torch
        >>> from skdgn.datasets import make_noisy_circle
        >>> from skdgn.vae import GaussianVAE
        >>> X = make_noisy_circle(100, random_state=0)
        >>> start = torch.nn.Sequential(
        ...     torch.nn.Linear(1, 4), torch.nn.LeakyReLU(0.1), torch.nn.Linear(4, 2)
        ... )
        >>> vae = GaussianVAE(start, max_iter=2, random_state=0).fit(X)
        >>> vae.to_estimator().posterior(X[:3]).mean.shape
        (3, 1)
        """
        check_is_fitted(self)
        return PiecewiseAffineDGN.from_torch(self.decoder_, self.noise_covariance_)

    def encode(self, X: ArrayLike) -> tuple[Floats, Floats]:
        """Compute the encoder's Gaussian q(z | x) for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples without missing values.

        Returns
        -------
        means : ndarray of shape (n_samples, n_components)
            Mean of q for each sample.
        covariances : ndarray of shape (n_samples, n_components, n_components)
            Covariance of q for each sample, diagonal matrices.

        Examples
        --------
        >>> import torch
        >>> from skdgn.datasets import make_noisy_circle
        >>> from skdgn.vae import GaussianVAE
        >>> X = make_noisy_circle(100, random_state=0)
        >>> start = torch.nn.Sequential(
        ...     torch.nn.Linear(1, 4), torch.nn.LeakyReLU(0.1), torch.nn.Linear(4, 2)
        ... )
        >>> vae = GaussianVAE(start, max_iter=2, random_state=0).fit(X)
        >>> means, covariances = vae.encode(X)
        >>> vae.to_estimator().elbo(X, means, covariances).shape  # the bound, without draws
        (100,)
        """
        torch = import_torch()
        with torch.no_grad():
            means, log_variances = (to_array(part) for part in self.encoder_(self._samples(X)))
        return means, np.exp(log_variances)[:, :, None] * np.eye(means.shape[1])

    def monte_carlo_elbo(
        self, X: ArrayLike, n_draws: int = 100, random_state: Any = None
    ) -> tuple[Floats, Floats]:
        """Estimate the lower bound of each sample by draws from the encoder, as in training.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples without missing values.
        n_draws : int, default=100
            Number of draws of z for each sample.
        random_state : int, RandomState, Generator or None, default=None
            Seed of the draws.

        Returns
        -------
        elbo : ndarray of shape (n_samples,)
            Mean over the draws, in nats.
        standard_error : ndarray of shape (n_samples,)
            Standard error of this mean.

        Examples
        --------
        >>> import torch
        >>> from skdgn.datasets import make_noisy_circle
        >>> from skdgn.vae import GaussianVAE
        >>> X = make_noisy_circle(100, random_state=0)
        >>> start = torch.nn.Sequential(
        ...     torch.nn.Linear(1, 4), torch.nn.LeakyReLU(0.1), torch.nn.Linear(4, 2)
        ... )
        >>> vae = GaussianVAE(start, max_iter=2, random_state=0).fit(X)
        >>> elbo, standard_error = vae.monte_carlo_elbo(X, n_draws=20, random_state=0)
        >>> elbo.shape, bool((standard_error > 0.0).all())
        ((100,), True)
        """
        check_integer(n_draws, "n_draws", smallest=2)
        samples = self._samples(X)
        torch = import_torch()
        seed = draw_seed(random_state)
        generator = torch.Generator().manual_seed(seed)
        n_components = read_decoder(self.decoder_).n_components
        shape = (int(n_draws), len(samples), n_components)
        with torch.no_grad():
            draws = torch.randn(shape, generator=generator, dtype=samples.dtype)
            log_variance = torch.tensor(np.log(self.noise_covariance_), dtype=samples.dtype)
            elbo = to_array(_elbo(self.decoder_, self.encoder_, log_variance, samples, draws))
        return elbo.mean(axis=0), elbo.std(axis=0, ddof=1) / math.sqrt(n_draws)

    def _samples(self, X: ArrayLike) -> Any:
        """Check samples and turn them into a tensor of the decoder's precision."""
        check_is_fitted(self)
        table = validate_data(self, X, reset=False, dtype=np.float64)
        dtype = next(self.decoder_.parameters()).dtype
        return import_torch().from_numpy(table).to(dtype)


def _make_encoder(sizes: Sequence[int], dtype: Any, seed: int) -> GaussianEncoder:
    torch = import_torch()
    layers: list[Any] = []
    # PyTorch draws starting weights from its global generator, which is put back.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for fan_in, fan_out in pairwise(sizes):
            layers += [torch.nn.Linear(fan_in, fan_out, dtype=dtype), torch.nn.ReLU()]
    return GaussianEncoder(torch.nn.Sequential(*layers[:-1]))


def _elbo(
    decoder: Any, encoder: GaussianEncoder, log_variance: Any, samples: Any, draws: Any
) -> Any:
    """Lower bounds (m, n) of samples (n, D), for m standard normal draws (m, n, S) of each.

    The divergence of q from the prior is in closed form, the rest is the draws'.
    """
    means, log_variances = encoder(samples)
    latent = means + (0.5 * log_variances).exp() * draws
    residuals = samples - decoder(latent.flatten(0, 1)).reshape(*draws.shape[:2], -1)
    squares = residuals**2 * (-log_variance).exp() + log_variance
    log_likelihood = -0.5 * squares.sum(dim=-1) - samples.shape[1] * LOG_SQRT_2PI
    divergence = 0.5 * (means**2 + log_variances.exp() - 1.0 - log_variances).sum(dim=-1)
    return log_likelihood - divergence


def make_decoder(estimator: PiecewiseAffineDGN, dtype: str = "float32") -> Any:
    """Make a PyTorch decoder that computes the same function as the generator of an estimator.

    Parameters
    ----------
    estimator : PiecewiseAffineDGN
        Fitted estimator, or one constructed by ``from_network``.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the decoder.

    Returns
    -------
    decoder : torch.nn.Sequential
        ``Linear`` layers with activations between them.

    Examples
    --------
    >>> import torch
    >>> from skdgn import PiecewiseAffineDGN
    >>> from skdgn.vae import make_decoder
    >>> model = PiecewiseAffineDGN.from_network(
    ...     [[[1.0]], [[1.0], [2.0]]], [[0.0], [0.0, 0.0]], 0.01, activation="relu"
    ... )
    >>> make_decoder(model)(torch.tensor([[3.0]])).tolist()
    [[3.0, 6.0]]
    """
    if not isinstance(estimator, PiecewiseAffineDGN):
        raise ValueError(f"estimator must be a PiecewiseAffineDGN, got {type(estimator).__name__}.")
    return estimator.to_torch(dtype)
