"""From patterns to regions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skdgn._network import Codes


def find_similar(patterns: Codes, among: Codes) -> NDArray[np.intp]:
    """Find for each pattern the one that is equal, or else differs in the fewest units.

    A point within rounding of a boundary may show a pattern that no region has, and regions may
    have come and gone since a pattern was seen.
    """
    known = {pattern.tobytes(): place for place, pattern in enumerate(among)}
    places = np.array([known.get(pattern.tobytes(), -1) for pattern in patterns], dtype=np.intp)
    for place in np.flatnonzero(places < 0):
        places[place] = np.argmin((among != patterns[place]).sum(axis=1))
    return places
