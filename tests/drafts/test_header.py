"""The header of a table: the same names as those with which the table is read."""

import pytest

from privet.drafts.header import header_of
from privet.tables import TableError, read_table


@pytest.mark.parametrize(
    "content",
    [
        "id;größe\n1;2\n".encode("utf-16"),
        "id;größe\r1;2\r".encode("utf-8-sig"),
        "\n\nid;größe\n1;2\n".encode("latin-1"),
        b'"id"; "gr\xc3\xb6\xc3\x9fe" \n1;2\n',
    ],
    ids=["UTF-16", "CR", "blank lines", "quotes"],
)
def test_the_names_are_those_of_the_table(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert header_of(path) == list(read_table(path).columns) == ["id", "größe"]


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("t.csv", b",,\n1,2,3\n", "has no header"),
        ("t.csv", b"", "empty"),
        ("t.csv", b"a,a\n", "occurs more than once"),
        ("t.xlsx", b"a,b\n", "ending"),
    ],
)
def test_a_table_without_a_usable_header_is_refused(tmp_path, name, content, cause):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=cause):
        header_of(tmp_path / name)
