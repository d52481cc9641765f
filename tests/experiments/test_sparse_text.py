"""Sparse models of text: the plays, or a file in LIBSVM format, through all methods."""

import bz2
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))
PLAYS = DATA / "shakespeare_plays.jsonl.gz"

pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")
needs_plays = pytest.mark.skipif(
    not PLAYS.exists(), reason="shakespeare_plays.jsonl.gz is not available: set PRIVET_DATA to its folder"
)


@pytest.fixture
def experiment(opened):
    return opened("sparse_text")


@needs_plays
def test_quick_run(experiment, tmp_path, capsys):
    results = experiment.main(["--quick"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"sparse_text_quick.{kind}" for kind in ("json", "png")}
    assert {row["method"] for row in results["rows"]} == {experiment.CONSTANT, *experiment.METHODS}
    assert all(0 < row["loss"][0] < 100 for row in results["rows"])
    assert "0.1105" in capsys.readouterr().out  # the paper's


@needs_plays
def test_public_vocabulary_and_bounded_sparse_rows(experiment):
    corpus = experiment.shakespeare(0, True, n_most=400)
    for X in (corpus.X, corpus.public, corpus.X_test):
        assert sparse.issparse(X)
        assert X.format == "csr"
        assert abs(X).max() <= experiment.ENTRY_BOUND
        assert X.multiply(X).sum(axis=1).max() <= 1 + 1e-12
    used = np.bincount(corpus.public.indices, minlength=corpus.X.shape[1])
    assert used.min() >= 2  # each feature is of two public speeches at least
    assert "hamlet" in experiment.speeches()[1]


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = sparse.random(120, 60, density=0.1, random_state=0, format="csr")
    return X, rng


@pytest.fixture
def folder(table, tmp_path):
    """Write small files in the format and with the names of the LIBSVM collection, one of them compressed."""
    X, rng = table
    for name, targets in (("rcv1_{}.binary", rng.choice([-1, 1], 120)), ("E2006.{}", rng.normal(-3.5, 2, 120))):
        for part, rows in (("train", slice(0, 81)), ("test", slice(81, 120))):
            dump_svmlight_file(X[rows], targets[rows], str(tmp_path / name.format(part)), zero_based=False)
    plain = tmp_path / "E2006.test"
    (tmp_path / "E2006.test.bz2").write_bytes(bz2.compress(plain.read_bytes()))
    plain.unlink()
    return tmp_path


def test_the_four_tables_have_the_splits_features_and_deltas_of_the_paper(experiment):
    found = {
        task.name: (task.n_nonzero, task.delta, *(getattr(task.published, name) for name in ("n_features", "n_test")))
        for task in experiment.PUBLISHED
    }
    assert found == {
        "Table 2.2": (2000, 0.01, 50_000, 3308),
        "Table 2.3": (500, 0.01, 47_236, 20_000),
        "Table 3.2": (2000, 1e-5, 25_000, 3308),
        "Table 3.3": (500, 1e-5, 20_000, 10_000),
    }


@pytest.mark.parametrize(("is_split", "n_private", "n_public"), [(True, 41, 40), (False, 81, 20)])
def test_published_files_are_split_as_in_the_paper(experiment, folder, is_split, n_private, n_public):
    corpus = experiment.Published(*experiment.RCV1, 40, 20, is_split).corpus(folder, 0, True)
    assert corpus.X.shape == (n_private, 40)
    assert corpus.public.shape == (n_public, 40)
    assert corpus.X_test.shape == (20, 40)
    assert set(corpus.y) == {0.0, 1.0}
    assert sparse.issparse(corpus.X)


def test_targets_of_a_regression_are_bounded(experiment, folder):
    corpus = experiment.Published(*experiment.E2006, 1000, 1000, True).corpus(folder, 0, False)
    assert corpus.X.shape[1] == 60
    assert corpus.X_test.shape[0] == 39
    assert np.abs(corpus.y).max() <= 2.5


def test_the_tables_are_made_from_a_folder_of_published_files(experiment, folder, tmp_path):
    results = experiment.main(["--quick", "--data", str(folder)])
    assert (tmp_path / "results" / "sparse_text_quick_published.json").exists()
    assert results["delta"] == {"Table 2.2": 0.01, "Table 2.3": 0.01, "Table 3.2": 1e-5, "Table 3.3": 1e-5}
    methods = {row["method"] for row in results["rows"] if row["task"] == "Table 2.2"}
    assert methods == {experiment.CONSTANT, *experiment.WITHOUT_TRANSFER}
    assert all(0 <= row["loss"][0] < 100 for row in results["rows"])


def test_a_folder_without_files_is_refused_and_they_are_named(experiment, tmp_path):
    with pytest.raises(SystemExit, match=r"rcv1_train\.binary"):
        experiment.main(["--data", str(tmp_path)])
