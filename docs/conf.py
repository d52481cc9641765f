"""Sphinx configuration of the documentation site. `make docs` builds it into docs/_build; a warning is an error."""

import re
from importlib import import_module
from inspect import isclass, isfunction
from typing import Any

import privet

project = "privet"
version = release = privet.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
highlight_language = "text"  # of blocks that name no language, such as printed guarantees

# Markdown is what GitHub renders, too: no extension of its syntax is switched on.
myst_heading_anchors = 6  # the anchors of GitHub, so that links to headings work in both places

html_theme = "pydata_sphinx_theme"
html_title = f"privet {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # summaries are fetched, which browsers refuse for files on a disk
html_theme_options = {
    "logo": {"text": f"privet {version}"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_nav_level": 2,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "start/opacus": [], "start/diffprivlib": []},
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
copyright = "the authors of privet. Apache-2.0"
copybutton_exclude = ".linenos, .gp, .go"

autosummary_generate = False  # its tables lead to the same page
autodoc_default_options = {"exclude-members": "set_fit_request, set_score_request, set_transform_request"}
autodoc_typehints = "none"  # the signatures in numpydoc sections say it once
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_custom_sections = ["Formal guarantees"]
napoleon_use_rtype = False
napoleon_use_ivar = True  # an attribute that is a property is described once
suppress_warnings = ["ref.python"]  # names in "Attributes" sections become references, which need not be unique
toc_object_entries_show_parents = "hide"


def escape_bars(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape the bars of absolute values and norms, which reStructuredText would read as substitutions."""
    for place, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        lines[place] = "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def link_to_the_copy(app: Any, name: str, source: list[str]) -> None:
    """Let links to CONTRIBUTING.md, which is outside this folder, lead to the page that includes it."""
    source[0] = re.sub(r"\]\(((?:\.\./)*)\.\./CONTRIBUTING\.md", r"](\1contributing.md", source[0])


def keep_together(app: Any, name: str, source: list[str]) -> None:
    """Let no cell of a table break between a number and its standard deviation."""
    source[0] = re.sub(r"^\|.*", lambda line: line[0].replace(" ± ", "\u00a0±\u00a0"), source[0], flags=re.M)


def list_the_names(app: Any, name: str, source: list[str]) -> None:
    """Begin the API page of a module with a table of its classes and functions and their first sentences."""
    for module in re.findall(r"^\.\. automodule:: (\S+)$", source[0], re.M) if name.startswith("api/") else ():
        defined = import_module(module)
        own = [key for key, each in vars(defined).items() if getattr(each, "__module__", "") == module]
        names = [key for key in getattr(defined, "__all__", own) if not key.startswith("_")]
        listed = [key for key in names if isclass(getattr(defined, key)) or isfunction(getattr(defined, key))]
        rows = "".join(f"   {key}\n" for key in sorted(listed))
        table = f".. currentmodule:: {module}\n.. autosummary::\n   :nosignatures:\n\n{rows}\n"
        source[0] = source[0].replace(f".. automodule:: {module}\n", f"{table}.. automodule:: {module}\n")


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("source-read", link_to_the_copy)
    app.connect("source-read", keep_together)
    app.connect("source-read", list_the_names)
