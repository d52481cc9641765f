"""What all members of a study compare before they compute, so that none of them works for another study."""

import hashlib

from privet.multiparty.identity.certificates import check as check_certificate
from privet.multiparty.protocol.relay_plan import RelayPlan
from privet.multiparty.study import Study, StudyError
from privet.multiparty.transport.session import Session
from privet.plans.aggregation import AggregationPlan
from privet.privacy.guarantees.guarantee import Assumption, enforced


def agreement(study: Study) -> Assumption:
    """Return the condition that everybody held the same study."""
    return enforced(
        f"all parties held the same study {study.name!r} (SHA-256 {study.digest[:16]}), and values beyond its bounds "
        "were clipped to them"
    )


async def agree_on_study(session: Session, study: Study) -> None:
    """Stop all parties unless they hold the same study, and their certificates state the names in it."""
    await agree(
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
    await agree(
        session,
        study,
        hashlib.sha256(repr(plan).encode()).digest(),
        "a different plan for the same study. Nothing was released. Use the same versions of privet, numpy and scipy "
        "everywhere.",
    )


async def agree(session: Session, study: Study, own: bytes, difference: str) -> None:
    """Stop all parties unless every party sends the same message as this one."""
    messages = await session.exchange(own)
    others = [index for index, theirs in enumerate(messages) if theirs != own and index in session.left]
    if others:
        named = " and ".join(f"party {index} ({study.members[index].name})" for index in others)
        cause = f"{named} {'has' if len(others) == 1 else 'have'} {difference}"
        await session.stop(cause)  # The cause is public, and the other parties must learn it too.
        raise StudyError(cause)
