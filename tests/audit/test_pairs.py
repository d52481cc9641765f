"""Neighbours of a dataset differ from it in one unit, and are well-formed."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from privet.audit.pairs import EXTREMES, neighbours, scattered_table
from privet.privacy import Adjacency
from privet.replay import Units

X, LABELS = scattered_table(7, 2)
NUMBERS = scattered_table(7, 2, target_bound=3.0)[1]
FRAME = pd.DataFrame({"x": X[:, 0], "label": LABELS.astype(float), "name": list("abcdefg")})
DATASETS = {
    "array": X,
    "float32": X.astype(np.float32),
    "classes": (X, LABELS),
    "labels as floats": (X, LABELS.astype(float)),
    "numbers": (X, NUMBERS),
    "sparse": (sparse.csr_array(X), LABELS),
    "table": FRAME,
    "clients": [(X[:k], LABELS[:k]) for k in range(1, 6)],
}


def datasets():
    yield from DATASETS.values()
    torch = pytest.importorskip("torch")
    tensors = torch.tensor(X, dtype=torch.float32), torch.tensor(LABELS)
    yield tensors
    yield torch.utils.data.TensorDataset(*tensors)


def units(data):
    return Units.of(getattr(data, "tensors", data), getattr(data, "tensors", data)).n


@pytest.mark.parametrize("adjacency", Adjacency)
def test_each_neighbour_differs_in_one_unit(adjacency):
    for data in datasets():
        pairs = neighbours(data, adjacency)
        assert len({pair.name for pair in pairs}) == len(pairs) >= len(EXTREMES)
        for first, second in pairs:
            found = Units.of(getattr(first, "tensors", first), getattr(second, "tensors", second))  # at most one
            assert (found.mine is not None) or (found.other is not None)
            change = units(second) - units(first)
            assert abs(change) == (adjacency is Adjacency.ADD_OR_REMOVE)
            assert type(first) is type(second) is type(data)


def test_numbers_become_extreme_and_labels_stay_among_those_of_the_data():
    replaced = {pair.name.partition(": ")[2]: pair.second for pair in neighbours((X, LABELS.astype(float)))}
    assert replaced["huge numbers"][0][0].tolist() == [1e22, 1e22]
    assert replaced["tiny numbers"][0][-1].tolist() == [1e-22, 1e-22]
    assert replaced["subnormal numbers"][0][3].tolist() == [5e-324, 5e-324]
    assert np.signbit(replaced["negative zeros"][0][0]).all()
    assert all(set(y.tolist()) <= {0.0, 1.0} for _, y in replaced.values())
    (wide, numbers) = neighbours((X.astype(np.float16), NUMBERS))[0].second
    assert np.isfinite(wide).all()
    assert numbers[0] == 1e22
    frame = neighbours(FRAME)[0].second
    assert (frame["x"][0], frame["label"][0], frame["name"][0]) == (1e22, 1.0, "b")


def test_one_unit_moves_through_a_sorted_table_unless_the_order_means_nothing():
    (first, _), (second, _) = neighbours((X, LABELS))[-1]
    for rows in (first, second):
        assert (np.diff(rows[:, 0]) >= 0).all()
    assert np.array_equal(first[1:], second[:-1])
    assert len(neighbours((X, LABELS), sort=False)) == len(EXTREMES)


def test_data_is_not_changed():
    before = X.copy(), LABELS.copy(), FRAME.copy()
    for data in ((X, LABELS), FRAME):
        for adjacency in Adjacency:
            neighbours(data, adjacency)
    assert np.array_equal(before[0], X)
    assert np.array_equal(before[1], LABELS)
    assert before[2].equals(FRAME)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (range(5), "Neighbours of a range cannot be made"),
        ((X, LABELS[:3]), r"have \[3, 7\] rows"),
        (X[:1], "at least 2 units to have neighbours, got 1"),
    ],
)
def test_other_data_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        neighbours(data)


def test_units_that_are_dictionaries_become_extreme():
    data = [{"x": np.array([1.0, 2.0]), "y": 0}, {"x": np.array([3.0, 4.0]), "y": 1}]
    huge = neighbours(data)[0].second[0]
    assert huge["x"].tolist() == [1e22, 1e22]
    assert huge["y"] == 1
