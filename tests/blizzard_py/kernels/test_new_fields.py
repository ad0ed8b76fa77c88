"""Fields that no column takes: seen by name, with values where columns are made of them."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.limits import UNEXPECTED_FIELDS, UNEXPECTED_VALUES_BYTES
from blizzard_core.settings.formats import ParquetOptions
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.fast.scanner import scanner
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.formats.ndjson.unexpected import MOST
from blizzard_py.job import FieldSpec, UnexpectedField
from blizzard_py.kernels.report import TaskReport, merged
from blizzard_py.schema.file_types import named_columns
from tests.support.ingest_job_harness import IngestJobHarness, specs

FLAT = specs(id="int64", s="string")
NESTED = (*FLAT, FieldSpec("user", "struct", nullable=True, children=specs(name="string")))


def rows(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def new_fields(world: IngestJobHarness, **how: Any) -> dict[str, UnexpectedField]:
    report = world.run_task(**how)
    assert TaskReport.from_json(report.to_json()) == report
    return {field.name: field for field in report.unexpected}


@pytest.mark.parametrize("fields", [FLAT, NESTED], ids=["flat", "nested"])
@pytest.mark.parametrize("attempt", [0, 1])
def test_a_field_without_a_column_is_reported_with_its_file(
    tmp_path: Path, fields: tuple[FieldSpec, ...], attempt: int
) -> None:
    world = IngestJobHarness(tmp_path, fields)
    world.put("a.ndjson", rows({"id": 1, "s": '"new":'}, {"id": 2}))
    world.put("b.ndjson", rows({"id": 3, "new": 1}, {"id": 4, "New": None}))
    assert new_fields(world, attempt=attempt) == {
        "New": UnexpectedField("New", "b.ndjson"),
        "new": UnexpectedField("new", "b.ndjson"),
    }


@pytest.mark.parametrize("fast", [True, False])
def test_the_fast_path_reports_all_names_the_exact_path_a_sample(*, fast: bool) -> None:
    scanner.cache_clear()  # what another test has had it give up on is none of this one's
    plain = rows(*({"id": n, "s": "x" * 50} for n in range(1000)))
    rare = rows({"id": 7, "s": "y" * 50, "rare": 1})
    chunk = plain[: plain.index(b"\n", 1000) + 1] + rare + plain
    parser = LineParser(RecordSchema(FLAT), fast=fast)
    for _ in range(2):  # the second chunk has no name that was not seen before
        assert parser.parse(chunk).unexpected == ({"rare"} if fast else set())
        common = rows(*({"id": n, "often": n} for n in range(1000)))
        assert parser.parse(common).unexpected == {"often"}
        assert parser.parse(plain).unexpected == frozenset()
    thorough = LineParser(RecordSchema(FLAT), fast=fast, thorough=True)
    assert thorough.parse(chunk).unexpected == {"rare"}
    assert thorough.parse(plain).unexpected == frozenset()


def test_unexpected_nested_names_include_their_path() -> None:
    chunk = rows({"id": 1, "user": {"name": "a", "age": 3}}, {"id": 2, "user": None})
    assert LineParser(RecordSchema(NESTED)).parse(chunk).unexpected == {"user.age"}


@pytest.mark.parametrize("fast", [True, False])
def test_names_of_one_chunk_are_bounded_wherever_they_were_seen(*, fast: bool) -> None:
    scanner.cache_clear()
    many = range(MOST)
    certain = rows(
        *({"id": n, "s": "x" * 500, f"of-a-line-{n}": 1} for n in many),
        *({"id": n, "s": "x" * 500, "user": {f"of-a-struct-{n}": 1}} for n in many),
    )
    # The exact path alone takes exponents.
    handed_over = rows(*({"id": n, "s": "x", f"of-another-{n}": 1e300} for n in many))
    parser = LineParser(RecordSchema(NESTED), fast=fast, thorough=True)
    for chunk, count in (certain, 2 * MOST), (certain + handed_over, 3 * MOST):
        parsed = parser.parse(chunk)
        assert parsed.table.num_rows == count
        assert len(parsed.unexpected) == MOST


def test_capture_and_fail_tell_nothing_since_nothing_is_lost() -> None:
    chunk = rows({"id": 1, "new": 1})
    assert not LineParser(RecordSchema(FLAT, "capture")).parse(chunk).unexpected
    thorough = LineParser(RecordSchema(FLAT, "capture"), thorough=True)
    assert thorough.parse(chunk).unexpected == {"new"}


@pytest.mark.parametrize("fields", [FLAT, NESTED], ids=["flat", "nested"])
def test_lines_that_are_letters_tell_nothing(tmp_path: Path, fields: tuple[FieldSpec, ...]) -> None:
    world = IngestJobHarness(tmp_path, fields, evolves=True, max_bad_fraction=0.6)
    world.put("a.ndjson", rows({"id": 1, "a": 1}, {"id": "bad", "b": 2}))
    world.put("b.ndjson", rows({"id": "bad", "c": 1}, {"id": "bad", "c": 2}, {"id": 1, "d": 1}))
    world.put("c.ndjson", rows({"id": 5}))
    assert new_fields(world) == {"a": UnexpectedField("a", "a.ndjson", ("1",))}


@pytest.mark.parametrize("size", [0, 2 << 20], ids=["small", "large"])
def test_only_values_that_give_a_type_are_reported(tmp_path: Path, size: int) -> None:
    world = IngestJobHarness(tmp_path, FLAT, evolves=True, left_out=("out",))
    world.put(
        "a.ndjson",
        rows(
            {"id": 0, "s": "x" * size, "always": None},
            *({"id": n, "n": n, "out": n, "always": None} for n in range(50)),
            {"id": 1, "n": 1.5, "o": {"a": 1}},
            {"id": 2, "n": None, "o": {"a": 2, "b": [None]}},
            {"id": 3, "n": 2.5, "o": {"b": ["x"]}},
        ),
    )
    found = new_fields(world)
    assert found["n"].values == ("0", "1.5")
    assert found["o"].values == ('{"a": 1}', '{"a": 2, "b": [null]}', '{"b": ["x"]}')
    assert found["always"].values == ()
    assert found.keys() == {"n", "o", "always"}


def test_unexpected_names_are_limited_in_number_and_length(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, FLAT, evolves=True)
    for part in range(3):
        lines = ({"id": n, f"k{part}_{n:03}": n} for n in range(60))
        world.put(f"{part}.ndjson", b"\n" * (2 << 20) + rows(*lines))
    world.put("long.ndjson", rows({"id": 1, "n" * 300: 1}))
    assert len(new_fields(world)) == UNEXPECTED_FIELDS
    assert len(merged([world.run_task(), world.run_task()]).unexpected) == UNEXPECTED_FIELDS


def test_hostile_names_are_cut_and_harm_nobody(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, FLAT)
    names = ["n" * 300, "a\u202eb", 'q"\n', "", "é" * 200, "\U0001f600"]
    world.put("a.ndjson", rows(*({"id": n, name: 1} for n, name in enumerate(names))))
    found = new_fields(world)
    assert found.keys() == {"n" * 255 + "…", "a\u202eb", 'q"\n', "", "é" * 127 + "…", "\U0001f600"}
    assert all(field.path == "a.ndjson" for field in found.values())


def test_unexpected_values_are_limited_in_bytes(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, FLAT, evolves=True)
    half = UNEXPECTED_VALUES_BYTES // 2 + 1
    world.put(
        "a.ndjson", rows({"id": 1, "a": "x" * half}, {"id": 2, "b": "y" * half}, {"id": 3, "c": 1})
    )
    found = new_fields(world)
    assert {name: len(field.values) for name, field in found.items()} == {"a": 1, "b": 0, "c": 1}


PARQUET = ParquetOptions(type="parquet")


def parquet(columns: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target)
    return target.getvalue()


@pytest.mark.parametrize("attempt", [0, 1])
def test_types_that_files_name_are_reported(tmp_path: Path, attempt: int) -> None:
    world = IngestJobHarness(tmp_path, FLAT, evolves=True, format=PARQUET, left_out=("out",))
    struct = pa.array([{"b": 1, "a": [Decimal("1.5")]}])
    world.put("a.parquet", parquet({"id": [1], "z": struct, "out": [1], "n": pa.nulls(1)}))
    world.put("b.parquet", parquet({"id": [2], "y": pa.array([1], pa.int8()), "l": [[None]]}))
    world.put("c.parquet", parquet({"id": [3], "y": ["x"], "n": [dt.date(2024, 5, 6)]}))
    world.put("d.parquet", parquet({"id": ["no"], "of_a_letter": [1]}))
    found = new_fields(world, attempt=attempt)
    assert list(found) == ["z", "n", "y", "l"]
    assert found["z"].types == named("z", struct.type)
    assert found["n"] == UnexpectedField("n", "a.parquet", (), specs(n="date"))
    assert found["y"].types == (*specs(y="int32"), *specs(y="string"))
    assert found["l"] == UnexpectedField("l", "b.parquet", ("[null]",))


def named(name: str, kind: pa.DataType) -> tuple[FieldSpec | None, ...]:
    return (named_columns({name: kind})[name],)


def test_all_columns_of_a_file_are_reported_in_its_order(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, FLAT, evolves=True, format=PARQUET)
    names = [f"c{number}" for number in range(UNEXPECTED_FIELDS + 5, 0, -1)]
    world.put("a.parquet", parquet({"id": [1], **{name: [1] for name in names}}))
    assert list(new_fields(world)) == names[:UNEXPECTED_FIELDS]


def test_types_of_tasks_are_reported_once() -> None:
    def report(task: int, *types: FieldSpec | None) -> TaskReport:
        fields = (UnexpectedField("a", "x", types=types),)
        return TaskReport(task, (), (), unexpected=fields)

    [wide], [text] = specs(a="int64"), specs(a="string")
    [found] = merged([report(0, wide), report(1, None), report(2, wide, text)]).unexpected
    assert found.types == (wide, None, text)


def test_reports_of_tasks_become_one_of_each_field() -> None:
    one = TaskReport(0, (), (), unexpected=(UnexpectedField("a", "x", ("1",)),))
    two = TaskReport(1, (), (), unexpected=(UnexpectedField("a", "y", ("1.5",)),))
    assert merged([two, one]).unexpected == (UnexpectedField("a", "x", ("1", "1.5")),)
