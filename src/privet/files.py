"""Files that are written whole or not at all, and JSON files."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def written_whole(path: str | os.PathLike[str], *, is_public: bool = False) -> Iterator[IO[bytes]]:
    """Yield a file to write to, which replaces ``path`` once it is completely on disk.

    A reader sees the old file or the new one, never a part. If an error occurs, the old file stays. Only its owner can
    read the file, unless ``is_public`` gives it the permissions that new files usually have.
    """
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if is_public:
            mask = os.umask(0)
            os.umask(mask)
            Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write a JSON file atomically: a reader sees the old file or the whole new one."""
    with written_whole(path) as file:
        file.write(json.dumps(fields, indent=1, allow_nan=False).encode())


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON object in a file. Raise ``ValueError`` with the file's name if it holds anything else."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"The file {path} does not exist. Check its name and its folder.") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a privet model: it does not contain JSON ({error})") from error
    if not isinstance(fields, dict):
        raise ValueError(f"{path} is not a privet model: it does not contain a JSON object")
    return fields


def check_readable(path: Path, what: str = "file") -> None:
    """Raise ``ValueError`` if there is no such file, or if it cannot be read, before any work is done."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Give the name of a file.")
    if not path.exists():
        raise ValueError(f"The {what} {path} does not exist. Check its name and its folder.")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{path} cannot be read. Check its permissions.")


def check_writable(path: Path) -> None:
    """Raise ``ValueError`` if a file cannot be written, before any work is done or any budget is spent."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Give the name of a file.")
    if not path.parent.is_dir():
        raise ValueError(f"The folder {path.parent} does not exist.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written. Check its permissions.")
