import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from privet import PrivateLogisticRegression, TableModel
from privet.tables import Categorical, Numeric, TableError, TableSchema, Target

FEATURES = (Numeric("age", 0, 100), Categorical("plan", ("basic", "full")))


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.uniform(0, 100, n), "plan": rng.choice(["basic", "full"], n), "note": "x"})
    frame["visits"] = np.where(frame["age"] + 20 * (frame["plan"] == "full") > 55, "many", "few")
    return frame


def model_of(levels=("few", "many"), **fields):
    schema = TableSchema(FEATURES, Target("visits", levels))
    return TableModel(schema, PrivateLogisticRegression(**({"epsilon": 50.0, "random_state": 0} | fields)))


def test_a_table_is_learned_and_predicted_in_its_own_words():
    frame = table()
    model = model_of().fit(frame)
    assert (model.predict(frame) == frame["visits"]).mean() > 0.85
    assert model.predict_proba(frame).shape == (300, 2)
    assert set(model.predict(frame.drop(columns=["visits", "note"]))) <= {"few", "many"}


def test_a_saved_table_model_comes_back_as_it_was(tmp_path):
    frame = table()
    model = model_of().fit(frame)
    model.save(tmp_path / "model.json")
    back = TableModel.load(tmp_path / "model.json")
    assert back.predict(frame).tolist() == model.predict(frame).tolist()
    assert np.array_equal(back.predict_proba(frame), model.predict_proba(frame))
    assert back.guarantee == model.guarantee
    assert back.schema == model.schema


def test_three_levels_in_their_declared_order():
    frame = table()
    model = model_of(levels=("none", "many", "few")).fit(frame)
    likeliest = np.array(["none", "many", "few"])[model.predict_proba(frame).argmax(axis=1)]
    assert model.predict(frame).tolist() == likeliest.tolist()


# ------------------------------------------------------------------------------------------------- the guarantee


@pytest.mark.parametrize("seed", [None, 3])
def test_declared_levels_leave_nothing_to_assume_but_the_seed(seed):
    guarantee = model_of(random_state=seed).fit(table()).guarantee
    assert guarantee.is_conditional == (seed is not None)
    assert guarantee.epsilon <= 50.0
    assert "columns are clipped to declared bounds and levels" in guarantee.statement()
    assert "declared beforehand" in guarantee.statement()


def test_levels_read_from_the_table_are_assumed_public_and_not_said_to_be_declared():
    guarantee = model_of(levels=None, random_state=None).fit(table()).guarantee
    assert guarantee.is_conditional
    assert "Assumed:  the set of class labels, read from y, is public" in guarantee.statement()
    assert "declared beforehand" not in guarantee.statement()


# ---------------------------------------------------------------------------------------- what it leaves untouched


def test_neither_the_frame_nor_the_schema_nor_the_settings_change():
    frame, estimator = table(), PrivateLogisticRegression(epsilon=50.0, random_state=0)
    before, settings = frame.copy(), clone(estimator).get_params()
    schema = TableSchema(FEATURES, Target("visits"))
    model = TableModel(schema, estimator).fit(frame)
    model.predict(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert schema == TableSchema(FEATURES, Target("visits"))
    assert estimator.get_params() == settings


def test_it_can_be_fitted_again_to_a_table_with_other_levels():
    model = model_of(levels=None).fit(table())
    other = table(seed=1).replace({"visits": {"few": "rarely", "many": "often"}})
    assert set(model.fit(other).predict(other)) == {"rarely", "often"}


# --------------------------------------------------------------------------------------------------------- errors


def without_target(frame):
    return frame.drop(columns="visits")


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (without_target, "no column 'visits'"),
        (lambda frame: frame.drop(columns="age"), "no column 'age'"),
        (lambda frame: frame.assign(plan="gold"), "'gold' is not declared"),
        (lambda frame: frame.assign(visits="some"), "'some' is not declared"),
        (lambda frame: frame.assign(visits="few"), "one class only"),
        (lambda frame: frame.assign(age=np.nan), "missing or infinite"),
        (lambda frame: frame.assign(age=np.inf), "missing or infinite"),
        (lambda frame: frame.assign(age="old"), "not a number"),
        (lambda frame: frame.iloc[:0], "empty"),
    ],
)
def test_a_bad_table_is_named_in_one_line_before_any_noise_is_drawn(no_noise, spoil, cause):
    with pytest.raises(TableError, match=cause) as error:
        model_of().fit(spoil(table()))
    assert "\n" not in str(error.value)


def test_a_number_as_target_is_refused_unless_its_levels_are_declared(no_noise):
    schema = TableSchema(FEATURES[1:], Target("age"))
    with pytest.raises(TableError, match="300 different values: declare the levels"):
        TableModel(schema, PrivateLogisticRegression()).fit(table())


def test_a_schema_without_a_target_is_refused(no_noise):
    with pytest.raises(TableError, match="target"):
        TableModel(TableSchema(FEATURES), PrivateLogisticRegression()).fit(table())


def test_another_norm_than_that_of_the_schema_is_refused():
    with pytest.raises(ValueError, match="feature_norm"):
        model_of(feature_norm=2.0)


@pytest.mark.parametrize("levels", [None, ("few", "many")])
def test_predicting_comes_after_fitting(levels, tmp_path):
    model = model_of(levels=levels)
    for use in (model.predict, model.predict_proba, lambda _: model.save(tmp_path / "model.json")):
        with pytest.raises(NotFittedError):
            use(table())


@pytest.mark.parametrize("key", ["schema", "model"])
@pytest.mark.parametrize("value", [None, {}, [], "x"])
def test_a_tampered_file_is_refused_in_one_line(tmp_path, key, value):
    path = tmp_path / "model.json"
    model_of().fit(table()).save(path)
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {key: value}))
    with pytest.raises(ValueError, match=r"schema|model") as error:
        TableModel.load(path)
    assert "\n" not in str(error.value)


def test_the_file_of_a_bare_estimator_is_refused(tmp_path):
    model_of().fit(table()).estimator.save(tmp_path / "model.json")
    with pytest.raises(ValueError, match="not a privet table model"):
        TableModel.load(tmp_path / "model.json")
