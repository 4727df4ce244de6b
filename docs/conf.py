"""How Sphinx builds the site from this folder: `python -m sphinx -W docs build/site`."""

import gc
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_site")]

import names_in_text  # noqa: E402
import reference  # noqa: E402
import subjects  # noqa: E402

import fad  # noqa: E402

gc.set_threshold(100_000, 50, 100)  # JAX asks XLA to collect each time: a tenth of the build

project = "fad"
author = "The fad authors"
copyright = author
release = version = fad.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_codeautolink",  # names in code lead to the reference, and pages of it to their examples
    "sphinx_copybutton",
]
exclude_patterns = ["_site"]
default_role = "py:obj"
highlight_language = "python"
pygments_style = "friendly"
pygments_dark_style = "monokai"
add_module_names = False
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

autodoc_typehints = "none"  # signatures show defaults; docstrings say what an argument may be
autodoc_member_order = "alphabetical"
napoleon_use_rtype = False
napoleon_custom_sections = [
    ("Class attributes", "params_style"),
    ("Source", "notes_style"),
]

codeautolink_concat_default = True  # the blocks of a page are one program
copybutton_exclude = ".linenos, .gp, .go"  # prompts and what was printed are not copied

html_theme = "furo"
html_title = f"fad {release}"
html_copy_source = False
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_show_sphinx = False
# What the theme shows at the foot of each page needs no address of a host.
html_theme_options = {"navigation_with_keys": True}

reference.write(HERE / "reference")


def whole_first_line(_app, what, _name, _obj, _options, lines):
    """Keep napoleon from reading the start of a property's docstring, up to a colon, as its type."""
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]


def setup(app):
    app.add_transform(names_in_text.LinkNames)
    app.connect("source-read", subjects.add)
    app.connect("autodoc-process-docstring", whole_first_line, priority=100)
