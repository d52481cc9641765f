"""One party's participation in a study, from comparing the study files to the result that all parties sign.

The order of the steps protects the people in the tables. A party opens its table only after all parties have agreed on
the study. The plan is made only after all parties have announced their numbers of rows. The budget is recorded, and
the first noisy sum opened, only after all parties hold their shares of that sum.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.linear import TableModel
from privet.multiparty.identity.certificates import verify
from privet.multiparty.protocol.aggregation import JointAggregator, JointProblem
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.protocol.output import joint_output_perturbation, output_plan
from privet.multiparty.study import MODELS, Study, StudyError
from privet.multiparty.transport.network import Session
from privet.plans.aggregation import AggregationPlan
from privet.privacy.guarantees.guarantee import Guarantee, enforced
from privet.solvers.base.interface import Progress, Release
from privet.tables import NumericTarget, TableError

Table = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Encoded rows and targets."""

_WIDTH = 8  # bytes in which a number of rows is sent
_METHODS = {"gradient": "joint gradient descent", "output": "joint output perturbation"}
_SIGNED = ("schema", "model", "study")


async def take_part(
    session: Session,
    study: Study,
    load: Callable[[], Table | None],
    *,
    check: Callable[[Guarantee], None] | None = None,
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
    check : callable or None
        Called with the guarantee before any party computes or records anything. An error stops all parties.
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
        "Compare the study files, and the versions of privet.",
    )
    table = await _loaded(session, study, load)
    number = (0 if table is None else len(table[1])).to_bytes(_WIDTH, "big")
    counts = [_count(message) for message in await session.exchange(number)]
    problem = study.problem(counts)
    plan = plan_of(study, problem)
    if check is not None:
        check(plan.guarantee())
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


@dataclass(frozen=True)
class Signature:
    """A party's signature, which states that the party computed the signed result."""

    party: str
    certificate: bytes
    signature: bytes


def to_result(study: Study, release: Release) -> dict[str, Any]:
    """Return what all parties sign: the study, and the model in the format that :func:`privet.load` reads."""
    settings: dict[str, Any] = {
        "epsilon": study.epsilon,
        "delta": release.guarantee.delta,
        "alpha": study.alpha,
        "fit_intercept": study.intercept_scaling > 0,
        "intercept_scaling": study.intercept_scaling,
        "max_iter": study.steps,
    }
    if study.model == "huber" and study.threshold is not None:
        assert isinstance(study.table.target, NumericTarget)
        settings["threshold"] = study.table.target.encode_distance(study.threshold)
    counts = release.trace["counts"]
    reason = f"{sum(count > 0 for count in counts)} parties with {sum(counts)} rows in all"
    model = TableModel(study.table, MODELS[study.model](**settings))
    model.adopt(release, method=_METHODS[study.method], reason=reason)
    return {**model.to_dict(), "study": {"digest": study.digest, **study.to_dict()}}


def signed_text(result: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed: the result as JSON with sorted keys."""
    return json.dumps(result, sort_keys=True, allow_nan=False).encode()


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


def with_signatures(result: Mapping[str, Any], signatures: Sequence[Signature]) -> dict[str, Any]:
    """Return the content of a result file: the result, and the signatures as text."""
    texts = [
        {
            "party": each.party,
            "certificate": each.certificate.decode(),
            "signature": base64.b64encode(each.signature).decode(),
        }
        for each in signatures
    ]
    return {**result, "signatures": texts}


def verify_result(fields: Mapping[str, Any], authority: bytes, at: datetime | None = None) -> list[str]:
    """Check that every party of the study signed a result, and return the names of the parties.

    Parameters
    ----------
    fields : mapping
        The content of a result file, as :func:`with_signatures` returns it.
    authority : bytes
        Certificate of the study's authority, as PEM.
    at : datetime or None
        When the certificates must have been valid, with a time zone. None means now.

    Raises
    ------
    ValueError
        The file is not the result of a study, or a signature is missing or not valid.
    """
    try:
        payload = signed_text({key: fields[key] for key in _SIGNED})
        study = fields["study"]
        if not {"name", "digest"} <= study.keys():
            raise KeyError("name")
        names = [str(party["name"]) for party in study["parties"]]
        signatures = [
            Signature(each["party"], each["certificate"].encode(), base64.b64decode(each["signature"]))
            for each in fields["signatures"]
        ]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError("This file is not the result of a study. `privet party` writes such files.") from error
    if not signatures:
        raise ValueError("The result is not signed, because its study was run without keys on one machine.")
    if [each.party for each in signatures] != names:
        raise ValueError(f"The result is not signed by all of {', '.join(names)}. Use the file that the study wrote.")
    for index, each in enumerate(signatures):
        verify(each.certificate, payload, each.signature, authority=authority, party=index, at=at)
    return names


async def _agree(session: Session, study: Study, own: bytes, difference: str) -> None:
    """Stop all parties unless every party sends the same message as this one."""
    others = [index for index, theirs in enumerate(await session.exchange(own)) if theirs != own]
    if others:
        named = " and ".join(f"party {index} ({study.parties[index].name})" for index in others)
        cause = f"{named} {'has' if len(others) == 1 else 'have'} {difference}"
        await session.stop(cause)  # The cause is public, and the other parties must learn it too.
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
