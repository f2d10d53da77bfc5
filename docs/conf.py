"""The documentation site: built by ``make docs``, readable offline, without warnings."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as _version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "flowlex"
author = "The flowlex authors"
copyright = author
version = release = _version("flowlex")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "mathml",
    "generated",
]
exclude_patterns = ["_build", "extensions"]
html_theme = "furo"
html_title = f"flowlex {release}"
html_static_path = ["gpu-testbed.png", "site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_math_renderer = "mathml"  # browsers draw it; no script and no asset from elsewhere

nitpicky = True
# The base of policies of one's own is public as `flowlex.ClusterPolicy`.
nitpick_ignore = [("py:class", "flowlex.systems.simulation.cluster.policy_interface.Policy")]
default_role = "autolink"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc sections say what each parameter is; `flowlex` ships its types to editors
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
# `cache` runs a notebook again when its code has changed; CI runs notebooks in `make test-rare` and sets `off`.
nb_execution_mode = os.environ.get("FLOWLEX_DOCS_NOTEBOOKS", "cache")
nb_execution_timeout = 600
nb_execution_excludepatterns = os.environ.get("FLOWLEX_DOCS_SKIP", "").split()  # patterns of pages that are not run
nb_execution_raise_on_error = True
nb_merge_streams = True
suppress_warnings = ["mystnb.unknown_mime_type"]
