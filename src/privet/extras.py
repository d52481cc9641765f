"""Which extra of privet installs a module that is missing, in the same words everywhere."""

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
