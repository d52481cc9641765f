"""Several targets of a table: their declaration, the model of all of them, and the command line."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from privet import PrivateLogisticRegression, PrivateRidge, TableModel
from privet.cli import app
from privet.tables import Numeric, NumericTarget, TableError, TableSchema, Target

rng = np.random.default_rng(0)
AGE = rng.uniform(0, 100, 800)
FRAME = pd.DataFrame(
    {
        "age": AGE,
        "sick": np.where(AGE > 50, "yes", "no"),
        "grade": np.array(["a", "b", "c"])[np.digitize(AGE, [30, 70])],
        "cost": 40 * AGE,
        "stay": 30 - AGE / 5,
    }
)
X = (Numeric("age", 0, 100),)
CLASSES = TableSchema(X, Target("sick", ("no", "yes")), (Target("grade"),))
NUMBERS = TableSchema(X, NumericTarget("cost", 0, 5000), (NumericTarget("stay", 0, 50),))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("table.csv", index=False)
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, " ".join(f"{result.output} {result.stderr} {result.exception}".split())


# -------------------------------------------------------------------------------------------------------------- schema


def test_targets_are_encoded_side_by_side():
    encoded = NUMBERS.encode_target(FRAME)
    assert encoded.shape == (800, 2)
    np.testing.assert_array_equal(encoded[:, 1], NumericTarget("stay", 0, 50).encode(FRAME["stay"]))
    complete = CLASSES.with_target_levels(FRAME)
    assert [each.levels for each in complete.targets] == [("no", "yes"), ("a", "b", "c")]
    assert [each.levels_from_data for each in complete.targets] == [False, True]
    assert CLASSES.undeclared(FRAME) == ("cost", "stay")


def test_a_schema_of_several_targets_is_restored_and_one_of_a_single_target_is_unchanged():
    assert TableSchema.from_dict(CLASSES.to_dict()) == CLASSES
    assert "others" not in TableSchema(X, Target("sick")).to_dict()


@pytest.mark.parametrize(
    ("targets", "cause"),
    [
        ((Target("sick"), Target("sick")), "'sick' is declared more than once"),
        ((Target("sick"), Target("age")), "'age' is also declared as a feature"),
        ((Target("sick"), NumericTarget("cost", 0, 1)), "'cost' is a number and 'sick' a category"),
        ((None, Target("sick")), "the first one is missing"),
    ],
)
def test_targets_that_do_not_go_together_are_refused(targets, cause):
    with pytest.raises(TableError, match=cause):
        TableSchema(X, targets[0], targets[1:])


def test_a_toml_file_names_several_targets(tmp_path):
    path = tmp_path / "columns.toml"
    path.write_text('target = ["sick", "grade"]\ntarget_levels = { sick = ["no", "yes"] }\n[numeric]\nage = [0, 100]\n')
    assert TableSchema.from_toml(path) == CLASSES
    assert TableSchema.from_options(toml=path, target="grade") == TableSchema(X, Target("grade"))
    path.write_text('target = ["sick", "grade"]\ntarget_levels = ["no", "yes"]\n[numeric]\nage = [0, 100]\n')
    with pytest.raises(TableError, match=r"several targets, but target_levels = .* is not a table of their names"):
        TableSchema.from_toml(path)
    path.write_text("target = []\n[numeric]\nage = [0, 100]\n")
    with pytest.raises(TableError, match="an empty list of targets"):
        TableSchema.from_toml(path)


def test_bounds_without_a_name_are_refused_for_several_targets():
    with pytest.raises(
        TableError, match=r"there are 2 targets. Declare the bounds of each column by name, as in cost=0:5"
    ):
        TableSchema.from_options(bounds=["age=0:100"], target=["cost", "stay"], target_bounds="0:5")


# --------------------------------------------------------------------------------------------------------------- model


def test_a_model_of_several_numbers_predicts_in_their_units(tmp_path):
    model = TableModel(NUMBERS, PrivateRidge(50.0)).fit(FRAME)
    predicted = model.predict(FRAME)
    assert predicted.shape == (800, 2)
    assert np.corrcoef(predicted[:, 0], FRAME["cost"])[0, 1] > 0.95
    assert np.abs(predicted[:, 1] - FRAME["stay"]).mean() < 5
    model.save(tmp_path / "model.json")
    np.testing.assert_array_equal(TableModel.load(tmp_path / "model.json").predict(FRAME), predicted)
    assert "the target 'stay' is clipped to declared bounds [0, 50]" in model.guarantee.statement(verbose=True)


def test_a_model_of_several_classes_assumes_only_the_levels_that_it_read(tmp_path):
    model = TableModel(CLASSES, PrivateLogisticRegression(50.0)).fit(FRAME)
    assert (model.predict(FRAME) == FRAME[["sick", "grade"]].to_numpy()).mean() > 0.8
    assert [each.shape for each in model.predict_proba(FRAME)] == [(800, 2), (800, 3)]
    assert model.guarantee.is_conditional
    declared = TableSchema(X, CLASSES.target, (Target("grade", ("a", "b", "c")),))
    assert not TableModel(declared, PrivateLogisticRegression()).fit(FRAME).guarantee.is_conditional
    model.save(tmp_path / "model.json")
    fields = TableModel.load(tmp_path / "model.json").to_dict()
    del fields["schema"]["others"]
    with pytest.raises(ValueError, match="its target does not match its weights"):
        TableModel.from_dict(fields)


# -------------------------------------------------------------------------------------------------------- command line


def test_the_command_fits_and_predicts_several_targets(folder):
    options = ["--bounds", "age=0:100", "--epsilon", "20"]
    done, output = run("fit", "table.csv", "--target", "sick", "--target", "grade", *options, "-o", "model.json")
    assert done == 0, output
    assert "of 2 tasks" in output
    done, output = run("predict", "model.json", "table.csv", "-o", "found.csv", "--probabilities", "--score")
    assert done == 0, output
    found = pd.read_csv("found.csv")
    assert list(found.columns)[:3] == ["sick", "grade", "probability of sick=no"]
    assert (found["sick"] == FRAME["sick"]).mean() > 0.8
    assert "sick: accuracy 0." in output
    assert "grade: accuracy 0." in output


def test_numbers_are_predicted_in_columns_of_their_names(folder):
    described = ["--bounds", "age=0:100", "--bounds", "cost=0:5000", "--bounds", "stay=0:50"]
    named = ["--target", "cost", "--target", "stay"]
    done, output = run("fit", "table.csv", *named, *described, "-o", "model.json")
    assert done == 0, output
    assert run("predict", "model.json", "table.csv", "-o", "found.csv")[0] == 0
    assert list(pd.read_csv("found.csv").columns) == ["cost", "stay"]
    done, output = run("fit", "table.csv", *named, *described, "--model", "huber", "--threshold", "3", "-o", "m.json")
    assert done != 0
    assert "different bounds" in output
    done, output = run("fit", "table.csv", *named, *described, "--model", "sparse", "-o", "m.json")
    assert done != 0
    assert "one target at a time" in output
