"""How kernels are translated to LLVM's language: in fewer words than Numba's own.

Numba's translation is right for any function, and wordy for ours: it keeps variables in memory,
counts references to all arrays, and takes tuples of arrays apart wherever they are passed on.  LLVM
removes nearly all of this, but first it has to be written, parsed and optimized, which takes most
of the time of a first call.  Here,

- a variable that is assigned once is a value, not a place in memory;
- references are counted where arrays are made or returned.  Other kernels borrow the arrays that
  their callers hold on to;
- kernels that are parts of others receive tuples as they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from typing import Any

from llvmlite.ir import IRBuilder
from numba import types
from numba.core import cgutils, ir
from numba.core.analysis import compute_cfg_from_blocks, compute_use_defs
from numba.core.callconv import CPUCallConv
from numba.core.compiler_machinery import register_pass
from numba.core.datamodel import default_manager
from numba.core.ir_utils import get_definition, guard
from numba.core.lowering import Lower
from numba.core.runtime.context import NRTContext
from numba.core.typed_passes import BaseNativeLowering

# Expressions whose arrays are views of others: nothing has to be released.
_VIEWS = {"getitem", "static_getitem"}
# Expressions that read an entry of a pair, and which one.
_ENTRIES = {"pair_first": 0, "pair_second": 1}
# `range` with so many arguments has a step.
_WITH_STEP = 3


class _ArgumentsAsTheyAre:
    """Passes arguments as they are; Numba takes them apart."""

    def __init__(self, context: Any, kinds: Any) -> None:
        self.argument_types = [context.get_value_type(kind) for kind in kinds]

    def as_arguments(self, builder: Any, values: Any) -> Any:
        """Pack arguments for a call."""
        return values

    def from_arguments(self, builder: Any, arguments: Any) -> Any:
        """Unpack the arguments of a call."""
        return arguments

    def assign_names(self, arguments: Any, names: Any) -> None:
        """Name arguments, for those who read LLVM's language."""
        for argument, name in zip(arguments, names, strict=True):
            argument.name = name


class _PartConvention(CPUCallConv):
    """How parts of kernels are called."""

    def _get_arg_packer(self, argtypes: Any) -> _ArgumentsAsTheyAre:
        return _ArgumentsAsTheyAre(self.context, argtypes)


def _declare_part(context: Any, module: Any, fndesc: Any) -> Any:
    convention = _PartConvention(context)
    kind = convention.get_function_type(fndesc.restype, fndesc.argtypes)
    function = cgutils.get_or_insert_function(module, kind, fndesc.mangled_name)
    convention.decorate_function(function, fndesc.args, fndesc.argtypes)
    if fndesc.inline:
        function.attributes.add("alwaysinline")
    return function


class CallOfPart:
    """Translates calls of a part: registered with Numba."""

    def __init__(self, fndesc: Any, library: Any) -> None:
        self.signature = fndesc.argtypes
        self.libs = (library,)
        self._fndesc = fndesc

    def __call__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        fndesc, convention = self._fndesc, _PartConvention(context)
        function = _declare_part(context, builder.module, fndesc)
        status, result = convention.call_function(
            builder, function, fndesc.restype, fndesc.argtypes, arguments
        )
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return result


class _References(NRTContext):
    """Counts references without looking at what cannot hold any."""

    def get_meminfos(self, builder: Any, ty: Any, val: Any) -> list[tuple[Any, Any]]:
        """List types and addresses of all that is counted in a value."""
        model = default_manager[ty]
        if model.has_nrt_meminfo():
            return [(ty, model.get_nrt_meminfo(builder, val))]
        return [
            found
            for kind, getter in model.traverse(builder)
            if _holds_references(kind)
            for found in self.get_meminfos(builder, kind, getter(val))
        ]


class _KernelLower(Lower):
    """Translates a kernel."""

    def __init__(
        self, context: Any, library: Any, fndesc: Any, func_ir: Any, metadata: Any = None
    ) -> None:
        if _makes_arrays(fndesc):
            context = context.subtarget(nrt=_References(context, context.enable_nrt))
        else:
            context = context.subtarget(enable_nrt=False)
        super().__init__(context, library, fndesc, func_ir, metadata)

    def setup_function(self, fndesc: Any) -> None:
        """Begin a function."""
        if not self.flags.no_compile:
            super().setup_function(fndesc)
            return
        self.function = _declare_part(self.context, self.module, fndesc)
        self.entry_block = self.function.append_basic_block("entry")
        self.builder = IRBuilder(self.entry_block)
        self.call_helper = self.call_conv.init_call_helper(self.builder)

    def extract_function_arguments(self) -> Any:
        """Read the arguments of a function."""
        if not self.flags.no_compile:
            return super().extract_function_arguments()
        convention = _PartConvention(self.context)
        self.fnargs = convention.decode_arguments(self.builder, self.fndesc.argtypes, self.function)
        return self.fnargs

    def _is_counted(self, name: str) -> bool:
        return self.context.enable_nrt and _holds_references(self.typeof(name))

    def _find_singly_assigned_variable(self) -> None:
        """Find the variables that need no place in memory."""
        use_defs = compute_use_defs(self.blocks)
        dominators = compute_cfg_from_blocks(self.blocks).dominators()
        n_assigned = Counter(
            assignment.target.name
            for block in self.blocks.values()
            for assignment in block.find_insts(ir.Assign)
        )
        # Blocks that use a variable of another block, or before they assign it.
        users = defaultdict(list)
        for label, names in use_defs.usemap.items():
            for name in names:
                users[name].append(label)

        def is_value(name: str, home: int) -> bool:
            if n_assigned[name] != 1 or (users[name] and self._is_counted(name)):
                return False
            # Blocks are translated in the order of their labels.
            return all(home in dominators[user] and home < user for user in users[name])

        self._singly_assigned_vars = {
            name
            for home, names in use_defs.defmap.items()
            for name in names
            if is_value(name, home)
        }
        self._blk_local_varmap: dict[str, Any] = {}

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Translate an expression."""
        if expr.op == "getiter" and self._counts_up(expr.value):
            return self._begin_loop(self.loadvar(expr.value.name), resty)
        if expr.op == "iternext" and isinstance(
            self.typeof(expr.value.name), types.RangeIteratorType
        ):
            return self._go_on(self.loadvar(expr.value.name), self.typeof(expr.value.name))
        if expr.op in _ENTRIES and not self._is_counted(expr.value.name):
            pair = self.loadvar(expr.value.name)
            return self.builder.extract_value(pair, _ENTRIES[expr.op])
        return super().lower_expr(resty, expr)

    def _counts_up(self, iterable: Any) -> bool:
        """Tell whether a variable is a range whose step is one."""
        if not isinstance(self.typeof(iterable.name), types.RangeType):
            return False
        made_by = guard(get_definition, self.func_ir, iterable)
        return getattr(made_by, "op", None) == "call" and len(made_by.args) < _WITH_STEP

    def _begin_loop(self, steps: Any, kind: Any) -> Any:
        """Make an iterator of a range: where it is, and how many steps are left."""
        builder, integer = self.builder, self.context.get_value_type(kind.yield_type)
        start, stop = builder.extract_value(steps, 0), builder.extract_value(steps, 1)
        position, left = (cgutils.alloca_once(builder, integer, zfill=False) for _ in range(2))
        size = builder.sub(stop, start)
        is_positive = builder.icmp_signed(">", size, integer(0))
        builder.store(start, position)
        builder.store(builder.select(is_positive, size, integer(0)), left)
        return cgutils.pack_struct(builder, [position, stop, integer(1), left])

    def _go_on(self, loop: Any, kind: Any) -> Any:
        """Take a step of a loop: return its number, and whether there was one."""
        builder, integer = self.builder, self.context.get_value_type(kind.yield_type)
        position, _, step, left = cgutils.unpack_tuple(builder, loop, 4)
        number, n_left = builder.load(position), builder.load(left)
        builder.store(builder.add(number, step), position)
        builder.store(builder.sub(n_left, integer(1)), left)
        goes_on = builder.icmp_signed(">", n_left, integer(0))
        return cgutils.pack_struct(builder, [number, goes_on])

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """Read an element, or a part of an array."""
        address = self._address(value.name, index.name)
        if address is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        kind = self.typeof(value.name).dtype
        element = self.context.unpack_value(self.builder, kind, address)
        return self.context.cast(self.builder, element, kind, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Assign to an element, or to a part of an array."""
        address = self._address(target_var.name, index_var.name)
        if address is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        kind, own = self.typeof(target_var.name).dtype, self.typeof(value_var.name)
        value = self.context.cast(self.builder, self.loadvar(value_var.name), own, kind)
        self.context.pack_value(self.builder, kind, value, address)

    def _address(self, array: str, index: str) -> Any:
        """Return the address of an element; None if it is more than one."""
        kind, index_kind = self.typeof(array), self.typeof(index)
        index_kinds = index_kind.types if isinstance(index_kind, types.BaseTuple) else (index_kind,)
        if (
            not isinstance(kind, types.Array)
            or len(index_kinds) != kind.ndim
            or not all(isinstance(each, types.Integer) and each.signed for each in index_kinds)
        ):
            return None
        builder, model = self.builder, default_manager[kind]
        value, places = self.loadvar(array), self.loadvar(index)
        if isinstance(index_kind, types.BaseTuple):
            indices = cgutils.unpack_tuple(builder, places, kind.ndim)
        else:
            indices = [places]
        return cgutils.get_item_pointer2(
            self.context,
            builder,
            data=model.get(builder, value, "data"),
            shape=cgutils.unpack_tuple(builder, model.get(builder, value, "shape"), kind.ndim),
            strides=cgutils.unpack_tuple(builder, model.get(builder, value, "strides"), kind.ndim),
            layout=kind.layout,
            inds=[
                self.context.cast(builder, place, each, types.intp)
                for place, each in zip(indices, index_kinds, strict=True)
            ],
            wraparound=True,
        )

    def storevar(self, value: Any, name: str, argidx: Any = None) -> None:
        """Assign to a variable."""
        if self._is_counted(name) or name in self._singly_assigned_vars:
            super().storevar(value, name, argidx)
        else:
            self.builder.store(value, self.getvar(name))

    def delvar(self, name: str) -> None:
        """Forget a variable."""
        if self._is_counted(name):
            super().delvar(name)


@cache
def _holds_references(kind: Any) -> bool:
    return bool(default_manager[kind].contains_nrt_meminfo())


def _makes_arrays(fndesc: Any) -> bool:
    """Tell whether a kernel makes or returns arrays, which somebody has to release."""

    def makes_arrays(statement: Any, signature: Any) -> bool:
        if isinstance(statement, (ir.SetItem, ir.StaticSetItem)):
            return _holds_references(signature.args[-1])  # copied, if both may be of one array
        is_view = isinstance(statement, ir.Expr) and statement.op in _VIEWS
        if is_view and not _holds_references(signature.args[1]):  # indices that are no array
            return False
        return _holds_references(signature.return_type)

    return _holds_references(fndesc.restype) or any(
        makes_arrays(statement, signature)
        for statement, signature in fndesc.calltypes.items()
        if signature is not None
    )


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(BaseNativeLowering):
    """Translates kernels."""

    _name = "kernel_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        """What does it."""
        return _KernelLower
