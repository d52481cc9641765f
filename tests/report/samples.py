"""One private result of each kind, small enough to be made in a second, and their reports."""

import sys
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

from privet import PrivateLogisticRegression, TableModel
from privet.privacy import Ledger
from privet.report import Report
from privet.report.figures import test_figures as figures_on
from privet.tables import Categorical, Numeric, TableSchema, Target

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "multiparty"))

MADE = date(2026, 11, 19)
SECRET = "Mbeki-47193"
"""A cell of a column that is not declared, which must appear in no report."""

SCHEMA = TableSchema(
    features=(Numeric("age", 0, 120), Numeric("bmi", 10, 60), Categorical("sex", ("female", "male"))),
    target=Target("readmitted", levels=("no", "yes")),
)


def patients(n=600, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.uniform(0, 100, n), "bmi": rng.uniform(15, 45, n)})
    frame["sex"] = rng.choice(["female", "male"], n)
    frame["readmitted"] = np.where(frame["age"] + rng.normal(0, 20, n) > 55, "yes", "no")
    return frame.assign(name=SECRET)


def table_model(ledger=None, rows=None, **settings):
    settings = {"epsilon": 2.0, "delta": 1e-6, "method": "output", "random_state": None} | settings
    estimator = PrivateLogisticRegression(**settings)
    return TableModel(SCHEMA, estimator, ledger=ledger).fit(patients() if rows is None else rows)


def table_report(folder):
    ledger = Ledger(folder / "patients.ledger", limit=(8.0, 1e-5))
    for _ in range(2):
        model = table_model(ledger)
    ledger.set_limit((10.0, 1e-5), "decision of the ethics board")
    return Report.of(model, ledger=ledger, tests=figures_on(model, patients(300, 1)), made=MADE)


def network(rows=400, seed=0, steps=None):
    import torch
    from torch import nn

    from privet.deep import make_private

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    rng = np.random.default_rng(seed)
    X = torch.tensor(rng.normal(size=(rows, 5)), dtype=torch.float32)
    data = torch.utils.data.TensorDataset(X, (X[:, 0] > 0).long())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    settings = {"epochs": 3, "batch_size": 40, "clip_norm": 1.0, "public_n": 400}
    private = make_private(model, optimizer, data, loss=nn.CrossEntropyLoss(), budget=(2.0, 1e-5), **settings)
    for number, batch in enumerate(private.batches(), start=1):
        private.step(*batch)
        if number == steps:
            break
    return private


def federated(seed=0, n=600, **options):
    import torch
    from torch import nn

    from privet.federated import LocalTraining, Partitioned, accuracy, simulate
    from privet.federated.partition import iid

    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = (rng.normal(size=(n, 6)) + 3 * np.eye(6)[y]).astype(np.float32)
    public = np.random.default_rng(9)
    labels = public.integers(0, 3, 200)
    rows = (public.normal(size=(200, 6)) + 3 * np.eye(6)[labels]).astype(np.float32)
    torch.manual_seed(0)
    return simulate(
        nn.Linear(6, 3),
        Partitioned((X, y), iid(n, 60, np.random.default_rng(1))),
        loss=nn.CrossEntropyLoss(),
        local=LocalTraining(learning_rate=0.1, batch_size=10, epochs=1),
        budget=(4.0, 1e-3),
        rounds=6,
        clients_per_round=20,
        clip_norm=0.5,
        evaluate=accuracy(rows, labels),
        verbose=False,
        **options,
    )


STUDY = {
    "name": "stroke",
    "epsilon": 2.0,
    "delta": 1e-6,
    "steps": 5,
    "party": [
        {"name": name, "address": f"127.0.0.1:{port}"} for port, name in enumerate(("north", "south", "west"), 9100)
    ],
    "table": {"target": "readmitted", "target_levels": ["no", "yes"], "numeric": {"age": [0, 120], "bmi": [10, 60]}},
}


def study_result():
    """Return what a study of three owners writes, computed by one of them alone, who brings all rows."""
    from alone import alone

    from privet.multiparty import Study, take_part
    from privet.multiparty.protocol.results import to_result, with_signatures

    made = Study.from_values(STUDY)
    table = made.encode(patients(240).drop(columns=["sex", "name"]))

    async def work(session):
        return to_result(made, await take_part(session, made, table))

    return with_signatures(alone(work), [])


def long_report(folder):
    """Return a report of a model of 40 columns and ten classes, with a ledger of 40 entries."""
    columns = tuple(Numeric(f"measurement_of_the_{number}th_day", 0, 10) for number in range(40))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 10, (500, 40)), columns=[column.name for column in columns])
    frame["ward"] = rng.choice([f"ward {number}" for number in range(10)], 500)
    schema = TableSchema(columns, target=Target("ward", levels=tuple(f"ward {number}" for number in range(10))))
    ledger = Ledger(folder / "wards.ledger")
    model = TableModel(schema, PrivateLogisticRegression(1.0, delta=1e-6, max_iter=5), ledger=ledger).fit(frame)
    for number in range(40):
        ledger.spend(model.guarantee, f"fit of the model for the {number}th meeting of the board, with another target")
    return Report.of(model, ledger=ledger, tests=figures_on(model, frame), made=MADE)
