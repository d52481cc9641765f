"""The study file: everything that is public, and on which all parties agree before any of them reads its data.

.. code-block:: toml

    name = "stroke"
    epsilon = 1.0
    delta = 1e-6                    # default: min(1e-6, 0.01/n)
    model = "logistic"              # or ridge, huber
    method = "gradient"             # or output
    steps = 100

    [[party]]
    name = "north"
    address = "north.example:9100"

    [[party]]                       # at least three; one may bring no data
    ...

    [table]
    target = "stroke"
    target_levels = ["no", "yes"]   # for numbers: target_bounds = [low, high]

    [table.numeric]
    age = [0, 120]

    [table.categorical]
    sex = ["female", "male"]
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet import linear
from privet.checks import count, nonnegative, positive
from privet.linear.classification import PrivateClassifier
from privet.multiparty.identity.certificates import check_name
from privet.multiparty.protocol.aggregation import JointProblem
from privet.objectives import L2, GeneralisedLinear, Huber
from privet.privacy.budget import Budget, default_delta
from privet.tables import NumericTarget, TableSchema, Target

if TYPE_CHECKING:
    import pandas as pd

# Part of every digest. Parties sign the guarantee in words, so it changes whenever these words or a default that they
# state change: otherwise two versions would open all sums, and then disagree on what to sign. Version 0.1.0 has
# "privet study 1".
_VERSION = 4
PROTOCOL = f"privet study {_VERSION}"
MODELS = {name: kind for name, kind in linear.MODELS.items() if name in ("logistic", "ridge", "huber")}
METHODS = ("gradient", "output")
_LONGEST_NAME = 100
_ROW_NORM = 1.0  # A TableSchema scales rows to this norm.


class StudyError(ValueError):
    """The study file is not valid, or the parties do not agree on it."""


@dataclass(frozen=True)
class PartyInfo:
    """A party of a study: its name, and the host and port at which it listens."""

    name: str
    host: str
    port: int

    def __post_init__(self) -> None:
        try:
            check_name(self.name)
        except ValueError as error:
            raise StudyError(str(error)) from None


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
        The budget. A delta of None means min(1e-6, 0.01/n), where n is the number of rows of all parties.
    model : {"logistic", "ridge", "huber"}
        The model to train.
    method : {"gradient", "output"}
        ``gradient`` (MPC Grad-P) opens one noisy sum of gradients per step, and is as accurate as with pooled data.
        ``output`` (MPC Out-P) opens one noisy average of the parties' own minimisers, for logistic and huber only.
    alpha : float
        Strength of the l2 penalty.
    steps, step_size, averaged : int, float or None, float
        For ``gradient``: number of steps, their size (None means 1/smoothness), and the fraction of the last iterates
        to average.
    clip_norm : float or None
        Bound to which a record's gradient is clipped, for rows of norm 1. None clips only a squared loss, to 1.
    threshold : float or None
        For ``huber``: the error, in the target's units, beyond which the loss is linear. None means an eighth of the
        width of the target's bounds.
    intercept_scaling : float
        Value of the constant column whose weight is the intercept.
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
    clip_norm: float | None = None
    threshold: float | None = None
    intercept_scaling: float = 0.5

    def __post_init__(self) -> None:
        Budget(self.epsilon, 0.0 if self.delta is None else self.delta)
        count("steps", self.steps)
        for name in ("epsilon", "alpha", "step_size", "clip_norm", "threshold", "delta"):
            if getattr(self, name) is not None:
                self._keep(name, positive(name, getattr(self, name)))
        for name in ("intercept_scaling", "averaged"):
            self._keep(name, nonnegative(name, getattr(self, name)))
        if self.averaged > 1:
            raise StudyError(f"averaged must be a fraction of the steps, from 0 to 1, got {self.averaged!r}")
        self._check_parties()
        self._check_model()

    def _keep(self, name: str, number: float) -> None:
        """Store a number as a float, so that 1 and 1.0 in the file give the same digest."""
        object.__setattr__(self, name, number)

    def _check_parties(self) -> None:
        if not 0 < len(self.name.strip()) <= len(self.name) <= _LONGEST_NAME or not self.name.isprintable():
            raise StudyError(
                f"{self.name!r} is not a valid name of a study. Use up to {_LONGEST_NAME} printable characters."
            )
        if len(self.parties) < 3:
            raise StudyError(
                f"A study needs at least three parties, got {len(self.parties)}. With two, each could subtract its own "
                "contribution from a sum and see the other's. The third party may bring no data."
            )
        if len({party.name for party in self.parties}) < len(self.parties):
            raise StudyError("Two parties have the same name. Give each party its own name.")
        if len({(party.host, party.port) for party in self.parties}) < len(self.parties):
            raise StudyError("Two parties have the same address. Give each party its own address.")

    def _check_model(self) -> None:
        """Raise unless model, method, target and threshold are compatible."""
        target = self.table.target
        if self.model not in MODELS:
            raise StudyError(
                f"model must be one of {', '.join(MODELS)}, got {self.model!r}. Parties cannot train other models "
                "together."
            )
        if self.method not in METHODS:
            raise StudyError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.table.others:
            raise StudyError(
                f"Parties train a model of one target together, but the table has {len(self.table.targets)}. Name one "
                "column, and run one study per target."
            )
        if target is None:
            raise StudyError('The table has no target. Add target = "column" under [table].')
        if issubclass(MODELS[self.model], PrivateClassifier):
            if not isinstance(target, Target) or target.levels is None or len(target.levels) != 2:
                raise StudyError(
                    f"The model {self.model} needs a target with two declared classes. Add target_levels = [a, b]."
                )
        elif not isinstance(target, NumericTarget):
            raise StudyError(f"The model {self.model} needs a numeric target. Add target_bounds = [low, high].")
        if self.threshold is not None and MODELS[self.model]._loss is not Huber:
            raise StudyError(
                f"The threshold is a setting of the model huber, but the model is {self.model}. Remove it."
            )
        if self.method == "output" and not self.objective().has_bounded_gradient:
            raise StudyError(
                f"The method output needs a loss with bounded gradients, but the model is {self.model}. Use huber."
            )

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
        known = {field.name for field in fields(cls)} - {"parties"} | {"party"}
        for key in values:
            if key not in known:
                raise StudyError(f"{where} has an unknown key {key!r}. The keys are {', '.join(sorted(known))}.")
        for key in ("name", "epsilon", "party", "table"):
            if key not in values:
                raise StudyError(f"{where} has no {key}. Add it.")
        options = {key: value for key, value in values.items() if key not in ("party", "table")}
        parties, table = values["party"], values["table"]
        if not isinstance(parties, list) or not isinstance(table, dict) or not isinstance(values["name"], str):
            raise StudyError(f"{where} must have the name as text, parties as [[party]] and the table as [table].")
        schema = TableSchema.from_values(table, f"[table] of {where[0].lower()}{where[1:]}")
        try:
            return cls(parties=tuple(_party(party, where) for party in parties), table=schema, **options)
        except TypeError as error:
            raise StudyError(f"{where}: {error}") from error

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Study":
        """Return the study that :meth:`to_dict` describes."""
        parties = tuple(PartyInfo(**party) for party in values["parties"])
        return cls(**{**values, "parties": parties, "table": TableSchema.from_dict(values["table"])})

    def moved(self, addresses: Sequence[tuple[str, int]]) -> "Study":
        """Return the study with other addresses, for a trial on one machine."""
        if len(addresses) != len(self.parties):
            raise StudyError(f"The study has {len(self.parties)} parties, got {len(addresses)} addresses.")
        moved = (
            replace(party, host=host, port=port) for party, (host, port) in zip(self.parties, addresses, strict=True)
        )
        return replace(self, parties=tuple(moved))

    def to_dict(self) -> dict[str, Any]:
        """Return the study as plain values for JSON."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {"parties": [asdict(party) for party in self.parties], "table": self.table.to_dict()}

    @property
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


def _party(values: Any, where: str) -> PartyInfo:
    if not isinstance(values, dict) or set(values) != {"name", "address"}:
        raise StudyError(f'{where}: each [[party]] must have a name and an address = "host:port", and nothing else.')
    host, port = parse_address(str(values["address"]))
    try:
        return PartyInfo(values["name"], host, port)
    except StudyError as error:
        raise StudyError(f"{where}: {error}") from None


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port from the text ``host:port``."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise StudyError(f"{text!r} is not an address. Write host:port, as in 192.0.2.7:9100.")
    return host.strip("[]"), int(port)
