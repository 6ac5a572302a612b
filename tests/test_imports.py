"""Packages meet at their doors: they import only what the ``__init__`` of another offers.

And what need not be installed is imported when it is needed.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import skdgn

ROOT = Path(skdgn.__file__).parent


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def imports_between_packages() -> Iterator[tuple[str, str, str]]:
    """List who imports what: a module, the module it imports from, the name; in functions, too."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        importer = ".".join(part for part in parts if part != "__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found = [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{importer}: a relative import"
                found = [(str(node.module), alias.name) for alias in node.names]
            else:
                continue
            for module, name in found:
                is_ours = module.split(".")[0] == "skdgn"
                if is_ours and package_of(module) != package_of(importer):
                    yield importer, module, name


def is_offered(module: str, name: str) -> bool:
    """Whether a package offers a name, or a package inside that one does, which it offers."""
    package, offered = package_of(module), import_module(module).__all__
    is_door = module == package or module.split(".")[-1] in import_module(package).__all__
    return is_door and (name in offered or name in ("*", "__all__"))


def test_packages_import_what_others_offer() -> None:
    wrong = [
        f"{importer}: from {module} import {name}"
        for importer, module, name in imports_between_packages()
        if not is_offered(module, name)
    ]
    assert not wrong, "\n".join(wrong)


def test_extras_are_imported_when_they_are_needed() -> None:
    extras = ["cdd", "dask", "matplotlib", "torch"]
    program = f"""
import sys, skdgn, skdgn.compile, skdgn.datasets, skdgn.displays, skdgn.layers, skdgn.vae
print([name for name in {extras} if name in sys.modules])
"""
    process = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert process.stdout.decode().strip() == "[]"


def test_submodules_are_found_without_an_import() -> None:
    code = (
        "import skdgn; print(*(getattr(skdgn, n).__name__ for n in ('datasets', 'layers', 'vae')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["skdgn.datasets", "skdgn.layers", "skdgn.vae"]
    assert {"datasets", "layers", "vae", "DGNMixture"} <= set(dir(skdgn))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        skdgn.nothing  # noqa: B018 - the access itself is tested
