"""Dates with public bounds: which texts are dates, what they encode to, and how they are declared."""

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from privet.tables import Categorical, Date, Numeric, TableError, TableSchema, parse_bounds, read_table

ADMITTED = Date("admitted", "2019-01-01", "2019-01-11")
SCHEMA = TableSchema((ADMITTED,))
NEW_YEAR, SIXTH, LAST = (datetime.date(2019, 1, day) for day in (1, 6, 11))
ENCODED = [-1, 0, 1, 1, -1]
CELLS = ["2019-01-01", "2019-01-06", "2019-01-11", "2024-12-31", "1999-01-01"]


def fails(words, call, *args, **kwargs):
    with pytest.raises(TableError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    for word in [words] if isinstance(words, str) else words:
        assert word in message, message


def encoded(cells, feature=ADMITTED):
    return TableSchema((feature,)).encode(pd.DataFrame({"admitted": cells}))[:, 0]


@pytest.mark.parametrize(
    "cells",
    [
        CELLS,
        ["1.1.2019", "06.01.2019", "11.01.2019", "31.12.2024", "1.1.1999"],
        ["2019-01-01 23:59", "2019-01-06T08:00:00", "2019-01-11 00:00:00.5", "2024-12-31T12:00Z", " 1999-01-01 "],
        ["2019-01-01T00:30:00+02:00", "6.1.2019 08:15", "2019-01-11 23:59:59-0800", *CELLS[3:]],
        [datetime.date.fromisoformat(cell) for cell in CELLS],
        [datetime.date.fromisoformat(CELLS[0]), pd.Timestamp("2019-01-06 17:00"), *CELLS[2:]],
        pd.to_datetime(CELLS),
        pd.to_datetime(CELLS).astype("datetime64[s]"),
        pd.to_datetime(CELLS).tz_localize("America/New_York"),
        pd.Categorical(CELLS),
        pd.array(CELLS, dtype="string[pyarrow]"),
        pd.array(pd.to_datetime(CELLS).date, dtype=pd.ArrowDtype(pa.date32())),
        pd.array(pd.to_datetime(CELLS), dtype=pd.ArrowDtype(pa.timestamp("us"))),
        pd.array(
            pd.to_datetime(CELLS).tz_localize("Asia/Tokyo"), dtype=pd.ArrowDtype(pa.timestamp("ns", "Asia/Tokyo"))
        ),
    ],
)
def test_dates_of_every_type_are_encoded_alike(cells):
    np.testing.assert_allclose(encoded(cells), ENCODED, atol=1e-14)


def test_a_parquet_file_keeps_its_dates(tmp_path):
    frame = pd.DataFrame({"admitted": pd.to_datetime(CELLS)})
    frame.to_parquet(tmp_path / "stamps.parquet")
    frame.assign(admitted=frame["admitted"].dt.date).to_parquet(tmp_path / "days.parquet")
    for name in ("stamps", "days"):
        found = SCHEMA.encode(read_table(tmp_path / f"{name}.parquet"))[:, 0]
        np.testing.assert_allclose(found, ENCODED, atol=1e-14)


def test_a_format_decides_how_texts_are_read():
    cells = ["01/06/2019", "1/11/2019"]
    assert encoded(cells, Date("admitted", NEW_YEAR, LAST, "%m/%d/%Y")) == pytest.approx([0, 1])
    june = Date("admitted", "2019-05-22", "2019-06-11", "%d/%m/%Y")
    assert encoded(cells, june) == pytest.approx([0, 1])
    assert encoded(["6 Jan 19"], Date("admitted", NEW_YEAR, LAST, "%d %b %y")) == pytest.approx([0])
    assert encoded([SIXTH], june) == pytest.approx([-1])  # a date needs no format


@pytest.mark.parametrize(
    "cell",
    ["01/02/2019", "2019/01/02", "20190102", "2019-13-01", "2019-02-30", "01.02.19", "soon", "43466", "2019-1-2"],
)
def test_a_text_that_can_be_mistaken_is_refused_with_its_row_and_the_remedy(cell):
    words = ["'admitted', row 2", repr(cell), 'format = "%d/%m/%Y"']
    fails(words, encoded, ["2019-01-01", cell])


def test_a_number_is_not_a_date():
    fails(["row 1", "20190101 is not a date"], encoded, [20190101, 20190102])
    fails(
        ["row 2", "'2019-01-01' is not a date in the declared format %d/%m/%Y"],
        encoded,
        ["01/01/2019", "2019-01-01"],
        Date("admitted", NEW_YEAR, LAST, "%d/%m/%Y"),
    )


@pytest.mark.parametrize("bad", [None, "", "NA", pd.NaT])
def test_a_missing_date_is_refused(bad):
    fails(["1 missing value", "row 2"], encoded, ["2019-01-01", bad])
    fails(
        ["1 missing value", "row 2"],
        encoded,
        pd.Series([pd.Timestamp("2019-01-01"), pd.to_datetime(bad or None)]) if bad != "NA" else ["2019-01-01", bad],
    )


def test_clipped_dates_are_counted():
    assert SCHEMA.n_clipped(pd.DataFrame({"admitted": [*CELLS, "2019-01-11 23:00"]})) == {"admitted": 2}


def test_one_row_never_changes_another():
    rng = np.random.default_rng(0)
    cells = [str(NEW_YEAR + datetime.timedelta(days=int(day))) for day in rng.integers(-5, 15, 20)]
    alone = np.concatenate([encoded([cell]) for cell in cells])
    np.testing.assert_array_equal(encoded(cells), alone)


# --------------------------------------------------------------------------------------------------------- declaration


def test_dates_are_declared_in_toml_as_dates_or_texts(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(
        "[dates]\nadmitted = [2019-01-01, 2019-01-11]\nleft = ['2019-01-01', 2019-01-11T00:00:00]\n"
        'born = { bounds = [1900-01-01, 2020-12-31], format = "%d/%m/%Y" }\n'
    )
    born = Date("born", datetime.date(1900, 1, 1), datetime.date(2020, 12, 31), format="%d/%m/%Y")
    assert TableSchema.from_toml(path) == TableSchema((ADMITTED, Date("left", NEW_YEAR, LAST), born))


def test_dates_are_declared_by_bounds_that_are_dates():
    assert parse_bounds("admitted=2019-01-01:2019-01-11") == ADMITTED
    assert parse_bounds(" a = 1.1.2019 : 11.1.2019 : %d/%m/%Y %H:%M ") == Date("a", NEW_YEAR, LAST, "%d/%m/%Y %H:%M")
    assert parse_bounds("admitted=2019:2020") == Numeric("admitted", 2019, 2020)
    fails("age=0:120", parse_bounds, "admitted=2019-01-01:today")


def test_a_schema_with_dates_is_restored_from_json():
    schema = TableSchema((ADMITTED, Date("left", NEW_YEAR, LAST, "%d/%m/%Y", missing="2019-01-02"), Numeric("x", 0, 1)))
    saved = json.loads(json.dumps(schema.to_dict()))
    assert saved["features"][0] == {"kind": "date", "name": "admitted", "low": "2019-01-01", "high": "2019-01-11"}
    assert TableSchema.from_dict(saved) == schema
    assert hash(TableSchema.from_dict(saved)) == hash(schema)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dates = 3", "[dates]"),
        ("[dates]\na = 2019-01-01", ["'a'", "[low, high]"]),
        ("[dates]\na = [2019-01-01]", ["'a'", "[low, high]"]),
        ("[dates]\na = [2019, 2020]", ["'a'", "low bound 2019 is not a date", "2019-01-31"]),
        ("[dates]\na = [2019-01-01, '31/12/2019']", ["'a'", "high bound '31/12/2019' is not a date"]),
        ("[dates]\na = [2020-01-01, 2020-01-01]", ["'a'", "must be before"]),
        ('[dates]\na = { format = "%Y" }', ["'a'", "bounds = [2019-01-01"]),
        ("[dates]\na = { bounds = [2019-01-01, 2020-01-01], from = 3 }", ["'a'", "does not describe dates"]),
        ("[dates]\na = { bounds = [2019-01-01, 2020-01-01], format = 3 }", ["'a'", "format 3"]),
        ("[dates]\na = { bounds = [2019-01-01, 2020-01-01], format = '%d/%m' }", ["'a'", "does not determine a date"]),
        ("[dates]\na = { bounds = [2019-01-01, 2020-01-01], format = '%Y-%m' }", ["'a'", "does not determine a date"]),
        ("[dates]\na = { bounds = [1919-01-01, 2020-01-01], format = '%d/%m/%y' }", ["'a'", "1969 to 2068", "%Y"]),
        ("[dates]\na = [2019-01-01, 2020-01-01]\n[numeric]\na = [0, 1]", ["'a'", "more than once"]),
        ('target = "a"\n[dates]\na = [2019-01-01, 2020-01-01]', ["'a'", "also declared as a feature"]),
    ],
)
def test_bad_declarations_are_refused_with_their_cause(tmp_path, text, words):
    (tmp_path / "schema.toml").write_text(text)
    fails(words, TableSchema.from_toml, tmp_path / "schema.toml")


def test_a_date_cannot_be_predicted():
    options = {"levels": ["sex=f,m"], "bounds": ["admitted=2019-01-01:2020-01-01"], "target": "admitted"}
    fails("only numbers and categories can be predicted", TableSchema.from_options, **options)


def test_the_norm_of_rows_with_dates_is_at_most_one():
    schema = TableSchema((ADMITTED, Date("left", NEW_YEAR, SIXTH), Categorical("sex", ("f", "m"))))
    frame = pd.DataFrame({"admitted": ["1800-01-01", "2500-01-01"], "left": ["0001-01-01", "9999-12-31"], "sex": "f"})
    norms = np.linalg.norm(schema.encode(frame), axis=1)
    assert (norms <= 1).all()
    assert norms == pytest.approx([1, 1])
