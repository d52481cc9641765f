"""``privet ledger``: show what has been spent on a dataset."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privet.privacy import Ledger


def run(
    path: Path, *, delta: float | None, drop_cut_line: bool = False, verbose: bool = False, console: Console
) -> None:
    """Print the entries of a ledger and their total. Before, remove a last line that is cut off if that is asked for.

    The epsilon of every entry is recomputed from its event. An entry that states less is an error.
    """
    if not path.is_file():
        raise ValueError(f"The ledger {path} does not exist. privet fit --ledger {path} creates it.")
    ledger = Ledger(path)
    if drop_cut_line:
        dropped = ledger.drop_cut_line()
        found = "No line is cut off." if dropped is None else f"Removed a line that was cut off: {dropped!r}"
        console.print(found, highlight=False, markup=False, soft_wrap=True)
    table = Table(title=escape(str(path)), title_justify="left")
    for name in ("time", "label", "epsilon", "delta", "adjacency"):
        table.add_column(name, justify="right" if name in {"epsilon", "delta"} else "left")
    for entry in ledger.entries():
        guarantee = entry.guarantee
        numbers = f"{guarantee.epsilon:.4f}", f"{guarantee.delta:.3g}"
        table.add_row(escape(entry.time), escape(entry.label), *numbers, str(guarantee.adjacency))
    console.print(table)
    total = ledger.total(delta)
    if total is None:
        console.print("Nothing has been spent.")
        return
    console.print(total.statement(verbose), highlight=False, markup=False, soft_wrap=True)
