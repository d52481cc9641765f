"""Which extra of privet installs a module that is missing, in the same words everywhere."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXTRAS = {
    "torch": "deep",
    "flwr": "federated",
    "mpyc": "multiparty",
    "grpc": "multiparty",
    "statsmodels": "demo",
    "matplotlib": "report",
    "jinja2": "report",
    "yaml": "report",
    "jsonschema": "report",
}


def remedy(module: str) -> str:
    """Return that a module is not installed, and the command that installs the extra of privet that has it."""
    name = module.partition(".")[0]
    return f"The module {name} is not installed. Run: pip install 'privet[{EXTRAS[name]}]'"


def with_remedy(error: ModuleNotFoundError) -> str | None:
    """Return an error message that names the extra to install, or None if no extra of privet has the missing module.

    A message of privet itself names the extra already.
    """
    if "privet[" in str(error) or error.name is None:
        return str(error)
    return remedy(error.name) if error.name.partition(".")[0] in EXTRAS else None


def axes(ax: "Axes | None", width: float, height: float) -> "Axes":
    """Return the given axes, or those of a new figure of the given size in inches. This requires matplotlib."""
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"Plots need matplotlib. {remedy('matplotlib')}", name="matplotlib") from error
    new: Axes = Figure(figsize=(width, height), layout="constrained").subplots()
    return new
