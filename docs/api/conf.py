"""Sphinx configuration of the API reference: `make api` builds it from the docstrings and fails on a warning."""

import re
from typing import Any

import privet

project = "privet"
version = release = privet.__version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "pydata_sphinx_theme"
html_title = f"privet {version}"
exclude_patterns = ["_build"]

autodoc_default_options = {"exclude-members": "set_fit_request, set_score_request, set_transform_request"}
autodoc_typehints = "none"  # the signatures in numpydoc sections say it once
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_custom_sections = ["Formal guarantees"]
napoleon_use_rtype = False
napoleon_use_ivar = True  # an attribute that is a property is described once
suppress_warnings = ["ref.python"]  # names in "Attributes" sections become references, which need not be unique


def setup(app: Any) -> None:
    """Escape the bars of absolute values and norms, which reStructuredText would read as substitutions."""

    def escape_bars(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
        for place, line in enumerate(lines):
            parts = re.split(r"(``.*?``)", line)
            lines[place] = "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)

    app.connect("autodoc-process-docstring", escape_bars)
