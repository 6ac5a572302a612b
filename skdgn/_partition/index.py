"""From patterns to regions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skdgn._network import Codes
from skdgn._runtime import Integers, kernel

Keys = NDArray[np.uint64]


@kernel
def scramble(number: np.uint64) -> np.uint64:
    """Turn 64 bits into others that look like chance (the finalizer of splitmix64)."""
    number = number + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@kernel
def add_codes(codes: Codes, keys: Keys) -> None:
    """Mix codes (n, c) into keys (n,): regions with different ones have different keys."""
    for n in range(len(codes)):
        key, word = keys[n], np.uint64(0)
        for c in range(codes.shape[1]):
            # Eight at a time.
            word = (word << np.uint64(8)) | np.uint64(codes[n, c])
            if c % 8 == 7 or c == codes.shape[1] - 1:
                key = scramble(key ^ word)
                word = np.uint64(0)
        keys[n] = key


def add_regions(known: Codes, patterns: Codes) -> tuple[Integers, Integers]:
    """Number patterns (n, c) so that known ones (R, c), no two alike, keep their numbers.

    Returns the number of each pattern, and the places at which a new one is first seen; these have
    the numbers from R on.
    """
    keys = np.zeros(len(known) + len(patterns), dtype=np.uint64)
    add_codes(np.concatenate([known, patterns]), keys)
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    numbers = np.argsort(order)[numbers.ravel()]
    return numbers[len(known) :], first[order[len(known) :]] - len(known)


def find_similar(patterns: Codes, among: Codes) -> Integers:
    """Find for each pattern the one that is equal, or else differs in the fewest units.

    A point within rounding of a boundary may show a pattern that no region has, and regions may
    have come and gone since a pattern was seen.
    """
    known = {pattern.tobytes(): place for place, pattern in enumerate(among)}
    places = np.array([known.get(pattern.tobytes(), -1) for pattern in patterns], dtype=np.intp)
    for place in np.flatnonzero(places < 0):
        places[place] = np.argmin((among != patterns[place]).sum(axis=1))
    return places
