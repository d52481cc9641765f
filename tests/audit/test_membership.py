import builtins
import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from privet import PrivateLogisticRegression, PrivateRidge
from privet.audit.membership import Membership, likelihood_ratio, membership, rmia
from privet.privacy import NoiseSource


def table(n=120, columns=200, seed=0, classes=2):
    """Return a table with few rows and many columns, which an unregularised model memorises."""
    X, y = make_classification(
        2 * n, columns, n_informative=5, n_classes=classes, flip_y=0.2, class_sep=0.5, random_state=seed
    )
    return X[:n], y[:n], X[n:], y[n:]


def identity(model, X, y):
    return np.asarray(X)[:, 0]


def attack_on(ins, outs, **options):
    """Return the result of an attack with the given scores."""
    return membership(None, np.c_[ins], np.zeros(len(ins)), np.c_[outs], np.zeros(len(outs)), score=identity, **options)


# ------------------------------------------------------------------------------------------ the area and its interval


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("decimals", [0, 1, 12])
def test_area_and_curve_are_scikit_learns_with_and_without_ties(seed, decimals):
    rng = np.random.default_rng(seed)
    ins, outs = rng.normal(0.5, 1, 83).round(decimals), rng.normal(0, 2, 121).round(decimals)
    labels, scores = np.repeat([1, 0], [83, 121]), np.concatenate([ins, outs])
    found = attack_on(ins, outs)
    assert found.auc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert np.trapezoid(found.tpr, found.fpr) == pytest.approx(found.auc, abs=1e-12)
    fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
    assert found.advantage == pytest.approx(np.max(tpr - fpr))
    for rate in (0.01, 0.1, 0.5, 1.0):
        assert found.tpr_at(rate) == pytest.approx(tpr[fpr <= rate + 1e-12].max())
    corners = set(zip(found.fpr, found.tpr, strict=True))
    # The points that are left out lie on straight lines, so the area is the same.
    assert corners <= set(zip(fpr, tpr, strict=True))
    assert (found.fpr[0], found.tpr[0], found.fpr[-1], found.tpr[-1]) == (0, 0, 1, 1)


def test_standard_error_is_delongs_by_its_definition():
    rng = np.random.default_rng(1)
    ins, outs = rng.normal(0.5, 1, 20).round(1), rng.normal(0, 1, 31).round(1)
    wins = np.where(ins[:, None] == outs, 0.5, ins[:, None] > outs)
    error = np.sqrt(wins.mean(axis=1).var(ddof=1) / 20 + wins.mean(axis=0).var(ddof=1) / 31)
    auc = wins.mean()
    low, high = attack_on(ins, outs, confidence=0.9).auc_interval
    odds = [np.log(value / (1 - value)) for value in (low, auc, high)]
    assert np.diff(odds) == pytest.approx(1.6448536 * error / (auc * (1 - auc)))


@pytest.mark.parametrize(("shift", "n"), [(0.0, 50), (1.0, 50), (2.0, 150)])
def test_interval_covers_the_true_area_as_often_as_it_says(shift, n):
    from scipy.stats import norm

    rng = np.random.default_rng(2)
    true = norm.cdf(shift / np.sqrt(2))
    results = [attack_on(rng.normal(shift, 1, n), rng.normal(0, 1, n)).auc_interval for _ in range(1000)]
    covered = np.mean([low <= true <= high for low, high in results])
    assert 0.925 <= covered <= 0.975  # 0.95 plus or minus 3.6 standard errors of a thousand trials


@pytest.mark.parametrize(
    ("ins", "outs", "auc"),
    [([2.0] * 30, [1.0] * 20, 1.0), ([1.0] * 20, [2.0] * 30, 0.0), ([3.0] * 20, [3.0] * 30, 0.5), ([1.0], [0.0], 1.0)],
)
def test_the_interval_has_a_positive_width_even_for_constant_scores(ins, outs, auc):
    found = attack_on(ins, outs)
    low, high = found.auc_interval
    assert found.auc == auc
    assert 0 <= low <= auc <= high <= 1
    assert high - low > 0.25


def test_no_member_is_found_at_a_rate_below_one_non_member():
    found = attack_on([1.0, 2.0, 3.0, 4.0], [2.5, 0.0])
    assert found.tpr_at(0.001) == 0.5  # 3 and 4 are above all others
    assert found.tpr_at(0.5) == 1.0
    with pytest.raises(ValueError, match="fpr must lie in"):
        found.tpr_at(0)


# --------------------------------------------------------------------------------------------------- kinds of models


@pytest.mark.parametrize("classes", [2, 3])
def test_order_is_that_of_the_log_loss(classes):
    X, y, X_out, y_out = table(columns=20, classes=classes)
    model = LogisticRegression().fit(X, y)
    losses = [
        -np.log(model.predict_proba(rows)[np.arange(len(rows)), labels]) for rows, labels in ((X, y), (X_out, y_out))
    ]
    expected = roc_auc_score(np.repeat([1, 0], [len(y), len(y_out)]), -np.concatenate(losses))
    assert membership(model, X, y, X_out, y_out).auc == pytest.approx(expected, abs=1e-12)


def test_a_given_score_is_used():
    X, y, X_out, y_out = table()
    model = LogisticRegression(C=1e6).fit(X, y)
    right = membership(model, X, y, X_out, y_out, score=lambda fitted, rows, labels: fitted.predict(rows) == labels)
    gap = model.score(X, y) - model.score(X_out, y_out)
    assert right.advantage == pytest.approx(gap)  # Yeom et al.: the advantage of right and wrong is the gap


@pytest.mark.parametrize("model", [LinearSVC(C=1e3), KNeighborsClassifier(1), DecisionTreeClassifier()], ids=repr)
def test_models_that_memorise_their_rows_are_caught(model):
    X, y, X_out, y_out = table()
    found = membership(model.fit(X, y), X, y, X_out, y_out)
    assert found.auc > 0.65
    assert found.is_significant
    assert "distinguishes members from non-members" in str(found)


def test_hard_labels_and_regressions_can_be_attacked():
    X, y, X_out, y_out = table()

    class Hard:
        def __init__(self, model):
            self.classes_, self.predict = model.classes_, model.predict

    assert membership(Hard(DecisionTreeClassifier().fit(X, y)), X, y, X_out, y_out).auc > 0.6
    X, y = make_regression(200, 90, noise=10.0, random_state=0)
    model = LinearRegression().fit(X[:100], y[:100])
    found = membership(model, X[:100], y[:100], X[100:], y[100:])
    losses = (y - model.predict(X)) ** 2
    assert found.auc == pytest.approx(roc_auc_score(np.arange(200) < 100, -losses), abs=1e-12)
    assert found.auc > 0.9


def test_frames_sparse_rows_text_labels_and_pipelines_can_be_attacked():
    X, y, X_out, y_out = table()
    words = np.array(["no", "yes"])
    plain = membership(LogisticRegression(C=1e6).fit(X, y), X, y, X_out, y_out)
    model = LogisticRegression(C=1e6).fit(sparse.csr_matrix(X), words[y])
    asked = membership(
        model, sparse.csr_matrix(X), pd.Series(words[y]), sparse.csr_matrix(X_out), pd.DataFrame(words[y_out])
    )
    assert asked.auc == pytest.approx(plain.auc, abs=0.01)  # the solver stops elsewhere
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])], index=np.arange(len(X)) + 7)
    out = pd.DataFrame(X_out, columns=frame.columns)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=1e6)).fit(frame, words[y])
    assert membership(pipeline, frame, pd.Series(words[y], index=frame.index), out, words[y_out]).auc > 0.7


def test_a_label_that_the_model_has_not_seen_looks_like_a_non_member():
    X, y, X_out, y_out = table()
    found = membership(LogisticRegression().fit(X, y), X, y, X_out, np.full_like(y_out, 9) * (y_out > 0))
    assert found.auc > 0.7


# ---------------------------------------------------------------------------------------------------------- Figure 7


def test_private_models_hide_their_members_and_one_that_overfits_does_not():
    """A small version of Figure 7 of DP-Fed-LS: the AUC of the threshold attack with and without privacy."""
    n = 400
    X, y, X_out, y_out = table(n=n, columns=600)
    scale = np.linalg.norm(X, axis=1).max()
    X, X_out = X / scale, X_out / scale
    exposed = membership(LogisticRegression(C=1e6, max_iter=2000).fit(X, y), X, y, X_out, y_out)
    assert exposed.auc_interval[0] > 0.7
    assert exposed.is_significant
    for epsilon in (0.25, 0.5, 1.0):
        attacks = []
        for seed in range(4):
            model = PrivateLogisticRegression(epsilon, random_state=seed).fit(X, y)
            attacks.append(membership(model, X, y, X_out, y_out))
            assert attacks[-1].auc_interval[1] < exposed.auc_interval[0]
            # (epsilon, delta)-DP bounds TPR - FPR of a fixed test by tanh(epsilon/2) + delta. The best one exceeds it.
            assert attacks[-1].advantage < np.tanh(epsilon / 2) + model.guarantee_.delta + 0.1
        assert abs(np.mean([attack.auc for attack in attacks]) - 0.5) < 0.05


def test_equal_scores_are_reported_as_guessing():
    rng = np.random.default_rng(0)
    assert "is not better than guessing" in str(attack_on(rng.normal(size=300), rng.normal(size=300)))


# ------------------------------------------------------------------------------------------ the likelihood-ratio attack


def overfitted(X, y):
    return LogisticRegression(max_iter=500).fit(X, y)


def test_likelihood_ratio_is_sharper_than_the_threshold():
    X, y, X_out, y_out = table(n=200, columns=100)
    rows, labels = np.vstack([X, X_out]), np.append(y, y_out)
    member = np.arange(400) < 200
    seen = []
    sharp = likelihood_ratio(
        overfitted,
        rows,
        labels,
        member=member,
        shadows=32,
        source=NoiseSource(1),
        progress=lambda *step: seen.append(step),
    )
    blunt = membership(overfitted(X, y), X, y, X_out, y_out)
    assert sharp.attack == "likelihood-ratio"
    assert sharp.auc > blunt.auc + 0.05
    assert sharp.tpr_at(0.05) > 2 * blunt.tpr_at(0.05)
    assert seen == [(done + 1, 32) for done in range(32)]


def test_likelihood_ratio_finds_nothing_where_nothing_was_learned():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)) / 4, rng.integers(0, 2, 300)
    member = rng.random(300) < 0.5
    found = likelihood_ratio(
        lambda rows, labels: PrivateLogisticRegression(0.5).fit(rows, labels), X, y, member=member, shadows=8
    )
    assert found.auc_interval[0] < 0.56


def test_likelihood_ratio_takes_frames_a_fitted_model_regressions_and_a_spread_of_each_row():
    X, y = make_regression(120, 30, noise=20.0, random_state=0)
    frame, target = pd.DataFrame(X).add_prefix("x"), pd.Series(y)
    member = np.arange(120) % 2 == 0
    kinds = []

    def train(rows, labels):
        kinds.append((type(rows), len(rows)))
        return LinearRegression().fit(rows, labels)

    model = LinearRegression().fit(frame[member], target[member])
    found = likelihood_ratio(train, frame, target, member=member, model=model, shadows=64, source=NoiseSource(0))
    assert found.auc > 0.65
    assert kinds == [(pd.DataFrame, 60)] * 64
    again = likelihood_ratio(train, frame, target, member=member, shadows=64, source=NoiseSource(0))
    assert again.to_dict() == found.to_dict()  # the model on the members is the same


def test_rmia_is_sharper_than_the_threshold_with_few_shadow_models():
    X, y, X_out, y_out = table(n=200, columns=100)
    rows, labels, member = np.vstack([X, X_out]), np.append(y, y_out), np.arange(400) < 200
    seen = []
    options = {"member": member, "source": NoiseSource(1)}
    sharp = rmia(overfitted, rows, labels, shadows=8, progress=lambda *step: seen.append(step), **options)
    blunt = membership(overfitted(X, y), X, y, X_out, y_out)
    assert sharp.attack == "RMIA"
    assert sharp.auc > blunt.auc + 0.05
    assert sharp.tpr_at(0.05) > 2 * blunt.tpr_at(0.05)
    assert seen == [(done + 1, 8) for done in range(8)]
    # With a single pair of shadow models, there is no spread that a likelihood ratio could use.
    fewest = rmia(overfitted, rows, labels, shadows=2, **options)
    assert fewest.auc > blunt.auc


def test_rmia_finds_nothing_where_nothing_was_learned():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)) / 4, rng.integers(0, 2, 300)
    found = rmia(
        lambda rows, labels: PrivateLogisticRegression(0.5).fit(rows, labels), X, y, member=rng.random(300) < 0.5
    )
    assert found.auc_interval[0] < 0.56


def test_rmia_takes_regressions_margins_and_likelihoods():
    X, y = make_regression(120, 30, noise=20.0, random_state=0)
    member = np.arange(120) % 2 == 0
    options = {"member": member, "shadows": 16, "source": NoiseSource(0)}
    found = rmia(lambda rows, labels: LinearRegression().fit(rows, labels), X, y, **options)
    assert found.auc > 0.65
    X, y, X_out, y_out = table()
    rows, labels, member = np.vstack([X, X_out]), np.append(y, y_out), np.arange(240) < 120
    options = {"member": member, "source": NoiseSource(0)}
    assert rmia(lambda rows, labels: LinearSVC(C=10.0).fit(rows, labels), rows, labels, **options).auc > 0.6

    def likelihood(model, X, y):
        return model.predict_log_proba(X)[np.arange(len(y)), y]

    own = rmia(overfitted, rows, labels, score=likelihood, **options)
    assert own.auc == pytest.approx(rmia(overfitted, rows, labels, **options).auc, abs=0.01)


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(5)}, "X and y must have the same length, got 120 rows and labels of shape"),
        ({"X_out": np.zeros((0, 200)), "y_out": np.zeros(0)}, "X_out and y_out are empty"),
        ({"y_out": np.full(120, np.nan)}, "X_out and y_out have labels that are NaN"),
        ({"y": np.full(120, "other")}, "No label in y is one of the model's classes"),
        ({"confidence": 1.0}, "confidence must lie in"),
        ({"confidence": float("nan")}, "confidence must lie in"),
        ({"score": lambda model, X, y: np.full(len(y), np.nan)}, "120 of 120 scores of X and y are NaN or infinite"),
        ({"score": lambda model, X, y: np.zeros((len(y), 2))}, "one number per row, 120 in total"),
        ({"X": np.full((120, 200), np.nan)}, "NaN"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    X, y, X_out, y_out = table()
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=message):
        membership(model, **{"X": X, "y": y, "X_out": X_out, "y_out": y_out, **change})


def test_a_model_without_scores_is_refused():
    X, y, X_out, y_out = table()
    with pytest.raises(TypeError, match="object has none of predict_proba, decision_function and predict"):
        membership(object(), X, y, X_out, y_out)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"member": np.ones(20, dtype=bool)}, "member must be True for some rows and False for others"),
        ({"member": np.ones(20)}, "one bool per row, 20 in total"),
        ({"member": np.ones(3, dtype=bool)}, "one bool per row, 20 in total"),
        ({"shadows": 5}, "must be even"),
        ({"shadows": 2}, "shadows must be at least 4"),
    ],
)
def test_likelihood_ratio_refuses_before_any_model_is_trained(change, message):
    def train(X, y):
        raise AssertionError("trained")

    with pytest.raises(ValueError, match=message):
        likelihood_ratio(train, np.zeros((20, 2)), np.zeros(20), **{"member": np.arange(20) < 10, **change})
    if change != {"shadows": 2}:  # which is enough for RMIA
        with pytest.raises(ValueError, match=message):
            rmia(train, np.zeros((20, 2)), np.zeros(20), **{"member": np.arange(20) < 10, **change})


# ------------------------------------------------------------------------------------------------- the result


def test_a_result_is_frozen_and_goes_into_json_and_a_plot(monkeypatch):
    found = attack_on(np.arange(5.0) + 1, np.arange(8.0))
    assert isinstance(found, Membership)
    with pytest.raises(AttributeError):
        found.auc = 0.5
    fields = json.loads(json.dumps(found.to_dict()))
    assert fields["auc"] == found.auc
    assert set(fields["tpr_at_fpr"]) == {"0.001", "0.01", "0.1"}
    ax = found.plot()
    assert found.plot(ax) is ax
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'privet\[report\]'"):
        found.plot()


def test_private_regressions_can_be_attacked():
    X, y = make_regression(200, 5, random_state=0)
    model = PrivateRidge(1.0, target_bound=100.0, feature_norm=3.0, random_state=0).fit(X[:100], y[:100])
    assert 0.35 < membership(model, X[:100], y[:100], X[100:], y[100:]).auc < 0.65
