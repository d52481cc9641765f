"""One party's participation in a study, from comparing the study files to the result that all parties sign.

The order of the steps protects the people in the tables. A party checks its table before it connects, so a table that
does not match the study is refused where only its owner sees it: once a session has begun, whether a party stops must
not depend on its rows. The plan is made only after all parties have announced their numbers of rows. The budget is
recorded, and the first noisy sum opened, only after all parties hold their shares of that sum. In a relay, it is
recorded before the first state is handed over.
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
from privet.multiparty.identity.certificates import check as check_certificate
from privet.multiparty.identity.certificates import verify
from privet.multiparty.protocol.aggregation import Aggregator, JointAggregator, JointProblem
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.protocol.output import joint_output_perturbation, output_plan
from privet.multiparty.protocol.relay import Owner, draw_lots, run_relay
from privet.multiparty.protocol.relay_plan import RelayPlan
from privet.multiparty.study import MODELS, Study, StudyError, check_digest
from privet.multiparty.transport.session import Session
from privet.plans.aggregation import AggregationPlan
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, enforced
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.interface import Problem, Progress, Release
from privet.tables import NumericTarget

Table = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Encoded rows and targets."""

_WIDTH = 8  # bytes in which a number of rows is sent
_METHODS = {"gradient": "joint gradient descent", "output": "joint output perturbation", "relay": "relay"}
_SIGNED = ("schema", "model", "study")
_COURSE = "relay"  # key of what happened in a relay, which is signed, too
_TOLD = ("order", "skipped")


async def take_part(
    session: Session,
    study: Study,
    table: Table | None,
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
    table : (array, array) or None
        This party's rows and targets, as :meth:`~privet.multiparty.Study.encode` returns them, or None if it brings
        none. Encode them before connecting, because an error during the session is noticed by the other parties.
    check : callable or None
        Called with the guarantee before any party computes or records anything. An error stops all parties.
    book : callable or None
        Called with the guarantee just before anything is opened or handed over, and never if the run fails earlier.
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


def agreement(study: Study) -> Assumption:
    """Return the condition that everybody held the same study."""
    return enforced(
        f"all parties held the same study {study.name!r} (SHA-256 {study.digest[:16]}), and values beyond its bounds "
        "were clipped to them"
    )


async def agree_on_study(session: Session, study: Study) -> None:
    """Stop all parties unless they hold the same study, and their certificates state the names in it."""
    await _agree(
        session,
        study,
        study.digest.encode(),
        f"a different study than party {session.index} ({study.members[session.index].name}). Nothing was released. "
        "Compare the study files, and the versions of privet.",
    )
    if session.identity is not None and session.certificates is not None:
        for index, certificate in enumerate(session.certificates):
            check_certificate(certificate, session.identity.authority, party=index, name=study.members[index].name)


async def agree_on_plan(session: Session, study: Study, plan: AggregationPlan | RelayPlan) -> None:
    """Stop all parties unless they have the same lattice, field and noise, before any share is sent.

    This can fail if a party announced different numbers of rows to different parties, or if libraries differ in the
    last digit of a result.
    """
    await _agree(
        session,
        study,
        hashlib.sha256(repr(plan).encode()).digest(),
        "a different plan for the same study. Nothing was released. Use the same versions of privet, numpy and scipy "
        "everywhere.",
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
        "max_iter": study.passes if study.method == "relay" else study.steps,
    }
    if study.model == "huber" and study.threshold is not None:
        assert isinstance(study.table.target, NumericTarget)
        settings["threshold"] = study.table.target.encode_distance(study.threshold)
    counts = release.trace["counts"]
    who = "owners" if study.servers else "parties"
    reason = f"{sum(count > 0 for count in counts)} {who} with {sum(counts)} rows in all"
    model = TableModel(study.table, MODELS[study.model](**settings))
    model.adopt(release, method=_METHODS[study.method], reason=reason)
    result = {**model.to_dict(), "study": {"digest": study.digest, **study.to_dict()}}
    if study.method == "relay":
        result[_COURSE] = {key: [study.parties[index].name for index in release.trace[key]] for key in _TOLD}
    return result


def signed_text(result: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed: the result as JSON with sorted keys."""
    return json.dumps(result, sort_keys=True, allow_nan=False).encode()


async def sign(session: Session, study: Study, result: Mapping[str, Any]) -> list[Signature]:
    """Check that all parties have the same result, and return every party's signature of it.

    Without keys there are no signatures, and the results are only compared. Parties that a relay skipped do not sign.
    """
    payload = signed_text(result)
    await _agree(session, study, hashlib.sha256(payload).digest(), "a different result. Nothing was saved.")
    if session.identity is None or session.certificates is None:
        return []
    signatures = await session.exchange(session.identity.sign(payload))
    missing = skipped(study, result)
    signed = [
        Signature(party.name, certificate, signature)
        for party, certificate, signature in zip(study.members, session.certificates, signatures, strict=True)
        if party.name not in missing
    ]
    _check_signatures(study, signed, payload, session.identity.authority)
    return signed


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


def verify_result(fields: Mapping[str, Any], authority: bytes, at: datetime | None = None) -> Study:
    """Check that every party of the study signed a result, and return the study. A relay may have skipped some.

    The digest is computed again from the study in the result, so it binds the exact list of parties. The certificate
    of each signature must state the position and the name of its party in this list.

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
        The file is not the result of a study, its study is not valid, or a signature is missing or not valid.
    """
    try:
        signed = (*_SIGNED, _COURSE) if _COURSE in fields else _SIGNED
        payload = signed_text({key: fields[key] for key in signed})
        values = {key: value for key, value in fields["study"].items() if key != "digest"}
        check_digest(values, fields["study"]["digest"])
        study = Study.from_dict(values)
        signatures = [
            Signature(each["party"], each["certificate"].encode(), base64.b64decode(each["signature"]))
            for each in fields["signatures"]
        ]
    except StudyError as error:
        raise ValueError(f"The result does not name a valid study. {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError("This file is not the result of a study. `privet party` writes such files.") from error
    if not signatures:
        raise ValueError("The result is not signed, because its study was run without keys on one machine.")
    missing = skipped(study, fields)
    names = [party.name for party in study.members if party.name not in missing]
    if [each.party for each in signatures] != names:
        raise ValueError(f"The result is not signed by all of {', '.join(names)}. Use the file that the study wrote.")
    _check_signatures(study, signatures, payload, authority, at)
    return study


def skipped(study: Study, fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the parties that a relay skipped, as the others signed it, which must be a majority."""
    if study.on_failure != "skip":
        return []
    try:
        names = [str(name) for name in fields[_COURSE]["skipped"]]
    except (KeyError, TypeError) as error:
        raise ValueError("The result does not say who was skipped. Use the file that the study wrote.") from error
    if 2 * len(names) >= len(study.parties) or not {*names} <= {party.name for party in study.parties}:
        raise ValueError(f"The result says that {', '.join(names)} were skipped, which the study does not allow.")
    return names


def _check_signatures(
    study: Study, signatures: Sequence[Signature], payload: bytes, authority: bytes, at: datetime | None = None
) -> None:
    """Check that these parties, with their positions and names in their certificates, signed the payload."""
    names = [party.name for party in study.members]
    for each in signatures:
        who: dict[str, Any] = {"party": names.index(each.party), "name": each.party}
        verify(each.certificate, payload, each.signature, authority=authority, **who, at=at)


async def _agree(session: Session, study: Study, own: bytes, difference: str) -> None:
    """Stop all parties unless every party sends the same message as this one."""
    messages = await session.exchange(own)
    others = [index for index, theirs in enumerate(messages) if theirs != own and index in session.left]
    if others:
        named = " and ".join(f"party {index} ({study.members[index].name})" for index in others)
        cause = f"{named} {'has' if len(others) == 1 else 'have'} {difference}"
        await session.stop(cause)  # The cause is public, and the other parties must learn it too.
        raise StudyError(cause)


def _count(message: bytes) -> int:
    if len(message) != _WIDTH:
        raise StudyError("A party did not announce its number of rows. Nothing was released.")
    return int.from_bytes(message, "big")
