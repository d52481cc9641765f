"""class_weight="balanced": the counts are noisy and paid for, and no plan depends on them."""

from dataclasses import replace

import numpy as np
import pytest

import privet
from privet.audit import replay
from privet.linear import balanced
from privet.linear.balanced import train_balanced
from privet.linear.methods import Method, Task
from privet.objectives import L2, BalancedClasses, BoundedRows, Logistic
from privet.plans import FixedSize, FullBatch, GradientPlan, OutputPlan
from privet.plans.class_counts import COUNTS_SHARE, ClassCounts
from privet.privacy import Budget, NoiseSource, compose, gdp_mu
from privet.privacy.events import ApproximateRelease
from privet.solvers import Problem, noisy_gradient_descent

KINDS = (privet.PrivateLogisticRegression, privet.PrivateLinearSVC)
OFFERED = [(kind, method) for kind in KINDS for method in kind.offered_methods()]
SETTINGS = {"alpha": 0.05, "classes": (0, 1), "class_weight": "balanced"}


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) / 3
    return X, (X[:, 0] + 0.2 * rng.normal(size=n) > 0.4).astype(int)


@pytest.mark.parametrize(("kind", "method"), OFFERED)
def test_counts_and_training_together_use_the_budget_and_do_not_exceed_it(kind, method):
    X, y = table()
    model = kind(2.0, 1e-5, method=method, random_state=0, **SETTINGS).fit(X, y)
    first, *rest = model.guarantee_.event.leaves()
    assert first == ClassCounts.for_budget(Budget(2.0, 1e-5), 2, model.guarantee_.adjacency).event
    assert rest
    is_black_box = any(isinstance(leaf, ApproximateRelease) for leaf in rest)
    assert (0.85 if is_black_box else 0.98) * 2.0 < model.guarantee_.epsilon <= 2.0
    assert model.class_weight_.max() == 1.0
    statement = model.guarantee_.statement(verbose=True)
    assert "noisy numbers of records of 2 classes" in statement
    assert "the weights of the classes are public" not in statement


@pytest.mark.parametrize(("kind", "method"), OFFERED)
def test_what_is_accounted_for_is_the_same_for_all_labels(kind, method):
    """If counts chose the event of the training, composition would not cover it."""
    X, y = table()
    few = np.zeros_like(y)
    few[0] = 1
    models = [kind(2.0, 1e-5, method=method, **SETTINGS).fit(X, labels) for labels in (y, few, 1 - few)]
    assert models[0].guarantee_.event == models[1].guarantee_.event == models[2].guarantee_.event


@pytest.mark.parametrize("method", ["gradient", "output", "minimiser", "adaptive", "iteration"])
def test_gaussian_shares_add_up_to_the_budget_exactly(method):
    X, y = table()
    model = privet.PrivateLogisticRegression(1.0, 1e-6, method=method, **SETTINGS).fit(X, y)
    squares = [leaf.gaussian_mu(model.guarantee_.adjacency) for leaf in model.guarantee_.event.leaves()]
    if None not in squares:
        assert sum(mu**2 for mu in squares) == pytest.approx(gdp_mu(Budget(1.0, 1e-6)) ** 2, rel=1e-5)
        assert squares[0] ** 2 == pytest.approx(COUNTS_SHARE * gdp_mu(Budget(1.0, 1e-6)) ** 2, rel=1e-6)
    assert model.guarantee_.epsilon == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("method", ["output", "minimiser", "objective"])
def test_pure_epsilons_add_up(method):
    X, y = table()
    model = privet.PrivateLogisticRegression(2.0, 0, method=method, **SETTINGS).fit(X, y)
    assert model.guarantee_.delta == 0
    assert 2.0 * (1 - 1e-6) < model.guarantee_.epsilon <= 2.0


def flipped():
    """Return tables in which one label is flipped, with rows of full norm whose gradients exceed the clip."""
    X = np.zeros((12, 2))
    X[:, 0] = 1.0
    y = np.arange(12) % 2
    other = y.copy()
    other[5] = 1 - y[5]
    return (X, y), (X, other)


def tight(data):
    """Train so that the differing record moves each release as far as the plan allows."""
    settings = SETTINGS | {"alpha": 1e-9, "max_iter": 1, "clip_norm": 1e-4, "fit_intercept": False}
    return privet.PrivateLogisticRegression(2.0, 1e-5, method="gradient", **settings).fit(*data)


def test_a_record_moves_counts_and_gradients_as_far_as_is_accounted_for():
    found = replay(tight, *flipped())
    assert not found.is_violation, found
    assert found.moved == 2
    assert 0.999 < found.spent <= 1 + 1e-9


@pytest.mark.parametrize(("kind", "method"), OFFERED)
def test_replays_are_consistent(kind, method):
    (X, y), (_, other) = flipped()
    X = X + np.linspace(-0.5, 0.5, 24).reshape(12, 2)

    def train(data):
        return kind(2.0, 1e-5, method=method, **SETTINGS).fit(*data)

    found = replay(train, (X, y), (X, other))
    assert not found.is_violation, found
    assert found.moved > 0


def test_counts_without_noise_are_refuted(monkeypatch):
    monkeypatch.setattr(ClassCounts, "weights", lambda self, codes, source: _inverse(np.bincount(codes, minlength=2)))
    found = replay(tight, *flipped())
    assert any("class_weight_" in problem for problem in found.problems), found


def _inverse(counts):
    return counts.min() / counts


def test_counts_with_too_little_noise_are_refuted(monkeypatch):
    noisy = OutputPlan.noisy

    def weak(self, result, source):
        return noisy(self, 2 * result, source) / 2

    monkeypatch.setattr(OutputPlan, "noisy", weak)
    found = replay(tight, *flipped())
    assert any("2 times the bound" in problem for problem in found.problems), found


def test_counts_that_are_not_charged_are_refuted(monkeypatch):
    """A planted bug: the guarantee is that of the training, which is made for the whole budget."""
    monkeypatch.setattr(balanced, "compose", lambda parts, delta: parts[1])
    found = replay(tight, *flipped())
    assert any("all releases together" in problem.lower() for problem in found.problems), found


def test_a_plan_that_depends_on_the_counts_is_refused_before_it_draws():
    X, y = table(100)
    problem = Problem(BalancedClasses(Logistic(), (1.0, 1.0)), L2(0.1), BoundedRows(X, 1.0), y.astype(float))

    def train(task):
        size = 10 + int(10 * task.problem.objective.weights.min())
        plan = GradientPlan.for_budget(task.budget, sampler=FixedSize(size, 100), steps=5, clip_norm=1.0)
        return task.solve(noisy_gradient_descent, plan, step_size=0.1)

    with pytest.raises(RuntimeError, match="not what it announced before the classes were counted"):
        train_balanced(Method("bad", train, "nothing"), Task(problem, Budget(1.0, 1e-5), NoiseSource(1)))


def test_the_total_is_booked_once_and_before_the_counts_are_drawn(monkeypatch, tmp_path):
    X, y = table()
    ledger = privet.privacy.Ledger(tmp_path / "ledger.json")
    model = privet.PrivateLogisticRegression(1.0, 1e-6, ledger=ledger, **SETTINGS).fit(X, y)
    assert len(ledger.entries()) == 1
    assert ledger.total(1e-6).epsilon == pytest.approx(model.guarantee_.epsilon, rel=1e-9)
    drawn = []
    monkeypatch.setattr(ClassCounts, "weights", lambda *_: drawn.append(1))
    model.before_training = _refuse
    with pytest.raises(OSError, match="no budget"):
        model.fit(X, y)
    assert not drawn


def _refuse(_):
    raise OSError("no budget")


def test_the_rarer_class_is_predicted_more_often_and_a_later_fit_forgets_the_weights(tmp_path):
    rng = np.random.default_rng(0)
    names = np.where(rng.random(6000) < 0.1, "yes", "no")
    X = rng.normal(size=(6000, 2)) / 4
    X[names == "yes", 0] += 0.3
    model = privet.PrivateLogisticRegression(1.0, alpha=1e-3, random_state=0, class_weight="balanced").fit(X, names)
    np.testing.assert_allclose(model.class_weight_, [1 / 9, 1], rtol=0.1)
    again = privet.PrivateLogisticRegression(1.0, alpha=1e-3, random_state=0, class_weight="balanced").fit(X, names)
    assert np.array_equal(model.coef_, again.coef_)
    recall = (model.predict(X) == "yes")[names == "yes"].mean()
    privet.save(model, tmp_path / "model")
    loaded = privet.load(tmp_path / "model")
    assert loaded.class_weight == "balanced"
    assert np.array_equal(loaded.class_weight_, model.class_weight_)
    plain = model.set_params(class_weight=None).fit(X, names)
    assert not hasattr(plain, "class_weight_")
    assert recall > 0.6 > (plain.predict(X) == "yes")[names == "yes"].mean()


def test_several_classes_have_a_weight_each():
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=5000, p=[0.6, 0.3, 0.1])
    X = rng.normal(size=(5000, 2)) / 3
    model = privet.PrivateLogisticRegression(1.0, class_weight="balanced", random_state=0).fit(X, y)
    np.testing.assert_allclose(model.class_weight_, [1 / 6, 1 / 3, 1], rtol=0.15)


def test_public_records_are_weighted_alike():
    X, y = table()
    model = privet.PrivateLogisticRegression(2.0, 1e-5, method="iteration", random_state=0, **SETTINGS)
    alone = model.fit(X, y).coef_
    assert not np.array_equal(alone, model.fit(X, y, X_public=X[:50], y_public=y[:50]).coef_)
    assert model.guarantee_.epsilon <= 2.0


def test_a_method_that_announces_less_than_it_releases_is_refused():
    X, y = table(100)
    problem = Problem(BalancedClasses(Logistic(), (1.0, 1.0)), L2(0.1), BoundedRows(X, 1.0), y.astype(float))

    def train(task):
        parts = []
        for _ in range(2):
            plan = GradientPlan.for_budget(Budget(0.3, 1e-6), sampler=FullBatch(), steps=2, clip_norm=1.0)
            parts.append(task.solve(noisy_gradient_descent, plan, step_size=0.1))
        return replace(parts[1], guarantee=compose([part.guarantee for part in parts]))

    with pytest.raises(RuntimeError, match="not what it announced before the classes were counted"):
        train_balanced(Method("bad", train, "nothing"), Task(problem, Budget(1.0, 1e-5), NoiseSource(1)))


def test_the_constants_of_the_loss_do_not_depend_on_the_weights():
    for weights in ((1.0, 1.0), (0.01, 1.0)):
        loss = BalancedClasses(Logistic(), weights)
        assert loss.lipschitz(1.0) == Logistic().lipschitz(1.0)
        assert loss.smoothness(1.0) == Logistic().smoothness(1.0)
        assert loss.start_curvature == Logistic().start_curvature
    with pytest.raises(ValueError, match="largest weight must be 1"):
        BalancedClasses(Logistic(), (0.5, 0.9))


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"epsilon": None, "noise_multiplier": 1.0}, "noise_multiplier=1.0 does not determine"),
        ({"epsilon": None, "tpr": (0.01, 0.05)}, "Give epsilon in its place"),
        ({"class_weight": "auto"}, "'balanced'"),
    ],
)
def test_what_is_not_supported_is_refused_before_anything_is_spent(settings, cause, tmp_path):
    X, y = table()
    with pytest.raises(ValueError, match=cause):
        privet.PrivateLinearSVC(ledger=tmp_path / "ledger", **SETTINGS | settings).fit(X, y)
    assert not (tmp_path / "ledger").exists()


def test_a_method_that_does_not_fit_beside_the_counts_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(balanced, "_FRACTIONS", (2.0,))
    X, y = table()
    with pytest.raises(ValueError, match="not supported by method='output'"):
        privet.PrivateLinearSVC(method="output", **SETTINGS).fit(X, y)
