"""Files of all forms on the command line: from the file to predictions, or to one line that says what to do."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from preloaded_cli import PreloadedCommandLine


@pytest.fixture(scope="module")
def privet():
    """Run a command in a process that was forked after the imports."""
    command_line = PreloadedCommandLine()
    yield command_line
    command_line.close()


N = 300
AGE = np.round(np.random.default_rng(0).uniform(0, 100, N), 2)
NAME = np.where(np.arange(N) % 7 == 0, "Müller; Ä.", "O'Neil, B.")
FRAME = pd.DataFrame({"patient": NAME, "my age": AGE, "sick": np.where(AGE > 50, "ja", "nein")})
FIT = ["fit", "t.csv", "--target", "sick", "--bounds", "my age=0:100", "--levels", "sick=ja,nein", "--epsilon", "50"]
FIT += ["--id", "patient", "--seed", "1"]


def messy(separator=";", decimal=",", end="\r\n", encoding="latin-1") -> bytes:
    return FRAME.to_csv(index=False, sep=separator, decimal=decimal, lineterminator=end).encode(encoding)


def outcome(privet, folder, *more):
    fitted = privet(*FIT, *more, cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    predicted = privet("predict", "model.privet.json", "t.csv", "--score", cwd=folder)
    assert predicted.returncode == 0, predicted.stderr
    (folder / "p.csv").write_text(predicted.stdout)
    return pd.read_csv(folder / "p.csv"), predicted.stderr, (folder / "model.privet.json").read_text()


def test_a_messy_file_gives_the_same_model_as_a_tidy_one_and_ids_come_first(privet, tmp_path):
    (tmp_path / "t.csv").write_bytes(messy(",", ".", "\n", "utf-8"))
    tidy, score, _ = outcome(privet, tmp_path)
    assert list(tidy) == ["patient", "sick"]
    assert tidy["patient"].tolist() == NAME.tolist()
    assert "accuracy 0.9" in score
    for separator, decimal, end, encoding in [
        (";", ",", "\r\n", "latin-1"),
        (";", ",", "\n", "utf-16"),
        ("\t", ",", "\r", "utf-8-sig"),
        ("|", ".", "\r\n", "cp1252"),
    ]:
        (tmp_path / "t.csv").write_bytes(messy(separator, decimal, end, encoding))
        found, other_score, _ = outcome(privet, tmp_path)
        assert found.equals(tidy)
        assert other_score == score


def test_what_is_given_is_kept_with_the_model_and_can_be_overridden(privet, tmp_path):
    (tmp_path / "t.csv").write_bytes(messy(";", ",", "\n", "cp1250"))
    found, _, model = outcome(privet, tmp_path, "--sep", "semicolon", "--decimal", ",", "--encoding", "cp1250")
    assert json.loads(model)["schema"]["file"] == {"separator": ";", "decimal": ",", "encoding": "cp1250"}
    (tmp_path / "u.csv").write_bytes(messy(",", ".", "\n", "utf-8"))
    wrong = privet("predict", "model.privet.json", "u.csv", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--sep" in wrong.stderr or "no column" in wrong.stderr
    options = ["--sep", ",", "--decimal", ".", "--encoding", "utf-8"]
    right = privet("predict", "model.privet.json", "u.csv", *options, "-o", "p.csv", cwd=tmp_path)
    assert right.returncode == 0, right.stderr
    assert pd.read_csv(tmp_path / "p.csv").equals(found)


def test_missing_cells_are_refused_with_the_option_and_accepted_with_it(privet, tmp_path):
    (tmp_path / "t.csv").write_text(FRAME.assign(**{"my age": FRAME["my age"].where(AGE > 5)}).to_csv(index=False))
    refused = privet(*FIT, cwd=tmp_path)
    assert refused.returncode == 2
    assert "missing values, the first in row" in refused.stderr
    assert "--missing" in refused.stderr
    for rule in ("level", "my age=40"):
        assert privet(*FIT, "--missing", rule, cwd=tmp_path).returncode == 0
        assert privet("predict", "model.privet.json", "t.csv", "-o", "p.csv", cwd=tmp_path).returncode == 0
        assert len(pd.read_csv(tmp_path / "p.csv")) == N


CSV = FRAME.to_csv(index=False).encode()
BAD = {
    "empty": (b"", "is empty"),
    "header": (CSV[: CSV.index(b"\n") + 1], "no rows"),
    "binary": (bytes(range(256)) * 99, "NUL bytes"),
    "elf": (b"\x7fELF\x02" + b"\x00" * 999, "NUL bytes"),
    "one line": (b"x" * 100_000, "no column"),
    "repeated": (CSV.replace(b"sick", b"my age", 1), "2 columns named 'my age'"),
    "open quote": (CSV.replace(b"\n", b'\n"', 1), "row 1 has a quotation mark"),
    "ragged": (CSV + b"a,b\n", f"row {N + 1} has 2 cells"),
    "two marks": (messy().replace(b";", b";1.", 9).replace(b";1.", b";", 3), "--decimal"),
    "another encoding": ("patient,my age,sick\n1,2,ja\n".encode("utf-16-le"), "--encoding"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_table_is_refused_in_one_line(privet, tmp_path, name):
    content, words = BAD[name]
    (tmp_path / "t.csv").write_bytes(content)
    refused = privet(*FIT, cwd=tmp_path)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "model.privet.json").exists()


def test_folders_and_files_that_cannot_be_read_are_refused_in_one_line(privet, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "memory.csv").symlink_to("/proc/self/mem")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(CSV)[:-10])
    for file, words in [("folder.csv", "is a folder"), ("memory.csv", "cannot read"), ("cut.csv.gz", "cannot read")]:
        refused = privet("fit", file, *FIT[2:], cwd=tmp_path)
        assert refused.returncode == 2
        assert words in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1


def test_an_output_never_replaces_a_file_that_the_command_reads_or_books_in(privet, tmp_path):
    (tmp_path / "t.csv").write_bytes(messy())
    (tmp_path / "link.csv").symlink_to("t.csv")
    assert privet(*FIT, "--ledger", "l.ledger", cwd=tmp_path).returncode == 0
    kept = {name: (tmp_path / name).read_bytes() for name in ("t.csv", "l.ledger", "model.privet.json")}
    for arguments, what in [
        ([*FIT, "-o", "t.csv"], "table"),
        ([*FIT, "-o", "link.csv"], "table"),
        ([*FIT, "--ledger", "l.ledger", "-o", "./l.ledger"], "ledger"),
        (["predict", "model.privet.json", "t.csv", "-o", "model.privet.json"], "model file"),
        (["predict", "model.privet.json", "t.csv", "-o", "t.csv"], "table"),
        (["schema", "t.csv", "--epsilon", "5", "--ledger", "l.ledger", "--force", "-o", "l.ledger"], "ledger"),
        (["schema", "--sample", "t.csv", "--force", "-o", "t.csv"], "sample"),
    ]:
        refused = privet(*arguments, cwd=tmp_path)
        assert refused.returncode == 2, refused.stdout
        assert f"is the {what}, which the output would replace" in refused.stderr
    assert kept == {name: (tmp_path / name).read_bytes() for name in kept}


def test_ids_with_the_name_of_a_prediction_are_not_lost(privet, tmp_path):
    FRAME.rename(columns={"patient": "prediction"}).to_csv(tmp_path / "t.csv", index=False)
    fit = ["fit", "t.csv", "--target", "my age", "--target-bounds", "0:100", "--levels", "sick=ja,nein", "--seed", "1"]
    assert privet(*fit, "--id", "prediction", cwd=tmp_path).returncode == 0
    refused = privet("predict", "model.privet.json", "t.csv", cwd=tmp_path)
    assert refused.returncode == 2
    assert "The column of IDs 'prediction' has the name of a column of predictions." in refused.stderr
