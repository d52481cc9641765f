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


@contextmanager
def telling_bar(label: str, planned: int, is_shown: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Yield a callback for steps done and a few words that change with them: a loss, what was spent."""
    if not is_shown:
        yield lambda done, words: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    words = TextColumn("{task.fields[words]}")
    with Progress(TextColumn(label), BarColumn(), MofNCompleteColumn(), words, TimeRemainingColumn()) as bar:
        task = bar.add_task(label, total=planned, words="")
        yield lambda done, words: bar.update(task, completed=done, words=words)
