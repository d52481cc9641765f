"""Sparse models of text: the plays, or a file in LIBSVM format, through all methods."""

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


def test_a_libsvm_file_of_classes(experiment, table, tmp_path):
    X, rng = table
    path = tmp_path / "rcv1.svm"
    dump_svmlight_file(X, rng.choice([-1, 1], 120), str(path))
    corpus = experiment.libsvm(str(path), 0, True, n_features=40, n_test=20)
    assert corpus.X.shape == corpus.public.shape == (50, 40)
    assert corpus.X_test.shape == (20, 40)
    assert set(corpus.y) == {0.0, 1.0}
    assert sparse.issparse(corpus.X)


def test_a_libsvm_file_of_numbers(experiment, table, tmp_path):
    X, rng = table
    path = tmp_path / "e2006.svm"
    dump_svmlight_file(X, rng.normal(-3.5, 2, 120), str(path))
    corpus = experiment.libsvm(str(path), 0, False, n_features=1000, n_test=20)
    assert corpus.X.shape[1] == 60
    assert np.abs(corpus.y).max() <= 2.5
    case = experiment.case_of(corpus, 500)
    weights = experiment.train("DP-IGHT, peeling", case, experiment.Budget(4.0, 1e-5), experiment.NoiseSource(0))
    assert weights.shape == (60,)
    assert 0 < experiment.loss_of(weights, corpus) < np.inf
