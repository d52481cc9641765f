"""Runs the tutorials of docs/tutorials, and writes what they print and draw into their pages.

    python tools/tutorials.py                    # runs all of them
    python tools/tutorials.py network budget     # runs these
    python tools/tutorials.py --check            # ends with exit code 1 if outputs do not belong to the code
    python tools/tutorials.py --notebook budget  # writes budget.ipynb, without outputs, to the current folder

A tutorial is a Markdown page. Its blocks ``python`` and ``sh`` are the cells of one notebook, which runs in an empty
folder. What a cell prints stands below it, between two comments. Pictures are in docs/tutorials/outputs. The last line
of the page holds a hash of the code and one of the outputs, so that a test notices if the code has changed since it
ran, or if an output was edited. A block that draws states the text alternative of its picture:
``python alt="What is seen"``.
"""

import argparse
import base64
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "tutorials"
CELL = re.compile(r'^```(?P<language>python|sh)(?: alt="(?P<alt>[^"\n]*)")?\n(?P<code>.*?)^```\n', re.S | re.M)
OUTPUT = re.compile(r"\n<!-- output -->\n.*?\n<!-- end of output -->\n", re.S)
LAST = re.compile(r"\n<!-- executed: code (?P<code>\w+), outputs (?P<outputs>\w+) -->\n\Z")
# What no output may contain: errors, paths and times of the machine on which it was made.
FORBIDDEN = {
    "an error": r"Traceback \(most recent call last\)|^\w*Error: ",
    "an absolute path": r"(?<![\w.~:])/(?:tmp|home|root|usr|opt|var|work|mnt|Users|private|dev/shm)/|\b[A-Z]:\\\\?\w",
    "a time stamp": r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\b\d\d:\d\d:\d\d\b",
    "a colour code": "\x1b",
}
SECONDS = 120.0  # the most that a cell may take
PREPARATION = """
%matplotlib inline
%config InlineBackend.figure_formats = ["svg"]
%config InlineBackend.print_figure_kwargs = {"metadata": {"Date": None}, "bbox_inches": "tight", "facecolor": "white"}
import matplotlib, os, warnings
for name in ("FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PY_COLORS"):  # ipykernel sets some of them
    os.environ.pop(name, None)
matplotlib.rcParams.update({
    "figure.figsize": (7, 3.4), "svg.hashsalt": "privet", "font.size": 10, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "legend.frameon": False,
})
warnings.formatwarning = lambda message, category, *rest: f"{category.__name__}: {message}\\n"
"""


def pages() -> list[Path]:
    """Return the tutorials: all pages with cells."""
    return sorted(path for path in FOLDER.glob("*.md") if CELL.search(path.read_text(encoding="utf-8")))


def without_outputs(text: str) -> str:
    """Return the text as somebody wrote it."""
    return LAST.sub("\n", OUTPUT.sub("", text)).rstrip("\n") + "\n"


def outputs(text: str) -> list[str]:
    """Return what stands between the comments."""
    return OUTPUT.findall(text)


def pictures(text: str) -> list[tuple[str, str]]:
    """Return the text alternative and the file name, relative to the page, of each picture of the outputs."""
    return re.findall(r"!\[([^\]]*)\]\((outputs/[^)]+)\)", "".join(outputs(text)))


def digests(text: str) -> dict[str, str]:
    """Return a hash of the code of a page and one of its outputs."""
    code = "\0".join(f"{cell['language']}\0{cell['code']}" for cell in CELL.finditer(without_outputs(text)))
    shown = "\0".join(outputs(text)).encode()
    for _, name in pictures(text):
        shown += (FOLDER / name).read_bytes() if (FOLDER / name).is_file() else b"missing"
    return {"code": hashlib.sha256(code.encode()).hexdigest()[:12], "outputs": hashlib.sha256(shown).hexdigest()[:12]}


def faults(path: Path) -> Iterator[str]:
    """Yield what is wrong with the outputs of a page, in sentences."""
    text = path.read_text(encoding="utf-8")
    last, now = LAST.search(text), digests(text)
    remedy = f"Run: python tools/tutorials.py {path.stem}"
    if last is None:
        yield f"{path.name} has not been executed. {remedy}"
    elif last["code"] != now["code"]:
        yield f"The code of {path.name} has changed since it was executed. {remedy}"
    elif last["outputs"] != now["outputs"]:
        yield f"The outputs of {path.name} have been edited since it was executed. {remedy}"
    for alt, name in pictures(text):
        if not (FOLDER / name).is_file():
            yield f"{path.name} shows {name}, which does not exist. {remedy}"
        elif not alt:
            yield f'{path.name} shows {name} without a text alternative. Begin its cell with: ```python alt="..."'
    for shown in outputs(text) + [(FOLDER / n).read_text() for _, n in pictures(text) if (FOLDER / n).is_file()]:
        for what, pattern in FORBIDDEN.items():
            if found := re.search(pattern, shown, re.M):
                yield f"An output of {path.name} contains {what}: {shown[found.start() : found.start() + 60]!r}."


def notebook(text: str) -> Any:
    """Return a notebook without outputs: the text between the cells, and the cells."""
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    text, cells, end = without_outputs(text), [], 0
    for cell in CELL.finditer(text):
        cells.append(new_markdown_cell(text[end : cell.start()].strip()))
        code = cell["code"] if cell["language"] == "python" else f"%%sh\n{cell['code']}"
        cells.append(new_code_cell(code.rstrip("\n"), metadata={"alt": cell["alt"] or ""}))
        end = cell.end()
    cells.append(new_markdown_cell(text[end:].strip()))
    return new_notebook(cells=[cell for cell in cells if cell.source])


def executed(text: str) -> list[Any]:
    """Run the cells in an empty folder, on one core, and return them with their outputs."""
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell
    from traitlets.config import Config

    book = notebook(text)
    book.cells.insert(0, new_code_cell(PREPARATION))
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "92", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = os.environ | threads | plain | {"PATH": os.pathsep.join(paths), "PYTHONPATH": source}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as profile:
        sockets = Config(KernelManager={"transport": "ipc", "ip": f"{profile}/kernel"})  # rather than ports
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(book, timeout=SECONDS, kernel_name="python3", resources=resources, config=sockets)
        client.execute(env=environment | {"IPYTHONDIR": profile})
    cells = [cell for cell in book.cells[1:] if cell.cell_type == "code"]
    for output in (output for cell in cells for output in cell.outputs if output.output_type == "stream"):
        for place in (os.path.realpath(folder), folder):  # Readers have a folder of their own.
            output.text = output.text.replace(f"{place}{os.sep}", "")
    return cells


def shown(cell: Any, new_picture: Any) -> Iterator[str]:
    """Yield the outputs of a cell as Markdown."""
    printed = ""
    for output in [*cell.outputs, None]:
        if output is not None and output.output_type == "stream":
            printed += output.text
            continue
        if printed.strip():
            yield fenced(printed)
        printed = ""
        data = output.data if output is not None else {}
        if "image/svg+xml" in data:
            yield f"![{cell.metadata['alt']}](outputs/{new_picture('svg', data['image/svg+xml'].encode())})"
        elif "image/png" in data:
            yield f"![{cell.metadata['alt']}](outputs/{new_picture('png', base64.b64decode(data['image/png']))})"
        elif "text/markdown" in data:
            yield data["text/markdown"].strip()
        elif 'class="dataframe"' in data.get("text/html", ""):
            yield table(data["text/html"])
        elif "text/plain" in data:
            yield fenced(data["text/plain"])


def fenced(printed: str) -> str:
    """Return printed text as a block, without spaces at the end of lines."""
    lines = "\n".join(line.rstrip() for line in printed.replace("\r\n", "\n").strip("\n").split("\n"))
    return f"```text\n{lines}\n```"


def table(html: str) -> str:
    """Return the table that pandas draws, without its style and without empty lines, which would end it in Markdown."""
    html = re.sub(r"<style.*?</style>", "", html, flags=re.S)
    html = re.sub(r'<table border="1" class="dataframe">', '<table class="table">', html)
    html = re.sub(r' style="[^"]*"|</?div>', "", html)
    return "\n".join(line.strip() for line in html.split("\n") if line.strip())


def written(path: Path, cells: list[Any]) -> str:
    """Write the pictures of a page, and return its text with the outputs."""
    for old in (FOLDER / "outputs").glob(f"{path.stem}_*"):
        old.unlink()
    number = 0

    def new_picture(ending: str, content: bytes) -> str:
        nonlocal number
        number += 1
        name = f"{path.stem}_{number}.{ending}"
        (FOLDER / "outputs" / name).write_bytes(content)
        return name

    waiting = iter(cells)

    def with_output(match: re.Match[str]) -> str:
        parts = list(shown(next(waiting), new_picture))
        if not parts:
            return match[0]
        body = "\n\n".join(parts)
        return f'{match[0]}\n<!-- output -->\n<div class="output">\n\n{body}\n\n</div>\n<!-- end of output -->\n'

    text = CELL.sub(with_output, without_outputs(path.read_text(encoding="utf-8")))
    found = digests(text)
    return f"{text}\n<!-- executed: code {found['code']}, outputs {found['outputs']} -->\n"


def main() -> None:
    """Run, check, or write notebooks."""
    parser = argparse.ArgumentParser(description="Run the tutorials and write their outputs into their pages.")
    parser.add_argument("names", nargs="*", help="Names of tutorials. Default: all of them.")
    parser.add_argument("--check", action="store_true", help="Only check that outputs belong to the code.")
    parser.add_argument("--notebook", action="store_true", help="Only write notebooks without outputs.")
    options = parser.parse_args()
    chosen = [FOLDER / f"{name}.md" for name in options.names] or pages()
    if options.check:
        sys.exit("\n".join(fault for path in chosen for fault in faults(path)) or 0)
    found = []
    for path in chosen:
        text = path.read_text(encoding="utf-8")
        if options.notebook:
            import nbformat

            nbformat.write(notebook(text), f"{path.stem}.ipynb")
            continue
        start = time.monotonic()
        path.write_text(written(path, executed(text)), encoding="utf-8")
        print(f"{path.stem}: {time.monotonic() - start:.0f} s", flush=True)
        found += faults(path)
    sys.exit("\n".join(found) or 0)


if __name__ == "__main__":
    main()
