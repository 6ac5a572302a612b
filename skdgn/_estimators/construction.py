"""Estimators made of networks that are known already, instead of being fitted."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skdgn._estimators.fits import NOT_ITERATED, attributes_of_model
from skdgn._network import (
    ACTIVATIONS,
    Network,
    activations_per_layer,
    check_blueprints,
    check_filled,
    check_shapes,
    import_torch,
    n_inputs_of,
    read_decoder,
    to_array,
    write_decoder,
)
from skdgn._network import Blueprint as Layer
from skdgn._noise import Noise
from skdgn._posterior import build_model


class KnownNetworks:
    """Methods of `PiecewiseAffineDGN` that construct it from known weights; a mixin."""

    _network: Network

    @classmethod
    def from_network(
        cls,
        coefs: Sequence[ArrayLike] | None = None,
        intercepts: Sequence[ArrayLike] | None = None,
        noise_covariance: ArrayLike | None = None,
        *,
        activation: str | Sequence[str] | None = None,
        negative_slope: float | Sequence[float] = 0.1,
        layers: Sequence[Layer] | None = None,
    ) -> Self:
        """Return a fitted estimator with these parameters.

        Parameters
        ----------
        coefs : sequence of array-like
            ``coefs[l]`` has shape (fan_out, fan_in); the last layer has no activation.
        intercepts : sequence of array-like
            ``intercepts[l]`` has shape (fan_out,).
        noise_covariance : float, array-like or tuple of two array-like
            Covariance of the noise: a variance, variances (n_features,), a matrix (n_features,
            n_features), or a pair of loadings F (n_features, n_factors) and variances psi
            (n_features,), whose covariance is ``F F' + diag(psi)``.
        activation : {"relu", "leaky_relu", "abs"} or sequence of these
            Activation of the hidden units, or one for each hidden layer; ignored if there are none.
        negative_slope : float or sequence of float, default=0.1
            Slope of ``"leaky_relu"`` for negative inputs, or one for each hidden layer.
        layers : sequence of layers, default=None
            Layers of `skdgn.layers` with their weights, from latent space to the features, instead
            of ``coefs``, ``intercepts`` and ``activation``.

        Returns
        -------
        estimator : PiecewiseAffineDGN
            A fitted estimator; `fit` would start again, `partial_fit` continues from these weights.

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
        if layers is not None:
            for name, value in (
                ("coefs", coefs),
                ("intercepts", intercepts),
                ("activation", activation),
            ):
                if value is not None:
                    raise ValueError(f"{name} must be None if layers are given, got {value!r}.")
            network = _network_of(check_blueprints(layers, "layers"))
            return cls._from_parts(network, noise_covariance, hidden_layers=list(layers))
        if activation is None:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got None.")
        n_hidden_layers = max(len(coefs) - 1, 0) if isinstance(coefs, Sized) else 0
        activations = activations_per_layer(activation, negative_slope, n_hidden_layers)
        network = Network.from_arrays(coefs, intercepts, activations)
        return cls._from_parts(
            network,
            noise_covariance,
            hidden_layer_sizes=network.hidden_layer_sizes,
            activation=activation,
            negative_slope=negative_slope,
        )

    @classmethod
    def _from_parts(cls, network: Network, noise_covariance: Any, **parameters: Any) -> Self:
        """Make a fitted estimator of a network, with the parameters that describe it."""
        noise = Noise.from_covariance(noise_covariance, network.n_features)
        model = build_model(network, noise)
        make: Any = cls  # the estimator's parameters are its own affair
        estimator = make(network.n_components, **noise.parameters, **parameters)
        estimator.n_features_in_ = network.n_features
        estimator.__dict__.update(attributes_of_model(model), **NOT_ITERATED)
        return estimator

    @classmethod
    def from_torch(cls, decoder: Any, noise_covariance: Any) -> Self:
        """Return a fitted estimator with the weights of a PyTorch decoder.

        Parameters
        ----------
        decoder : torch.nn.Sequential
            A decoder made of the modules that correspond to `skdgn.layers`, nested or not, in
            single or double precision and in eval mode: ``Linear``, convolutions and transposed
            convolutions of one and two axes, ``Upsample``, average and maximum pooling,
            ``BatchNorm``, ``Flatten`` and ``Unflatten``, ``ReLU``, ``LeakyReLU``, ``PReLU``,
            ``ReLU6``, ``Hardtanh``, ``Hardsigmoid``, ``Softshrink``; ``Identity`` and ``Dropout``
            do nothing.  The first module must be ``Linear`` or ``Unflatten``.  Consecutive
            ``Linear`` layers are multiplied into one.
        noise_covariance : float, array-like or torch.Tensor
            Covariance of the noise: a number, (n_features,) or (n_features, n_features).

        Returns
        -------
        estimator : PiecewiseAffineDGN
            A fitted estimator, whose weights are copies in double precision.

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
        layers = read_decoder(decoder).layers
        network = _network_of(tuple(layers))
        if network.blueprints is not None:
            return cls._from_parts(network, to_array(noise_covariance), hidden_layers=layers)
        names = [activation.name for activation in network.activations]
        slopes = [activation.negative_slope for activation in network.activations]
        alike = len(set(network.activations)) <= 1
        return cls._from_parts(
            network,
            to_array(noise_covariance),
            hidden_layer_sizes=network.hidden_layer_sizes,
            activation=(names or ["relu"])[0] if alike else names,
            negative_slope=(slopes or [0.0])[0] if alike else slopes,
        )

    def to_torch(self, dtype: str = "float32") -> Any:
        """Return a PyTorch decoder that computes the same function as the network.

        Parameters
        ----------
        dtype : {"float32", "float64"}, default="float32"
            Precision of the decoder.

        Returns
        -------
        decoder : torch.nn.Sequential
            A decoder from latent points (n, n_components) to features (n, n_features), in eval
            mode.

        Examples
        --------
        >>> import torch
        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[1.0]], [[1.0], [2.0]]], [[0.0], [0.0, 0.0]], 0.01, activation="relu"
        ... )
        >>> model.to_torch()(torch.tensor([[3.0]])).tolist()
        [[3.0, 6.0]]
        """
        torch = import_torch()
        check_is_fitted(self)
        if dtype not in ("float32", "float64"):
            raise ValueError(f'dtype must be "float32" or "float64", got {dtype!r}.')
        return write_decoder(self._network, getattr(torch, dtype))


def _network_of(layers: tuple[Layer, ...]) -> Network:
    """Build a network of layers that must have all their weights."""
    n_components = n_inputs_of(layers)
    if n_components is None:
        raise ValueError(
            "layers must begin with one whose number of inputs is known, Dense with its coef or "
            f"Reshape, got {layers[0] if layers else 'no layer'!r}."
        )
    check_filled(layers, "layers")
    check_shapes(layers, n_components, "layers")
    return Network.from_filled(layers, n_components)
