"""Kernels as plain Python answer as compiled ones do, and coverage sees which lines run.

Run by ``NUMBA_DISABLE_JIT=1 pytest tests/test_uncompiled.py``; see `tests.uncompiled`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.answers import CASES, ask, fit

# Compiled sums are fused, and added up in another order.
ROUNDING = 1e-9


@pytest.mark.parametrize(("n_components", "kind"), CASES)
def test_answers_are_those_of_compiled_kernels(n_components: int, kind: str) -> None:
    environment = {name: os.environ[name] for name in os.environ if name != "NUMBA_DISABLE_JIT"}
    compiled = subprocess.run(
        [sys.executable, "-m", "tests.answers", str(n_components), kind],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    expected = json.loads(compiled.stdout)
    answers = ask(n_components, kind) | fit(n_components, kind)
    assert answers.keys() == expected.keys()
    for name, values in answers.items():
        np.testing.assert_allclose(
            values, expected[name], rtol=ROUNDING, atol=ROUNDING, err_msg=name
        )
