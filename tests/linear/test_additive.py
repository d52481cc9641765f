"""The additive estimators: what they accept, learn, release, save and refuse."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import privet
from privet import Budget, Ledger, PrivateAdditiveClassifier, PrivateAdditiveRegressor, TableModel, TableSchema
from privet.linear.additive_classification import unclipped
from privet.linear.additive_columns import AdditiveColumn
from privet.linear.shapes import monotone

N = 3000


def frame(n=N, seed=0):
    generator = np.random.default_rng(seed)
    age, sex = generator.uniform(0, 100, n), generator.choice(["f", "m"], n)
    score = 3 - np.abs(age - 50) / 8 + (sex == "m")
    return pd.DataFrame({"age": age, "sex": sex}), score


def labelled(n=N):
    X, score = frame(n)
    return X, np.where(np.random.default_rng(1).random(n) < 1 / (1 + np.exp(-score)), "ill", "fit")


PUBLIC = {"bounds": {"age": (0, 100)}, "levels": {"sex": ["f", "m"]}, "random_state": 0}


def classifier(**fields):
    return PrivateAdditiveClassifier(**({"epsilon": 4.0} | PUBLIC | fields))


def regressor(**fields):
    return PrivateAdditiveRegressor(**({"epsilon": 4.0, "target_bounds": (-10, 10)} | PUBLIC | fields))


@pytest.mark.parametrize("kind", [PrivateAdditiveClassifier, PrivateAdditiveRegressor])
def test_the_estimator_passes_the_checks_of_scikit_learn(kind):
    check_estimator(kind(random_state=0, max_iter=10), on_skip=None)


def test_curves_that_bend_are_learned_from_a_data_frame():
    X, y = labelled()
    model = classifier().fit(X, y)
    shape = model.shapes_["age"]
    middle = np.searchsorted(shape.edges, 50) - 1
    assert shape.values[middle] > shape.values[0] + 1 and shape.values[middle] > shape.values[-1] + 1
    assert model.score(X, y) > 0.75
    assert model.shapes_["sex"].levels == ("f", "m")
    assert model.guarantee_.epsilon <= 4.0


def test_arrays_and_data_frames_give_the_same_model():
    X, y = labelled()
    array = np.column_stack([X["age"], (X["sex"] == "m").astype(float)])
    other = classifier(bounds=[(0, 100)], levels={1: [0, 1]}).fit(array, y)
    assert np.array_equal(classifier().fit(X, y).decision_function(X), other.decision_function(array))


def test_the_sum_of_shapes_is_the_score():
    X, y = labelled()
    model = classifier(pairs=[("age", "sex")]).fit(X, y)
    assert list(model.shapes_) == ["age", "sex", "age x sex"]
    plain = classifier().fit(X, y)
    age, sex = plain.shapes_.values()
    bins = np.clip(np.searchsorted(age.edges, X["age"], side="right") - 1, 0, len(age.values) - 1)
    total = plain.intercept_[0] + age.values[bins] + sex.values[(X["sex"] == "m").astype(int)]
    assert np.mean(np.isclose(total, plain.decision_function(X))) > 0.999  # numbers at an edge may round to either side


@pytest.mark.parametrize("kind", [classifier, regressor])
def test_saved_models_predict_the_same(kind, tmp_path):
    X, score = frame(500)
    X["height"] = np.arange(500) / 500
    public = {"age": (0, 100), "height": (0, 1)}
    model = kind(bounds=public, pairs=[(0, 1)], monotone={"height": 1}).fit(
        X, score > 0 if kind is classifier else score
    )
    model.save(tmp_path / "model.json")
    loaded = privet.load(tmp_path / "model.json")
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.guarantee_ == model.guarantee_
    assert loaded.random_state is None


def test_a_damaged_file_is_refused(tmp_path):
    X, y = labelled(300)
    fields = classifier().fit(X, y).to_dict()
    fields["learned"]["curves_"][0]["__mapping__"][1][1] = {"__array__": [1.0], "dtype": "<f8"}
    with pytest.raises(ValueError, match="damaged"):
        privet.saving.from_dict(fields)


def test_several_classes_are_learned():
    X, score = frame()
    y = np.digitize(score, [-1, 2])
    model = classifier(epsilon=8.0).fit(X, y)
    assert model.predict_proba(X).shape == (N, 3)
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1)
    assert model.score(X, y) > 0.8
    assert model.shapes_["age"].values.shape[1] == 3


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_numbers_are_predicted_in_their_units(loss):
    X, score = frame()
    model = regressor(loss=loss).fit(X, score)
    assert model.score(X, score) > 0.85
    assert np.abs(model.predict(X)).max() <= 10


def test_counts_are_predicted_by_the_poisson_loss():
    X, score = frame()
    counts = np.random.default_rng(2).poisson(np.exp(score / 3))
    model = regressor(loss="poisson", target_bounds=(0, 20)).fit(X, counts)
    predicted = model.predict(X)
    assert np.corrcoef(predicted, np.exp(score / 3))[0, 1] > 0.9
    assert 0.7 < predicted.mean() / counts.mean() < 1.3
    assert predicted.min() >= 0


def test_monotone_curves_only_rise_or_only_fall():
    X, y = labelled()
    for direction in (1, -1):
        values = classifier(monotone={"age": direction}).fit(X, y).shapes_["age"].values
        assert np.all(direction * np.diff(values) >= 0)
    shares = np.array([0.5, 0.3, 0.2])
    values = np.array([1.0, -1.0, 2.0])
    assert math.isclose(shares @ monotone(values, shares, 1), shares @ values)


def test_probabilities_undo_the_clip():
    """At the modelled probabilities p, residuals clipped to c have the mean zero for the returned probabilities q."""
    generator = np.random.default_rng(0)
    likely = generator.dirichlet(np.ones(3), 200)
    true = unclipped(likely, 0.2, is_binary=False)
    mean = np.zeros_like(likely)
    for k in range(3):
        residual = likely - np.eye(3)[k]
        length = np.linalg.norm(residual, axis=1, keepdims=True)
        mean += true[:, [k]] * residual * np.minimum(1, 0.2 / length)
    assert np.abs(mean).max() < 1e-6
    assert np.array_equal(true.argmax(axis=1), likely.argmax(axis=1))
    p = np.array([[0.1, 0.9]])
    assert np.allclose(unclipped(p, 1.0, is_binary=True), p)


def test_noise_can_be_given_in_several_forms():
    X, y = labelled(500)
    assert classifier(epsilon=None, noise_multiplier=100.0).fit(X, y).guarantee_.epsilon > 0
    assert not classifier(noise_multiplier=0.0).fit(X, y).guarantee_.is_private
    model = classifier(epsilon=None, tpr=(0.01, 0.05)).fit(X, y)
    assert model.guarantee_.tpr(0.01) <= 0.05


def test_each_fit_is_booked_before_its_noise_is_drawn(tmp_path):
    X, y = labelled(300)
    ledger = Ledger(tmp_path / "spent.ledger", Budget(4.5, 1e-6))
    model = classifier(epsilon=4.0, delta=1e-6, ledger=ledger).fit(X, y)
    with pytest.raises(ValueError, match="limit"):
        clone(model).fit(X, y)
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"bounds": (1, 0)}, "low < high"),
        ({"bounds": {"sex": (0, 1)}}, "no entry for the column 'age'"),
        ({"bounds": [(0, 1), (0, 1)]}, "bounds has 2 pairs, but X has 1 columns"),
        ({"bounds": 3}, "pair"),
        ({"levels": {"sex": ["f", "x"]}}, "'m', which is not among the declared levels"),
        ({"levels": {"sex": ["f"]}}, "at least two levels"),
        ({"levels": {"town": ["a", "b"]}}, "'town', which is not a column"),
        ({"pairs": [("age", "town")]}, "'town', which is not a column"),
        ({"pairs": [("age", "age")]}, "repeats a column"),
        ({"pairs": ["age"]}, "list of pairs"),
        ({"pairs": 3}, "list of pairs"),
        ({"levels": ["sex"]}, "levels must be a mapping"),
        ({"monotone": [1, 0]}, "columns of numbers to"),
        ({"monotone": {"age": 1}, "pairs": [("age", "sex")]}, "in monotone and in pairs"),
        ({"monotone": {"age": 1}, "classes": ["fit", "ill", "dead"]}, "two classes"),
        ({"monotone": {"sex": 1}}, "columns of numbers to"),
        ({"monotone": {"age": 2}}, "columns of numbers to"),
        ({"delta": 0.0}, "pure epsilon"),
        ({"epsilon": None}, "Give one of them"),
        ({"tpr": (0.01, 0.05), "noise_multiplier": 1.0}, "cannot be given together"),
        ({"clip_norm": -1.0}, "clip_norm"),
    ],
)
def test_impossible_settings_are_refused_before_any_budget_is_spent(fields, problem, tmp_path):
    X, y = labelled(100)
    ledger = Ledger(tmp_path / "spent.ledger")
    with pytest.raises(ValueError, match=problem):
        classifier(ledger=ledger, **fields).fit(X, y)
    assert not ledger.entries()


def test_impossible_rows_and_targets_are_refused():
    X, score = frame(50)
    broken = X.assign(age=np.nan)
    with pytest.raises(ValueError, match="NaN or infinity"):
        regressor().fit(broken, score)
    with pytest.raises(ValueError, match="cannot be read as numbers"):
        regressor().fit(X.assign(age="old"), score)
    with pytest.raises(ValueError, match="cannot be negative"):
        regressor(loss="poisson").fit(X, score)
    with pytest.raises(ValueError, match="low < high"):
        regressor(target_bounds=(1, 1)).fit(X, score)
    with pytest.raises(ValueError, match="X has 50 rows"):
        regressor().fit(X, score[:-1])


def test_levels_are_compared_as_whole_numbers_and_unused_categories_are_ignored():
    column = AdditiveColumn("c", levels=(1.0, 2.0))
    assert column.cells(np.array([2, 1])).tolist() == [1, 0]
    column = AdditiveColumn("c", levels=("a", "b"))
    assert column.cells(pd.Categorical(["b", "a"], categories=["a", "b", "other"])).tolist() == [1, 0]
    for cells in (pd.Categorical(["b", None]), pd.Categorical(["b", "other"])):
        with pytest.raises(ValueError, match="not among the declared levels"):
            column.cells(cells)


def test_twenty_thousand_levels_are_trained_in_little_memory():
    levels = [str(level) for level in range(20_000)]
    X = pd.DataFrame({"town": np.random.default_rng(0).choice(levels[:10], 500)})
    model = PrivateAdditiveClassifier(4.0, levels={"town": levels}, random_state=0).fit(X, np.arange(500) % 2)
    assert len(model.shapes_["town"].values) == 20_000  # dense features would take 3 GB


def test_bins_of_pairs_are_named_by_numbers_and_levels():
    X, y = labelled()
    shape = classifier(pairs=[("age", "sex")]).fit(X, y).shapes_["age x sex"]
    assert shape.levels[0].startswith("0 to ") and shape.levels[0].endswith(", f")
    assert shape.levels[-1].endswith("to 100, m") and len(set(shape.levels)) == len(shape.levels)


def test_too_few_records_for_the_budget_are_reported_with_a_remedy():
    X, score = frame(100)
    for model, y in ((classifier(epsilon=0.1), score > 0), (regressor(epsilon=0.1), score)):
        with pytest.warns(privet.PrivetWarning, match=r"no better than guessing. By n and the budget, epsilon=[35] or"):
            model.fit(X, y)
    X, y = labelled()
    with warnings.catch_warnings():
        warnings.simplefilter("error", privet.PrivetWarning)
        classifier(epsilon=0.5).fit(X, y)


def test_numbers_beyond_the_bounds_are_clipped():
    column = AdditiveColumn("age", bounds=(-1e308, 1e308))
    assert column.cells([-np.finfo(float).max, 0.0, np.finfo(float).max]).tolist() == [0, 512, 1023]


def test_tables_are_trained_and_predicted_by_their_schema(tmp_path):
    X, y = labelled()
    table = X.assign(state=y, income=np.where(np.arange(N) % 7 == 0, np.nan, np.arange(N) % 50))
    schema = TableSchema.from_options(
        bounds=["age=0:100", "income=0:50"], levels=["sex=f,m"], target="state", missing=["income=level"]
    )
    model = TableModel(schema, PrivateAdditiveClassifier(4.0, random_state=0)).fit(table)
    assert np.mean(model.predict(table) == y) > 0.75
    assert set(model.estimator.shapes_) == {"age", "sex", "income", "income=(missing)"}
    assert model.guarantee_.statement(True).count("clipped to declared bounds and levels") == 1
    model.save(tmp_path / "model.json")
    assert np.array_equal(TableModel.load(tmp_path / "model.json").predict(table), model.predict(table))
    numbers = TableSchema.from_options(bounds=["age=0:100"], levels=["sex=f,m"], target="cost", target_bounds="0:300")
    costs = table.assign(cost=100 + 20 * frame()[1])
    found = TableModel(numbers, PrivateAdditiveRegressor(4.0, random_state=0)).fit(costs).predict(costs)
    assert np.corrcoef(found, costs["cost"])[0, 1] > 0.9
    assert 60 < found.mean() < 140


def test_what_additive_models_cannot_do_on_tables_is_refused():
    several = TableSchema.from_options(bounds=["age=0:100"], target=["a", "b"])
    with pytest.raises(ValueError, match="one target"):
        TableModel(several, PrivateAdditiveClassifier())
    single = TableSchema.from_options(bounds=["age=0:100"], target="a")
    table = pd.DataFrame({"age": [1.0, 2.0], "a": ["x", "y"]})
    with pytest.raises(ValueError, match="public records"):
        TableModel(single, PrivateAdditiveClassifier()).fit(table, public=table)


def test_the_report_and_the_table_of_effects_name_the_columns(tmp_path):
    X, y = labelled(500)
    path = classifier().fit(X, y).report(tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    assert "additive classifier" in text and "m instead of f" in text
