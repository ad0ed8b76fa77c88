"""Letters of formats with types: a replay gives the verdict, or the row, that their file gives."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pydantic import TypeAdapter

from blizzard_core.limits import LETTER_COLUMNS
from blizzard_core.settings.formats import FileFormat, FormatSettings, LetterOptions
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.columnar.letters import columns_in, rows_header
from blizzard_py.formats.letters import reading
from blizzard_py.formats.letters.header import (
    around_of,
    header_fault,
    header_of,
    text_header,
    unread_column,
)
from blizzard_py.formats.letters.reading import Number, Room, arrow_array, parsed
from blizzard_py.formats.letters.types import type_of, type_text
from blizzard_py.formats.letters.writing import encoded, json_texts_of
from blizzard_py.formats.names import format_of
from blizzard_py.formats.nested_arrays import by_column, plain_type
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.framing import Piece
from tests.support import avro_files, workbooks
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.memory_file import MemoryFile

# The rows of a task without their lines, and its letters as a replay reads them.
Verdicts = tuple[list[dict[str, Any]], list[DeadLetter]]


def options(kind: str, **given: Any) -> FormatSettings:
    return TypeAdapter[FormatSettings](FormatSettings).validate_python({"type": kind, **given})


def field(name: str, kind: Any, *children: FieldSpec, **more: Any) -> FieldSpec:
    return FieldSpec(name, kind, nullable=True, children=children, **more)


def parquet(table: pa.Table) -> bytes:
    target = io.BytesIO()
    pq.write_table(table, target)
    return target.getvalue()


def ingested(
    root: Path, form: FileFormat, data: bytes, fields: tuple[FieldSpec, ...], **given: Any
) -> Verdicts:
    world = IngestJobHarness(root, fields, format=form, **given)
    world.put("a", data)
    report = world.run_task()
    return world.rows(report), world.dead_letters(report)


def replayed(
    root: Path,
    form: FormatSettings,
    letters: list[DeadLetter],
    fields: tuple[FieldSpec, ...],
    **given: Any,
) -> Verdicts:
    made = format_of(form)
    rows, found = [], []
    for number, content in enumerate(made.replay_contents(letters)):
        some = ingested(root / str(number), made.replay_settings(), content, fields, **given)
        rows += some[0]
        found += some[1]
    return rows, found


def shown(letters: list[DeadLetter]) -> list[tuple[str, bytes, bytes]]:
    return [(each.error, each.raw, each.header) for each in letters]


def check_replays(
    root: Path,
    form: FormatSettings,
    data: bytes,
    wrong: tuple[FieldSpec, ...],
    right: tuple[FieldSpec, ...],
    mended: FormatSettings | None = None,
) -> list[dict[str, Any]]:
    """Check both replays of a file's letters; return the rows of the mended one."""
    _, letters = ingested(root / "wrong", form, data, wrong)
    rows, same = replayed(root / "same", form, letters, wrong)
    assert (rows, shown(same)) == ([], shown(letters))
    now = mended or form
    expected, still_bad = ingested(root / "right", now, data, right)
    rows, bad = replayed(root / "mended", now, letters, right)
    assert repr(rows) == repr(expected)
    assert shown(bad) == shown(still_bad)
    return rows


INT32, INT64, TEXT = specs(id="int32"), specs(id="int64"), specs(id="string")
NANOS = pa.array([1_500], pa.int64()).cast(pa.timestamp("ns", "UTC"))
TWICE = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
VIEWS = pa.large_list_view(
    pa.struct([("a", pa.list_view(pa.binary_view())), ("b", pa.string_view())])
)
COLUMNS: Mapping[str, tuple[pa.Array, FieldSpec]] = {
    "NaN in JSON": (pa.array([{"x": float("nan"), "y": [float("-inf"), 1.5]}]), field("c", "json")),
    "NaN in a map": (
        pa.array([[("a", float("nan"))]], pa.map_(pa.string(), pa.float64())),
        field("c", "map", *specs(v="float64")),
    ),
    "NaN as text": (pa.array([float("nan")]), field("c", "string")),
    "a key twice": (TWICE, field("c", "map", *specs(v="int64"))),
    "a key twice in JSON": (TWICE, field("c", "json")),
    "nanoseconds": (NANOS, field("c", "timestamp")),
    "nanoseconds as text": (NANOS, field("c", "string")),
    "items that do not fit": (
        pa.array([[1, 1 << 40, None]]), field("c", "list", *specs(i="int32")),
    ),
    "items of another type": (pa.array([["1", "x"]]), field("c", "list", *specs(i="int64"))),
    "numbers as items of text": (pa.array([[1, 2]]), field("c", "list", *specs(i="string"))),
    "an unread part": (pa.array([{"a": 1, "x": 2}]), field("c", "struct", *specs(a="int64"))),
    "a part that does not fit": (
        pa.array([{"a": 1, "b": 1 << 40}]), field("c", "struct", *specs(a="string", b="int32")),
    ),
    "digits": (pa.array([Decimal("1.50")]), field("c", "string")),
    "bytes": (pa.array([b"\xff\0"]), field("c", "binary")),
    "a count": (pa.array([1_704_067_200_000]), field("c", "timestamp", unit="ms")),
    "a day": (pa.array([dt.date(1, 1, 1)]), field("c", "timestamp")),
    "JSON text": (pa.array(['{"a": 1.10,  "a": 2}']), field("c", "json")),
    "a list view": (
        pa.array([[1, 1 << 40, None]], pa.list_view(pa.int64())),
        field("c", "list", *specs(i="int32")),
    ),
    "views in views": (
        pa.array([[{"a": [b"\xff"], "b": "x"}, None]], VIEWS),
        field("c", "list", field("i", "struct", field("a", "json"), *specs(b="int64"))),
    ),
    "a truth value of a byte": (
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([2], pa.int8())), *specs(c="boolean"),
    ),
    "a truth value of a byte as text": (
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([2], pa.int8())), *specs(c="string"),
    ),
    "a foreign type": (
        pa.ExtensionArray.from_storage(
            pa.opaque(pa.list_(pa.date32()), "days", "us"),
            pa.array([[dt.date(2026, 5, 4)]], pa.list_(pa.date32())),
        ),
        field("c", "list", *specs(i="timestamp")),
    ),
    "text of a time": (pa.array([dt.time(1, 2, 3)]), field("c", "string")),
}  # fmt: skip


@pytest.mark.parametrize("case", COLUMNS)
@pytest.mark.parametrize("right", [INT64, TEXT], ids=["int64", "string"])
def test_a_parquet_row_meets_the_verdict_of_its_file(
    tmp_path: Path, case: str, right: tuple[FieldSpec, ...]
) -> None:
    array, spec = COLUMNS[case]
    data = parquet(pa.table({"id": [1 << 40], "c": array}))
    check_replays(tmp_path, options("parquet"), data, (*INT32, spec), (*right, spec))


def test_nanoseconds_are_cut_by_the_options_of_today(tmp_path: Path) -> None:
    data = parquet(pa.table({"id": [1], "c": NANOS}))
    fields = (*INT64, field("c", "timestamp"))
    cut = options("parquet", nanoseconds="cut")
    [row] = check_replays(tmp_path, options("parquet"), data, fields, fields, cut)
    assert row["c"].microsecond == 1
    bad = options("parquet")
    far = parquet(pa.table({"id": [1 << 40], "c": NANOS}))
    wrong = (*INT32, field("c", "timestamp"))
    assert not check_replays(tmp_path / "b", cut, far, wrong, fields, bad)


@pytest.mark.parametrize(
    ("array", "kind", "values"),
    [
        (pa.array([[1], None, [], [1 << 40]], pa.list_view(pa.int64())), "list", None),
        (pa.array([b"\xff", None, b"", b"x"], pa.binary_view()), "binary", None),
        (
            pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, None, 1, 2], pa.int8())),
            "boolean",
            [False, None, True, True],
        ),
    ],
    ids=["list_view", "binary_view", "bool8"],
)
def test_values_in_other_layouts_are_read(
    tmp_path: Path, array: pa.Array, kind: Any, values: list[Any] | None
) -> None:
    """Columns behind them are those of the file, too: INT96 is found by its number."""
    times = pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC"))
    foreign = pa.array([{"a": 1, "b": 2}] * 4)
    parts = pa.ExtensionArray.from_storage(pa.opaque(foreign.type, "t", "us"), foreign)
    target = io.BytesIO()
    table = pa.table({"c": array, "parts": parts, "t": times})
    pq.write_table(table, target, use_deprecated_int96_timestamps=True)
    items = specs(i="int64") if kind == "list" else ()
    fields = (field("c", kind, *items), field("t", "timestamp"))
    rows, letters = ingested(tmp_path, options("parquet"), target.getvalue(), fields)
    assert not letters
    assert [row["c"] for row in rows] == (values or array.to_pylist())
    assert [row["t"].microsecond for row in rows] == [1, 2, 3, 4]


def test_an_orc_row_meets_the_verdict_of_its_file(tmp_path: Path) -> None:
    target = io.BytesIO()
    table = pa.table({"id": [1 << 40], "c": NANOS, "m": TWICE})
    orc.write_table(table, target)
    others = (field("c", "string"), field("m", "map", *specs(v="int64")))
    form, data = options("orc"), target.getvalue()
    [row] = check_replays(tmp_path, form, data, (*INT32, *others), (*INT64, *others))
    assert row["m"] == [("a", 1), ("a", 2)]


AVRO: Any = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "u", "type": ["null", "double", "string"]},
        {"name": "m", "type": {"type": "map", "values": "double"}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                               "scale": 2}},
        {"name": "l", "type": {"type": "array", "items": "long"}},
    ],
}  # fmt: skip
AVRO_ROW = {
    "id": 1 << 40, "u": float("nan"), "m": {"k": float("inf")}, "t": 1_500,
    "d": Decimal("1.50"), "l": [1, 1 << 40],
}  # fmt: skip
AVRO_FIELDS = (
    field("u", "json"), field("m", "map", *specs(v="float64")),
    field("d", "decimal", precision=9, scale=2), field("l", "list", *specs(i="int64")),
)  # fmt: skip


def test_an_avro_row_meets_the_verdict_of_its_file(tmp_path: Path) -> None:
    data = avro_files.written(AVRO, [AVRO_ROW])
    form, cut = options("avro"), options("avro", nanoseconds="cut")
    right = (*TEXT, *AVRO_FIELDS)
    [row] = check_replays(tmp_path / "a", form, data, (*INT32, *AVRO_FIELDS), right)
    assert (row["u"], row["d"]) == ('"NaN"', Decimal("1.50"))
    times = field("t", "timestamp")
    [row] = check_replays(
        tmp_path / "b", form, data, (*TEXT, times), (*TEXT, times, *AVRO_FIELDS), cut
    )
    assert row["t"].microsecond == 1
    narrow = field("l", "list", *specs(i="int32"))
    check_replays(tmp_path / "c", form, data, (*TEXT, narrow), (*TEXT, field("l", "json")))


def test_an_avro_value_that_cannot_be_read_costs_only_its_column(tmp_path: Path) -> None:
    plain = {"type": "record", "name": "r", "fields": [
        {"name": "id", "type": "int"}, {"name": "t", "type": "int"}]}  # fmt: skip
    timed = json.loads(json.dumps(plain))
    timed["fields"][1]["type"] = {"type": "int", "logicalType": "time-millis"}
    data = avro_files.written(plain, [{"id": 1, "t": 2**31 - 1}])
    old, new = (json.dumps(each, separators=(", ", ": ")).encode() for each in (plain, timed))
    assert old in data or json.dumps(plain, separators=(",", ":")).encode() in data
    old = old if old in data else json.dumps(plain, separators=(",", ":")).encode()
    start, _, rest = data.partition(old)
    size = avro_files.varint(len(old))
    assert start.endswith(size)
    data = start[: -len(size)] + avro_files.varint(len(new)) + new + rest
    fields = (*INT64, field("t", "string"))
    rows = check_replays(tmp_path, options("avro"), data, fields, INT64)
    assert [row["id"] for row in rows] == [1]


def test_excel_cells_meet_the_verdict_of_their_sheet(tmp_path: Path) -> None:
    day = dt.date(2024, 5, 6)
    sheet = [
        ["id", "c", "Net (EUR)"],
        ["x", '{"a": 1}', 1.5], ["y", "no JSON", None], ["z", 7, True], ["v", day, "text"],
        ["w", "#DIV/0!", day],
    ]  # fmt: skip
    data, form = workbooks.saved(sheet), options("excel")
    for number, spec in enumerate(
        [field("c", "json"), *specs(c="string"), *specs(c="date"), field("c", "list", *INT64)]
    ):
        check_replays(tmp_path / str(number), form, data, (*INT64, spec), (*TEXT, spec))
    named = specs(Net_EUR="string")
    rows = check_replays(tmp_path / "n", form, data, INT64, (*TEXT, *named))
    assert rows[0]["Net_EUR"] == "1.5"
    nulls = options("excel", null_value=["", "x", "#DIV/0!"])
    check_replays(tmp_path / "o", form, data, (*INT64, *specs(c="date")), INT64, nulls)


def test_excel_without_a_header_takes_the_names_of_today(tmp_path: Path) -> None:
    data, form = workbooks.saved([["x", 1], ["y", 2]]), options("excel", header_rows=0)
    rows = check_replays(
        tmp_path, form, data, specs(id="int64", n="int64"), specs(key="string", number="int64")
    )
    assert rows == [{"key": "x", "number": 1}, {"key": "y", "number": 2}]


def test_letters_without_a_column_need_their_file(tmp_path: Path) -> None:
    data = parquet(pa.table({"id": [1 << 40], "more": [2]}))
    form = options("parquet")
    _, [letter] = ingested(tmp_path / "a", form, data, INT32)
    fields = (*INT64, *specs(more="int64"))
    assert "'more'" in unread_column(letter.header, RowSchema(fields))
    assert not unread_column(letter.header, RowSchema((*INT64, *specs(none="int64"))))
    assert unread_column(letter.header, RowSchema(INT64, "capture"))
    made = format_of(form)
    world = IngestJobHarness(tmp_path / "b", fields, format=made.replay_settings())
    world.put("a", made.replay_contents([letter])[0])
    failed = by_path(world.run_task())["a"]
    assert (failed.outcome, "'more'" in failed.error) == ("quarantined", True)


def test_a_letter_that_somebody_broke_costs_only_itself(tmp_path: Path) -> None:
    form = options("parquet")
    data = parquet(pa.table({"id": [1 << 40, 1 << 41, 1 << 42, 1 << 43]}))
    _, letters = ingested(tmp_path / "a", form, data, INT32)
    broken = [b'{"id": 1}', b"{", b'{"id": "x"}', b"[1]", b'{"id": 2, "id": 3}', b'{"id": 4}']
    letters = [replace(letters[0], raw=raw) for raw in broken]
    rows, bad = replayed(tmp_path / "b", form, letters, INT64)
    assert [row["id"] for row in rows] == [1, 4]
    assert [each.raw for each in bad] == broken[1:5]
    assert all("is no row of a letter" in each.error for each in bad)
    no_header = ingested(tmp_path / "c", format_of(form).replay_settings(), b'{"id": 1}\n', INT64)
    assert no_header == ([], [])


REQUIRED: Mapping[str, FieldSpec] = {
    "json": FieldSpec("c", "json", nullable=False),
    "list": FieldSpec("c", "list", nullable=False, children=specs(i="int64")),
    "struct": FieldSpec("c", "struct", nullable=False, children=specs(a="int64")),
    "map": FieldSpec("c", "map", nullable=False, children=specs(v="int64")),
}


@pytest.mark.parametrize("kind", REQUIRED)
@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_the_text_null_is_missing_in_a_required_column(
    tmp_path: Path, form: str, kind: str
) -> None:
    target = io.BytesIO()
    good = "[1]" if kind == "list" else '{"a": 1}'
    write = pq.write_table if form == "parquet" else orc.write_table
    write(pa.table({"id": [1, 2, 3], "c": [good, "null", None]}), target)
    fields = (*INT64, REQUIRED[kind])
    rows, letters = ingested(tmp_path, options(form), target.getvalue(), fields)
    assert [row["id"] for row in rows] == [1]
    assert [each.error for each in letters] == ["column 'c': is required, and null"] * 2


def rows_of(id_type: Any = "int64", **more: Any) -> dict[str, Any]:
    return {"letters": "rows", "columns": {"id": id_type}, **more}


def struct_of(*names: str, **more: Any) -> dict[str, Any]:
    parts = {"struct": [[name, "date32[day]"] for name in names]}
    return {"letters": "rows", "columns": {"id": "int64", "c": parts}, **more}


def sheet_of(place: Any, name: str = "id", **more: Any) -> dict[str, Any]:
    return {"letters": "sheet", "has_header": True, "columns": {name: place}, **more}


def nested(levels: int) -> Any:
    return {"list": nested(levels - 1)} if levels else "int64"


BROKEN: Mapping[str, tuple[str, dict[str, Any]]] = {
    "no columns": ("parquet", {"letters": "rows"}),
    "columns as a list": ("parquet", {"letters": "rows", "columns": ["id"]}),
    "a type that is none": ("parquet", rows_of({"struct": [1]})),
    "a type of a zone that is no text": ("parquet", rows_of("timestamp[s, tz=\ud800]")),
    "a part whose name is a number": ("parquet", rows_of({"struct": [[1, "int64"]]})),
    "a name that is no text": ("orc", {"letters": "rows", "columns": {"\ud800": "int64"}}),
    "too many levels": ("parquet", rows_of(nested(200))),
    "levels without an end": ("avro", rows_of(nested(900))),
    "too many columns": ("parquet", struct_of(*map(str, range(LETTER_COLUMNS)))),
    "unread as a number": ("parquet", rows_of(unread=5)),
    "unread names that are none": ("parquet", rows_of(unread=["\ud800"])),
    "a column that is also unread": ("parquet", rows_of(unread=["id"])),
    "a calendar for no leaf": ("parquet", rows_of(calendars={"id": []})),
    "too few calendars": ("parquet", struct_of("a", "b", calendars={"c": ["julian"]})),
    "too many calendars": ("orc", struct_of("a", calendars={"c": ["julian"] * 2})),
    "an unknown calendar": ("parquet", struct_of("a", calendars={"c": ["mars"]})),
    "a calendar that is no word": ("parquet", struct_of("a", calendars={"c": [["julian"]]})),
    "a calendar of no column": ("parquet", rows_of(calendars={"c": ["julian"]})),
    "too few flags of INT96": ("parquet", struct_of("a", "b", int96={"c": [False]})),
    "flags of INT96 of a number": ("parquet", rows_of(int96={"id": [True]})),
    "flags of INT96 that are words": ("parquet", rows_of("string", int96={"id": ["x"]})),
    "a sheet without columns": ("excel", {"letters": "sheet", "has_header": True}),
    "a place that is a number": ("excel", sheet_of(["5", "id"])),
    "a place that is empty": ("excel", sheet_of(["", "id"])),
    "a place beyond a sheet": ("excel", sheet_of(["XFE", "id"])),
    "a long place": ("excel", sheet_of(["A" * 200_000, "id"])),
    "no place": ("excel", sheet_of("A")),
    "a place twice": ("excel", {**sheet_of(0), "columns": {"id": ["A", "id"], "c": ["A", "c"]}}),
    "a column without a name": ("excel", sheet_of(["A", "id"], "")),
    "a text that is empty": ("excel", sheet_of(["A", ""])),
    "a text that is none": ("excel", sheet_of(["A", "\ud800"])),
    "a header that may be there": ("excel", sheet_of(["A", "id"], has_header="yes")),
    "half a pair around records": ("csv", {"letters": "text", "around": "id\ud800"}),
    "nothing around records": ("csv", {"letters": "text"}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_header_that_somebody_broke_costs_only_its_letters(tmp_path: Path, case: str) -> None:
    kind, broken = BROKEN[case]
    sound, row = rows_of(), b'{"id": 2}'
    if kind == "excel":
        sound = sheet_of(["A", "id"])
    elif kind == "csv":
        sound, row = {"letters": "text", "around": "id"}, b"id\n2"
    for of_table in [True] if kind == "csv" else [False, True]:
        form = LetterOptions(of=options(kind), of_table=of_table)
        world = IngestJobHarness(tmp_path / str(of_table), INT64, format=form)
        for path, header in ("a", broken), ("b", sound), ("c", broken):
            world.put(path, json.dumps(["letters", header]).encode() + b"\n" + row + b"\n")
        report = world.run_task()
        assert [each["id"] for each in world.rows(report)] == [2]
        found = by_path(report)
        assert [found[path].outcome for path in "abc"] == ["quarantined", "ingested", "quarantined"]
        assert found["a"].error.startswith("the header of its letters ")
        assert not world.dead_letters(report)


LEAVES = [
    *(pa.null(), pa.bool_(), pa.uint64(), pa.float16(), pa.string_view(), pa.binary_view()),
    *(pa.large_string(), pa.binary(0), pa.binary(3), pa.date64(), pa.time64("ns")),
    *(pa.duration("ns"), pa.timestamp("ns", "Odd/zone], tz=x\n"), pa.timestamp("s", "+01:00")),
    *(pa.decimal32(3, 1), pa.decimal256(76, -10), pa.uuid(), pa.json_(), pa.bool8()),
    *(pa.month_day_nano_interval(), pa.dictionary(pa.int8(), pa.date32()), pa.struct([])),
    pa.opaque(pa.struct([("a", pa.date32()), ("b", pa.int8())]), "x", "y"),
    pa.fixed_shape_tensor(pa.int64(), [2]),
]  # fmt: skip
NAMES = ["", "a.b", "\x00", "\u2028", '"', "letters", "\\ud800", "x" * 300, "\ufeff", "\U0001f600"]


def kind_of(chance: random.Random, depth: int = 0) -> pa.DataType:
    if depth > 4 or chance.random() < 0.4:
        return chance.choice(LEAVES)
    inner = kind_of(chance, depth + 1)
    parts = [(name, kind_of(chance, depth + 1)) for name in chance.sample(NAMES, 3)]
    return chance.choice(
        [
            *(pa.list_(inner), pa.large_list(inner), pa.list_(inner, 2), pa.list_view(inner)),
            *(pa.large_list_view(inner), pa.map_(pa.string_view(), inner), pa.struct(parts)),
        ]
    )


def test_each_header_that_is_written_is_read() -> None:
    chance = random.Random(1)
    for _ in range(300):
        found = pa.schema([(name, kind_of(chance)) for name in chance.sample(NAMES, 3)])
        read = pa.schema([field.with_type(plain_type(field.type)) for field in found])
        calendars = by_column(read, lambda _at, _kind: "julian", "gregorian")
        header = rows_header(read, [*found.names, "more", "more"], calendars, {})
        members = header_of(header)
        assert members is not None, found
        assert columns_in(members)[0].names[:3] == found.names
        data = bytes(chance.choices(b'a,"\n\\\0\xff\xed\xa0\x80', k=30))
        assert around_of(text_header(data)) == data


@pytest.mark.parametrize(
    ("columns", "others"),
    [(LETTER_COLUMNS + 1, 0), (1, LETTER_COLUMNS + 1)],
    ids=["columns", "unread"],
)
def test_a_header_of_too_many_columns_says_so(columns: int, others: int) -> None:
    read = pa.schema([(chr(256 + number), pa.int8()) for number in range(columns)])
    names = [*read.names, *(chr(0x10000 + number) for number in range(others))]
    header = rows_header(read, names, {}, {})
    assert (header_of(header) is None) == (columns > 1)
    assert ("was too large" in header_fault(header)) == (columns > 1)
    assert len(header) < 1000
    assert "was too large" in header_fault(text_header(b"\0" * (512 << 10)))


def test_nulls_of_a_row_have_one_limit_for_all_columns(tmp_path: Path) -> None:
    wide = {f"c{number}": "fixed_size_binary[67108864]" for number in range(16)}
    parts = {"list": {"struct": [[str(number), "string"] for number in range(1000)]}}
    form = format_of(options("parquet")).replay_settings()
    world = IngestJobHarness(tmp_path, INT64, format=form)
    header = {"letters": "rows", "columns": {"id": "int64", **wide}}
    world.put("a", json.dumps(["letters", header]).encode() + b'\n{"id": 1}\n')
    header = {"letters": "rows", "columns": {"id": "int64", "c": parts}}
    items = b", ".join([b"{}", *[b"null"] * 100_000])
    rows = b'{"id": 1, "c": [%b]}\n{"id": 2, "c": [null, {}]}\n' % items
    world.put("b", json.dumps(["letters", header]).encode() + b"\n" + rows)
    report = world.run_task()
    assert [row["id"] for row in world.rows(report)] == [2]
    errors = [each.error for each in world.dead_letters(report)]
    assert ["too wide for a row of a letter" in error for error in errors] == [True, True]


def test_rows_of_wide_structs_come_in_small_pieces() -> None:
    parts = {"struct": [[str(number), "string"] for number in range(1000)]}
    header = {"letters": "rows", "columns": {"id": "int64", "c": parts}}
    data = json.dumps(["letters", header]).encode() + b"\n" + b'{"id": 1, "c": null}\n' * 10_000
    form = format_of(format_of(options("parquet")).replay_settings())
    before = pa.total_allocated_bytes()
    pieces = list(form.pieces(MemoryFile(data), RowSchema(INT64)))
    assert pa.total_allocated_bytes() - before < 4 << 20
    rows = [piece.lines for piece in pieces if isinstance(piece, Piece)]
    assert (sum(rows), max(rows) * 1001 <= 256 << 10) == (10_000, True)


def test_a_name_that_stands_twice_in_a_long_row_takes_no_time() -> None:
    members = b", ".join([*(b'"%d": 0' % number for number in range(200_000)), b'"z": 1, "z": 2'])
    with pytest.raises(ValueError, match="'z' twice"):
        parsed(b"{%b}" % members)


def test_nanoseconds_of_avro_are_cut_below_none(tmp_path: Path) -> None:
    kind = {"type": "long", "logicalType": "timestamp-nanos"}
    fields = [{"name": "id", "type": "long"}, {"name": "t", "type": kind}]
    schema = {"type": "record", "name": "r", "fields": fields}
    data = avro_files.written(schema, [{"id": 1 << 40, "t": -(2**63)}, {"id": 1 << 41, "t": -1}])
    form = options("avro", nanoseconds="cut")
    time = field("t", "timestamp")
    check_replays(tmp_path, form, data, (*INT32, time), (*INT64, time))
    rows, _ = ingested(tmp_path / "now", form, data, (*INT64, time))
    assert [str(row["t"]) for row in rows] == [
        "1677-09-21 00:12:43.145224+00:00", "1969-12-31 23:59:59.999999+00:00",
    ]  # fmt: skip


def test_letters_of_avro_have_the_digits_that_were_cut(tmp_path: Path) -> None:
    kind = {"type": "long", "logicalType": "timestamp-nanos"}
    types = [{"name": "t", "type": kind}, {"name": "u", "type": ["string", kind]}]
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, *types]}
    data = avro_files.written(schema, [{"id": 1 << 40, "t": 1_500, "u": 1_500}])
    time, union = field("t", "timestamp"), field("u", "json")
    cut, bad = options("avro", nanoseconds="cut"), options("avro")
    [row] = check_replays(tmp_path / "a", cut, data, (*INT32, time, union), (*TEXT, time, union))
    assert (row["t"].microsecond, row["u"]) == (1, '"1970-01-01T00:00:00.000001500Z"')
    assert not check_replays(
        tmp_path / "b", cut, data, (*INT32, time, union), (*TEXT, time, union), bad
    )


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("value", ["rows", "sheet", "text"])
def test_a_row_of_a_table_is_no_header(tmp_path: Path, form: str, value: str) -> None:
    letters = LetterOptions(of=options(form), of_table=True)
    line = json.dumps({"id": 1, "letters": value}).encode()
    rows, _ = ingested(tmp_path, letters, line + b"\n", specs(id="int64", letters="string"))
    assert rows == [{"id": 1, "letters": value}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("decimal128(9, 2)", "1e999990"), ("decimal128(9, 2)", "1.23456"),
        ("timestamp[us]", '"now"'), ("timestamp[us]", '"2024"'),
        ("date32[day]", '"2024-05-06T23:00:00"'),
    ],
)  # fmt: skip
def test_a_value_that_no_letter_has_is_no_value(kind: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"digits|is no"):
        arrow_array(type_of(kind), [parsed(f'{{"v": {value}}}'.encode())["v"]], Room())


@pytest.mark.parametrize("kind", ["bool", "uuid", "string", "date32[day]", "decimal128(9, 2)"])
@pytest.mark.parametrize("is_mixed", [True, False])
def test_nulls_of_all_kinds_share_one_room(
    monkeypatch: pytest.MonkeyPatch, kind: str, is_mixed: bool
) -> None:
    """No type has nulls for nothing, be they all of a column or some of it."""
    monkeypatch.setattr(reading, "_NULL_BYTES", 1 << 20)
    made: dict[str, Any] = {"bool": True, "decimal128(9, 2)": Number("1"), "uuid": str(UUID(int=1))}
    values = [made.get(kind, "2026-05-04")] * is_mixed + [None] * 1_000
    room = reading.Room()
    for _ in range((1 << 20) // (1_000 * (16 if kind == "uuid" else 8))):
        arrow_array(type_of(kind), values, room)
    with pytest.raises(ValueError, match="too wide"):
        arrow_array(type_of(kind), values, room)


def test_null_in_a_wide_column_takes_no_memory() -> None:
    with pytest.raises(ValueError, match="too wide"):
        arrow_array(type_of("fixed_size_binary[199999999]"), [None], Room())


KINDS = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(),
    pa.binary(), pa.binary(2), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"),
    pa.duration("us"), pa.timestamp("s"), pa.timestamp("ns", "Europe/Berlin"),
    pa.timestamp("us", "+01:00"), pa.decimal128(9, 2), pa.decimal256(50, 0), pa.decimal128(9, -2),
    pa.struct([]), pa.struct([("a", pa.int8()), ("a", pa.string())]),
]  # fmt: skip
VALUES: Mapping[str, list[Any]] = {
    "int8": [-128, 127], "uint64": [0, 2**64 - 1], "float": [0.1, float("nan"), -0.0],
    "double": [0.1, float("-inf"), 5e-324], "bool": [True, False], "binary": [b"", b"\xff"],
    "string": ['\u2028"\\', ""], "fixed_size_binary[2]": [b"\0\xff"], "struct<>": [{}],
}  # fmt: skip


def array_of(kind: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        lowest = -(2 ** (kind.bit_width - 1))
        return pa.array([None, lowest, -1, 0, 1, 1_001, -lowest - 1], width).view(kind)
    if pa.types.is_decimal(kind):
        return pa.array([None, Decimal(-700), Decimal(0)], kind)
    if kind == KINDS[-1]:
        parts = [pa.array([1, None], pa.int8()), pa.array(["x", "y"])]
        return pa.StructArray.from_arrays(parts, fields=list(kind))
    return pa.array([None, *VALUES.get(str(kind), [])], kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_values_come_back_whatever_their_type(kind: pa.DataType) -> None:
    plain = array_of(kind)
    lists = pa.ListArray.from_arrays([0, 0, len(plain)], plain)
    structs = pa.StructArray.from_arrays([plain], ["x y"])
    keys = pa.array([str(number) for number in range(len(plain))])
    maps = pa.MapArray.from_arrays([0, len(plain)], keys, plain)
    for array in (plain, lists, structs, maps, plain.slice(1)):
        texts = json_texts_of(array)
        made = type_of(json.loads(json.dumps(type_text(array.type))))
        again = arrow_array(made, [parsed(encoded(text)) for text in texts], Room())
        again.validate()
        assert json_texts_of(again) == texts
        assert "nan" in str(array).lower() or again.equals(array)


def test_text_that_is_no_utf8_comes_back() -> None:
    odd = pa.array([b"\xff\xe0", b"\xed\xa0\x80", None], pa.binary()).view(pa.string())
    values = [parsed(encoded(text)) for text in json_texts_of(odd)]
    again = arrow_array(pa.string(), values, Room())
    assert again.cast(pa.binary()).to_pylist() == odd.cast(pa.binary()).to_pylist()
