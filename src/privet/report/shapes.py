"""Pictures of the curves of additive models, with bands for the noise that privacy added: SVG text, and matplotlib."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privet.extras import remedy
from privet.linear.additive import PrivateAdditiveModel
from privet.linear.shapes import Shape, by_importance
from privet.linear.table_model import TableModel
from privet.report.numbers import plain
from privet.report.svg import Axis, Chart, round_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LEVELS = 24
NOTE = (
    "Each curve shows what a column adds to the score, compared with its average over the records. The band is two "
    "standard deviations of the noise that privacy added wide on each side. It is estimated from the noise, the steps "
    "and noisy counts alone, and does not show how other records would change the curve."
)
_ROW, _LABEL, _BARS = 18.0, 150.0, 210.0


def shapes_of(model: Any) -> list[Shape]:
    """Return the shapes of an additive model, the most important first, or raise TypeError for other models."""
    estimator = model.estimator if isinstance(model, TableModel) else model
    if not isinstance(estimator, PrivateAdditiveModel):
        raise TypeError(
            f"{type(estimator).__name__} has no curves. Train an additive model: privet fit --model additive"
        )
    return by_importance(list(estimator.shapes_.values()))


def outputs_of(model: Any) -> list[str]:
    """Return the names of the outputs: one for a number and for two classes, else one per class."""
    estimator = model.estimator if isinstance(model, TableModel) else model
    labels = [str(label) for label in getattr(estimator, "classes_", ())]
    if labels and isinstance(model, TableModel):
        labels = list(map(str, model.levels))
    return labels if len(labels) > 2 else labels[1:] or [""]


def score_of(label: str) -> str:
    """Return what a curve adds to, for the label of an axis: the score of a class, if the output is one."""
    return f"score of {_short(label)}" if label else "score"


def chart_of(shape: Shape, output: int = 0, label: str = "", title: str = "") -> str:
    """Return the picture of a shape for one output as an SVG element, for the style sheet of a report."""
    title = title or shape.name
    return _bars(shape, output, title, label) if shape.edges is None else _curve(shape, output, title, label)


def _range(shape: Shape, output: int) -> tuple[Any, Any, Any]:
    """Return the values of an output, and the lower and the upper end of their band."""
    values = shape.values.reshape(len(shape.values), -1)[:, output]
    return values, values - 2 * shape.noise, values + 2 * shape.noise


def _curve(shape: Shape, output: int, title: str, label: str) -> str:
    assert shape.edges is not None
    values, low, high = _range(shape, output)
    bottom, top = min(0.0, float(low.min())), max(0.0, float(high.max()))
    first, last = float(shape.edges[0]), float(shape.edges[-1])
    xs = np.repeat(shape.edges, 2)[1:-1].tolist()
    about = f"From {values.min():.3g} to {values.max():.3g}, with a band for the privacy noise."
    chart = Chart(
        Axis(shape.name, first, last, round_ticks(first, last)),
        Axis(score_of(label), bottom, top, round_ticks(bottom, top)),
        title,
        about,
    )
    chart.area(xs, np.repeat(low, 2).tolist(), np.repeat(high, 2).tolist())
    chart.line([first, last], [0.0, 0.0], "guess")
    chart.line(xs, np.repeat(values, 2).tolist())
    return chart.svg()


def _bars(shape: Shape, output: int, title: str, label: str) -> str:
    values, low, high = _range(shape, output)
    shown = np.sort(np.argsort(-np.abs(values), kind="stable")[:MOST_LEVELS])
    reach = float(max(np.abs(low[shown]).max(), np.abs(high[shown]).max())) or 1.0

    def place(value: float) -> float:
        return _LABEL + _BARS / 2 * (1 + value / reach)

    zero, height, parts, axis = place(0.0), _ROW * len(shown), [], escape(score_of(label))
    for row, k in enumerate(shown.tolist()):
        name, middle = (shape.levels or ())[k], _ROW * (row + 0.5)
        start, end = sorted((zero, place(values[k])))
        parts.append(
            f'<text class="tick" x="{_LABEL - 8:g}" y="{middle + 4:g}" text-anchor="end">{escape(_short(name))}</text>'
        )
        parts.append(
            f'<rect class="bar" x="{start:.1f}" y="{middle - 5:g}" width="{max(end - start, 0.5):.1f}" height="10"/>'
        )
        whisker = f'x1="{place(low[k]):.1f}" x2="{place(high[k]):.1f}"'
        parts.append(f'<line class="whisker" {whisker} y1="{middle:g}" y2="{middle:g}"/>')
    parts.append(f'<line class="zero" x1="{zero:.1f}" y1="0" x2="{zero:.1f}" y2="{height:g}"/>')
    ends = (place(-reach), plain(-reach), "start"), (zero, axis, "middle"), (place(reach), plain(reach), "end")
    for x, text, anchor in ends:
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height + 14:g}" text-anchor="{anchor}">{text}</text>')
    box = f"0 0 {_LABEL + _BARS + 8:g} {height + 20:g}"
    name = escape(f"{title}: from {plain(float(values.min()))} to {plain(float(values.max()))}", quote=True)
    return f'<svg class="chart" viewBox="{box}" role="img" aria-label="{name}">{"".join(parts)}</svg>'


def _short(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:19]}…"


def draw(shape: Shape, ax: "Axes", output: int = 0, label: str = "") -> "Axes":
    """Draw a shape on axes of matplotlib. ``label`` is the name of the output, if it is a class."""
    values, low, high = _range(shape, output)
    if shape.edges is not None:
        ax.fill_between(np.repeat(shape.edges, 2)[1:-1], np.repeat(low, 2), np.repeat(high, 2), alpha=0.25, linewidth=0)
        ax.stairs(values, shape.edges, baseline=None, linewidth=1.6)
        ax.axhline(0, color="grey", linewidth=0.8)
        ax.set(xlabel=shape.name, ylabel=score_of(label))
        return ax
    shown = np.sort(np.argsort(-np.abs(values), kind="stable")[:MOST_LEVELS])[::-1]
    ax.barh(range(len(shown)), values[shown], xerr=2 * shape.noise[shown], capsize=2)
    ax.set_yticks(range(len(shown)), [_short((shape.levels or ())[k]) for k in shown])
    ax.axvline(0, color="grey", linewidth=0.8)
    ax.set(xlabel=score_of(label), title=shape.name)
    return ax


def figure_of(model: Any) -> "Figure":
    """Return a figure of matplotlib with all shapes of a model, the most important first."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"Plots need matplotlib. {remedy('matplotlib')}", name="matplotlib") from error
    shapes, outputs = shapes_of(model), outputs_of(model)
    panels = [(shape, output) for output in range(len(outputs)) for shape in shapes]
    across = min(3, len(panels))
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(4.6 * across, 3.4 * down), layout="constrained")
    axes = np.ravel(figure.subplots(down, across, squeeze=False))
    for ax, (shape, output) in zip(axes, panels, strict=False):
        draw(shape, ax, output, outputs[output])
        if len(outputs) > 1:
            ax.set_title(f"{shape.name}, {outputs[output]}")
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    return figure


def write_plot(model: Any, path: Path) -> None:
    """Write a picture of all curves of a model to a PNG, SVG or HTML file, by the end of its name."""
    ending = path.suffix.lower()
    if ending == ".html":
        path.write_text(_page(model), encoding="utf-8")
    elif ending in {".png", ".svg"}:
        figure_of(model).savefig(path, dpi=110)
    else:
        raise ValueError(f"{path} must end with .png, .svg or .html, which is the form of the picture.")


def _page(model: Any) -> str:
    from privet.report.page import fill, text_of

    charts = charts_of(model)
    return fill("curves.html", values={"charts": charts, "note": NOTE}, style=text_of("report.css"))


def charts_of(model: Any, most: int | None = None) -> Sequence[tuple[str, str]]:
    """Return the title and the SVG element of each curve, the most important first."""
    outputs = outputs_of(model)
    found = []
    for shape in shapes_of(model)[:most]:
        for output, label in enumerate(outputs):
            title = f"{shape.name}, {label}" if len(outputs) > 1 else shape.name
            found.append((title, chart_of(shape, output, label, title)))
    return found
