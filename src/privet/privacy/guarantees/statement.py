"""The printed statement of a guarantee."""

import math
import textwrap
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import TYPE_CHECKING

from privet.privacy.budget import Adjacency

if TYPE_CHECKING:
    from privet.privacy.guarantees.guarantee import Assumption, Guarantee

MOST_LINES, WIDTH = 12, 100  # of a printed statement
FALSE_ALARMS = 0.01  # the false-positive rate at which a statement gives the largest true-positive rate


def statement(guarantee: "Guarantee", verbose: bool) -> str:
    """Return a guarantee in plain words, as :meth:`Guarantee.statement` describes."""
    if not guarantee.is_private:
        lines = [f"No differential privacy: the noise multiplier is 0, so no {guarantee.unit} is protected."]
        lines += paragraph("Meaning:", f"what is released may reveal everything about any {guarantee.unit}", verbose)
        return "\n".join(lines + paragraph("Released:", guarantee.released, verbose))
    held: list[Assumption] = []
    vouched: list[Assumption] = []
    for condition in guarantee.assumptions:
        (held if condition.is_enforced else vouched).append(condition)
    hold = "assumption below holds" if len(vouched) == 1 else f"{len(vouched)} assumptions below hold"
    lines = [
        f"({upwards(guarantee.epsilon, 6)}, {upwards(guarantee.delta, 3)})-differential privacy for each "
        f"{guarantee.unit} ({guarantee.adjacency})" + (f", provided that the {hold}." if vouched else ".")
    ]
    change = (
        f"{guarantee.adjacency.in_words.format(unit=guarantee.unit)} changes the probability of any outcome by a factor"
    )
    slack = f", plus at most {upwards(guarantee.delta, 3)}" if guarantee.delta > 0 else ""
    lines += paragraph("Meaning:", f"{change} of at most e^{upwards(guarantee.epsilon, 4)}{slack}", verbose)
    meant = len(lines)
    lines += paragraph("Released:", guarantee.released, verbose)
    if (local := guarantee.local) is not None:
        numbers = f"({upwards(local.epsilon, 4)}, {upwards(guarantee.delta, 3)})"
        seen = "against whoever sees every state, if each person adds their own noise"
        lines += paragraph("Local:", f"{numbers} {seen}", verbose)
    for condition in vouched:
        lines += paragraph("Assumed:", condition.text, verbose)
    risk = paragraph("Attacks:", attacks(guarantee), verbose)
    if verbose or len(lines) + len(risk) + bool(held) <= MOST_LINES:  # Assumed conditions are more important.
        lines[meant:meant] = risk
    paragraphs = [paragraph("Enforced:", condition.text, verbose) for condition in held]
    wanted = [place for place, condition in enumerate(held) if verbose or not condition.is_detail]
    room = len(lines) + sum(len(paragraphs[place]) for place in wanted)
    # The longest conditions are the most technical ones. They give way first.
    for place in sorted(wanted, key=lambda place: (len(paragraphs[place]), place), reverse=True):
        if verbose or room + (len(wanted) < len(held)) <= MOST_LINES:
            break
        wanted.remove(place)
        room -= len(paragraphs[place])
    for place in wanted:
        lines += paragraphs[place]
    if further := len(held) - len(wanted):
        noun = "detail" if further == 1 else "details"
        lines.append(f"  ({further} further {noun} in the verbose statement)")
    return "\n".join(lines)


def attacks(guarantee: "Guarantee") -> str:
    """Return what the guarantee means to a person: how often attacks can be right about them."""
    unit, mu = guarantee.unit, guarantee.mu
    replaced = f"which of two {unit}s was in the data"
    question = replaced if guarantee.adjacency is Adjacency.REPLACE_ONE else f"whether a {unit} was in the data"
    best = f"the best guess {question} is right at most {_percent(guarantee.best_guess)} of the time (chance: 50 %)"
    found = f"with {_percent(FALSE_ALARMS)} false alarms, it finds at most {_percent(guarantee.tpr(FALSE_ALARMS))}"
    return f"{best}; {found}" + (f" (Gaussian-DP mu = {upwards(mu, 3)})" if math.isfinite(mu) else "")


def _percent(share: float) -> str:
    """Return a share in percent, rounded up."""
    return f"{min(float(upwards(100 * share, 3)), 100):g} %"


def upwards(value: float, digits: int) -> str:
    """Return a number in few digits, rounded up: a quoted number must not promise more than was certified.

    A relative excess of 1e-12, a rounding error of the number itself, is ignored.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    with localcontext(prec=digits, rounding=ROUND_CEILING):
        return f"{float(+Decimal(value * (1 - 1e-12))):.{digits}g}"


def paragraph(label: str, text: str, is_one_line: bool) -> list[str]:
    """Return a labelled paragraph of a statement, as one line or as lines of at most ``WIDTH`` columns."""
    first = f"  {label:<9} "
    width = len(first) + len(text) + 1 if is_one_line else WIDTH
    wrapper = textwrap.TextWrapper(width, first, " " * len(first), break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(f"{text}.")
