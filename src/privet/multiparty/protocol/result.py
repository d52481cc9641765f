"""The result of a study: what all parties sign, how it is saved, and how the signatures are checked."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from privet.linear import PrivateHuberRegressor, PrivateLogisticRegression, PrivateRidge, TableModel
from privet.linear.base import PrivateLinearModel
from privet.multiparty.identity.certificates import verify
from privet.multiparty.study import Study, StudyError
from privet.multiparty.transport.network import Session
from privet.solvers.base.release import Release
from privet.tables import NumericTarget

_ESTIMATORS: dict[str, type[PrivateLinearModel]] = {
    "logistic": PrivateLogisticRegression,
    "ridge": PrivateRidge,
    "huber": PrivateHuberRegressor,
}
_SIGNED = ("schema", "model", "study")
_METHODS = {"gradient": "joint gradient descent", "output": "joint output perturbation"}


@dataclass(frozen=True)
class Signature:
    """A party's signature of the result, which states that the party computed the same."""

    party: str
    certificate: bytes
    signature: bytes

    def to_dict(self) -> dict[str, str]:
        """Return the signature as plain text fields, for JSON."""
        signature = base64.b64encode(self.signature).decode()
        return {"party": self.party, "certificate": self.certificate.decode(), "signature": signature}

    @classmethod
    def from_dict(cls, fields: Any) -> "Signature":
        """Read what :meth:`to_dict` wrote."""
        return cls(fields["party"], fields["certificate"].encode(), base64.b64decode(fields["signature"]))


def to_result(study: Study, release: Release) -> dict[str, Any]:
    """Return what all parties sign: the model, in the format that :meth:`TableModel.load` reads, and the study."""
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
        settings["threshold"] = study.threshold / study.table.target.half_width
    counts = release.trace["counts"]
    reason = f"{sum(count > 0 for count in counts)} parties with {sum(counts)} rows in all"
    model = TableModel(study.table, _ESTIMATORS[study.model](**settings))
    model.adopt(release, method=_METHODS[study.method], reason=reason)
    return {**model.to_dict(), "study": {"digest": study.digest, **study.to_dict()}}


def signed_text(result: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed: the result as JSON with sorted keys."""
    return json.dumps(result, sort_keys=True, allow_nan=False).encode()


async def sign(session: Session, study: Study, result: Mapping[str, Any]) -> list[Signature]:
    """Check that all parties have the same result, and return every party's signature of it.

    Without keys there are no signatures, and only the comparison takes place.
    """
    payload = signed_text(result)
    await compare(session, study, hashlib.sha256(payload).digest(), "computed another result. Nothing was saved.")
    if session.identity is None or session.certificates is None:
        return []
    signatures = await session.exchange(session.identity.sign(payload))
    for index, (certificate, signature) in enumerate(zip(session.certificates, signatures, strict=True)):
        verify(certificate, payload, signature, authority=session.identity.authority, party=index)
    names = [party.name for party in study.parties]
    return [Signature(*each) for each in zip(names, session.certificates, signatures, strict=True)]
