"""Test figures: their intervals cover the truth about as often as they say."""

import numpy as np
import pytest
import samples

from privet import PrivateRidge
from privet.linear import TableModel
from privet.report.figures import _mean, _share, test_figures
from privet.tables import Numeric, NumericTarget, TableSchema

test_figures.__test__ = False


def coverage(interval, truth, draw):
    rng = np.random.default_rng(0)
    found = [interval("figure", draw(rng)) for _ in range(2000)]
    return np.mean([each.low <= truth <= each.high for each in found])


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_the_interval_of_a_share_covers_it(share):
    assert 0.92 < coverage(_share, share, lambda rng: rng.random(200) < share) < 0.98


def test_the_interval_of_a_mean_covers_it():
    assert 0.92 < coverage(_mean, 1.0, lambda rng: rng.exponential(size=200)) < 0.98


def test_a_share_of_all_or_none_has_an_interval_within_zero_and_one():
    for hits in (np.ones(10, bool), np.zeros(10, bool)):
        figure = _share("figure", hits)
        assert 0 <= figure.low < figure.high <= 1
        assert figure.low <= figure.value <= figure.high


def test_classes_are_compared_with_the_most_frequent_level_and_numbers_by_their_error():
    model, frame = samples.table_model(), samples.patients(100, 1)
    accuracy, frequent = test_figures(model, frame)
    assert accuracy.value == np.mean(model.predict(frame) == frame["readmitted"])
    assert frequent.value == frame["readmitted"].value_counts(normalize=True).max()
    schema = TableSchema((Numeric("bmi", 10, 60),), target=NumericTarget("age", 0, 120))
    numbers = TableModel(schema, PrivateRidge(1.0, delta=1e-6)).fit(samples.patients())
    (error,) = test_figures(numbers, frame)
    assert error.value == pytest.approx(np.mean(np.abs(numbers.predict(frame) - frame["age"])))
