"""Estimators made of networks that are known already, instead of being fitted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skdgn._estimators.attributes import attributes_of_model
from skdgn._network import Activation, Network, read_decoder, to_array
from skdgn._noise import Noise
from skdgn._posterior import Model


class KnownNetworks:
    """The methods of `PiecewiseAffineDGN` that make one of weights; a mixin."""

    @classmethod
    def from_network(
        cls,
        coefs: Sequence[ArrayLike],
        intercepts: Sequence[ArrayLike],
        noise_covariance: ArrayLike,
        *,
        activation: str,
        negative_slope: float = 0.1,
    ) -> Self:
        """Return a fitted estimator with these parameters.

        Parameters
        ----------
        coefs : sequence of array-like
            ``coefs[l]`` has shape (fan_out, fan_in); the last layer has no activation.
        intercepts : sequence of array-like
            ``intercepts[l]`` has shape (fan_out,).
        noise_covariance : float or array-like of shape (n_features,) or (n_features, n_features)
            Covariance of the noise: spherical, diagonal or full.
        activation : {"relu", "leaky_relu", "abs"}
            Activation of the hidden units; of no account if there are none.
        negative_slope : float, default=0.1
            Slope of ``"leaky_relu"`` for negative inputs.

        Returns
        -------
        estimator : PiecewiseAffineDGN
            As if it had been fitted; `fit` would begin anew, `partial_fit` goes on from here.

        Examples
        --------
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     coefs=[[[1.0], [-1.0]], [[1.0, 0.0], [0.0, 2.0]]],
        ...     intercepts=[[0.0, 1.0], [0.0, 0.0]],
        ...     noise_covariance=[0.1, 0.2],
        ...     activation="relu",
        ... )  # x_1 = max(z, 0), x_2 = 2 max(1 - z, 0), and noise
        >>> model.n_regions_, model.covariance_type
        (3, 'diag')
        >>> model.inverse_transform([[0.5]])
        array([[0.5, 1. ]])
        """
        network = Network.from_arrays(
            coefs, intercepts, Activation.from_name(activation, negative_slope)
        )
        noise = Noise.from_covariance(noise_covariance, network.n_features)
        model = Model.build(network, noise)
        make: Any = cls  # the estimator's parameters are its own affair
        estimator = make(
            network.n_components,
            hidden_layer_sizes=network.hidden_layer_sizes,
            activation=activation,
            negative_slope=negative_slope,
            covariance_type=noise.covariance_type,
        )
        estimator.n_features_in_ = network.n_features
        estimator.__dict__.update(
            attributes_of_model(model),
            converged_=True,
            n_iter_=0,
            lower_bounds_=np.empty(0),
            lower_bound_=math.nan,
            _running=None,
        )
        return estimator

    @classmethod
    def from_torch(cls, decoder: Any, noise_covariance: Any) -> Self:
        """Return a fitted estimator with the weights of a PyTorch decoder.

        Parameters
        ----------
        decoder : torch.nn.Sequential
            Of ``Linear`` (with a bias or without), ``ReLU`` and ``LeakyReLU`` layers, nested or
            not, in single or double precision.  It begins and ends with a ``Linear`` layer; all
            activations are the same.  ``Linear`` layers with no activation between them become
            one, by their product.
        noise_covariance : float, array-like or torch.Tensor
            Covariance of the noise: a number, (n_features,) or (n_features, n_features).

        Returns
        -------
        estimator : PiecewiseAffineDGN
            Its weights are copies, in double precision.

        Examples
        --------
        >>> import torch
        >>> from skdgn import PiecewiseAffineDGN
        >>> decoder = torch.nn.Sequential(
        ...     torch.nn.Linear(1, 4), torch.nn.LeakyReLU(0.1), torch.nn.Linear(4, 2)
        ... )
        >>> model = PiecewiseAffineDGN.from_torch(decoder, noise_covariance=0.01)
        >>> model.score_samples([[0.0, 0.0], [1.0, -1.0]]).shape
        (2,)
        """
        coefs, intercepts, activation = read_decoder(decoder)
        return cls.from_network(
            coefs,
            intercepts,
            to_array(noise_covariance),
            activation=activation.name,
            negative_slope=activation.negative_slope,
        )
