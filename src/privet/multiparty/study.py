"""The study file: everything that is public, and on which all parties agree before any of them reads its data.

.. code-block:: toml

    name = "stroke"
    epsilon = 1.0
    delta = 1e-6                    # default: min(1e-6, 0.01/n); 0 for pure epsilon, with several times the noise
    model = "logistic"              # or ridge, huber
    method = "gradient"             # or output, or relay
    steps = 100

    [[party]]
    name = "north"
    address = "north.example:9100"

    [[party]]                       # at least three, for a relay two; one may bring no data
    ...

    [table]
    target = "stroke"
    target_levels = ["no", "yes"]   # for numbers: target_bounds = [low, high]

    [table.numeric]
    age = [0, 120]

    [table.categorical]
    sex = ["female", "male"]

With many owners, a few servers compute instead, and owners only hand in shares:

.. code-block:: toml

    trust = "one"                   # or majority
    owners = 1000                   # or a list: one [[party]] per owner, without an address
    rows_per_owner = 500            # the most rows that an owner may bring
    fewest_owners = 800             # nothing is opened if fewer of them hand in

    [[server]]                      # 2 to 7; at least 3 with trust = "majority"
    name = "north"
    address = "north.example:9100"  # for owners; servers reach each other at the next port
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, nonnegative, positive
from privet.multiparty.models import METHODS, MODELS, check_model
from privet.multiparty.participants import (
    OF_RELAYS,
    OF_SERVERS,
    PartyInfo,
    StudyError,
    check_participants,
    parse_address,
    party_from,
)
from privet.multiparty.protocol.aggregation import JointProblem
from privet.objectives import L2, GeneralisedLinear, Huber
from privet.privacy.budget import Budget, default_delta
from privet.tables import NumericTarget, TableSchema

__all__ = ["METHODS", "MODELS", "PartyInfo", "Study", "StudyError", "check_digest", "parse_address"]

if TYPE_CHECKING:
    import pandas as pd

# Part of every digest. Parties sign the guarantee in words, so it changes whenever these words or a default that they
# state change: otherwise two versions would open all sums, and then disagree on what to sign. Version 0.1.0 has
# "privet study 1".
_VERSION = 5
PROTOCOL = f"privet study {_VERSION}"
_ROW_NORM = 1.0  # A TableSchema scales rows to this norm.


@dataclass(frozen=True)
class Study:
    """Everything on which the parties agree.

    Parameters
    ----------
    name : str
        Name of the study: up to 100 printable characters.
    parties : tuple of PartyInfo
        The parties in order. A party's index is its position here.
    table : TableSchema
        Columns with public bounds and levels, and the target with declared levels or bounds.
    epsilon, delta : float, float or None
        The budget. A delta of None means min(1e-6, 0.01/n), where n is the number of rows of all parties. 0 asks for
        pure epsilon.
    model : {"logistic", "ridge", "huber"}
        The model to train.
    method : {"gradient", "output", "relay"}
        ``gradient`` (MPC Grad-P) opens one noisy sum of gradients per step, and is as accurate as with pooled data.
        ``output`` (MPC Out-P) opens one noisy average of the parties' own minimisers, for logistic and huber only.
        ``relay`` passes the state of a noisy descent from owner to owner, and publishes only the last one.
    alpha : float
        Strength of the l2 penalty.
    steps, step_size, averaged : int, float or None, float
        For ``gradient``: number of steps, their size (None means 1/smoothness), and the fraction of the last iterates
        to average. ``step_size`` is also that of a relay, whose default depends on the noise.
    order : {"fixed", "lot"}
        For ``relay``: whether the owners take turns in the order of ``parties``, or in one that they draw by lot.
    passes, batch : int, int
        For ``relay``: number of turns of each owner, and number of its rows per step.
    on_failure : {"stop", "skip"}
        For ``relay``: whether all stop if an owner fails, or go on without it while more than half of them are left.
    clip_norm : float or None
        Bound to which a record's gradient is clipped, for rows of norm 1. None clips only a squared loss, to 1.
    threshold : float or None
        For ``huber``: the error, in the target's units, beyond which the loss is linear. None means an eighth of the
        width of the target's bounds.
    intercept_scaling : float
        Value of the constant column whose weight is the intercept.
    servers : tuple of PartyInfo
        The servers to which owners hand in shares, or none if the parties compute themselves. A server listens for
        owners at its port, and for the other servers at the next one.
    trust : {"majority", "one"}
        Which servers must be honest: see :mod:`privet.multiparty.protocol.committee`.
    owners : int
        Number of owners if they are not listed as parties. Each needs a key and a certificate of the study.
    rows_per_owner : int or None
        With servers: the most rows that an owner may bring. It is known before any owner calls, so that the noise does
        not depend on who takes part.
    fewest_owners : int
        With servers: nothing is opened if fewer owners hand in.
    check_norms : bool
        With servers of trust "majority": whether they verify contributions, and leave out those that are too large.
    """

    name: str
    parties: tuple[PartyInfo, ...]
    table: TableSchema
    epsilon: float
    delta: float | None = None
    model: str = "logistic"
    method: str = "gradient"
    alpha: float = 1e-3
    steps: int = 100
    step_size: float | None = None
    averaged: float = 0.3
    order: str = "fixed"
    passes: int = 1
    batch: int = 1
    on_failure: str = "stop"
    clip_norm: float | None = None
    threshold: float | None = None
    intercept_scaling: float = 0.5
    servers: tuple[PartyInfo, ...] = ()
    trust: str = "majority"
    owners: int = 0
    rows_per_owner: int | None = None
    fewest_owners: int = 1
    check_norms: bool = False

    def __post_init__(self) -> None:
        Budget(self.epsilon, 0.0 if self.delta is None else self.delta)
        for name in ("steps", "passes", "batch"):
            count(name, getattr(self, name))
        for name in ("epsilon", "alpha", "step_size", "clip_norm", "threshold"):
            if getattr(self, name) is not None:
                self._keep(name, positive(name, getattr(self, name)))
        for name in ("intercept_scaling", "averaged", "delta"):
            if getattr(self, name) is not None:
                self._keep(name, nonnegative(name, getattr(self, name)))
        if self.averaged > 1:
            raise StudyError(f"averaged must be a fraction of the steps, from 0 to 1, got {self.averaged!r}")
        check_participants(self)
        check_model(self)

    def _keep(self, name: str, number: float) -> None:
        """Store a number as a float, so that 1 and 1.0 in the file give the same digest."""
        object.__setattr__(self, name, number)

    @property
    def members(self) -> tuple[PartyInfo, ...]:
        """Those who compute together and sign the result: the servers, or all parties."""
        return self.servers or self.parties

    @property
    def n_owners(self) -> int:
        """Number of owners who may hand in shares to the servers."""
        return self.owners or len(self.parties)

    @property
    def owner_names(self) -> list[str]:
        """The names of the owners. Those who are not listed are numbered."""
        return [party.name for party in self.parties] or [f"owner {index}" for index in range(self.owners)]

    @classmethod
    def read(cls, path: str | Path) -> "Study":
        """Read a study from a TOML file."""
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise StudyError(f"The study {path} cannot be read: {error.strerror}.") from error
        except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
            raise StudyError(f"The study {path} is not valid TOML: {error}.") from error
        return cls.from_values(values, f"The study {path}")

    @classmethod
    def from_values(cls, values: Mapping[str, Any], where: str = "The study") -> "Study":
        """Read a study from the values of a TOML file."""
        known = {field.name for field in fields(cls)} - {"parties", "servers"} | {"party", "server"}
        for key in values:
            if key not in known:
                raise StudyError(f"{where} has an unknown key {key!r}. The keys are {', '.join(sorted(known))}.")
        needed = ("name", "epsilon", "table") if "server" in values else ("name", "epsilon", "party", "table")
        for key in needed:
            if key not in values:
                raise StudyError(f"{where} has no {key}. Add it.")
        options = {key: value for key, value in values.items() if key not in ("party", "server", "table")}
        parties, servers, table = values.get("party", []), values.get("server", []), values["table"]
        are_lists = isinstance(parties, list) and isinstance(servers, list)
        if not are_lists or not isinstance(table, dict) or not isinstance(values["name"], str):
            raise StudyError(f"{where} must have the name as text, parties as [[party]] and the table as [table].")
        schema = TableSchema.from_values(table, f"[table] of {where[0].lower()}{where[1:]}")
        try:
            return cls(
                parties=tuple(party_from(party, where, needs_address=not servers) for party in parties),
                servers=tuple(party_from(server, where, "server") for server in servers),
                table=schema,
                **options,
            )
        except TypeError as error:
            raise StudyError(f"{where}: {error}") from error

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Study":
        """Return the study that :meth:`to_dict` describes."""
        listed = {
            key: tuple(PartyInfo(**party) for party in values[key]) for key in ("parties", "servers") if key in values
        }
        return cls(**{**values, **listed, "table": TableSchema.from_dict(values["table"])})

    def moved(self, addresses: Sequence[tuple[str, int]]) -> "Study":
        """Return the study with other addresses of its servers or parties, for a trial on one machine."""
        key = "servers" if self.servers else "parties"
        listed: tuple[PartyInfo, ...] = getattr(self, key)
        if len(addresses) != len(listed):
            raise StudyError(f"The study has {len(listed)} {key}, got {len(addresses)} addresses.")
        moved = (replace(each, host=host, port=port) for each, (host, port) in zip(listed, addresses, strict=True))
        changed: dict[str, Any] = {key: tuple(moved)}
        return replace(self, **changed)

    def to_dict(self) -> dict[str, Any]:
        """Return the study as plain values for JSON, without the settings of relays or servers in other studies."""
        unused = {**({} if self.method == "relay" else OF_RELAYS), **({} if self.servers else OF_SERVERS)}
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in unused}
        listed = {
            key: [asdict(party) for party in getattr(self, key)] for key in ("parties", "servers") if key not in unused
        }
        return plain | listed | {"table": self.table.to_dict()}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything in the study. Two digests are equal if and only if the studies are equal."""
        return _digest(PROTOCOL, self.to_dict())

    def budget(self, n: int) -> Budget:
        """Return the budget if all parties together have n rows."""
        return Budget(self.epsilon, default_delta(n) if self.delta is None else self.delta)

    def objective(self) -> GeneralisedLinear:
        """Return the loss, in the units of the encoded target."""
        loss = MODELS[self.model]._loss
        if loss is not Huber:
            return loss()
        assert isinstance(self.table.target, NumericTarget)
        threshold = None if self.threshold is None else self.table.target.encode_distance(self.threshold)
        return Huber.for_targets(1.0, threshold)

    @property
    def gradient_clip(self) -> float | None:
        """Bound to which a record's gradient is clipped, or None if the loss bounds it."""
        return 1.0 if self.clip_norm is None and not self.objective().has_bounded_gradient else self.clip_norm

    def problem(self, counts: Sequence[int]) -> JointProblem:
        """Return the public part of the problem, given the number of rows of each party."""
        return JointProblem(
            self.objective(), L2(self.alpha), tuple(counts), _ROW_NORM, self.intercept_scaling, len(self.table.columns)
        )

    def committee_problem(self) -> JointProblem:
        """Return the public part of the problem of a study with servers, in which every owner has the most rows."""
        assert self.rows_per_owner is not None
        return replace(self.problem([self.rows_per_owner] * self.n_owners), are_limits=True)

    def encode(self, frame: "pd.DataFrame") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a party's encoded rows and targets, with values clipped to the declared bounds.

        A table that does not match the study raises :class:`~privet.tables.TableError`. Call this before connecting:
        the other parties would notice an error during a session, and it tells them something about the rows. Values
        beyond the bounds are clipped for the same reason. If they were refused, studies with different bounds would
        find the largest value of a column without spending any budget.
        """
        return self.table.encode(frame), np.asarray(self.table.encode_target(frame), dtype=np.float64)


def check_digest(values: Mapping[str, Any], digest: str) -> None:
    """Raise StudyError unless ``digest`` is that of a study as plain values, in this or an earlier version."""
    if digest not in {_digest(f"privet study {version}", values) for version in range(1, _VERSION + 1)}:
        raise StudyError("The study does not match its digest, so one of them was changed.")


def _digest(protocol: str, values: Mapping[str, Any]) -> str:
    text = json.dumps([protocol, values], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
