"""The result of a study: the model that all parties sign, how it is saved, and how its signatures are verified."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from privet.linear import MODELS, TableModel
from privet.multiparty.identity.certificates import verify
from privet.multiparty.study import Study
from privet.solvers.base.release import Release
from privet.tables import NumericTarget

_METHODS = {"gradient": "joint gradient descent", "output": "joint output perturbation"}
_SIGNED = ("schema", "model", "study")


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
