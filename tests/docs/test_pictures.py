"""The pictures of docs/accounting.md are what privet computes today."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools" / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_are_current(tool):
    assert not tool.outdated(), "Run: python tools/pictures.py"


def test_every_picture_is_small_and_shown_with_a_text_alternative(tool):
    page = (ROOT / "docs" / "accounting.md").read_text(encoding="utf-8")
    for name in tool.PICTURES:
        assert (tool.FOLDER / f"{name}.svg").stat().st_size < 40_000
        before, _, _ = page.partition(f"](images/{name}.svg)")
        assert before != page
        assert len(before.rpartition("![")[2]) > 20


def test_a_curve_that_moves_or_a_text_that_changes_is_noticed(tool):
    drawn = '<path d="M 10.5 20.25 L 30.0 40.0"/><text>epsilon</text>'
    assert not tool.differences(drawn, drawn.replace("20.25", "20.26"))
    assert tool.differences(drawn, drawn.replace("20.25", "21.25"))
    assert tool.differences(drawn, drawn.replace("epsilon", "delta"))
    assert tool.differences(drawn, drawn.replace(" L 30.0 40.0", ""))
