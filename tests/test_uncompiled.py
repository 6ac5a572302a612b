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

from tests.answers import KINDS, answer

# Compiled sums are fused, and added up in another order.
ROUNDING = 1e-9


@pytest.mark.parametrize("n_components", KINDS)
def test_answers_are_those_of_compiled_kernels(n_components: int) -> None:
    environment = {name: os.environ[name] for name in os.environ if name != "NUMBA_DISABLE_JIT"}
    compiled = subprocess.run(
        [sys.executable, "-m", "tests.answers", str(n_components)],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    expected = json.loads(compiled.stdout)
    answers = answer(n_components)
    assert answers.keys() == expected.keys()
    for name, values in answers.items():
        np.testing.assert_allclose(
            values, expected[name], rtol=ROUNDING, atol=ROUNDING, err_msg=name
        )
