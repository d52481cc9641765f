"""One party's part in a study, from the handshake to the signed result.

The order is what protects people: agree on the study, only then open one's own table; say how many rows one brings,
only then plan; hold one's share of the first noisy sum, only then book the budget and open it.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from privet.multiparty.protocol.aggregation import JointAggregator
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.identity.keys import verify
from privet.multiparty.protocol.output import joint_output_perturbation, output_plan
from privet.multiparty.protocol.problem import JointProblem
from privet.multiparty.transport.network import Session
from privet.multiparty.study import Study, StudyError
from privet.plans.aggregation import AggregationPlan
from privet.privacy.guarantees.guarantee import Guarantee, enforced
from privet.solvers.base.release import Progress, Release
from privet.tables import TableError

Table = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Encoded rows and targets."""

_WIDTH = 8  # bytes of a number of rows


@dataclass(frozen=True)
class Signature:
    """A party's word that it arrived at the same result."""

    party: str
    certificate: bytes
    signature: bytes


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
        The connection with the others.
    study : Study
        As this party has it.
    load : callable
        Reads this party's table and encodes it, or returns None if it brings none. Called after all parties are known
        to hold the same study.
    book : callable or None
        Called with the guarantee just before anything is opened, and never if the run fails before.
    progress : callable or None
        Called with steps done and planned.

    Raises
    ------
    StudyError
        Parties hold different studies.
    NetworkError
        A party is gone, silent, or gave up; the message names it and the cause.
    """
    await _agree(session, study)
    table = await _loaded(session, study, load)
    counts = [_count_of(each) for each in await session.exchange(_number(table))]
    problem = study.problem(counts)
    delta = study.budget(problem.n).delta
    plan = plan_of(study, problem)
    await _agree_on_plan(session, study, plan)
    local = None if table is None or not counts[session.index] else problem.local(*table)

    def before_release() -> None:
        if book is not None:
            book(plan.guarantee(delta))

    aggregator = JointAggregator(plan, session, local, before_release)
    if study.method == "gradient":
        release = await joint_gradient_descent(
            problem,
            aggregator,
            delta=delta,
            step_size=study.step_size,
            averaged=study.averaged,
            progress=progress,
        )
    else:
        release = await joint_output_perturbation(problem, aggregator, delta=delta)
    agreed = enforced(
        f"all parties held the same study {study.name!r} (SHA-256 {study.digest[:16]}), and values beyond its bounds "
        "were refused"
    )
    return Release(release.weights, release.guarantee.assuming(agreed), {**release.trace, "counts": counts})


def plan_of(study: Study, problem: JointProblem) -> AggregationPlan:
    """Return the plan of a study, which all parties compute alike from public numbers."""
    budget = study.budget(problem.n)
    if study.method == "output":
        return output_plan(problem, budget)
    return gradient_plan(problem, budget, steps=study.steps, clip_norm=study.gradient_clip)


async def sign(session: Session, study: Study, result: Any) -> list[Signature]:
    """Make sure that all parties arrived at the same result, and return everybody's signature of it.

    Without keys there are no signatures, and the comparison stands alone.
    """
    payload = signed_text(result)
    own = hashlib.sha256(payload).digest()
    for index, theirs in enumerate(await session.exchange(own)):
        if theirs != own:
            name = study.parties[index].name
            await _give_up(session, f"party {index} ({name}) arrived at another result: nothing is kept")
    if session.identity is None or session.certificates is None:
        return []
    signatures = await session.exchange(session.identity.sign(payload))
    for index, (certificate, signature) in enumerate(zip(session.certificates, signatures, strict=True)):
        verify(certificate, payload, signature, authority=session.identity.authority, party=index)
    names = [party.name for party in study.parties]
    return [Signature(*each) for each in zip(names, session.certificates, signatures, strict=True)]


def signed_text(result: Any) -> bytes:
    """Return the bytes that are signed: the result as JSON with sorted keys."""
    return json.dumps(result, sort_keys=True, allow_nan=False).encode()


async def _agree(session: Session, study: Study) -> None:
    digests = [each.decode("ascii", "replace") for each in await session.exchange(study.digest.encode())]
    others = [index for index, digest in enumerate(digests) if digest != study.digest]
    if others:
        named = " and ".join(f"{index} ({study.parties[index].name})" for index in others)
        own = f"party {session.index} ({study.parties[session.index].name})"
        await _give_up(
            session,
            f"party {named} holds another study than {own}: no data was touched; compare the study files",
        )


async def _agree_on_plan(session: Session, study: Study, plan: AggregationPlan) -> None:
    """Make sure that all compute on one lattice, in one field, with one law of noise, before any share is sent.

    It can fail where a party told others different numbers of rows, or where libraries differ in a last digit.
    """
    own = hashlib.sha256(repr(plan).encode()).digest()
    for index, theirs in enumerate(await session.exchange(own)):
        if theirs != own:
            await _give_up(
                session,
                f"party {index} ({study.parties[index].name}) made another plan of the same study: nothing was "
                "released; use the same versions of privet, numpy and scipy everywhere",
            )


async def _give_up(session: Session, cause: str) -> NoReturn:
    """Raise a cause that everybody may know, here and at all others: who hears of it first does not hide it."""
    await session.stop(cause)
    raise StudyError(cause)


async def _loaded(session: Session, study: Study, load: Callable[[], Table | None]) -> Table | None:
    """Load this party's table; if it does not fit, the others are told that much and no more."""
    try:
        return load()
    except TableError as error:
        name = study.parties[session.index].name
        await session.stop(f"the table of {name} does not fit the study's columns, bounds or levels")
        raise TableError(f"{error}. All parties were stopped; nothing was released") from error


def _number(table: Table | None) -> bytes:
    return (0 if table is None else len(table[1])).to_bytes(_WIDTH, "big")


def _count_of(message: bytes) -> int:
    if len(message) != _WIDTH:
        raise StudyError("a party did not say how many rows it brings: nothing was released")
    return int.from_bytes(message, "big")
