"""Whole trainings: their noise by other formulas, their results on neighbouring tables, and wide sparse rows."""

import math
import tracemalloc

import mpmath
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq
from sklearn.base import is_classifier

from privet import PrivateHuberRegressor, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from privet.linear.methods import METHODS, Task
from privet.objectives import L2, BoundedRows, Huber, Logistic, Multinomial, SmoothedHinge, Squared
from privet.objectives.summation import ROUNDING
from privet.plans import OutputPlan
from privet.plans.adaptive import Purse, selection_mu
from privet.plans.gradient import Step
from privet.privacy import Budget, NoiseSource
from privet.privacy.events import LastIterate
from privet.solvers import Problem

TRAINERS = {name: method for name, method in METHODS.items() if not method.is_sparse}
KINDS = [PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge, PrivateHuberRegressor]
CASES = [(kind, method) for kind in KINDS for method in kind.offered_methods()]
each_method = pytest.mark.parametrize(("kind", "method"), CASES, ids=lambda value: getattr(value, "__name__", value))


def exact_mu(epsilon, delta):
    """Return the mu whose exact Gaussian profile passes through (epsilon, delta)."""

    def excess(mu):
        with mpmath.workdps(40):
            m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
            return float(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m) - mpmath.mpf(delta))

    return brentq(excess, 1e-6, 1e3, xtol=1e-12)


class Log:
    """Every noisy vector of a run: the exact vector, the standard deviation of the noise, and the released vector.

    A choice by the exponential mechanism is logged with its scores, the scale of its noise, and the chosen index.
    """

    def __init__(self):
        self.exact, self.stds, self.released, self.replay = [], [], [], None
        self.choices = set()

    def add(self, exact, std, released, is_choice=False):
        if is_choice:
            self.choices.add(len(self.exact))
        if self.replay is not None:
            released = self.replay[len(self.released)].copy()
        self.exact.append(np.array(exact))
        self.stds.append(std)
        self.released.append(np.array(released))
        return released


@pytest.fixture
def watch(monkeypatch):
    """Return a function that runs a fit and returns its log. With ``replay`` the releases are the given ones."""
    step_noisy, plan_noisy, purse_noisy, purse_min = Step.noisy, OutputPlan.noisy, Purse.noisy, Purse.noisy_min

    def run(model, X, y, replay=None):
        log = Log()
        log.replay = replay
        with monkeypatch.context() as patch:
            patch.setattr(
                Step,
                "noisy",
                lambda self, x, scale=1.0, grid=None: log.add(
                    x, self._noise_std * scale, step_noisy(self, x, scale=scale, grid=grid)
                ),
            )
            patch.setattr(
                OutputPlan, "noisy", lambda self, x, source: log.add(x, self.scale, plan_noisy(self, x, source))
            )
            patch.setattr(
                Purse,
                "noisy",
                lambda self, x, bound, mu: log.add(x, 2 * bound / mu, purse_noisy(self, x, bound, mu)),
            )
            patch.setattr(
                Purse,
                "noisy_min",
                lambda self, x, bound, epsilon: int(
                    log.add(x, 4 * bound / epsilon, purse_min(self, x, bound, epsilon), is_choice=True)
                ),
            )
            model.fit(X, y)
        return log

    return run


def make(kind, method, **fields):
    fields = {"epsilon": 20.0, "delta": 1e-5, "method": method, "random_state": 0} | fields
    fields |= {"alpha": 0.5} if method in {"minimiser", "objective"} else {}
    return kind(**(fields | ({"classes": [0, 1]} if is_classifier(kind()) else {})))


def numbers(kind, y):
    return y if is_classifier(kind()) else np.where(y, 5.0, -5.0)


def neighbours(rng, n, d):
    """Yield pairs of tables that differ in the first record, with rows of all sizes and flipped labels."""
    for row in ("opposite", "same", "zero", "extreme", "random"):
        for label in ("flipped", "kept"):
            X = rng.standard_normal((n, d)) * rng.choice([0.1, 1.0, 10.0])
            y = rng.integers(0, 2, n)
            X2, y2 = X.copy(), y.copy()
            X2[0] = {
                "opposite": -X[0],
                "same": X[0],
                "zero": np.zeros(d),
                "extreme": rng.choice([-1e308, 1e308, 1e-310], d),
                "random": rng.standard_normal(d),
            }[row]
            y2[0] = 1 - y[0] if label == "flipped" else y[0]
            yield (X, y), (X2, y2)


# ----------------------------------------------------------------------------------- neighbours through the whole


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n", [2, 3, 9, 20])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_hidden_iterates_differ_at_one_record_s_visits_only_and_there_by_twice_the_clip(kind, n, fit_intercept, watch):
    """The claim for the last iterate rests on this property of each step, and on contractions (test_projected_sgd)."""
    rng = np.random.default_rng(n)
    for (X, y), (X2, y2) in neighbours(rng, n, 3):
        first, second = (make(kind, "iteration", fit_intercept=fit_intercept, max_iter=6) for _ in range(2))
        one = watch(first, X, numbers(kind, y))
        other = watch(second, X2, numbers(kind, y2), replay=one.released)
        assert np.array_equal(first.coef_, second.coef_)
        moved = [float(np.linalg.norm(a - b)) for a, b in zip(one.exact, other.exact, strict=True)]
        of_mean, steps = (moved[:1], moved[1:]) if fit_intercept else ([], moved)
        stds = one.stds[-len(steps) :]
        steps = [size / std for size, std in zip(steps, stds, strict=True)]
        multiplier = next(leaf for leaf in first.guarantee_.event.leaves() if isinstance(leaf, LastIterate))
        assert max(steps) <= 2 / multiplier.noise_multiplier * (1 + 1e-9)
        batches = len(steps) // 6  # in each of six passes, in the same order, which is drawn
        assert len({place % batches for place, size in enumerate(steps) if size > 0}) <= 1
        assert all(size <= 2 * first.feature_norm * (1 + 1e-9) for size in of_mean)


def distinguishing_mu(one, other):
    """Return the mu at which the two logs can be distinguished, from all differences and the noise on them."""
    squares = []
    for place, (first, second, std) in enumerate(zip(one.exact, other.exact, one.stds, strict=True)):
        moved = first - second
        if place in one.choices:  # by how much the log-odds of two indices can differ
            odds = float(moved.max() - moved.min()) / std
            squares.append(selection_mu(odds) ** 2 if odds else 0.0)
        else:
            squares.append(float(np.sum(moved**2)) / std**2)
    return math.sqrt(sum(squares))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize(
    ("kind", "method"),
    [case for case in CASES if case[1] not in {"objective", "iteration"}],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_no_neighbour_is_distinguished_better_than_claimed(kind, method, n, fit_intercept, watch):
    """One table is fitted, and then the other with the same releases. All sums together stay within the claim.

    The results are equal to the last bit, so they depend on the data only through the releases.
    """
    rng = np.random.default_rng(n)
    claimed = exact_mu(20.0, 1e-5)
    for (X, y), (X2, y2) in neighbours(rng, n, 3):
        first, second = (make(kind, method, fit_intercept=fit_intercept, max_iter=6) for _ in range(2))
        one = watch(first, X, numbers(kind, y))
        other = watch(second, X2, numbers(kind, y2), replay=one.released)
        assert distinguishing_mu(one, other) <= claimed * (1 + 1e-9)
        assert one.stds == other.stds
        assert np.array_equal(first.coef_, second.coef_)
        assert np.array_equal(first.intercept_, second.intercept_)
        assert first.guarantee_.to_json() == second.guarantee_.to_json()
        assert (first.n_iter_, first.method_) == (second.n_iter_, second.method_)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("size", [0.1, 10.0, 1e4])
def test_no_neighbour_is_distinguished_better_than_claimed_after_extreme_releases(kind, size, watch):
    """Any releases may occur, such as a distant centre or steep weights, and later sums must still be bounded."""
    rng = np.random.default_rng(7)
    claimed = exact_mu(20.0, 1e-5)
    for (X, y), (X2, y2) in neighbours(rng, 3, 2):
        replay = [size * rng.standard_normal(2), *(size * rng.standard_normal(3) for _ in range(6))]
        logs = []
        for rows, labels in ((X, y), (X2, y2)):
            logs.append(watch(make(kind, "gradient", max_iter=6), rows, numbers(kind, labels), replay=replay))
        assert distinguishing_mu(*logs) <= claimed * (1 + 1e-9)


def test_no_neighbour_is_distinguished_better_than_claimed_with_several_classes(watch):
    rng = np.random.default_rng(8)
    claimed = exact_mu(20.0, 1e-5)
    for method in ("gradient", "output", "minimiser"):
        for (X, y), (X2, y2) in neighbours(rng, 3, 2):
            models = [make(PrivateLogisticRegression, method, max_iter=5).set_params(classes=[0, 1, 2]) for _ in "12"]
            one = watch(models[0], X, y)
            other = watch(models[1], X2, np.where(np.arange(3) == 0, 2 * y2, y2), replay=one.released)
            assert distinguishing_mu(one, other) <= claimed * (1 + 1e-9)
            assert np.array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_claim_is_nearly_attained_by_an_outlier(kind, watch):
    """The gradient of the outlier is clipped in every step, so the noise is not larger than necessary."""
    X = np.zeros((3, 2))
    logs = []
    for side in (1.0, -1.0):
        X[0, 0] = side
        model = make(kind, "gradient", clip_norm=1e-3, intercept_scaling=0.01, max_iter=5, epsilon=100.0)
        logs.append(watch(model, X, numbers(kind, np.ones(3, int)), replay=logs[0].released if logs else None))
    assert 0.9 < distinguishing_mu(*logs) / exact_mu(100.0, 1e-5) <= 1


# ------------------------------------------------------------------------------------------ noise, by other formulas


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("clip_norm", [None, 0.07])
@pytest.mark.parametrize("feature_norm", [1.0, 3.0])
def test_the_noise_of_gradients_is_that_of_the_exact_profile(kind, clip_norm, feature_norm, binary, watch):
    X, y = binary
    bound = {} if is_classifier(kind()) else {"target_bound": 2.0}
    fields = {"clip_norm": clip_norm, "feature_norm": feature_norm, "epsilon": 1.0, "max_iter": 12} | bound
    log = watch(make(kind, "gradient", **fields), X, numbers(kind, y))
    mu = exact_mu(1.0, 1e-5)
    scale = bound.get("target_bound", 1.0)
    residual = {PrivateHuberRegressor: scale / 4, PrivateRidge: math.inf}.get(kind, 1.0)
    column = feature_norm * (0.2 if is_classifier(kind()) else 0.5)
    share = 1.0 if kind is PrivateHuberRegressor else 0.2  # less than 1 costs Huber's loss more than it saves
    clip = min(clip_norm or share * feature_norm * scale, residual * math.hypot(feature_norm, column) * (1 + ROUNDING))
    assert len(log.stds) == 13
    assert log.stds[0] == pytest.approx(2 * feature_norm * (1 + ROUNDING) / (mu * math.sqrt(0.05)), rel=1e-6)
    assert log.stds[1:] == pytest.approx([2 * clip * math.sqrt(12) / (mu * math.sqrt(0.95))] * 12, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_without_an_intercept_no_mean_is_released(kind, binary, watch):
    X, y = binary
    log = watch(make(kind, "gradient", fit_intercept=False, clip_norm=0.1, max_iter=7), X, numbers(kind, y))
    assert [each.shape for each in log.exact] == [(3,)] * 7
    assert log.stds == pytest.approx([2 * 0.1 * math.sqrt(7) / exact_mu(20.0, 1e-5)] * 7, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_noise_on_a_result_is_that_of_its_stability(kind, binary, watch):
    """The noise follows from d <- c d + 2 eta L/n with a special first step, or 2L/(n alpha) for the minimum."""
    X, y = binary
    residual = {PrivateHuberRegressor: 0.25}.get(kind, 1.0)  # of the loss, or the clip of a square over the row's norm
    first = 0.5 if kind is PrivateLogisticRegression else residual
    curvature = {PrivateLogisticRegression: 0.25}.get(kind, 1.0)  # a hinge of width 0.5: 1 / (2 * 0.5)
    row = math.hypot(1.0, 0.2 if is_classifier(kind()) else 0.5)
    log = watch(make(kind, "output", alpha=0.01, max_iter=6, fit_intercept=False), X, numbers(kind, y))
    smoothness = curvature + 0.01
    eta = 0.95 * 2 / (smoothness + 0.01)
    contraction, distance = max(abs(1 - eta * 0.01), abs(1 - eta * smoothness)), 0.0
    for bound in (first, *[residual] * 5):
        distance = contraction * distance + 2 * eta * bound * (1 + ROUNDING) / 60
    assert log.stds == pytest.approx([distance / exact_mu(20.0, 1e-5)], rel=1e-4)
    if kind is not PrivateRidge:
        log = watch(make(kind, "minimiser"), X, numbers(kind, y))
        assert log.stds == pytest.approx([1.01 * 2 * residual * row / (60 * 0.5) / exact_mu(20.0, 1e-5)], rel=1e-3)


# ---------------------------------------------------------------------------------------------------------- the task


def task(objective, *, n=50, epsilon=1.0, source=None, **fields):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4))
    y = rng.integers(0, 2, n)
    rows = BoundedRows(X, 1.0, 0.2)
    return Task(Problem(objective, L2(0.1), rows, y), Budget(epsilon, 1e-6), source or NoiseSource(0), **fields)


@pytest.mark.parametrize("method", TRAINERS)
@pytest.mark.parametrize(
    "objective",
    [Logistic(), SmoothedHinge(), Huber(0.5), Squared(), Multinomial(3)],
    ids=lambda each: type(each).__name__,
)
def test_a_trainer_keeps_within_the_budget_or_refuses_with_the_reason(method, objective, drawn):
    try:
        release = TRAINERS[method].train(task(objective))
    except ValueError as error:
        assert not drawn
        refused = TRAINERS[method]
        assert (
            (refused.needs_bound and isinstance(objective, Squared))
            or (refused.needs_one_score and isinstance(objective, Multinomial))
            or (refused.needs_squared and not isinstance(objective, Squared))
        )
        assert type(objective).__name__ in str(error)
    else:
        assert release.guarantee.epsilon <= 1.0
        assert release.weights.shape == objective.start(5).shape
        assert np.isfinite(release.weights).all()


@pytest.mark.parametrize("method", TRAINERS)
def test_progress_ends_at_the_end(method):
    calls = []
    objective = Squared() if TRAINERS[method].needs_squared else Logistic()
    TRAINERS[method].train(task(objective, progress=lambda *call: calls.append(call)))
    assert calls[-1][0] == calls[-1][1]
    done = [call[0] for call in calls]
    assert done == (sorted(done) if method == "adaptive" else list(range(1, len(done) + 1)))  # adaptive: in per cent


def test_the_number_of_steps_is_the_users_where_there_are_steps():
    for method in ("gradient", "output"):
        assert TRAINERS[method].train(task(Logistic(), max_iter=9)).trace["steps"] == 9


@pytest.mark.parametrize("objective", [Logistic(), Squared(), Multinomial(3)], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0, 1e4, 1e6])
def test_every_precision_has_a_clip_that_a_plan_can_have(objective, epsilon):
    """Beyond some precision clipping is not useful, but the squared loss has no other bound."""
    release = TRAINERS["gradient"].train(task(objective, n=300, epsilon=epsilon))
    assert 0 < release.trace["clip_norm"] < math.inf
    assert release.guarantee.epsilon <= epsilon


# --------------------------------------------------------------------------------------------------- wide sparse rows


@pytest.fixture(scope="module")
def wide():
    """Return 5,000 sparse rows of 47,000 columns with 0.2 % of the entries, which would take 1.9 GB if dense."""
    rng = np.random.default_rng(1)
    X = sparse.random_array((5_000, 47_000), density=0.002, format="csr", rng=rng)
    return X, (X @ rng.standard_normal(47_000) > 0).astype(int)


@each_method
def test_wide_sparse_rows_are_never_densified(kind, method, wide, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a sparse matrix was densified")

    for form in (sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix, sparse.csc_matrix):
        for way in ("toarray", "todense"):
            monkeypatch.setattr(form, way, refuse)
    X, y = wide
    max_iter = 2 if METHODS[method].takes_steps else None
    model = make(kind, method, max_iter=max_iter).set_params(feature_norm=5.0)
    if method in {"minimiser", "objective"}:
        model.set_params(alpha=20.0)
    if METHODS[method].needs_squared:
        with pytest.raises(ValueError, match="at most 2000 columns"):
            model.fit(X, numbers(kind, y))
        return
    tracemalloc.start()
    model.fit(X, numbers(kind, y))
    model.predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000 * 47_000 * 8 / 40
    assert np.isfinite(model.coef_).all()
