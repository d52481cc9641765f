"""What commands write for ``--json``: one JSON object, to a file besides the text, or to standard output instead."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from privet.files import check_writable, write_json

STANDARD_OUTPUT = Path("-")


def plain_console(*, quiet: bool = False) -> Console:
    """Return a console that prints texts as they are: square brackets and colons in a name are not markup."""
    return Console(quiet=quiet, markup=False, highlight=False, emoji=False)


def console_for(output: Path | None) -> Console:
    """Return the console for the text of a command: a quiet one if its JSON goes to standard output.

    ``output`` is the value of ``--json``. Raise ``ValueError`` if it cannot be written.
    """
    if output is not None and output != STANDARD_OUTPUT:
        check_writable(output)
    return plain_console(quiet=output == STANDARD_OUTPUT)


def write_result(output: Path | None, fields: Mapping[str, Any]) -> None:
    """Write the result of a command to the place that ``--json`` names, if it was given."""
    if output == STANDARD_OUTPUT:
        print(json.dumps(fields, indent=1, allow_nan=False))
    elif output is not None:
        write_json(output, fields)


def is_interactive(output: Path | None) -> bool:
    """Return whether a person can be asked in the terminal."""
    return sys.stdin.isatty() and output != STANDARD_OUTPUT
