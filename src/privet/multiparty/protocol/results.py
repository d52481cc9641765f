"""The result of a study, which all members sign, and its verification."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from privet.linear import TableModel
from privet.multiparty.identity.certificates import verify
from privet.multiparty.protocol.agreement import agree
from privet.multiparty.study import MODELS, Study, StudyError, check_digest
from privet.multiparty.transport.session import Session
from privet.solvers.base.interface import Release
from privet.tables import NumericTarget

_METHODS = {"gradient": "joint gradient descent", "output": "joint output perturbation", "relay": "relay"}
_SIGNED = ("schema", "model", "study")
_COURSE = "relay"  # key of what happened in a relay, which is signed, too
_LEFT_OUT = "left_out"  # key of the owners whose contribution exceeded its bound, signed as well
_TOLD = ("order", "skipped")


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
    if study.check_norms:
        result[_LEFT_OUT] = [study.owner_names[index] for index in release.trace[_LEFT_OUT]]
    return result


def signed_text(result: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed: the result as JSON with sorted keys."""
    return json.dumps(result, sort_keys=True, allow_nan=False).encode()


async def sign(session: Session, study: Study, result: Mapping[str, Any]) -> list[Signature]:
    """Check that all parties have the same result, and return every party's signature of it.

    Without keys there are no signatures, and the results are only compared. Parties that a relay skipped do not sign.
    """
    payload = signed_text(result)
    await agree(session, study, hashlib.sha256(payload).digest(), "a different result. Nothing was saved.")
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
        signed = (*_SIGNED, *(key for key in (_COURSE, _LEFT_OUT) if key in fields))
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
