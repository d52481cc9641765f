"""Audit by replay: correct code is never refuted, and what leaks beside the noisy sum is found in one run."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from privet import PrivateLogisticRegression, PrivateRidge
from privet.audit import replay
from privet.objectives import L2, BoundedRows, Logistic
from privet.plans import FixedOrder, FixedSize, FullBatch, GradientPlan, Poisson
from privet.preprocessing import PrivateScaler
from privet.privacy import Adjacency, Budget, NoiseSource
from privet.solvers import Problem, Run, noisy_gradient_descent

BUDGET = Budget(1.0, 1e-5)


@pytest.fixture
def pair():
    """Two tables of which one row and its label differ."""
    return differing(40, 3, 5)


def differing(n, d, place, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = (X[:, 0] > 0).astype(int)
    X2, y2 = X.copy(), y.copy()
    X2[place] *= -1
    return (X, y), (X2, y2)


def logistic(data):
    return PrivateLogisticRegression(BUDGET.epsilon, BUDGET.delta, max_iter=4).fit(*data)


def descent(sampler, steps=None, clip_norm=0.5, adjacency=None):
    plan = GradientPlan.for_budget(
        BUDGET, sampler=sampler, steps=steps, clip_norm=clip_norm, adjacency=adjacency, public_n=40
    )

    def train(data):
        X, y = data
        problem = Problem(Logistic(), L2(0.1), BoundedRows(X, 1.0), y.astype(float))
        return noisy_gradient_descent(problem, Run(plan), step_size=0.5)

    return train


def without(data, place):
    return tuple(np.delete(each, place, axis=0) for each in data)


class Leaky:
    """A one-step noisy mean that can leave something else behind."""

    def __init__(self, leak="", bound=1.0, noise_multiplier=1.0):
        self.leak, self.bound, self.noise_multiplier = leak, bound, noise_multiplier

    def __call__(self, data):
        X, _ = data
        plan = GradientPlan(FullBatch(), 2, self.bound, self.noise_multiplier, delta=1e-5)
        result = {"guarantee": plan.guarantee(), "means": []}
        for number, step in enumerate(plan.run(len(X), NoiseSource())):
            if self.leak == "fewer steps" and number == 1 and X.sum() > 0:
                break
            total = np.clip(X[:, 0], -1, 1).sum(keepdims=True)
            result["means"].append(step.noisy(total * (1.0 if self.leak != "wrong sum" else 1.5)))
        if self.leak == "attribute":
            result["hidden"] = Hidden(X.mean())
        if self.leak == "last bit":
            result["means"][0] = np.nextafter(result["means"][0], X.sum() * np.inf)
        if self.leak == "error" and X[:, 0].sum() > 0:
            raise RuntimeError("the sum is positive")
        return result


class Hidden:
    __slots__ = ("cache",)

    def __init__(self, value):
        self.cache = [np.float32(value)]


def unbalanced():
    X, y = np.zeros((4, 1)), np.zeros(4)
    X[2] = 1.0
    return (X, y), (0.0 - X, y)


def test_a_correct_training_is_consistent_and_its_largest_move_is_known():
    found = replay(Leaky(), *unbalanced())
    assert not found.is_violation
    assert (found.releases, found.moved) == (2, 2)
    assert found.largest == pytest.approx(1.0, rel=1e-12)
    assert found.spent == pytest.approx(1.0, rel=1e-9)
    assert "2 of 2 releases moved" in str(found)
    assert found.to_dict()["verdict"] == "consistent"


@pytest.mark.parametrize(
    ("leak", "message"),
    [
        ("wrong sum", "Release 1 (Gaussian noise) moved by 1.5 times the bound of 2."),
        ("attribute", "What the run returns differs at result['hidden'].cache[0]."),
        ("last bit", "What the run returns differs at result['means'][0]."),
        ("error", "RuntimeError: the sum is positive"),
        ("fewer steps", "The second run draws more than the first one"),
    ],
)
def test_what_leaves_beside_the_noisy_sum_is_named(leak, message):
    found = replay(Leaky(leak), *unbalanced())
    assert found.is_violation
    assert message in "\n".join(found.problems), found.problems


def test_a_guarantee_that_accounts_for_less_is_refuted():
    one_step = GradientPlan(FullBatch(), 1, 1.0, 1.0, delta=1e-5).guarantee()
    found = replay(Leaky(), *unbalanced(), guarantee=one_step)
    assert found.problems == ("All releases together move by 2 times what the guarantee accounts for.",)


def test_without_noise_nothing_is_claimed_but_the_bounds_are_still_checked():
    found = replay(Leaky(noise_multiplier=0.0), *unbalanced())
    assert (found.is_violation, found.releases, found.moved) == (False, 2, 2)
    assert (found.epsilon, found.spent, found.to_dict()["epsilon"]) == (np.inf, None, None)
    assert "claimed: no differential privacy" in str(found)
    wrong = replay(Leaky("wrong sum", noise_multiplier=0.0), *unbalanced())
    assert "Release 1 (no noise) moved by 1.5 times the bound of 2." in wrong.problems


def test_a_release_without_noise_refutes_every_guarantee():
    generous = GradientPlan(FullBatch(), 2, 1.0, 0.01, delta=1e-5).guarantee()
    found = replay(Leaky(noise_multiplier=0.0), *unbalanced(), guarantee=generous)
    assert found.problems == ("All releases together move by inf times what the guarantee accounts for.",)


def test_estimators_pipelines_and_solvers_can_be_replayed(pair):
    assert not replay(logistic, *pair).is_violation
    pipeline = make_pipeline(
        PrivateScaler(0.5, 1e-5, lower=-1.0, upper=1.0), PrivateRidge(0.5, 1e-5, target_bound=1.0, max_iter=3)
    )
    found = replay(lambda data: pipeline.fit(*data), *pair)
    assert not found.is_violation, found
    assert found.epsilon is not None
    assert 0.5 < found.epsilon <= 1.0
    assert found.releases == 5


def test_every_release_can_be_a_row_that_was_added_or_removed(pair):
    data, _ = pair
    for sampler, steps in ((Poisson(0.3), 6), (FullBatch(), 3)):
        train = descent(sampler, steps, adjacency=Adjacency.ADD_OR_REMOVE)
        for first, second in ((data, without(data, 7)), (without(data, 7), data)):
            found = replay(train, first, second)
            assert not found.is_violation, found
            assert 0 < found.moved <= steps


def test_the_differing_record_is_in_every_other_batch_and_no_other_sum_may_move(pair):
    found = replay(descent(FixedSize(2, 40), 10), *pair)
    assert not found.is_violation
    assert 5 <= found.moved <= 7  # drawn into it by chance, too


def sorted_by_first_column(data):
    X, y = data
    order = np.argsort(X[:, 0], kind="stable")
    return X[order], y[order]


def test_a_table_sorted_by_a_column_refutes_a_fixed_order_and_no_other_sampling(pair):
    sorted_pair = [sorted_by_first_column(each) for each in pair]
    found = replay(descent(FixedOrder(40, 1, 1)), *sorted_pair)
    assert found.is_violation
    assert "the differing unit is not in its batch" in found.verdict
    assert found.spent > 1
    for sampler, steps in ((FixedSize(4, 40), 6), (FullBatch(), 3)):
        assert not replay(descent(sampler, steps), *sorted_pair).is_violation


def test_files_that_differ_are_found_and_the_folder_is_restored(tmp_path, pair):
    (tmp_path / "before.txt").write_text("kept")
    seen = []

    def train(data):
        seen.append(sorted(path.name for path in tmp_path.iterdir()))
        (tmp_path / "mean.txt").write_text(repr(float(data[0].mean())))
        return logistic(data)

    found = replay(train, *pair, folder=tmp_path)
    assert found.problems == ("The file mean.txt differs.",)
    assert seen == [["before.txt"], ["before.txt"]]


def test_datasets_that_are_not_neighbours_are_refused(pair):
    (X, y), _ = pair
    with pytest.raises(ValueError, match="40 units of the first are not in the second"):
        replay(logistic, (X, y), (2 * X, y))


def test_datasets_must_be_neighbours_under_the_adjacency_of_the_guarantee(pair):
    data, changed = pair
    with pytest.raises(ValueError, match="stated under replace-one adjacency, but a unit was added or removed"):
        replay(logistic, data, without(data, 7))
    poisson = descent(Poisson(0.3), 3, adjacency=Adjacency.ADD_OR_REMOVE)
    with pytest.raises(ValueError, match="stated under add-or-remove adjacency, but a unit was replaced"):
        replay(poisson, data, changed)


def test_data_that_is_refused_before_any_draw_is_an_error_of_the_caller(pair):
    (X, y), (X2, y2) = pair
    with pytest.raises(ValueError, match="refuses the data before it draws anything") as caught:
        replay(logistic, (np.where(X[0] == X, np.nan, X), y), (np.where(X2[0] == X2, np.nan, X2), y2))
    assert "NaN" in str(caught.value.__cause__)


def test_global_generators_are_in_the_same_state_before_both_runs_and_restored(pair):
    import random

    random.seed(3)
    np.random.seed(4)  # noqa: NPY002
    before = random.getstate()
    found = replay(lambda data: (random.random(), np.random.random(), logistic(data)), *pair)  # noqa: NPY002
    assert not found.is_violation
    assert random.getstate() == before


def test_releases_that_nothing_bounds_are_not_called_consistent_without_saying_so():
    def train(data):
        return NoiseSource().add_gaussian(data[0].sum(axis=0), 1.0)

    found = replay(train, *unbalanced())
    assert not found.is_violation  # nothing is claimed
    assert found.verdict == "consistent, but nothing bounds 1 of the releases that moved"
    one_step = GradientPlan(FullBatch(), 1, 1.0, 1.0, delta=1e-5).guarantee()
    assert replay(train, *unbalanced(), guarantee=one_step).verdict == "consistent"


def test_one_replay_runs_at_a_time(pair):
    with pytest.raises(ValueError, match="refuses the data") as caught:
        replay(lambda data: replay(logistic, *pair), *pair)
    assert "Another replay is running" in str(caught.value.__cause__)


def test_a_violation_is_found_even_if_the_training_catches_all_exceptions():
    def train(data):
        plan = GradientPlan(FullBatch(), 1, 1.0, 1.0, delta=1e-5)
        noisy = None
        for step in plan.run(len(data[0]), NoiseSource()):
            try:
                noisy = step.noisy(data[0][: 1 + (data[0].sum() > 0), 0].copy())
            except BaseException:
                noisy = np.zeros(1)
        return noisy

    found = replay(train, *unbalanced())
    assert "has shape (1,), and (2,) in the first run" in found.verdict


def test_a_result_that_cannot_be_compared_is_no_error_of_the_training():
    class Broken:
        @property
        def __dict__(self):
            raise RuntimeError("no attributes")

    def train(data):
        return Leaky()(data), Broken()

    with pytest.raises(RuntimeError, match="no attributes"):
        replay(train, *unbalanced())


def test_an_error_that_ends_both_runs_is_told():
    def train(data):
        Leaky()(data)
        raise RuntimeError(f"the training fails at {object()}")

    found = replay(train, *unbalanced())
    assert not found.is_violation
    assert found.verdict.startswith("consistent until both runs end with RuntimeError: the training fails at")


def test_the_guarantees_of_several_equal_trainings_are_composed():
    found = replay(lambda data: [Leaky()(data) for _ in range(3)], *unbalanced())
    assert not found.is_violation
    assert found.spent == pytest.approx(1.0, rel=1e-9)

    def train(data):
        result = Leaky()(data)
        plan = GradientPlan(FullBatch(), 2, 1.0, 1.0, delta=1e-5)
        return result, plan.guarantee(), Leaky(bound=1.0)(data) and None

    assert replay(train, *unbalanced()).spent == pytest.approx(1.0, rel=1e-9)  # two trainings, two guarantees


def test_a_training_may_write_into_its_batches(pair):
    data, _ = pair
    plan = GradientPlan(Poisson(0.5), 4, 1.0, 1.0, delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE, public_n=40)

    def train(data):
        released = []
        for step in plan.run(len(data[0]), NoiseSource()):
            released.append(step.noisy(data[0][step.batch, :1].sum(axis=0)))
            step.batch[:] = 0
        return released, plan.guarantee()

    assert not replay(train, data, without(data, 5)).is_violation


def test_a_folder_need_not_exist_before_the_run(tmp_path):
    folder = tmp_path / "new"

    def train(data):
        folder.mkdir()
        (folder / "mean.txt").write_text(str(data[0].mean()))
        return Leaky()(data)

    assert replay(train, *unbalanced(), folder=folder).problems == ("The file mean.txt differs.",)
