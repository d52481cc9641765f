"""Mistakes in the options of a command that are refused at once, before any library is loaded or any row is read."""

import os
from collections.abc import Callable, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

from privet import names
from privet.checks import delta_value, positive
from privet.files import check_readable, check_writable


def examples(*lines: str) -> str:
    """Return what the help of a command ends with: examples, each on a line of its own."""
    return "\n\n".join([f"Example{'s' if len(lines) > 1 else ''}:", *lines])


def paragraphs(command: Callable[..., object]) -> str:
    """Return the help of a command from its docstring, with each paragraph in one line, which fits any terminal."""
    return "\n\n".join(" ".join(each.split()) for each in cleandoc(command.__doc__ or "").split("\n\n"))


def check_model(model: str) -> None:
    """Raise ValueError unless ``--model`` has one of its values."""
    if model not in names.BY_TARGET and model not in names.MODELS:
        raise ValueError(f"--model must be one of {', '.join([*names.BY_TARGET, *names.MODELS])}, got {model!r}.")


def check_settings(settings: Mapping[str, Any], model: str | None = None) -> None:
    """Raise ValueError for a setting that is out of its range, or that ``--model`` does not have.

    A setting that is None was not given. Settings without an entry in ``privet.names.PARAMETERS`` are not checked.
    """
    names.given_noise(settings)
    for name, value in settings.items():
        option, users = f"--{name.replace('_', '-')}", names.USERS.get(name)
        if value is None:
            continue
        if name == "method":
            names.method_value("method", value)
        if name in names.PARAMETERS:
            names.PARAMETERS[name](name, value)
        is_given = value != _DEFAULTS.get(name)
        if is_given and users is not None and model in names.MODELS and model not in users:
            raise ValueError(
                f"{option} is not a setting of --model {model}. Leave it out, or use {' or '.join(users)}."
            )


_DEFAULTS = {"smoothing": 0.0}


def check_files(*, read: Mapping[str, Path | None], written: Path | None = None) -> None:
    """Raise ValueError if a file cannot be read or written, or if a file that is read would be replaced.

    The keys of ``read`` say what the files are.
    """
    for what, path in read.items():
        if path is not None:
            check_readable(path, what)
            _check_different(path, what, written)
    if written is not None:
        check_writable(written)


def check_filled(*tables: Path | None) -> None:
    """Raise ValueError if a table, or another description of columns, is an empty file."""
    for path in tables:
        if path is not None and path.is_file() and not path.stat().st_size:
            raise ValueError(f"{path} is empty. It must name columns.")


def _check_different(path: Path, what: str, written: Path | None) -> None:
    if written is not None and os.path.realpath(path) == os.path.realpath(written):
        raise ValueError(f"{written} is the {what}, which the output would replace. Give another file with --output.")


def check_ledger(path: Path | None, limit: float | None, limit_delta: float, written: Path | None = None) -> None:
    """Raise ValueError for a limit that is impossible or has no ledger, or for a ledger that cannot be written.

    ``written`` is the output of the command, which must not replace the ledger.
    """
    if limit is not None:
        positive("--limit", limit)
    delta_value(limit_delta)
    if path is not None:
        check_writable(path)
        _check_different(path, "ledger", written)
        check_is_ledger(path)
    elif limit is not None:
        raise ValueError("--limit requires --ledger, the file whose total it limits.")


def check_is_ledger(path: Path) -> None:
    """Raise ValueError if a file is neither empty nor begins as a ledger does: one in SQLite, or in the old text form.

    The rest of it is checked when it is read.
    """
    if path.is_file() and os.access(path, os.R_OK):
        with path.open("rb") as file:
            start = file.read(16)
        if start and start != b"SQLite format 3\0" and not start.startswith(b"{"):
            raise ValueError(f"{path} is not a ledger. Give the name of a ledger, or of a new file.")
