"""Random samples of samples, as weights."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._fit.resampling import bootstrap_weights, subsample_weights


def test_bootstrap_weights_count_draws():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(50, 2))
    row_weights = np.arange(50.0)
    draws = np.stack([bootstrap_weights(rows, row_weights, 1.0, generator) for _ in range(2000)])
    assert np.all(draws == np.round(draws))
    np.testing.assert_allclose(draws.sum(axis=1), row_weights.sum())
    error = np.sqrt(row_weights / 2000)
    assert np.all(np.abs(draws.mean(axis=0) - row_weights) <= 4.5 * error)
    assert np.all(draws[:, 0] == 0)


def test_bootstrap_of_weights_that_are_no_counts_keeps_their_sum():
    rows = np.random.default_rng(1).normal(size=(40, 2))
    row_weights = np.full(40, 1 / 40)
    drawn = bootstrap_weights(rows, row_weights, 1.0, np.random.default_rng(0))
    assert drawn.sum() == pytest.approx(1.0)
    assert 20 < np.count_nonzero(drawn) < 35  # as of 40 draws


def test_a_share_of_a_bootstrap_has_a_share_of_the_draws():
    rows = np.random.default_rng(1).normal(size=(40, 2))
    counted = bootstrap_weights(rows, np.full(40, 3.0), 0.5, np.random.default_rng(0))
    assert counted.sum() == 60.0
    drawn = bootstrap_weights(rows, np.full(40, 0.3), 0.5, np.random.default_rng(0))
    assert drawn.sum() == pytest.approx(6.0)
    assert np.count_nonzero(drawn) <= 20


def test_subsamples_keep_their_weights():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(50, 2))
    row_weights = np.arange(50.0)
    draws = np.stack([subsample_weights(rows, row_weights, 0.8, generator) for _ in range(2000)])
    kept = draws > 0
    np.testing.assert_array_equal(kept.sum(axis=1), 40)  # of the 49 that have a weight
    np.testing.assert_array_equal(draws, kept * row_weights)
    share = kept[:, 1:].mean(axis=0)
    assert np.all(np.abs(share - 40 / 49) < 4.5 * np.sqrt(0.8 * 0.2 / 2000))
    # Taking turns, five leave out different samples.
    turns = np.stack(
        [
            subsample_weights(rows, row_weights, 0.8, np.random.default_rng(3), turn)
            for turn in range(6)
        ]
    )
    n_left_out = (turns[:5, 1:] == 0.0).sum(axis=0)
    assert n_left_out.sum() == 45
    assert n_left_out.max() == 1
    np.testing.assert_array_equal(turns[5], turns[0])
    two = subsample_weights(rows[:3], np.ones(3), 0.1, generator)
    assert two.sum() == 2.0
    np.testing.assert_array_equal(subsample_weights(rows, row_weights, 1.0, generator), row_weights)


@pytest.mark.parametrize("draw", [bootstrap_weights, subsample_weights])
def test_a_feature_that_varies_still_does_in_what_is_drawn(draw):
    rows = np.zeros((200, 3))
    rows[:, 0] = np.arange(200)
    rows[7, 1] = 1.0
    rows[:, 2] = np.nan
    rows[[11, 12], 2] = [3.0, 4.0]
    generator = np.random.default_rng(0)
    for _ in range(20):
        drawn = draw(rows, np.ones(200), 0.5, generator) > 0
        assert drawn[7]
        assert drawn[[11, 12]].all()
