"""Results of long audits that are kept between runs, as long as the code that they depend on stays the same."""

import hashlib
import json
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from privet.audit import Distinguished

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "src" / "privet"
# What the scenarios of a file use besides the parts that all scenarios use.
PARTS = {
    "scenarios": (),
    "sparse_scenarios": (),
    "deep_scenarios": ("networks", "deep"),
    "federated_scenarios": ("networks", "deep", "federated"),
    "multiparty_scenarios": ("multiparty",),
}
SHARED = ("audit", "denoise", "drafts", "linear", "objectives", "plans", "preprocessing", "privacy", "solvers")

Result = tuple[Distinguished, list[str]]


class Kept:
    """Results by scenario and seed, in a file that is written after each audit. Without a file, nothing is kept."""

    def __init__(self, path: Path | None, times: int, confidence: float) -> None:
        self._path, self._setting = path, [times, round(confidence, 12)]
        self._results: dict[str, Any] = json.loads(path.read_text("utf-8")) if path and path.exists() else {}
        self._started = time.monotonic()

    def get(self, scenario: Any, seed: int) -> Result | None:
        """Return the result of an earlier run of the same code, or None."""
        entry = self._results.get(f"{scenario.name}, seed {seed}")
        if entry is None or entry["key"] != self._key(scenario):
            return None
        return Distinguished(**entry["audit"]), entry["violations"]

    def put(self, scenario: Any, seed: int, audit: Distinguished, violations: list[str]) -> Result:
        """Keep a result, report progress, and return the result."""
        if self._path is not None:
            entry = {"key": self._key(scenario), "audit": asdict(audit), "violations": violations}
            self._results[f"{scenario.name}, seed {seed}"] = entry
            self._path.write_text(json.dumps(self._results), encoding="utf-8")
            minutes = (time.monotonic() - self._started) / 60
            print(
                f"{minutes:6.1f} min  {scenario.name}, seed {seed}: claimed {audit.claimed:.4g}, "
                f"measured {audit.lower_bound:.4g}{' VIOLATION' if violations else ''}",
                flush=True,
            )
        return audit, violations

    def _key(self, scenario: Any) -> str:
        mechanism = getattr(scenario.mechanism, "func", scenario.mechanism)  # a partial function has no module
        return json.dumps([*self._setting, scenario.runs, _digest(mechanism.__module__)])


@cache
def _digest(module: str) -> str:
    """Return a digest of all code that the scenarios of a file depend on."""
    files = [HERE / "scenarios.py", HERE / f"{module}.py"]
    for part in (*SHARED, *PARTS[module]):
        files += sorted((PACKAGE / part).rglob("*.py"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
