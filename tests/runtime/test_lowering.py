"""Kernels do what the same functions do as plain Python, and release the arrays they make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core.runtime import _nrt_python, rtsys

from skdgn._runtime import kernel


class _Pair(NamedTuple):
    first: Any
    second: Any


@kernel
def _count(start: int, stop: int, step: int, visited: Any) -> int:
    n_visited = 0
    for i in range(start, stop, step):
        visited[n_visited] = i
        n_visited += 1
    for i in range(start, stop):
        if i == 2:
            continue
        visited[n_visited] = 10 * i
        n_visited += 1
    for i in range(stop):
        for k in range(i, -1, -1):
            if k == 3:
                break
            visited[n_visited] = 100 * i + k
            n_visited += 1
    return n_visited


@pytest.mark.parametrize("arguments", [(0, 5, 1), (4, -1, -2), (3, 3, 1), (5, 2, 1), (-3, 4, 3)])
def test_loops(arguments: tuple[int, int, int]) -> None:
    compiled, plain = np.zeros(100, dtype=np.intp), np.zeros(100, dtype=np.intp)
    assert _count(*arguments, compiled) == _count.py_func(*arguments, plain)
    np.testing.assert_array_equal(compiled, plain)


@kernel
def _read_and_write(pair: Any, flags: Any, i: int) -> float:
    matrix, column = pair.first, pair.second
    total = 0.0
    for k in range(len(column)):
        total += column[k] * matrix[k, i] + matrix[k, -1] + matrix[-1][k]
        column[-1 - k] = total
        flags[k] = total > 3.0
    matrix[0] = matrix[1]
    matrix[1:] = matrix[:-1]
    return total + matrix[i, i] + matrix[(i, 0)]


def test_elements() -> None:
    arguments = []
    for _ in range(2):
        own = np.random.default_rng(0).normal(size=(3, 3))
        arguments.append((_Pair(own, np.arange(9.0).reshape(3, 3)[:, 1]), np.zeros(3, bool), -2))
    compiled, plain = arguments
    assert _read_and_write(*compiled) == pytest.approx(_read_and_write.py_func(*plain), rel=1e-14)
    for own, expected in zip((*compiled[0], compiled[1]), (*plain[0], plain[1]), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-14)


@kernel
def _make(n: int) -> tuple[Any, Any]:
    made = np.ones(n)
    return made, made[1:]


@kernel
def _use(pair: Any, n: int) -> float:
    total = 0.0
    kept = np.zeros(1)
    for i in range(n):
        made = _Pair(*_make(i + 2))
        if i % 2 == 0:
            kept = made.second
        total += kept[0] + made.first[-1] + pair.first[i]
    return total


@pytest.fixture
def counted() -> Iterator[None]:
    """Let Numba count the arrays that are made and released."""
    _nrt_python.memsys_enable_stats()
    yield
    _nrt_python.memsys_disable_stats()


@pytest.mark.usefixtures("counted")
def test_arrays_are_released() -> None:
    def n_arrays() -> int:
        statistics = rtsys.get_allocation_stats()
        return int(statistics.alloc - statistics.free)

    pair = _Pair(np.arange(10.0), np.zeros(0))
    assert _use(pair, 10) == _use.py_func(pair, 10)  # compiled by now
    before = n_arrays()
    assert _use(pair, 10) == _use.py_func(pair, 10)
    assert n_arrays() == before
    made, part = _make(3)
    assert made.tolist() == [1.0, 1.0, 1.0]
    del made
    assert part.tolist() == [1.0, 1.0]
