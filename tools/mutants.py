"""Mutation testing: small bugs are put into the core one at a time, and the tests must notice each of them.

    python tools/mutants.py                     # 150 mutants of the core, into docs/results/mutants.json
    python tools/mutants.py --seed 7 --number 30 --only privacy/analyses
    python tools/mutants.py --known             # only the mutants that survived once and must not survive again

Every mutant runs in a copy of the tree, in a process that is forked after the heavy imports. The tests that enter the
mutated function run in the order of their duration until one fails, and a failure counts only if the same test passes
without the mutant. Which tests enter a function is recorded once and kept in ``.mutants``, as are the verdicts, so
that an interrupted run continues. ``tools/mutants.toml`` lists the survivors that are equivalent or harmless, and why.

mutmut was considered. It skips decorated functions (properties, cached functions) and the constants of modules and
classes, and it draws no sample. cosmic-ray has neither a sample nor a choice of tests per file.
"""

import argparse
import collections
import hashlib
import importlib
import json
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from mutant_runs import ROOT, Copy, Tests
from mutations import Mutant, function_at, mutants_of

KEPT = ROOT / ".mutants"
KNOWN = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text(encoding="utf-8"))
RESULT = ROOT / "docs" / "results" / "mutants.json"
PARTS = {  # the core, which carries the guarantees
    "privacy": ["privacy"],
    "plans": ["plans"],
    "solvers": ["solvers"],
    "clipping": ["deep/clipping", "deep/batch_sums.py", "deep/gradient_estimators.py", "deep/training.py"],
    "server": ["federated/server.py", "federated/updates.py"],
    "protocol": ["multiparty/protocol"],
}
TESTS = [
    "privacy",
    "plans",
    "solvers",
    "objectives",
    "deep",
    "federated",
    "multiparty",
    "linear",
    "commands/test_party.py",
    "replay",
    "audit",
]
ELSEWHERE = {"multiparty": "tests/commands/test_party.py::"}  # tests of a part that runs in other processes
HEAVY = ("scipy.stats", "pandas", "sklearn.linear_model", "torch", "dp_accounting", "hypothesis", "mpmath", "typer")
SECONDS = 40.0  # Most that the tests of one mutant take together when nothing is mutated.
GOAL = 0.95


def hashed(*parts: object) -> str:
    """Return a hash of the texts of some objects."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def recorded(copy: Copy, parts: list[str], again: bool) -> Tests:
    """Return all tests; those of files that have changed since the last time are recorded anew."""
    (KEPT / "tests").mkdir(parents=True, exist_ok=True)
    tests: Tests = {}
    paths = [copy.folder / "tests" / part for part in parts]
    for file in [file for path in paths for file in sorted(path.rglob("test_*.py")) or [path]]:
        name = file.relative_to(copy.folder).as_posix()
        kept = KEPT / "tests" / f"{hashed(name, file.read_text(encoding='utf-8'))}.json"
        if again or not kept.exists():
            print(f"recording {name}", flush=True)
            kept.write_text(json.dumps(copy.record(name)))
        found = json.loads(kept.read_text())
        for test, (seconds, entered) in found["tests"].items():
            tests[test] = seconds, frozenset(found["functions"][index] for index in entered)
    return tests


def chosen(mutant: Mutant, tests: Tests) -> Tests:
    """Return the tests of a mutant in the order in which they run: first quick ones, and those of its file and part."""
    part, stem = mutant.file.split("/")[0], Path(mutant.file).stem

    def is_of_part(test: str) -> bool:
        return test.startswith(f"tests/{part}/")

    def is_own(test: str) -> bool:
        return is_of_part(test) and f"/test_{stem}.py::" in test

    def is_elsewhere(test: str) -> bool:
        return part in ELSEWHERE and test.startswith(ELSEWHERE[part])

    def enters(entered: frozenset[str]) -> bool:
        if mutant.function.endswith("()"):
            return f"{mutant.file}::{mutant.function}" in entered
        return any(name.startswith(f"{mutant.file}::") for name in entered)

    # A function that only other processes enter is not seen to be entered.
    found = [test for test, (_, entered) in tests.items() if enters(entered) or is_own(test) or is_elsewhere(test)]
    found = found or [test for test in tests if is_of_part(test)]
    # Thousands of quick tests draw noise. They must not take all the time from the few that look at the draws.
    found.sort(key=lambda test: tests[test][0] * (0.2 if is_own(test) else 0.4 if is_of_part(test) else 1.0))
    result: Tests = {}
    total = 0.0
    for test in found:
        total += tests[test][0]
        if total > SECONDS:
            break
        result[test] = tests[test]
    return result


def sampled(seed: int, number: int, only: list[str]) -> list[Mutant]:
    """Return a sample of all mutants of the core; changes of other lines leave it nearly as it was."""
    found: dict[str, Mutant] = {}
    for path in (path for paths in PARTS.values() for path in paths):
        source = ROOT / "src" / "privet"
        for file in sorted((source / path).rglob("*.py")) or [source / path]:
            name = file.relative_to(source).as_posix()
            times: collections.Counter[tuple[str, str, str]] = collections.Counter()
            for mutant in (
                mutants_of(name, file.read_text(encoding="utf-8")) if name.startswith(tuple(only or [""])) else ()
            ):
                times[mutant.key] += 1
                found[hashed(seed, *mutant.key, times[mutant.key])] = mutant
    return [mutant for _, mutant in sorted(found.items())][:number]


def survived_once() -> list[Mutant]:
    """Return the mutants that survived before there was a test for them."""
    mutants = []
    for entry in KNOWN["survived_once"]:
        text = (ROOT / "src" / "privet" / entry["file"]).read_text(encoding="utf-8")
        if text.count(entry["before"]) != 1:
            raise SystemExit(f"{entry['file']} has {text.count(entry['before'])} places with {entry['before']!r}.")
        line = text[: text.index(entry["before"])].count("\n") + 1
        changed = text.replace(entry["before"], entry["after"])
        mutants.append(Mutant(entry["file"], line, function_at(text, line), entry["before"], entry["after"], changed))
    return mutants


def kept_or_new(copy: Copy, mutant: Mutant, tests: Tests) -> dict[str, Any]:
    """Return the verdict on a mutant, an old one if it still holds.

    That a test notices the mutant holds while its file is unchanged, and that none does while all are unchanged.
    """

    def state(names: list[str]) -> str:
        return hashed(names, [(copy.folder / name.split("::")[0]).read_text(encoding="utf-8") for name in names])

    kept = KEPT / "verdicts" / f"{hashed(mutant.file, mutant.text)}.json"
    if kept.exists():
        verdict: dict[str, Any] = json.loads(kept.read_text())
        by = [verdict["by"]] if verdict["by"] else sorted(tests) if verdict["by"] is None else []
        if all((copy.folder / name.split("::")[0]).exists() for name in by) and verdict["state"] == state(by):
            return verdict
    verdict = copy.verdict(mutant, tests)
    verdict["state"] = state([verdict["by"]] if verdict["by"] else sorted(tests) if verdict["by"] is None else [])
    kept.write_text(json.dumps(verdict))
    return verdict


def run(mutants: list[Mutant], parts: list[str], again: bool) -> list[tuple[Mutant, dict[str, Any]]]:
    """Return the mutants with their verdicts, and tell each as soon as it is known."""
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder).resolve())
        tests = recorded(copy, parts, again)
        (KEPT / "verdicts").mkdir(exist_ok=True)
        for number, mutant in enumerate(mutants, 1):
            verdict = kept_or_new(copy, mutant, chosen(mutant, tests))
            verdicts.append((mutant, verdict))
            told = "SURVIVED" if verdict["by"] is None else f"noticed by {verdict['by'] or verdict['why']}"
            print(f"{number}/{len(mutants)} {mutant.file}:{mutant.line}: {told} ({verdict['seconds']} s)")
            print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)
    return verdicts


def summary(seed: int, parts: list[str], verdicts: list[tuple[Mutant, dict[str, Any]]]) -> dict[str, Any]:
    """Return what docs/results/mutants.json holds."""
    reasons = {(each["file"], each["before"], each["after"]): each for each in KNOWN["harmless"]}
    counts = {part: collections.Counter[str]() for part in PARTS}
    survivors = []
    for mutant, verdict in verdicts:
        part = next(part for part, paths in PARTS.items() if mutant.file.startswith(tuple(paths)))
        reason = reasons.get(mutant.key, {})
        kind = "noticed" if verdict["by"] is not None else reason.get("kind", "survived")
        counts[part][kind] += 1
        if verdict["by"] is None:
            place = {"file": mutant.file, "line": mutant.line, "before": mutant.before, "after": mutant.after}
            survivors.append(place | {"kind": kind, "why": reason.get("why", "")})
    total = sum(counts.values(), collections.Counter[str]())
    relevant = total["noticed"] + total["survived"]
    return {
        "seed": seed,
        "mutants": len(verdicts),
        "tests": parts,
        "noticed": round(total["noticed"] / max(relevant, 1), 4),
        "counts": {"all": dict(total)} | {part: dict(count) for part, count in counts.items()},
        "survivors": survivors,
    }


def main() -> None:
    """Run a sample; end with exit code 1 if the tests notice too few mutants, or one that was noticed before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=2030, help="of the sample")
    parser.add_argument("--number", type=int, default=150, help="of mutants")
    parser.add_argument("--only", nargs="+", default=[], help="files of the core whose path below src/privet begins so")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files of tests, or folders, that may notice")
    parser.add_argument("--known", action="store_true", help="only the mutants that survived once")
    parser.add_argument("--again", action="store_true", help="record anew which tests enter which functions")
    options = parser.parse_args()
    for name in HEAVY:
        importlib.import_module(name)
    old = survived_once()
    if options.known:
        sys.exit(any(verdict["by"] is None for _, verdict in run(old, options.tests, options.again)))
    verdicts = run(sampled(options.seed, options.number, options.only), options.tests, options.again)
    result = summary(options.seed, options.tests, verdicts)
    print(json.dumps(result["counts"], indent=1))
    if not options.only:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        sys.exit(
            result["noticed"] < GOAL or any(verdict["by"] is None for _, verdict in run(old, options.tests, False))
        )


if __name__ == "__main__":
    main()
