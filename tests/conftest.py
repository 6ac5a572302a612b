"""Settings of the property tests; kernels are compiled for one kind of array only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from numba import types
from numba.core import event

from tests.uncompiled import IS_COMPILED, use_compiled_arithmetic

# The first example of a test may wait for the compiler: no deadline.  Examples are the same in
# every run, so that a failure is a failure for everybody.
settings.register_profile(
    "reproducible",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
# HYPOTHESIS_PROFILE=search looks for new examples instead, more of them.
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile("reproducible")


class _OneKindOfArray(event.Listener):
    """Fails the test in which a kernel would be compiled for arrays that other calls do not have.

    A person would wait once more, for each of its callers' ways to lay out arrays.
    """

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        kernel = dispatcher.py_func
        if len(dispatcher.typingctx.callstack) > 0 or not kernel.__module__.startswith("skdgn"):
            return  # a kernel may pass any part of its arrays on to others
        for array in _arrays(event.data["args"]):
            assert array.mutable, f"{kernel.__name__} is compiled for {array}"
            assert array.layout == "C", f"{kernel.__name__} is compiled for {array}"

    def on_end(self, event: Any) -> None:
        """Nothing is left to check."""


def _arrays(kinds: Any) -> Iterator[types.Array]:
    for kind in kinds:
        if isinstance(kind, types.Array):
            yield kind
        elif isinstance(kind, types.BaseTuple):
            yield from _arrays(kind)


event.register("numba:compile", _OneKindOfArray())

if IS_COMPILED:
    collect_ignore = ["test_uncompiled.py"]
else:
    use_compiled_arithmetic()
