"""Sphinx configuration."""

import re
from typing import Any

from sphinx.application import Sphinx

import skdgn

project = "skdgn"
author = "the skdgn developers"
copyright = f"2026, {author}"
release = version = skdgn.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build"]

# numpydoc shows the types, in words.
autodoc_typehints = "none"

html_theme = "pydata_sphinx_theme"

# The template of classes lists the members; numpydoc's own tables would list them twice.
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
}


def skip_members_of_scikit_learn(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: Any
) -> bool | None:
    """Leave out get_params, set_fit_request and so on, which refer to pages of scikit-learn."""
    belongs_to_scikit_learn = (getattr(obj, "__module__", None) or "").startswith("sklearn")
    return True if belongs_to_scikit_learn or re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> None:
    """Connect the hook above."""
    app.connect("autodoc-skip-member", skip_members_of_scikit_learn)
