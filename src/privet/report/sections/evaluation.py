"""The questions of NIST SP 800-226, "Guidelines for Evaluating Differential Privacy Guarantees", with their answers.

Its pyramid has the privacy parameters and the unit of privacy at the top, then algorithms, correctness and utility,
then how the software is run, and at the bottom the collection of the data. Each level rests on those below.
"""

from dataclasses import dataclass
from typing import Any

from privet.privacy import Guarantee
from privet.report.numbers import delta as as_power
from privet.report.numbers import up

TITLE = "Evaluation by NIST SP 800-226"
STATED, ENFORCED, GIVEN, OPEN = "stated", "by software", "by the data holder", "for the data holder"

QUESTIONS = {
    "utility": (
        "Utility and bias",
        "Noise has the larger effect on small groups. Which errors does the model make, in total and for each group?",
    ),
    "side_channels": (
        "Side channels",
        "The time and the memory of the training depend on the data, as do its error messages. Who can observe them?",
    ),
    "security": (
        "Security and access control",
        "Who can read the data, the logs and the private losses? The promise covers only what was released.",
    ),
    "collection": (
        "Data collection",
        "How were the data collected, with what consent, how long are they kept, and who else has them?",
    ),
}
"""What only the holder of the data can answer, by the fields of :class:`~privet.report.about.About`."""


@dataclass(frozen=True)
class Answer:
    """The answer to one question of the guidelines, and who gives it."""

    topic: str
    text: str
    by: str
    see: str = ""


def values(report: Any) -> dict[str, Any]:
    """Return the answers from the top of the pyramid to its bottom."""
    return {"answers": answers(report)}


def answers(report: Any) -> list[Answer]:
    """Return the answers for a report."""
    guarantee: Guarantee = report.guarantee
    vouched = sum(not each.is_enforced for each in guarantee.assumptions)
    rests = (
        f"{vouched} condition{'s' if vouched != 1 else ''} must be vouched for." if vouched else "No condition is open."
    )
    spent = (
        "The total of all booked releases is in this report."
        if report.spent
        else "Other releases from the same data add up."
    )
    parameters = (
        f"Epsilon {up(guarantee.epsilon, 4)} at delta {as_power(guarantee.delta)}, {guarantee.adjacency} adjacency, "
        "and the exact trade-off curve."
    )
    composed = f"{spent} Totals are computed from what was released, not by adding epsilons up."
    query = (
        "One release that answers no questions about the data. Whoever has it may use it without limit: "
        "post-processing costs nothing."
    )
    plan = f"The guarantee is computed from the plan that ran. {rests}"
    return [
        Answer("Privacy parameters", parameters, STATED, "budget"),
        Answer("Unit of privacy", f"One {guarantee.unit}. {_several(guarantee)}", STATED, "summary"),
        Answer("Composition", composed, STATED, "spending" if report.spent else ""),
        Answer("Algorithms and correctness", plan, ENFORCED, "conditions"),
        _open(report, "utility"),
        Answer("Query model", query, STATED),
        Answer("Trust model and exposure", report.facts.trust, STATED),
        Answer("Random numbers and floating point", floating_point(guarantee), ENFORCED, "conditions"),
        _open(report, "side_channels"),
        _open(report, "security"),
        _open(report, "collection"),
    ]


def floating_point(guarantee: Guarantee) -> str:
    """Return how noise is drawn, and what its secrecy rests on."""
    if not guarantee.is_private:
        return "There is no noise."
    drawn = "Noise is drawn exactly, on a public grid, so that no bit of a release depends on rounding errors."
    if any("seed" in each.text for each in guarantee.assumptions if not each.is_enforced):
        return f"{drawn} A seed was set: the promise holds only while it is secret."
    is_keyed = any("keyed by the operating system" in each.text for each in guarantee.assumptions)
    return f"{drawn} Its key comes from the operating system." if is_keyed else drawn


def _open(report: Any, name: str) -> Answer:
    """Return the answer of the holder of the data, or the question to it."""
    topic, question = QUESTIONS[name]
    given = getattr(report.about, name)
    see = "tests" if name == "utility" and report.tests else ""
    return Answer(topic, given, GIVEN, see) if given else Answer(topic, question, OPEN, see)


def _several(guarantee: Guarantee) -> str:
    return (
        "Does a person have several records?" if guarantee.unit == "record" else "A client's whole data counts as one."
    )
