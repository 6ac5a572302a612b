"""Where the documentation is: the links in the HTML representation of an estimator.

scikit-learn draws an estimator with a link to its page, and a link for each parameter.  There is
no link as long as there is no address.
"""

from __future__ import annotations

import os
from typing import ClassVar

# The address of the documentation, without a slash at the end; empty, since it is not published.
ADDRESS = ""

# What stands in for it: a copy at another address, or one that `make docs` built (file:///...).
_VARIABLE = "SKDGN_DOCS"


class DocumentedMixin:
    """Tells scikit-learn the page of an estimator; to be put before `BaseEstimator`."""

    _doc_link_module = "skdgn"
    _imported_from: ClassVar[str] = "skdgn"  # its page has the name it is imported by

    @property
    def _doc_link_template(self) -> str:
        address = os.environ.get(_VARIABLE, ADDRESS).rstrip("/")
        if not address:
            return ""
        return f"{address}/generated/{self._imported_from}.{{estimator_name}}.html"
