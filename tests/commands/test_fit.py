import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from privet.commands import fit
from privet.linear import (
    PrivateAbsoluteRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSparseLogisticRegression,
    PrivateSparseRegression,
    TableModel,
)
from privet.privacy import BudgetExceededError, Ledger
from privet.tables import Numeric, NumericTarget, TableSchema, Target

CLASSES = TableSchema((Numeric("x", 0, 1),), Target("y", ("no", "yes")))
NUMBERS = TableSchema((Numeric("x", 0, 1),), NumericTarget("y", -100, 300))


@pytest.mark.parametrize(
    ("model", "schema", "kind"),
    [
        ("auto", CLASSES, PrivateLogisticRegression),
        ("logistic", CLASSES, PrivateLogisticRegression),
        ("svm", CLASSES, PrivateLinearSVC),
        ("auto", NUMBERS, PrivateRidge),
        ("ridge", NUMBERS, PrivateRidge),
        ("huber", NUMBERS, PrivateHuberRegressor),
        ("absolute", NUMBERS, PrivateAbsoluteRegressor),
    ],
)
def test_each_model_name_gives_its_estimator_with_the_given_settings(model, schema, kind):
    estimator = fit.make_estimator(model, schema, epsilon=3.0, alpha=0.5, clip_norm=0.1)
    assert type(estimator) is kind
    assert (estimator.epsilon, estimator.alpha, estimator.clip_norm) == (3.0, 0.5, 0.1)
    TableModel(schema, estimator)  # they match


@pytest.mark.parametrize(
    ("schema", "kind"), [(CLASSES, PrivateSparseLogisticRegression), (NUMBERS, PrivateSparseRegression)]
)
def test_sparse_models_follow_the_target_and_refuse_settings_of_dense_ones(schema, kind):
    estimator = fit.make_estimator("sparse", schema, epsilon=3.0, n_nonzero=1, smoothing=0.0, clip_norm=None)
    assert type(estimator) is kind
    assert (estimator.epsilon, estimator.n_nonzero) == (3.0, 1)
    TableModel(schema, estimator)  # they match
    with pytest.raises(ValueError, match=r"--smoothing is not a setting of --model sparse_.*, or use logistic or svm"):
        fit.make_estimator("sparse", schema, smoothing=2.0)
    with pytest.raises(ValueError, match=r"--n-nonzero is not a setting of .*, or use sparse_logistic or sparse_reg"):
        fit.make_estimator("auto", schema, n_nonzero=3)


def test_auto_chooses_a_classifier_if_no_target_is_declared():
    assert type(fit.make_estimator("auto", TableSchema(CLASSES.features))) is PrivateLogisticRegression


def test_the_width_of_a_corner_is_in_the_units_of_the_target():
    assert fit.make_estimator("absolute", NUMBERS, corner_width=50.0).corner_width == 0.25  # of half the width, 200
    assert fit.make_estimator("absolute", NUMBERS, corner_width=None).corner_width is None
    with pytest.raises(ValueError, match=r"--corner-width is not a setting of --model huber\. .* use absolute"):
        fit.make_estimator("huber", NUMBERS, corner_width=1.0)


def test_the_smoothing_of_a_hinge_is_that_asked_for():
    assert fit.make_estimator("svm", CLASSES, loss="gaussian").loss == "gaussian"
    assert fit.make_estimator("svm", CLASSES, loss="parabola").loss == "parabola"
    assert not hasattr(fit.make_estimator("logistic", CLASSES, loss="parabola"), "loss")
    with pytest.raises(ValueError, match=r"--loss is not a setting of --model logistic\. .* use svm"):
        fit.make_estimator("logistic", CLASSES, loss="gaussian")


def test_the_threshold_is_in_the_units_of_the_target():
    assert fit.make_estimator("huber", NUMBERS, threshold=50.0).threshold == 0.25  # of half the width, 200
    assert fit.make_estimator("huber", NUMBERS).threshold is None


@pytest.mark.parametrize(
    ("model", "threshold", "cause"),
    [
        ("forest", None, "--model must be one of auto, sparse, additive, logistic, .*, got 'forest'"),
        ("", None, "--model must be"),
        ("ridge", 1.0, "--threshold is not a setting of --model ridge. Leave it out, or use huber"),
        ("auto", 1.0, "--threshold is not a setting of --model ridge. Leave it out, or use huber"),
        ("huber", 0.0, "threshold must be positive"),
        ("huber", -3.0, "threshold must be positive, got -3.0"),
        ("huber", float("inf"), "threshold must be finite"),
    ],
)
def test_impossible_settings_are_refused(model, threshold, cause):
    with pytest.raises(ValueError, match=cause):
        fit.make_estimator(model, NUMBERS, threshold=threshold)


def test_a_mismatch_is_refused_before_the_table_is_read(tmp_path: Path, no_noise):
    with pytest.raises(ValueError, match="predicts numbers"):
        fit.run(
            tmp_path / "none.csv",
            CLASSES,
            PrivateRidge(),
            output=tmp_path / "m.json",
            console=Console(file=io.StringIO()),
        )


@pytest.mark.parametrize("method", PrivateLogisticRegression.offered_methods())
def test_a_cost_above_the_limit_is_refused_before_training(tmp_path: Path, no_noise, method):
    pd.DataFrame({"x": [0.1, 0.2, 0.3] * 9, "y": ["no", "yes", "yes"] * 9}).to_csv(tmp_path / "t.csv", index=False)
    estimator = fit.make_estimator("logistic", CLASSES, method=method, epsilon=1.0, delta=1e-3, alpha=0.1)
    options = {"output": tmp_path / "m.json", "console": Console(file=io.StringIO())}
    ledger = Ledger(tmp_path / "ledger", (0.9, 1e-3))
    with pytest.raises(BudgetExceededError, match=r"above the limit of 0\.9"):
        fit.run(tmp_path / "t.csv", CLASSES, estimator, ledger=ledger, **options)
    assert ledger.entries() == []
    assert not (tmp_path / "m.json").exists()


def test_a_noise_multiplier_takes_the_place_of_epsilon():
    assert fit.make_estimator("auto", NUMBERS).epsilon == 1.0
    estimator = fit.make_estimator("auto", NUMBERS, epsilon=None, noise_multiplier=0)
    assert (estimator.epsilon, estimator.noise_multiplier) == (None, 0)
    with pytest.raises(ValueError, match="--epsilon and --noise-multiplier cannot be given together"):
        fit.make_estimator("auto", NUMBERS, epsilon=1.0, noise_multiplier=0)
    for multiplier in (0, 2.0):
        with pytest.raises(ValueError, match="--noise-multiplier is not a setting of --model sparse_regression"):
            fit.make_estimator("sparse", NUMBERS, noise_multiplier=multiplier)


def test_a_rate_takes_the_place_of_epsilon():
    estimator = fit.make_estimator("auto", NUMBERS, epsilon=None, tpr=(0.01, 0.05))
    assert (estimator.epsilon, estimator.tpr) == (None, (0.01, 0.05))
    assert fit.make_estimator("sparse", NUMBERS, tpr=(0.01, 0.05)).tpr == (0.01, 0.05)
    for other, option in (({"epsilon": 1.0}, "--epsilon"), ({"noise_multiplier": 2.0}, "--noise-multiplier")):
        with pytest.raises(ValueError, match=f"{option} and --tpr cannot be given together"):
            fit.make_estimator("auto", NUMBERS, tpr=(0.01, 0.05), **other)


def test_a_model_without_noise_says_so_and_is_refused_by_a_ledger(tmp_path: Path):
    pd.DataFrame({"x": [0.1, 0.2, 0.3] * 9, "y": ["no", "yes", "yes"] * 9}).to_csv(tmp_path / "t.csv", index=False)
    estimator = fit.make_estimator("logistic", CLASSES, noise_multiplier=0, max_iter=3)
    printed = io.StringIO()
    options = {"output": tmp_path / "m.json", "console": Console(file=printed)}
    with pytest.raises(BudgetExceededError, match="no noise, and thus no differential privacy"):
        fit.run(tmp_path / "t.csv", CLASSES, estimator, ledger=Ledger(tmp_path / "ledger"), **options)
    assert not (tmp_path / "m.json").exists()
    fit.run(tmp_path / "t.csv", CLASSES, estimator, **options)
    assert printed.getvalue().startswith("No differential privacy: the noise multiplier is 0")
    assert not TableModel.load(tmp_path / "m.json").guarantee.is_private


def test_nothing_is_printed_if_the_target_is_not_in_the_table(tmp_path: Path):
    pd.DataFrame({"x": [0.1, 0.2], "yy": ["no", "yes"]}).to_csv(tmp_path / "t.csv", index=False)
    printed = io.StringIO()
    options = {"output": tmp_path / "m.json", "console": Console(file=printed)}
    with pytest.raises(ValueError, match="no column 'y'"):
        fit.run(tmp_path / "t.csv", CLASSES, PrivateLogisticRegression(), **options)
    assert not printed.getvalue()


def test_the_guarantee_is_printed_and_the_model_is_saved(tmp_path: Path):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=500)
    pd.DataFrame({"x": x, "y": 400 * x - 100, "other": 1}).to_csv(tmp_path / "t.csv", index=False)
    console = Console(record=True, width=200, file=io.StringIO())
    estimator = fit.make_estimator("auto", NUMBERS, epsilon=10.0)
    options = {"output": tmp_path / "m.json", "verbose": True, "console": console}
    model = fit.run(tmp_path / "t.csv", NUMBERS, estimator, **options)
    text = console.export_text()
    assert "the target is clipped to declared bounds [-100, 300] and mapped to [-1, 1], each row independently" in text
    assert "Ignored columns that are not declared: other" in text
    frame = pd.DataFrame({"x": [0.0, 0.5, 1.0]})
    assert TableModel.load(tmp_path / "m.json").predict(frame).tolist() == model.predict(frame).tolist()
    assert np.abs(model.predict(frame) - [-100, 100, 300]).max() < 20
