"""Seeds and generators: what ``random_state`` may be, everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from skdgn._runtime.checks import is_integer

RandomSource = np.random.RandomState | np.random.Generator

_MOST_SEEDS = 2**32


def random_source(random_state: Any) -> RandomSource:
    """Return a source of random numbers: a generator as it is, or one with this seed.

    None is NumPy's global generator, as in scikit-learn.
    """
    if random_state is None or random_state is np.random:
        return np.random.mtrand._rand
    if isinstance(random_state, np.random.RandomState | np.random.Generator):
        return random_state
    if _is_seed(random_state):
        return np.random.RandomState(int(random_state))
    raise ValueError(
        f"random_state must be an integer between 0 and {_MOST_SEEDS - 1}, a RandomState, a "
        f"numpy.random.Generator or None, got {random_state!r}."
    )


def make_generator(random_state: Any) -> np.random.Generator:
    """Return a generator of NumPy's newer kind, whatever the source."""
    if _is_seed(random_state):
        return np.random.default_rng(int(random_state))
    source = random_source(random_state)
    if isinstance(source, np.random.Generator):
        return source
    return np.random.default_rng(source.randint(0, _MOST_SEEDS, size=4, dtype=np.uint32))


def draw_seed(random_state: Any) -> int:
    """Draw a seed, for what needs several generators of its own."""
    source, end = random_source(random_state), np.iinfo(np.int32).max
    if isinstance(source, np.random.Generator):
        return int(source.integers(end))
    return int(source.randint(end))


def _is_seed(random_state: Any) -> bool:
    return is_integer(random_state) and 0 <= int(random_state) < _MOST_SEEDS
