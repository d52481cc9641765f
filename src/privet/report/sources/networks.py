"""The facts of the private training of a network. Its losses are private, so none of them is among these facts."""

from typing import Any

from privet.plans import GradientPlan
from privet.privacy import Guarantee
from privet.report.facts import Curve, Facts
from privet.report.numbers import delta as as_power
from privet.report.numbers import plain
from privet.report.sources.estimators import CURATOR

MOST_LAYERS, POINTS = 8, 6


def facts(private: Any) -> tuple[Guarantee, Facts]:
    """Return the guarantee and the facts of a training that ``make_private`` returned."""
    layers = [module for module in private.model.modules() if not list(module.children())]
    names = [type(layer).__name__ for layer in layers]
    shown = ", ".join(names[:MOST_LAYERS]) + (
        f" and {len(names) - MOST_LAYERS} more" if len(names) > MOST_LAYERS else ""
    )
    trained = sum(parameter.numel() for parameter in private.model.parameters() if parameter.requires_grad)
    settings = [
        ("Model", f"{type(private.model).__name__} of {shown}"),
        ("Trained parameters", f"{trained:,}"),
        ("Optimizer", type(private.optimizer).__name__),
        *plan_settings(private.plan),
        ("Steps made", f"{private.steps_spent:,} of {private.plan.steps:,}"),
    ]
    found = Facts(
        kind="neural network",
        title="A privately trained neural network",
        purpose=f"is a neural network with {trained:,} trained parameters",
        settings=settings,
        trust=CURATOR,
        curves=tuple(
            spending_curve(private.plan, private.guarantee, private.steps_spent or private.plan.steps, "step")
        ),
    )
    return private.guarantee, found


def plan_settings(plan: Any) -> list[tuple[str, str]]:
    """Return what a plan determines, in words."""
    found = []
    if (sampler := getattr(plan, "sampler", None)) is not None:
        found.append(("Sampling", sampler.in_words()))
    for label, name in (("Clipping norm", "clip_norm"), ("Noise multiplier", "noise_multiplier")):
        if (value := getattr(plan, name, None)) is not None:
            found.append((label, plain(value)))
    return found


def spending_curve(plan: Any, guarantee: Guarantee, spent: int, step: str) -> list[Curve]:
    """Return how epsilon grew with the steps, which follows from the plan alone."""
    if not isinstance(plan, GradientPlan) or not guarantee.is_private or spent < 2 or plan.release != "all":
        return []
    shares = sorted({max(1, round(spent * (k / POINTS) ** 2)) for k in range(1, POINTS + 1)})
    points = [
        (float(done), plan.truncated(done).guarantee(guarantee.delta, unit=guarantee.unit).epsilon) for done in shares
    ]
    points[-1] = (points[-1][0], guarantee.epsilon)
    delta = as_power(guarantee.delta)
    note = f"Epsilon at delta = {delta} if only the first {step}s had been made. It follows from the plan."
    return [Curve(f"Epsilon after each {step}", f"{step}s", "epsilon", tuple(points), note)]
