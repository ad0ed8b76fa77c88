"""CSV files that are not like their neighbours: other headers, open quotes, other encodings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from blizzard_py.connections.protocol import WindowSplit
from blizzard_py.formats.csv.decode import table_names
from blizzard_py.formats.protocol import BadRecord
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Window
from tests.support.lake_reading import read_all
from tests.support.text_lakes import AT, ID, at, field, ids, lines_of, poller, put

V = field("v", "string")


def read(folder: Path, *fields: FieldSpec) -> tuple[list[tuple[Any, ...]], list[bytes]]:
    """All rows of the files, and the lines for what is none."""
    source = poller("csv", folder, columns=(), fields=fields)
    everything = Window({}, {}, {}, inclusive=False, nulls_first=True)
    rows: list[tuple[Any, ...]] = []
    lines: list[bytes] = []
    for task in source.connect().tasks(everything, WindowSplit()):
        for found in read_all(source.reader, source.access, task, source.fields):
            if isinstance(found, BadRecord):
                lines.append(found.head)
            else:
                assert isinstance(found, pa.RecordBatch)
                rows += [tuple(row.values()) for row in found.to_pylist()]
    return rows, lines


@pytest.mark.promise("G-004")
@pytest.mark.parametrize(
    ("header", "delimiter"),
    [("ID,AT,V", ","), (" id, at, v ", ","), ("v,At,\tId", ","), ('"ID ";" at";"V"', ";")],
)
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_names_match_but_for_case_and_blanks(
    tmp_path: Path, header: str, delimiter: str, bom: str
) -> None:
    form = {"type": "csv", "delimiter": delimiter}
    source = poller("csv", tmp_path, fields=(ID, AT, V), form=form)
    names = [name.strip(' \t"').lower() for name in header.split(delimiter)]
    rows = {"id": "7", "at": at(1), "v": "x"}
    line = delimiter.join(rows[name] for name in names)
    (tmp_path / "a.csv").write_text(f"{bom}{header}\n{line}\n", encoding="utf-8")
    assert [(row["id"], row["v"]) for row in source.poll()] == [("7", "x")]


@pytest.mark.parametrize(
    ("header", "own"),
    [("id,ID", "id,ID"), ("ID,Id,x", "ID,Id,x"), ("ID,x", "id,x"), ("X,id", "X,id")],
)
def test_names_that_could_be_two_columns_stay(header: str, own: str) -> None:
    assert table_names(header.split(","), ["id", "x", "X"]) == tuple(own.split(","))


@pytest.mark.promise("G-004")
@pytest.mark.parametrize("form", ["csv", "json"])
def test_bound_warns_about_files_without_watermark_values(tmp_path: Path, form: str) -> None:
    source = poller(form, tmp_path)
    put(form, tmp_path / "a", [{"id": 1, "at": at(1)}])
    assert ids(source.poll()) == [1]
    put(form, tmp_path / "b", [{"id": 2, "other": at(2)}])
    put(form, tmp_path / "c", [{"id": 3, "at": at(3)}, {"id": 4, "at": None}])
    connection = source.connect()
    empty, some = connection.bound("rows", 0).warnings
    assert "1 file without any value of at, such as b." in empty
    assert "the first window" in empty
    assert "1 file with rows that have no value of at, such as c." in some
    assert ids(source.poll()) == [3]


@pytest.mark.promise("G-004")
def test_a_file_without_the_watermark_is_one_bad_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"id;at\n1;{at(1)}\n2;{at(2)}\n")
    (tmp_path / "b.csv").write_text(f"id,at\n3,{at(3)}\n")
    [line] = lines_of(poller("csv", tmp_path))
    assert line.startswith(b"csv row, no row is read: the file has no column at; ")
    assert line.endswith(b"the header is: id;at")
    (tmp_path / "a.csv").write_text(f"id,at\n1,{at(1)}\n")
    assert ids(poller("csv", tmp_path).poll()) == [1, 3]


@pytest.mark.promise("G-004")
@pytest.mark.parametrize(
    ("data", "good", "bad"),
    [
        ('1,"a\n2,b\n3,c\n', [("2", "b"), ("3", "c")], ['1,"a']),
        ('1,a\n2,"b\n3,c', [("1", "a"), ("3", "c")], ['2,"b']),
        ('1,a\n"2,b\n', [("1", "a")], ['"2,b']),
        ('1,a\n2,"', [("1", "a")], ['2,"']),
        # None of these is open.
        ('1,5" disk\n2,b\n', [("1", '5" disk'), ("2", "b")], []),
        ('1,5" disk', [("1", '5" disk')], []),
        ('1,"a\n""b"\n2,c\n', [("1", 'a\n"b'), ("2", "c")], []),
        ('1,"a"b\n2,"c""\n"\n', [("1", "ab"), ("2", 'c"\n')], []),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_open_quote_costs_its_line_alone(
    tmp_path: Path, data: str, good: list[tuple[str, str]], bad: list[str], newline: str
) -> None:
    (tmp_path / "a.csv").write_bytes(f"id,v\n{data}".replace("\n", newline).encode())
    rows, lines = read(tmp_path, ID, V)
    assert rows == [(name, value.replace("\n", newline)) for name, value in good]
    assert [line.decode() for line in lines] == bad


@pytest.mark.parametrize("data", ['5" x\n3\n', '5" x\n3', '"2"\n5" x'])
def test_a_stray_quote_in_one_column_adds_no_row(tmp_path: Path, data: str) -> None:
    (tmp_path / "a.csv").write_text(f"v\n{data}")
    rows, lines = read(tmp_path, V)
    assert lines == []
    assert [value for (value,) in rows] == data.replace('"2"', "2").splitlines()


def test_no_utf8_in_a_ragged_row_is_one_bad_row(tmp_path: Path) -> None:
    text = b"id,v\n1,\xc3\xa9\ncaf\xe9,2,3\n2,\xff\n3,\xe2\x82\xac\n4,\xc3"
    (tmp_path / "a.csv").write_bytes(text)
    rows, bad = read(tmp_path, ID, V)
    assert sorted(bad) == [
        b"2,\xff",
        b"4,\xc3",
        b"caf\xe9,2,3",
    ]
    assert rows == [("1", "é"), ("3", "€")]
