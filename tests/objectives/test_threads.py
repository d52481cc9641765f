import threading

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from privet.objectives import BoundedRows, Logistic, Multinomial, rows
from privet.objectives.summation import sum_over
from privet.objectives.threads import in_threads


def blas_threads():
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


def many_parts(monkeypatch, n=1003, d=7):
    monkeypatch.setattr(rows, "_SMALL_BYTES", 0)
    monkeypatch.setattr(rows, "_CACHED_BYTES", 1)
    monkeypatch.setattr(rows, "_LEAST_ROWS", 10)
    X = np.random.default_rng(0).normal(size=(n, d))
    return BoundedRows(X, 2.0, 0.5).centred(np.full(d, 0.2))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_keep_the_order_of_the_items_and_blas_keeps_its_threads(threads):
    with threadpool_limits(threads, user_api="blas"):
        before = blas_threads()
        assert in_threads(lambda item: item * 10, range(20)) == list(range(0, 200, 10))
        assert in_threads(lambda item: item, []) == []
        assert blas_threads() == before


def test_each_thread_of_ours_uses_one_thread_of_blas():
    with threadpool_limits(2, user_api="blas"):
        assert set(in_threads(lambda _: blas_threads(), range(4))) == {1}
        assert blas_threads() == 2


def test_an_error_in_a_thread_is_raised_and_blas_keeps_its_threads():
    def work(item):
        raise ArithmeticError(f"item {item}")

    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(ArithmeticError, match="item 0"):
            in_threads(work, range(4))
        assert blas_threads() == 2
        assert in_threads(lambda item: item, [1, 2]) == [1, 2]


def test_a_call_during_another_call_works_in_one_thread():
    with threadpool_limits(2, user_api="blas"):
        nested = in_threads(lambda _: in_threads(lambda _: threading.get_ident(), range(3)), range(2))
        assert all(len(set(idents)) == 1 for idents in nested)
        assert blas_threads() == 2


@pytest.mark.parametrize("objective", [Logistic(), Multinomial(4)], ids=["logistic", "multinomial"])
def test_a_gradient_has_the_same_bits_with_any_number_of_threads(objective, monkeypatch):
    bounded = many_parts(monkeypatch)
    assert len(bounded.parts()) > 16
    rng = np.random.default_rng(1)
    weights = rng.normal(size=objective.start(bounded.dimension).shape)
    targets = rng.integers(0, getattr(objective, "n_classes", 2), bounded.n)
    sums = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads, user_api="blas"):
            sums.append(objective.gradient_sum(weights, bounded, targets, 0.7).tobytes())
    assert len(set(sums)) == 1


@pytest.mark.parametrize("clip_norm", [0.3, np.inf])
@pytest.mark.parametrize("alone", [False, True])
def test_parts_add_up_to_the_gradient_of_all_rows(clip_norm, alone, monkeypatch):
    objective, rng = Multinomial(3), np.random.default_rng(2)
    whole = BoundedRows(np.random.default_rng(0).normal(size=(1003, 7)), 2.0, 0.5).centred(np.full(7, 0.2))
    targets, weights = rng.integers(0, 3, whole.n), rng.normal(size=(8, 3))
    assert len(whole.parts()) == 1
    expected = whole.combine(objective.bounded(objective.residuals(whole.scores(weights), targets), whole, clip_norm))
    parted = many_parts(monkeypatch).take(slice(None), alone=alone)
    assert [place.start for place, _ in parted.parts()] == list(range(0, 1003, 10))
    assert objective.gradient_sum(weights, parted, targets, clip_norm) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n_classes", [8, 10, 20])
def test_a_record_alone_in_the_last_part_keeps_its_bits_when_another_is_added(n_classes, monkeypatch):
    """Under add-or-remove, the record that both neighbours have must add the same numbers to both sums."""
    objective, rng = Multinomial(n_classes), np.random.default_rng(3)
    X, targets = rng.normal(size=(22, 7)), rng.integers(0, n_classes, 22)
    weights = rng.normal(size=(8, n_classes))
    monkeypatch.setattr(rows, "_SMALL_BYTES", 0)
    monkeypatch.setattr(rows, "_CACHED_BYTES", 1)
    monkeypatch.setattr(rows, "_LEAST_ROWS", 10)
    found = []
    for n in (21, 22):
        place, part = BoundedRows(X[:n], 2.0, 0.5).take(slice(None), alone=True).parts()[-1]
        residuals = objective.residuals(part.scores(weights), targets[:n][place])
        found.append(objective.bounded(residuals, part, 0.7)[0].tobytes())
    assert found[0] == found[1]


def test_one_part_is_the_rows_themselves():
    X = np.random.default_rng(0).normal(size=(50, 3))
    for matrix in (X, np.asfortranarray(X), sparse.csr_array(X)):
        bounded = BoundedRows(matrix, 2.0, 0.5)
        ((place, part),) = bounded.parts()
        assert part is bounded
        assert place == slice(None)


def test_settings_of_numpy_hold_in_threads():
    with threadpool_limits(2, user_api="blas"), np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        in_threads(lambda _: np.ones(1) / np.zeros(1), range(4))


def test_two_threads_that_fit_at_once_get_the_bits_of_one(monkeypatch):
    bounded = many_parts(monkeypatch, n=20_003)
    rng, objective = np.random.default_rng(1), Logistic()
    weights, targets = rng.normal(size=bounded.dimension), rng.integers(0, 2, bounded.n)
    found = []

    def work():
        found.extend(objective.gradient_sum(weights, bounded, targets, 0.7).tobytes() for _ in range(3))

    with threadpool_limits(2, user_api="blas"):
        expected = objective.gradient_sum(weights, bounded, targets, 0.7).tobytes()
        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert found == [expected] * 6


def test_parts_of_a_dense_matrix_are_views_and_follow_the_bounds_of_all_rows(monkeypatch):
    bounded = many_parts(monkeypatch)
    for place, part in bounded.parts():
        assert np.shares_memory(part.matrix, bounded.matrix)
        assert np.array_equal(part.norms(), bounded.norms()[place])
        assert (part.norm_bound, part.rounding) == (bounded.norm_bound, bounded.rounding)


def test_the_sum_over_no_parts_or_one_part_is_simple():
    assert sum_over([], float) == 0.0
    assert sum_over([3], float) == 3.0
