"""``privet party`` with real processes of the command line, real files and real failures."""

import base64
import hashlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")
pytest.importorskip("cryptography", reason="several parties need cryptography: install the extra multiparty")

import privet
from privet.cli import main
from privet.commands import party as commands
from privet.linear import PrivateLogisticRegression, TableModel
from privet.multiparty import Identity, make_keys
from privet.multiparty.protocol.results import Signature, signed_text, to_result, verify_result, with_signatures
from privet.multiparty.study import PROTOCOL, PartyInfo, Study, StudyError, check_digest
from privet.privacy import Adjacency, Guarantee, Ledger
from privet.privacy.events import GaussianRelease
from privet.solvers import Release
from privet.tables import Numeric, TableError, TableSchema, Target

sys.path.insert(0, str(Path(__file__).parents[1] / "multiparty"))

import network_party
from parties import HOST, Machine, command

NAMES = ("north", "south", "west")
CLASSES = """
target = "stroke"
target_levels = ["no", "yes"]
[table.numeric]
age = [0, 120]
bmi = [10, 60]
[table.categorical]
sex = ["female", "male"]
"""
NUMBERS = CLASSES.replace(
    'target = "stroke"\ntarget_levels = ["no", "yes"]', 'target = "cost"\ntarget_bounds = [0, 400]'
)
MANY_STEPS = 100_000  # far more than are made before a party is killed


def study_text(ports, table=CLASSES, **options):
    """Return the text of a study file. Its epsilon is large, so that the models are accurate."""
    settings = {"name": "stroke", "epsilon": 20.0, "delta": 1e-3, "steps": 10} | options
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    for name, port in zip(NAMES, ports, strict=True):
        lines += ["[[party]]", f'name = "{name}"', f'address = "{HOST}:{port}"']
    return "\n".join([*lines, "[table]", table])


def patients(seed, n=400):
    """Return a table with numbers that cannot occur elsewhere by chance."""
    rng = np.random.default_rng(seed)
    age, bmi = rng.uniform(0, 120, n), rng.uniform(10, 60, n)
    sex = rng.choice(["female", "male"], n)
    stroke = np.where(age + 10 * (sex == "male") > 65, "yes", "no")
    return pd.DataFrame({"age": age, "bmi": bmi, "sex": sex, "stroke": stroke, "cost": 3 * age + 0.5})


class Run:
    """A study of three parties, each with a folder that holds its study file and its table."""

    def __init__(self, folder, machine, text):
        self.folder, self._machine, self.text = folder, machine, text
        self.parties = {}
        for seed, name in enumerate(NAMES):
            (folder / name).mkdir()
            (folder / name / "study.toml").write_text(text)
            patients(seed).to_csv(folder / name / "data.csv", index=False)

    def start(self, *names, words=("party",), **options):
        """Start parties. Options that are None are left out."""
        for name in names:
            values = {"index": NAMES.index(name), "data": "data.csv", "ledger": "ledger.jsonl", **options}
            given = [part for key, value in values.items() if value is not None for part in (f"--{key}", str(value))]
            self.parties[name] = self._machine.start(self.folder / name, command, *words, "study.toml", *given)
        return self

    def end(self):
        """Wait for all parties, and return their exit codes."""
        return [party.wait() for party in self.parties.values()]

    def model(self, name):
        return self.folder / name / "study.privet.json"

    def ledger(self, name):
        return Ledger(self.folder / name / "ledger.jsonl").entries()

    def refused(self, name):
        """Return the single error line of a party that failed, and check that it wrote no model."""
        assert self.parties[name].wait() == 2, self.parties[name].err
        assert not self.model(name).exists()
        (line,) = self.parties[name].err.splitlines()
        assert line.startswith("privet: ")
        return line


@pytest.fixture
def run(tmp_path):
    with Machine() as machine:
        yield lambda **options: Run(tmp_path, machine, study_text(machine.ports, **options))


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """Run a study with keys that the command line makes. North clips one value, and west brings no data."""
    folder = tmp_path_factory.mktemp("signed")
    with Machine() as machine:
        run = Run(folder, machine, study_text(machine.ports))
        table = patients(0)
        table.loc[17, "age"] = 137.73625  # beyond the bounds
        table.to_csv(folder / "north" / "data.csv", index=False)
        keygen = machine.start(folder / "north", command, "party", "keygen", "study.toml", "-o", str(folder / "keys"))
        assert keygen.wait() == 0, keygen.err
        assert "Keys of 3 parties" in keygen.out
        (folder / ".north").rename(folder / ".keygen")
        run.start("north", keys=folder / "keys")
        run.start("south", keys=folder / "keys", words=("party", "run"))
        run.start("west", keys=folder / "keys", data=None)
        assert run.end() == [0, 0, 0], [party.err for party in run.parties.values()]
    return run


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory):
    """Run a study without keys on one machine: Huber regression by joint output perturbation."""
    folder = tmp_path_factory.mktemp("unsigned")
    with Machine() as machine:
        options = {"table": NUMBERS, "model": "huber", "method": "output", "alpha": 0.05, "threshold": 100}
        run = Run(folder, machine, study_text(machine.ports, **options)).start(*NAMES, ledger=None)
        assert run.end() == [0, 0, 0], [party.err for party in run.parties.values()]
    return run


def run_privet(monkeypatch, capsys, *arguments):
    """Run the command line in this process, and return its exit code, output and errors."""
    monkeypatch.setattr(sys, "argv", ["privet", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as exit_:
        main()
        sys.exit(0)
    captured = capsys.readouterr()
    return exit_.value.code, captured.out, captured.err


# --------------------------------------------------------------------------------------------------- when all goes well


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_all_parties_write_the_same_model_and_the_same_guarantee(kind, request):
    run = request.getfixturevalue(kind)
    north, south, west = (run.model(name).read_text() for name in NAMES)
    assert north == south == west
    statement = TableModel.load(run.model("north")).guarantee.statement()
    for name, party in run.parties.items():
        assert party.err == ""
        assert f"{name}, party {NAMES.index(name)} of 3; study stroke" in party.out
        assert "All parties are connected" in party.out
        assert statement in party.out
        words = "unsigned, because there were no keys" if kind == "unsigned" else "signed by all 3 parties"
        assert f"Model written to study.privet.json, {words}" in party.out


def test_the_guarantee_states_study_and_threat_model(signed):
    guarantee = TableModel.load(signed.model("north")).guarantee
    study = Study.read(signed.folder / "north" / "study.toml")
    assert 19.9 < guarantee.epsilon <= 20.0
    assert (guarantee.delta, guarantee.adjacency) == (1e-3, Adjacency.REPLACE_ONE)
    assert f"the same study 'stroke' (SHA-256 {study.digest[:16]})" in guarantee.statement(verbose=True)
    assert "all 3 parties follow the protocol, and no 2 of them combine what they saw" in guarantee.statement(
        verbose=True
    )
    assert guarantee.is_conditional
    assert json.loads(signed.model("north").read_text())["study"]["digest"] == study.digest


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_privet_load_opens_the_model_of_a_study(kind, request):
    run = request.getfixturevalue(kind)
    model = privet.load(run.model("south"))
    assert isinstance(model, TableModel)
    fresh = patients(98)
    np.testing.assert_array_equal(model.predict(fresh), TableModel.load(run.model("west")).predict(fresh))


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_the_result_of_a_study_is_reported_with_its_owners(kind, request, tmp_path, monkeypatch, capsys):
    pytest.importorskip("jinja2", reason="reports need jinja2: install the extra report")
    run = request.getfixturevalue(kind)
    code, _, err = run_privet(monkeypatch, capsys, "report", run.model("north"), "-o", tmp_path / "report.html")
    assert (code, err) == (0, "")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "north, south, west" in page
    assert "fewer than half of them to combine what they see" in page
    assert "127.0.0.1" not in page


def test_every_party_records_the_guarantee_once(signed):
    for name in NAMES:
        (entry,) = signed.ledger(name)
        assert entry.label.startswith("study stroke (")
        assert entry.guarantee.event == TableModel.load(signed.model(name)).guarantee.event


def test_models_of_studies_predict_accurately(signed, unsigned, monkeypatch, capsys):
    fresh = patients(99)
    table = signed.folder / "fresh.csv"
    fresh.to_csv(table, index=False)
    code, out, err = run_privet(monkeypatch, capsys, "predict", signed.model("south"), table, "--score")
    assert code == 0
    assert set(out.splitlines()) == {"stroke", "no", "yes"}
    assert float(re.search(r"accuracy (\S+)", err)[1]) > 0.8
    code, out, err = run_privet(monkeypatch, capsys, "predict", unsigned.model("west"), table, "--score")
    assert code == 0
    predicted = pd.read_csv(io.StringIO(out))["prediction"]
    assert np.corrcoef(predicted, fresh["cost"])[0, 1] > 0.9
    model = TableModel.load(unsigned.model("west"))
    assert model.estimator.threshold == pytest.approx(0.5)  # 100 of bounds that are 400 apart, mapped to [-1, 1]
    assert model.estimator.method_ == "joint output perturbation"
    assert TableModel.load(signed.model("west")).estimator.method_reason_ == "2 parties with 800 rows in all"


def test_only_the_model_and_the_ledger_are_written(signed, unsigned):
    for run, expected in ((signed, {"study.privet.json", "ledger.jsonl"}), (unsigned, {"study.privet.json"})):
        for name, party in run.parties.items():
            folder = run.folder / name
            assert {path.name for path in folder.iterdir()} == {"study.toml", "data.csv"} | expected
            assert not any((run.folder / f".{name}" / "tmp").iterdir())
            stems = {
                re.sub(r"^\.(.+)\.\w{8}$", r"\1", path.name) for path in party.written
            }  # written to a temporary name, then renamed
            assert stems == expected
            assert {path.parent for path in party.written} == {folder}


def test_no_cell_of_a_table_appears_in_files_or_output(signed):
    for name, party in signed.parties.items():
        said = signed.model(name).read_text() + party.out + (signed.folder / name / "ledger.jsonl").read_text("latin-1")
        for seed in range(3):
            for column in ("age", "bmi", "cost"):
                cells = [f"{cell:.6g}" for cell in patients(seed)[column]]
                assert not [cell for cell in cells if len(cell) >= 6 and cell in said]


def test_verify_accepts_a_model_that_all_parties_signed(signed, monkeypatch, capsys):
    ca = signed.folder / "keys" / "ca.crt"
    code, out, _ = run_privet(monkeypatch, capsys, "party", "verify", signed.model("north"), "--ca", ca)
    assert code == 0
    digest = Study.read(signed.folder / "north" / "study.toml").digest
    parties = ["  party 0: north", "  party 1: south", "  party 2: west"]
    assert out.splitlines()[:5] == [f"Study stroke, SHA-256 {digest}", "Signed by all 3 parties:", *parties]
    assert TableModel.load(signed.model("north")).guarantee.statement() in out


def test_verify_names_the_servers_that_signed_and_not_the_owners(signed, tmp_path, monkeypatch, capsys):
    keys, genuine = signed.folder / "keys", json.loads(signed.model("north").read_text())
    study = Study.read(signed.folder / "north" / "study.toml")
    owners = (PartyInfo("ann", "", 0), PartyInfo("bob", "", 0))
    study = replace(study, servers=study.parties, parties=owners, rows_per_owner=300)
    result = {key: genuine[key] for key in ("schema", "model")} | {"study": {"digest": study.digest, **study.to_dict()}}
    signers = [Identity.load(keys, index) for index in range(3)]
    signatures = [Signature(each.name, each.certificate, each.sign(signed_text(result))) for each in signers]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(with_signatures(result, signatures)))
    code, out, err = run_privet(monkeypatch, capsys, "party", "verify", path, "--ca", keys / "ca.crt")
    assert code == 0, err
    servers = ["  server 0: north", "  server 1: south", "  server 2: west"]
    assert out.splitlines()[1:5] == ["Signed by all 3 servers:", *servers]


def changed_model(fields):
    fields["model"]["learned"]["coef_"]["__array__"][0][0] += 1e-9


def changed_guarantee(fields):
    fields["model"]["learned"]["guarantee_"]["__guarantee__"]["epsilon"] = 21.0


def changed_study(fields):
    fields["study"]["epsilon"] = 0.1


def missing_signature(fields):
    del fields["signatures"][1]


def missing_party(fields):
    del fields["signatures"][2]
    del fields["study"]["parties"][2]


def swapped_signatures(fields):
    one, other = fields["signatures"][:2]
    one["signature"], other["signature"] = other["signature"], one["signature"]


def one_signs_for_all(fields):
    fields["signatures"] = [{**fields["signatures"][0], "party": name} for name in NAMES]


def no_base64(fields):
    fields["signatures"][0]["signature"] = base64.b64encode(b"nonsense").decode()


def no_signatures(fields):
    fields["signatures"] = []


def no_study(fields):
    del fields["study"]


def half_a_study(fields):
    del fields["study"]["parties"]


def half_a_signature(fields):
    del fields["signatures"][0]["certificate"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed_model, "the signed text was changed"),
        (changed_guarantee, "the signed text was changed"),
        (changed_study, "The study does not match its digest, so one of them was changed"),
        (missing_signature, "is not signed by all of north, south, west"),
        (missing_party, "The study does not match its digest"),
        (swapped_signatures, "the signed text was changed"),
        (one_signs_for_all, "belongs to party 0 (north), not to party 1"),
        (no_base64, "the signed text was changed"),
        (no_signatures, "is not signed, because its study was run without keys"),
        (no_study, "is not the result of a study"),
        (half_a_study, "The study does not match its digest"),
        (half_a_signature, "is not the result of a study"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_verify_refuses_a_changed_file(signed, tmp_path, monkeypatch, capsys, change, words):
    fields = json.loads(signed.model("north").read_text())
    change(fields)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(fields))
    code, out, err = run_privet(monkeypatch, capsys, "party", "verify", path, "--ca", signed.folder / "keys" / "ca.crt")
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def signed_by(fields, keys, parties, digest=None):
    """Return a result for these parties, signed with the keys of as many parties, with a valid or another digest."""
    values = {key: value for key, value in fields["study"].items() if key != "digest"} | {"parties": parties}
    text = json.dumps([PROTOCOL, values], sort_keys=True).encode()
    study = {"digest": digest or hashlib.sha256(text).hexdigest(), **values}
    result = {"schema": fields["schema"], "model": fields["model"], "study": study}
    signers = [Identity.load(keys, index) for index in range(len(parties))]
    signatures = [
        Signature(party["name"], signer.certificate, signer.sign(signed_text(result)))
        for party, signer in zip(parties, signers, strict=True)
    ]
    return with_signatures(result, signatures)


def test_one_party_cannot_sign_for_all(signed, tmp_path):
    """A single party could otherwise name itself "north, south, west", and keep the digest of the genuine study."""
    keys, genuine = signed.folder / "keys", json.loads(signed.model("north").read_text())
    ca, parties, digest = (keys / "ca.crt").read_bytes(), genuine["study"]["parties"], genuine["study"]["digest"]
    assert verify_result(signed_by(genuine, keys, parties), ca).digest == digest
    alone = [{**parties[0], "name": "north, south, west"}]
    for forged, words in (
        (signed_by(genuine, keys, alone, digest), "does not match its digest"),
        (signed_by(genuine, keys, alone), "'north, south, west' is not a valid name of a party"),
        (signed_by(genuine, keys, parties[:1]), "at least three parties, got 1"),
        (signed_by(genuine, keys, [*parties[:2], {**parties[2], "name": "east"}]), "names 'west', but the study names"),
    ):
        with pytest.raises(ValueError, match=words):
            verify_result(forged, ca)


def test_results_of_earlier_versions_can_still_be_verified():
    saved = json.loads((Path(__file__).parents[1] / "saved" / "party.json").read_text())
    values = {key: value for key, value in saved["study"].items() if key != "digest"}
    check_digest(values, saved["study"]["digest"])
    with pytest.raises(StudyError, match="does not match its digest"):
        check_digest(values | {"parties": values["parties"][:2]}, saved["study"]["digest"])


def test_verify_needs_the_authority_of_the_study(signed, unsigned, tmp_path, monkeypatch, capsys):
    other = make_keys(tmp_path / "other", list(NAMES)) / "ca.crt"
    model = signed.model("north")
    assert "another authority" in run_privet(monkeypatch, capsys, "party", "verify", model, "--ca", other)[2]
    assert "Give --ca, the ca.crt of the study" in run_privet(monkeypatch, capsys, "party", "verify", model)[2]
    code, _, err = run_privet(monkeypatch, capsys, "party", "verify", model, "--ca", tmp_path / "none.crt")
    assert code == 2
    assert "none.crt" in err
    code, _, err = run_privet(monkeypatch, capsys, "party", "verify", unsigned.model("north"), "--ca", other)
    assert code == 2
    assert "is not signed" in err


def test_keygen_never_overwrites_keys(signed, monkeypatch, capsys):
    keys = signed.folder / "keys"
    before = {path.name: path.read_bytes() for path in keys.iterdir()}
    assert set(before) == {"ca.crt", *(f"party_{index}.{end}" for index in range(3) for end in ("crt", "key"))}
    study = signed.folder / "north" / "study.toml"
    code, _, err = run_privet(monkeypatch, capsys, "party", "keygen", study, "-o", keys)
    assert code == 2
    assert "keys are never overwritten. Choose a new folder" in err
    assert {path.name: path.read_bytes() for path in keys.iterdir()} == before


def test_party_local_runs_a_study_on_one_machine(tmp_path):
    """Fresh processes of the installed program train a ridge model. The third party has no table."""
    text = study_text([9100, 9101, 9102], table=NUMBERS, model="ridge")
    (tmp_path / "study.toml").write_text(text)
    for seed in range(2):
        patients(seed).to_csv(tmp_path / f"{seed}.csv", index=False)
    words = [sys.executable, "-m", "privet", "party", "local", "study.toml", "--data", "0.csv", "--data", "1.csv"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(
        [*words, "-o", "made/results"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    models = [(tmp_path / "made" / "results" / f"{name}.privet.json").read_text() for name in NAMES]
    assert models[0] == models[1] == models[2]
    assert "signed by all 3 parties" in done.stdout
    model = TableModel.load(tmp_path / "made" / "results" / "west.privet.json")
    fresh = patients(99)
    assert np.corrcoef(model.predict(fresh), fresh["cost"])[0, 1] > 0.9
    assert {path.name for path in tmp_path.iterdir()} == {"study.toml", "0.csv", "1.csv", "made"}


# ------------------------------------------------------------------------------------------------------------ the words


def test_help_lists_all_commands(monkeypatch, capsys):
    code, out, _ = run_privet(monkeypatch, capsys, "party", "--help")
    assert code == 0
    for word in ("run", "keygen", "local", "verify", "without showing them your rows"):
        assert word in out
    assert (
        "--at" not in run_privet(monkeypatch, capsys, "party", "run", "--help")[1]
    )  # used by `privet party local` only


@pytest.mark.parametrize("words", [("party",), ("party", "run")])
def test_the_word_run_may_be_left_out(tmp_path, monkeypatch, capsys, words):
    (tmp_path / "study.toml").write_text(study_text([9100, 9101, 9102]))
    code, _, err = run_privet(monkeypatch, capsys, *words, tmp_path / "study.toml", "--index", 7)
    assert code == 2
    assert err == "privet: --index must be the position of this party in the study, from 0 to 2, got 7.\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("party", "none.toml", "--index", 0), "The study none.toml does not exist"),
        (("party", "study.toml"), "Give exactly one of --index, --server"),
        (("party", "study.toml", "--index", 0, "-o", "none/model.json"), "The folder none does not exist"),
        (("party", "study.toml", "--index", 0, "--ledger", "none/ledger"), "The folder none does not exist"),
        (("party", "study.toml", "--index", 0, "--keys", "none"), "make keys with `privet party keygen`"),
        (("party", "study.toml", "--index", 0, "--at", "a:1"), "3 parties, got 1 addresses"),
        (("party", "far.toml", "--index", 0), "north.example is not this machine, and without keys"),
        (("party", "two.toml", "--index", 0), "A study needs at least three parties, got 2"),
        (("party", "keygen", "two.toml"), "A study needs at least three parties, got 2"),
        (("party", "keygen", "study.toml", "--days", -1), "days must be positive"),
        (
            ("party", "local", "study.toml", *["--data", "far.toml"] * 4),
            "3 parties. Give --data at most once per party, got 4",
        ),
        (("party", "local", "served.toml", "--data", "far.toml"), "starts studies without servers only"),
        (("party", "verify", "study.toml"), "is not a privet model"),
    ],
)
def test_mistakes_are_reported_in_one_line(tmp_path, monkeypatch, capsys, words, complaint):
    text = study_text([9100, 9101, 9102])
    (tmp_path / "study.toml").write_text(text)
    (tmp_path / "far.toml").write_text(text.replace(f"{HOST}:9100", "north.example:9100"))
    (tmp_path / "two.toml").write_text(re.sub(r'\[\[party\]\]\nname = "west"\n.*\n', "", text))
    served = study_text([9100, 9110, 9120], owners=5, rows_per_owner=400).replace("[[party]]", "[[server]]")
    (tmp_path / "served.toml").write_text(served)
    monkeypatch.chdir(tmp_path)
    code, _, err = run_privet(monkeypatch, capsys, *words)
    assert code == 2
    assert complaint in err
    assert {path.name for path in tmp_path.iterdir()} == {"study.toml", "far.toml", "two.toml", "served.toml"}


# -------------------------------------------------------------------------------------------------------- when it fails


def test_a_party_killed_during_the_descent_ends_all_others(run):
    """Noisy sums have been opened by then, so the budget is spent although there is no model."""
    broken = run(steps=MANY_STEPS, epsilon=1.0).start(*NAMES, timeout=100)
    for name in ("north", "south"):
        broken.parties[name].until(lambda name=name: broken.ledger(name))
    broken.parties["west"].kill()
    start = time.monotonic()
    for name in ("north", "south"):
        assert re.search(r"party 2 \(.*\) (closed the connection|is no longer connected)", broken.refused(name))
        (entry,) = broken.ledger(name)
        assert entry.guarantee.epsilon <= 1.0
    assert time.monotonic() - start < 50  # well before the timeout


def test_a_party_killed_before_anything_is_opened_costs_no_budget(run):
    broken = run().start("north", "south", timeout=100)
    addresses = [(party.host, party.port) for party in Study.from_values(tomllib.loads(broken.text)).parties]
    orders = {"addresses": addresses, "index": 2, "do": "hold", "holder": 2}  # West connects, and sends nothing.
    west = broken.parties["west"] = broken._machine.start(broken.folder / "west", network_party.main, orders)
    west.until(lambda: '"connected"' in west.out)
    west.kill()
    for name in ("north", "south"):
        assert re.search(r"party 2 \(.*\) (closed the connection|is no longer connected)", broken.refused(name))
        assert not broken.ledger(name)
    assert not broken.ledger("west")


def test_a_missing_party_is_named_after_the_timeout(run):
    broken = run().start("north", "south", **{"connect-timeout": 2})
    for name in ("north", "south"):
        assert "party 2 did not connect within 2 s" in broken.refused(name)
        assert not broken.ledger(name)
    assert "Waiting for south, west" in broken.parties["north"].out


def test_a_different_study_is_noticed_before_anything_is_opened(run):
    broken = run()
    (broken.folder / "west" / "study.toml").write_text(broken.text.replace("epsilon = 20.0", "epsilon = 2.0"))
    broken.start(*NAMES)
    for name in NAMES:
        line = broken.refused(name)
        assert "a different study than" in line
        assert "2 (west)" in line
        assert "Nothing was released. Compare the study files" in line
        assert not broken.ledger(name)


def test_a_table_that_does_not_match_is_refused_before_any_contact(run):
    """Otherwise studies with other levels would show the other parties, at no cost, which levels a table contains."""
    broken = run()
    table = broken.folder / "south" / "data.csv"
    patients(1).assign(sex=lambda frame: frame["sex"].where(frame.index != 7, "other")).to_csv(table, index=False)
    with socket.create_server((HOST, Study.from_values(tomllib.loads(broken.text)).parties[2].port)) as west:
        broken.start("south", **{"connect-timeout": 100})
        assert "row 8: level 'other' is not declared" in broken.refused("south")
        west.settimeout(0)
        with pytest.raises(BlockingIOError):  # Nobody called.
            west.accept()
    assert broken.parties["south"].out == ""


def test_only_the_owner_learns_how_many_values_were_clipped(signed):
    """A refusal would let studies with different bounds find the largest value of a column without any budget."""
    north, *others = (signed.parties[name].out for name in NAMES)
    assert "Values beyond the study's bounds were clipped to them: 1 of 'age'. These numbers are not private" in north
    for said in (*others, signed.model("north").read_text()):
        assert "were clipped to them:" not in said
        assert "137.7" not in said
    statement = TableModel.load(signed.model("south")).guarantee.statement(verbose=True)
    assert "values beyond its bounds were clipped to them" in statement


def test_a_party_with_an_expired_certificate_is_refused(run, tmp_path):
    broken = run()
    keys = make_keys(tmp_path / "keys", list(NAMES))
    old = make_keys(tmp_path / "old", list(NAMES), days=5, start=datetime.now(UTC) - timedelta(days=10))
    broken.start("north", "west", keys=keys, **{"connect-timeout": 2}).start("south", keys=old)
    assert "The certificate of party 1 (south) expired on" in broken.refused("south")
    assert "Make new keys for all parties" in broken.refused("south")
    for name in ("north", "west"):
        assert "party 1" in broken.refused(name)
        assert not broken.ledger(name)


def test_nothing_is_opened_unless_all_ledgers_accept_the_guarantee(run):
    """The ledger of south has entries of another adjacency, so it refuses this one."""
    broken = run()
    other = Guarantee.of(GaussianRelease(0.1), Adjacency.ADD_OR_REMOVE, 1e-3, released="a mean")
    Ledger(broken.folder / "south" / "ledger.jsonl").spend(other)
    broken.start(*NAMES)
    assert "cannot compose add-or-remove with replace-one" in broken.refused("south")
    for name in ("north", "west"):
        assert "party 1: ended with ValueError. See its own messages." in broken.refused(name)
    assert [entry.guarantee.adjacency for entry in broken.ledger("south")] == [Adjacency.ADD_OR_REMOVE]


def test_the_limit_of_one_party_stops_all_before_any_budget_is_recorded(run):
    broken = run().start("north", "west").start("south", limit=19, **{"limit-delta": 1e-3})
    line = broken.refused("south")
    assert "at delta = 0.001, above the limit of 19; nothing was recorded" in line
    assert "--limit-delta" in line
    for name in ("north", "west"):
        assert "party 1: ended with BudgetExceededError. See its own messages." in broken.refused(name)
    assert not any(broken.ledger(name) for name in NAMES)


def test_an_unreadable_ledger_is_noticed_before_connecting(run):
    broken = run()
    (broken.folder / "south" / "ledger.jsonl").write_text("spent a little\n")
    broken.start("south", **{"connect-timeout": 100})
    assert "ledger.jsonl is not a ledger" in broken.refused("south")
    assert "Waiting for" not in broken.parties["south"].out


def test_party_local_reports_whose_table_does_not_match(tmp_path, monkeypatch):
    (tmp_path / "study.toml").write_text(study_text([9100, 9101, 9102]))
    patients(0).to_csv(tmp_path / "0.csv", index=False)
    patients(1).drop(columns="sex").to_csv(tmp_path / "1.csv", index=False)
    monkeypatch.chdir(tmp_path)
    console = Console(file=io.StringIO(), width=300)
    study = Study.read("study.toml")
    with pytest.raises(TableError, match="south: The table has no column 'sex'"):
        commands.local(
            Path("study.toml"),
            study,
            [Path("0.csv"), Path("1.csv")],
            output=tmp_path / "results",
            timeout=60.0,
            console=console,
        )
    assert not (tmp_path / "results").exists()


# ------------------------------------------------------------------------------------------------------------ the model


def release(weights, delta=1e-3):
    guarantee = Guarantee.of(GaussianRelease(0.1), Adjacency.REPLACE_ONE, delta, released="weights")
    return Release(np.array(weights), guarantee, {"steps": 10, "counts": [3, 0, 4]})


@pytest.mark.parametrize("scaling", [0.5, 0.0])
def test_predictions_of_the_result_follow_from_the_weights(scaling, tmp_path):
    (tmp_path / "study.toml").write_text(study_text([1, 2, 3], intercept_scaling=scaling))
    study = Study.read(tmp_path / "study.toml")
    weights = [1.5, -2.0, 0.25, 0.5] + [0.75] * (scaling > 0)
    result = to_result(study, release(weights))
    assert result["study"]["digest"] == study.digest
    (tmp_path / "model.json").write_text(json.dumps(result))
    model = TableModel.load(tmp_path / "model.json")
    frame = patients(5)
    rows, _ = study.encode(frame)
    scores = rows @ weights[:4] + (0.75 * scaling if scaling else 0.0)
    np.testing.assert_allclose(model.predict_proba(frame)[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-12)
    assert model.predict(frame).tolist() == np.where(scores > 0, "yes", "no").tolist()
    assert model.guarantee == release(weights).guarantee
    assert model.estimator.method_reason_ == "2 parties with 7 rows in all"


def test_weights_need_a_declared_target():
    schema = TableSchema((Numeric("age", 0, 120),), Target("stroke"))
    with pytest.raises(TableError, match="declares the levels or bounds of its target"):
        TableModel(schema, PrivateLogisticRegression()).adopt(release([1.0, 2.0]), method="joint", reason="")


def test_weights_of_another_study_are_refused(tmp_path):
    (tmp_path / "study.toml").write_text(study_text([1, 2, 3]))
    study = Study.read(tmp_path / "study.toml")
    with pytest.raises(ValueError, match="weights for 4 features and the intercept"):
        to_result(study, release([1.0, 2.0]))
    with pytest.raises(ValueError, match="weights for 4 features and the intercept"):
        to_result(replace(study, intercept_scaling=0.0), release([1.0] * 5))
