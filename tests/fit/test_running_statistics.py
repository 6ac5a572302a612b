"""Statistics of a stream."""

from __future__ import annotations

import numpy as np

from skdgn._partition import find_similar


def test_the_most_similar_pattern_is_found():
    among = np.array([[True, True, False], [False, False, False], [True, False, True]])
    patterns = np.array([[False, False, False], [True, True, True], [False, False, True]])
    np.testing.assert_array_equal(find_similar(patterns, among), [1, 0, 1])
