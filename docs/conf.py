"""Sphinx configuration."""

import importlib.util
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

import skdgn

project = "skdgn"
author = "the skdgn developers"
copyright = f"2026, {author}"
release = version = skdgn.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "myst_parser",  # for the documents at the root, which are Markdown
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build"]

# numpydoc shows the types, in words.
autodoc_typehints = "none"
# The template of classes lists the members; numpydoc's own tables would list them twice.
numpydoc_show_class_members = False

# The names of methods, without the class: the column beside a page is narrow.
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "skdgn"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_theme_options = {"show_prev_next": False, "secondary_sidebar_items": ["page-toc"]}
html_sidebars = {"index": [], "contributing": [], "changelog": []}
html_show_sourcelink = False
html_math_renderer = "mathml"

EXAMPLES = Path(__file__).parents[1] / "examples"
# Packages that no group installs, and the imports that need them.
OPTIONAL = {"dask": r"dask", "torch": r"torch|skdgn\.vae"}


def examples_that_run() -> list[str]:
    """Names of the examples whose imports are there; the others are shown without output."""
    missing = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]
    wanted = "|".join(OPTIONAL[name] for name in missing) or "$^"
    imports = re.compile(rf"^\s*(?:import|from) (?:{wanted})\b", re.MULTILINE)
    return [path.name for path in EXAMPLES.glob("*.py") if not imports.search(path.read_text())]


sphinx_gallery_conf = {
    "examples_dirs": str(EXAMPLES),
    "gallery_dirs": "auto_examples",
    "filename_pattern": f"/(?:{'|'.join(map(re.escape, examples_that_run()))})$",
    "download_all_examples": False,
    "write_computation_times": False,  # a page that loads scripts from elsewhere
    "show_signature": False,
}


def write_math(writer: Any, node: nodes.Node) -> None:
    """Write MathML, which browsers draw themselves: no script, no network."""
    is_block = isinstance(node, nodes.math_block)
    mathml = tex2mathml(node.astext(), as_block=is_block)
    writer.body.append(f'<div class="math">{mathml}</div>' if is_block else mathml)
    raise nodes.SkipNode


def skip_members_of_scikit_learn(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: Any
) -> bool | None:
    """Leave out get_params, set_fit_request and so on, which refer to pages of scikit-learn."""
    belongs_to_scikit_learn = (getattr(obj, "__module__", None) or "").startswith("sklearn")
    return True if belongs_to_scikit_learn or re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.connect("autodoc-skip-member", skip_members_of_scikit_learn)
