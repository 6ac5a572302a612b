"""The README's Python blocks run, one after the other, and give what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

README = Path(__file__).parents[1] / "README.md"


def test_blocks_run_in_order() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"README.md, block {number}", "exec"), names)
    model, X, holed = names["model"], names["X"], names["holed"]
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)
    np.testing.assert_array_equal(model.impute(holed)[~np.isnan(holed)], X[~np.isnan(holed)])
    assert names["posterior"].sample(100, random_state=0).shape == (100, 3, 1)
    assert names["detector"].predict([[1.0, 0.0], [0.0, 0.0]]).tolist() == [1, -1]
    assert np.isfinite(names["pipeline"].predict(holed)).all()
    assert names["decoder"].n_features_in_ == 2
