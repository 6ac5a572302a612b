"""PyTorch decoders: read, and written.

PyTorch is imported when a function here is called, never before: the rest of the package does
without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from skdgn._network.network import Activation, Network, finite_array
from skdgn._runtime import Floats


class Decoder(NamedTuple):
    """A PyTorch decoder's weights, as `PiecewiseAffineDGN.from_network` takes them."""

    coefs: list[Floats]
    intercepts: list[Floats]
    activation: Activation


def import_torch() -> Any:
    """Import PyTorch, or say what to install."""
    try:
        import torch
    except ImportError as error:
        raise ImportError('PyTorch is needed for this: pip install "skdgn[torch]".') from error
    return torch


def to_array(value: Any) -> Any:
    """Turn a tensor into an array; leave everything else as it is."""
    torch = import_torch()
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to("cpu", torch.float64).numpy()


def read_decoder(decoder: Any) -> Decoder:
    """Read the weights of a Sequential of Linear, ReLU and LeakyReLU layers."""
    nn = import_torch().nn
    layers = list(_layers(decoder, "", nn))
    positions = [position for position, _ in layers]
    if not layers or not isinstance(layers[0][1], nn.Linear):
        found = type(layers[0][1]).__name__ if layers else "no layer"
        raise ValueError(f"decoder must begin with a Linear layer, got {found}.")
    if not isinstance(layers[-1][1], nn.Linear):
        raise ValueError(
            "decoder must end with a Linear layer: the noise is added to an affine output, "
            f"got {layers[-1][1]} at position {positions[-1]}."
        )
    for (before, first), (position, second) in pairwise(layers):
        if not isinstance(first, nn.Linear) and not isinstance(second, nn.Linear):
            raise ValueError(
                "decoder must have a Linear layer before each activation, "
                f"got {second} at position {position} after {first} at position {before}."
            )
    activation = _common_activation(layers, nn)
    coefs: list[Floats] = []
    intercepts: list[Floats] = []
    is_merged = False
    for position, layer in layers:
        if not isinstance(layer, nn.Linear):
            is_merged = False
            continue
        weights, biases = _affine_map(position, layer)
        if is_merged:
            if weights.shape[1] != coefs[-1].shape[0]:
                raise ValueError(
                    f"decoder must have {coefs[-1].shape[0]} inputs at position {position}, "
                    f"the outputs of the layer before, got {weights.shape[1]}."
                )
            weights, biases = weights @ coefs.pop(), weights @ intercepts.pop() + biases
        coefs.append(weights)
        intercepts.append(biases)
        is_merged = True
    return Decoder(coefs, intercepts, activation)


def _layers(decoder: Any, position: str, nn: Any) -> Iterator[tuple[str, Any]]:
    """Yield position and layer, through nested Sequentials; positions are PyTorch's names."""
    if not _is_plain(decoder, nn.Sequential):
        raise ValueError(
            "decoder must be a torch.nn.Sequential of Linear, ReLU and LeakyReLU layers, "
            f"got {type(decoder).__name__}."
        )
    for name, layer in decoder.named_children():
        here = f"{position}.{name}" if position else name
        if _is_plain(layer, nn.Sequential):
            yield from _layers(layer, here, nn)
        elif any(_is_plain(layer, kind) for kind in (nn.Linear, nn.ReLU, nn.LeakyReLU)):
            yield here, layer
        else:
            raise ValueError(
                "decoder must hold Linear, ReLU and LeakyReLU layers only, without hooks, "
                f"got {type(layer).__name__} at position {here}."
            )


def _is_plain(layer: Any, kind: Any) -> bool:
    """Tell whether a layer computes what its kind does: no other `forward`, no hooks."""
    return (
        isinstance(layer, kind)
        and type(layer).forward is kind.forward
        and not layer._forward_hooks
        and not layer._forward_pre_hooks
    )


def _common_activation(layers: list[tuple[str, Any]], nn: Any) -> Activation:
    """Return the activation of all hidden layers; without any, it does not matter which."""
    activations = [(p, layer) for p, layer in layers if not isinstance(layer, nn.Linear)]
    slopes = [float(getattr(layer, "negative_slope", 0.0)) for _, layer in activations]
    for (position, layer), slope in zip(activations, slopes, strict=True):
        if slope != slopes[0]:
            first_position, first = activations[0]
            raise ValueError(
                "decoder must have the same activation, with the same slope, throughout, "
                f"got {first} at position {first_position} and {layer} at position {position}."
            )
    if not slopes or slopes[0] == 0.0:
        return Activation.from_name("relu", 0.0)
    return Activation.from_name("leaky_relu", slopes[0])


def _affine_map(position: str, layer: Any) -> tuple[Floats, Floats]:
    torch = import_torch()
    if layer.weight.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            "decoder must hold weights of type torch.float32 or torch.float64, "
            f"got {layer.weight.dtype} at position {position}."
        )
    weights = finite_array(to_array(layer.weight), f"decoder: {position}.weight")
    if layer.bias is None:
        return weights, np.zeros(len(weights))
    return weights, finite_array(to_array(layer.bias), f"decoder: {position}.bias")


def write_decoder(network: Network, dtype: Any) -> Any:
    """Make a Sequential that computes what a network does."""
    torch = import_torch()
    layers: list[Any] = []
    for coef, intercept in zip(network.coefs, network.intercepts, strict=True):
        if layers:
            layers.append(_write_activation(network.activation, torch.nn))
        linear = torch.nn.Linear(coef.shape[1], coef.shape[0], dtype=dtype)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(coef.copy()))
            linear.bias.copy_(torch.from_numpy(intercept.copy()))
        layers.append(linear)
    return torch.nn.Sequential(*layers)


def _write_activation(activation: Activation, nn: Any) -> Any:
    if activation.name == "relu":
        return nn.ReLU()
    # The absolute value is a leaky ReLU of slope -1.
    return nn.LeakyReLU(activation.negative_slope)
