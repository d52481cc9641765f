"""The facts of a federated run: its plan, and the scores of its rounds, which were computed on public data."""

import math
from typing import Any

from privet.privacy import Guarantee
from privet.report.facts import Curve, Facts
from privet.report.sources.estimators import HONEST_MAJORITY, ONE_HONEST
from privet.report.sources.networks import plan_settings, spending_curve

_SERVER = (
    "Each client trained on its own data, and one server saw the update of every sampled client without noise. The "
    "server is trusted with these updates. Everybody who sees only the global models is covered by the promise."
)
_COMMITTEE = (
    "Each client trained on its own data and handed in shares to several servers, so that nobody saw the update of a "
    "single client. The promise needs {honest}."
)


def facts(result: Any) -> tuple[Guarantee, Facts]:
    """Return the guarantee and the facts of what ``simulate`` returned."""
    committee = getattr(result.plan, "committee", None)
    honest = ONE_HONEST if committee is not None and committee.trust == "one" else HONEST_MAJORITY
    rounds, spent = len(result.history), result.history[-1].spent if result.history else 0
    parameters = sum(array.size for array in result.weights.values())
    settings = [
        ("Trained parameters", f"{parameters:,}"),
        *plan_settings(result.plan),
        ("Rounds", f"{rounds:,} of {result.plan.steps:,}"),
    ]
    if committee is not None:
        settings.append(("Committee", f"{committee.servers} servers, trust: {committee.trust}"))
    scored = [(float(each.number), each.score) for each in result.history if each.score is not None]
    scores = tuple((number, score) for number, score in scored if math.isfinite(score))
    curves = spending_curve(result.plan, result.guarantee, spent, "round")
    if len(scores) > 1:
        note = "The return value of evaluate, which must use public data only."
        if lost := len(scored) - len(scores):
            note += f" In {lost} round{'' if lost == 1 else 's'}, it was not a finite number."
        curves.insert(0, Curve("Score after each round, on public data", "rounds", "score", scores, note))
    found = Facts(
        kind="federated model",
        title="A federated model with privacy for each client",
        purpose=f"was trained by federated learning and has {parameters:,} parameters",
        settings=settings,
        trust=_SERVER if committee is None else _COMMITTEE.format(honest=honest),
        deployment="Federated",
        curves=tuple(curves),
    )
    return result.guarantee, found
