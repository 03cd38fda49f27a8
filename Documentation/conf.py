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

# The pages of the manual: scripts/check docs builds them, too.
man_pages = [
    (f"manual/{name}.{section}", name, text, ["The peal developers"], section)
    for name, section, text in (
        ("libpeal", 3, "a C++20 library for programs that use RDMA"),
        ("peal", 7, "RDMA device in software"),
        ("peal", 8, "make, show and examine RDMA devices in software"),
        ("peal-link", 8, "make, remove and show devices, and set their options"),
        ("peal-host", 8, "show and set the options of this host"),
        ("peal-show", 8, "show the objects of programs"),
        ("peal-stat", 8, "show counters, and how fast they grow"),
        ("peal-why", 8, "explain the last errors of queue pairs"),
        ("peal-fault", 8, "make messages fail, to test programs"),
        ("peal-dump", 8, "show the packets of a device, and messages as packets"),
        ("peal-doctor", 8, "look for what keeps programs from using peal"),
        ("peal-ping", 8, "execute each operation with a peer, compare every byte, and measure"),
    )
]
# A page that is not listed would not be installed.
if {page[0] for page in man_pages} != {f"manual/{path.stem}" for path in pathlib.Path(__file__).parent.glob("manual/*.rst")}:
    raise ValueError("man_pages does not list the files of manual/")
