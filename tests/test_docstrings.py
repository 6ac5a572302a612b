"""What a newcomer meets first: examples in every docstring, links in notebooks, types."""

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
from skdgn import (
    DGNClassifier,
    DGNEnsemble,
    DGNImputer,
    DGNMixture,
    DGNOutlierDetector,
    DGNRegressor,
    PiecewiseAffineDGN,
)
from skdgn._estimators import documentation as _documentation
from skdgn.vae import GaussianVAE

ESTIMATORS = [
    PiecewiseAffineDGN,
    DGNMixture,
    DGNEnsemble,
    DGNImputer,
    DGNOutlierDetector,
    DGNRegressor,
    DGNClassifier,
]
# What these hold is reached through the estimators, and is not imported by users.
PARTS_OF_THE_ESTIMATOR = {
    "skdgn._estimators.fits.callbacks",
    "skdgn._estimators.methods.conditioning",
    "skdgn._estimators.methods.density",
    "skdgn._estimators.methods.inference",
}


def public_modules() -> Iterator[Any]:
    """The package, and the modules and packages in it that have a public name."""
    yield skdgn
    for module in pkgutil.iter_modules(skdgn.__path__, "skdgn."):
        if "._" not in module.name and module.name not in PARTS_OF_THE_ESTIMATOR:
            yield importlib.import_module(module.name)


def is_ours(item: Any) -> bool:
    return (getattr(item, "__module__", None) or "").startswith("skdgn")


def public_objects() -> dict[str, Any]:
    """Classes and functions of public modules, with the methods that are not scikit-learn's."""
    found = {}
    for module in public_modules():
        for name, item in vars(module).items():
            is_listed = name in getattr(module, "__all__", ())
            is_defined_here = getattr(item, "__module__", None) == module.__name__
            if name.startswith("_") or not callable(item) or not (is_listed or is_defined_here):
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
        "skdgn._estimators.network.PiecewiseAffineDGN",
        "skdgn._estimators.construction.KnownNetworks.from_network",
        "skdgn._estimators.methods.inference.ExactInference.score_samples",
        "skdgn._estimators.methods.ranges.ExactRanges.impute",
        "skdgn._estimators.methods.density.SumOfDensities.predict_proba",
        "skdgn._posterior.posterior.Posterior.sample",
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


@pytest.mark.parametrize("name", sorted(set(OBJECTS) - {"skdgn._posterior.posterior.Posterior"}))
def test_every_parameter_is_described(name):
    """(Of all classes, only `Posterior` is not made by its users.)"""
    entry = re.compile(r"^(\*{0,2}\w+(?:, \w+)*) : .*\n    \S", re.MULTILINE)
    found = entry.findall(inspect.getdoc(OBJECTS[name]))
    described = {part.lstrip("*") for names in found for part in names.split(", ")}
    parameters = set(inspect.signature(OBJECTS[name]).parameters) - {"self"}
    assert parameters <= described


@pytest.fixture
def address(monkeypatch) -> str:
    monkeypatch.setenv("SKDGN_DOCS", "https://docs.example/skdgn/")
    return "https://docs.example/skdgn"


def links_in(html: str) -> set[str]:
    return set(re.findall(r'href="([^"#]*)', html))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_estimators_link_to_their_page(kind, address):
    page = f"{address}/generated/skdgn.{kind.__name__}.html"
    assert links_in(kind()._repr_html_()) == {page}
    in_pipeline = make_pipeline(StandardScaler(), kind())._repr_html_()
    assert page in links_in(in_pipeline)


def test_an_estimator_of_another_package_has_a_page_of_its_own(address):
    link = GaussianVAE(decoder=None)._get_doc_link()
    assert link == f"{address}/generated/skdgn.vae.GaussianVAE.html"


def test_there_is_no_link_without_an_address(monkeypatch):
    monkeypatch.delenv("SKDGN_DOCS", raising=False)
    monkeypatch.setattr(_documentation, "ADDRESS", "")
    assert links_in(DGNImputer(PiecewiseAffineDGN())._repr_html_()) == set()
    monkeypatch.setattr(_documentation, "ADDRESS", "https://docs.example")
    assert links_in(PiecewiseAffineDGN()._repr_html_()) == {
        "https://docs.example/generated/skdgn.PiecewiseAffineDGN.html"
    }


def test_the_pages_linked_to_are_made():
    text = (Path(__file__).parents[1] / "docs" / "api.rst").read_text()
    section = text[text.index(".. currentmodule:: skdgn\n") :]
    for kind in ESTIMATORS:
        assert re.search(rf"^   {kind.__name__}$", section, re.MULTILINE)
    assert ":toctree: generated" in section


def test_a_class_that_somebody_derives_has_no_page_here(address):
    class Derived(PiecewiseAffineDGN):
        __module__ = "elsewhere"

    assert Derived()._get_doc_link() == ""


def test_version_and_types_are_there():
    assert re.match(r"\d+\.\d+\.\d+", skdgn.__version__)
    assert (Path(skdgn.__file__).parent / "py.typed").is_file()
    for name, item in OBJECTS.items():
        if inspect.isclass(item):
            continue
        signature = inspect.signature(item)
        assert signature.return_annotation is not inspect.Signature.empty, name
        for parameter in signature.parameters.values():
            typed = parameter.annotation is not inspect.Parameter.empty
            assert typed or parameter.name == "self", (name, parameter.name)
