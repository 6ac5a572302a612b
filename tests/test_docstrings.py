"""What a newcomer reads first: examples in every docstring, links in notebooks, types, a version."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skdgn
from skdgn import DGNImputer, DGNOutlierDetector, PiecewiseAffineDGN, _documentation

ESTIMATORS = [PiecewiseAffineDGN, DGNImputer, DGNOutlierDetector]


def public_modules() -> Iterator[Any]:
    yield skdgn
    for module in pkgutil.walk_packages(skdgn.__path__, "skdgn."):
        if not any(part.startswith("_") for part in module.name.split(".")):
            yield importlib.import_module(module.name)


def is_ours(item: Any) -> bool:
    return (getattr(item, "__module__", None) or "").startswith("skdgn")


def public_objects() -> dict[str, Any]:
    """Classes and functions of public modules, with the methods that are not scikit-learn's."""
    found = {}
    for module in public_modules():
        for name, item in vars(module).items():
            if name.startswith("_") or not is_ours(item) or not callable(item):
                continue
            # Each under the name it is defined by; names imported for use here only are left out.
            if item.__module__ != module.__name__ and name not in getattr(module, "__all__", ()):
                continue
            found[f"{item.__module__}.{item.__qualname__}"] = item
            for member_name, member in inspect.getmembers(item) if inspect.isclass(item) else ():
                if (
                    not member_name.startswith("_")
                    and inspect.isroutine(member)
                    and is_ours(member)
                    and not re.fullmatch(r"set_\w+_request", member_name)  # scikit-learn makes them
                ):
                    found[f"{member.__module__}.{member.__qualname__}"] = member
    return found


OBJECTS = public_objects()


def test_the_public_objects_are_found():
    for name in (
        "skdgn.estimator.PiecewiseAffineDGN",
        "skdgn.estimator.PiecewiseAffineDGN.from_network",
        "skdgn.inference.ExactInference.score_samples",
        "skdgn.conditioning.ExactConditioning.impute",
        "skdgn._posterior.Posterior.sample",
        "skdgn.datasets.make_wave",
        "skdgn.displays.density.DensityDisplay.from_estimator",
    ):
        assert name in OBJECTS


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_every_public_object_has_an_example_that_runs(name):
    docstring = inspect.getdoc(OBJECTS[name])
    assert docstring is not None
    # (`make test` runs them all.)
    assert re.search(r"^Examples\n--------\n(.*\n)*>>> ", docstring, re.MULTILINE)
