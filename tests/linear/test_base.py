import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import privet
from privet import PrivateLogisticRegression, load
from privet.files import read_json, write_json


def fitted(binary, labels=(0, 1), **fields):
    X, y = binary
    return PrivateLogisticRegression(**({"random_state": 0} | fields)).fit(X, np.asarray(labels)[y])


@pytest.fixture
def saved(binary, tmp_path):
    """Return the path of a saved model and the fields in its file."""
    path = tmp_path / "model.json"
    fitted(binary, random_state=987_654_321).save(path)
    return path, json.loads(path.read_text())


# ---------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize(
    "labels",
    [[0, 1], [-3, 2**40], ["no", "yes"], ["nein", "jä\n"], [False, True], [1.0, 2.0], np.array(["x", "yy"], object)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fields", [{}, {"delta": 0.0}, {"smoothing": 0.5, "fit_intercept": False}], ids=repr)
def test_a_loaded_model_equals_the_saved_one(binary, tmp_path, labels, dtype, fields):
    X = binary[0].astype(dtype)
    model = fitted((X, binary[1]), labels, **fields)
    model.save(tmp_path / "model.json")
    back = load(tmp_path / "model.json")
    assert type(back) is PrivateLogisticRegression
    assert np.array_equal(back.predict_proba(X), model.predict_proba(X))
    assert back.predict(X).tolist() == model.predict(X).tolist()
    assert back.classes_.dtype == model.classes_.dtype
    assert back.coef_.dtype == dtype
    assert back.guarantee_ == model.guarantee_
    assert back.guarantee_.statement(verbose=True) == model.guarantee_.statement(verbose=True)
    assert (back.method_, back.method_reason_, back.n_iter_) == (model.method_, model.method_reason_, model.n_iter_)
    assert back.get_params() == model.get_params() | {"random_state": None}


@pytest.mark.parametrize("n_classes", [2, 4])
def test_declared_classes_and_names_of_columns_are_kept(binary, tmp_path, n_classes):
    X = pd.DataFrame(binary[0], columns=["age", "income", "visits"])
    model = PrivateLogisticRegression(classes=list(range(n_classes))).fit(X, binary[1])
    model.save(tmp_path / "model.json")
    back = load(tmp_path / "model.json")
    assert back.classes == list(range(n_classes))
    assert back.feature_names_in_.tolist() == ["age", "income", "visits"]
    with pytest.raises(ValueError, match="feature names"):
        back.predict(X[["income", "age", "visits"]])


@pytest.mark.parametrize("classes", [(0, 1), np.array([0, 1]), range(2), pd.Index([0, 1])], ids=repr)
def test_classes_may_be_any_sequence(binary, tmp_path, classes):
    fitted(binary, classes=classes).save(tmp_path / "model.json")
    assert load(tmp_path / "model.json").classes_.tolist() == [0, 1]


@pytest.mark.parametrize("fields", [{"epsilon": np.float32(1.5)}, {"max_iter": np.int64(5)}, {"alpha": 0}], ids=repr)
def test_settings_may_be_any_number(binary, tmp_path, fields):
    fitted(binary, **fields).save(tmp_path / "model.json")
    assert load(tmp_path / "model.json").get_params().items() >= fields.items()


def test_the_seed_is_not_in_the_file(saved):
    path, fields = saved
    assert "987654321" not in path.read_text()
    assert fields["settings"]["random_state"] is None
    assert load(path).guarantee_.is_conditional  # what was promised still depends on the seed


def test_settings_changed_after_the_fit_do_not_change_what_was_promised(binary, tmp_path):
    model = fitted(binary, epsilon=2.0)
    model.set_params(epsilon=0.01, random_state=None, delta=0.0)
    model.save(tmp_path / "model.json")
    assert load(tmp_path / "model.json").guarantee_.epsilon == pytest.approx(2.0)
    assert load(tmp_path / "model.json").guarantee_.is_conditional


def test_a_loaded_model_can_be_fitted_again_and_spends_another_budget(binary, saved):
    model = load(saved[0])
    assert not np.array_equal(model.fit(*binary).coef_, load(saved[0]).coef_)


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        PrivateLogisticRegression().save(tmp_path / "model.json")
    assert not list(tmp_path.iterdir())


def test_load_is_offered_at_the_top():
    assert privet.load is load


# ----------------------------------------------------------------------------------------- files that are not models


@pytest.mark.parametrize("content", [b"", b"not JSON", b"[1, 2]", b"3", b"\xff\xfe\x00", b'{"a": 1', b"[" * 100_000])
def test_a_file_without_a_json_object_is_refused_by_name(tmp_path, content):
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.json is not a privet model") as error:
        load(path)
    assert "\n" not in str(error.value)


def without(key):
    return lambda fields: fields.pop(key)


def change(*path, to):
    def edit(fields):
        for key in path[:-1]:
            fields = fields[key]
        fields[path[-1]] = to

    return edit


TAMPERED = {
    "empty": lambda fields: fields.clear(),
    "no estimator": without("estimator"),
    "no format": without("privet_format"),
    "no settings": without("settings"),
    "nothing learned": without("learned"),
    "another estimator": change("estimator", to="os.system"),
    "a list of estimators": change("estimator", to=["PrivateLogisticRegression"]),
    "another format": change("privet_format", to=2),
    "settings without names": change("settings", to=[1]),
    "an unknown setting": change("settings", "spam", to=1),
    "an unfitted model": change("learned", to={}),
    "words for weights": change("learned", "coef_", to={"__array__": [["a", "b", "c"]], "dtype": "<f8"}),
    "an unknown type": change("learned", "coef_", to={"__array__": [[1.0, 2.0, 3.0]], "dtype": "spam"}),
    "weights that are not numbers": change("learned", "coef_", to={"__array__": [[math.nan, 0, 0]], "dtype": "<f8"}),
    "too few weights": change("learned", "coef_", to={"__array__": [[1.0, 2.0]], "dtype": "<f8"}),
    "a method shadowed": change("learned", "predict", to="shadowed"),
    "an empty guarantee": change("learned", "guarantee_", to={"__guarantee__": {}}),
    "a smaller epsilon": change("learned", "guarantee_", "__guarantee__", "epsilon", to=0.001),
    "an unknown event": change("learned", "guarantee_", "__guarantee__", "event", to={"kind": "Spam"}),
    "an unknown adjacency": change("learned", "guarantee_", "__guarantee__", "adjacency", to="none"),
}


@pytest.mark.parametrize("edit", TAMPERED.values(), ids=TAMPERED.keys())
def test_a_tampered_file_is_refused_in_one_line(saved, edit):
    path, fields = saved
    edit(fields)
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=r"privet|model") as error:
        load(path)
    assert "\n" not in str(error.value)


def test_a_missing_file_raises_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model\.json does not exist\. Check"):
        load(tmp_path / "model.json")


def test_another_class_of_the_same_name_does_not_take_over_what_is_loaded(saved):
    impostor = type("PrivateLogisticRegression", (PrivateLogisticRegression,), {})
    assert type(load(saved[0])) is not impostor


# ------------------------------------------------------------------------------------------------- writing a file


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "model.json"
    write_json(path, {"a": 1})
    for bad in ({"a": float("nan")}, {"a": object()}):
        with pytest.raises((ValueError, TypeError)):
            write_json(path, bad)
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_model_with_numbers_that_json_lacks_is_not_saved(binary, tmp_path):
    model = fitted(binary)
    model.coef_[0, 0] = np.inf
    with pytest.raises(ValueError, match=r"finite|Out of range"):
        model.save(tmp_path / "model.json")
    assert not list(tmp_path.iterdir())


WRITER = """
import sys
from privet.files import write_json
number = 0
while True:
    number += 1
    write_json(sys.argv[1], {"number": number, "filling": ["x" * 50] * 20_000, "end": number})
    print(number, flush=True)
"""


def test_a_reader_never_sees_half_a_file_though_the_writer_is_killed(tmp_path):
    path = tmp_path / "model.json"
    write_json(path, {"number": 0, "end": 0})
    pauses = np.random.default_rng(0).uniform(0.0, 0.03, 4)
    reads = 0
    for pause in pauses:
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()  # it is writing by now
            until = time.monotonic() + 0.05 + pause
            while time.monotonic() < until:
                fields = read_json(path)
                assert fields["number"] == fields["end"] > 0
                reads += 1
            os.kill(writer.pid, signal.SIGKILL)
        fields = read_json(path)
        assert fields["number"] == fields["end"] > 0
        assert len(fields["filling"]) == 20_000
    assert reads > 4
    assert writer.returncode == -signal.SIGKILL


def test_the_file_is_plain_text_that_holds_the_promise(saved):
    path, fields = saved
    assert fields["estimator"] == "PrivateLogisticRegression"
    assert fields["learned"]["guarantee_"]["__guarantee__"]["adjacency"] == "replace-one"
    assert re.search(r'"coef_"', path.read_text())
