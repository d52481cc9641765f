"""The effects of a model are what its scores and predictions do when one column changes."""

import datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privet import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateSparseLogisticRegression,
    PublicScaler,
    TableModel,
)
from privet.linear import column_effects
from privet.linear.effects import DAYS_PER_YEAR
from privet.tables import Categorical, Date, Numeric, NumericTarget, TableSchema, Target

N = 400
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.uniform(0, 100, N),
        "bmi": RNG.uniform(10, 60, N),
        "ward": RNG.choice(["north", "south", "west"], N),
        "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(RNG.integers(0, 1000, N), unit="D"),
    }
)
FRAME["ill"] = np.where(FRAME["age"] > 50, "yes", "no")
FRAME["stage"] = np.where(FRAME["age"] > 66, "late", np.where(FRAME["ward"] == "west", "middle", "early"))
FRAME["cost"] = 50 * FRAME["age"] + 1000 * (FRAME["ward"] == "west")
FEATURES = (
    Numeric("age", 0, 100),
    Numeric("bmi", 10, 60, missing="level"),
    Categorical("ward", ("north", "south", "west"), missing="level"),
    Date("day", "2020-01-01", "2023-01-01"),
)
ROW = {"age": 50.0, "bmi": 35.0, "ward": "north", "day": datetime.date(2021, 7, 2)}
SETTINGS = {"epsilon": 50.0, "random_state": 0}


def fitted(target, estimator):
    return TableModel(TableSchema(FEATURES, target), estimator).fit(FRAME)


def scores(model, **changes):
    """Return the scores of a row with these changes, one per class."""
    row = pd.DataFrame([ROW | changes])
    return np.ravel(model.estimator.decision_function(model.schema.encode(row)))


def by_name(found):
    return {effect.column: effect for effect in found.columns}


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_a_score_changes_by_the_effect_when_one_column_of_a_table_changes(kind):
    model = fitted(Target("ill", ("no", "yes")), kind(**SETTINGS))
    (found,) = column_effects(model)
    assert (found.target, found.label) == ("ill", "yes")
    assert found.is_log_odds == (kind is PrivateLogisticRegression)
    age, bmi, ward, day = (by_name(found)[name] for name in ("age", "bmi", "ward", "day"))
    (start,) = scores(model)
    (middle,) = scores(model, day=datetime.date(2021, 7, 2))
    assert found.baseline == pytest.approx(middle, abs=1e-3)  # the middle of the bounds of the day is half a day off
    assert age.per_unit == pytest.approx(scores(model, age=51.0)[0] - start)
    assert age.over_interval == pytest.approx(scores(model, age=100.0)[0] - scores(model, age=0.0)[0])
    assert age.size == abs(age.over_interval) and age.interval == (0, 100)
    assert bmi.levels == (("(missing)", pytest.approx(scores(model, bmi=None)[0] - start)),)
    assert [level for level, _ in ward.levels] == ["north", "south", "west", "(missing)"]
    for level, difference in ward.levels:
        cell = None if level == "(missing)" else level
        assert difference == pytest.approx(scores(model, ward=cell)[0] - start, abs=1e-12)
    assert ward.size == pytest.approx(np.ptp([difference for _, difference in ward.levels]))
    later = datetime.date(2022, 7, 2)
    assert day.per_unit * 365 / DAYS_PER_YEAR == pytest.approx(scores(model, day=later)[0] - start)
    assert [effect.size for effect in found.columns] == sorted((effect.size for effect in found.columns), reverse=True)


def test_the_effects_of_several_classes_are_differences_from_their_average():
    model = fitted(Target("stage", ("early", "middle", "late")), PrivateLogisticRegression(**SETTINGS))
    found = column_effects(model)
    assert [each.label for each in found] == ["early", "middle", "late"]
    changed = scores(model, age=51.0) - scores(model)
    moved = [by_name(each)["age"].per_unit for each in found]
    assert moved == pytest.approx(changed - changed.mean())
    assert sum(moved) == pytest.approx(0.0, abs=1e-12)
    assert by_name(found[2])["age"].per_unit > 0 > by_name(found[0])["age"].per_unit


def test_the_effects_on_a_number_are_in_its_units():
    model = fitted(NumericTarget("cost", 0, 10_000), PrivateRidge(**SETTINGS))
    (found,) = column_effects(model)
    assert (found.target, found.label, found.is_log_odds) == ("cost", None, False)

    def predicted(**changes):
        return model.predict(pd.DataFrame([ROW | changes]))[0]

    assert by_name(found)["age"].per_unit == pytest.approx(predicted(age=51.0) - predicted())
    assert dict(by_name(found)["ward"].levels)["west"] == pytest.approx(predicted(ward="west") - predicted())
    assert found.baseline == pytest.approx(predicted(), abs=1)


def test_several_targets_have_effects_of_their_own():
    schema = TableSchema(FEATURES, Target("ill", ("no", "yes")), others=(Target("stage", ("early", "middle", "late")),))
    model = TableModel(schema, PrivateLogisticRegression(**SETTINGS)).fit(FRAME)
    outputs = [(each.target, each.label) for each in column_effects(model)]
    assert outputs == [("ill", "yes"), ("stage", "early"), ("stage", "middle"), ("stage", "late")]


X = FRAME[["age", "bmi"]].to_numpy()
Y = (FRAME["ill"] == "yes").to_numpy()


def test_an_array_without_bounds_has_effects_per_unit_up_to_the_norm_of_rows():
    model = PrivateSparseLogisticRegression(50.0, feature_norm=120, n_nonzero=1, random_state=0).fit(X, Y)
    (found,) = column_effects(model)
    assert found.largest_norm == 120 and [effect.column for effect in found.columns] == ["column 0", "column 1"]
    first, second = found.columns
    rows = np.array([[50.0, 20.0], [51.0, 20.0]])
    assert first.per_unit == pytest.approx(np.diff(model.decision_function(rows))[0])
    assert (second.size, second.interval, second.over_interval) == (0.0, None, None)


@pytest.mark.parametrize(
    "scalers",
    [
        (PublicScaler([0, 10], [100, 60]),),
        (PublicScaler([0, 10], [100, 60], center=False),),
        (PrivateScaler(5.0, lower=[0, 10], upper=[100, 60], clip_output=1.0, random_state=1),),
        (PublicScaler([0, 10], [100, 60]), PublicScaler(-0.5, 0.5)),
    ],
    ids=["public", "not centred", "private", "two"],
)
@pytest.mark.parametrize("named", [False, True])
def test_the_effects_of_a_pipeline_are_in_the_units_before_scaling(scalers, named):
    rows = FRAME[["age", "bmi"]] if named else X
    model = make_pipeline(*scalers, PrivateLogisticRegression(50.0, feature_norm=4.0, random_state=0)).fit(rows, Y)
    (found,) = column_effects(model)
    age = by_name(found)["age" if named else "column 0"]
    ends = pd.DataFrame({"age": [0.0, 100.0, 50.0, 50.5], "bmi": 35.0})
    low, high, start, further = model.decision_function(ends if named else ends.to_numpy())
    assert age.over_interval == pytest.approx(high - low)
    assert 2 * (further - start) == pytest.approx(age.per_unit)
    assert age.interval == (0, 100) and found.baseline == pytest.approx(start)


def test_models_without_linear_effects_are_refused():
    scaled = make_pipeline(StandardScaler(), PrivateLogisticRegression(50.0)).fit(X, Y)
    for model, cause in ((scaled, "StandardScaler is not a scaler of privet"), (PublicScaler(0, 1), "has no effects")):
        with pytest.raises(TypeError, match=cause):
            column_effects(model)
