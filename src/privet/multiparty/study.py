"""The study file: all that is public, agreed on by all parties before any of them touches its data.

.. code-block:: toml

    name = "stroke"
    epsilon = 1.0
    delta = 1e-6                    # default: 1/n^1.1
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
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import count, nonnegative, positive
from privet.multiparty.protocol.problem import JointProblem
from privet.objectives import L2, GeneralisedLinear, Huber, Logistic, Squared
from privet.privacy.budget import Budget, default_delta
from privet.tables import NumericTarget, TableError, TableSchema, Target

if TYPE_CHECKING:
    import pandas as pd

PROTOCOL = "privet study 1"
MODELS = ("logistic", "ridge", "huber")
METHODS = ("gradient", "output")
_ROW_NORM = 1.0  # to which a TableSchema scales rows


class StudyError(ValueError):
    """A study file that cannot be run, or a table that does not fit it."""


@dataclass(frozen=True)
class PartyInfo:
    """A party's name and address."""

    name: str
    host: str
    port: int


@dataclass(frozen=True)
class Study:
    """What all parties agree on.

    Parameters
    ----------
    name : str
        Of the study.
    parties : tuple of PartyInfo
        In order: a party's index is its place here.
    table : TableSchema
        Columns with public bounds and levels, and the target, its levels or bounds declared.
    epsilon, delta : float, float or None
        The budget; None is 1/n^1.1 of the rows of all parties.
    model : {"logistic", "ridge", "huber"}
    method : {"gradient", "output"}
        ``gradient`` (MPC Grad-P): a noisy sum of gradients a step, of the accuracy of pooled data. ``output`` (MPC
        Out-P): one noisy average of the parties' own minimisers; logistic and huber only.
    alpha : float
        Strength of the l2 penalty.
    steps, step_size, averaged : int, float or None, float
        Of ``gradient``: how many steps, how long (None: 1/smoothness), and the share of the last iterates to average.
    clip_norm : float or None
        Clip of a record's gradient, for rows of norm 1; a squared loss is clipped to 1 if None.
    threshold : float or None
        Of ``huber``: the error, in the target's units, from which the loss is linear; None is an eighth of the bounds'
        width.
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
            raise StudyError(f"averaged is a share of the steps, from 0 to 1, got {self.averaged!r}")
        self._check_parties()
        self._check_model()

    def _keep(self, name: str, number: float) -> None:
        """Keep a number as a float: whether a party writes 1 or 1.0 makes no other study."""
        object.__setattr__(self, name, number)

    def _check_parties(self) -> None:
        if len(self.parties) < 3:
            raise StudyError(
                f"a study needs at least three parties, got {len(self.parties)}: of two, either could take its own "
                "share off the sum and see the other's. A third may bring no data"
            )
        if len({party.name for party in self.parties}) < len(self.parties):
            raise StudyError("two parties have the same name")
        if len({(party.host, party.port) for party in self.parties}) < len(self.parties):
            raise StudyError("two parties have the same address")

    def _check_model(self) -> None:
        target = self.table.target
        if self.model not in MODELS:
            raise StudyError(f"model must be one of {', '.join(MODELS)}, got {self.model!r}")
        if self.method not in METHODS:
            raise StudyError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if target is None:
            raise StudyError('the table has no target: add target = "column" under [table]')
        if self.model == "logistic":
            if not isinstance(target, Target) or target.levels is None or len(target.levels) != 2:
                raise StudyError("model logistic needs a target of two declared classes: add target_levels")
        elif not isinstance(target, NumericTarget):
            raise StudyError(f"model {self.model} needs a target that is a number: add target_bounds = [low, high]")
        if self.method == "output" and self.model == "ridge":
            raise StudyError("method output needs a loss with bounded gradients, which a square is not: use huber")
        if self.threshold is not None and self.model != "huber":
            raise StudyError(f"threshold is where Huber's loss turns linear, and model {self.model} has none")

    @classmethod
    def read(cls, path: str | Path) -> "Study":
        """Read a study file."""
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise StudyError(f"cannot read the study {path}: {error.strerror}") from error
        except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
            raise StudyError(f"the study {path} is not valid TOML: {error}") from error
        return cls.from_values(values, f"the study {path}")

    @classmethod
    def from_values(cls, values: Mapping[str, Any], where: str = "the study") -> "Study":
        """Read a study from the values of a TOML file."""
        known = {field.name for field in fields(cls)} - {"parties"} | {"party"}
        for key in values:
            if key not in known:
                raise StudyError(f"{where} has an unknown key {key!r}: the keys are {', '.join(sorted(known))}")
        for key in ("name", "epsilon", "party", "table"):
            if key not in values:
                raise StudyError(f"{where} has no {key}")
        options = {key: value for key, value in values.items() if key not in ("party", "table")}
        parties, table = values["party"], values["table"]
        if not isinstance(parties, list) or not isinstance(table, dict) or not isinstance(values["name"], str):
            raise StudyError(f"{where}: write the name as text, parties as [[party]] and the table as [table]")
        schema = TableSchema.from_values(table, f"[table] of {where}")
        try:
            return cls(parties=tuple(_party(party, where) for party in parties), table=schema, **options)
        except TypeError as error:
            raise StudyError(f"{where}: {error}") from error

    def moved(self, addresses: Sequence[tuple[str, int]]) -> "Study":
        """Return the study at other addresses: for a try-out on one machine."""
        if len(addresses) != len(self.parties):
            raise StudyError(f"the study has {len(self.parties)} parties, got {len(addresses)} addresses")
        moved = (
            replace(party, host=host, port=port) for party, (host, port) in zip(self.parties, addresses, strict=True)
        )
        return replace(self, parties=tuple(moved))

    def to_dict(self) -> dict[str, Any]:
        """Return the study as plain values that JSON can hold."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {"parties": [asdict(party) for party in self.parties], "table": self.table.to_dict()}

    @property
    def digest(self) -> str:
        """SHA-256 of everything in the study: equal at two parties if and only if their studies are."""
        text = json.dumps([PROTOCOL, self.to_dict()], sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def budget(self, n: int) -> Budget:
        """Return the budget for n rows in all."""
        return Budget(self.epsilon, default_delta(n) if self.delta is None else self.delta)

    def objective(self) -> GeneralisedLinear:
        """Return the loss, in the units of the mapped target."""
        if self.model == "logistic":
            return Logistic()
        if self.model == "ridge":
            return Squared()
        assert isinstance(self.table.target, NumericTarget)
        threshold = None if self.threshold is None else self.table.target.encode_distance(self.threshold)
        return Huber.for_targets(1.0, threshold)

    @property
    def gradient_clip(self) -> float | None:
        """The clip of a record's gradient; None where the loss bounds it."""
        return 1.0 if self.clip_norm is None and not self.objective().has_bounded_gradient else self.clip_norm

    def problem(self, counts: Sequence[int]) -> JointProblem:
        """Return what is public of the problem, once the parties' numbers of rows are known."""
        return JointProblem(
            self.objective(), L2(self.alpha), tuple(counts), _ROW_NORM, self.intercept_scaling, len(self.table.columns)
        )

    def encode(self, frame: "pd.DataFrame") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a party's rows and targets as the columns are declared; what does not fit is refused, not clipped."""
        beyond = self.table.beyond_bounds(frame)
        if beyond:
            raise TableError(
                f"column {beyond[0]!r} has values beyond the bounds that the study declares: correct them, or agree on "
                "wider bounds with the other parties"
            )
        return self.table.encode(frame), np.asarray(self.table.encode_target(frame), dtype=np.float64)


def _party(values: Any, where: str) -> PartyInfo:
    if not isinstance(values, dict) or set(values) != {"name", "address"}:
        raise StudyError(f'{where}: each [[party]] has a name and an address = "host:port", and nothing else')
    name = values["name"]
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w .-]{0,63}", name):
        raise StudyError(
            f"{where}: {name!r} is no name of a party: write up to 64 letters, digits, spaces, points, dashes"
        )
    host, port = parse_address(str(values["address"]))
    return PartyInfo(name, host, port)


def parse_address(text: str) -> tuple[str, int]:
    """Read host:port."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise StudyError(f"{text!r} is no address: write host:port, as in 192.0.2.7:9100")
    return host.strip("[]"), int(port)
