"""What a person sees of work that takes long: what is being done, how far it is, since when.

A reporter travels with the workers (`skdgn._runtime.workers.Workers`), so that whoever shares out
work, and whoever begins another phase of a fit, can tell it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from numba.core import event

logger = logging.getLogger("skdgn")

# Seconds between two states of a line that is rewritten.
_REWRITTEN_EVERY = 0.2
# Where lines cannot be rewritten, another one is due after so many seconds, and this share of all
# that have passed: a fit of hours does not fill a file.
_WRITTEN_EVERY, _SHARE_OF_TIME = 10.0, 0.2
# Tells worker processes that a person has been told of the compiler, or does not want to be.
_IS_SETTLED = "SKDGN_COMPILER_NOTICE_SETTLED"
# Work without a name of its own, as of `score_samples`, is not worth mentioning before.
_WORTH_MENTIONING = 2.0


class Reporter:
    """Says what is going on: 0 what everybody should know, 1 briefly, 2 at length, -1 nothing.

    On a terminal a line is rewritten; into a file or a pipe, a line is written now and then.

    Parameters
    ----------
    verbose : int

    Attributes
    ----------
    verbose : int
    """

    def __init__(self, verbose: int = 0) -> None:
        self.verbose = int(verbose)
        self._started = self._last_written = time.perf_counter()
        self._phase = ""
        self._is_line_open = False
        self._is_counting = False
        if self.verbose < 0:
            _NOTICE.settle()

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_line()

    @property
    def is_rewriting(self) -> bool:
        """Whether lines are rewritten."""
        return sys.stdout.isatty()

    @property
    def seconds(self) -> float:
        """Time since the beginning."""
        return time.perf_counter() - self._started

    def begin(self, phase: str) -> None:
        """Say what comes next."""
        self.name(phase)
        if self.verbose > 0:
            self.write(f"{phase}  {self.seconds:.1f} s", lasting=self.verbose > 1)

    def head(self, text: str) -> None:
        """Say which of several fits is next; what it says of itself follows below."""
        if self.verbose > 0:
            self.write(f"{text}  {self.seconds:.1f} s")

    def name(self, phase: str) -> None:
        """Name what comes next, for when it turns out to take long."""
        self._phase = phase

    def announce(self, message: str) -> None:
        """Say what everybody should know, by the display or else by the logger's warnings."""
        if self.verbose < 0:
            return
        if self.verbose > 0:
            self.write(message)
        logger.log(logging.INFO if self.verbose else logging.WARNING, message)

    @contextmanager
    def count(self, total: int, unit: str = "samples") -> Iterator[Callable[[int], None]]:
        """Count what is being worked on: yields a function of how many are done.

        Of work within work, only the outer one counts.
        """
        if self._is_counting or self.verbose < 1:
            yield lambda done: None
            return
        began, is_nameless = time.perf_counter(), not self._phase

        def advance(done: int) -> None:
            now = time.perf_counter()
            if done < total and now - began > (_WORTH_MENTIONING if is_nameless else 0.0):
                self._advance(f"{done:,}/{total:,} {unit}", done / total, now, began)

        self._is_counting = True
        try:
            yield advance
        finally:
            self._is_counting = False
            if is_nameless:
                self._end_line(erased=True)

    def _advance(self, counted: str, share: float, now: float, began: float) -> None:
        pause = _REWRITTEN_EVERY
        if not self.is_rewriting:
            pause = max(_WRITTEN_EVERY, _SHARE_OF_TIME * (now - self._started))
        if now - self._last_written < pause:
            return
        left = (now - began) * (1.0 - share) / share
        name = f"{self._phase}  " if self._phase else ""
        text = f"{name}{counted}  {now - began:.1f} s, about {left:.0f} s left"
        self.write(text, lasting=False)

    def write(self, text: str, lasting: bool = True) -> None:
        """Write a line, which may be rewritten unless it is to last."""
        is_rewritten = self.is_rewriting and not lasting
        if is_rewritten:  # a line that wraps cannot be rewritten
            text = text[: shutil.get_terminal_size().columns - 1]
        # Back to the first column, and clear what the last text leaves behind.
        start = "\r\033[K" if self._is_line_open else ""
        print(start + text, end="" if is_rewritten else "\n", flush=True)
        self._is_line_open = is_rewritten
        self._last_written = time.perf_counter()

    def _end_line(self, erased: bool = False) -> None:
        if self._is_line_open:
            print("\r\033[K" if erased else "\n", end="", flush=True)
            self._is_line_open = False


class _CompilerNotice(event.Listener):
    """Tells, once, that Numba compiles: the first call of each kind takes long.

    Not at all, in a process in which anybody has asked for silence; nor in its worker processes.
    """

    def __init__(self) -> None:
        is_worker = multiprocessing.current_process().name != "MainProcess"
        self.is_due = not (is_worker and _IS_SETTLED in os.environ)

    def settle(self) -> None:
        """Tell nothing any more, here and in worker processes that begin from now on."""
        self.is_due = False
        os.environ[_IS_SETTLED] = "1"

    def on_start(self, event: Any) -> None:
        """Numba begins to compile a function, which may be another package's."""
        module = str(event.data["dispatcher"].py_func.__module__)
        if not self.is_due or not module.startswith("skdgn."):
            return
        self.settle()
        logger.warning(
            "skdgn is being compiled for this machine, which takes some seconds the first time "
            "that a method is called. (To do it ahead of time: python -m skdgn.compile)"
        )

    def on_end(self, event: Any) -> None:
        """It is done."""


_NOTICE = _CompilerNotice()
event.register("numba:compile", _NOTICE)
