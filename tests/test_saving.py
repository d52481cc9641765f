"""Everything that privet saves opens with privet.load, including files that version 0.1.0 wrote."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import privet
from privet import PrivateLogisticRegression, PrivateScaler, PublicScaler, TableModel
from privet.linear.base import PrivateLinearModel

SAVED = Path(__file__).parent / "saved"  # written by privet 0.1.0: estimators, `privet fit` and `privet party`
TABLES = {"fit.json", "fit_number.json", "party.json"}
FRAME = pd.DataFrame({"age": [5, 40, 110], "sex": ["male", "female", "male"]})

X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
Y = (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("path", sorted(SAVED.glob("*.json")), ids=lambda path: path.stem)
def test_a_file_of_version_0_1_0_opens_and_predicts(path):
    model = privet.load(path)
    assert isinstance(model, TableModel if path.name in TABLES else PrivateLinearModel)
    if path.name in TABLES:
        assert len(model.predict(FRAME)) == 3
        assert model.guarantee.epsilon > 0
        return
    rows = pd.DataFrame(X, columns=list("abc")) if path.stem == "ridge" else X
    assert len(model.predict(rows)) == 300
    assert type(model).__name__ == json.loads(path.read_text())["estimator"]


def test_there_is_a_file_of_version_0_1_0_for_every_estimator():
    kinds = {json.loads(path.read_text()).get("estimator") for path in SAVED.glob("*.json")}
    assert kinds >= {
        "PrivateHuberRegressor",
        "PrivateLinearSVC",
        "PrivateLogisticRegression",
        "PrivateRidge",
        "PrivateSparseLogisticRegression",
        "PrivateSparseRegression",
    }


@pytest.mark.parametrize("name", ["party.json", "logistic.json"])
def test_load_imports_the_module_that_owns_the_kind(name):
    code = "import sys; from privet.saving import load; print(type(load(sys.argv[1])).__name__)"
    command = [sys.executable, "-c", code, str(SAVED / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == {"party.json": "TableModel", "logistic.json": "PrivateLogisticRegression"}[name]


LOWER = [-1.0, -1.0, -1.0]
SCALERS = {
    "numbers": PublicScaler(-1, 1),
    "a list": PublicScaler(LOWER, [1, 1, 2], center=False),
    "a dictionary": PublicScaler({"a": -1, "b": -2, "c": -3}, 1),
    "a Series": PublicScaler(pd.Series({"a": -1, "b": -2, "c": -3}), 1),
    "moments": PrivateScaler(2.0, lower=LOWER, upper=1, random_state=987_654_321),
    "quantiles": PrivateScaler(20.0, 0.0, lower=-1, upper=1, method="quantiles", quantiles=(0.1, 0.9), clip_output=3),
}


@pytest.mark.parametrize("scaler", SCALERS.values(), ids=SCALERS)
def test_a_loaded_scaler_transforms_as_the_saved_one(scaler, tmp_path):
    frame = pd.DataFrame(X, columns=list("abc"))
    scaler.fit(frame).save(tmp_path / "scaler.json")
    back = privet.load(tmp_path / "scaler.json")
    assert type(back) is type(scaler)
    assert np.array_equal(back.transform(frame), scaler.transform(frame))
    assert back.row_norm_ == scaler.row_norm_
    assert back.guarantee_ == scaler.guarantee_
    assert "987654321" not in (tmp_path / "scaler.json").read_text()
    back.fit(frame)


def test_a_loaded_pipeline_predicts_and_promises_as_the_saved_one(tmp_path):
    scaler = PrivateScaler(1.0, lower=-1, upper=1)
    pipeline = make_pipeline(PublicScaler(-1, 1), "passthrough", make_pipeline(scaler), PrivateLogisticRegression(2.0))
    pipeline.fit(X, Y)
    privet.save(pipeline, tmp_path / "pipeline.json")
    back = privet.load(tmp_path / "pipeline.json")
    assert [name for name, _ in back.steps] == [name for name, _ in pipeline.steps]
    assert np.array_equal(back.predict_proba(X), pipeline.predict_proba(X))
    assert privet.total_guarantee(back).to_dict() == privet.total_guarantee(pipeline).to_dict()


def test_a_pipeline_whose_steps_share_a_seed_is_not_saved(tmp_path):
    scaler = PrivateScaler(1.0, lower=-1, upper=1, random_state=0)
    pipeline = make_pipeline(make_pipeline(scaler), PrivateLogisticRegression(2.0, random_state=0)).fit(X, Y)
    for use in (privet.total_guarantee, lambda pipeline: privet.save(pipeline, tmp_path / "pipeline.json")):
        with pytest.raises(ValueError, match="the same random_state, so their noise is not independent"):
            use(pipeline)
    assert not list(tmp_path.iterdir())
    pipeline.set_params(privatelogisticregression__random_state=1).fit(X, Y)
    privet.save(pipeline, tmp_path / "pipeline.json")


def test_save_writes_what_the_method_save_writes(tmp_path):
    model = PrivateLogisticRegression().fit(X, Y)
    privet.save(model, tmp_path / "one.json")
    model.save(tmp_path / "other.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "other.json").read_bytes()


def test_a_pipeline_with_a_step_that_privet_cannot_save_is_refused(tmp_path):
    pipeline = make_pipeline(StandardScaler(), PrivateLogisticRegression()).fit(X, Y)
    with pytest.raises(ValueError, match="StandardScaler cannot be saved"):
        privet.save(pipeline, tmp_path / "pipeline.json")
    assert not list(tmp_path.iterdir())


def test_an_unfitted_pipeline_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        privet.save(make_pipeline(PrivateLogisticRegression()), tmp_path / "pipeline.json")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"estimator": "Pipeline"},
        {"estimator": "Pipeline", "privet_format": 1},
        {"estimator": "Pipeline", "privet_format": 1, "steps": 3},
        {"estimator": "Pipeline", "privet_format": 1, "steps": [["a", {"estimator": "os.system"}]]},
        {"estimator": "Pipeline", "privet_format": 2, "steps": []},
        {"estimator": "LinearRegression", "privet_format": 1, "settings": {}, "learned": {}},
        {"estimator": "PublicScaler", "privet_format": 1, "settings": {"lower": 0, "upper": 1}, "learned": {}},
        {"schema": {}, "model": {"estimator": "Pipeline", "privet_format": 1, "steps": []}},
        {"estimator": "TableModel"},
        {
            "estimator": "PublicScaler",
            "privet_format": 1,
            "settings": {"lower": 0, "upper": 1},
            "learned": {"a_": {"__array__": [10**400], "dtype": "<f8"}},
        },
    ],
    ids=str,
)
def test_a_file_that_privet_did_not_write_is_refused_in_one_line(fields, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=r"model\.json cannot be loaded\. It is not a") as error:
        privet.load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("path", sorted(SAVED.glob("*.json")), ids=lambda path: path.stem)
@pytest.mark.parametrize("lost", ["removed", "null", "text"])
def test_a_model_without_its_guarantee_is_refused(path, lost, tmp_path):
    fields = json.loads(path.read_text())
    learned = (fields["model"] if path.name in TABLES else fields)["learned"]
    del learned["guarantee_"]
    if lost != "removed":
        learned["guarantee_"] = None if lost == "null" else "epsilon = 0.01"
    (tmp_path / "model.json").write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="not a valid privet model"):
        privet.load(tmp_path / "model.json")


def test_further_fields_cannot_replace_the_signed_model_of_a_study(tmp_path):
    signed = json.loads((SAVED / "party.json").read_text())
    other = json.loads((SAVED / "logistic.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**other, **signed}))  # the signatures do not cover ``other``
    model = privet.load(tmp_path / "model.json")
    assert isinstance(model, TableModel)
    assert model.to_dict() == privet.load(SAVED / "party.json").to_dict()


@pytest.mark.parametrize("name", ["logistic.json", "party.json"])
@pytest.mark.parametrize("field", ["epsilon", "delta"])
def test_a_number_beyond_the_range_of_floats_is_refused(name, field, tmp_path):
    fields = json.loads((SAVED / name).read_text())
    (fields["model"] if name in TABLES else fields)["learned"]["guarantee_"]["__guarantee__"][field] = 10**400
    (tmp_path / "model.json").write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=r"model\.json cannot be loaded"):
        privet.load(tmp_path / "model.json")


@pytest.mark.parametrize("name", ["logistic.json", "party.json", "multinomial_iteration.json"])
@pytest.mark.parametrize(
    "labels", [None, [0, 1], 1, {"__array__": [0], "dtype": "<i8"}, {"__array__": [[0, 1]], "dtype": "<i8"}], ids=str
)
def test_a_classifier_without_a_label_per_class_is_refused(name, labels, tmp_path):
    fields = json.loads((SAVED / name).read_text())
    (fields["model"] if name in TABLES else fields)["learned"]["classes_"] = labels
    (tmp_path / "model.json").write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="not as many labels"):
        privet.load(tmp_path / "model.json")
