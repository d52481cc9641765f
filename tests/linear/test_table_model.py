import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from privet import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSparseLogisticRegression,
    PrivateSparseRegression,
    TableModel,
)
from privet.tables import Categorical, Numeric, NumericTarget, TableError, TableSchema, Target

FEATURES = (Numeric("age", 0, 100), Categorical("plan", ("basic", "full")))


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.uniform(0, 100, n), "plan": rng.choice(["basic", "full"], n), "note": "x"})
    frame["visits"] = np.where(frame["age"] + 20 * (frame["plan"] == "full") > 55, "many", "few")
    frame["cost"] = 1000 + 30 * frame["age"] + 500 * (frame["plan"] == "full")
    return frame


def model_of(levels=("few", "many"), **fields):
    schema = TableSchema(FEATURES, Target("visits", levels))
    return TableModel(schema, PrivateLogisticRegression(**({"epsilon": 50.0, "random_state": 0} | fields)))


def cost_model(regressor=PrivateRidge, low=0, high=6000, **fields):
    schema = TableSchema(FEATURES, NumericTarget("cost", low, high))
    return TableModel(schema, regressor(**({"epsilon": 50.0, "random_state": 0} | fields)))


def test_a_table_is_learned_and_predicted_in_its_own_words():
    frame = table()
    model = model_of().fit(frame)
    assert (model.predict(frame) == frame["visits"]).mean() > 0.85
    assert model.predict_proba(frame).shape == (300, 2)
    assert set(model.predict(frame.drop(columns=["visits", "note"]))) <= {"few", "many"}


def test_a_loaded_table_model_equals_the_saved_one(tmp_path):
    frame = table()
    model = model_of().fit(frame)
    model.save(tmp_path / "model.json")
    back = TableModel.load(tmp_path / "model.json")
    assert back.predict(frame).tolist() == model.predict(frame).tolist()
    assert np.array_equal(back.predict_proba(frame), model.predict_proba(frame))
    assert back.guarantee == back.guarantee_ == model.guarantee
    assert back.schema == model.schema


def test_three_levels_in_their_declared_order():
    frame = table()
    model = model_of(levels=("none", "many", "few")).fit(frame)
    likeliest = np.array(["none", "many", "few"])[model.predict_proba(frame).argmax(axis=1)]
    assert model.predict(frame).tolist() == likeliest.tolist()


def test_sparse_models_of_a_table_use_the_largest_entry_that_its_rows_can_have(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{place}": rng.uniform(0, 1, 2000) for place in range(50)})
    frame["cost"], frame["visits"] = 3 * frame["c7"], np.where(frame["c7"] > 0.5, "many", "few")
    columns = tuple(Numeric(f"c{place}", 0, 1) for place in range(50))
    regression = TableModel(
        TableSchema(columns, NumericTarget("cost", 0, 3)), PrivateSparseRegression(2.0, n_nonzero=1, random_state=0)
    ).fit(frame)
    assert regression.estimator.entry_bound == pytest.approx(50**-0.5)
    assert regression.estimator.get_support(indices=True).tolist() == [7]
    assert np.corrcoef(regression.predict(frame), frame["cost"])[0, 1] > 0.9
    regression.save(tmp_path / "model.json")
    assert np.array_equal(TableModel.load(tmp_path / "model.json").predict(frame), regression.predict(frame))
    classes = TableModel(
        TableSchema(columns, Target("visits", ("few", "many"))),
        PrivateSparseLogisticRegression(2.0, n_nonzero=1, random_state=0),
    ).fit(frame)
    assert (classes.predict(frame) == frame["visits"]).mean() > 0.8
    assert "entry_bound = 0.141421 is clipped" in classes.guarantee.statement(verbose=True)


def test_a_support_vector_machine_learns_classes_and_has_no_probabilities(tmp_path):
    frame = table()
    schema = TableSchema(FEATURES, Target("visits", ("few", "many")))
    model = TableModel(schema, PrivateLinearSVC(epsilon=50.0, random_state=0)).fit(frame)
    assert (model.predict(frame) == frame["visits"]).mean() > 0.85
    model.save(tmp_path / "model.json")
    for svm in (model, TableModel.load(tmp_path / "model.json")):
        with pytest.raises(
            ValueError, match=r"PrivateLinearSVC predicts no probabilities, .*PrivateLogisticRegression"
        ):
            svm.predict_proba(frame)


def test_a_support_vector_machine_refuses_three_levels_with_the_remedy(no_noise):
    schema = TableSchema(FEATURES, Target("visits", ("none", "few", "many")))
    with pytest.raises(ValueError, match=r"3 classes\. Use PrivateLogisticRegression"):
        TableModel(schema, PrivateLinearSVC()).fit(table())


# ------------------------------------------------------------------------------------------------------- numbers

REGRESSORS = pytest.mark.parametrize("regressor", [PrivateRidge, PrivateHuberRegressor])


@REGRESSORS
def test_a_number_is_learned_and_predicted_in_its_own_units(regressor):
    frame = table()
    model = cost_model(regressor).fit(frame)
    predicted = model.predict(frame.drop(columns=["cost", "note"]))
    assert predicted.dtype == np.float64
    assert np.abs(predicted - frame["cost"]).mean() < 300  # 770 from the median
    assert ((predicted >= 0) & (predicted <= 6000)).all()


@REGRESSORS
def test_it_is_the_estimator_on_the_numbers_that_the_bounds_alone_map_to_one(regressor):
    frame = table()
    model = cost_model(regressor, low=2000, high=4000).fit(frame)
    rows, mapped = model.schema.encode(frame), (frame["cost"].clip(2000, 4000) - 3000) / 1000
    alone = regressor(epsilon=50.0, random_state=0).fit(rows, mapped)
    np.testing.assert_allclose(model.estimator.coef_, alone.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.predict(frame), 3000 + 1000 * alone.predict(rows), rtol=1e-6)


def test_other_units_give_the_same_model_in_those_units():
    frame = table()
    model = cost_model().fit(frame)
    shifted = cost_model(low=1000, high=7000).fit(frame.assign(cost=frame["cost"] + 1000))
    np.testing.assert_allclose(shifted.predict(frame), model.predict(frame) + 1000, rtol=1e-6)
    scaled = cost_model(high=1024 * 6000).fit(frame.assign(cost=1024 * frame["cost"]))
    np.testing.assert_allclose(scaled.predict(frame), 1024 * model.predict(frame), rtol=1e-6)


def test_targets_beyond_the_bounds_are_clipped_to_them():
    frame = table()
    wild, tame = frame.copy(), frame.copy()
    wild.loc[:1, "cost"], tame.loc[:1, "cost"] = [1e300, -1e300], [6000, 0]
    assert cost_model().fit(wild).predict(frame).tolist() == cost_model().fit(tame).predict(frame).tolist()


def test_the_threshold_is_one_of_the_mapped_target():
    frame = table()
    default = cost_model(PrivateHuberRegressor).fit(frame)  # a quarter of target_bound
    assert cost_model(PrivateHuberRegressor, threshold=0.25).fit(frame).predict(frame).tolist() == (
        default.predict(frame).tolist()
    )


@REGRESSORS
def test_a_loaded_table_regression_equals_the_saved_one(tmp_path, regressor):
    frame = table()
    model = cost_model(regressor).fit(frame)
    model.save(tmp_path / "model.json")
    back = TableModel.load(tmp_path / "model.json")
    assert back.predict(frame).tolist() == model.predict(frame).tolist()
    assert back.guarantee == back.guarantee_ == model.guarantee
    assert back.schema == model.schema
    assert type(back.estimator) is regressor


@pytest.mark.parametrize("seed", [None, 3])
@REGRESSORS
def test_the_guarantee_says_that_the_target_is_clipped(regressor, seed):
    guarantee = cost_model(regressor, low=-1.5, random_state=seed).fit(table()).guarantee
    assert guarantee.is_conditional == (seed is not None)
    assert "Enforced: the target is clipped to declared bounds [-1.5, 6000]" in guarantee.statement(verbose=True)
    assert "columns are clipped to declared bounds and levels" in guarantee.statement(verbose=True)


def test_a_number_has_neither_levels_nor_probabilities():
    model = cost_model().fit(table())
    with pytest.raises(ValueError, match="'cost' is a number, which is predicted without probabilities"):
        model.predict_proba(table())
    with pytest.raises(ValueError, match="'cost' is a number, so it has bounds instead of levels"):
        _ = model.levels


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_a_classifier_refuses_a_number_with_the_remedy(no_noise, kind):
    remedy = rf"{kind.__name__} predicts classes, .*'cost' is a number.* Use PrivateRidge.*levels"
    with pytest.raises(TableError, match=remedy):
        cost_model(kind)


@pytest.mark.parametrize("levels", [None, ("few", "many")])
@REGRESSORS
def test_a_regressor_refuses_classes_with_the_remedy(no_noise, regressor, levels):
    schema = TableSchema(FEATURES, Target("visits", levels))
    remedy = rf"{regressor.__name__} predicts numbers, .*'visits' has no bounds\. Declare target_bounds.*Logistic"
    with pytest.raises(TableError, match=remedy):
        TableModel(schema, regressor())


@REGRESSORS
def test_another_bound_than_that_of_the_schema_is_refused(regressor):
    with pytest.raises(ValueError, match=r"Leave target_bound at 1\.0"):
        cost_model(regressor, target_bound=3000)


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (lambda frame: frame.drop(columns="cost"), "no column 'cost'"),
        (lambda frame: frame.assign(cost=np.nan), "'cost' has 300 missing values"),
        (lambda frame: frame.assign(cost=-np.inf), "'cost' has 300 infinite values"),
        (lambda frame: frame.assign(cost=frame["visits"]), "'cost', .* is not a number"),
        (lambda frame: frame.iloc[:0], "empty"),
    ],
)
@REGRESSORS
def test_a_bad_number_is_named_in_one_line_before_any_noise_is_drawn(no_noise, regressor, spoil, cause):
    with pytest.raises(TableError, match=cause) as error:
        cost_model(regressor).fit(spoil(table()))
    assert "\n" not in str(error.value)


# ------------------------------------------------------------------------------------------------- the guarantee


@pytest.mark.parametrize("seed", [None, 3])
def test_with_declared_levels_only_the_seed_is_assumed(seed):
    guarantee = model_of(random_state=seed).fit(table()).guarantee
    assert guarantee.is_conditional == (seed is not None)
    assert guarantee.epsilon <= 50.0
    assert "columns are clipped to declared bounds and levels" in guarantee.statement(verbose=True)
    assert "declared beforehand" in guarantee.statement(verbose=True)


def test_levels_read_from_the_table_are_assumed_public_and_not_said_to_be_declared():
    guarantee = model_of(levels=None, random_state=None).fit(table()).guarantee
    assert guarantee.is_conditional
    assert "Assumed:  the set of class labels, read from y, is public" in guarantee.statement(verbose=True)
    assert "declared beforehand" not in guarantee.statement(verbose=True)


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
        (lambda frame: frame.assign(age=np.nan), "300 missing"),
        (lambda frame: frame.assign(age=np.inf), "300 infinite"),
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
    with pytest.raises(
        TableError, match=r"300 different values\. Declare target_levels .* target_bounds if it is a number"
    ):
        TableModel(schema, PrivateLogisticRegression()).fit(table())


def test_a_schema_without_a_target_is_refused(no_noise):
    with pytest.raises(TableError, match="target"):
        TableModel(TableSchema(FEATURES), PrivateLogisticRegression()).fit(table())


def test_another_norm_than_that_of_the_schema_is_refused():
    with pytest.raises(ValueError, match="feature_norm"):
        model_of(feature_norm=2.0)


@pytest.mark.parametrize("levels", [None, ("few", "many")])
def test_predicting_before_fitting_raises_not_fitted_error(levels, tmp_path):
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


OLD_MODEL = Path(__file__).parents[1] / "tables" / "model_of_classes.json"  # as privet 0.1 wrote it, before numbers


def test_a_file_from_before_targets_could_be_numbers_loads_and_predicts():
    model = TableModel.load(OLD_MODEL)
    assert model.schema.target == Target("visits", ("few", "many"))
    frame = table(5)
    assert model.predict(frame).tolist() == ["many", "few", "few", "few", "many"]
    likely = [0.9986358696191959, 0.15260105299362806, 0.001013795109385631, 0.0005832446672915393, 0.9999747393848774]
    np.testing.assert_allclose(model.predict_proba(frame)[:, 1], likely, rtol=1e-9)
    assert model.guarantee.epsilon <= 50.0


NUMBER = {"kind": "number", "name": "visits", "low": 0, "high": 1}
CLASSES = {"kind": "classes", "name": "visits", "levels": ["a", "b"], "levels_from_data": False}


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        (None, "target"),
        (NUMBER, "predicts classes"),
        (NUMBER | {"kind": "numeric"}, "not a table schema"),
        (CLASSES | {"levels": None}, "target"),
        (CLASSES | {"levels": ["a", "b", "c"]}, "target"),
        (CLASSES | {"kind": "odd"}, "not a table schema"),
    ],
)
def test_a_file_with_another_target_is_refused_in_one_line(tmp_path, target, cause):
    path = tmp_path / "model.json"
    fields = json.loads(OLD_MODEL.read_text())
    fields["schema"]["target"] = target
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=cause) as error:
        TableModel.load(path)
    assert "\n" not in str(error.value)


def test_a_file_of_numbers_with_classes_for_a_target_is_refused(tmp_path):
    path = tmp_path / "model.json"
    cost_model().fit(table()).save(path)
    fields = json.loads(path.read_text())
    fields["schema"]["target"] = CLASSES
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="PrivateRidge predicts numbers"):
        TableModel.load(path)
