"""First use: compiled kernels are kept, also where the package cannot be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import skdgn

# One small kernel: how long it takes to compile the others is not the point.
CODE = """
import numpy
from skdgn._visits import normalize_shares
assert normalize_shares(numpy.zeros(2), 0, 2) == numpy.log(2.0)
"""


def test_kernels_are_cached_where_the_package_is_read_only(tmp_path):
    package, home = tmp_path / "site" / "skdgn", tmp_path / "home"
    home.mkdir()
    shutil.copytree(
        Path(skdgn.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    # A file in place of the folder keeps everybody from writing there, even the superuser.
    for folder in (package, package / "_cells"):
        (folder / "__pycache__").touch()
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "PYTHONPATH": str(tmp_path / "site"),
    }
    kept = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", CODE], env=environment, cwd=tmp_path, check=True)
        kept.append({path: path.stat().st_mtime_ns for path in home.rglob("*.nbc")})
    assert len(kept[0]) == 1
    assert kept[1] == kept[0]  # read, not compiled again
