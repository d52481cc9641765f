"""Checks the built documentation site: internal links, anchors and pictures exist, and no page loads anything else.

    python tools/site_links.py docs/_build

Sphinx checks the links of the Markdown. This looks at the HTML, where links of tables, of the API reference and of the
navigation are as well. Links to other sites are not followed.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

EXTERNAL = {"http", "https", "mailto", "data"}


class Page(HTMLParser):
    """The anchors of a page, what it links to, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what is needed of a tag."""
        found = {key: value for key, value in attrs if value}
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if "src" in found:
            self.loads.append(found["src"])
        if tag == "link" and found.get("rel") == "stylesheet":
            self.loads.append(found["href"])


def faults(folder: Path) -> list[str]:
    """Return what is wrong with the links of a site, in sentences."""
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts}
    if not pages:
        return [f"{folder} has no pages. Build the site first: make docs"]
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        found += [f"{name} loads {each} from another site." for each in page.loads if urlsplit(each).netloc]
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme in EXTERNAL or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name} links to {link}, which does not exist.")
            elif name.parts[0] == "_modules":
                continue  # Sphinx guesses the anchors from source code to objects that a package imports
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name} links to {link}, and that page has no such anchor.")
    return found


def main() -> None:
    """Check the site in the folder that is given."""
    found = faults(Path(sys.argv[1]).resolve())
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
