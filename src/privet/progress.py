"""A progress bar for long work, drawn by rich, which is imported only when a bar is asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress_bar(
    label: str, is_shown: bool = True, console: "Console | None" = None
) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback for steps done and steps planned; None if no bar is wanted."""
    if not is_shown:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, planned: bar.update(task, completed=done, total=planned)
