"""PyTorch decoders: read, and written.

PyTorch is imported when a function here is called, never before: the rest of the package does
without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from skdgn._network import blueprints as layers
from skdgn._network.blueprints.activations import Unitwise
from skdgn._network.blueprints.blueprint import Blueprint
from skdgn._network.blueprints.sequences import n_inputs_of, shape_after
from skdgn._network.network import Network
from skdgn._runtime import Floats, finite_array, require


class Decoder(NamedTuple):
    """A PyTorch decoder, as `PiecewiseAffineDGN.from_network` takes its layers."""

    layers: list[Blueprint]
    n_components: int
    n_features: int


def import_torch() -> Any:
    """Import PyTorch, or say what to install."""
    return require("torch", "torch", "This")


def to_array(value: Any) -> Any:
    """Turn a tensor into an array; leave everything else as it is."""
    torch = import_torch()
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to("cpu", torch.float64).numpy()


class _Module(NamedTuple):
    """A module, and PyTorch's name of its position."""

    module: Any
    position: str

    def array(self, name: str) -> Floats | None:
        """Copy a parameter or buffer, None if there is none."""
        torch, value = import_torch(), getattr(self.module, name)
        if value is None:
            return None
        if value.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                "decoder must hold weights of type torch.float32 or torch.float64, "
                f"got {value.dtype} at position {self.position}."
            )
        return finite_array(to_array(value), f"decoder: {self.position}.{name}")

    def branch(self, modules: Any, name: str) -> list[Blueprint]:
        """Read the layers of a Sequential inside the module."""
        return [layer for _, layer in _read_all(modules, f"{self.position}.{name}")]

    def demand(self, **wanted: Any) -> None:
        """Refuse a module that has other settings."""
        for name, value in wanted.items():
            given = getattr(self.module, name)
            if given != value:
                raise ValueError(
                    f"decoder must have {name}={value!r} in {type(self.module).__name__} at "
                    f"position {self.position}, got {given!r}."
                )


# Readers, by the name of the module in torch.nn.


def _read_linear(own: _Module) -> Blueprint:
    return layers.Dense(own.module.out_features, own.array("weight"), own.array("bias"))


def _convolution(make: Callable[..., Blueprint]) -> Callable[[_Module], Blueprint]:
    def read(own: _Module) -> Blueprint:
        own.demand(padding_mode="zeros")
        module, extra = own.module, {}
        padding = module.padding
        if padding == "valid":
            padding = 0
        elif padding == "same":
            reaches = [
                d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)
            ]
            if any(reach % 2 for reach in reaches):
                raise ValueError(
                    'decoder must have kernels of odd reach where padding="same", '
                    f"got {module} at position {own.position}."
                )
            padding = tuple(reach // 2 for reach in reaches)
        if module.transposed:
            extra["output_padding"] = module.output_padding
        return make(
            module.out_channels,
            module.kernel_size,
            stride=module.stride,
            padding=padding,
            dilation=module.dilation,
            groups=module.groups,
            coef=own.array("weight"),
            intercept=own.array("bias"),
            **extra,
        )

    return read


def _read_upsample(own: _Module) -> Blueprint:
    factor, mode = own.module.scale_factor, own.module.mode
    factors = factor if isinstance(factor, tuple) else (factor,)
    if factor is None or any(value != int(value) for value in factors):
        raise ValueError(
            "decoder must have whole scale_factors in Upsample, "
            f"got {own.module} at position {own.position}."
        )
    whole = tuple(map(int, factors))
    if mode not in ("nearest", "linear", "bilinear"):
        raise ValueError(
            'decoder must have mode "nearest", "linear" or "bilinear" in Upsample, '
            f"got {mode!r} at position {own.position}."
        )
    size = whole if isinstance(factor, tuple) else whole[0]
    return layers.Upsample(size, mode, align_corners=bool(own.module.align_corners))


def _read_average(own: _Module) -> Blueprint:
    own.demand(ceil_mode=False, count_include_pad=True)
    if getattr(own.module, "divisor_override", None) is not None:
        own.demand(divisor_override=None)
    module = own.module
    return layers.AvgPool(_per_axis(own), stride=module.stride, padding=module.padding)


def _read_maximum(own: _Module) -> Blueprint:
    module = own.module
    ones = (1,) * len(module.dilation) if isinstance(module.dilation, tuple) else 1
    own.demand(ceil_mode=False, return_indices=False, dilation=ones)
    return layers.MaxPool(_per_axis(own), stride=module.stride, padding=module.padding)


def _per_axis(own: _Module) -> tuple[int, ...]:
    """Size of the windows of a pooling module, one for each of the axes that it pools.

    PyTorch takes inputs with one axis less for a single sample, whose channels are an axis.
    """
    size, nn = own.module.kernel_size, import_torch().nn
    n_axes = 2 if isinstance(own.module, nn.MaxPool2d | nn.AvgPool2d) else 1
    return tuple(size) if isinstance(size, tuple | list) else (size,) * n_axes


def _read_normalization(own: _Module) -> Blueprint:
    if own.module.training or own.module.running_mean is None:
        raise ValueError(
            "decoder must be in eval mode, with running statistics: what batch normalization does "
            f"would depend on the batch, got {type(own.module).__name__} at position "
            f"{own.position}."
        )
    mean, variance = own.array("running_mean"), own.array("running_var")
    assert mean is not None
    assert variance is not None
    weight, bias = own.array("weight"), own.array("bias")
    return layers.BatchNorm(mean, variance, weight, bias, eps=own.module.eps)


def _read_flatten(own: _Module) -> Blueprint:
    own.demand(start_dim=1, end_dim=-1)
    return layers.Flatten()


def _read_unflatten(own: _Module) -> Blueprint:
    if own.module.dim not in (1, -1):
        own.demand(dim=1)
    size = own.module.unflattened_size
    if not all(isinstance(entry, int) for entry in size) or min(size) < 1:
        raise ValueError(
            "decoder must have a shape of positive integers in Unflatten, "
            f"got {size} at position {own.position}."
        )
    return layers.Reshape(tuple(size))


def _read_leaky(own: _Module) -> Blueprint:
    slope = float(own.module.negative_slope)
    return layers.ReLU() if slope == 0.0 else layers.LeakyReLU(slope)


def _read_slopes(own: _Module) -> Blueprint:
    slopes = own.array("weight")
    assert slopes is not None
    # One slope is shared by all channels, as many as channels are one for each.
    return layers.PReLU("layer" if len(slopes) == 1 else "channel", slopes)


def _read_residual(own: _Module) -> Blueprint:
    return layers.Residual(*own.branch(own.module.branch, "branch"))


def _read_branches(own: _Module) -> Blueprint:
    branches = own.module.branches.named_children()
    return layers.Concatenate(*(own.branch(each, f"branches.{name}") for name, each in branches))


def _read_piecewise(own: _Module) -> Blueprint:
    kinks, slopes, value = (own.array(name) for name in ("kinks", "slopes", "value_at_zero"))
    assert kinks is not None
    assert slopes is not None
    assert value is not None
    return layers.PiecewiseAffine(kinks.tolist(), slopes.tolist(), float(value))


_READERS: dict[str, Callable[[_Module], Blueprint | None]] = {
    "Linear": _read_linear,
    "Conv1d": _convolution(layers.Conv1d),
    "Conv2d": _convolution(layers.Conv2d),
    "ConvTranspose1d": _convolution(layers.ConvTranspose1d),
    "ConvTranspose2d": _convolution(layers.ConvTranspose2d),
    "Upsample": _read_upsample,
    "AvgPool1d": _read_average,
    "AvgPool2d": _read_average,
    "MaxPool1d": _read_maximum,
    "MaxPool2d": _read_maximum,
    "BatchNorm1d": _read_normalization,
    "BatchNorm2d": _read_normalization,
    "Flatten": _read_flatten,
    "Unflatten": _read_unflatten,
    "ReLU": lambda own: layers.ReLU(),
    "LeakyReLU": _read_leaky,
    "PReLU": _read_slopes,
    "Hardtanh": lambda own: layers.HardTanh(own.module.min_val, own.module.max_val),
    "ReLU6": lambda own: layers.ReLU6(),
    "Hardsigmoid": lambda own: layers.HardSigmoid(),
    "Softshrink": lambda own: layers.Softshrink(own.module.lambd),
    "Identity": lambda own: None,
    "Dropout": lambda own: None,
    "Dropout1d": lambda own: None,
    "Dropout2d": lambda own: None,
}

# The same for modules that `to_torch` writes where PyTorch has none.
_READERS_OF_OURS: dict[str, Callable[[_Module], Blueprint | None]] = {
    "Residual": _read_residual,
    "Concatenate": _read_branches,
    "MaxOut": lambda own: layers.MaxOut(own.module.n_pieces),
    "MaxUpsample": lambda own: layers.MaxUpsample(own.module.scale_factor),
    "PReLUPerUnit": lambda own: layers.PReLU("unit", own.array("weight")),
    "PiecewiseAffine": _read_piecewise,
}


def read_decoder(decoder: Any) -> Decoder:
    """Read the layers of a Sequential, with their weights; check that their shapes fit."""
    kept = _read_all(decoder, "")
    blueprints = [layer for _, layer in kept]
    n_inputs = n_inputs_of(blueprints)
    if n_inputs is None:
        first = f"{kept[0][0].module} at position {kept[0][0].position}" if kept else "no layer"
        raise ValueError(f"decoder must begin with a Linear or an Unflatten layer, got {first}.")
    labels = [f"{type(own.module).__name__} at position {own.position}" for own, _ in kept]
    shape = shape_after(blueprints, (n_inputs,), "decoder", labels)
    return Decoder(blueprints, n_inputs, math.prod(shape))


def _read_all(decoder: Any, position: str) -> list[tuple[_Module, Blueprint]]:
    """Read the modules of a Sequential that do something."""
    nn = import_torch().nn
    found = [(own, _read(own, nn)) for own in _modules(decoder, position, nn)]
    return [(own, layer) for own, layer in found if layer is not None]


def _modules(decoder: Any, position: str, nn: Any) -> Iterator[_Module]:
    """Yield modules through nested Sequentials."""
    if not _is_plain(decoder, nn.Sequential):
        raise ValueError(
            f"decoder must be a torch.nn.Sequential of {', '.join(_READERS)} layers, "
            f"got {type(decoder).__name__}."
        )
    # (`named_children` would leave out a module that is there twice.)
    for name, module in decoder._modules.items():
        here = f"{position}.{name}" if position else name
        if _is_plain(module, nn.Sequential):
            yield from _modules(module, here, nn)
        else:
            yield _Module(module, here)


def _read(own: _Module, nn: Any) -> Blueprint | None:
    """Read a module by the reader of its kind."""
    for readers, home in ((_READERS, nn), (_READERS_OF_OURS, _our_modules())):
        for kind in type(own.module).__mro__:
            name = kind.__name__
            is_known = name in readers and kind is getattr(home, name, None)
            if is_known and _is_plain(own.module, kind):
                return _read_by(readers[name], own)
    raise ValueError(
        f"decoder must hold {', '.join(_READERS)} layers only, or what `to_torch` writes, without "
        f"hooks, got {type(own.module).__name__} at position {own.position}."
    )


def _read_by(read: Callable[[_Module], Blueprint | None], own: _Module) -> Blueprint | None:
    """Read a module; what its layer refuses is said with its position."""
    try:
        return read(own)
    except ValueError as error:
        if str(error).startswith("decoder"):
            raise
        label = f"{type(own.module).__name__} at position {own.position}"
        raise ValueError(f"decoder: {label}: {error}") from error


def _is_plain(layer: Any, kind: Any) -> bool:
    """Tell whether a layer computes what its kind does: no other `forward`, no hooks."""
    return (
        isinstance(layer, kind)
        and type(layer).forward is kind.forward
        and "forward" not in vars(layer)
        and not layer._forward_hooks
        and not layer._forward_pre_hooks
    )


# Writers, by the name of the layer.


def write_decoder(network: Network, dtype: Any) -> Any:
    """Make a Sequential that computes what a network does."""
    torch = import_torch()
    modules, shape = _write_all(network.filled_blueprints(), (network.n_components,))
    if len(shape) > 1:
        modules.append(torch.nn.Flatten())
    return torch.nn.Sequential(*modules).to(dtype).eval()


def _write_all(
    blueprints: Sequence[Blueprint], shape: tuple[int, ...]
) -> tuple[list[Any], tuple[int, ...]]:
    """Write layers for inputs of this shape; the modules, and the shape behind them."""
    nn, modules = import_torch().nn, []
    for layer in blueprints:
        if isinstance(layer, layers.Dense | layers.Flatten | layers.Reshape) and len(shape) > 1:
            modules.append(nn.Flatten())
        if not isinstance(layer, layers.Flatten):
            modules.append(_write(layer, shape))
        shape = layer.output_shape(shape)
    return modules, shape


def _write(layer: Blueprint, shape: tuple[int, ...]) -> Any:
    """Write one layer."""
    nn, n_axes = import_torch().nn, len(shape) - 1
    match layer:
        case layers.Dense():
            return _fill(nn.Linear(math.prod(shape), layer.n_units), layer)
        case layers.Conv1d() | layers.Conv2d():
            make = nn.Conv1d if n_axes == 1 else nn.Conv2d
            return _fill(make(shape[0], layer.n_channels, **_settings(layer)), layer)
        case layers.ConvTranspose1d() | layers.ConvTranspose2d():
            make = nn.ConvTranspose1d if n_axes == 1 else nn.ConvTranspose2d
            settings = {**_settings(layer), "output_padding": layer.output_padding}
            return _fill(make(shape[0], layer.n_channels, **settings), layer)
        case layers.MaxUpsample():
            (built,) = layer._build(shape, np.random.default_rng(0))
            behind = layer.output_shape(shape)
            return _our_modules().MaxUpsample(layer.scale_factor, built.contests, behind)
        case layers.Upsample():
            corners = None if layer.mode == "nearest" else layer.align_corners
            return nn.Upsample(
                scale_factor=layer.scale_factor, mode=layer.mode, align_corners=corners
            )
        case layers.AvgPool():
            make = nn.AvgPool1d if n_axes == 1 else nn.AvgPool2d
            return make(layer.kernel_size, layer.stride, layer.padding)
        case layers.MaxPool():
            make = nn.MaxPool1d if n_axes == 1 else nn.MaxPool2d
            return make(layer.kernel_size, layer.stride, layer.padding)
        case layers.BatchNorm():
            return _write_normalization(layer, n_axes)
        case layers.Reshape():
            return nn.Unflatten(1, layer.shape)
        case layers.PReLU():
            return _write_slopes(layer, shape)
        case layers.Residual():
            return _our_modules().Residual(_write_branch(layer.layers, shape))
        case layers.Concatenate():
            branches = [_write_branch(branch, shape) for branch in layer.branches]
            return _our_modules().Concatenate(branches)
        case layers.MaxOut():
            return _our_modules().MaxOut(layer.n_pieces)
        case Unitwise():
            return _write_activation(layer)
    raise TypeError(f"no writer for {layer!r}")


def _write_branch(blueprints: Sequence[Blueprint], shape: tuple[int, ...]) -> Any:
    return import_torch().nn.Sequential(*_write_all(blueprints, shape)[0])


def _settings(layer: Any) -> dict[str, Any]:
    names = ("kernel_size", "stride", "padding", "dilation", "groups")
    return {name: getattr(layer, name) for name in names}


def _fill(module: Any, layer: Any) -> Any:
    torch = import_torch()
    module = module.double()
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(np.array(layer.coef)))
        module.bias.copy_(torch.from_numpy(np.array(layer.intercept)))
    return module


def _write_normalization(layer: layers.BatchNorm, n_axes: int) -> Any:
    torch = import_torch()
    make = torch.nn.BatchNorm2d if n_axes == 2 else torch.nn.BatchNorm1d
    module = make(len(layer.mean), eps=layer.eps).double()
    with torch.no_grad():
        for name, values in (
            ("running_mean", layer.mean),
            ("running_var", layer.variance),
            ("weight", layer.weight),
            ("bias", layer.bias),
        ):
            getattr(module, name).copy_(torch.from_numpy(np.array(values)))
    return module


def _write_slopes(layer: layers.PReLU, shape: tuple[int, ...]) -> Any:
    torch = import_torch()
    assert layer.slopes is not None
    if layer.shared == "unit" and len(shape) > 1:
        return _our_modules().PReLUPerUnit(layer.slopes, shape)
    module = torch.nn.PReLU(len(layer.slopes)).double()
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(np.array(layer.slopes)))
    return module


def _write_activation(layer: Unitwise) -> Any:
    nn = import_torch().nn
    match layer:
        case layers.ReLU():
            return nn.ReLU()
        case layers.Abs():
            return nn.LeakyReLU(-1.0)  # the absolute value
        case layers.LeakyReLU():
            return nn.LeakyReLU(layer.negative_slope)
        case layers.ReLU6():
            return nn.ReLU6()
        case layers.HardTanh():
            return nn.Hardtanh(layer.min_val, layer.max_val)
        case layers.HardSigmoid():
            return nn.Hardsigmoid()
        case layers.Softshrink():
            return nn.Softshrink(layer.lambd)
    function = layer._function
    return _our_modules().PiecewiseAffine(
        function.kinks, function.piece_slopes, function.value_at_zero
    )


def _our_modules() -> Any:
    """Modules for what PyTorch has none; there once PyTorch is."""
    from skdgn._network import torch_modules

    return torch_modules
