"""The promise in plain words, to be pasted into an application to an ethics board."""

import math
from typing import Any

from privet.privacy import Adjacency, Guarantee, Unit
from privet.report.numbers import delta as as_power
from privet.report.numbers import percent_up, up
from privet.report.sections.attacker import question
from privet.report.sections.conditions import ALWAYS

TITLE = "In plain words"
WEAK = 0.9
"""The chance of a right guess above which a report says that the promise is weak."""


def values(report: Any) -> dict[str, Any]:
    """Return the paragraphs of the summary."""
    return {"paragraphs": paragraphs(report)}


def paragraphs(report: Any) -> list[str]:
    """Return the summary as paragraphs of plain text."""
    guarantee: Guarantee = report.guarantee
    model = f"The model {report.facts.purpose}."
    if not guarantee.is_private:
        return [
            f"{model} It was trained without privacy noise. Nothing is promised to the people in the data: what is "
            f"released may reveal everything about any {guarantee.unit}.",
        ]
    found = [
        f"{model} It was trained with differential privacy, which limits what it can reveal about any single "
        f"{guarantee.unit}. {_promise(guarantee)}",
        _attacks(guarantee),
    ]
    found.append(_unit(guarantee))
    vouched = [each.text for each in guarantee.assumptions if not each.is_enforced]
    if vouched:
        found.append(f"The promise rests on conditions that software cannot check: {'; '.join(vouched)}.")
    found.append(f"Like every such promise, it also rests on this: {'; '.join(ALWAYS)}.")
    found.append(
        "What the promise does not say: it does not keep anybody from learning general facts, such as that smoking is "
        "unhealthy, also about people who took part. It does not cover other releases from the same data, and it does "
        "not replace the protection of the data themselves."
    )
    return found


def _promise(guarantee: Guarantee) -> str:
    change = guarantee.adjacency.in_words.format(unit=guarantee.unit)
    slack = f", and by at most {as_power(guarantee.delta)} in addition" if guarantee.delta else ""
    epsilon = guarantee.epsilon
    factor = up(math.exp(epsilon), 3) if epsilon < 600 else f"e to the power of {up(epsilon, 4)}"
    return (
        f"Formally: {change} changes the probability of any outcome of the training by a factor of at most "
        f"{factor}{slack}. This is ({up(epsilon, 4)}, {as_power(guarantee.delta)})-differential privacy."
    )


def _attacks(guarantee: Guarantee) -> str:
    weak = " This promise is weak: such an attacker may be right almost always." if guarantee.best_guess > WEAK else ""
    return (
        f"Suppose that somebody sees everything that was released, knows everything about all other {guarantee.unit}s, "
        f"has unlimited computers, and wants to find out {question(guarantee)}. Their best guess is right with "
        f"probability at most {percent_up(guarantee.best_guess)}, where 50\u00a0% is a coin toss. If they accept false "
        f"alarms for 1\u00a0% of the {guarantee.unit}s that were not used, they recognise at most "
        f"{percent_up(guarantee.tpr(0.01))} of those that were.{weak}"
    )


def _unit(guarantee: Guarantee) -> str:
    if guarantee.unit is Unit.CLIENT:
        return "The protected unit is one client with all of its data, however many records it has."
    same = " The number of records is public." if guarantee.adjacency is Adjacency.REPLACE_ONE else ""
    return (
        f"The protected unit is one record, that is, one row of the data.{same} If a person has several records, the "
        "promise to that person is weaker: with k records, epsilon is up to k times as large, and delta grows, too."
    )
