"""Scalers and pipelines are saved as JSON, and a damaged file is refused before it transforms anything."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import privet
from privet import PrivateLogisticRegression, PrivateScaler, PublicScaler, total_guarantee
from privet.saving import save

X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
Y = (X[:, 0] > 0).astype(int)
SCALERS = {
    "public": PublicScaler(-1, [1, 2, 3]),
    "moments": PrivateScaler(1.0, lower=-1, upper=1, random_state=5),
    "quantiles": PrivateScaler(9.0, 0.0, lower=-1, upper=1, method="quantiles", clip_output=2.0),
}

LOAD = """
import sys
import numpy as np
import privet
model, X = privet.load(sys.argv[1]), np.load(sys.argv[2])
guarantee = model.guarantee_ if hasattr(model, "guarantee_") else privet.total_guarantee(model)
result = model.predict(X) if hasattr(model, "predict") else model.transform(X)
np.savez(sys.argv[3], result=result, epsilon=np.nan if guarantee is None else guarantee.epsilon)
"""


def loaded_elsewhere(model, folder):
    """Save a model, load it in a fresh process, and return its results and epsilon there."""
    save(model, folder / "model.json")
    np.save(folder / "rows.npy", X)
    paths = [str(folder / name) for name in ("model.json", "rows.npy", "result.npz")]
    subprocess.run([sys.executable, "-c", LOAD, *paths], check=True, timeout=120)
    with np.load(paths[2]) as found:
        return found["result"], float(found["epsilon"])


@pytest.mark.parametrize("name", SCALERS)
def test_a_scaler_transforms_and_promises_the_same_in_a_fresh_process(name, tmp_path):
    scaler = SCALERS[name].fit(X)
    result, epsilon = loaded_elsewhere(scaler, tmp_path)
    assert np.array_equal(result, scaler.transform(X))
    assert np.isnan(epsilon) if scaler.guarantee_ is None else epsilon == scaler.guarantee_.epsilon


def test_a_pipeline_predicts_and_promises_the_same_in_a_fresh_process(tmp_path):
    scaler, model = PrivateScaler(1.0, lower=-1, upper=1), PrivateLogisticRegression(2.0, feature_norm=3.0)
    pipeline = make_pipeline(PublicScaler(-1, 1), scaler, model).fit(X, Y)
    result, epsilon = loaded_elsewhere(pipeline, tmp_path)
    assert np.array_equal(result, pipeline.predict(X))
    assert epsilon == total_guarantee(pipeline).epsilon


def test_the_seed_of_a_scaler_is_not_saved(tmp_path):
    scaler = PrivateScaler(1.0, lower=-1, upper=1, random_state=987_654_321).fit(X)
    scaler.save(tmp_path / "scaler.json")
    assert "987654321" not in (tmp_path / "scaler.json").read_text()
    assert privet.load(tmp_path / "scaler.json").random_state is None


def damaged(name, **learned):
    """Return the saved form of a fitted scaler with other learned attributes."""
    fields = json.loads(json.dumps(SCALERS[name].fit(X).to_dict()))
    return fields | {"learned": {key: value for key, value in (fields["learned"] | learned).items() if value != "gone"}}


def array(*values):
    return {"__array__": list(values), "dtype": "<f8"}


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        (damaged("moments", scale_=array(1, 1)), "ValueError"),
        (damaged("moments", scale_=array(1, 0, 1)), "scales are not positive"),
        (damaged("moments", scale_=array(1, -1, 1)), "scales are not positive"),
        (damaged("moments", center_=array(0, float("nan"), 0)), "3 finite numbers"),
        (damaged("public", upper_=array(1, -1, 3)), "bounds are not in order"),
        (damaged("public", n_features_in_=2), "2 finite numbers"),
        (damaged("public", lower_="gone"), "lower_"),
        (damaged("public", transform="x"), "'transform' is not an attribute that a fit learns"),
        (damaged("moments", guarantee_="gone"), "guarantee_"),
        (damaged("moments", guarantee_=None), "must have a guarantee"),
        (damaged("public", guarantee_=damaged("moments")["learned"]["guarantee_"]), "has no guarantee"),
        (damaged("public") | {"estimator": "StandardScaler"}, "'StandardScaler' is not among the kinds"),
        (damaged("public") | {"privet_format": 99}, "99"),
    ],
)
def test_a_damaged_file_is_refused_with_its_cause(fields, cause, tmp_path):
    path = tmp_path / "scaler.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=r"scaler\.json") as error:
        privet.load(path)
    assert cause in str(error.value)
    assert "\n" not in str(error.value)


def test_a_guarantee_that_claims_less_than_its_noise_gives_is_refused(tmp_path):
    fields = damaged("moments")
    guarantee = fields["learned"]["guarantee_"]["__guarantee__"]
    fields["learned"]["guarantee_"] = {"__guarantee__": guarantee | {"epsilon": guarantee["epsilon"] / 2}}
    (tmp_path / "scaler.json").write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="epsilon"):
        privet.load(tmp_path / "scaler.json")


def test_a_truncated_file_is_refused(tmp_path):
    SCALERS["public"].fit(X).save(tmp_path / "scaler.json")
    text = (tmp_path / "scaler.json").read_text()
    (tmp_path / "scaler.json").write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match=r"scaler\.json"):
        privet.load(tmp_path / "scaler.json")
