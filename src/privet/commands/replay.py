"""``privet audit --replay``: train on neighbouring datasets with equal samples and releases, and compare the rest."""

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.table import Table

from privet.audit.estimators import replay_estimator
from privet.audit.pairs import Pair, neighbours
from privet.commands.json_output import write_result
from privet.linear.table_model import TableEstimator
from privet.privacy import Adjacency
from privet.privacy.guarantees.guarantee import check_composable
from privet.progress import progress_bar
from privet.replay import Replayed, replay
from privet.replay.leftovers import Leftovers

_MODULE = "replayed_script"
_MOST_LINES = 8  # of problems that are printed


def run_estimator(estimator: TableEstimator, *, rows: int, columns: int, output: Path | None, console: Console) -> bool:
    """Replay the fits of an estimator on neighbouring tables, and return whether its guarantee is refuted."""
    with progress_bar("replays", is_shown=console.is_terminal, console=console) as progress:
        found = replay_estimator(estimator, n=rows, d=columns, progress=progress)
    return _report(found, output, console)


def run_script(path: Path, *, output: Path | None, console: Console) -> bool:
    """Replay the training of a script on neighbouring datasets, and return whether its guarantee is refuted.

    The script defines ``train(data)``, which returns everything that leaves the process, and ``data``. It may also
    define ``neighbour``, or ``neighbours`` as a list or a dictionary by name; ``guarantee``, if ``train`` does not
    return it; and ``folder``, into which ``train`` writes. The code under ``if __name__ == "__main__"`` does not run.
    """
    with _imported(path) as script:
        for name in ("train", "data"):
            if not hasattr(script, name):
                raise ValueError(
                    f"{path} does not define {name}. A script for --replay defines train(data), which returns the "
                    "trained model and its guarantee, and data."
                )
        options = {"guarantee": getattr(script, "guarantee", None), "folder": getattr(script, "folder", None)}
        pairs = _pairs(script)
        found = {}
        with progress_bar("replays", is_shown=console.is_terminal, console=console) as progress:
            for done, pair in enumerate(pairs, start=1):
                found[pair.name] = replay(script.train, pair.first, pair.second, name=pair.name, **options)
                if progress is not None:
                    progress(done, len(pairs))
    return _report(found, output, console)


@contextmanager
def _imported(path: Path) -> Iterator[ModuleType]:
    """Yield a script as a module. It can import its neighbours in the folder, as a script that is run can."""
    if not path.is_file():
        raise ValueError(f"The script {path} does not exist.")
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python script. --replay needs a file that ends with .py, or --estimator.")
    script = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = script  # for classes of the script that are pickled
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(script)
        yield script
    finally:
        sys.path.remove(str(path.resolve().parent))
        del sys.modules[_MODULE]


def _pairs(script: ModuleType) -> Sequence[Pair]:
    """Return the pairs of datasets of a script. If it has no neighbours of its data, they are made."""
    if hasattr(script, "neighbour"):
        return [Pair(script.data, script.neighbour, "neighbour")]
    if hasattr(script, "neighbours"):
        given = script.neighbours
        named = given if isinstance(given, Mapping) else {f"neighbour {k}": each for k, each in enumerate(given, 1)}
        return [Pair(script.data, each, str(name)) for name, each in named.items()]
    given_claim = getattr(script, "guarantee", None)
    # Which datasets are neighbours depends on the adjacency, and thus on the guarantee.
    claims = [given_claim] if given_claim is not None else Leftovers(script.train(script.data)).guarantees
    if not claims:
        raise ValueError(
            "train(data) returns no guarantee, so it is unknown which datasets are neighbours. Let it return the "
            "guarantee, or the object that has it, or define guarantee or neighbour in the script."
        )
    check_composable(claims)
    adjacency = claims[0].adjacency
    assumed = [each.text for claim in claims for each in claim.assumptions if not each.is_enforced]
    fixed = [text for text in assumed if text.startswith("the number of") and text.endswith("is public")]
    if fixed and adjacency is Adjacency.ADD_OR_REMOVE:
        raise ValueError(
            f"The guarantee assumes that {fixed[0]}, so a dataset with one unit more or fewer is not a neighbour. Pass "
            "a fixed number instead, for instance as public_n, or define neighbour in the script."
        )
    return neighbours(script.data, adjacency, sort=not any("order of" in text for text in assumed))


def _report(found: Mapping[str, Replayed], output: Path | None, console: Console) -> bool:
    """Print and write the outcome of replays, and return whether one of them refutes the guarantee."""
    table = Table()
    for name in ("neighbour", "releases", "moved", "largest move / bound", "cost / guarantee", "verdict"):
        table.add_column(name, justify="left" if name in {"neighbour", "verdict"} else "right")
    refuted = {name: each for name, each in found.items() if each.is_violation}
    for name, each in found.items():
        cost = "" if each.spent is None else f"{each.spent:.4g}"
        verdict = "VIOLATION" if each.is_violation else "consistent"
        table.add_row(name, f"{each.releases:,}", f"{each.moved:,}", f"{each.largest:.6g}", cost, verdict)
    console.print(table)
    names: dict[str, list[str]] = {}
    for name, each in refuted.items():
        for problem in each.problems:
            names.setdefault(problem, []).append(name)
    lines = []
    for problem, where in names.items():
        more = f", and {len(where) - 1} more" if len(where) > 1 else ""
        lines.append(f"VIOLATION: {problem} ({where[0]}{more})")
    if further := len(lines[_MOST_LINES:]):
        lines[_MOST_LINES:] = [f"{further} further problems are listed in the file of --json."]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    ended = {name: each.error for name, each in found.items() if each.error is not None and not each.is_violation}
    if not refuted and not ended:
        console.print(
            f"consistent: over {len(found)} pairs of neighbouring datasets, nothing but the noisy releases depends on "
            "the differing unit, and these move within their bounds.",
            highlight=False,
            soft_wrap=True,
        )
        if not any(each.moved for each in found.values()):
            console.print(
                "No release moved, so these datasets do not show the influence of a unit. Define neighbours that do.",
                highlight=False,
                soft_wrap=True,
            )
    write_result(output, {"replays": {name: each.to_dict() for name, each in found.items()}})
    if ended and not refuted:
        name, error = next(iter(ended.items()))
        raise ValueError(
            f"Both runs end with an error ({name}), so what the training leaves behind is not known. {error}"
        )
    return bool(refuted)
