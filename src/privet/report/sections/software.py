"""Which software made the model and this report."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

TITLE = "Software"
_PACKAGES = ("numpy", "scipy", "scikit-learn", "dp-accounting", "randomgen", "torch", "flwr", "mpyc")


def values(report: Any) -> dict[str, Any]:
    """Return the versions of what is installed, and what is known about the file."""
    return {"rows": versions(report), "digest": report.digest}


def versions(report: Any) -> list[tuple[str, str]]:
    """Return names and versions: of the privet that made the model if it is known, and of the installed packages."""
    from privet import __version__

    rows = [("Trained by privet", report.version)] if report.version else []
    rows += [("Report by privet", __version__), ("Python", platform.python_version())]
    needed = {"neural network": ("torch",), "federated model": ("torch",)}.get(report.facts.kind, ())
    if any(name == "Study" for name, _ in report.facts.settings):
        needed = (*needed, "mpyc")
    for name in _PACKAGES:
        if name in {"torch", "flwr", "mpyc"} and name not in needed:
            continue
        try:
            rows.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return rows
