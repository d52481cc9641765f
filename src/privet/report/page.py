"""The page of a report: its sections in order, rendered into one file that loads nothing from anywhere."""

from functools import cache
from importlib.resources import files
from typing import Any

from privet.extras import remedy
from privet.report.report import Report
from privet.report.sections import Section, sections


def render(report: Report) -> str:
    """Return the page of a report as HTML."""
    return fill("report.html", report=report, sections=sections(report), style=text_of("report.css"))


def fill(name: str, **values: Any) -> str:
    """Return a template with its values. Everything that is not marked as HTML is escaped."""
    text: str = _environment().get_template(name).render(**values)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


@cache
def text_of(name: str) -> str:
    """Return a style sheet or a script, to be written into a page."""
    return files("privet.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"Reports need jinja2. {remedy('jinja2')}", name="jinja2") from error
    from privet.report import numbers

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(text_of),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("delta", "percent_up", "up"):
        environment.filters[name] = getattr(numbers, name)
    environment.globals["Section"] = Section
    return environment
