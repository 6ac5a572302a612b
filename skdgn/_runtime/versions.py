"""The version of the package, also in pickles: attributes may mean something else in another."""

from __future__ import annotations

import warnings
from typing import Any

__version__ = "0.1.0.dev0"

_KEY = "_skdgn_version"


class InconsistentVersionWarning(UserWarning):
    """An estimator was pickled by another version of the package."""


class VersionedMixin:
    """Tells of an estimator that another version has pickled; to be put before `BaseEstimator`."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), _KEY: __version__}  # type: ignore[dict-item]  # a dict in estimators

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        pickled = state.pop(_KEY, "an earlier one")
        if pickled != __version__:
            warnings.warn(
                f"{type(self).__name__} was pickled by skdgn {pickled} and is read by "
                f"{__version__}. It may fail or give other results: fit it again, or read it with "
                "that version.",
                InconsistentVersionWarning,
                stacklevel=2,
            )
        super().__setstate__(state)  # type: ignore[misc]  # of the BaseEstimator
