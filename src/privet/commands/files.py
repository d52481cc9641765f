"""Files that a command will write: checked before any work is done, or any budget spent."""

import os
from pathlib import Path


def check_writable(path: Path) -> None:
    """Raise if ``path`` cannot be written."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file")
    if not path.parent.is_dir():
        raise ValueError(f"the folder {path.parent} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: check its permissions")
