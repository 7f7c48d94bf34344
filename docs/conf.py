"""How the pages are built: `make docs`, which takes every warning for an error."""

import re
from typing import Any

import phvae

project = "phvae"
author = "The phvae developers"
copyright = "The phvae developers, MIT licence"
version = release = phvae.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
]
exclude_patterns = ["results/README.md"]
# a folder of pages may still be empty; a word in single backticks may be the name of several things
suppress_warnings = ["toc.empty_glob", "ref.python"]

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

# in docstrings a single backtick is a name of ours; what is not found stays plain code
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_inherit_docstrings = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "pydata_sphinx_theme"
html_title = "phvae"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "pygments_light_style": "tango",
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
# one page each, or few: the bar on top and the links below lead on, and code has room
html_sidebars = {page: [] for page in ("index", "tour", "howto/**", "mathematics", "scale", "design")}


def setup(app: Any) -> None:
    """Leave out what scikit-learn adds to every estimator."""
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _fields, priority=400)


def _skip(app: Any, what: str, name: str, *_: Any) -> bool | None:
    return True if re.fullmatch("set_.*_request", name) else None


def _fields(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Give the fields of a named tuple or data class, one a line in our docstrings, a heading, which makes a list."""
    known = getattr(obj, "_fields", None) or tuple(getattr(obj, "__dataclass_fields__", ()))
    if what != "class" or not known:
        return
    names = "|".join(known)
    first = next((i for i, line in enumerate(lines) if re.match(rf"({names})(, ({names}))*: ", line)), None)
    if first is not None:
        end = next((i for i in range(first, len(lines)) if not lines[i].strip()), len(lines))
        lines[first:end] = ["Attributes:", *(f"    {line}" for line in lines[first:end])]
