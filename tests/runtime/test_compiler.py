"""First use: what is compiled is kept, and can be compiled ahead; a person is told meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import joblib
import pytest
from joblib.externals.loky import get_reusable_executor

import skdgn
from skdgn._runtime.reporter import _CompilerNotice
from skdgn.compile import compile_ahead, main

# One small kernel, compiled twice: how long it takes to compile the others is not the point.
CODE = """
import numpy
from skdgn._posterior.listed.visits import normalize_shares
assert normalize_shares(numpy.zeros(2), 0, 2) == numpy.log(2.0)
assert normalize_shares(numpy.zeros(2, dtype=numpy.float32), 0, 2) > 0.0  # another kind of table
"""

FIRST_CALLS = """
import numpy, warnings
warnings.simplefilter("ignore")
from skdgn import PiecewiseAffineDGN
X = numpy.random.default_rng(0).normal(size=(50, 2))
model = PiecewiseAffineDGN(hidden_layer_sizes=(3,), max_iter=2, random_state=0).fit(X)
X[::2, 0] = numpy.nan
model.fit(X).score_samples(X)
model.impute(X)
model.impute(X, method="sample", random_state=0)
"""

FULL_DISK = """
import errno
from numba.core import caching
def save(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")
caching.FunctionCache._save_overload = save
import skdgn
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # Not with the package of the folder that the tests run in, if another one is asked for.
        [sys.executable, "-P", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture
def read_only(tmp_path: Path) -> Path:
    """A copy of the package into whose folders nothing can be written."""
    package = tmp_path / "site" / "skdgn"
    shutil.copytree(
        Path(skdgn.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    # A file in place of the folder keeps everybody from writing there, even the superuser.
    for init in package.rglob("__init__.py"):
        (init.parent / "__pycache__").touch()
    return package.parent


def test_kernels_are_cached_where_the_package_is_read_only_and_a_person_is_told_once(
    read_only: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "PYTHONPATH": str(read_only),
        "NUMBA_CACHE_DIR": "",
    }
    kept, told = [], []
    for _ in range(2):
        result = run("-c", CODE, **environment)
        assert result.stdout == ""
        told.append(result.stderr.count("compiled for this machine"))
        kept.append({path: path.stat().st_mtime_ns for path in home.rglob("*.nbc")})
    assert len(kept[0]) == 2
    assert kept[1] == kept[0]  # read, not compiled again
    assert told == [1, 0]


def test_without_any_folder_there_is_one_warning_and_all_works(
    read_only: Path, tmp_path: Path
) -> None:
    nowhere = tmp_path / "file"
    nowhere.touch()
    environment = {
        "HOME": str(nowhere),
        "XDG_CACHE_HOME": str(nowhere),
        "PYTHONPATH": str(read_only),
        "NUMBA_CACHE_DIR": str(nowhere),
    }
    errors = run("-c", CODE, **environment).stderr
    assert errors.count("RuntimeWarning") == 1
    assert "Compiled functions cannot be kept" in errors
    assert "NUMBA_CACHE_DIR" in errors


def test_on_a_full_disk_there_is_one_warning_and_all_works_silently_if_asked(
    tmp_path: Path,
) -> None:
    silent = "import logging; logging.getLogger('skdgn').setLevel(logging.ERROR)\n"
    errors = run("-c", silent + FULL_DISK + CODE, NUMBA_CACHE_DIR=str(tmp_path)).stderr
    assert errors.count("RuntimeWarning") == 1
    assert "No space left on device" in errors
    assert "compiled for this machine" not in errors


@pytest.mark.thorough  # compiles everything for one dimension once more
def test_what_is_compiled_ahead_is_not_compiled_again(tmp_path: Path) -> None:
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    first = run("-m", "skdgn.compile", "--n-components", "1", **environment)
    assert first.stdout == ""
    bars = first.stderr.splitlines()
    assert bars[0].startswith("[....................]")
    assert bars[-1].startswith("[####################]")
    assert int(bars[-1].split()[-3]) > 10
    assert "compiled for this machine" not in first.stderr
    # A person would be told.
    assert run("-c", FIRST_CALLS, **environment).stderr == ""


def test_worker_processes_do_not_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKDGN_COMPILER_NOTICE_SETTLED", raising=False)
    get_reusable_executor().shutdown()  # workers of other tests have been told
    (in_worker,) = joblib.Parallel(2)([joblib.delayed(is_told_in_worker)()])
    assert in_worker == (True, False)


def is_told_in_worker() -> tuple[bool, bool]:
    """Whether a worker tells of the compiler, and whether it does once somebody has been told."""
    before = _CompilerNotice().is_due
    _CompilerNotice().settle()
    return before, _CompilerNotice().is_due


def test_dimensions_that_are_none_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"n_components must be .*positive integers, got \[0\]"):
        compile_ahead([0])
    with pytest.raises(SystemExit):
        main(["--n-components", "-1"])
    assert "n_components must be" in capsys.readouterr().err
