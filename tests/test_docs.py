"""The documents agree with the code: examples run, paths and links exist, and the printed guarantee is the real one."""

import ast
import re
from pathlib import Path

import pytest

from privet.cli import app

ROOT = Path(__file__).resolve().parent.parent
BUILT_SITE = "docs/_build"  # written by `make docs`, and not part of the repository
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/start/*.md",
        "docs/tutorials/*.md",
        "docs/results/*.md",
        "examples/**/*.md",
    )
    for path in ROOT.glob(pattern)
)
NEEDS = {
    "docs/algorithms.md": "torch",
    "docs/deep.md": "torch",
    "docs/federated.md": "torch",
    "docs/multiparty.md": "mpyc",
    "docs/start/federated.md": "torch",
    "docs/start/opacus.md": "torch",
    "docs/start/owners.md": "mpyc",
}
CONTINUES_ABOVE = "# Continues the example above."
CONTINUES_FIRST = "# Continues the first example of this page."


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(path: str) -> list[str]:
    """Return the Python code blocks of a document. Blocks marked ``py`` need other machines and are not among them."""
    return re.findall(r"^```python\n(.*?)^```", text(path), re.S | re.M)


def sequences(path: str) -> list[list[str]]:
    """Return the blocks of a document that are run one after the other. Each sequence begins with nothing defined.

    A block whose first line says so continues the block before it, or the first one of the page.
    """
    found: list[list[str]] = []
    for code in blocks(path):
        start = code.partition("\n")[0]
        if start == CONTINUES_ABOVE:
            found[-1].append(code)
        elif start == CONTINUES_FIRST:
            found.append([found[0][0], code])
        else:
            found.append([code])
    return found


def names_used(code: str) -> set[str]:
    """Return the names that a block reads and does not define at its top level before."""
    tree = ast.parse(code)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


SEQUENCES = [
    pytest.param(path, sequence, id=f"{path}-{number}")
    for path in DOCUMENTS
    if not path.startswith("docs/tutorials/")  # tools/tutorials.py runs these
    for number, sequence in enumerate(sequences(path), start=1)
]


@pytest.mark.parametrize(("path", "sequence"), SEQUENCES)
def test_a_code_block_runs_on_its_own_or_after_those_that_it_continues(path, sequence, tmp_path, monkeypatch, capsys):
    if path in NEEDS:
        pytest.importorskip(NEEDS[path])
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "document"}
    for number, code in enumerate(sequence):
        defined = {name for name in names if not name.startswith("__")}
        assert number == 0 or names_used(code) & defined, f"{path}: this block continues nothing:\n{code}"
        exec(compile(code, path, "exec"), names)
    assert "nan" not in capsys.readouterr().out.lower()


@pytest.mark.parametrize("path", DOCUMENTS)
def test_code_that_needs_other_machines_is_at_least_python(path):
    for code in re.findall(r"^```py\n(.*?)^```", text(path), re.S | re.M):
        compile(code, path, "exec")


def test_the_guarantee_in_the_readme_is_what_its_first_example_prints(capsys):
    names: dict[str, object] = {}
    exec(compile(blocks("README.md")[0], "README.md", "exec"), names)
    printed = capsys.readouterr().out.split("\n", 1)[1]
    assert f"```\n{printed}```\n" in text("README.md")
    assert len(printed.splitlines()) <= 12


@pytest.mark.parametrize("path", DOCUMENTS)
def test_links_lead_to_files_and_headings_that_exist(path):
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text(path)):
        name, _, anchor = target.partition("#")
        file = ((ROOT / path).parent / name).resolve() if name else ROOT / path
        assert file.exists(), f"{path} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS)
def test_files_named_in_a_document_exist(path):
    named = re.findall(r"`((?:src|tests|experiments|benchmarks|docs|tools)/[\w/.*-]+)(?::[^`]*)?`", text(path))
    missing = [name for name in named if name.rstrip("/") != BUILT_SITE and not list(ROOT.glob(name.rstrip("/")))]
    assert not missing


def test_the_first_model_is_on_the_first_screen_of_the_readme():
    assert "Private" in "\n".join(text("README.md").splitlines()[:20])
    assert blocks("README.md")[0] in "\n".join(text("README.md").splitlines()[:25])


def test_the_page_on_the_command_line_lists_every_command():
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    groups = {group.name or group.typer_instance.info.name for group in app.registered_groups}
    assert set(re.findall(r"^\| `privet (\w+)` \|", text("docs/command_line.md"), re.M)) == commands | groups
