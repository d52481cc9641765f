"""What the model found: the effect of each column, with a band for the noise that privacy added."""

import math
from typing import Any

from privet.report.facts import EffectRow, EffectTable
from privet.report.numbers import plain

TITLE = "Effects"
_WIDTH, _HEIGHT, _MIDDLE = 200.0, 16.0, 8.0


def values(report: Any) -> dict[str, Any] | None:
    """Return the tables of effects, or None if the model has none."""
    facts = report.facts
    if not facts.effects:
        return None
    return {"tables": [_table(table) for table in facts.effects], "note": facts.effects_note}


def _table(table: EffectTable) -> dict[str, Any]:
    reach = max((abs(row.size) + 2 * (row.noise_std or 0.0) for row in table.rows), default=1.0) or 1.0
    return {
        "output": table.output,
        "rows": [(row, _signed(row.size, reach), _std(row), _bar(row, reach)) for row in table.rows],
        "hidden": table.hidden,
        "has_noise": any(row.noise_std is not None for row in table.rows),
    }


def _signed(size: float, reach: float) -> str:
    """Return an effect with its sign, and with as many decimals as give the largest one about three digits."""
    decimals = min(max(0, 2 - math.floor(math.log10(reach))), 8)
    return f"{size:+,.{decimals}f}".replace("-", "−")


def _std(row: EffectRow) -> str:
    return "not known" if row.noise_std is None else plain(row.noise_std, 2)


def _bar(row: EffectRow, reach: float) -> str:
    """Return a bar from zero to the effect, and a line for two standard deviations of the noise on each side."""

    def place(value: float) -> float:
        return _WIDTH / 2 * (1 + value / reach)

    start, end = sorted((place(0.0), place(row.size)))
    parts = [f'<rect class="bar" x="{start:.1f}" y="3" width="{max(end - start, 0.5):.1f}" height="10"/>']
    if row.noise_std:
        low, high = place(row.size - 2 * row.noise_std), place(row.size + 2 * row.noise_std)
        parts.append(f'<line class="whisker" x1="{low:.1f}" y1="{_MIDDLE:g}" x2="{high:.1f}" y2="{_MIDDLE:g}"/>')
        for end in (low, high):
            parts.append(f'<line class="whisker" x1="{end:.1f}" y1="4" x2="{end:.1f}" y2="12"/>')
    zero = f'<line class="zero" x1="{_WIDTH / 2:g}" y1="0" x2="{_WIDTH / 2:g}" y2="{_HEIGHT:g}"/>'
    return f'<svg class="effect" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" aria-hidden="true">{zero}{"".join(parts)}</svg>'
