"""The code in the documents runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = [
    pytest.param(code, id=f"{path}-{place}")
    for path in ("README.md", "docs/linear_models.md", "docs/last_iterate.md", "docs/audit.md")
    for place, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), re.S))
]


@pytest.mark.parametrize("code", BLOCKS)
def test_a_code_block_runs(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "document", "exec"), {})
    assert "nan" not in capsys.readouterr().out.lower()
