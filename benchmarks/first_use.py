"""First use: the time to import skdgn over that of scikit-learn's mixtures, and to compile.

Every figure is seconds of the processor in a process of its own, the best of several for imports.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

REPEATS = 7

FIT = """
import warnings
import numpy as np
from skdgn import PiecewiseAffineDGN
warnings.simplefilter("ignore")
rows = np.random.default_rng(0).normal(size=(300, 3))
model = PiecewiseAffineDGN({0}, hidden_layer_sizes=(4,), max_iter=2, random_state=0).fit(rows)
rows[::2, 0] = np.nan
"""
# What is called for the first time, after a fit.
CALLS = {
    "score_samples with missing values": "model.score_samples(rows)",
    'impute(method="sample")': 'model.impute(rows, method="sample", random_state=0)',
}

# What compilation may take.
MOST_SECONDS = {("fit", 1): 4, ("fit", 2): 9, ("fit", 3): 20, ('impute(method="sample")', 2): 6}


def seconds(code: str, cache: str | None = None) -> float:
    """Run code in a new process; return its time, that of starting Python not included."""
    timed = (
        f"import time; started = time.process_time()\n{code}\nprint(time.process_time() - started)"
    )
    environment = dict(os.environ)
    # As after an installation, which keeps the bytecode of all modules.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    process = subprocess.run(
        [sys.executable, "-c", timed], env=environment, capture_output=True, text=True, check=True
    )
    return float(process.stdout)


def measure() -> Iterator[tuple[str, float, str, bool]]:
    """Yield name, value, target and whether it is met, one after the other."""
    baseline = min(seconds("import sklearn.mixture") for _ in range(REPEATS))
    ratio = min(seconds("import skdgn") for _ in range(REPEATS)) / baseline
    yield "import skdgn / import sklearn.mixture", ratio, "< 1.5", ratio < 1.5
    for n_components in (1, 2, 3):
        with tempfile.TemporaryDirectory() as cache:
            code = FIT.format(n_components)
            for name, call in {"fit": "", **CALLS}.items():
                extra = seconds(code + call, cache) - seconds(code + call, cache)
                label = f"compilation for a first {name}, n_components={n_components}, seconds"
                most = MOST_SECONDS.get((name, n_components), math.inf)
                yield label, extra, f"<= {most:g}" if most < math.inf else "", extra <= most


if __name__ == "__main__":
    for name, value, target, met in measure():
        verdict = ("met" if met else "NOT MET") if target else ""
        print(f"{name:72s} {value:8.3f}  {target:8s} {verdict}", flush=True)
