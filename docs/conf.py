"""How the site is built: `make docs`. Nothing is fetched from anywhere."""

from __future__ import annotations

import os

# the gallery draws without a screen, in code that is compiled once and kept
os.environ.setdefault("MPLBACKEND", "Agg")

from consequential import __version__

project = "consequential"
author = "the authors of consequential"
project_copyright = "the authors of consequential, MIT licence"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "gallery", "figures", "examples/*.ipynb", "examples/*.py"]
templates_path = ["_templates"]

# a single backtick in a docstring is code
default_role = "code"
highlight_language = "text"
autosummary_generate = True
# files that would differ from another's by capitals alone, which some disks cannot keep apart
autosummary_filename_map = {
    f"consequential.{name}": f"consequential.{name}_function"
    for name in ("baselines", "frontier", "overlap", "plan", "sensitivity")
}
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 88
numpydoc_show_class_members = False
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"/gallery/",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "abort_on_example_error": True,
    "write_computation_times": False,
}


def _left_to_scikit_learn(app, what, name, found, skip, options):
    """Leave out what a class has from scikit-learn: that is documented there."""
    return skip or (getattr(found, "__module__", None) or "").startswith("sklearn")


def setup(app):
    app.connect("autodoc-skip-member", _left_to_scikit_learn)


html_theme = "pydata_sphinx_theme"
html_title = "consequential"
html_static_path: list[str] = []
html_show_sourcelink = False
html_sidebars = {"**": ["sidebar-parts.html"]}
html_theme_options = {
    "show_toc_level": 2,
    "navbar_align": "left",
    "navbar_center": [],
    "navbar_persistent": [],
    "navbar_end": ["search-button", "theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
