"""The questions of NIST SP 800-226, "Guidelines for Evaluating Differential Privacy Guarantees", with their answers.

Its pyramid has the privacy parameters and the unit of privacy at the top, then algorithms, correctness and utility, then
how the software is run, and at the bottom the collection of the data. Each level rests on those below.
"""

from dataclasses import dataclass
from typing import Any

from privet.privacy import Guarantee
from privet.report.numbers import delta as as_power
from privet.report.numbers import plain, up

TITLE = "Evaluation by NIST SP 800-226"
STATED, ENFORCED, OPEN = "stated", "by software", "for the data holder"


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
        f"{vouched} condition{'s' if vouched != 1 else ''} must be vouched for."
        if vouched
        else "No condition is left open."
    )
    seeded = any("seed" in each.text for each in guarantee.assumptions)
    spent = (
        "The total of all releases is in this report." if report.spent else "Other releases from the same data add up."
    )
    return [
        Answer(
            "Privacy parameters",
            f"Epsilon {up(guarantee.epsilon, 4)} at delta {as_power(guarantee.delta)}, {guarantee.adjacency} adjacency, "
            "and the exact trade-off curve.",
            STATED,
            "budget",
        ),
        Answer("Unit of privacy", f"One {guarantee.unit}. {_several(guarantee)}", STATED, "summary"),
        Answer(
            "Composition",
            f"{spent} Totals are computed from what was released, not by adding epsilons up.",
            STATED,
            "spending" if report.spent else "",
        ),
        Answer(
            "Algorithms and correctness",
            f"The guarantee is computed from the plan that ran. {rests}",
            ENFORCED,
            "conditions",
        ),
        Answer(
            "Utility and bias",
            "Noise has the larger effect on small groups. Compare errors by group on public records before use.",
            OPEN,
            "tests" if report.tests else "",
        ),
        Answer(
            "Query model",
            "One release that answers no questions about the data. Whoever has it may use it without limit: "
            "post-processing costs nothing.",
            STATED,
        ),
        Answer("Trust model and exposure", report.facts.trust, STATED),
        Answer(
            "Random numbers and floating point",
            "Noise is drawn exactly, on a public grid, so that no bit of a release depends on rounding errors. "
            + (
                "A seed was set: the promise holds while it is secret."
                if seeded
                else "Its key comes from the operating system."
            ),
            ENFORCED,
            "conditions",
        ),
        Answer(
            "Side channels",
            "The duration and the memory of the training depend on the data, as do its error messages. Run it where nobody "
            "else can observe it.",
            OPEN,
        ),
        Answer(
            "Security and access control",
            "Who can read the data, the seed, the logs and the private losses? The promise covers only what was released.",
            OPEN,
        ),
        Answer(
            "Data collection",
            "How were the data collected, with what consent, how long are they kept, and who collected them before?",
            OPEN,
        ),
    ]


def _several(guarantee: Guarantee) -> str:
    return (
        "Does a person have several records?" if guarantee.unit == "record" else "A client's whole data counts as one."
    )
