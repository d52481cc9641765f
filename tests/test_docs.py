"""The documents agree with the code: examples run, paths and links exist, and the printed guarantee is the real one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "docs/results/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
NEEDS = {
    "docs/algorithms.md": "torch",
    "docs/deep.md": "torch",
    "docs/federated.md": "torch",
    "docs/multiparty.md": "mpyc",
}


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(path: str) -> list[str]:
    """Return the Python code blocks of a document."""
    return re.findall(r"^```python\n(.*?)^```", text(path), re.S | re.M)


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if blocks(path)])
def test_the_code_of_a_document_runs_from_top_to_bottom(path, tmp_path, monkeypatch, capsys):
    if path in NEEDS:
        pytest.importorskip(NEEDS[path])
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "document"}
    for code in blocks(path):
        exec(compile(code, path, "exec"), names)
    assert "nan" not in capsys.readouterr().out.lower()


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
    missing = [name for name in named if not list(ROOT.glob(name.rstrip("/")))]
    assert not missing


def test_the_first_model_is_on_the_first_screen_of_the_readme():
    assert "Private" in "\n".join(text("README.md").splitlines()[:20])
    assert blocks("README.md")[0] in "\n".join(text("README.md").splitlines()[:25])
