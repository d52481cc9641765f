"""The noise in the weights: known exactly where noise is added to them, and said to be unknown elsewhere."""

import math

import numpy as np
import pytest
import samples

from privet import PrivateLogisticRegression, PrivateRidge, load
from privet.linear import TableModel
from privet.report.facts import facts_of
from privet.tables import Categorical, Numeric, NumericTarget, TableSchema

RUNS = 120


def coefficients(X, y, **settings):
    found = [PrivateLogisticRegression(random_state=seed, **settings).fit(X, y) for seed in range(RUNS)]
    return np.array([model.coef_.ravel() for model in found]), found[0].noise_std_


@pytest.mark.parametrize(
    ("method", "delta", "fit_intercept"),
    [("output", 1e-6, True), ("output", 1e-6, False), ("output", 0.0, False), ("minimiser", 0.0, False)],
)
def test_the_noise_of_coefficients_has_the_stated_standard_deviation(method, delta, fit_intercept):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)) / 4, np.arange(60) % 2
    settings = {"epsilon": 5.0, "alpha": 0.1, "max_iter": 4 if method == "output" else None, "classes": [0, 1]}
    weights, stated = coefficients(X, y, method=method, delta=delta, fit_intercept=fit_intercept, **settings)
    spread = math.sqrt(np.mean(np.var(weights, axis=0)))
    # Nothing else is random but the centre, which hardly matters. With 480 values, 4 sigma is 13 %.
    assert spread == pytest.approx(stated, rel=0.13)


@pytest.mark.parametrize("method", ["gradient", "minibatch", "iteration", "objective"])
def test_no_noise_is_invented_where_it_depends_on_the_data(method):
    model = samples.table_model(method=method)
    assert model.estimator.noise_std_ is None
    _, facts = facts_of(model)
    assert all(row.noise_std is None for table in facts.effects for row in table.rows)
    assert "not known" in facts.effects_note


def test_the_noise_of_an_effect_is_in_the_units_of_the_target():
    rng = np.random.default_rng(0)
    frame = samples.patients(400).assign(days=rng.uniform(0, 50, 400))
    features = (Numeric("age", 0, 120), Categorical("sex", ("female", "male")))
    schema = TableSchema(features, target=NumericTarget("days", 0, 50))
    model = TableModel(schema, PrivateRidge(2.0, delta=1e-6, method="output")).fit(frame)
    _, facts = facts_of(model)
    rows = {row.name: row for row in facts.effects[0].rows}
    unit = 25 * schema.column_scale * model.estimator.noise_std_
    assert rows["age"].noise_std == pytest.approx(2 * unit)
    assert rows["sex"].noise_std == pytest.approx(math.sqrt(2) * unit)


def test_the_noise_is_saved_with_the_model(tmp_path):
    model = samples.table_model()
    model.save(tmp_path / "model.json")
    assert load(tmp_path / "model.json").estimator.noise_std_ == model.estimator.noise_std_ > 0


def test_a_file_that_states_an_impossible_noise_is_refused(tmp_path):
    model = samples.table_model()
    model.estimator.noise_std_ = -1.0
    model.save(tmp_path / "model.json")
    with pytest.raises(ValueError, match="noise_std_"):
        load(tmp_path / "model.json")


def test_several_targets_share_the_noise_of_their_plan():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) / 4
    model = PrivateRidge(1.0, delta=1e-6, method="output").fit(X, rng.uniform(-1, 1, (200, 2)))
    assert model.noise_std_ > PrivateRidge(1.0, delta=1e-6, method="output").fit(X, X[:, 0]).noise_std_
