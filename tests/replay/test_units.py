"""Units of neighbouring datasets are matched by their content, wherever they are."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from privet.replay import Units
from privet.replay.units import _aligned, _arrays

ROWS = np.arange(12.0).reshape(6, 2)
LABELS = np.array([0, 1, 0, 1, 0, 1])


def replaced(place):
    rows = ROWS.copy()
    rows[place] = -1.0
    return rows


def forms(rows, labels=LABELS):
    """Return the same data in all forms that can be matched."""
    yield rows
    yield rows, labels[: len(rows)]
    yield pd.DataFrame(rows)
    yield sparse.csr_array(rows), labels[: len(rows)]
    yield [(row, int(label)) for row, label in zip(rows, labels, strict=False)]
    yield {f"client {place}": row for place, row in enumerate(rows)}


@pytest.mark.parametrize("place", range(6))
def test_a_replaced_unit_is_found(place):
    for first, second in zip(forms(ROWS), forms(replaced(place)), strict=True):
        units = Units.of(first, second)
        assert (units.mine, units.other, units.n) == (place, place, 6)
        assert units.counterpart.tolist() == list(range(6))


@pytest.mark.parametrize("place", range(6))
def test_a_removed_or_added_unit_is_found(place):
    fewer = np.delete(ROWS, place, axis=0)
    left = [0, 1, 2, 3, 4, 5]
    left.remove(place)
    for first, second in ((ROWS, fewer), (pd.DataFrame(ROWS), pd.DataFrame(fewer))):
        units = Units.of(first, second)
        assert (units.mine, units.other) == (place, None)
        assert units.place[left].tolist() == list(range(5))
        back = Units.of(second, first)
        assert (back.mine, back.other) == (None, place)
        assert back.place.tolist() == left


def test_units_that_moved_are_matched():
    first, second = ROWS, np.vstack([ROWS[1:4], [[9.5, 9.5]], ROWS[4:]])
    units = Units.of(first, second)
    assert (units.mine, units.other) == (0, 3)
    assert units.place.tolist() == [-1, 0, 1, 2, 4, 5]


def test_equal_units_keep_their_places():
    rows = np.zeros((5, 1))
    changed = rows.copy()
    changed[3] = 1.0
    units = Units.of(rows, changed)
    assert units.place.tolist() == [0, 1, 2, -1, 4]


def test_the_fast_comparison_of_arrays_agrees_with_the_general_one():
    generator = np.random.default_rng(0)
    for _ in range(200):
        rows = generator.integers(0, 3, (generator.integers(2, 6), 1)).astype(float)
        changed = rows.copy()
        place = int(generator.integers(len(rows)))
        if generator.random() < 0.5:
            changed[place] = generator.integers(0, 3)
        else:
            changed = np.delete(rows, place, axis=0)
        pair = (rows, changed) if generator.random() < 0.5 else (changed, rows)
        fast, general = _aligned(*map(_arrays, pair)), Units.of(*(list(map(tuple, each.tolist())) for each in pair))
        assert fast is not None
        assert (fast.mine is None) == (general.mine is None)
        assert (fast.other is None) == (general.other is None)
        kept = np.flatnonzero(fast.place >= 0)
        assert np.array_equal(pair[0][kept], pair[1][fast.place[kept]])


def test_more_than_one_difference_is_refused():
    changed = replaced(1)
    changed[2] = -2.0
    for first, second in zip(forms(ROWS), forms(changed), strict=True):
        with pytest.raises(ValueError, match="2 units of the first are not in the second, and 2"):
            Units.of(first, second)
    with pytest.raises(ValueError, match="They must agree"):
        Units.of((ROWS, LABELS[:3]), (ROWS, LABELS[:3]))
