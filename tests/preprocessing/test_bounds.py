import numpy as np
import pandas as pd
import pytest

from privet.preprocessing.bounds import Bounds

NAMES = ["age", "bmi"]


@pytest.mark.parametrize(
    "upper",
    [
        [120, 60],
        (120, 60),
        np.array([120, 60], dtype=np.int8),
        {"bmi": 60, "age": 120},
        pd.Series([60, 120], NAMES[::-1]),
    ],
    ids=repr,
)
def test_bounds_are_accepted_in_many_forms(upper):
    bounds = Bounds.declared(0, upper, NAMES)
    assert bounds.lower.tolist() == [0.0, 0.0]
    assert bounds.upper.tolist() == [120.0, 60.0]
    assert bounds.upper.dtype == np.float64


def test_columns_without_names_are_numbered():
    assert Bounds.declared(pd.Series([0, -1]), {1: 7, 0: 3}, range(2)).upper.tolist() == [3.0, 7.0]


@pytest.mark.parametrize(
    ("lower", "upper", "cause"),
    [
        (1, 1, r"lower must be below upper, got 1 and 1 for column 'age'. A column with equal bounds is constant"),
        (2, 1, "lower must be below upper"),
        ([0, 5], [1, 4], "column 'bmi'"),
        (0, 5e-324, "lower must be below upper"),
        (np.nan, 1, "lower must be finite"),
        (0, np.inf, "upper must be finite"),
        (0, 1e301, "upper must be finite and at most 1e[+]300 in absolute value, got 1e[+]301"),
        (0, [1, np.nan], "upper must be finite .*, got nan for column 'bmi'"),
        (0, [1, 2, 3], "There are 2 columns, got 3"),
        (0, [], "number"),
        (0, [[1, 2]], "2 dimensions"),
        ("0", 1, "lower must be a number"),
        (None, 1, "lower must be a number"),
        (False, 1, "lower must be a number"),
        (0, [1, None], "upper must be a number"),
        (0, {"age": 1, "bmi": "2"}, "upper must be a number"),
        (0, {"age": 1}, "upper has no bound for column 'bmi'"),
        (0, {"age": 1, "bmi": 2, "Age": 3}, "upper names 'Age', which is not a column. The columns are 'age', 'bmi'"),
        (0, pd.Series([1, 2, 3], ["age", "bmi", "bmi"]), "upper names a column twice"),
        (0, pd.Series([1, np.nan], NAMES), "upper must be finite"),
    ],
)
def test_bad_bounds_are_refused_in_one_line(lower, upper, cause):
    with pytest.raises(ValueError, match=cause) as error:
        Bounds.declared(lower, upper, NAMES)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entries_are_clipped_and_mapped(dtype):
    bounds = Bounds.declared([0, -1], [10, 3], NAMES)
    X = np.array([[-5, 1], [5, 99], [10, -1]], dtype=dtype)
    assert bounds.clip(X).tolist() == [[0, 1], [5, 3], [10, -1]]
    assert bounds.unit(X).tolist() == [[-1, 0], [0, 1], [1, -1]]
    assert bounds.unit(X[:, 1], 1).tolist() == [0, 1, -1]
    assert X[0, 0] == -5  # the rows of the caller are left alone


@pytest.mark.parametrize(
    ("lower", "upper"), [(-1e300, 1e300), (0.1, 0.7), (1 / 3, 1e200), (1e16, 1e16 + 2), (0, 1e-200)]
)
def test_rounding_never_moves_mapped_entries_out_of_the_interval(lower, upper):
    bounds = Bounds.declared(lower, upper, ["x"])
    X = np.array([[lower], [upper], [np.nextafter(upper, lower)], [-1e308], [1e308]])
    with np.errstate(all="raise", under="ignore"):
        assert np.abs(bounds.unit(X)).max() == 1.0
