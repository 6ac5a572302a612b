"""Pickles tell which version they are from."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

from skdgn import DGNImputer, DGNOutlierDetector, PiecewiseAffineDGN, __version__
from skdgn._runtime import versions as _versions
from skdgn.datasets import make_noisy_circle


@pytest.mark.parametrize(
    "estimator",
    [
        PiecewiseAffineDGN(hidden_layer_sizes=()),
        DGNImputer(PiecewiseAffineDGN(hidden_layer_sizes=())),
        DGNOutlierDetector(PiecewiseAffineDGN(hidden_layer_sizes=())),
    ],
)
def test_another_version_is_told_of(estimator: object, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = estimator.fit(make_noisy_circle(20, random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = pickle.loads(pickle.dumps(fitted))
        copy.deepcopy(fitted)
    assert "_skdgn_version" not in vars(same)
    with monkeypatch.context() as patch:
        patch.setattr(_versions, "__version__", "0.0.1")
        old = pickle.dumps(fitted)
    name = type(estimator).__name__
    message = f"{name} was pickled by skdgn 0.0.1 and is read by {__version__}"
    with pytest.warns(_versions.InconsistentVersionWarning) as caught:
        restored = pickle.loads(old)
    assert any(message in str(warning.message) for warning in caught)
    np.testing.assert_equal(restored.n_features_in_, fitted.n_features_in_)


def test_a_pickle_without_a_version() -> None:
    model = PiecewiseAffineDGN(hidden_layer_sizes=())
    state = model.__getstate__()
    assert state.pop("_skdgn_version") == __version__
    with pytest.warns(_versions.InconsistentVersionWarning, match="skdgn an earlier one and is"):
        PiecewiseAffineDGN().__setstate__(state)
