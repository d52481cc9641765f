"""The map of the package and the table of layers in CONTRIBUTING.md, generated from the tree.

    python tools/house.py           # rewrites both parts of CONTRIBUTING.md
    python tools/house.py --check   # ends with exit code 1 if they are out of date

The map shows the first sentence of the docstring of each package, of each top-level module, and of each module of a
package that has many.
"""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "privet"
PAGE = ROOT / "CONTRIBUTING.md"
MANY = 25
"""From this number on, the modules of a package are listed, because their names alone do not show where things are."""
FOLDERS = {
    "tests/": "Mirrors src/privet. tests/audit attacks every solver, estimator and method.",
    "experiments/": "One script per table or figure of a paper, with the paper's figures beside privet's.",
    "benchmarks/": "privet against its peers in one run, as ratios.",
    "docs/": "The site: start pages, guides, tutorials, background, results; docs/api is the API reference.",
    "examples/": "Programs to copy from.",
    "tools/": "Scripts of the project itself: this map, results, pictures, tutorials, footprints, mutants, the wheel.",
}


def first_sentence(file: Path) -> str:
    """Return the first sentence of a module's docstring, on one line."""
    text = " ".join((ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split())
    text = re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
    return re.split(r"(?<=\.)\s", text)[0]


def package_map() -> str:
    """Return a code block with a line per package, and per module of the top level and of packages with many."""
    rows: list[tuple[str, str]] = []
    packages = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
    for package in packages:
        depth = len(package.relative_to(SOURCE).parts)
        name = "src/privet/" if depth == 0 else "  " * depth + package.name + "/"
        rows.append((name, first_sentence(package / "__init__.py")))
        modules = sorted(file for file in package.glob("*.py") if not file.name.startswith("__"))
        if depth == 0 or len(modules) >= MANY:
            rows += [("  " * (depth + 1) + file.name, first_sentence(file)) for file in modules]
    rows += FOLDERS.items()
    width = max(len(name) for name, _ in rows) + 2
    return "```\n" + "\n".join(f"{name:<{width}}{text}".rstrip() for name, text in rows) + "\n```"


def layer_table() -> str:
    """Return a table of the parts of the package and of what each may import."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["privet"]["layers"]
    rows = [
        f"| {part.replace('_', chr(92) + '_')} | {', '.join(below) or 'nothing'} |" for part, below in layers.items()
    ]
    return "| part | may import, besides itself |\n|---|---|\n" + "\n".join(rows)


def rendered(page: str) -> str:
    """Return the page with both generated parts replaced."""
    for name, text in {"map": package_map(), "layers": layer_table()}.items():
        pattern = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)", re.S)
        if not pattern.search(page):
            raise SystemExit(f"CONTRIBUTING.md has no part between <!-- {name}: ... --> and <!-- end of {name} -->.")
        page = pattern.sub(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)
    return page


def main() -> None:
    """Rewrite the page, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = rendered(page)
    if "--check" not in sys.argv:
        PAGE.write_text(fresh, encoding="utf-8")
    elif fresh != page:
        sys.exit("CONTRIBUTING.md is out of date. Run: python tools/house.py")


if __name__ == "__main__":
    main()
