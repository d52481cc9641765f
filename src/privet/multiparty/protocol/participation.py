"""One party's participation in a study, from comparing the study files to the trained model.

The order of the steps protects the people in the tables. A party checks its table before it connects, so a table that
does not match the study is refused where only its owner sees it: once a session has begun, whether a party stops must
not depend on its rows. The plan is made only after all parties have announced their numbers of rows. The budget is
recorded, and the first noisy sum opened, only after all parties hold their shares of that sum. In a relay, it is
recorded before the first state is handed over.
"""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.protocol.aggregation import Aggregator, JointAggregator, JointProblem
from privet.multiparty.protocol.agreement import agree_on_plan, agree_on_study, agreement
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.protocol.output import joint_output_perturbation, output_plan
from privet.multiparty.protocol.relay import Owner, draw_lots, run_relay
from privet.multiparty.protocol.relay_plan import RelayPlan
from privet.multiparty.study import Study, StudyError
from privet.multiparty.transport.session import Session
from privet.plans.aggregation import AggregationPlan
from privet.privacy.guarantees.guarantee import Guarantee
from privet.privacy.ledger.spending import book_spending
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.interface import Problem, Progress, Release

Table = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Encoded rows and targets."""

_WIDTH = 8  # bytes in which a number of rows is sent


async def take_part(
    session: Session,
    study: Study,
    table: Table | None,
    *,
    check: Callable[[Guarantee], None] | None = None,
    book: Callable[[Guarantee], None] | None = book_spending,
    progress: Progress | None = None,
) -> Release:
    """Run a study's protocol as one of its parties.

    Parameters
    ----------
    session : Session
        The connection with the other parties.
    study : Study
        The study as this party has it.
    table : (array, array) or None
        This party's rows and targets, as :meth:`~privet.multiparty.Study.encode` returns them, or None if it brings
        none. Encode them before connecting, because an error during the session is noticed by the other parties.
    check : callable or None
        Called with the guarantee before any party computes or records anything. An error stops all parties.
    book : callable or None
        Called with the guarantee just before anything is opened or handed over, and never if the run fails earlier. By
        default, it is booked in the ledgers of :func:`privet.spending`.
    progress : callable or None
        Called with the number of steps done and planned; in a relay, of turns.

    Raises
    ------
    StudyError
        The parties hold different studies.
    NetworkError
        A party is disconnected or silent, or has stopped. The message names the party and the cause.
    """
    n = 0 if table is None else len(table[1])
    local = None if table is None or not n else study.problem([n]).local(*table)
    await agree_on_study(session, study)
    counts = [_count(message) for message in await session.exchange(n.to_bytes(_WIDTH, "big"))]
    problem = study.problem(counts)
    order = await draw_lots(session, study.digest) if study.order == "lot" else tuple(range(session.parties))
    plan = plan_of(study, problem, order)
    if check is not None:
        check(plan.guarantee())
    await agree_on_plan(session, study, plan)

    def before_release() -> None:
        if book is not None:
            book(plan.guarantee())

    if isinstance(plan, RelayPlan):
        release = await _relayed(session, study, plan, problem, local, before_release, progress)
    else:
        aggregator = JointAggregator(plan, session, local, before_release)
        release = await trained(study, problem, aggregator, progress)
    agreed = agreement(study)
    return Release(release.weights, release.guarantee.assuming(agreed), {**release.trace, "counts": counts})


async def trained(
    study: Study, problem: JointProblem, aggregator: Aggregator, progress: Progress | None = None
) -> Release:
    """Train the model of a study with an aggregator, by the study's method."""
    if study.method == "output":
        return await joint_output_perturbation(problem, aggregator)
    return await joint_gradient_descent(
        problem, aggregator, step_size=study.step_size, averaged=study.averaged, progress=progress
    )


async def _relayed(
    session: Session,
    study: Study,
    plan: RelayPlan,
    problem: JointProblem,
    local: Problem | None,
    before_release: Callable[[], None],
    progress: Progress | None,
) -> Release:
    """Run a relay. ``local`` are this party's rows, or None if it brings none."""
    owner = None if local is None else Owner(plan, session.index, local, NoiseSource())
    return await run_relay(
        session,
        plan,
        owner,
        problem.start(),
        names=[party.name for party in study.parties],
        agreed=hashlib.sha256(f"{study.digest} {plan!r}".encode()).digest(),
        before_release=before_release,
        progress=progress,
    )


def plan_of(study: Study, problem: JointProblem, order: Sequence[int] | None = None) -> AggregationPlan | RelayPlan:
    """Return the plan of a study. All parties compute the same plan from public numbers.

    ``order`` is the order of the parties in a relay, by default that of the study.
    """
    if study.method != "relay":
        return sum_plan(study, problem)
    return RelayPlan.for_budget(
        problem,
        study.budget(problem.n),
        order=range(len(problem.counts)) if order is None else order,
        passes=study.passes,
        batch=study.batch,
        step_size=study.step_size,
        clip_norm=study.gradient_clip,
        can_skip=study.on_failure == "skip",
    )


def sum_plan(study: Study, problem: JointProblem) -> AggregationPlan:
    """Return the plan of a study that opens noisy sums."""
    budget = study.budget(problem.n)
    jointly = not study.servers or study.trust == "majority"  # Otherwise each server draws noise of its own.
    if study.method == "output":
        return output_plan(problem, budget, jointly=jointly)
    return gradient_plan(problem, budget, steps=study.steps, clip_norm=study.gradient_clip, jointly=jointly)


def _count(message: bytes) -> int:
    if len(message) != _WIDTH:
        raise StudyError("A party did not announce its number of rows. Nothing was released.")
    return int.from_bytes(message, "big")
