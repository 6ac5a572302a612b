"""What the documents at the root say is so: code that runs, modules that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

import skdgn

ROOT = Path(__file__).parents[1]


DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.rst"), *ROOT.glob("docs/guide/*.rst")])


def test_python_blocks_of_the_readme_run_in_order() -> None:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"README.md, block {number}", "exec"), names)
    model, X, incomplete = names["model"], names["X"], names["incomplete"]
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)
    np.testing.assert_array_equal(
        model.impute(incomplete)[~np.isnan(incomplete)], X[~np.isnan(incomplete)]
    )
    assert names["detector"].predict([[1.0, 0.0], [0.0, 0.0]]).tolist() == [1, -1]
    assert names["best"].hidden_layer_sizes == (8,)
    assert np.isfinite(names["pipeline"].predict(incomplete)).all()


def test_local_links_of_the_documents_lead_somewhere() -> None:
    for document in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)]+)\)", document.read_text()):
            assert "://" in target or (ROOT / target).exists(), f"{document.name}: {target}"


def test_commands_in_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        text = document.read_text()
        for target in re.findall(r"(?:`|^ {4})make ([a-z]+)", text, re.MULTILINE):
            assert target in targets, f"{document.name}: make {target}"
        for script in re.findall(r"(?:benchmarks|examples|tests)/[\w/]+\.py", text):
            assert (ROOT / script).exists(), f"{document.name}: {script}"


def test_modules_named_in_the_documents_exist() -> None:
    for document in DOCUMENTS:
        for named in re.findall(r"`(_[a-z]+(?:[/.][a-z_]+)+)", document.read_text()):
            place = ROOT / "skdgn"
            for part in re.split("[/.]", named.removesuffix(".py")):
                if place.is_dir() and not (place / part).is_dir():
                    module = place / f"{part}.py"
                    place = module if module.exists() else place / "__init__.py"
                    if place == module:
                        continue
                if place.is_file():
                    assert re.search(rf"\b{part}\b", place.read_text()), f"{document.name}: {named}"
                else:
                    place = place / part


def test_the_citation_has_the_version_of_the_package() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {skdgn.__version__}\n" in text


def test_the_floor_plan_lists_every_package_and_every_room_once() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    text = text[text.index("| package | holds |") :]
    plan, *rooms = text[: text.index("\n## ")].split("### The rooms of ")
    listed = re.findall(r"^\| `(\w+)` \|", plan, re.MULTILINE)
    modules = [path.stem for path in (ROOT / "skdgn").glob("*.py") if path.stem != "__init__"]
    packages = [path.parent.name for path in (ROOT / "skdgn").glob("*/__init__.py")]
    assert sorted(listed) == sorted(modules + packages)
    private = {
        path.parent.relative_to(ROOT / "skdgn").as_posix()
        for name in packages
        if name.startswith("_")
        for path in (ROOT / "skdgn" / name).rglob("__init__.py")
    }
    assert sorted(room[1 : room.index("`", 1)] for room in rooms) == sorted(private)
    for room in rooms:
        package = ROOT / "skdgn" / room[: room.index("\n")].strip("`")
        listed = re.findall(r"^\| `(\w+)` \|", room, re.MULTILINE)
        found = [path.stem for path in package.glob("*.py") if path.stem != "__init__"]
        found += [path.parent.name for path in package.glob("*/__init__.py")]
        assert sorted(listed) == sorted(found)


def test_the_updates_of_the_example_of_convergence_run() -> None:
    """It is the only example that calls private functions: these may change."""
    text = (ROOT / "examples/plot_convergence.py").read_text()
    private = [
        path.name
        for path in (ROOT / "examples").glob("*.py")
        if re.search(r"skdgn\._|from skdgn import _", path.read_text())
    ]
    assert private == ["plot_convergence.py"]
    names: dict[str, Any] = {}
    exec(text[: text.index("def paper_updates")], names)
    names["N_UPDATES"] = 3
    begin = text.index("def paper_updates")
    exec(text[begin : text.index("# %%", begin)], names)
    assert len(names["paper_updates"](*names["random_start"](0))) == 4
