"""Sphinx configuration of the API reference: `make api` builds it from the docstrings and fails on a warning."""

import privet

project = "privet"
version = release = privet.__version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "pydata_sphinx_theme"
html_title = f"privet {version}"
exclude_patterns = ["_build"]

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "none"  # the signatures in numpydoc sections say it once
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_custom_sections = ["Formal guarantees"]
napoleon_use_rtype = False
