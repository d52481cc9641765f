"""The data of chapter 6 of "Towards Efficient and Effective Privacy-Preserving Machine Learning", in the unit ball.

Columns are clipped to public bounds and mapped to [0, 1], each level becomes one column, and rows with a norm above 1
are divided by their norm, so that G = 1. This is the procedure of Chaudhuri et al., which the chapter follows, except
for the bounds: the chapter uses the largest values in the data, without counting the privacy cost. There is no
intercept, because the columns of each category add up to one.

- **KDD Cup 99**: denial of service against the rest. 70,000 of the 494,021 connections of the 10 % file (the chapter:
  of the five million), 50,000 to train; 122 columns, as in the chapter.
- **Adult**: 45,222 records without missing values, 30,000 to train; 104 columns, as in the chapter. (People who never
  worked have no occupation, so this level is removed together with the missing values.)
- **Bike**, instead of KDD Cup 98, which is not available: rentals per hour in 17,379 hours of 2011 and 2012, 13,000 to
  train; 61 columns. Targets are (rentals - 500)/500, from -1 to 1 for up to 1000 rentals. The loss is the Huber loss
  with a threshold of 1. It equals the squared loss for errors below 1, and has G = 1. (The chapter's ridge regression
  has a squared loss, whose gradients are not bounded.)
- **KDD Cup 98**, the chapter's own data, if its file cup98LRN.txt is given: 70,000 of 95,412 people, 50,000 to train.
  Columns of numbers are divided by their largest value, columns of up to 10 levels become one column per level, and
  missing values are zero. The 95 leading principal components are kept, as in the chapter. Unlike the other bounds,
  largest values and components are computed from the data, as in the chapter, at a privacy cost that is not counted.
  Targets are (donation - 100)/100 dollars. The loss is the Huber loss, as for Bike.

Records are assigned to the training part and to the parties at random, once, with a fixed seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from efficient_erm_data import BIKE_LEVELS, Logarithmic
from numpy.typing import NDArray
from scipy import sparse
from support import arrays, data_file

from privet.objectives import GeneralisedLinear, Huber, Logistic

Floats = NDArray[np.float64]

NAMES = ("KDD Cup 99", "Adult", "Bike")
KDD98 = "KDD Cup 98"  # not among NAMES, because its file is not available here
FILES = {"KDD Cup 99": "kddcup99_10_percent.csv.gz", "Adult": "adult.npz", "Bike": "bike_hour.npz"}
FILES |= {KDD98: "cup98LRN.txt"}
SIZES = {"KDD Cup 99": (50_000, 20_000), "Adult": (30_000, 15_222), "Bike": (13_000, 4_379), KDD98: (50_000, 20_000)}
KDD98_COMPONENTS, KDD98_LEVELS, DONATION_MIDDLE = 95, 10, 100.0
SPLIT_SEED = 0


@dataclass(frozen=True)
class Upto:
    """Maps values from 0 to ``top`` to [0, 1]."""

    top: float

    def __call__(self, values: NDArray[Any]) -> Floats:
        """Return the mapped values."""
        return np.clip(np.asarray(values, dtype=np.float64) / self.top, 0, 1)


RATE = Upto(1)
BYTES = Logarithmic(1, 2.0**32)  # the range of a 32-bit counter
# The 41 columns in order, after the description of the data. None marks categories.
KDD_COLUMNS: tuple[Any, ...] = (
    Logarithmic(1, 86_400),  # duration in seconds, up to a day
    *(None, None, None),  # protocol, service, flag
    *(BYTES, BYTES),  # from source, from destination
    Upto(1),  # land
    Upto(3),  # wrong fragments
    Upto(3),  # urgent packets
    Logarithmic(1, 100),  # hot indicators
    Upto(5),  # failed logins
    Upto(1),  # logged in
    Logarithmic(1, 10_000),  # compromised conditions
    Upto(1),  # root shell
    Upto(2),  # su attempted
    Logarithmic(1, 10_000),  # accesses as root
    Logarithmic(1, 100),  # file creations
    Upto(5),  # shell prompts
    Upto(10),  # accesses to control files
    Upto(10),  # outbound commands
    *(Upto(1), Upto(1)),  # host login, guest login
    *(Upto(511), Upto(511)),  # connections to the same host and service in two seconds; the counter ends at 511
    *(RATE,) * 7,
    *(Upto(255), Upto(255)),  # of the last 255 connections to the host
    *(RATE,) * 8,
)
PROTOCOLS = ("icmp", "tcp", "udp")
FLAGS = ("OTH", "REJ", "RSTO", "RSTOS0", "RSTR", "S0", "S1", "S2", "S3", "SF", "SH")
# The 70 services of the whole data set, four of which the 10 % file does not have.
# fmt: off
SERVICES = (
    "IRC", "X11", "Z39_50", "aol", "auth", "bgp", "courier", "csnet_ns", "ctf", "daytime", "discard", "domain",
    "domain_u", "echo", "eco_i", "ecr_i", "efs", "exec", "finger", "ftp", "ftp_data", "gopher", "harvest",
    "hostnames", "http", "http_2784", "http_443", "http_8001", "imap4", "iso_tsap", "klogin", "kshell", "ldap",
    "link", "login", "mtp", "name", "netbios_dgm", "netbios_ns", "netbios_ssn", "netstat", "nnsp", "nntp",
    "ntp_u", "other", "pm_dump", "pop_2", "pop_3", "printer", "private", "red_i", "remote_job", "rje", "shell",
    "smtp", "sql_net", "ssh", "sunrpc", "supdup", "systat", "telnet", "tftp_u", "tim_i", "time", "urh_i", "urp_i",
    "uucp", "uucp_path", "vmnet", "whois",
)
# fmt: on
DENIAL_OF_SERVICE = ("smurf.", "neptune.", "back.", "teardrop.", "pod.", "land.")

ADULT = {
    "age": Upto(90),  # coded up to 90
    "fnlwgt": Upto(1_500_000),  # number of people that a record represents
    "education-num": Upto(16),
    "capital-gain": Logarithmic(100, 99_999),  # five digits
    "capital-loss": Logarithmic(100, 9_999),  # four digits
    "hours-per-week": Upto(99),  # two digits
}
BIKE_MIDDLE = 500.0


@dataclass(frozen=True)
class Study:
    """Sparse rows in the unit ball, in a training and a test part, with targets 0 and 1 or within [-1, 1]."""

    name: str
    X: Any
    y: NDArray[Any]
    X_test: Any
    y_test: NDArray[Any]

    @property
    def is_regression(self) -> bool:
        """Whether targets are numbers."""
        return not np.isin(self.y, (0, 1)).all()

    @property
    def objective(self) -> GeneralisedLinear:
        """The loss, 1-Lipschitz in the score."""
        return Huber(1.0) if self.is_regression else Logistic()

    def merit(self, weights: NDArray[Any]) -> float:
        """Return the accuracy on the test part, or the negative mean squared error. Higher is better."""
        scores = self.X_test @ weights
        if self.is_regression:
            return -float(np.mean((scores - self.y_test) ** 2))
        return float(np.mean((scores > 0) == (self.y_test > 0)))


def load(name: str) -> Study:
    """Return the data of a figure."""
    X, y = {"KDD Cup 99": _kdd, "Adult": _adult, "Bike": _bike, KDD98: _kdd98}[name]()
    n_train, n_test = SIZES[name]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(y))
    train, test = order[:n_train], order[n_train : n_train + n_test]
    X = in_unit_ball(X)
    return Study(name, X[train], y[train], X[test], y[test])


def in_unit_ball(X: Any) -> Any:
    """Return the rows as a sparse matrix, where each row with a norm above 1 is divided by its norm."""
    X = sparse.csr_array(X, dtype=np.float64)
    X.eliminate_zeros()
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    factors = (1 - 1e-13) / np.maximum(lengths, 1.0)  # The factor ensures that no norm exceeds 1 after rounding.
    return sparse.csr_array((X.data * np.repeat(factors, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)


def _kdd() -> tuple[Floats, NDArray[Any]]:
    import pandas as pd

    table = pd.read_csv(data_file(FILES["KDD Cup 99"]), header=None)
    chosen = np.random.default_rng(SPLIT_SEED).choice(len(table), sum(SIZES["KDD Cup 99"]), replace=False)
    table = table.iloc[chosen]
    numbers = [
        np.asarray(column(table[place].to_numpy()))[:, None]
        for place, column in enumerate(KDD_COLUMNS)
        if column is not None
    ]
    levels = [_levels(table[place], known) for place, known in ((1, PROTOCOLS), (2, SERVICES), (3, FLAGS))]
    return np.hstack([*numbers, *levels]), table[41].isin(DENIAL_OF_SERVICE).to_numpy().astype(int)


def _adult() -> tuple[Floats, NDArray[Any]]:
    parts = arrays(FILES["Adult"])
    numbers, codes, y = (np.concatenate([parts[f"{key}_train"], parts[f"{key}_test"]]) for key in ("num", "cat", "y"))
    names = [str(name) for name in parts["cat_names"]]
    labels = {name: parts[f"levels_{name}"][column] for name, column in zip(names, codes.T, strict=True)}
    is_whole = np.all([column != "?" for column in labels.values()], axis=0)
    blocks = [
        ADULT[str(name)](column)[:, None] for name, column in zip(parts["num_names"], numbers[is_whole].T, strict=True)
    ]
    for name in names:
        known = [level for level in parts[f"levels_{name}"] if level not in ("?", "Never-worked")]
        blocks.append(_levels(labels[name][is_whole], known))
    return np.hstack(blocks), y[is_whole].astype(int)


def _bike() -> tuple[Floats, NDArray[Any]]:
    parts = arrays(FILES["Bike"])
    blocks = [
        _levels(column, BIKE_LEVELS[name]) if name in BIKE_LEVELS else RATE(column)[:, None]
        for name, column in zip(map(str, parts["names"]), parts["x"].T, strict=True)
    ]
    return np.hstack(blocks), np.clip((parts["cnt"] - BIKE_MIDDLE) / BIKE_MIDDLE, -1, 1)


def _kdd98() -> tuple[Floats, NDArray[Any]]:
    import pandas as pd

    table = pd.read_csv(data_file(FILES[KDD98]), low_memory=False)
    donations = table["TARGET_D"].to_numpy(dtype=np.float64)
    table = table.drop(columns=["TARGET_B", "TARGET_D", "CONTROLN"])
    blocks = []
    for name in table.columns:
        column = table[name]
        if pd.api.types.is_numeric_dtype(column):
            values = column.fillna(0).to_numpy(dtype=np.float64)
            blocks.append(values[:, None] / max(np.abs(values).max(), 1e-300))
        elif column.nunique() <= KDD98_LEVELS:
            blocks.append(_levels(column, column.dropna().unique()))
    X = np.hstack(blocks)
    _, vectors = np.linalg.eigh(X.T @ X)
    return X @ vectors[:, -KDD98_COMPONENTS:], np.clip((donations - DONATION_MIDDLE) / DONATION_MIDDLE, -1, 1)


def _levels(values: Any, known: Sequence[Any]) -> Floats:
    return np.asarray(np.asarray(values)[:, None] == np.array(known), dtype=np.float64)


def party_counts(name: str) -> tuple[int, int, int]:
    """Return the numbers of parties in the figures: 100, 1,000 and one record per party."""
    return 100, 1000, SIZES[name][0]
