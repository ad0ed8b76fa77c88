"""Parquet and ORC files through whole tasks, and what they refuse."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import random
import signal
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pydantic import TypeAdapter, ValidationError

from blizzard_core.limits import EXPANSION
from blizzard_core.settings.formats import FormatSettings, OrcOptions, ParquetOptions
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_py.commands.starter.sample import sample
from blizzard_py.formats.columnar import rows as columnar_rows
from blizzard_py.formats.columnar.batches import FileColumns
from blizzard_py.formats.columnar.calendars import Calendar, Mode, calendars_of, in_gregorian
from blizzard_py.formats.conform import Conformer
from blizzard_py.formats.names import format_of
from blizzard_py.formats.nested_arrays import plain_type
from blizzard_py.job import FieldSpec, JobFile, PartitionRule, RowSchema, UnexpectedField
from blizzard_py.kernels.report import TaskReport
from blizzard_py.lines.framing import Piece
from blizzard_py.sources.files.file_names import accepts
from blizzard_py.sources.files.lines import read_records
from blizzard_py.sources.files.sampling import first_records
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.thrift_tree import Tree, edited

KINDS = ("parquet", "orc")
FIELDS = specs(id="int64", note="string")


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc, arg-type]  # year, month, day …


def nested(name: str, kind: Any, **children: Any) -> FieldSpec:
    return FieldSpec(name, kind, nullable=True, children=specs(**children))


def decimal(precision: int, scale: int) -> FieldSpec:
    return FieldSpec("c", "decimal", nullable=True, precision=precision, scale=scale)


def options(kind: str, **given: Any) -> FormatSettings:
    return TypeAdapter[FormatSettings](FormatSettings).validate_python({"type": kind, **given})


def written(kind: str, table: pa.Table, **given: Any) -> bytes:
    target = io.BytesIO()
    (pq.write_table if kind == "parquet" else orc.write_table)(table, target, **given)
    return target.getvalue()


def harness(root: Path, kind: str, form: FormatSettings | None = None, **given: Any) -> Any:
    given = {"fields": FIELDS, "metadata": ("_source_line",), **given}
    return IngestJobHarness(root, format=form or options(kind), **given)


def reasons(report: TaskReport) -> dict[str, str]:
    return {file.path: file.error for file in report.files if file.outcome == "quarantined"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_rows_and_letters_have_their_numbers(tmp_path: Path, kind: str, attempt: int) -> None:
    world = harness(tmp_path, kind, fields=(*specs(id="int32"), *specs(note="string")))
    ids = [1, 1 << 40, None, 4]
    world.put(f"a.{kind}", written(kind, pa.table({"note": list("abcd"), "id": ids, "x": ids})))
    world.put(f"b.{kind}", written(kind, pa.table({"id": [5]})))
    report = world.run_task(attempt=attempt)
    rows = [(row["_source_line"], row["id"], row["note"]) for row in world.rows(report)]
    assert rows == [(1, 1, "a"), (3, None, "c"), (4, 4, "d"), (1, 5, None)]
    [letter] = world.letters(report)
    assert (letter["line"], letter["offset"], letter["stage"]) == (2, -1, "parse")
    assert json.loads(letter["raw"]) == {"note": "b", "id": 1 << 40}
    assert {field.name for field in report.unexpected} == {"x"}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_count_over_row_groups_and_batches(tmp_path: Path, kind: str) -> None:
    count = 200_000
    table = pa.table({"id": range(count), "note": [f"text {n}" for n in range(count)]})
    cut = {"row_group_size": 30_000} if kind == "parquet" else {"stripe_size": 200_000}
    world = harness(tmp_path, kind)
    world.put(f"a.{kind}", written(kind, table, **cut))
    report = world.run_task(threads=3)
    assert [row["_source_line"] - 1 for row in world.rows(report)] == list(range(count))
    assert world.ids(report) == list(range(count))


def test_only_declared_columns_are_read(tmp_path: Path) -> None:
    noise = pa.array([random.Random(n).randbytes(1000) for n in range(8000)])
    table = pa.table({"id": range(8000), "noise": noise})
    world = harness(tmp_path, "parquet", fields=specs(id="int64"))
    data = written("parquet", table)
    world.put("a.parquet", data)
    report = world.run_task()
    assert len(world.rows(report)) == 8000
    assert by_path(report)["a.parquet"].bytes_read < len(data) // 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_whose_columns_cannot_fit_is_quarantined_alone(tmp_path: Path, kind: str) -> None:
    fields = (FieldSpec("id", "int64", nullable=False), *specs(note="string", at="timestamp"))
    world = harness(tmp_path, kind, fields=fields)
    files = {
        "a": pa.table({"note": ["x"]}),
        "b": pa.table({"other": [1]}),
        "c": pa.table({"id": [1], "at": [True]}),
        "good": pa.table({"id": [7]}),
    }
    for name, table in files.items():
        world.put(f"{name}.{kind}", written(kind, table))
    report = world.run_task()
    assert world.ids(report) == [7]
    found = reasons(report)
    assert "column 'id': is required" in found[f"a.{kind}"]
    assert "column 'id': is required" in found[f"b.{kind}"]
    assert "column 'at' is bool, which cannot be timestamp" in found[f"c.{kind}"]


def test_a_footer_that_pyarrow_cannot_write_is_read(tmp_path: Path) -> None:
    """It ends the process that tries, so no footer is handed on in pyarrow's form."""
    world = harness(tmp_path, "parquet")
    data = written("parquet", pa.table({"id": [1, 2], "note": ["a", "b"]}))
    world.put("a.parquet", edited(data, lambda tree: tree.update({8: (12, {})})))
    world.put("b.parquet", written("parquet", pa.table({"id": [3], "note": ["c"]})))
    assert world.ids(world.run_task()) == [1, 2, 3]


def test_a_file_without_a_known_column_names_those_it_has(tmp_path: Path) -> None:
    world = harness(tmp_path, "parquet")
    world.put("a.parquet", written("parquet", pa.table({"ID": [1], "Note": ["x"]})))
    [reason] = reasons(world.run_task()).values()
    assert reason == "the file's schema has none of the columns, but ID, Note"


def test_two_columns_of_one_name_are_refused_if_they_are_used(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["x", "x", "id"])
    world = harness(tmp_path, "parquet", fields=specs(id="int64"))
    world.put("a.parquet", written("parquet", twice))
    assert world.ids(world.run_task()) == [3]
    captures = harness(tmp_path, "parquet", fields=specs(id="int64"), unexpected_fields="capture")
    assert reasons(captures.run_task()) == {
        "a.parquet": "has two columns 'x'; write the file again with one"
    }


@pytest.mark.parametrize("kind", KINDS)
def test_columns_without_a_field_follow_the_schema(tmp_path: Path, kind: str) -> None:
    table = pa.table(
        {
            "id": [1, 2],
            "s": pa.array([{"a": 1, "b": [2]}, None]),
            "day": [dt.date(2024, 5, 6), None],
        }
    )
    given: dict[str, Any] = {"fields": specs(id="int64")}
    captures = harness(tmp_path, kind, unexpected_fields="capture", **given)
    captures.put(f"a.{kind}", written(kind, table))
    rescued = [row["_rescued"] for row in captures.rows(captures.run_task())]
    assert [json.loads(text) for text in rescued] == [
        {"s": {"a": 1, "b": [2]}, "day": "2024-05-06"},
        {"s": None, "day": None},
    ]
    fails = harness(tmp_path, kind, unexpected_fields="fail", **given)
    assert reasons(fails.run_task()) == {
        f"a.{kind}": "unexpected field 's', which the schema lacks"
    }
    evolves = harness(tmp_path, kind, evolves=True, **given)
    found = {field.name: field for field in evolves.run_task().unexpected}
    assert found == {
        "s": UnexpectedField("s", f"a.{kind}", types=(STRUCT,)),
        "day": UnexpectedField("day", f"a.{kind}", types=specs(day="date")),
    }


STRUCT = FieldSpec(
    "s",
    "struct",
    nullable=True,
    children=(*specs(a="int64"), nested("b", "list", element="int64")),
)
MAP = pa.map_(pa.string(), pa.int32())
TYPES: list[tuple[pa.Array, FieldSpec, Any]] = [
    (pa.array(["x"], pa.large_string()), *specs(c="string"), "x"),
    (pa.array(["x"], pa.string_view()), *specs(c="string"), "x"),
    (pa.array(["x"]).dictionary_encode(), *specs(c="string"), "x"),
    (pa.array([b"x"], pa.binary(1)), *specs(c="binary"), b"x"),
    (pa.array([1.5], pa.float16()), *specs(c="float32"), 1.5),
    (pa.array([200], pa.uint8()), *specs(c="int32"), 200),
    (pa.array([2**64 - 1], pa.uint64()), decimal(20, 0), Decimal(2**64 - 1)),
    (pa.array([Decimal("1.50")]), decimal(9, 2), Decimal("1.50")),
    (pa.array([1], pa.int64()), *specs(c="string"), "1"),
    (pa.array(["2024-05-06T07:08:09Z"]), *specs(c="timestamp"), utc(2024, 5, 6, 7, 8, 9)),
    (pa.array([5], pa.timestamp("ms")), *specs(c="timestamp"), utc(1970, 1, 1, 0, 0, 0, 5000)),
    (pa.array([5], pa.timestamp("s", "+01:00")), *specs(c="timestamp"), utc(1970, 1, 1, 0, 0, 5)),
    (pa.nulls(1), *specs(c="int64"), None),
    (pa.array([[("k", 1)]], MAP), nested("c", "map", value="int64"), [("k", 1)]),
    (pa.array([{"a": 1, "z": 9}]), nested("c", "struct", a="int64", b="date"), {"a": 1, "b": None}),
    (pa.array([{"a": [1]}]), *specs(c="json"), '{"a":[1]}'),
    (pa.array([b"0" * 16], pa.uuid()), *specs(c="string"), "30303030-3030-3030-3030-303030303030"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("array", "spec", "expected"), TYPES, ids=lambda each: str(getattr(each, "type", ""))
)
def test_types_become_the_declared_ones(
    tmp_path: Path, array: pa.Array, spec: FieldSpec, expected: Any
) -> None:
    world = harness(tmp_path, "parquet", fields=(spec,))
    world.put("a.parquet", written("parquet", pa.table({"c": array})))
    report = world.run_task()
    assert [row["c"] for row in world.rows(report)] == [expected], report.files


@pytest.mark.parametrize("kind", KINDS)
def test_nanoseconds_are_bad_or_cut(tmp_path: Path, kind: str) -> None:
    nanos = pa.array([-1, 1000, 1001], pa.timestamp("ns"))
    structs = pa.StructArray.from_arrays([nanos], ["t"])
    data = written(
        kind,
        pa.table({"t": nanos, "n": structs}),
        **({"version": "2.6"} if kind == "parquet" else {}),
    )
    fields = (
        *specs(t="timestamp"),
        nested("n", "struct", t="timestamp"),
    )
    strict = harness(tmp_path, kind, fields=fields)
    strict.put(f"a.{kind}", data)
    report = strict.run_task()
    assert [row["_source_line"] for row in strict.rows(report)] == [2]
    assert [letter["line"] for letter in strict.letters(report)] == [1, 3]
    cuts = harness(tmp_path, kind, options(kind, nanoseconds="cut"), fields=fields)
    times = [(row["t"], row["n"]["t"]) for row in cuts.rows(cuts.run_task())]
    epoch = utc(1970, 1, 1)
    micros = [dt.timedelta(microseconds=each) for each in (-1, 1, 1)]
    assert times == [(epoch + each, epoch + each) for each in micros]


def test_nanoseconds_of_any_zone_are_cut(tmp_path: Path) -> None:
    hour = 1_730_615_400_000_000_000  # in the hour that New York had twice
    zones = ("America/New_York", "Mars/Phobos", None)
    columns = [pa.array([hour + 1500, -(2**63) + 1, None], pa.timestamp("ns", z)) for z in zones]
    table = pa.table(dict(zip("abc", columns, strict=True)))
    fields = specs(a="timestamp", b="timestamp", c="timestamp")
    world = harness(tmp_path, "parquet", options("parquet", nanoseconds="cut"), fields=fields)
    world.put("a.parquet", written("parquet", table, version="2.6"))
    expected = [utc(2024, 11, 3, 6, 30, 0, 1), utc(1677, 9, 21, 0, 12, 43, 145224), None]
    assert [[row[name] for row in world.rows(world.run_task())] for name in "abc"] == [expected] * 3


@pytest.mark.parametrize("error", [pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError])
def test_an_error_of_values_costs_only_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def refuse(*_: Any) -> Any:
        raise error("such a value")

    monkeypatch.setattr(Conformer, "conform", refuse)
    world = harness(tmp_path, "parquet")
    world.put("a.parquet", written("parquet", pa.table({"id": [1]})))
    assert reasons(world.run_task()) == {"a.parquet": "its values cannot be read: such a value"}


@pytest.mark.parametrize("attempt", [0, 2])
@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
@pytest.mark.parametrize("item", ["int64", "string", "struct", "list"])
def test_lists_of_nulls_are_lists_of_any_type(
    tmp_path: Path, attempt: int, make: Any, item: Any
) -> None:
    lists = [[None], [None, None], None, [None]]
    child = nested("item", item, a="int64") if item in {"struct", "list"} else specs(item=item)[0]
    world = harness(tmp_path, "parquet", fields=(FieldSpec("c", "list", True, children=(child,)),))
    table = pa.table({"c": pa.array(lists, make(pa.null()))})
    world.put("a.parquet", written("parquet", table))
    assert [row["c"] for row in world.rows(world.run_task(attempt=attempt))] == lists


@pytest.mark.parametrize("make", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 1)])
def test_fields_that_structs_in_lists_lack_are_null(tmp_path: Path, make: Any) -> None:
    item = nested("item", "struct", a="int64", b="int64")
    world = harness(tmp_path, "parquet", fields=(FieldSpec("c", "list", True, children=(item,)),))
    lists = pa.array([[{"a": 1}], [{"a": 2}]], make(pa.struct([("a", pa.int64())])))
    world.put("a.parquet", written("parquet", pa.table({"c": lists})))
    rows = world.rows(world.run_task())
    assert [row["c"] for row in rows] == [[{"a": 1, "b": None}], [{"a": 2, "b": None}]]


def test_two_fields_of_one_name_in_a_struct_are_refused(tmp_path: Path) -> None:
    world = harness(tmp_path, "parquet", fields=(nested("c", "struct", a="int64"),))
    structs = pa.StructArray.from_arrays([pa.array([1]), pa.array([10])], ["a", "a"])
    world.put("a.parquet", written("parquet", pa.table({"c": structs})))
    assert reasons(world.run_task()) == {
        "a.parquet": "column 'c' has two fields 'a'; write the file again with one"
    }


def test_letters_have_the_dates_that_their_rows_would_have(tmp_path: Path) -> None:
    days = pa.array([-171_000], pa.int32()).cast(pa.date32())
    table = pa.table({"id": [1 << 40], "d": days, "l": [[days[0]]], "t": days})
    table = table.set_column(
        3, "t", table["t"].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    )
    table = table.replace_schema_metadata({"org.apache.spark.version": "2.4.5"})
    types = {"d": "date", "t": "timestamp"}
    fields = (*specs(id="int64", **types), FieldSpec("l", "list", True, children=specs(i="date")))
    row = _row_of_letter(tmp_path, "parquet", table, (*specs(id="int32"), *fields[1:]), fields)
    day = (1501, 10, 17)
    assert (row["d"], row["l"], row["t"]) == (dt.date(*day), [dt.date(*day)], utc(*day))


def test_the_letter_of_a_date_in_doubt_takes_calendars_of_today(tmp_path: Path) -> None:
    days = pa.array([-171_000], pa.int32()).cast(pa.date32())
    fields = specs(d="date", s="string")
    world = harness(tmp_path, "parquet", fields=fields)
    world.put("a.parquet", edited(written("parquet", pa.table({"d": days, "s": days})), _by_hive))
    letters = world.dead_letters(world.run_task())
    assert json.loads(letters[0].raw) == {"d": "1501-10-27", "s": "1501-10-27"}
    for mode, day in ("error", None), ("corrected", 27), ("legacy", 17):
        form = format_of(options("parquet", datetime_rebase_mode=mode))
        again = harness(tmp_path / mode, "parquet", form.replay_settings(), fields=fields)
        [content] = form.replay_contents(letters)
        again.put("a.ndjson", content)
        report = again.run_task()
        assert [row["d"].day for row in again.rows(report)] == ([] if day is None else [day])
        errors = [letter.error for letter in again.dead_letters(report)]
        assert errors == ([letters[0].error] if day is None else [])


def test_int96_times_are_those_that_were_written(tmp_path: Path) -> None:
    times = [utc(1000, 1, 1), utc(2500, 1, 1), utc(2024, 5, 6, 7, 8, 9, 10)]
    table = pa.table({"id": [1, 2, 3], "t": pa.array(times, pa.timestamp("us", "UTC"))})
    world = harness(tmp_path, "parquet", fields=specs(id="int64", t="timestamp"))
    world.put("a.parquet", written("parquet", table, use_deprecated_int96_timestamps=True))
    rows = world.rows(world.run_task())
    assert [row["t"] for row in rows] == times


def test_int96_times_keep_their_nanoseconds_or_are_bad(tmp_path: Path) -> None:
    def data(*nanos: int) -> bytes:
        table = pa.table({"t": pa.array(nanos, pa.timestamp("ns"))})
        return written("parquet", table, use_deprecated_int96_timestamps=True)

    world = harness(tmp_path, "parquet", fields=specs(t="timestamp"))
    world.put("a.parquet", data(1000, 1001, -999))
    report = world.run_task()
    assert [row["_source_line"] for row in world.rows(report)] == [1]
    assert [json.loads(letter["raw"])["t"][-11:] for letter in world.letters(report)] == [
        "0.000001001", "9.999999001",
    ]  # fmt: skip


JULIAN_FIRST, DAY = -719_164, 86_400_000_000  # 1 January of year 1 in the Julian calendar


def _julian_dates(last: int) -> list[tuple[int, tuple[int, int, int]]]:
    """Return days since 1970 and their Julian dates, counted one by one from the year 1."""
    found, day = [], JULIAN_FIRST
    for year in range(1, 1583):
        months = [31, 29 if year % 4 == 0 else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        for month, length in enumerate(months, 1):
            for of_month in range(1, length + 1):
                if day <= last:
                    found.append((day, (year, month, of_month)))
                day += 1
    return found


def test_julian_dates_stay_the_dates_that_they_were() -> None:
    known = _julian_dates(-141_428)
    assert known[-1] == (-141_428, (1582, 10, 4))
    days = pa.array([day for day, _ in known], pa.int32()).view(pa.date32())
    moved = in_gregorian(days, "julian").to_pylist()
    for date, (_, (year, month, day)) in zip(moved, known, strict=True):
        leap = (month, day) == (2, 29) and year % 100 == 0 and year % 400 != 0
        assert date == (dt.date(year, 3, 1) if leap else dt.date(year, month, day))
    assert all(one <= other for one, other in pairwise(moved))


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_julian_times_keep_their_time_of_day(unit: str) -> None:
    scale = {"s": 1, "ms": 1000, "us": 1_000_000}[unit]
    values = [(-141_428 * 86_400 + 3661) * scale, -141_427 * 86_400 * scale, None, 0]
    found = in_gregorian(pa.array(values, pa.timestamp(unit, "UTC")), "julian").to_pylist()
    assert found == [
        utc(1582, 10, 4, 1, 1, 1), utc(1582, 10, 15), None, utc(1970, 1, 1),
    ]  # fmt: skip


def _spark(version: str, *legacy: str) -> dict[bytes, bytes]:
    keys = {f"org.apache.spark.legacy{name}".encode(): b"" for name in legacy}
    return {b"org.apache.spark.version": version.encode(), **keys}


@pytest.mark.parametrize(
    ("metadata", "writer", "mode", "dates", "int96"),
    [
        ({}, "parquet-cpp-arrow version 26.0.1", "error", "gregorian", "gregorian"),
        ({}, "parquet-mr version 1.10.1", "error", "unknown", "unknown"),
        ({}, "parquet-mr version 1.10.1", "legacy", "julian", "julian"),
        ({}, "parquet-mr version 1.10.1", "corrected", "gregorian", "gregorian"),
        (_spark("2.4.8"), "parquet-mr", "corrected", "julian", "julian"),
        (_spark("3.0.3"), "parquet-mr", "error", "gregorian", "julian"),
        (_spark("3.5.0"), "parquet-mr", "legacy", "gregorian", "gregorian"),
        (_spark("3.5.0", "DateTime"), "parquet-mr", "error", "julian", "gregorian"),
        (_spark("4.0.0", "INT96"), "parquet-mr", "error", "gregorian", "julian"),
    ],
)
def test_a_footer_tells_the_calendars(
    metadata: dict[bytes, bytes], writer: str, mode: Mode, dates: Calendar, int96: Calendar
) -> None:
    assert calendars_of(metadata, writer, mode) == (dates, int96)


@pytest.mark.parametrize("int96", [True, False])
@pytest.mark.parametrize("key", ["INT96", "DateTime"])
def test_each_kind_of_column_has_its_calendar(tmp_path: Path, key: str, int96: bool) -> None:
    """The day is 1500-03-01 in the Julian calendar, 1500-03-11 in the Gregorian one."""
    day, days = -171_595, 86_400_000_000
    times = pa.StructArray.from_arrays(
        [
            pa.array([day * days], pa.timestamp("us", "UTC")),
            pa.array([day * days], pa.timestamp("us")),
        ],
        ["t", "local"],
    )
    table = pa.table({"d": pa.array([day], pa.int32()).view(pa.date32()), "s": times})
    if int96:
        table = table.append_column("i", times.field(0))
    data = written(
        "parquet",
        table.replace_schema_metadata(_spark("4.0.0", key)),
        use_deprecated_int96_timestamps=int96,
    )
    fields = (
        *specs(d="date"),
        nested("s", "struct", t="timestamp", local="timestamp"),
        *specs(i="timestamp"),
    )
    world = harness(tmp_path, "parquet", fields=fields)
    world.put("a.parquet", data)
    [row] = world.rows(world.run_task())
    stored, moved = utc(1500, 3, 11), utc(1500, 3, 1)
    of_dates, of_int96 = (moved, stored) if key == "DateTime" else (stored, moved)
    assert row["d"] == of_dates.date()
    found = (row["s"]["t"], row["s"]["local"], row["i"])
    assert found == ((of_int96,) * 3 if int96 else (of_dates, stored, None))


def _with_footer_fields(orc_file: bytes, added: bytes) -> bytes:
    """Return an ORC file with fields added to its footer; the last of a number counts."""
    tail = orc_file[-1]
    head, postscript = orc_file[: -1 - tail], orc_file[-1 - tail : -1]
    assert postscript[0] == 8
    assert postscript[1] + len(added) < 128
    changed = bytes([8, postscript[1] + len(added)]) + postscript[2:]
    return head + added + changed + orc_file[-1:]


WRITER, CALENDAR = 9 << 3, 11 << 3


@pytest.mark.parametrize(
    ("added", "year_1500"),
    [
        (b"", dt.date(1500, 3, 11)),
        (bytes([CALENDAR, 1]), dt.date(1500, 3, 1)),
        (bytes([CALENDAR, 2, WRITER, 0]), dt.date(1500, 3, 11)),
        (bytes([WRITER, 0]), dt.date(1500, 3, 1)),
    ],
)
def test_old_dates_of_orc_are_in_the_calendar_of_its_footer(
    tmp_path: Path, added: bytes, year_1500: dt.date
) -> None:
    days = pa.array([-171_595, 19_000], pa.int32()).view(pa.date32())
    data = written("orc", pa.table({"d": days}), compression="uncompressed")
    world = harness(tmp_path, "orc", fields=specs(d="date"))
    world.put("a.orc", _with_footer_fields(data, added))
    assert [row["d"] for row in world.rows(world.run_task())] == [year_1500, dt.date(2022, 1, 8)]


def _by_hive(footer: Tree) -> None:
    footer[6] = (8, b"parquet-mr version 1.8.1")


def test_old_dates_of_an_unknown_calendar_are_bad_records(tmp_path: Path) -> None:
    old, new = dt.date(1500, 1, 1), dt.date(2024, 5, 6)
    table = pa.table({"d": [old, new], "l": [[new], [old]]})
    data = edited(written("parquet", table), _by_hive)
    fields = (
        *specs(d="date"),
        nested("l", "list", element="date"),
    )
    world = harness(tmp_path, "parquet", fields=fields)
    world.put("a.parquet", data)
    report = world.run_task()
    assert world.rows(report) == []
    first, second = world.letters(report)
    assert first["error"].startswith("column 'd': is before 1582-10-15")
    assert second["error"].startswith("column 'l': is before 1582-10-15")
    legacy = harness(
        tmp_path, "parquet", options("parquet", datetime_rebase_mode="legacy"), fields=fields
    )
    moved = dt.date(1499, 12, 23)
    assert [(row["d"], row["l"]) for row in legacy.rows(legacy.run_task())] == [
        (moved, [new]), (new, [moved]),
    ]  # fmt: skip


def _row_of_letter(
    root: Path,
    kind: str,
    table: pa.Table,
    wrong: tuple[FieldSpec, ...],
    fields: tuple[FieldSpec, ...],
    form: FormatSettings | None = None,
) -> Any:
    """Return the row that a replay makes of a file's only letter; it is that of the file, too."""
    data = written(kind, table)
    world = harness(root / "letter", kind, form, fields=wrong)
    world.put(f"a.{kind}", data)
    [letter] = world.dead_letters(world.run_task())
    made = format_of(form or options(kind))
    [content] = made.replay_contents([letter])
    again = harness(root / "again", kind, made.replay_settings(), fields=fields, metadata=())
    again.put("a.ndjson", content)
    direct = harness(root / "direct", kind, form, fields=fields, metadata=())
    direct.put(f"a.{kind}", data)
    report = again.run_task()
    [row], [other] = again.rows(report), direct.rows(direct.run_task())
    assert repr(row) == repr(other), letter.raw
    return row


@pytest.mark.parametrize("kind", KINDS)
def test_letters_come_again_as_the_rows_of_a_mended_schema(tmp_path: Path, kind: str) -> None:
    world = harness(tmp_path, kind, fields=specs(id="int32", at="timestamp"))
    at = utc(2024, 5, 6, 7, 8, 9, 123456)
    world.put(f"a.{kind}", written(kind, pa.table({"id": [1 << 40], "at": [at]})))
    form = format_of(options(kind))
    [content] = form.replay_contents(world.dead_letters(world.run_task()))
    again = harness(
        tmp_path / "2", kind, form.replay_settings(), fields=specs(id="int64", at="timestamp")
    )
    again.put("a.ndjson", content)
    [row] = again.rows(again.run_task())
    assert (row["id"], row["at"]) == (1 << 40, at)


def field(kind: Any, *children: FieldSpec, **more: Any) -> FieldSpec:
    return FieldSpec("c", kind, nullable=True, children=children, **more)


DAYS = [[(dt.date(2024, 1, 1), 1)]]
PARTS = (*specs(a="string", b="binary", j="json"), decimal(9, 2))
LETTERS = [
    (pa.array([[1.0]]), field("list", *specs(i="int64"))),
    (pa.array([[dt.time(1, 2, 3)]]), field("list", *specs(i="string"))),
    (pa.array(DAYS, pa.map_(pa.date32(), pa.int64())), field("map", *specs(v="int64"))),
    (pa.array([{"a": 1, "b": b"\xff", "j": {"k": [1, 2]}, "c": Decimal("1.50")}]),
     field("struct", *PARTS)),
    (pa.array([{"k": [1, 2], "b": b"\xff"}]), field("json")),
    (pa.array([[1_704_067_200_000_005]], pa.list_(pa.timestamp("us"))),
     field("list", FieldSpec("i", "timestamp", nullable=True, unit="ms"))),
    (pa.array([1_704_067_200_000_005], pa.timestamp("us")), field("timestamp", unit="s")),
    (pa.array([utc(1, 1, 1)]), field("timestamp", unit="ms")),
]  # fmt: skip


@pytest.mark.parametrize(("array", "spec"), LETTERS)
def test_letters_come_again_as_the_declared_values(
    tmp_path: Path, array: pa.Array, spec: FieldSpec
) -> None:
    table = pa.table({"id": [1 << 40], "c": array})
    wrong, right = (*specs(id="int32"), spec), (*specs(id="int64"), spec)
    row = _row_of_letter(tmp_path, "parquet", table, wrong, right)
    assert row["c"] is not None


def test_letters_of_many_rows_are_those_of_each() -> None:
    days = [dt.date(1, 1, 1), None, dt.date(2024, 1, 1)]
    times = pa.array([0, 1500, -(2**62)], pa.timestamp("ns"))
    columns = {
        "id": [1 << 40, 1 << 41, 1 << 42],
        "day": days,
        "time": times,
        "far": pa.array([2**60, None, 0], pa.int64()).cast(pa.timestamp("us")),
        "float": [float("nan"), 1.0, None],
        "number": [Decimal("1.50"), None, Decimal(2)],
        "part": [{"a": 1, "b": 1 << 40}, None, {"a": 2, "b": 1}],
        "map": pa.array([[("k", 1)], [("k", 1), ("k", 2)], None], pa.map_(pa.string(), pa.int64())),
        "other": pa.array([[(1, 1)], None, []], pa.map_(pa.int64(), pa.int64())),
        "text": ["a", None, '"'],
    }
    names = set(columns) - {"part", "map", "other", "number"}
    types: Any = dict.fromkeys(names, "string") | {
        "id": "int32",
        "day": "date",
        "time": "timestamp",
    }
    fields = (*specs(**types), nested("part", "struct", a="string", b="int32"))
    batch = pa.RecordBatch.from_pydict(columns)
    piece = Piece(b"", -1, 0, lines=3, context=FileColumns(batch.schema), rows=batch)
    form = format_of(options("parquet"))
    decoder = form.decoder(
        RowSchema((*fields, nested("map", "map", v="int64"))), tolerant=True, fast=True
    )
    heads = [bad.head for bad in decoder.decode(piece).bad]
    assert heads == [head for _, head, _ in decoder.records(piece).values()]
    assert len(heads) == 3


def test_a_part_that_does_not_fit_leaves_the_others_as_declared(tmp_path: Path) -> None:
    table = pa.table({"c": [{"a": 1, "b": 1 << 40, "x": 2}]})
    wrong, right = ((field("struct", *specs(a="string", b=kind)),) for kind in ("int32", "int64"))
    row = _row_of_letter(tmp_path, "parquet", table, wrong, right)
    assert row["c"] == {"a": "1", "b": 1 << 40}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_a_directory_is_a_bad_record(tmp_path: Path, kind: str) -> None:
    world = harness(tmp_path, kind, rules=(PartitionRule("note", key="note"),))
    table = pa.table({"id": [1, 2], "note": ["x", "n" * 300]})
    world.put(f"a.{kind}", written(kind, table))
    report = world.run_task()
    assert world.ids(report) == [1]
    [letter] = world.letters(report)
    assert (letter["line"], letter["stage"]) == (2, "partition")


@pytest.mark.parametrize("kind", KINDS)
def test_samples_and_single_records_are_lines(tmp_path: Path, kind: str) -> None:
    data = written(kind, pa.table({"id": [1, 2], "t": [dt.date(2024, 5, 6), None]}))
    (tmp_path / f"a.{kind}").write_bytes(data)
    store, size = LocalStorage(str(tmp_path)), len(data)
    lines = first_records(store, Entry(f"a.{kind}", size, 0.0), 1000, options(kind)).lines
    assert [json.loads(line) for line in lines] == [
        {"id": 1, "t": "2024-05-06"},
        {"id": 2, "t": None},
    ]
    found = read_records(store, JobFile(f"a.{kind}", size), [2, 9], EXPANSION, options(kind))
    rows = {number: json.loads(record.raw) for number, record in found.items()}
    assert rows == {2: {"id": 2, "t": None}}


def test_columns_of_a_sample_have_the_types_of_the_files(tmp_path: Path) -> None:
    columns = {
        "day": pa.array([dt.date(2024, 5, 6)]),
        "small": pa.array([1], pa.int32()),
        "price": pa.array([Decimal("1.50")]),
        "at": pa.array([5], pa.timestamp("us")),
        "raw": pa.array([b"x"]),
        "empty": pa.array([None], pa.float64()),
        "grows": pa.array([1], pa.int32()),
    }
    wide = {**columns, "grows": pa.array([1 << 40])}
    for name, content in (("a", columns), ("b", wide)):
        (tmp_path / f"{name}.parquet").write_bytes(written("parquet", pa.table(content)))
    (tmp_path / "c.parquet").write_bytes(b"PAR1")
    found = {spec.name: spec.type for spec in sample(LocalStorage(str(tmp_path))).fields}
    assert found == {
        "day": "date", "small": "int32", "price": "decimal", "at": "timestamp", "raw": "binary",
        "empty": "float64", "grows": "int64",
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_damage_costs_only_its_file(tmp_path: Path, kind: str) -> None:
    """Changed bytes may read as other values, since these formats have no checksums by default."""
    rng = random.Random(kind)
    table = pa.table({"id": range(300), "note": [f"text {n % 7}" for n in range(300)]})
    data = written(kind, table)
    world = harness(tmp_path, kind)
    for number in range(30):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 3])):
            changed[rng.randrange(len(data))] = rng.randrange(256)
        end = rng.randrange(len(data)) if number % 5 == 0 else len(data)
        world.put(f"{number:03}.{kind}", bytes(changed[:end]))
    world.put(f"good.{kind}", data)
    report = world.run_task()
    found = by_path(report)
    assert (found[f"good.{kind}"].outcome, found[f"good.{kind}"].rows) == ("ingested", 300)
    assert {file.outcome for file in report.files} == {"ingested", "quarantined"}
    assert all(file.error for file in report.files if file.outcome == "quarantined")


def _one_row_more(rows: int) -> Callable[[Tree], None]:
    """Return an edit that lets a footer and its first row group have another number of rows."""

    def edit(footer: Tree) -> None:
        footer[3] = (6, rows)
        footer[4][1][1][0][3] = (6, rows)

    return edit


def _total(footer: Tree) -> None:
    footer[3] = (6, 4)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (_one_row_more(4), "row group 1 has 4 rows by the footer, but 3 can be read"),
        (_total, "its footer says 4 rows, but 3 in its row groups"),
    ],
)
def test_a_file_with_other_rows_than_promised_is_refused(
    tmp_path: Path, edit: Callable[[Tree], None], reason: str
) -> None:
    world = harness(tmp_path, "parquet")
    world.put("a.parquet", edited(written("parquet", pa.table({"id": [1, 2, 3]})), edit))
    report = world.run_task()
    assert reasons(report) == {"a.parquet": f"{reason}; write the file again"}
    assert world.rows(report) == []


def test_rows_that_pyarrow_leaves_out_refuse_the_file(tmp_path: Path) -> None:
    """Its batches end early at tiny pages of empty lists, without an error."""
    lists = pa.array([[]] * 2, pa.list_(pa.bool_()))
    data = written(
        "parquet",
        pa.table({"id": [1, 2], "c": lists}),
        version="2.6",
        data_page_version="2.0",
        data_page_size=1,
    )
    world = harness(
        tmp_path, "parquet", fields=(*specs(id="int64"), nested("c", "list", element="boolean"))
    )
    world.put("a.parquet", data)
    report = world.run_task()
    assert len(world.rows(report)) == 2 or "can be read" in reasons(report)["a.parquet"]


def test_an_orc_file_with_other_rows_than_promised_is_refused(tmp_path: Path) -> None:
    data = written("orc", pa.table({"id": range(99)}), compression="uncompressed")
    says, end = bytes([6 << 3, 99]), data.rindex(b"ORC")
    at = data.rindex(says, 0, end)
    world = harness(tmp_path, "orc")
    world.put("a.orc", data[:at] + bytes([6 << 3, 100]) + data[at + 2 :])
    report = world.run_task()
    assert "its footer says 100 rows, but 99 can be read" in reasons(report)["a.orc"]
    assert world.rows(report) == []


def test_a_changed_byte_in_a_page_with_a_checksum_is_found(tmp_path: Path) -> None:
    table = pa.table({"id": range(1000)})
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    data = bytearray(written("parquet", table, write_statistics=False, **plain))
    data[data.index((500).to_bytes(8, "little") + (501).to_bytes(8, "little"))] ^= 1
    world = harness(tmp_path, "parquet")
    world.put("a.parquet", bytes(data))
    assert "CRC checksum" in reasons(world.run_task())["a.parquet"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_with_the_path_of_a_field_is_itself(tmp_path: Path, kind: str) -> None:
    table = pa.table(
        {
            "a.b": ["x", "y"],
            "a": [{"b": 10}, {"b": 20}],
            "l": [[1], [2]],
            "l._elem": [3, 4],
        }
    )
    for columns in (specs(**{"a.b": "string"}), specs(**{"a.b": "string", "l._elem": "int64"})):
        world = harness(tmp_path / str(len(columns)), kind, fields=columns)
        world.put(f"a.{kind}", written(kind, table))
        found = world.rows(world.run_task())
        for column in columns:
            assert [row[column.name] for row in found] == table[column.name].to_pylist()


def test_rows_without_end_of_few_bytes_are_refused(tmp_path: Path) -> None:
    table = pa.table({"id": pa.repeat(pa.scalar(1, pa.int64()), 30_000_000)})
    world = harness(tmp_path, "parquet")
    world.put("a.parquet", written("parquet", table, row_group_size=1 << 25))
    assert len((world.source / "a.parquet").read_bytes()) < 1 << 20
    [reason] = reasons(world.run_task()).values()
    assert "becomes more than 256 times its" in reason


def test_times_that_arrow_cannot_read_from_orc_are_named(tmp_path: Path) -> None:
    """Its reader returns nanoseconds, and 9999-12-31 is no such number."""
    times = pa.array([utc(9999, 12, 31)], pa.timestamp("us"))
    world = harness(tmp_path, "orc", fields=specs(t="timestamp"))
    world.put("a.orc", written("orc", pa.table({"t": times})))
    [reason] = reasons(world.run_task()).values()
    assert reason.startswith("has times outside the years 1677 to 2262")


def test_a_file_of_many_columns_is_read_in_time() -> None:
    """To count each name in all of them would take minutes."""
    schema = RowSchema(FIELDS, "capture")
    columns = pa.schema([(f"c{number}", pa.int64()) for number in range(150_000)])
    assert FileColumns(columns).wanted(schema) == columns.names


def test_a_small_file_with_a_long_list_of_bits_is_refused(tmp_path: Path) -> None:
    values = pa.repeat(pa.scalar(True), 20_000_000)
    lists = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    world = harness(tmp_path, "parquet", fields=(nested("c", "list", element="boolean"),))
    world.put("a.parquet", written("parquet", pa.table({"c": lists}), compression="zstd"))
    [reason] = reasons(world.run_task()).values()
    assert "becomes more than 256 times its" in reason


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_file_whose_decoder_is_ended_once_is_read(
    tmp_path: Path, kind: str, deaths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system ends processes for their memory, which a file need not cause."""
    columnar_rows.end_idle()
    count, ended_ones = 200_000, set[int]()
    receive = columnar_rows.RowReader.receive

    def ended(reader: columnar_rows.RowReader) -> tuple[bytes, bytes]:
        answer = receive(reader)
        is_large = answer[0] == columnar_rows.process.BATCH and len(answer[1]) > 1 << 19
        if is_large and reader.process.pid not in ended_ones and len(ended_ones) < deaths:
            ended_ones.add(reader.process.pid)
            os.kill(reader.process.pid, signal.SIGKILL)
        return answer

    monkeypatch.setattr(columnar_rows.RowReader, "receive", ended)
    table = pa.table({"id": range(count), "note": [f"text {n}" for n in range(count)]})
    world = harness(tmp_path, kind)
    world.put(f"a.{kind}", written(kind, table))
    report = world.run_task()
    if deaths == 1:
        assert world.ids(report) == list(range(count))
    else:
        assert "the process that read it ended with signal 9" in reasons(report)[f"a.{kind}"]


def test_a_decoder_that_ends_behind_an_orc_schema_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columnar_rows.end_idle()
    receive, ends = columnar_rows.RowReader.receive, [columnar_rows.process.END]

    def ended(reader: columnar_rows.RowReader) -> tuple[bytes, bytes]:
        kind, content = receive(reader)
        if kind in ends:
            ends.clear()
            raise columnar_rows.ReaderEnded
        return kind, content

    monkeypatch.setattr(columnar_rows.RowReader, "receive", ended)
    world = harness(tmp_path, "orc")
    world.put("a.orc", written("orc", pa.table({"id": range(3), "note": ["x"] * 3})))
    assert world.ids(world.run_task()) == [0, 1, 2]
    assert not ends


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the processes that decode during the test."""
    columnar_rows.end_idle()
    pids: list[int] = []
    start = columnar_rows.RowReader.__init__

    def counted(reader: columnar_rows.RowReader) -> None:
        start(reader)
        pids.append(reader.process.pid)

    monkeypatch.setattr(columnar_rows.RowReader, "__init__", counted)
    return pids


@pytest.mark.parametrize("kind", KINDS)
def test_no_decoder_outlives_a_file_that_fails(
    tmp_path: Path, kind: str, started: list[int]
) -> None:
    """Arrow refers to the file in ways that no garbage collection sees."""
    rows = 400_000 if kind == "orc" else 30
    table = pa.table({"id": pa.array([[1]] * rows), "note": ["x" * 50] * rows})
    sizes = {"stripe_size": 1 << 20} if kind == "orc" else {"row_group_size": 1}
    world = harness(tmp_path, kind)
    for name in "abc":
        world.put(f"{name}.{kind}", written(kind, table, **sizes))
    assert {file.outcome for file in world.run_task().files} == {"quarantined"}
    assert started
    columnar_rows.end_idle()
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]


def test_a_row_of_a_gigabyte_costs_limited_memory(tmp_path: Path) -> None:
    texts = pa.array(["x" * (1 << 27)])
    world = harness(tmp_path, "parquet", fields=specs(**{f"t{n}": "string" for n in range(8)}))
    table = pa.table({f"t{n}": texts for n in range(8)})
    world.put("a.parquet", written("parquet", table, use_dictionary=False, compression="zstd"))
    [reason] = reasons(world.run_task()).values()
    assert "cannot be read in 256 MiB" in reason or "a row of" in reason


@pytest.mark.parametrize("kind", KINDS)
def test_one_process_decodes_many_small_files(
    tmp_path: Path, kind: str, started: list[int]
) -> None:
    world = harness(tmp_path, kind)
    data = written(kind, pa.table({"id": range(2000), "note": ["x"] * 2000}))
    for number in range(20):
        world.put(f"{number:02}.{kind}", data)
    assert len(world.rows(world.run_task())) == 40_000
    assert len(started) == 1


@pytest.mark.parametrize(("kind", "model"), [("parquet", ParquetOptions), ("orc", OrcOptions)])
def test_settings(kind: str, model: type[ParquetOptions | OrcOptions]) -> None:
    source = SourceSettings(source_uri="/in", format=options(kind))
    assert isinstance(source.format, model)
    assert accepts(source)(f"a.{kind}")
    assert not accepts(source)(f"a.{kind}.gz")
    with pytest.raises(ValidationError, match="mergeSchema: not needed"):
        options(kind, mergeSchema=True)
    if kind == "parquet":
        with pytest.raises(ValidationError, match="datetimeRebaseMode is datetime_rebase_mode"):
            options(kind, datetimeRebaseMode="LEGACY")


@pytest.mark.parametrize(("columns", "most", "share"), [(60, 6, 1.0), (1, 6, 0.05)])
def test_neighbouring_columns_share_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, most: int, share: float
) -> None:
    """Two row groups of 60 columns: 120 chunks of 160 kB."""
    chance = random.Random(5)
    names = [f"c{number}" for number in range(60)]
    values = [chance.getrandbits(62) for _ in range(40_000)]
    table = pa.table(dict.fromkeys(names, values))
    data = written("parquet", table, use_dictionary=False, row_group_size=20_000)
    sizes: list[int] = []
    read_range = LocalStorage.read_range

    def counted(storage: LocalStorage, path: str, start: int, end: int) -> bytes:
        sizes.append(end - start)
        return read_range(storage, path, start, end)

    monkeypatch.setattr(LocalStorage, "read_range", counted)
    world = harness(tmp_path, "parquet", fields=specs(**dict.fromkeys(names[:columns], "int64")))
    world.put("a.parquet", data)
    report = world.run_task()
    assert by_path(report)["a.parquet"].rows == 40_000
    assert len(sizes) <= most
    assert sum(sizes) < len(data) * share + (200 << 10)


def test_plain_types_keep_the_metadata_of_inner_fields() -> None:
    for number in (b"1", b"2"):  # the types are equal, so no cache may take one for the other
        for leaf in (pa.int64(), pa.string_view()):
            inner = pa.field("a", leaf, metadata={b"PARQUET:field_id": number})
            found = plain_type(pa.list_(pa.struct([inner]))).value_type.field("a")
            assert found.metadata == inner.metadata
