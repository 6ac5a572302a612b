"""Functions and samples that travel to other processes, maybe on other machines."""

from __future__ import annotations

import io
import mmap
import os
import pickle
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray


class PortableFunction:
    """A function that can be sent to other processes, whatever it is.

    What it holds on to, a model, may be large: it is pickled once for all tasks, and read once by
    each process.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, parcel: Parcel) -> Any:
        return self._function(*parcel.contents)

    def __reduce__(self) -> tuple[Callable[[bytes], PortableFunction], tuple[bytes]]:
        return _restore_function, (self._pickled,)

    @cached_property
    def _pickled(self) -> bytes:
        return pickle.dumps(joblib.wrap_non_picklable_objects(self._function))


@lru_cache(maxsize=1)
def _restore_function(pickled: bytes) -> PortableFunction:
    return PortableFunction(pickle.loads(pickled))


class Parcel:
    """Arguments of a task.

    They travel with it: Dask would keep arrays on one worker, and lose them with it, whereas a task
    that is lost is handed out again.  Of samples in a file only the place travels.
    """

    __slots__ = ("_contents",)  # no weak references: that is how joblib tells what to leave alone

    def __init__(self, *contents: Any) -> None:
        self._contents: tuple[Any, ...] | bytes = contents

    @property
    def contents(self) -> tuple[Any, ...]:
        """The arguments."""
        # Not before they are needed: Dask waits for ever for a task that it fails to unpickle.
        if isinstance(self._contents, bytes):
            self._contents = tuple(pickle.loads(self._contents))
        return self._contents

    def __reduce__(self) -> tuple[Callable[[bytes], Parcel], tuple[bytes]]:
        if isinstance(self._contents, bytes):
            return _deliver, (self._contents,)
        packed = io.BytesIO()
        _Packer(packed, pickle.HIGHEST_PROTOCOL).dump(self._contents)
        return _deliver, (packed.getvalue(),)


def _deliver(packed: bytes) -> Parcel:
    parcel = Parcel()
    parcel._contents = packed
    return parcel


class _Packer(pickle.Pickler):
    """Pickles arrays that are in a file by their place in it."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray) and (place := _place_in_file(obj)) is not None:
            return _open_samples, place
        return NotImplemented


def _place_in_file(
    array: NDArray[Any],
) -> tuple[str, tuple[int, int], np.dtype[Any], int, tuple[int, ...]] | None:
    """Find where an array lies in a file: its path, stamp, dtype, offset and shape."""
    if not array.flags.c_contiguous or array.size == 0:
        return None
    root: Any = array
    while isinstance(root, np.ndarray) and not (
        isinstance(root, np.memmap) and isinstance(root.base, mmap.mmap)
    ):
        root = root.base
    # Changes of a copy on write are not in the file.
    if not isinstance(root, np.memmap) or root.mode == "c" or root.filename is None:
        return None
    offset = root.offset + array.ctypes.data - root.ctypes.data
    stamp = _stamp(root.filename)
    # The file may have been deleted or replaced since.
    if stamp is None or stamp[0] < offset + array.nbytes:
        return None
    return str(root.filename), stamp, array.dtype, offset, array.shape


def _stamp(path: str | Path) -> tuple[int, int] | None:
    """What tells a file from another of the same name: its size, and when it was written."""
    try:
        # Opened, since a network's file system may not look again for less.
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _open_samples(
    path: str, stamp: tuple[int, int], dtype: np.dtype[Any], offset: int, shape: tuple[int, ...]
) -> NDArray[Any]:
    """Read samples from their file, as they are needed."""
    if _stamp(path) != stamp:
        raise FileNotFoundError(
            f"A numpy.memmap must be in a file that every worker can read, got {path}, which a "
            "worker does not find or finds changed. Put it on a file system that they share, or "
            "pass numpy.array(X)."
        )
    return np.memmap(path, dtype, "r", offset, shape)
