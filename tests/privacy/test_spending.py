"""Fits and runs book themselves: in ``ledger=``, and in all contexts of privet.spending() that they belong to."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed
from ledger_examples import ADD, GAUSS, spent
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import privet
from privet import (
    Ledger,
    PrivateAbsoluteRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateSparseLogisticRegression,
    PrivateSparseRegression,
    TableModel,
    TableSchema,
)
from privet.drafts import from_rows
from privet.objectives import L2, BoundedRows, Squared
from privet.plans import FullBatch, GradientPlan
from privet.privacy import BudgetExceededError, NoiseSource
from privet.privacy.events import GaussianRelease
from privet.privacy.ledger import open_contexts
from privet.solvers import Problem, Run, noisy_gradient_descent

ROWS = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 3))
NUMBERS, CLASSES = ROWS[:, 0], (ROWS[:, 0] > 0).astype(int)
CLASSIFIERS = (PrivateLogisticRegression, PrivateLinearSVC, PrivateSparseLogisticRegression)
REGRESSORS = (PrivateRidge, PrivateHuberRegressor, PrivateAbsoluteRegressor, PrivateSparseRegression)
ALL = (*CLASSIFIERS, *REGRESSORS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "patients.ledger"


@pytest.fixture(autouse=True)
def own_folder(tmp_path_factory, monkeypatch):
    """Announce contexts in a folder of this test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
    monkeypatch.setattr("tempfile.tempdir", None)


def n_booked(path):
    return len(Ledger(path).entries())


def ridge(**options):
    return PrivateRidge(**{"epsilon": 1.0, "delta": 1e-6, "max_iter": 3, "method": "gradient", **options})


def fit_ridge(*_):
    return ridge().fit(ROWS, NUMBERS).guarantee_


# --- ledger= ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_estimator_books_what_it_then_states(path, kind):
    model = kind(1.0, 1e-6, ledger=path, max_iter=2)
    model.fit(ROWS, CLASSES if kind in CLASSIFIERS else NUMBERS)
    (entry,) = Ledger(path).entries()
    assert entry.label == f"fit of {kind.__name__}"
    assert entry.guarantee.epsilon >= model.guarantee_.epsilon
    assert set(model.guarantee_.assumptions) >= {each for each in entry.guarantee.assumptions if not each.is_enforced}
    assert "ledger" not in model.to_dict()["settings"]


@pytest.mark.parametrize("method", sorted(PrivateLogisticRegression.offered_methods()))
def test_every_method_books_once_and_no_less_than_it_costs(path, method):
    model = PrivateLogisticRegression(1.0, 1e-6, method=method, classes=[0, 1], ledger=path, max_iter=2)
    model.fit(ROWS, CLASSES)
    (entry,) = Ledger(path).entries()
    assert entry.guarantee.epsilon_at(1e-6) >= model.guarantee_.epsilon_at(1e-6) * (1 - 1e-9)


def test_targets_with_different_numbers_of_classes_are_booked_once_together(path):
    y = np.column_stack([CLASSES, np.arange(200) % 3])
    model = PrivateLogisticRegression(1.0, 1e-6, method="gradient", ledger=path, max_iter=2).fit(ROWS, y)
    (entry,) = Ledger(path).entries()
    assert model.guarantee_.epsilon <= entry.guarantee.epsilon <= 1.0


@pytest.mark.parametrize("method", ["moments", "quantiles"])
def test_a_private_scaler_books(path, method):
    scaler = PrivateScaler(0.5, 1e-6, lower=-1, upper=1, method=method, ledger=path).fit(ROWS)
    (entry,) = Ledger(path).entries()
    assert entry.guarantee == scaler.guarantee_


def test_a_table_model_books(path):
    schema = TableSchema.from_options(bounds=["a=-1:1"], target=["y"], target_bounds="-1:1")
    table = pd.DataFrame({"a": ROWS[:, 0], "y": NUMBERS})
    TableModel(schema, ridge(), ledger=path).fit(table)
    TableModel(schema, ridge(ledger=path)).fit(table)
    assert n_booked(path) == 2


@pytest.fixture
def no_noise(monkeypatch):
    """Make sources that cannot draw noise: what is refused before is refused in time."""

    def refuse(*_, **__):
        raise AssertionError("noise was drawn")

    for name in ("add_gaussian", "add_k_norm", "normals", "top_point"):
        monkeypatch.setattr(NoiseSource, name, refuse)


@pytest.mark.usefixtures("no_noise")
def test_a_fit_beyond_the_limit_draws_no_noise_and_one_within_it_is_booked_before(path):
    Ledger(path, 0.4).begin()
    scaler = PrivateScaler(0.5, 1e-6, lower=-1, upper=1, method="quantiles", ledger=path)
    for model in (ridge(ledger=path), scaler):
        with pytest.raises(BudgetExceededError):
            model.fit(ROWS, NUMBERS)
    assert n_booked(path) == 0
    Ledger(path).set_limit(4)
    for model in (ridge(ledger=path), scaler):
        with pytest.raises(AssertionError, match="noise was drawn"):
            model.fit(ROWS, NUMBERS)
    assert n_booked(path) == 2  # The fits failed after they were booked.


def test_clones_copies_and_parameters_keep_the_ledger(path):
    ledger = Ledger(path)
    for model in (clone(ridge(ledger=ledger)), pickle.loads(pickle.dumps(ridge(ledger=ledger)))):
        model.fit(ROWS, NUMBERS)
    ridge().set_params(ledger=str(path)).fit(ROWS, NUMBERS)
    assert ridge(ledger=path).get_params()["ledger"] == path
    assert n_booked(path) == 3


# --- contexts -----------------------------------------------------------------------------------------------------


def test_a_context_books_the_fits_inside_it_and_no_others(path):
    fit_ridge()
    with privet.spending(path, limit=3) as ledger:
        fit_ridge()
        pipeline = make_pipeline(PrivateScaler(0.5, 1e-6, lower=-1, upper=1, clip_output=3.0), ridge(feature_norm=6.0))
        pipeline.fit(ROWS, NUMBERS)
        cross_val_score(ridge(), ROWS, NUMBERS, cv=2)
        assert len(ledger.entries()) == 5
    fit_ridge()
    assert n_booked(path) == 5
    assert Ledger(path).limit == privet.Budget(3, 1e-6)


def test_a_context_refuses_what_exceeds_its_limit_also_in_a_later_context(path):
    with privet.spending(path, limit=1.2):
        fit_ridge()
        with pytest.raises(BudgetExceededError):
            fit_ridge()
    with privet.spending(path), pytest.raises(BudgetExceededError):
        fit_ridge()
    with pytest.raises(ValueError, match="would raise the stored limit"), privet.spending(path, limit=5):
        fit_ridge()
    assert n_booked(path) == 1


def test_a_context_does_not_forget_the_lower_limit_of_the_ledger_that_it_is_given(path):
    with pytest.raises(ValueError, match="would raise the stored limit"), privet.spending(Ledger(path, 1), limit=3):
        fit_ridge()
    with privet.spending(Ledger(path, 1), limit=0.5):
        assert Ledger(path).limit == privet.Budget(0.5, 1e-6)


def test_nested_contexts_and_a_ledger_of_its_own_are_all_charged_once(path):
    inner, own = path.with_name("inner"), path.with_name("own")
    with privet.spending(path), privet.spending(inner), privet.spending(str(path)):
        ridge(ledger=own).fit(ROWS, NUMBERS)
        ridge(ledger=inner).fit(ROWS, NUMBERS)
    assert [n_booked(each) for each in (path, inner, own)] == [2, 2, 1]


def test_a_ledger_that_refuses_leaves_no_entry_in_the_others(path):
    small = privet.spending(path.with_name("small"), limit=0.1)
    with privet.spending(path), small, pytest.raises(BudgetExceededError):
        fit_ridge()
    assert n_booked(path) == 0


def test_entries_of_another_adjacency_are_refused_before_noise(path, no_noise):
    Ledger(path).spend(spent(GaussianRelease(0.1), adjacency=ADD))
    with privet.spending(path), pytest.raises(ValueError, match="cannot compose"):
        fit_ridge()


def test_a_solver_that_is_run_directly_is_booked(path):

    problem = Problem(Squared(), L2(0.1), BoundedRows(ROWS, 1.0), NUMBERS)
    plan = GradientPlan(FullBatch(), 2, 1.0, 5.0, delta=1e-6)
    with privet.spending(path):
        release = noisy_gradient_descent(problem, Run(plan), step_size=0.1)
    (entry,) = Ledger(path).entries()
    assert entry.guarantee == release.guarantee


@pytest.mark.parametrize("backend", ["threading", "loky", "multiprocessing"])
def test_searches_in_threads_and_processes_are_booked_also_in_workers_that_ran_before(path, backend):
    """Every fit of a grid search is booked, and so are estimators that a worker makes by itself. Later fits are not."""
    from joblib import parallel_config

    with parallel_config(backend, n_jobs=2):
        Parallel()(delayed(abs)(number) for number in range(4))  # The workers start before the context.
        with privet.spending(path):
            GridSearchCV(ridge(), {"alpha": [0.1, 1.0]}, cv=2).fit(ROWS, NUMBERS)
            assert n_booked(path) == 5
            Parallel()(delayed(fit_ridge)(number) for number in range(3))
            assert n_booked(path) == 8
        Parallel()(delayed(fit_ridge)(number) for number in range(3))
        GridSearchCV(ridge(ledger=path), {"alpha": [0.1, 1.0]}, cv=2).fit(ROWS, NUMBERS)
    assert n_booked(path) == 13


def test_threads_book_in_their_own_context_and_pool_threads_in_all(path):
    other = path.with_name("other")
    entered, go = threading.Event(), threading.Event()

    def beside():
        with privet.spending(other):
            entered.set()
            go.wait(30)
            fit_ridge()

    thread = threading.Thread(target=beside)
    thread.start()
    entered.wait(30)
    with privet.spending(path):
        fit_ridge()
        pool = threading.Thread(target=fit_ridge)
        pool.start()
        pool.join()
    go.set()
    thread.join()
    assert [n_booked(path), n_booked(other)] == [2, 2]  # That of the pool is charged to both.


def test_a_child_process_books_as_long_as_the_context_is_open(path):
    program = "import sys, privet; from privet.privacy.ledger.spending import open_ledgers; "
    program += "[print(len(open_ledgers()), flush=True) for line in sys.stdin]"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def n_open():
        child.stdin.write("\n")
        child.stdin.flush()
        return int(child.stdout.readline())

    assert n_open() == 0
    with privet.spending(path), privet.spending(path.with_name("other")):
        assert n_open() == 2
    assert n_open() == 0
    child.communicate("")


def test_a_child_process_with_a_context_of_its_own_books_in_that_of_its_parent_too(path):
    inner, both = path.with_name("inner"), path.with_name("both")
    with privet.spending(path), privet.spending(both):
        child = os.fork()
        if child == 0:
            with privet.spending(inner), privet.spending(both):
                fit_ridge()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert [n_booked(each) for each in (path, inner, both)] == [1, 1, 1]


def test_a_private_draft_is_booked(path):
    frame = pd.DataFrame({"age": np.arange(4000.0)})
    with privet.spending(path, limit=2.5):
        _, guarantee = from_rows(frame, 2.0)
        with pytest.raises(BudgetExceededError):
            from_rows(frame, 2.0)
    assert [entry.guarantee for entry in Ledger(path).entries()] == [guarantee]


def test_a_process_that_is_killed_inside_a_context_leaves_none_behind(path):
    ready = os.pipe()
    process = os.fork()
    if process == 0:
        with privet.spending(path):
            os.write(ready[1], b".")
            time.sleep(60)
    os.read(ready[0], 1)
    (file,) = open_contexts._folder().iterdir()
    assert open_contexts._read(file) == [path]
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert open_contexts._read(file) == []
    assert not file.exists()


def test_a_forked_process_that_leaves_the_block_does_not_close_the_context_of_its_parent(path):
    try:
        with privet.spending(path):
            child = os.fork()
            if child == 0:
                raise SystemExit
            assert os.waitpid(child, 0)[1] == 0
            assert len(list(open_contexts._folder().iterdir())) == 1
    except SystemExit:
        os._exit(0)
    assert list(open_contexts._folder().iterdir()) == []


def test_a_folder_of_announcements_that_others_can_write_to_is_refused(path):
    open_contexts._folder().mkdir(mode=0o777)
    open_contexts._folder().chmod(0o777)
    with pytest.raises(PermissionError, match="others can write to it"), privet.spending(path):
        fit_ridge()
    assert n_booked(path) == 0


def test_a_context_fails_at_its_beginning_if_the_ledger_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match="nowhere"), privet.spending(tmp_path / "nowhere" / "a.ledger"):
        raise AssertionError("the block must not begin")


def test_a_context_books_what_its_user_spends_by_hand(path):
    with privet.spending(path) as ledger:
        ledger.spend(GAUSS, "by hand")
    assert n_booked(path) == 1
