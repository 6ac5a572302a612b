"""What is said while something takes long: phases, counts, the compiler, long fits."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import time
from typing import Any

import numba
import numpy as np
import pytest

import skdgn._fit.network_fit
import skdgn._runtime.reporter
from skdgn import PiecewiseAffineDGN
from skdgn._fit.em.loop import Problem, State
from skdgn._runtime.reporter import Reporter
from skdgn._runtime.workers import MOST_SAMPLES, Workers
from skdgn.datasets import make_noisy_circle


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes long."""
    monkeypatch.setattr(skdgn._runtime.reporter, "_WORTH_MENTIONING", 0.0)
    monkeypatch.setattr(skdgn._runtime.reporter, "_WRITTEN_EVERY", 0.0)
    monkeypatch.setattr(skdgn._runtime.reporter, "_REWRITTEN_EVERY", 0.0)
    monkeypatch.setattr(skdgn._runtime.reporter, "_SHARE_OF_TIME", 0.0)


@pytest.fixture(scope="module")
def circle() -> np.ndarray:
    rows = make_noisy_circle(2 * MOST_SAMPLES + 1, random_state=0)
    rows[:, 0] = np.nan  # `impute` has nothing to do for samples that are complete
    return rows


def network(verbose: int) -> PiecewiseAffineDGN:
    known = PiecewiseAffineDGN.from_network(
        [[[1.0]], [[1.0], [2.0]]], [[0.0], [0.0, 0.0]], 0.1, activation="relu"
    )
    return known.set_params(verbose=verbose)


def test_phases_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose in range(3):
        with Reporter(verbose) as reporter:
            reporter.begin("first")
            reporter.begin("second")
    assert re.fullmatch(r"(first  0\.\d s\nsecond  0\.\d s\n){2}", capsys.readouterr().out)


def test_on_a_terminal_a_line_is_rewritten(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with Reporter(1) as reporter:
        reporter.begin("first")
        reporter.begin("second")
    first, _, end = capsys.readouterr().out.partition("\r\033[K")
    assert first.startswith("first")
    assert end.startswith("second")
    assert end.endswith("\n")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("method", ["score_samples", "transform", "impute", "posterior"])
def test_long_methods_count_samples(
    circle: np.ndarray, capsys: pytest.CaptureFixture[str], method: str, n_jobs: int
) -> None:
    getattr(network(0).set_params(n_jobs=n_jobs), method)(circle)
    assert capsys.readouterr().out == ""
    getattr(network(1).set_params(n_jobs=n_jobs), method)(circle)
    lines = capsys.readouterr().out.splitlines()
    counts = [line.split()[0] for line in lines]
    # Nothing is left to say after the last batch.
    assert counts == ["1,024/2,049", "2,048/2,049"]
    assert all(re.search(r"samples  \d+\.\d s, about \d+ s left$", line) for line in lines)


@pytest.mark.usefixtures("impatient")
def test_draws_are_counted(circle: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    network(1).impute(circle, method="sample", random_state=0)
    lines = capsys.readouterr().out.splitlines()
    # Draws of a batch are a part of the work on it: what is within is not told again.
    assert [line.split()[0] for line in lines] == ["1,024/2,049", "2,048/2,049"]
    posterior = network(1).posterior(circle)
    capsys.readouterr()
    posterior.sample(2, random_state=0)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 0
    assert all(re.match(r"[\d,]+/4,098 draws  ", line) for line in lines)


def test_short_methods_say_nothing(circle: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    model = network(0)
    model.score_samples(circle)  # compiles
    model.set_params(verbose=2).score_samples(circle)
    assert capsys.readouterr().out == ""


def test_lines_in_a_file_become_rare(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    with Reporter(1).count(36_000) as advance:
        for second in range(1, 36_000):
            now[0] = float(second)
            advance(second)
    lines = capsys.readouterr().out.splitlines()
    seconds = [int(line.split("/")[0].replace(",", "")) for line in lines]
    assert 20 < len(seconds) < 60
    assert seconds[0] <= 10
    gaps = np.diff(seconds)
    assert np.all(gaps >= 10)
    assert np.all(gaps[-3:] > 1000)


def compile_something(module: str) -> None:
    def add(x: float) -> float:
        return x + 1.0

    add.__module__ = module
    numba.njit(add)(1.0)


def test_the_compiler_is_announced_once_unless_silence_is_asked_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skdgn._runtime.reporter._NOTICE, "is_due", True)
    Reporter(-1)
    compile_something("skdgn.somewhere")
    assert caplog.records == []
    monkeypatch.setattr(skdgn._runtime.reporter._NOTICE, "is_due", True)
    compile_something("elsewhere")  # another package's functions are its own business
    assert caplog.records == []
    for _ in range(2):
        compile_something("skdgn.somewhere")
    (record,) = caplog.records
    assert record.name == "skdgn"
    assert record.levelno == logging.WARNING
    assert "compiled for this machine" in record.getMessage()


@pytest.mark.parametrize("verbose", [-1, 0, 1])
def test_long_fits_are_foretold_once(
    verbose: int,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,), tol=0.1, max_iter=60, random_state=0, verbose=verbose
    )
    model.fit(make_noisy_circle(100, random_state=0))  # compiles
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="skdgn"):
        model.fit(make_noisy_circle(100, random_state=0))
        assert caplog.records == []
        monkeypatch.setattr(skdgn._fit.network_fit, "_LONG_ITERATION", 0.0)
        model.fit(make_noisy_circle(100, random_state=0))
    if verbose < 0:
        assert caplog.records == []
        assert capsys.readouterr().out == ""
        return
    (record,) = caplog.records
    assert record.name == "skdgn"
    assert record.levelno == (logging.INFO if verbose else logging.WARNING)
    message = record.getMessage()
    assert re.search(r"100 samples and 5 regions take about \d+ s for each iteration", message)
    assert "max_iter=60" in message
    assert capsys.readouterr().out.count(message) == verbose


def test_warm_starts_are_foretold(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = make_noisy_circle(100, random_state=0)
    model = PiecewiseAffineDGN(hidden_layer_sizes=(4,), tol=0.1, warm_start=True, random_state=0)
    model.fit(X)
    monkeypatch.setattr(skdgn._fit.network_fit, "_LONG_ITERATION", 0.0)
    with caplog.at_level(logging.INFO, logger="skdgn"):
        model.fit(X)
    (record,) = caplog.records
    assert "100 samples and 5 regions" in record.getMessage()


def test_what_is_loaded_or_compiled_does_not_make_a_fit_long(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first E-step takes long, the others do not."""
    pause = [2.5]
    evaluate = Problem.evaluate

    def evaluate_slowly(self: Problem, *parameters: Any) -> State:
        time.sleep(pause[0])
        pause[0] = 0.0
        return evaluate(self, *parameters)

    monkeypatch.setattr(Problem, "evaluate", evaluate_slowly)
    model = PiecewiseAffineDGN(hidden_layer_sizes=(4,), tol=0.1, random_state=0)
    with caplog.at_level(logging.INFO, logger="skdgn"):
        model.fit(make_noisy_circle(100, random_state=0))
    assert caplog.records == []


def test_workers_are_equal_whoever_they_report_to() -> None:
    assert Workers(2) == Workers(2, reporter=Reporter(1))


LOOP = """
import signal, time, warnings
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
import numpy as np
from skdgn import PiecewiseAffineDGN
X = np.random.default_rng(0).normal(size=(2000, 4))
model = PiecewiseAffineDGN(
    2, hidden_layer_sizes=(8,), tol=0.0, max_iter=10**6, random_state=0, verbose=2, n_jobs={n_jobs}
)
small = PiecewiseAffineDGN(2, max_iter=1, init_params="pca", random_state=0)
warnings.simplefilter("ignore")
small.fit(X[:50])  # compiles
try:
    for _ in range(3):
        model.fit(X)
except KeyboardInterrupt:
    print(time.time(), hasattr(model, "coefs_"), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("n_jobs", "moment", "is_fitted"),
    [
        (1, "starting by isomap", False),
        (1, "comparing", True),
        (2, "iteration   2", True),
    ],
)
def test_one_signal_ends_a_loop_of_fits_at_once(n_jobs: int, moment: str, is_fitted: bool) -> None:
    # In a process of its own, since the signal goes to all of it.
    command = [sys.executable, "-c", LOOP.format(n_jobs=n_jobs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        while not child.stdout.readline().startswith(moment):
            assert child.poll() is None
        sent = time.time()
        child.send_signal(signal.SIGINT)
        *_, last = child.stdout
    received, kept = last.split()
    assert child.returncode == 0
    assert kept == str(is_fitted)
    # A second, on a machine that has nothing else to do.
    assert float(received) - sent < 5.0
