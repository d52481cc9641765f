"""Asking a private table about its columns. Only this file sees rows that need protection; all answers have noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privet.drafts.plan import DraftPlan, Questions
from privet.drafts.recognition import SLASHED, YEARS, Cells, Kind
from privet.drafts.round_numbers import grid, places_above, places_below
from privet.plans import PlanError
from privet.preprocessing.quantiles import QuantilePlan, Tally
from privet.privacy import NoiseSource

if TYPE_CHECKING:
    import pandas as pd

SURE = 4.0
"""A noisy count is taken to be above zero, or above another one, if it is so by this many standard deviations."""
_LEAST_SHARE, _MOST_SHARE = 0.01, 0.25


@dataclass(frozen=True)
class Answer:
    """What was released about one column.

    Parameters
    ----------
    name : str
    counts : dict
        The noisy number of cells of each kind.
    std : float
        The standard deviation of the noise in these numbers.
    kinds : tuple of Kind
        What the column is: numbers, texts, dates, or dates with slashes. Empty if the numbers do not tell.
    levels : dict or None
        The noisy number of cells of each level that is frequent enough. None if nobody asked.
    threshold : float
        The least noisy number of cells of a level.
    bounds : pair of float or None
        Noisy quantiles: numbers, or years of dates. None if nobody asked, or if there are too few cells.
    share : float
        The levels of the quantiles are this share and one minus this share.
    """

    name: str
    counts: dict[Kind, float]
    std: float
    kinds: tuple[Kind, ...] = ()
    levels: dict[str, float] | None = None
    threshold: float = math.nan
    bounds: tuple[float, float] | None = None
    share: float = math.nan
    is_target: bool = field(default=False)

    def number(self, *kinds: Kind) -> float:
        """Return the noisy number of cells of these kinds, at least 0."""
        return max(sum(self.counts[kind] for kind in kinds), 0.0)

    def is_sure(self, *kinds: Kind) -> bool:
        """Return whether there are certainly cells of these kinds."""
        return self.number(*kinds) > SURE * self.std * math.sqrt(len(kinds))

    @property
    def asks_levels(self) -> bool:
        """Whether the levels of the column are asked for: those of texts, and of a target that is not a date."""
        return self.kinds == (Kind.TEXT,) or (self.is_target and self.kinds == (Kind.NUMBER,))

    @property
    def asks_bounds(self) -> bool:
        """Whether the bounds of the column are asked for."""
        return bool(self.kinds) and self.kinds != (Kind.TEXT,)


def cells_of(frame: pd.DataFrame, names: list[str], decimal: str | None = None) -> dict[str, Cells]:
    """Return the cells of the named columns."""
    places = {str(label): place for place, label in enumerate(frame.columns)}
    return {name: Cells.of(frame.iloc[:, places[name]], decimal) for name in names}


def ask(columns: dict[str, Cells], target: str | None, plan: DraftPlan, source: NoiseSource) -> list[Answer]:
    """Return noisy answers about the columns of a table, in their order.

    Formal guarantees
    -----------------
    Everything that is returned is covered by ``plan.guarantee()``.
    """
    names = list(columns)
    exact = np.concatenate([cells.by_kind() for cells in columns.values()]).astype(np.float64)
    if len(names) != plan.n_columns:
        raise PlanError(f"The plan accounts for {plan.n_columns} columns, but there are {len(names)}.")
    kinds = plan.kinds()
    noisy = kinds.noisy(exact, source).reshape(len(names), -1)
    answers = [
        _decided(Answer(name, dict(zip(Kind, map(float, row), strict=True)), kinds.scale, is_target=name == target))
        for name, row in zip(names, noisy, strict=True)
    ]
    asked = plan.questions(sum(each.asks_levels for each in answers), sum(each.asks_bounds for each in answers))
    answers = _with_levels(answers, columns, asked, source)
    return [_with_bounds(each, columns[each.name], asked, source) if each.asks_bounds else each for each in answers]


def _decided(answer: Answer) -> Answer:
    """Return the answer with what the column is: the kind of most cells, if there are certainly some."""
    choices: tuple[tuple[Kind, ...], ...] = ((Kind.NUMBER,), (Kind.TEXT,), (Kind.DATE,), SLASHED)
    best = max(choices, key=lambda kinds: answer.number(*kinds))
    return replace(answer, kinds=best) if answer.is_sure(*best) else answer


def _with_levels(
    answers: list[Answer], columns: dict[str, Cells], asked: Questions, source: NoiseSource
) -> list[Answer]:
    """Return the answers with the levels whose noisy count reaches the threshold."""
    if not asked.n_levels:
        return answers
    exact = {each.name: columns[each.name].levels() for each in answers if each.asks_levels}
    counts = np.array([number for levels in exact.values() for number in levels.values()], dtype=np.float64)
    noisy = iter(asked.levels().noisy(counts, source).tolist())
    found = {name: {level: next(noisy) for level in levels} for name, levels in exact.items()}
    threshold = asked.threshold
    frequent = {
        name: {level: number for level, number in levels.items() if number >= threshold}
        for name, levels in found.items()
    }
    return [
        replace(each, levels=frequent[each.name], threshold=threshold) if each.name in frequent else each
        for each in answers
    ]


def _with_bounds(answer: Answer, cells: Cells, asked: Questions, source: NoiseSource) -> Answer:
    """Return the answer with two noisy quantiles, unless there are so few cells that these would be arbitrary."""
    values, counts = cells.tally(*answer.kinds)
    is_number = answer.kinds == (Kind.NUMBER,)
    plan = asked.bounds(len(grid()) - 1 if is_number else YEARS - 1)
    share = share_of(answer.number(*answer.kinds), asked, plan)
    if share > _MOST_SHARE:
        return replace(answer, share=share)
    below, above = (places_below(values), places_above(values)) if is_number else (_year_places(values),) * 2
    low = plan.draw(_tally(below, counts), share, source)
    high = plan.draw(_tally(above, counts), 1 - share, source)
    points = grid() if is_number else np.arange(1.0, YEARS + 1)
    return replace(answer, bounds=(float(points[low]), float(points[high])), share=share)


def share_of(number: float, asked: Questions, plan: QuantilePlan) -> float:
    """Return the level of the lower quantile: the smallest at which it is hardly ever below all cells."""
    return max(_LEAST_SHARE, asked.rank_error(plan.resolution) / max(number, 1.0))


def is_enough(plan: DraftPlan, n: int) -> bool:
    """Return whether n rows are enough for useful answers if no cell is missing. It depends on public numbers only."""
    asked = plan.questions(plan.n_columns, 0)
    bounds = plan.questions(0, plan.n_columns)
    ranks = bounds.rank_error(len(grid()) - 1)
    return n >= max(2 * asked.threshold, ranks / _MOST_SHARE, 2 * SURE * plan.kinds().scale)


def _year_places(years: NDArray[np.float64]) -> NDArray[np.int64]:
    return years.astype(np.int64) - 1


def _tally(places: NDArray[np.int64], counts: NDArray[np.int64]) -> Tally:
    """Return how many cells are at each place of the grid."""
    distinct, index = np.unique(places, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, index, counts)
    return Tally(distinct, total)
