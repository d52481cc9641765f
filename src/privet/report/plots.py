"""Plots for notebooks, on axes of matplotlib: the trade-off curve of a guarantee, and the effects of a model."""

from typing import TYPE_CHECKING, Any

from privet.extras import axes
from privet.linear.additive import PrivateAdditiveModel
from privet.privacy import Guarantee
from privet.report.facts import facts_of
from privet.report.numbers import delta as as_power
from privet.report.numbers import up
from privet.report.shapes import draw, outputs_of, shapes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot(thing: Any, ax: "Axes | None" = None) -> "Axes":
    """Draw a guarantee or the effects of a model.

    Parameters
    ----------
    thing : Guarantee, or fitted model
    ax : Axes or None
        Where to draw. None makes a new figure.

    Returns
    -------
    Axes
    """
    return _trade_off(thing, ax) if isinstance(thing, Guarantee) else _effects(thing, ax)


def curve(model: Any, ax: "Axes | None", column: str) -> "Axes":
    """Draw one curve of an additive model."""
    (shape,) = (each for each in shapes_of(model) if each.name == column)
    return draw(shape, axes(ax, 6.0, 4.0), label=outputs_of(model)[0])


def _trade_off(guarantee: Guarantee, ax: "Axes | None") -> "Axes":
    fpr, tpr = guarantee.trade_off()
    ax = axes(ax, 4.5, 4.5)
    label = f"epsilon {up(guarantee.epsilon)} at delta {as_power(guarantee.delta)}"
    ax.plot([0.0, *fpr, 1.0], [float(tpr[0]), *tpr, 1.0], label=label)
    ax.plot([0, 1], [0, 1], linestyle=":", color="grey", label="guessing")
    ax.set(xlabel="false-positive rate", ylabel="true-positive rate, at most", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(loc="lower right")
    return ax


def _effects(model: Any, ax: "Axes | None") -> "Axes":
    if isinstance(getattr(model, "estimator", model), PrivateAdditiveModel):
        return draw(shapes_of(model)[0], axes(ax, 6.0, 4.0), label=outputs_of(model)[0])
    _, facts = facts_of(model)
    if not facts.effects:
        raise ValueError(f"{type(model).__name__} has no effects to draw.")
    if len(facts.effects) > 1 and ax is not None:
        raise ValueError(
            f"The model has {len(facts.effects)} outputs, which cannot be drawn on one Axes. Leave ax out to "
            "draw the first one."
        )
    table = facts.effects[0]
    ax = axes(ax, 6.0, 1.2 + 0.3 * len(table.rows))
    rows = table.rows[::-1]
    bands = [2 * (row.noise_std or 0.0) for row in rows]
    is_known = any(bands)
    ax.barh(range(len(rows)), [row.size for row in rows], xerr=bands if is_known else None, capsize=3)
    ax.set_yticks(range(len(rows)), [f"{row.name}, {row.change}" for row in rows])
    ax.axvline(0, color="grey", linewidth=0.8)
    noise = "two standard deviations of the privacy noise" if is_known else "the privacy noise in it is not known"
    ax.set(xlabel=f"effect on {table.output} ({noise})")
    return ax
