"""One party's participation in a study, from comparing the study files to the signed result.

The order of the steps protects the people in the tables. A party opens its table only after all parties have agreed on
the study. The plan is made only after all parties have announced their numbers of rows. The budget is recorded, and
the first noisy sum opened, only after all parties hold their shares of that sum.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.identity.certificates import verify
from privet.multiparty.protocol.aggregation import JointAggregator
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.protocol.output import joint_output_perturbation, output_plan
from privet.multiparty.protocol.problem import JointProblem
from privet.multiparty.protocol.result import Signature, signed_text
from privet.multiparty.study import Study, StudyError
from privet.multiparty.transport.network import Session
from privet.plans.aggregation import AggregationPlan
from privet.privacy.guarantees.guarantee import Guarantee, enforced
from privet.solvers.base.release import Progress, Release
from privet.tables import TableError

Table = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Encoded rows and targets."""

_WIDTH = 8  # bytes in which a number of rows is sent


async def take_part(
    session: Session,
    study: Study,
    load: Callable[[], Table | None],
    *,
    book: Callable[[Guarantee], None] | None = None,
    progress: Progress | None = None,
) -> Release:
    """Run a study's protocol as one of its parties.

    Parameters
    ----------
    session : Session
        The connection with the other parties.
    study : Study
        The study as this party has it.
    load : callable
        Reads and encodes this party's table, or returns None if it brings none. It is called after all parties have
        confirmed that they hold the same study.
    book : callable or None
        Called with the guarantee just before anything is opened, and never if the run fails earlier.
    progress : callable or None
        Called with the number of steps done and planned.

    Raises
    ------
    StudyError
        The parties hold different studies.
    NetworkError
        A party is disconnected or silent, or has stopped. The message names the party and the cause.
    """
    await _agree(
        session,
        study,
        study.digest.encode(),
        f"a different study than party {session.index} ({study.parties[session.index].name}). No data was read. "
        "Compare the study files.",
    )
    table = await _loaded(session, study, load)
    number = (0 if table is None else len(table[1])).to_bytes(_WIDTH, "big")
    counts = [_count(message) for message in await session.exchange(number)]
    problem = study.problem(counts)
    plan = plan_of(study, problem)
    # All parties must use the same lattice, field and noise before any share is sent. This can fail if a party
    # announced different numbers of rows to different parties, or if libraries differ in the last digit of a result.
    await _agree(
        session,
        study,
        hashlib.sha256(repr(plan).encode()).digest(),
        "a different plan for the same study. Nothing was released. Use the same versions of privet, numpy and scipy "
        "everywhere.",
    )
    local = None if table is None or not counts[session.index] else problem.local(*table)

    def before_release() -> None:
        if book is not None:
            book(plan.guarantee())

    aggregator = JointAggregator(plan, session, local, before_release)
    if study.method == "gradient":
        release = await joint_gradient_descent(
            problem,
            aggregator,
            step_size=study.step_size,
            averaged=study.averaged,
            progress=progress,
        )
    else:
        release = await joint_output_perturbation(problem, aggregator)
    agreed = enforced(
        f"all parties held the same study {study.name!r} (SHA-256 {study.digest[:16]}), and values beyond its bounds "
        "were refused"
    )
    return Release(release.weights, release.guarantee.assuming(agreed), {**release.trace, "counts": counts})


def plan_of(study: Study, problem: JointProblem) -> AggregationPlan:
    """Return the plan of a study. All parties compute the same plan from public numbers."""
    budget = study.budget(problem.n)
    if study.method == "output":
        return output_plan(problem, budget)
    return gradient_plan(problem, budget, steps=study.steps, clip_norm=study.gradient_clip)


async def sign(session: Session, study: Study, result: Mapping[str, Any]) -> list[Signature]:
    """Check that all parties have the same result, and return every party's signature of it.

    Without keys there are no signatures, and the results are only compared.
    """
    payload = signed_text(result)
    await _agree(session, study, hashlib.sha256(payload).digest(), "a different result. Nothing was saved.")
    if session.identity is None or session.certificates is None:
        return []
    signatures = await session.exchange(session.identity.sign(payload))
    for index, (certificate, signature) in enumerate(zip(session.certificates, signatures, strict=True)):
        verify(certificate, payload, signature, authority=session.identity.authority, party=index)
    names = [party.name for party in study.parties]
    return [Signature(*each) for each in zip(names, session.certificates, signatures, strict=True)]


async def _agree(session: Session, study: Study, own: bytes, difference: str) -> None:
    """Stop all parties unless every party sends the same message as this one."""
    others = [index for index, theirs in enumerate(await session.exchange(own)) if theirs != own]
    if others:
        named = " and ".join(f"party {index} ({study.parties[index].name})" for index in others)
        cause = f"{named} has {difference}"
        await session.stop(cause)  # The cause is public. A party that raises it must not keep it from the others.
        raise StudyError(cause)


async def _loaded(session: Session, study: Study, load: Callable[[], Table | None]) -> Table | None:
    """Load this party's table. If it does not match the study, the other parties learn only that."""
    try:
        return load()
    except TableError as error:
        name = study.parties[session.index].name
        await session.stop(f"the table of {name} does not match the study's columns, bounds or levels")
        raise TableError(f"{str(error).rstrip('.')}. All parties were stopped. Nothing was released.") from error


def _count(message: bytes) -> int:
    if len(message) != _WIDTH:
        raise StudyError("A party did not announce its number of rows. Nothing was released.")
    return int.from_bytes(message, "big")
