"""CONTRIBUTING.md and the lists of the tools that it describes name only what is in the tree."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILT_SITE = {"docs/_build"}  # written by `make docs`, and not part of the repository
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Recipes by their headings, and the largest number of files that following them may touch.
RECIPES = {
    "a method of the linear models": 4,
    "a loss": 5,
    "an accounting event": 4,
    "a sampler": 4,
    "a solver": 5,
    "an estimator": 5,
    "a layer rule": 4,
    "an experiment": 4,
    "a page to the documentation": 6,
    "a section of the report": 5,
}

MUTANTS = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text(encoding="utf-8"))


def house():
    """Return the module that generates parts of the page."""
    spec = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recipe(heading):
    """Return the text of one recipe."""
    match = re.search(rf"^### Adding {heading}\n(.*?)(?=^#|\Z)", PAGE, re.S | re.M)
    assert match, f"CONTRIBUTING.md has no recipe 'Adding {heading}'"
    return match[1]


def paths(text):
    """Return the paths of the repository that a text names in backquotes; ``<name>`` stands for anything."""
    named = re.findall(r"`((?:src|tests|docs|experiments|benchmarks|examples|tools)/[\w./<>-]*)`", text)
    return [re.sub(r"<\w+>", "*", path) for path in named]


def test_the_map_and_the_table_of_layers_are_those_of_the_tree():
    assert house().rendered(PAGE) == PAGE, "Run: python tools/house.py"


@pytest.mark.parametrize("path", sorted(set(paths(PAGE)) - BUILT_SITE))
def test_a_path_that_is_named_exists(path):
    assert any(ROOT.glob(path.rstrip("/"))), path


@pytest.mark.parametrize(("heading", "most"), RECIPES.items())
def test_a_recipe_names_few_places_to_touch(heading, most):
    assert 2 <= len(set(paths(recipe(heading)))) <= most


@pytest.mark.parametrize("mutant", MUTANTS["survived_once"], ids=lambda each: f"{each['file']}: {each['before']}")
def test_a_mutant_that_survived_once_can_still_be_made(mutant):
    """``make mutants`` stops at an entry whose line has changed or occurs twice."""
    text = (ROOT / "src" / "privet" / mutant["file"]).read_text(encoding="utf-8")
    assert text.count(mutant["before"]) == 1
    assert mutant["after"] != mutant["before"]
    compile(text.replace(mutant["before"], mutant["after"]), mutant["file"], "exec")


@pytest.mark.parametrize("mutant", MUTANTS["harmless"], ids=lambda each: f"{each['file']}: {each['after']}")
def test_a_mutant_that_is_called_harmless_has_a_reason(mutant):
    assert mutant["kind"] in {"equivalent", "harmless"}
    assert mutant["why"].endswith(".")
