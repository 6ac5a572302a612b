"""The ``>>>`` blocks of the pages are tests; scripts and what Sphinx made are not."""

from __future__ import annotations

collect_ignore = [
    "_build",
    "auto_examples",
    "check_links.py",
    "check_widths.py",
    "conf.py",
    "generated",
]
