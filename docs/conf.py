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
html_sidebars = {"index": [], "tour": [], "mathematics": [], "design": []}


def setup(app: Any) -> None:
    """Leave out what scikit-learn adds to every estimator."""
    app.connect("autodoc-skip-member", _skip)


def _skip(app: Any, what: str, name: str, *_: Any) -> bool | None:
    return True if re.fullmatch("set_.*_request", name) else None
