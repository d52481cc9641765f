"""The check of the built site finds broken links, anchors and pictures, and what is loaded from other sites."""

import importlib.util
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "site_links.py"
SOUND = '<h1 id="top">a</h1><a href="sub/b.html#there">b</a><a href="#top">c</a><a href="https://x.org/y">d</a>'


def faults(folder):
    spec = importlib.util.spec_from_file_location("site_links", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.faults(folder)


def site(folder, page):
    (folder / "sub").mkdir()
    (folder / "sub" / "b.html").write_text('<p id="there"><img src="../my%20picture.svg"></p>', encoding="utf-8")
    (folder / "my picture.svg").write_text("<svg/>", encoding="utf-8")
    (folder / "a.html").write_text(page, encoding="utf-8")


def test_a_sound_site_has_no_faults(tmp_path):
    site(tmp_path, SOUND)
    assert faults(tmp_path) == []


def test_each_kind_of_fault_is_found(tmp_path):
    site(tmp_path, SOUND + '<a href="c.html">e</a><a href="sub/b.html#here">f</a><img src="https://x.org/p.png">')
    found = faults(tmp_path)
    assert len(found) == 3
    assert "a.html loads https://x.org/p.png from another site." in found
    assert "a.html links to c.html, which does not exist." in found
    assert "a.html links to sub/b.html#here, and that page has no such anchor." in found


def test_a_folder_without_pages_is_not_taken_for_a_sound_site(tmp_path):
    done = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "make docs" in done.stderr
