"""``privet schema`` with real files, and with a person at a real pseudo-terminal."""

import json
import os
import pty
import re
import select
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from privet.cli import app, main
from privet.privacy import BudgetExceededError, Ledger
from privet.tables import Categorical, Date, Numeric, TableSchema, Target, read_table

BOOK = "age: integer, 0-120, age in years\nsex: female, male\nnonsense here\nill: yes, no\n"


def the_feature(name):
    return next(each for each in TableSchema.from_toml("schema.toml").features if each.name == name)


def run(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["schema", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(BOOK)
    # Behind the header, nothing can be read: neither as text nor as a table.
    Path("unreadable.csv").write_bytes(b'age,sex,ill,ward\n\xff\xfe\x00secret,"\n')
    rng = np.random.default_rng(0)
    n = 3000
    frame = pd.DataFrame({"age": rng.integers(20, 90, n), "sex": rng.choice(["female", "male"], n)})
    frame.assign(id=range(n), ill=rng.integers(0, 2, n)).to_csv("rows.csv", index=False)
    return tmp_path


# ------------------------------------------------------------------------------------------------- public sources


def test_a_code_book_describes_a_table_of_which_only_the_header_is_read(folder):
    done = run("unreadable.csv", "--code-book", "book.txt", "--target", "ill")
    assert done.exit_code == 0, done.output
    expected = TableSchema(
        (Numeric("age", 0, 120), Categorical("sex", ("female", "male"))), Target("ill", ("yes", "no"))
    )
    assert TableSchema.from_toml("schema.toml") == expected
    assert "Line 3: 'nonsense here' is not understood." in done.output
    assert "privet check unreadable.csv --schema schema.toml" in done.output
    assert "# ward: not described" in Path("schema.toml").read_text()
    assert "secret" not in done.output + Path("schema.toml").read_text()


def test_columns_that_the_table_lacks_are_named(folder):
    Path("other.csv").write_text("Age,sex\n1,2\n")
    done = run("other.csv", "--code-book", "book.txt")
    assert done.exit_code == 0
    assert "book.txt describes columns that other.csv does not have: age, ill" in done.stderr


def test_a_public_sample_is_read_off(folder):
    done = run("--sample", "rows.csv", "-o", "s.toml", "--id", "id")
    assert done.exit_code == 0, done.output
    assert TableSchema.from_toml("s.toml").features[0] == Numeric("age", 10, 100)
    assert "They must be public" in Path("s.toml").read_text()


@pytest.mark.parametrize("source", [("--sample",), ("--epsilon", "4", "--seed", "1")])
def test_the_given_form_of_a_file_counts_and_is_kept_in_the_schema_file(folder, source):
    money = pd.Series(np.linspace(1000, 4000, 3000)).map("{:_.2f}".format)  # 1.234,50 in the file
    frame = pd.read_csv("rows.csv").assign(geld=money.str.translate(str.maketrans("_.", ".,")), größe=money.index)
    frame.to_csv("form.txt", sep="|", index=False, encoding="utf-16-le")  # without a byte-order mark
    form = ("--sep", "pipe", "--decimal", ",", "--encoding", "utf-16-le")
    assert run(*source, "form.txt", "--id", "id", "-o", "no.toml").exit_code != 0
    done = run(*source, "form.txt", "--id", "id", *form)
    assert done.exit_code == 0, done.output
    schema, geld = TableSchema.from_toml("schema.toml"), the_feature("geld")
    assert isinstance(geld, Numeric) and 0 <= geld.low <= 1500 and 3500 <= geld.high <= 5000
    assert schema.form.to_dict() == {"separator": "|", "decimal": ",", "encoding": "utf-16-le"}
    assert schema.encode(read_table("form.txt", schema)).shape == (3000, len(schema.columns))  # needs no option


def test_the_given_form_counts_for_the_header_of_a_table_with_a_code_book(folder):
    Path("mac.csv").write_bytes("größe;geschlecht\n".encode("mac-roman"))
    Path("mac.txt").write_text("größe: 0-300\ngeschlecht: m, w\n", encoding="utf-8")
    assert run("mac.csv", "--code-book", "mac.txt", "--encoding", "mac-roman").exit_code == 0
    assert the_feature("größe") == Numeric("größe", 0, 300)


@pytest.mark.parametrize("source", [("--sample",), ("--epsilon", "4", "--seed", "1")])
def test_decimal_commas_are_numbers_in_a_draft_if_they_are_in_a_fit(folder, source):
    frame = pd.read_csv("rows.csv").assign(bmi=np.linspace(18, 40, 3000).round(2))
    frame.to_csv("commas.csv", sep=";", decimal=",", index=False)
    done = run(*source, "commas.csv", "--id", "id")
    assert done.exit_code == 0, done.output
    schema, bmi = TableSchema.from_toml("schema.toml"), the_feature("bmi")
    assert isinstance(bmi, Numeric)
    assert bmi.low <= 20 and bmi.high >= 38
    assert np.ptp(schema.encode(read_table("commas.csv", schema))[:, list(schema.columns).index("bmi")]) > 0


@pytest.mark.parametrize("text", ["", "a study\nof nothing\n", "name,type\n", "x: number\n"])
def test_a_code_book_without_any_usable_column_writes_nothing(folder, text):
    Path("empty.txt").write_text(text)
    done = run("--code-book", "empty.txt")
    assert done.exit_code != 0
    assert not Path("schema.toml").exists()
    assert "column" in str(done.exception)


# --------------------------------------------------------------------------------------------------- private rows


def test_a_private_draft_is_booked_and_stated(folder):
    done = run("rows.csv", "--epsilon", 4, "--ledger", "l", "--id", "id", "--target", "ill", "--json", "out.json")
    assert done.exit_code == 0, done.output
    (entry,) = Ledger("l").entries()
    assert entry.guarantee.epsilon <= 4
    assert entry.label == "schema rows.csv -> schema.toml"
    drafted = TableSchema.from_toml("schema.toml")
    assert drafted.target == Target("ill", ("0", "1"))
    assert [feature.name for feature in drafted.features] == ["age", "sex"]
    assert drafted.ids == ("id",)
    fields = json.loads(Path("out.json").read_text())
    assert [column["role"] for column in fields["columns"]] == ["numeric", "categorical", "ID", "target"]
    assert fields["guarantee"]["epsilon"] == pytest.approx(entry.guarantee.epsilon)
    assert "differential privacy" in Path("schema.toml").read_text()


def test_the_cost_is_on_record_before_anything_is_drawn_or_written(folder, monkeypatch):
    def fails(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("privet.drafts.private.ask", fails)
    assert run("rows.csv", "--epsilon", 4, "--ledger", "l").exit_code != 0
    assert len(Ledger("l").entries()) == 1
    assert not Path("schema.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--epsilon", 0.01, "--ledger", "l"], "too small for 3000 rows"),
        (["--epsilon", 1, "--delta", 0, "--ledger", "l"], "delta > 0"),
        (["--epsilon", -1, "--ledger", "l"], "epsilon must be positive"),
        (["--epsilon", 1e9, "--ledger", "l"], "no protection"),
        (["--epsilon", 4, "--ledger", "l", "--target", "Ill"], "no column 'Ill'"),
        (["--epsilon", 4, "--ledger", "l", "--output", "book.txt"], "exists already"),
        (["--epsilon", 4, "--ledger", "l", "--output", "rows.csv"], "is the table"),
        (["--epsilon", 4, "--sample", "rows.csv"], "cannot be given together"),
        (["--code-book", "book.txt", "--ledger", "l"], "--ledger is for private drafts only"),
        ([], "no terminal to ask in"),
    ],
)
def test_nothing_is_spent_or_written_if_something_is_wrong(folder, arguments, problem, monkeypatch):
    before = Path("rows.csv").read_bytes()
    done = run("rows.csv", *arguments)
    assert done.exit_code != 0
    assert problem in str(done.exception)
    assert not Path("schema.toml").exists()
    assert not Ledger("l").entries()
    assert Path("rows.csv").read_bytes() == before


def test_a_limit_of_the_ledger_holds_for_drafts(folder):
    done = run("rows.csv", "--epsilon", 4, "--ledger", "l", "--limit", 3)
    assert isinstance(done.exception, BudgetExceededError)
    assert not Path("schema.toml").exists()


def test_without_a_ledger_the_cost_is_pointed_out(folder):
    assert "Nothing recorded what this draft has spent" in run("rows.csv", "--epsilon", 4).stderr


def test_a_file_is_replaced_only_on_request(folder):
    Path("schema.toml").write_text("mine")
    done = run("--code-book", "book.txt")
    assert "schema.toml exists already" in str(done.exception)
    assert Path("schema.toml").read_text() == "mine"
    assert run("--code-book", "book.txt", "--force").exit_code == 0
    assert "age" in Path("schema.toml").read_text()


# ------------------------------------------------------------------------------------------------------- a person


def at_the_terminal(arguments, answers):
    """Run ``privet`` in a process with a terminal of its own. Write each answer after its prompt."""
    child, terminal = pty.fork()
    if child == 0:
        code = 3
        try:
            os.environ["TERM"] = "dumb"  # no control sequences around the prompts
            sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")  # not pytest's
            sys.argv = ["privet", *arguments]
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    shown = b""
    waiting = list(answers)
    patience, sent = 20, ""
    while True:
        if not select.select([terminal], [], [], 3)[0]:
            patience -= 1
            if sent == "\x03":  # An interrupt in the moment before readline waits is noticed at the next one.
                os.write(terminal, sent.encode())
            if patience:
                continue
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail(f"It waits for something else: {shown!r}")
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the process has closed its side
            part = b""
        if not part:
            break
        shown += part
        if waiting and re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).endswith(b": "):
            sent = waiting.pop(0)
            os.write(terminal, sent.encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode()


def test_a_person_describes_the_columns_and_can_go_back(folder):
    Path("visits.csv").write_bytes(b'patient_id,age,sex,since,ill,note\n\xff\xfe\x00secret,"\n')
    answers = ["nobody\n", "ill\n", "\n", "n\n", "0:abc\n", "<\n", "n\n", "200:0\n", "0:110\n", "y\n"]
    answers += ["c\n", "female\n", "female, male\n", "\n", "d\n", "2019-01-01:2024-12-31\n", "%d/%m/%Y\n", "n\n"]
    answers += ["c\n", "no, yes\n", "x\n"]
    code, shown = at_the_terminal(["schema", "visits.csv"], answers)
    assert code == 0, shown
    since = Date("since", "2019-01-01", "2024-12-31", format="%d/%m/%Y")
    features = (Numeric("age", 0, 110, missing="level"), Categorical("sex", ("female", "male")), since)
    expected = TableSchema(features, Target("ill", ("no", "yes")), (), ("patient_id",))
    assert TableSchema.from_toml("schema.toml") == expected
    assert "secret" not in shown + Path("schema.toml").read_text()
    for complaint in ("no column 'nobody'", "'0:abc' is not a pair of numbers", "must be below", "at least two levels"):
        assert complaint in shown


@pytest.mark.parametrize(("answers", "code"), [(["none\n", "\x04"], 2), (["none\n", "\x03"], None)])
def test_a_person_who_stops_leaves_nothing(folder, answers, code):
    found, shown = at_the_terminal(["schema", "rows.csv", "--ask"], answers)
    assert found != 0
    assert found == (code or found)
    assert not Path("schema.toml").exists()
    assert "Traceback" not in shown
