# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""How Sphinx builds the documentation: scripts/check docs."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent))

project = "peal"
extensions = ["facts"]
html_theme = "alabaster"
html_theme_options = {"page_width": "auto", "body_max_width": "none"}
html_show_copyright = False
html_copy_source = False
highlight_language = "none"
smartquotes = False
# A single backtick is a mistake here: report it as a reference that does not resolve.
default_role = "any"
