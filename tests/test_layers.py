"""Imports point down the layers, only one file draws randomness, and only plans request noise from it."""

import ast
import functools
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import privet

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path(privet.__file__).parent
FILES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}

# Each part of the package, and the parts that it may import besides itself.
MAY_IMPORT: dict[str, set[str]] = {
    part: set(below)
    for part, below in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["privet"]["layers"].items()
}

HEAVY = {"torch", "flwr", "mpyc"}
BUILT_ON_HEAVY = {"networks", "deep", "multiparty", "federated"}
RANDOM = {"random", "secrets", "randomgen", "numpy.random", "torch.random", "scipy.stats", "sklearn.utils.random"}
TORCH_DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "manual_seed"}
TORCH_DRAWS |= {"normal_", "uniform_", "exponential_", "bernoulli_", "rand_like", "randn_like", "randint_like"}

# What a NoiseSource does with noise, and the plans that may ask for it: each accounts for every number it releases.
NOISE = {
    "add_gaussian",
    "add_k_norm",
    "add_lattice",
    "top",
    "top_point",
    "real_gaussian",
    "real_k_norm",
    "lattice",
    "normals",
}
DOORS = {
    "plans/adaptive.py": {"add_gaussian", "top"},
    "plans/aggregation.py": {"add_lattice"},
    "plans/gradient.py": {"add_gaussian", "normals"},
    "plans/objective.py": {"add_gaussian", "add_k_norm", "real_gaussian", "real_k_norm"},
    "plans/output.py": {"add_gaussian", "add_k_norm"},
    "preprocessing/quantiles.py": {"top_point"},
}
DRAWING = {"_generator", "_live", "_normals"}  # of a NoiseSource, from which raw noise could be drawn


def part_of(name: str) -> str:
    """Return the part of the package that a file belongs to: a folder, or the stem of a file at the top."""
    first, _, rest = name.partition("/")
    return first if rest else first.removesuffix(".py")


def imports(tree: ast.Module) -> set[str]:
    """Return the full names of everything that a module imports, including in functions and under TYPE_CHECKING."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write imports in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in (
            "import_module",
            "__import__",
        ):
            found |= {constant.value for constant in ast.walk(node) if isinstance(constant, ast.Constant)}
    return found


def at_import_time(tree: ast.Module) -> set[str]:
    """Return the imports that run together with the module: those outside functions and TYPE_CHECKING blocks."""
    kept, waiting = [], list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        kept.append(node)
        waiting += ast.iter_child_nodes(node)
    shallow = [node for node in kept if isinstance(node, ast.Import | ast.ImportFrom)]
    return imports(ast.Module(body=shallow, type_ignores=[]))


# The only import of a layer above: ``report`` is a method of results, and what it calls builds on all results.
UPWARDS = {"showing.py": {"report"}}


def forbidden(name: str, tree: ast.Module) -> set[str]:
    """Return the imports of a file that point upwards or sideways."""
    part = part_of(name)
    allowed = MAY_IMPORT[part] | {part, "__version__"}
    inner = {found.split(".")[1] for found in imports(tree) if found.startswith("privet.")}
    return inner - allowed - UPWARDS.get(name, set())


def draws(tree: ast.Module) -> set[str]:
    """Return the uses of a random generator: imported modules, np.random and torch's functions."""
    found = {module for module in RANDOM for name in imports(tree) if f"{name}.".startswith(f"{module}.")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text.startswith(("np.random", "numpy.random", "os.urandom", "os.getrandom")):
                found.add(text)
            if text.startswith("torch.") and node.attr in TORCH_DRAWS:
                found.add(text)
            if node.attr in TORCH_DRAWS and node.attr.endswith("_"):
                found.add(text)
    return found


def noise_requests(tree: ast.Module) -> set[str]:
    """Return the requests for noise: attributes and strings with the name of such a method of a NoiseSource.

    Attributes of modules do not count.
    """
    modules = {
        alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in modules:
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found & NOISE


def noise_internals(tree: ast.Module) -> set[str]:
    """Return the uses of what lies behind a NoiseSource, where noise is drawn."""
    within = "privet.privacy.noise."
    public = {f"{within}source.NoiseSource", f"{within}orders.OrderSource"}
    public |= {f"{within}release.{name}" for name in ("in_words", "grid_step", "checked_grid")}
    public |= {f"{within}watch.{name}" for name in ("Claim", "Request", "Source", "Tilted", "is_watching", "watching")}
    laws = tuple(f"{within}{name}." for name in ("law", "lattice", "laplace", "k_norm"))  # They hold no randomness.
    found = {name for name in imports(tree) if name.startswith(within) and not name.startswith(laws)}
    found -= public
    return found | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in DRAWING}


@functools.cache
def parse(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


def violations(check: Callable[[str, ast.Module], set[str]], exempt: Iterable[str] = ()) -> dict[str, set[str]]:
    """Return the violations that a check finds in the files of the package, by file."""
    found = {name: check(name, parse(name)) for name in sorted(FILES.keys() - set(exempt))}
    return {name: what for name, what in found.items() if what}


def test_every_part_of_the_package_has_a_layer():
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    parts = {part_of(name) for name in FILES} | folders
    assert parts <= set(MAY_IMPORT), f"Give {sorted(parts - set(MAY_IMPORT))} a layer in [tool.privet.layers]."


def test_every_layer_belongs_to_a_part_of_the_package():
    assert set(MAY_IMPORT) <= {part_of(name) for name in FILES}


def test_no_file_is_longer_than_350_lines():
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in FILES.items()}
    assert not {name: length for name, length in lengths.items() if length > 350}


def test_layers_have_no_cycles():
    done: set[str] = set()
    while ready := {part for part, below in MAY_IMPORT.items() if part not in done and below <= done}:
        done |= ready
    assert done == set(MAY_IMPORT)


def test_imports_point_down():
    assert not violations(forbidden)


def test_the_only_import_of_a_layer_above_is_made_when_a_method_is_called():
    for name, above in UPWARDS.items():
        found = {each.split(".")[1] for each in imports(parse(name)) if each.startswith("privet.")}
        assert found == above
        assert not {each for each in at_import_time(parse(name)) if each.startswith("privet.")}


def test_only_the_noise_source_draws_randomness():
    found = violations(lambda name, tree: draws(tree), exempt={"privacy/noise/source.py"})
    seeding = {"random", "np.random", "np.random.get_state", "np.random.seed", "np.random.set_state"}
    assert found == {  # Models and datasets draw from these, not privet.
        "global_generators.py": seeding,
        "deep/datasets.py": {"torch.Generator().manual_seed"},
        "deep/randomness.py": {"torch.manual_seed"},
    }


def test_only_plans_request_noise_and_only_the_noise_that_they_account_for():
    found = {name: noise_requests(parse(name)) for name in FILES if not name.startswith("privacy/noise/")}
    assert {name: requests for name, requests in found.items() if requests} == DOORS


def test_nobody_reaches_behind_the_noise_source():
    inside = {name for name in FILES if name.startswith("privacy/noise/")}
    found = violations(lambda name, tree: noise_internals(tree), exempt=inside)
    assert found == {"plans/prepared.py": {"privet.privacy.noise.normals.Normals"}}  # draws made in advance


def test_dp_accounting_is_used_only_by_the_two_analyses_built_on_it():
    built_on_it = {"privacy/analyses/renyi.py", "privacy/analyses/loss_distribution.py"}
    assert not violations(
        lambda name, tree: {found for found in imports(tree) if found.split(".")[0] == "dp_accounting"}, built_on_it
    )


def test_heavy_libraries_are_imported_only_by_the_parts_built_on_them():
    """No other part loads those libraries, or the parts built on them, before they are used."""

    def loads(name: str, tree: ast.Module) -> set[str]:
        if part_of(name) in BUILT_ON_HEAVY:
            return set()
        found = at_import_time(tree)
        heavy = {each for each in found if each.split(".")[0] in HEAVY}
        if part_of(name) == "commands":  # each command is imported only when it runs
            return heavy
        return heavy | {each for each in found if each.startswith(tuple(f"privet.{part}" for part in BUILT_ON_HEAVY))}

    assert not violations(loads)


@pytest.mark.parametrize(
    ("name", "code", "caught"),
    [
        ("privacy/x.py", "def f():\n    from privet.plans import Poisson", {"plans"}),
        ("privacy/x.py", "import privet.solvers.base.interface", {"solvers"}),
        ("denoise.py", "from privet import linear", {"linear"}),
        ("objectives/x.py", "from privet.privacy import Budget", {"privacy"}),
        ("linear/x.py", "def f():\n    from privet.report import Report", {"report"}),
        ("showing.py", "from privet.linear import TableModel", {"linear"}),
        ("objectives/x.py", "from privet.progress import progress_bar", {"progress"}),
        ("linear/x.py", "from privet.deep import make_private", {"deep"}),
        ("solvers/x.py", "from importlib import import_module\nimport_module('privet.linear')", {"linear"}),
        ("checks.py", "from privet.privacy import Budget", {"privacy"}),
    ],
)
def test_an_upward_import_is_caught(name, code, caught):
    assert forbidden(name, ast.parse(code)) == caught


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np\nnp.random.default_rng()",
        "def f():\n    from numpy.random import default_rng",
        "from numpy import random",
        "import random",
        "import secrets",
        "from randomgen import ChaCha",
        "import os\nos.urandom(3)",
        "import torch\ntorch.randn(3)",
        "def f(t):\n    t.normal_()",
        "from scipy.stats import norm",
    ],
)
def test_code_that_draws_is_caught(code):
    assert draws(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "def f(source, total):\n    return source.add_gaussian(total, 1.0)",
        "def f(run, total):\n    add = run.source.add_k_norm\n    return add(total, 1.0)",
        "def f(run, total):\n    return getattr(run.source, 'add_gaussian')(total, 1.0)",
        "def f(source, total):\n    return total + source.real_gaussian(total.shape, 1.0)[0]",
        "def f(source, total):\n    return total + source.normals(3, 1.0).values",
        "def f(source, total):\n    return total + source.lattice(3, law)",
        "from privet.privacy import NoiseSource\nadd = NoiseSource.add_gaussian",
        "def f(source, scores):\n    return source.top(scores, 1.0)",
    ],
)
def test_a_request_for_noise_is_caught(code):
    assert noise_requests(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "def f(source, total):\n    return total + source._live().standard_normal(3)",
        "def f(source):\n    return source._normals().take(3).values",
        "from privet.privacy.noise.normals import NormalStream",
        "from privet.privacy.noise import release\nrelease.add_gaussian",
        "from privet.privacy.noise.release import add_gaussian",
        "from privet.privacy.noise.bits import Keystream",
        "import privet.privacy.noise.choices",
    ],
)
def test_reaching_behind_the_noise_source_is_caught(code):
    assert noise_internals(ast.parse(code))


def test_a_plan_that_only_forms_sums_requests_no_noise():
    tree = ast.parse(
        "from privet.privacy.noise.lattice import LatticeLaw\n"
        "from privet.privacy.noise.source import NoiseSource\n"
        "def f(step, total, law: LatticeLaw):\n    return step.noisy(total)"
    )
    assert not noise_requests(tree)
    assert not noise_internals(tree)


@pytest.mark.parametrize("module", ["privet", "privet.privacy", "privet.plans"])
def test_importing_the_core_stays_light(module):
    code = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "privet" in loaded
    assert not loaded & {"torch", "flwr", "mpyc", "pandas", "dp_accounting", "sklearn"}
