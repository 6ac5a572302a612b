"""One rule for ``random_state``: an integer, a generator of either kind, or None, everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.utils import check_random_state

from skdgn import PiecewiseAffineDGN
from skdgn.datasets import make_noisy_circle, make_spiral, make_wave

MODEL = PiecewiseAffineDGN.from_network(
    [[[1.0], [-1.0]], [[1.0, 0.0], [0.0, 2.0]]], [[0.0, 1.0], [0.0, 0.0]], 0.1, activation="relu"
)
ROWS = make_wave(30, random_state=0)
HOLED = np.where(np.arange(4)[:, None] == [1, 2], np.nan, 1.0)


def fit(random_state: Any) -> np.ndarray:
    # With fewer units, other starts end in the same network.
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(6,), init_params="random", tol=1.0, random_state=random_state
    )
    return model.fit(ROWS).coefs_[0]


def sample_with_its_own(random_state: Any) -> np.ndarray:
    model = PiecewiseAffineDGN.from_network(MODEL.coefs_, MODEL.intercepts_, 0.1, activation="relu")
    return model.set_params(random_state=random_state).sample(3)[0]


CALLS: dict[str, Callable[[Any], np.ndarray]] = {
    "fit": fit,
    "sample": lambda random_state: MODEL.sample(3, random_state)[0],
    "sample, the estimator's own": sample_with_its_own,
    "impute": lambda random_state: MODEL.impute(HOLED, "sample", None, random_state),
    "posterior": lambda random_state: MODEL.posterior(HOLED).sample(2, random_state),
    "circle": lambda random_state: make_noisy_circle(3, 0.1, random_state),
    "spiral": lambda random_state: make_spiral(3, 0.1, random_state),
    "wave": lambda random_state: make_wave(3, 0.1, random_state),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize(
    "make", [int, np.int64, np.random.RandomState, np.random.default_rng], ids=lambda m: m.__name__
)
def test_a_seed_of_any_kind_repeats_itself(call, make):
    np.testing.assert_array_equal(call(make(3)), call(make(3)))
    assert not np.array_equal(call(make(3)), call(make(4)))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_a_generator_moves_on(call, make):
    generator = make(3)
    assert not np.array_equal(call(generator), call(generator))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_none_is_the_global_generator_as_in_scikit_learn(call):
    generator = check_random_state(None)
    state = generator.get_state()
    try:
        generator.seed(5)
        first, second = call(None), call(None)
        generator.seed(5)
        np.testing.assert_array_equal(call(None), first)
    finally:
        generator.set_state(state)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("bad", [-1, 2**32, 1.5, "seed", True, [1, 2]])
def test_anything_else_is_refused(call, bad):
    with pytest.raises(ValueError, match=r"random_state.* (g|G)ot "):
        call(bad)


def test_draws_do_not_depend_on_the_kind_of_integer():
    np.testing.assert_array_equal(MODEL.sample(3, 3)[0], MODEL.sample(3, np.uint8(3))[0])
