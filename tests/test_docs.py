"""The code in the documents runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def blocks(path):
    """Return the code blocks of a document."""
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), re.S)


BLOCKS = [
    pytest.param(code, id=f"{path}-{place}")
    for path in ("README.md", "docs/linear_models.md", "docs/sparse_models.md", "docs/last_iterate.md", "docs/audit.md")
    for place, code in enumerate(blocks(path))
]


@pytest.mark.parametrize("code", BLOCKS)
def test_a_code_block_runs(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "document", "exec"), {})
    assert "nan" not in capsys.readouterr().out.lower()


@pytest.mark.parametrize("guide", ["docs/deep.md", "docs/federated.md"])
def test_a_guide_of_networks_runs_from_top_to_bottom(guide, tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch", reason="networks need torch: pip install 'privet[deep]'")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in blocks(guide):
        exec(compile(code, "document", "exec"), names)
    assert "nan" not in capsys.readouterr().out.lower()
