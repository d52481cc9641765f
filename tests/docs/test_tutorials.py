"""The outputs of the tutorials belong to their code, contain nothing of the machine, and are what the text says."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def loaded():
    """Return the module that runs the tutorials."""
    spec = importlib.util.spec_from_file_location("tutorials", ROOT / "tools" / "tutorials.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = loaded()
PAGES = TOOL.pages()
CODE = "# A page\n\nText.\n\n```python\nprint(6 * 7)\n```\n\nMore.\n"
PICTURE = '<svg xmlns="http://www.w3.org/2000/svg"><!-- a --></svg>'


def page(path):
    return path.read_text(encoding="utf-8")


def test_there_are_six_tutorials_and_the_index_links_to_each():
    assert len(PAGES) == 6
    index = page(TOOL.FOLDER / "index.md")
    assert all(f"]({path.name})" in index and f"\n{path.stem}\n" in index for path in PAGES)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_outputs_belong_to_the_code_and_contain_no_error_path_or_time(path):
    assert list(TOOL.faults(path)) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_tutorial_ends_with_what_was_promised_and_next_steps(path):
    sections = re.findall(r"^## (.*)$", TOOL.without_outputs(page(path)), re.M)
    assert sections[-2:] == ["What was promised, and what was not", "Next steps"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_an_accuracy_stands_beside_the_larger_class_and_the_training_without_privacy(path):
    text = page(path)
    if "accuracy on" in text:
        assert re.search(r"\b(more|most) frequent (class|digit)", text)
        assert re.search(r"noise_multiplier=0\b", text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_lines_of_code_fit_into_the_column_of_the_site(path):
    lines = [line for cell in TOOL.CELL.finditer(page(path)) for line in cell["code"].splitlines()]
    assert [line for line in lines if len(line) > 84] == []


def test_pictures_are_small_and_all_are_shown():
    files = {f"outputs/{file.name}": file.stat().st_size for file in (TOOL.FOLDER / "outputs").iterdir()}
    assert max(files.values()) < 100_000
    assert sum(files.values()) < 3_000_000
    assert files.keys() == {name for path in PAGES for _, name in TOOL.pictures(page(path))}


def test_the_planted_bugs_of_the_audit_tutorial_are_caught(capsys, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    text = TOOL.without_outputs(page(TOOL.FOLDER / "audit.md"))
    names: dict[str, object] = {}
    for cell in TOOL.CELL.finditer(text):
        exec(compile(cell["code"], "audit.md", "exec"), names)
    pyplot.close("all")
    verdicts = re.findall(r"^(?:\w+: )?(consistent|VIOLATION)", capsys.readouterr().out, re.M)
    assert verdicts == ["consistent", "VIOLATION", "consistent", "VIOLATION", "VIOLATION", "consistent"]


# ------------------------------------------------------------------------------------------- the tool notices faults


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return a function that writes a page as if it had been executed with the given output."""
    monkeypatch.setattr(TOOL, "FOLDER", tmp_path)
    (tmp_path / "outputs").mkdir()

    def make(output, *, picture=PICTURE):
        (tmp_path / "outputs" / "page_1.svg").write_text(picture, encoding="utf-8")
        shown = f'```\n\n<!-- output -->\n<div class="output">\n\n{output}\n\n</div>\n<!-- end of output -->\n\nMore'
        text = CODE.replace("```\n\nMore", shown)
        found = TOOL.digests(text)
        path = tmp_path / "page.md"
        path.write_text(f"{text}\n<!-- executed: code {found['code']}, outputs {found['outputs']} -->\n")
        return path

    return make


def test_a_sound_page_has_no_faults_and_its_outputs_can_be_taken_out(made):
    path = made("```text\n42\n```\n\n![What is seen](outputs/page_1.svg)")
    assert list(TOOL.faults(path)) == []
    assert TOOL.without_outputs(page(path)) == CODE


@pytest.mark.parametrize(
    ("output", "fault"),
    [
        ("```text\nTraceback (most recent call last)\n```", "an error"),
        ("```text\nValueError: no\n```", "an error"),
        ("```text\n/tmp/run/model.json\n```", "an absolute path"),
        ("```text\nwritten to /home/somebody/model.json\n```", "an absolute path"),
        (r"C:\Users\somebody", "an absolute path"),
        ("```text\n2026-11-16T10:20\n```", "a time stamp"),
        ("```text\nat 10:20:30\n```", "a time stamp"),
        ("```text\n\x1b[1mbold\x1b[0m\n```", "a colour code"),
        ("![](outputs/page_1.svg)", "without a text alternative"),
        ("![What is seen](outputs/page_2.svg)", "does not exist"),
    ],
)
def test_a_fault_of_an_output_is_found(made, output, fault):
    (found,) = TOOL.faults(made(output))
    assert fault in found


def test_a_time_stamp_in_a_picture_is_found(made):
    (found,) = TOOL.faults(
        made("![What is seen](outputs/page_1.svg)", picture=PICTURE.replace("<!-- a", "<!-- 2026-11-16T10:20:30"))
    )
    assert "a time stamp" in found


def test_a_page_whose_code_changed_since_it_ran_is_found(made):
    path = made("```text\n42\n```")
    path.write_text(page(path).replace("6 * 7", "6 * 8"))
    (found,) = TOOL.faults(path)
    assert "has changed since it was executed" in found


def test_an_output_that_was_edited_is_found(made, tmp_path):
    path = made("```text\n42\n```\n\n![What is seen](outputs/page_1.svg)")
    sound = page(path)
    path.write_text(sound.replace("42", "43"))
    assert "have been edited" in next(TOOL.faults(path))
    path.write_text(sound)
    (tmp_path / "outputs" / "page_1.svg").write_text(PICTURE.replace("<!-- a", "<!-- b"), encoding="utf-8")
    assert "have been edited" in next(TOOL.faults(path))


def test_text_around_the_cells_may_change_without_a_new_run(made):
    path = made("```text\n42\n```")
    path.write_text(page(path).replace("Text.", "Better text."))
    assert list(TOOL.faults(path)) == []


def test_a_page_that_never_ran_is_found(tmp_path):
    (tmp_path / "page.md").write_text(CODE)
    assert "has not been executed" in next(TOOL.faults(tmp_path / "page.md"))


def test_the_tool_runs_python_and_shell_draws_and_writes_outputs_that_have_no_faults(tmp_path, monkeypatch):
    pytest.importorskip("nbclient", reason="tutorials run in a notebook: install the extra docs")
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: install the extra experiments")
    monkeypatch.setattr(TOOL, "FOLDER", tmp_path)
    (tmp_path / "outputs").mkdir()
    path = tmp_path / "page.md"
    path.write_text(
        CODE
        + '\n```python alt="A line"\nimport matplotlib.pyplot as plt\n\nplt.plot([1, 2])\nplt.show()\n```\n'
        + "\n```sh\nls\necho $PWD/here\n```\n"
    )
    first = TOOL.written(path, TOOL.executed(page(path)))
    path.write_text(first)
    assert list(TOOL.faults(path)) == []
    assert TOOL.pictures(first) == [("A line", "outputs/page_1.svg")]
    assert [re.findall(r"```text\n(.*?)\n```", shown) for shown in TOOL.outputs(first)][:2] == [["42"], []]
    assert "\nhere\n" in TOOL.outputs(first)[-1]  # $PWD/here, without the temporary folder
