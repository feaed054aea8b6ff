"""How the documentation is built: pages in Markdown, examples that are run, a reference made from the docstrings."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE / "_extensions")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

from counterpoise import __version__  # noqa: E402

project = "counterpoise"
author = "The counterpoise developers"
project_copyright = author
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "native_math",
]
exclude_patterns = ["_extensions", "_templates"]
templates_path = ["_templates"]

# --- pages ---------------------------------------------------------------------------------------------------

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

# --- reference -----------------------------------------------------------------------------------------------

autosummary_generate = True
autosummary_imported_members = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": True}
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# --- examples ------------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "capture_repr": (),
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "copyfile_regex": r".*README.*",
}

# --- pages as they are seen: nothing is fetched, neither fonts nor scripts ------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "counterpoise"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_show_sourcelink = False
toc_object_entries_show_parents = "hide"
html_copy_source = False
html_math_renderer = "native"
html_theme_options: dict[str, Any] = {
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    # Where tables are wide they need the room more than the reader needs a list of headings.
    "secondary_sidebar_items": {"**": ["page-toc"], "peers": [], "speed": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}


def ours(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what a class inherits from other libraries: it is described there."""
    member = getattr(member, "fget", None) or getattr(member, "func", None) or member
    module = getattr(member, "__module__", None)
    return True if isinstance(module, str) and not module.startswith("counterpoise") else None


def escape_trailing_underscores(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Keep ``shape (n_features_in_,)`` from being read as a link."""
    for k, line in enumerate(lines):
        head, colon, kind = line.partition(" : ")
        if colon and re.fullmatch(r"[\w, ]+", head):
            lines[k] = head + colon + re.sub(r"(?<=\w)_(?=[,)])", r"\\_", kind)


def prepare(app: Any, page: str, source: list[str]) -> None:
    """Give links that are named after their file the title of its page."""
    source[0] = re.sub(r"\[[a-z-]+\.md\]\(", "[](", source[0])


def setup(app: Any) -> None:
    """Register what is done to sources and docstrings; the latter before numpydoc reads them."""
    app.connect("autodoc-skip-member", ours)
    app.connect("autodoc-process-docstring", escape_trailing_underscores, priority=400)
    app.connect("source-read", prepare)
