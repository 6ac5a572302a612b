"""Bootstrap samples, as weights."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._fit.bootstrap import bootstrap_weights


def test_bootstrap_weights_count_draws():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(50, 2))
    row_weights = np.arange(50.0)
    draws = np.stack([bootstrap_weights(rows, row_weights, generator) for _ in range(2000)])
    assert np.all(draws == np.round(draws))
    np.testing.assert_allclose(draws.sum(axis=1), row_weights.sum())
    error = np.sqrt(row_weights / 2000)
    assert np.all(np.abs(draws.mean(axis=0) - row_weights) <= 4.5 * error)
    assert np.all(draws[:, 0] == 0)


def test_bootstrap_of_weights_that_are_no_counts_keeps_their_sum():
    rows = np.random.default_rng(1).normal(size=(40, 2))
    row_weights = np.full(40, 1 / 40)
    drawn = bootstrap_weights(rows, row_weights, np.random.default_rng(0))
    assert drawn.sum() == pytest.approx(1.0)
    assert 20 < np.count_nonzero(drawn) < 35  # as of 40 draws


def test_a_feature_that_varies_still_does_in_the_bootstrap():
    rows = np.zeros((200, 3))
    rows[:, 0] = np.arange(200)
    rows[7, 1] = 1.0
    rows[:, 2] = np.nan
    rows[[11, 12], 2] = [3.0, 4.0]
    generator = np.random.default_rng(0)
    for _ in range(20):
        drawn = bootstrap_weights(rows, np.ones(200), generator) > 0
        assert drawn[7]
        assert drawn[[11, 12]].all()
