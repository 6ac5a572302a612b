"""Kernels that call each other are compiled together, once.

Numba turns every function into machine code of its own, with two wrappers for calls from outside,
and every caller into machine code once more, with copies of all that it calls: in a chain of ten
calls the last function is optimized ten times.  Only a kernel that Python calls needs this.  One
that other kernels call is translated no further than to LLVM's language; it is linked into the
kernels that Python calls, and optimized there.

That is decided when a kernel is called: from Python, or from another kernel that is being compiled.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite.binding import Linkage
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering
from numba.types import unliteral

from skdgn._runtime.lowering import CallOfPart, KernelLowering


def warn_that_nothing_is_kept(reason: object) -> None:
    """Say once that compiled functions are lost with the process."""
    warnings.warn(
        f"Compiled functions cannot be kept, so that every process compiles them again: {reason}. "
        "Set the environment variable NUMBA_CACHE_DIR to a folder that can be written to.",
        RuntimeWarning,
        stacklevel=3,
    )


class _Part(list[Any]):
    """Stands for a kernel without machine code of its own.

    Numba wants a built-in function to know it by: a method of this list will do.
    """

    @staticmethod
    def is_in(result: Any) -> bool:
        """Tell whether the result of a compilation is but a part."""
        return isinstance(result.entry_point.__self__, _Part)


class _KernelLibrary(JITCodeLibrary):
    """A kernel, to be linked with its parts, and with theirs."""

    def add_linking_library(self, library: Any) -> None:
        """Link a library, too."""
        super().add_linking_library(library)
        if isinstance(library, _PartLibrary):
            self._linking_libraries.extend(library._linking_libraries)

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave functions as they are: they are optimized once they are linked."""
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        manager = self._codegen._module_pass_manager()
        # Older versions of Numba return the passes alone.
        passes, *builder = manager if isinstance(manager, tuple) else (manager,)
        passes.run(self._final_module, *builder)


class _PartLibrary(_KernelLibrary):
    """A part of a kernel: linked and optimized with those that are going to be called."""

    def finalize(self) -> None:
        """Make it known that several kernels may have the same part."""
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = Linkage.linkonce_odr
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        return self._final_module


class _ComparableFlags(Flags):
    """Options of a kernel, compared by what they mean for the functions it calls.

    Numba compares them whenever it resolves a call, and compiles its own functions, `numpy.empty`
    and the like, once for all kernels with equal options.  Whether a kernel is a part of another
    one, or inlined, does not matter to these; how sums may be added up does.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(type(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ComparableFlags) and self.fastmath == other.fastmath


class KernelCompiler(Compiler):
    """Numba's own compiler, which stops early where a kernel is part of another one."""

    def __init__(
        self,
        typingctx: Any,
        targetctx: Any,
        library: Any,
        args: Any,
        return_type: Any,
        flags: Any,
        locals: Any,
    ) -> None:
        self._is_part = len(typingctx.callstack) > 0
        flags = _ComparableFlags(flags)
        flags.no_cfunc_wrapper = True
        flags.no_cpython_wrapper = flags.no_compile = self._is_part
        super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)

    def define_pipelines(self) -> Any:
        """List what is done to a kernel: the usual, but for its translation."""
        (pipeline,) = super().define_pipelines()
        pipeline.passes = [
            (KernelLowering if step is NativeLowering else step, purpose)
            for step, purpose in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]

    def compile_extra(self, func: Any) -> Any:
        """Compile a function."""
        state = self.state
        codegen = state.targetctx.codegen()
        if self._is_part:
            state.library = _PartLibrary(codegen, func.__qualname__)
            result = super().compile_extra(func)._replace(entry_point=_Part().clear)
            call = CallOfPart(result.fndesc, result.library)
            state.targetctx.insert_func_defn([(call, result.entry_point, call.signature)])
            return result
        state.library = _KernelLibrary(codegen, func.__qualname__)
        state.library.enable_object_caching()
        result = super().compile_extra(func)
        for environment in result._find_referenced_environments():
            result.library.codegen.set_env(environment.env_name, environment)
        return result


class _KernelCache(FunctionCache):
    """Keeps what Python calls, as long as it can be written: a disk may be full."""

    has_failed = False

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled function."""
        if _Part.is_in(data):
            return
        try:
            super().save_overload(sig, data)
        except OSError as error:
            if not _KernelCache.has_failed:
                _KernelCache.has_failed = True
                warn_that_nothing_is_kept(error)


def _as_writable(value: Any) -> Any:
    """Copy arrays that cannot be written to: another type to Numba, which would compile for it."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    if not isinstance(value, tuple):
        return value
    parts = [_as_writable(part) for part in value]
    if all(part is old for part, old in zip(parts, value, strict=True)):
        return value
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


class Kernel(CPUDispatcher):
    """A function that is compiled when it is called."""

    def __init__(
        self,
        py_func: Any,
        locals: Any = None,
        targetoptions: Any = None,
        pipeline_class: Any = KernelCompiler,
    ) -> None:
        # Older versions of Numba ask for a dictionary.
        super().__init__(py_func, locals or {}, targetoptions, pipeline_class)

    def enable_caching(self) -> None:
        """Keep what is compiled."""
        self._cache = _KernelCache(self.py_func)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile for a call from a kernel; constants do not deserve a version of their own."""
        kws = {name: unliteral(kind) for name, kind in kws.items()}
        return super().get_call_template([unliteral(kind) for kind in args], kws)

    def add_overload(self, cres: Any) -> None:
        """Remember what was compiled; parts cannot be called from Python."""
        if _Part.is_in(cres):
            self.overloads[tuple(cres.signature.args)] = cres
        else:
            super().add_overload(cres)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        # Python calls, with arrays of a type that is not known yet.
        writable = _as_writable(args)
        if writable is not args:
            return lambda *_args, **_kws: self(*writable, **kws)  # what Numba is going to call
        # What was only a part so far is compiled anew.
        with global_compiler_lock, _without_garbage_collection():
            for signature, result in list(self.overloads.items()):
                if _Part.is_in(result):
                    del self.overloads[signature]
            return super()._compile_for_args(*args, **kws)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Do not look for garbage among the many objects of a compiler: a sixth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
