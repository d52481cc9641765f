"""``privet show`` of everything that privet saves."""

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

import privet
from privet import PrivateLogisticRegression, PrivateRidge, PrivateScaler, PublicScaler, TableModel
from privet.cli import app
from privet.commands.model_facts import model_facts
from privet.tables import Categorical, Date, Numeric, NumericTarget, TableSchema, Target

SAVED = Path(__file__).parent.parent / "saved"
N = 300
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age [years]": RNG.uniform(0, 100, N),
        "sex\x1b[31m": RNG.choice(["f", "m"], N),
        "ward": RNG.choice([f"w{k}" for k in range(12)], N),
        "day": "2020-06-01",
        "cost": RNG.uniform(0, 9000, N),
    }
)
FRAME["ill"] = np.where(FRAME["age [years]"] > 50, "yes", "no")
FEATURES = (
    Numeric("age [years]", 0, 100, missing="level"),
    Categorical("sex\x1b[31m", ("f", "m")),
    Categorical("ward", tuple(f"w{k}" for k in range(12))),
    Date("day", "2020-01-01", "2021-01-01"),
)
SCHEMA = TableSchema(FEATURES, Target("ill", ("no", "yes")), ids=("nr",))


def shown(path, *options, code=0):
    result = CliRunner().invoke(app, ["show", str(path), *options])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("show") / "ill.json"
    TableModel(SCHEMA, PrivateLogisticRegression(5.0, random_state=0)).fit(FRAME).save(path)
    return path


def test_the_headline_is_the_promise_and_the_next_line_what_it_means_to_a_person(table):
    text, guarantee = shown(table), privet.load(table).guarantee
    joined = " ".join(text.split())
    assert joined.startswith("(5, 1e-06)-differential privacy for each record (replace-one)")
    assert 'provided that the assumption below holds. To a person: the best possible answer to "Was this' in joined
    percent = float(re.search(r"at most ([\d.]+) %", joined)[1])
    assert 100 * guarantee.best_guess <= percent < 100 * guarantee.best_guess + 0.1
    mu = float(re.search(r"with mu = ([\d.]+)", joined)[1])
    assert guarantee.mu <= mu < guarantee.mu * 1.01
    assert "Assumed: random_state is an integer" in joined or "seed" in joined


def test_what_the_model_is_its_columns_and_their_effects_are_shown_in_80_columns(table):
    text = shown(table)
    assert max(map(len, text.splitlines())) <= 80
    joined = " ".join(text.split())
    for words in (
        "Model PrivateLogisticRegression (--model logistic)",
        "Target ill: no, yes",
        "Rows 300",
        f"by privet {privet.__version__}",
        "age [years] number 0 to 100 level",
        "ward category w0, w1",
        "further levels",
        "day date 2020-01-01 to 2021-01-01 refuse",
        "nr ID, never used",
        "Effects on the log-odds of ill = yes column",
        "5 others",
        " a year",
        "+0.69 doubles the odds",
    ):
        assert words in joined, (words, text)
    assert "'sex\\x1b[31m'" in text and "\x1b" not in text
    assert "conditions by the code itself" in joined
    assert joined.index("age [years]", joined.index("Effects")) < joined.index("ward", joined.index("Effects"))


def test_verbose_shows_the_whole_statement(table):
    joined = " ".join(shown(table, "--verbose").split())
    for line in privet.load(table).guarantee.statement(verbose=True).splitlines():
        assert " ".join(line.split()) in joined
    assert "by the code itself" not in joined


def test_json_holds_all_effects_and_replaces_the_text(table, tmp_path):
    printed = json.loads(shown(table, "--json", "-"))
    shown(table, "--json", str(tmp_path / "out.json"))
    assert printed == json.loads((tmp_path / "out.json").read_text())
    (effects,) = printed["effects"]
    by_name = {effect["column"]: effect for effect in effects["columns"]}
    assert len(by_name["ward"]["levels"]) == 12 and by_name["day"]["interval"] == ["2020-01-01", "2021-01-01"]
    model = privet.load(table)
    assert (printed["rows"], printed["version"]) == (N, privet.__version__)
    assert (printed["guarantee"]["mu"], printed["guarantee"]["best_guess"]) == (
        model.guarantee.mu,
        model.guarantee.best_guess,
    )
    assert [column["name"] for column in printed["columns"]] == [*(f.name for f in FEATURES), "nr"]


def test_the_effects_on_a_number_are_shown_in_its_units(tmp_path):
    schema = TableSchema(FEATURES, NumericTarget("cost", 0, 9000))
    TableModel(schema, PrivateRidge(5.0)).fit(FRAME).save(tmp_path / "m.json")
    text = shown(tmp_path / "m.json")
    assert "cost: a number from 0 to 9000" in text and "Effects on cost, in its units" in text
    assert "log-odds" not in text and "e+0" not in text


@pytest.mark.parametrize("path", sorted(SAVED.glob("*.json")), ids=lambda path: path.stem)
def test_files_of_version_0_1_0_are_shown(path):
    text, model = " ".join(shown(path).split()), privet.load(path)
    assert "differential privacy for each record" in text and "To a person" in text
    assert type(getattr(model, "estimator", model)).__name__ in text
    assert "Effects on" in text and ", by privet" not in text
    assert ("privet party verify checks" in text) == (path.stem == "party")
    assert text.count("against the average of all classes") == (3 if path.stem.startswith("multinomial") else 0)
    assert ("scaled down" in text) == (not isinstance(model, TableModel))


X = RNG.uniform(-1, 1, (N, 3))


def test_a_pipeline_is_shown_with_the_guarantee_of_all_its_steps(tmp_path):
    scaler = PrivateScaler(1.0, 1e-6, lower=-1, upper=1)
    rows = pd.DataFrame(X, columns=list("abc"))
    model = make_pipeline(PublicScaler(-1, 1), scaler, PrivateRidge(2.0, 1e-6, feature_norm=2.0)).fit(rows, X[:, 0])
    privet.save(model, tmp_path / "m.json")
    text = " ".join(shown(tmp_path / "m.json").split())
    total = float(re.match(r"\(([\d.]+), 2e-06\)", text)[1])
    assert 2 < total < 3
    assert "PublicScaler, then PrivateScaler, then PrivateRidge (--model ridge)" in text
    assert "a number -1 to 1" in text and "Effects on the prediction" in text


def test_a_scaler_of_public_bounds_has_no_cost_and_no_effects(tmp_path):
    PublicScaler(-1, 1).fit(X).save(tmp_path / "scaler.json")
    privet.save(make_pipeline(PublicScaler(-1, 1)).fit(X), tmp_path / "pipeline.json")
    for name in ("scaler.json", "pipeline.json"):
        text = shown(tmp_path / name)
        assert text.startswith("No privacy cost") and "PublicScaler" in text
        assert "column 2   number   -1 to 1" in text and "Effects" not in text
        assert json.loads(shown(tmp_path / name, "--json", "-"))["guarantee"] is None
    PrivateScaler(1.0, lower=-1, upper=1).fit(X).save(tmp_path / "private.json")
    text = shown(tmp_path / "private.json")
    assert "To a person" in text and "Method     moments" in text and "Effects" not in text


def test_a_model_without_noise_promises_nothing(tmp_path):
    model = PrivateLogisticRegression(None, noise_multiplier=0).fit(X, X[:, 0] > 0)
    model.save(tmp_path / "m.json")
    text = shown(tmp_path / "m.json")
    assert text.startswith("No differential privacy") and "To a person" not in text
    found = json.loads(shown(tmp_path / "m.json", "--json", "-"))["guarantee"]
    assert found["epsilon"] is None and found["mu"] is None and found["best_guess"] == 1


def test_of_10000_columns_the_largest_effects_are_shown_and_the_others_counted(tmp_path):
    names = [f"x{k}" for k in range(10_000)]
    frame = pd.DataFrame(RNG.uniform(-1, 1, (50, 10_000)), columns=names).assign(y=np.arange(50) % 2)
    schema = TableSchema(tuple(Numeric(name, -1, 1) for name in names), Target("y", ("0", "1")))
    TableModel(schema, PrivateLogisticRegression(5.0)).fit(frame).save(tmp_path / "m.json")
    text = shown(tmp_path / "m.json")
    assert len(text.splitlines()) < 100
    assert "9,970 further columns.\n" in text and "9,970 further columns with smaller effects.\n" in text
    (effects,) = model_facts(tmp_path / "m.json").effects
    assert effects.columns[0].column in text.split("Effects on")[1].splitlines()[3]


def test_columns_without_weight_are_counted(tmp_path):
    sparse = privet.PrivateSparseLogisticRegression(5.0, n_nonzero=2).fit(
        RNG.uniform(-1, 1, (50, 40)), np.arange(50) % 2
    )
    sparse.save(tmp_path / "m.json")
    assert "38 columns have no weight." in shown(tmp_path / "m.json")


def test_a_federated_run_is_shown_without_its_clients(tmp_path):
    pytest.importorskip("torch")
    from privet.federated import Server
    from privet.plans import FullBatch, GradientPlan

    server = Server(GradientPlan(FullBatch(), 6, 1.0, 3.0), {"w": np.zeros((2, 3)), "b": np.zeros(2)}, 5, delta=1e-5)
    server.save(tmp_path / "run.npz")
    server.sample()
    server.aggregate({})
    server.save(tmp_path / "run.npz")
    promised = server.guarantee
    server.close()
    text = " ".join(shown(tmp_path / "run.npz").split())
    assert text.startswith(f"({promised.epsilon:.4g}"[:5]) and "for each client (replace-one)" in text
    assert "Parameters 8 " in text and "Progress 1 round when" in text
    assert "Was this client in the data?" in text


def test_the_last_test_figure_of_a_federated_run_is_shown(tmp_path):
    torch = pytest.importorskip("torch")
    from privet.federated import LocalTraining, simulate

    clients = [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))] * 5
    scores = iter([0.25, 0.625])
    simulate(
        torch.nn.Linear(2, 2),
        clients,
        loss=torch.nn.CrossEntropyLoss(),
        local=LocalTraining(steps=1, batch_size=2, learning_rate=0.1),
        budget=(2.0, 1e-3),
        rounds=2,
        clients_per_round=2,
        clip_norm=1.0,
        evaluate=lambda model: next(scores),
        save=tmp_path / "run.npz",
    )
    text = " ".join(shown(tmp_path / "run.npz").split())
    assert "Test score 0.625 after round 2. What evaluate returned, which must use public data only." in text
    assert "score 0.625" in json.loads(shown(tmp_path / "run.npz", "--json", "-"))["details"]["Test"]


@pytest.mark.parametrize("extra", [None, "text", {"a": 1}, [1, [2, "x", 3], [1, None, 1]], [[1, 2.0]]])
def test_what_else_was_saved_with_a_federated_run_is_no_test_figure(tmp_path, extra):
    from privet.federated import Server
    from privet.plans import FullBatch, GradientPlan

    server = Server(GradientPlan(FullBatch(), 6, 1.0, 3.0), {"w": np.zeros(2)}, 5, delta=1e-5)
    server.save(tmp_path / "run.npz", extra)
    server.close()
    assert "Test" not in shown(tmp_path / "run.npz")


def test_a_training_of_a_deep_network_is_shown_without_its_data(tmp_path):
    torch = pytest.importorskip("torch")
    from privet.deep import make_private
    from privet.privacy import Budget

    model = torch.nn.Linear(4, 2)
    rows = torch.utils.data.TensorDataset(torch.zeros(50, 4), torch.zeros(50, dtype=torch.long))
    optimizer, options = torch.optim.SGD(model.parameters(), lr=0.1), {"epochs": 1, "batch_size": 10, "clip_norm": 1.0}
    private = make_private(
        model, optimizer, rows, loss=torch.nn.CrossEntropyLoss(), budget=Budget(2.0, 1e-5), **options
    )
    for batch in private.batches():
        private.step(*batch)
    private.save(tmp_path / "training.pt")
    text = " ".join(shown(tmp_path / "training.pt").split())
    assert "for each record (add-or-remove)" in text and "Parameters 10 " in text and "5 steps when" in text
    assert json.loads(shown(tmp_path / "training.pt", "--json", "-"))["guarantee"]["epsilon"] <= 2


def test_other_files_are_refused_with_their_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "b")
    np.savez(tmp_path / "b.npz", header=np.array(json.dumps({"format": "privet spam 1", "state": {}})))
    (tmp_path / "c.json").write_text('{"a": 1}')
    for name, cause in (
        ("a.zip", "was not written by privet"),
        ("b.npz", "its format is 'privet spam 1'"),
        ("c.json", "It is not a privet model"),
    ):
        result = CliRunner().invoke(app, ["show", str(tmp_path / name)])
        assert name in str(result.exception) and cause in str(result.exception)
