"""Public weights of classes: the loss and its constants grow with them, and one record moves a sum by no more."""

import itertools

import numpy as np
import pytest

import privet
from privet.audit import replay
from privet.objectives import BoundedRows, ClassWeighted, Logistic, Multinomial, SmoothedHinge, Squared

KINDS = (privet.PrivateLogisticRegression, privet.PrivateLinearSVC)
OFFERED = [(kind, method) for kind in KINDS for method in kind.offered_methods()]


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) / 3
    return X, (X[:, 0] + 0.2 * rng.normal(size=n) > 0.4).astype(int)


@pytest.mark.parametrize("weights", [(1.0, 5.0), (0.2, 1.0), (3.0, 3.0)])
@pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge(), Multinomial(2)])
def test_a_replaced_record_moves_the_sum_of_gradients_by_at_most_twice_the_declared_constant(loss, weights):
    weighted = ClassWeighted(loss, weights)
    kind = int if isinstance(loss, Multinomial) else float
    bound, reached = weighted.lipschitz(1.0), 0.0
    rows = [np.array([[x]]) for x in (-1.0, 1.0)]
    for scale, (x, y), (other, z) in itertools.product(
        (0.0, 3.0, 50.0), itertools.product(rows, (0, 1)), itertools.product(rows, (0, 1))
    ):
        w = scale * (weighted.start(1) + 1) * ([1, -1] if isinstance(loss, Multinomial) else 1)
        one, two = (
            weighted.gradient_sum(w, BoundedRows(row, 1.0), np.array([target], dtype=kind), np.inf)
            for row, target in ((x, y), (other, z))
        )
        reached = max(reached, float(np.linalg.norm(one - two)))
        assert max(np.linalg.norm(one), np.linalg.norm(two)) <= bound * (1 + 1e-12)
    assert max(weights) * 0.9 <= reached <= 2 * bound * (1 + 1e-12)


def test_a_wrong_constant_would_be_noticed():
    """The largest weight is attained: without it, the constant would be too small."""
    weighted = ClassWeighted(Logistic(), (1.0, 5.0))
    found = weighted.gradient_sum(np.array([-50.0]), BoundedRows(np.array([[1.0]]), 1.0), np.array([1.0]), np.inf)
    assert abs(found[0]) == pytest.approx(5.0)
    assert weighted.lipschitz(1.0) == 5.0
    assert weighted.smoothness(1.0) == 5.0 * Logistic().smoothness(1.0)


def test_weights_need_a_loss_of_classes_and_one_positive_number_for_each():
    for loss, weights in (
        (Squared(), (1.0, 2.0)),
        (Logistic(), (1.0,)),
        (Logistic(), (1.0, 0.0)),
        (Logistic(), (1.0, np.inf)),
    ):
        with pytest.raises(ValueError, match="class weights"):
            ClassWeighted(loss, weights)
    with pytest.raises(ValueError, match="class weights, but a target is 3"):
        ClassWeighted(Multinomial(4), (1.0, 1.0)).check_targets(np.array([3]))


@pytest.mark.parametrize(("kind", "method"), OFFERED)
def test_every_method_takes_weights_within_the_same_budget_and_says_that_they_are_public(kind, method):
    X, y = table()
    plain = kind(2.0, 1e-5, method=method, alpha=0.05, random_state=0, classes=(0, 1)).fit(X, y)
    model = kind(2.0, 1e-5, method=method, alpha=0.05, random_state=0, classes=(0, 1), class_weight={1: 4.0}).fit(X, y)
    assert model.guarantee_.epsilon <= 2.0
    assert "the weights of the classes are public" in model.guarantee_.statement(verbose=True)
    assert "weights of the classes" not in plain.guarantee_.statement(verbose=True)
    assert not np.array_equal(model.coef_, plain.coef_)


@pytest.mark.parametrize("method", ["output", "objective", "minimiser"])
def test_where_nothing_is_clipped_the_noise_grows_with_the_largest_weight(method):
    """On records whose gradients vanish, the weights are the noise."""
    X, y = np.zeros((400, 60)), np.arange(400) % 2
    deviations = []
    for weight in (1.0, 8.0):
        settings = {"alpha": 1.0, "fit_intercept": False, "classes": (0, 1), "class_weight": {0: weight}}
        models = [
            privet.PrivateLogisticRegression(1.0, 1e-5, method=method, random_state=seed, **settings).fit(X, y)
            for seed in range(3)
        ]
        deviations.append(np.std([model.coef_ for model in models]))
    assert 5 < deviations[1] / deviations[0] < 11


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["gradient", "output", "minibatch"])
def test_replays_with_weights_are_consistent(kind, method):
    X, y = table(12)
    other = y.copy()
    other[5] = 1 - y[5]

    def train(data):
        settings = {"classes": (0, 1), "class_weight": {0: 0.5, 1: 6.0}, "max_iter": 3, "alpha": 0.1}
        return kind(2.0, 1e-5, method=method, **settings).fit(*data)

    found = replay(train, (X, y), (X, other))
    assert not found.is_violation, found
    assert found.moved > 0


def test_weights_that_multiply_after_the_clip_are_refuted(monkeypatch):
    """A planted bug: the sum is clipped as without weights, and then multiplied."""
    X, y = table(12)
    other = y.copy()
    other[5] = 1 - y[5]
    monkeypatch.setattr(
        ClassWeighted, "residuals", lambda self, scores, targets: self.objective.residuals(scores, targets)
    )
    bounded = ClassWeighted.bounded

    def late(self, residuals, rows, clip_norm):
        return 6.0 * bounded(self, residuals, rows, clip_norm)

    monkeypatch.setattr(ClassWeighted, "bounded", late)

    def train(data):
        settings = {"classes": (0, 1), "class_weight": {1: 6.0}, "max_iter": 3, "clip_norm": 0.1}
        return privet.PrivateLogisticRegression(2.0, 1e-5, method="gradient", **settings).fit(*data)

    assert replay(train, (X, y), (X, other)).is_violation


def test_the_heavier_class_is_predicted_more_often():
    X, y = table(4000)
    rates = []
    for weight in (None, {"yes": 5.0}):
        names = np.where(y == 1, "yes", "no")
        model = privet.PrivateLogisticRegression(3.0, alpha=1e-2, random_state=0, class_weight=weight).fit(X, names)
        rates.append((model.predict(X) == "yes").mean())
    assert rates[1] > 1.5 * rates[0]


def test_weights_are_saved_with_the_model(tmp_path):
    X, y = table()
    model = privet.PrivateLogisticRegression(class_weight={1: 4.0}, random_state=0).fit(X, y)
    privet.save(model, tmp_path / "model")
    assert privet.load(tmp_path / "model").class_weight == {1: 4.0}


@pytest.mark.parametrize(
    ("weights", "cause"),
    [
        ("auto", "'balanced'"),
        ([1.0, 2.0], "or a dictionary"),
        ({2: 1.0}, "not among the classes"),
        ({1: -1.0}, "must be positive"),
        ({1: float("nan")}, "finite"),
    ],
)
def test_other_weights_are_refused_before_anything_is_spent(weights, cause, tmp_path):
    X, y = table()
    with pytest.raises(ValueError, match=cause):
        privet.PrivateLinearSVC(class_weight=weights, ledger=tmp_path / "ledger").fit(X, y)
    assert not (tmp_path / "ledger").exists()


def test_several_targets_with_weights_are_refused():
    X, y = table()
    with pytest.raises(ValueError, match="one target only"):
        privet.PrivateLogisticRegression(class_weight={1: 2.0}).fit(X, np.column_stack([y, 1 - y]))
