"""INT96 times of Parquet files through whole tasks."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.settings.formats import ParquetOptions
from blizzard_py.formats.columnar import rows as columnar_rows
from blizzard_py.formats.columnar.int96 import from_texts
from blizzard_py.formats.names import format_of
from blizzard_py.job import FieldSpec
from blizzard_py.kernels.report import TaskReport
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.int96 import DAY_NANOS, DAY_OF_1970, STORED, int96_file, stored

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LAST = (dt.date.max - dt.date(1970, 1, 1)).days
FIRST = (dt.date.min - dt.date(1970, 1, 1)).days
T = specs(t="timestamp")[0]
IMPOSSIBLE = {
    "below a day": stored(19_000, -1000),
    "a whole day": stored(19_000, DAY_NANOS),
    "three days": stored(19_000, 3 * DAY_NANOS + 5000),
    "beyond 64 bits": stored(213_503_982),
    "wrapped": stored(-(1 << 31) - DAY_OF_1970),
    "the highest": b"\xff" * 7 + b"\x7f" + b"\xff" * 3 + b"\x7f",
}


def world(root: Path, *fields: FieldSpec, **given: Any) -> IngestJobHarness:
    form = ParquetOptions(type="parquet", **given)
    return IngestJobHarness(root, fields=fields, metadata=("_source_line",), format=form)


def one_column(*values: bytes | None) -> pa.Table:
    return pa.table({"t": pa.array(values, STORED)})


def run(harness: IngestJobHarness, data: bytes) -> TaskReport:
    harness.put("a.parquet", data)
    return harness.run_task()


def letters(harness: IngestJobHarness, report: TaskReport) -> dict[int, tuple[Any, str]]:
    found = harness.letters(report)
    return {each["line"]: (json.loads(each["raw"]), each["error"]) for each in found}


@pytest.mark.parametrize("nanoseconds", ["bad", "cut"])
def test_far_dates_and_nanoseconds_are_read_together(tmp_path: Path, nanoseconds: str) -> None:
    values = [stored(LAST, DAY_NANOS - 1000), stored(0, 1001), None, stored(FIRST), stored(-1, 999)]
    harness = world(tmp_path, T, nanoseconds=nanoseconds)
    report = run(harness, int96_file(one_column(*values)))
    first = dt.datetime.min.replace(tzinfo=dt.UTC)
    last = dt.datetime.max.replace(tzinfo=dt.UTC)
    kept = {1: last, 3: None, 4: first}
    cut = {2: EPOCH + dt.timedelta(microseconds=1), 5: EPOCH - dt.timedelta(days=1)}
    expected = kept if nanoseconds == "bad" else kept | cut
    assert {row["_source_line"]: row["t"] for row in harness.rows(report)} == expected
    found = letters(harness, report)
    assert set(found) == {1, 2, 3, 4, 5} - set(expected)
    for line, digits in {2: "00:00:00.000001001", 5: "00:00:00.000000999"}.items():
        if line in found:
            record, why = found[line]
            assert record["t"].endswith(digits)
            assert "has nanoseconds" in why


@pytest.mark.parametrize("value", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
@pytest.mark.parametrize("nanoseconds", ["bad", "cut"])
@pytest.mark.parametrize("kind", ["timestamp", "string", "date", "json"])
def test_an_impossible_value_is_one_bad_record(
    tmp_path: Path, value: bytes, nanoseconds: str, kind: Any
) -> None:
    harness = world(tmp_path, *specs(t=kind), nanoseconds=nanoseconds)
    report = run(harness, int96_file(one_column(stored(1), value, None)))
    assert [row["_source_line"] for row in harness.rows(report)] == [1, 3]
    [(line, (record, why))] = letters(harness, report).items()
    assert line == 2
    assert "no such time" in why
    day, nanos = map(int, record["t"].split())
    assert stored(day - DAY_OF_1970, nanos) == value


def test_letters_come_again_as_the_times_that_are_stored(tmp_path: Path) -> None:
    fields = (T, *specs(s="string"), FieldSpec("l", "list", nullable=True, children=(T,)))
    values = pa.array([IMPOSSIBLE["three days"], stored(0, 1001), stored(LAST, 999)], STORED)
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], values)
    harness = world(tmp_path, *fields)
    report = run(harness, int96_file(pa.table({"t": values, "s": values, "l": lists})))
    found = harness.dead_letters(report)
    for nanoseconds, count in ("bad", 0), ("cut", 2):
        form = format_of(ParquetOptions(type="parquet", nanoseconds=nanoseconds))
        again = IngestJobHarness(tmp_path / nanoseconds, fields, format=form.replay_settings())
        [content] = form.replay_contents(found)
        report = run(again, content)
        direct = world(tmp_path / f"{nanoseconds}d", *fields, nanoseconds=nanoseconds)
        direct.metadata = ()
        expected = direct.rows(run(direct, (harness.source / "a.parquet").read_bytes()))
        assert again.rows(report) == expected
        assert len(expected) == count
        bad = [(each.error, each.raw) for each in again.dead_letters(report)]
        assert bad == [(each.error, each.raw) for each in found][: 3 - count]


SHAPES = [
    {},
    {"use_dictionary": False},
    {"data_page_version": "2.0", "compression": "zstd"},
    {"row_group_size": 70, "data_page_size": 200},
]


@pytest.mark.parametrize("given", SHAPES, ids=str)
@pytest.mark.parametrize("nanoseconds", ["bad", "cut"])
def test_values_at_any_depth_are_exact(
    tmp_path: Path, given: dict[str, Any], nanoseconds: str
) -> None:
    chance = random.Random(96)

    def value() -> bytes | None:
        kind = chance.randrange(60)
        if kind == 0:
            return chance.choice(list(IMPOSSIBLE.values()))
        digits = chance.randrange(1000) if kind == 1 else 0
        nanos = chance.randrange(DAY_NANOS // 1000) * 1000 + digits
        return None if kind < 10 else stored(chance.randint(FIRST, LAST), nanos)

    rows = [
        {
            "id": row,
            "t": value(),
            "l": [{"t": value()} for _ in range(chance.randrange(3))] or None,
            "m": [(str(n), value()) for n in range(chance.randrange(3))],
            "s": chance.choice([None, {"t": value(), "n": 1}]),
        }
        for row in range(200)
    ]
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("t", STORED),
            ("l", pa.list_(pa.struct([("t", STORED)]))),
            ("m", pa.map_(pa.string(), STORED)),
            ("s", pa.struct([("t", STORED), ("n", pa.int64())])),
        ]
    )
    record = FieldSpec("s", "struct", nullable=True, children=(T, *specs(n="int64")))
    item = FieldSpec("e", "struct", nullable=True, children=(T,))
    fields = (
        *specs(id="int64"),
        T,
        FieldSpec("l", "list", nullable=True, children=(item,)),
        FieldSpec("m", "map", nullable=True, children=(T,)),
        record,
    )
    harness = world(tmp_path, *fields, nanoseconds=nanoseconds)
    report = run(harness, int96_file(pa.Table.from_pylist(rows, schema), **given))
    expected = []
    for row in rows:
        try:
            expected.append(_read(row, cuts=nanoseconds == "cut"))
        except ValueError:
            continue
    found = [{**row, "m": list(row["m"])} for row in harness.rows(report)]
    assert 100 < len(found) < 200
    assert [{name: row[name] for name in schema.names} for row in found] == expected
    bad = {row["id"] for row in rows} - {row["id"] for row in expected}
    assert {record["id"] for record, _ in letters(harness, report).values()} == bad


def _read(value: Any, *, cuts: bool) -> Any:
    """Return a value with its times, by plain arithmetic. Raises `ValueError` for a bad one."""
    if isinstance(value, bytes):
        nanos = int.from_bytes(value[:8], "little", signed=True)
        day = int.from_bytes(value[8:], "little", signed=True) - DAY_OF_1970
        if not 0 <= nanos < DAY_NANOS or not FIRST <= day <= LAST or (nanos % 1000 and not cuts):
            raise ValueError
        return EPOCH + dt.timedelta(days=day, microseconds=nanos // 1000)
    if isinstance(value, dict):
        return {name: _read(inner, cuts=cuts) for name, inner in value.items()}
    if isinstance(value, list):
        return [_read(inner, cuts=cuts) for inner in value]
    return (value[0], _read(value[1], cuts=cuts)) if isinstance(value, tuple) else value


def test_captured_values_are_times(tmp_path: Path) -> None:
    harness = world(tmp_path, *specs(id="int64"))
    harness.unexpected_fields = "capture"
    values = pa.array([stored(1), stored(LAST), IMPOSSIBLE["a whole day"]], STORED)
    report = run(harness, int96_file(pa.table({"id": [1, 2, 3], "t": values})))
    texts = [json.loads(row["_rescued"])["t"][:10] for row in harness.rows(report)]
    assert texts == ["1970-01-02", "9999-12-31"]
    assert list(letters(harness, report)) == [3]


def test_columns_of_twelve_bytes_stay_bytes(tmp_path: Path) -> None:
    """Real bytes beside INT96, in one file."""
    table = pa.table(
        {"t": pa.array([stored(0)], STORED), "b": pa.array([b"x" * 11], pa.binary(11))}
    )
    harness = world(tmp_path, T, *specs(b="binary"))
    data = int96_file(table)
    [row] = harness.rows(run(harness, data))
    assert (row["t"], row["b"]) == (EPOCH, b"x" * 11)


def test_a_damaged_file_costs_only_itself(tmp_path: Path) -> None:
    """Each byte of a small file changed: the process that decodes never dies, nor does the task."""
    data = int96_file(one_column(*[stored(n, n) for n in range(50)]))
    harness = world(tmp_path, T)
    columnar_rows.end_idle()
    chance = random.Random(3)
    for number in range(60):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        harness.put(f"{number}.parquet", bytes(changed))
    harness.put("z.parquet", int96_file(one_column(stored(7))))
    outcomes = by_path(harness.run_task())
    assert outcomes["z.parquet"].rows == 1
    assert {each.outcome for each in outcomes.values()} <= {"ingested", "quarantined"}


@pytest.mark.parametrize(
    "text",
    ["2024-01-02T03:04:05.5", "2024-01-02T03:04:05", "x", "1 2 3", "2024-13-02T03:04:05.000000001"],
)
def test_a_text_that_no_letter_has_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"INT96|Month"):
        from_texts(pa.array([text]), [True])
