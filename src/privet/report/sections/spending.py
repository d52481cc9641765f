"""Everything that was spent on the same data, as a time line."""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from privet.privacy import Guarantee
from privet.privacy.events import Event
from privet.privacy.ledger.timeline import Moment
from privet.report.numbers import delta as as_power
from privet.report.numbers import down, up
from privet.report.svg import Axis, Chart, round_ticks

TITLE = "Everything spent on these data"
MOST_LINES = 8


def values(report: Any) -> dict[str, Any] | None:
    """Return the time line, or None if no ledger was given or nothing was booked."""
    moments: Sequence[Moment] = report.spent
    if not any(moment.entry for moment in moments):
        return None
    last = moments[-1]
    assert last.total is not None
    limit = next((moment.change.limit for moment in reversed(moments) if moment.change), None)
    return {
        "chart": _chart(moments),
        "rows": [_row(moment) for moment in moments[-MOST_LINES:]],
        "hidden": max(0, len(moments) - MOST_LINES),
        "entries": sum(moment.entry is not None for moment in moments),
        "total": up(last.total, 4),
        "delta": as_power(last.delta),
        "limit": limit and up(limit.epsilon, 4),
        "left": None if last.left is None else down(last.left, 4),
        "is_missing": not _is_booked(report.guarantee, moments),
    }


def _is_booked(guarantee: Guarantee, moments: Sequence[Moment]) -> bool:
    """Return whether the entries contain all releases of a guarantee. A run that ended early is booked in full."""
    return _releases(guarantee.event) <= _releases(*(each.entry.guarantee.event for each in moments if each.entry))


def _releases(*events: Event) -> Counter[Event]:
    """Return the elementary releases of events, and how often each was made."""
    found: Counter[Event] = Counter()
    for event in events:
        for leaf in event.leaves():
            found[leaf.repeated(1) if leaf.is_repeatable else leaf] += leaf.repeats
    return found


def _row(moment: Moment) -> tuple[str, str, str, str]:
    total = "" if moment.total is None else up(moment.total, 4)
    day = moment.time[:10]
    if moment.entry is not None:
        return day, moment.entry.label or "a release", up(moment.entry.guarantee.epsilon, 4), total
    assert moment.change is not None
    limit = f"limit set to {up(moment.change.limit.epsilon, 4)}"
    return day, f"{limit}: {moment.change.label}" if moment.change.label else limit, "", total


def _chart(moments: Sequence[Moment]) -> str:
    """Return the total against time as a staircase, and the limit."""
    # Where deltas add up to 1 or more, no total is finite, and there is nothing to draw.
    totals = [moment for moment in moments if moment.total is not None and math.isfinite(moment.total)]
    times = [datetime.fromisoformat(moment.time).timestamp() for moment in totals]
    if not totals:
        return ""
    first, last = min(times), max(times)
    room = max(last - first, 3600.0) * 0.05
    low, high = first - room, last + 3 * room
    limits = [(time, moment.change.limit.epsilon) for time, moment in zip(times, totals, strict=True) if moment.change]
    top = max([*(moment.total or 0.0 for moment in totals), *(limit for _, limit in limits)]) * 1.1 or 1.0
    days = [moment.time[:10] for moment in totals]  # as in the table, whatever the time zone of this computer is
    ticks = [(first, days[0]), (last, days[-1])] if days[0] != days[-1] else [((low + high) / 2, days[-1])]
    chart = Chart(
        Axis("date", low, high, ticks),
        Axis("total epsilon", 0, top, round_ticks(0, top)),
        "What was spent on these data over time",
        f"The total epsilon after each release. It is {up(totals[-1].total or 0.0, 4)} after the last one.",
    )
    xs, ys = [low], [0.0]
    for time, moment in zip(times, totals, strict=True):
        xs += [time, time]
        ys += [ys[-1], moment.total or 0.0]
    chart.line([*xs, high], [*ys, ys[-1]])
    xs, ys = [], []
    for time, limit in limits:
        xs += [time, time] if ys else [time]
        ys += [ys[-1], limit] if ys else [limit]
    if limits:
        chart.line([*xs, high], [*ys, ys[-1]], "other")
        chart.text(high, ys[-1], "limit", anchor="end", dy=-5)
    return chart.svg()
