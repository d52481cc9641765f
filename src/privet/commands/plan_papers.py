"""What the papers would take for the problem of ``privet plan``: numbers of steps and step sizes of their theorems."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from privet.checks import count
from privet.plans import prescriptions
from privet.privacy import Budget

# Logistic regression on rows of norm at most 1, started at zero.
LIPSCHITZ, SMOOTHNESS, GAP = 1.0, 0.25, 0.6931472
RADIUS, PENALTY = 10.0, 0.01  # norm of the best weights; an l2 penalty


@dataclass(frozen=True)
class Advice:
    """What one theorem would take, or the reason why it does not apply."""

    paper: str
    theorem: str
    steps: str
    step_size: str = "-"
    promise: str = "-"


def print_advice(n: int, dimension: int, budget: Budget, batch_size: int | None, console: Console) -> list[Advice]:
    """Print one row per theorem, and return these rows."""
    rows = list(advice(n, count("dimension", dimension), budget, batch_size))
    table = Table(title="What the papers would take", title_justify="left")
    for name in ("paper", "theorem", "steps", "step size", "it promises"):
        table.add_column(name, justify="right" if name == "step size" else "left")
    for row in rows:
        table.add_row(row.paper, row.theorem, row.steps, row.step_size, row.promise)
    console.print(table)
    console.print(
        f"These are the theorems' values for logistic regression on rows of norm at most 1 with {dimension:,} weights, "
        f"if the best weights have norm at most {RADIUS:g}. Theorem 2 has a penalty of {PENALTY:g}. Constants that "
        "a theorem does not state are 1. privet.plans.prescriptions has the same functions for other constants. The "
        "defaults of the estimators are not these.",
        highlight=False,
        soft_wrap=True,
    )
    return rows


def advice(n: int, dimension: int, budget: Budget, batch_size: int | None) -> Iterator[Advice]:
    """Yield what each theorem would take."""
    forms: tuple[tuple[str, str, Callable[[], tuple[str, float, str]]], ...] = (
        ("Efficient Private ERM", "2: output, strongly convex", lambda: _output(n, dimension, budget, PENALTY)),
        ("Efficient Private ERM", "3: output, convex", lambda: _output(n, dimension, budget, 0.0)),
        ("Efficient Private ERM", "5: RRPSGD", lambda: _random_round(n, dimension, budget)),
        ("DP-LSSGD", "4: convex", lambda: _smoothed(n, dimension, budget, batch_size or n)),
        ("Privacy Amplification by Iteration", "29: Stop-PNSGD, local", lambda: _local(n, dimension, budget)),
        ("Privacy Amplification by Iteration", "30: Skip-PNSGD", lambda: _skipping(n, dimension, budget)),
        ("Dissertation (Wang)", "4.5.4: DP-SRM", lambda: _recursive(n, dimension, budget)),
    )
    for paper, theorem, form in forms:
        try:
            steps, step_size, promise = form()
        except ValueError as error:
            yield Advice(paper, theorem, str(error))
        else:
            yield Advice(paper, theorem, steps, f"{step_size:.3g}", promise)
    yield _federated(n, budget, batch_size)


def _output(n: int, dimension: int, budget: Budget, penalty: float) -> tuple[str, float, str]:
    taken = prescriptions.output_descent(
        n,
        dimension,
        budget,
        lipschitz=LIPSCHITZ,
        smoothness=SMOOTHNESS + penalty,
        strong_convexity=penalty,
        radius=RADIUS,
    )
    return f"T = {taken.steps:,}", taken.step_size, f"excess {taken.excess:.3g}"


def _random_round(n: int, dimension: int, budget: Budget) -> tuple[str, float, str]:
    taken = prescriptions.random_round(
        n, dimension, budget, lipschitz=LIPSCHITZ, smoothness=SMOOTHNESS, gap=GAP, distance=RADIUS
    )
    return f"T up to {taken.most_steps:,}", taken.step_size, f"excess {taken.excess:.3g}"


def _smoothed(n: int, dimension: int, budget: Budget, batch_size: int) -> tuple[str, float, str]:
    taken = prescriptions.smoothed_descent(
        n,
        dimension,
        budget,
        batch_size=batch_size,
        lipschitz=LIPSCHITZ,
        smoothness=SMOOTHNESS,
        distance=RADIUS,
    )
    return f"T = {taken.steps:,}, batches of {batch_size:,}", taken.step_size, f"excess {taken.error:.3g}"


def _local(n: int, dimension: int, budget: Budget) -> tuple[str, float, str]:
    taken = prescriptions.local_pass(n, dimension, budget, lipschitz=LIPSCHITZ, radius=RADIUS)
    return f"T up to {n:,}", taken.step_size, f"excess {taken.excess:.3g}"


def _skipping(n: int, dimension: int, budget: Budget) -> tuple[str, float, str]:
    taken = prescriptions.skipping_pass(n, dimension, budget, lipschitz=LIPSCHITZ, smoothness=SMOOTHNESS, radius=RADIUS)
    return f"T = {n // 2:,} to {n:,}", taken.step_size, f"excess {taken.excess:.3g}"


def _recursive(n: int, dimension: int, budget: Budget) -> tuple[str, float, str]:
    taken = prescriptions.recursive_momentum(n, dimension, budget, lipschitz=LIPSCHITZ, smoothness=SMOOTHNESS, gap=GAP)
    steps = f"T = {taken.steps:,}, batches of {taken.first_batch_size:,}, then {taken.batch_size:,}"
    return steps, 1 / (2 * SMOOTHNESS * taken.shortening), f"gradient of order {taken.accuracy:.3g}"


def _federated(n: int, budget: Budget, batch_size: int | None) -> Advice:
    """Return the number of rounds if the records are clients, which needs the number of clients in a round."""
    paper, theorem = "DP-Fed-LS", "3: records as clients"
    if batch_size is None:
        return Advice(paper, theorem, "needs --batch-size, the number of clients in a round")
    try:
        rounds = prescriptions.largest_useful_rounds(n, batch_size, budget, lipschitz=LIPSCHITZ)
    except ValueError as error:
        return Advice(paper, theorem, str(error))
    return Advice(paper, theorem, f"T = {rounds:,} rounds of {batch_size:,} clients")
