"""Progress bars for long computations. They are drawn by rich, which is imported only if a bar is shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress_bar(
    label: str, is_shown: bool = True, console: "Console | None" = None
) -> Iterator[Callable[[int, int], None] | None]:
    """Yield ``update(finished, planned)``, which updates the bar, or None if no bar is shown."""
    if not is_shown:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, planned: bar.update(task, completed=done, total=planned)


@contextmanager
def status_bar(label: str, planned: int, is_shown: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Yield ``update(finished, status)``, which updates the bar and shows a status text, such as the current loss."""
    if not is_shown:
        yield lambda done, status: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    status = TextColumn("{task.fields[status]}")
    with Progress(TextColumn(label), BarColumn(), MofNCompleteColumn(), status, TimeRemainingColumn()) as bar:
        task = bar.add_task(label, total=planned, status="")
        yield lambda done, status: bar.update(task, completed=done, status=status)
