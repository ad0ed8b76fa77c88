"""Row groups that are copied: equal to decoded ones, and decoded in doubt."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.limits import COPIED_ENTRY_BYTES
from blizzard_core.settings.formats import ParquetOptions
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import listed
from blizzard_core.table.schema_fit import delta_schema
from blizzard_core.threads import INLINE
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.formats.columnar import copying
from blizzard_py.job import FieldSpec, PartitionRule, SortKey
from blizzard_py.kernels.report import TaskReport
from penguin_py.intake.file_statistics import file_statistics
from penguin_py.intake.footers import read_footers
from tests.support.direct_engine import DirectEngine
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.thrift_tree import Tree, edited

COPY, DECODE = (ParquetOptions(type="parquet", row_groups=mode) for mode in ("copy", "decode"))
ALL = "of 2 row groups were copied"
FIELDS = (
    FieldSpec("id", "int64", nullable=False),
    *specs(text="string", raw="binary", part="float64", count="int32", ok="boolean"),
    *specs(at="timestamp", day="date"),
    FieldSpec("price", "decimal", nullable=True, precision=20, scale=4),
    FieldSpec("tags", "list", nullable=True, children=specs(element="string")),
    FieldSpec("map", "map", nullable=True, children=specs(value="int64")),
    FieldSpec("where", "struct", nullable=True, children=specs(x="int32", y="float32")),
)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("part", pa.float64()),
        ("count", pa.int32()),
        ("ok", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(20, 4)),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("where", pa.struct([("x", pa.int32()), ("y", pa.float32())])),
    ]
)
SIMPLE = specs(id="int64", at="timestamp", part="float64")


@pytest.fixture(autouse=True)
def small_groups_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LEAST_BYTES", 64)


def table(count: int = 60, *, seed: int = 1) -> pa.Table:
    draw = random.Random(seed)

    def some(value: Any) -> Any:
        return None if draw.random() < 0.2 else value

    rows = [
        {
            "id": seed * 1000 + number,
            "text": some(f"text {draw.randint(0, 9)}"),
            "raw": some(draw.randbytes(9)),
            "part": some(draw.random()),
            "count": some(draw.randint(-9, 9)),
            "ok": some(draw.random() < 0.5),
            "at": some(dt.datetime(2024, 1, 2, 3, draw.randint(0, 59), tzinfo=dt.UTC)),
            "day": some(dt.date(2024, 1, draw.randint(1, 31))),
            "price": some(Decimal(draw.randint(-(10**9), 10**9)).scaleb(-4)),
            "tags": some([some("t"), "u"][: draw.randint(0, 2)]),
            "map": some([("k", some(1))]),
            "where": some({"x": some(1), "y": some(0.5)}),
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def simple(**columns: pa.Array) -> pa.Table:
    at = pa.array([dt.datetime(2024, 1, 2, tzinfo=dt.UTC)] * 8, pa.timestamp("us", "UTC"))
    return pa.table({"id": range(8), "at": at, "part": [0.5] * 8, **columns})


def written(rows: pa.Table, **way: Any) -> bytes:
    target = io.BytesIO()
    half = max(1, rows.num_rows // 2)
    pq.write_table(rows, target, **{"row_group_size": half, **way})
    return target.getvalue()


def harness(root: Path, form: ParquetOptions = COPY, **given: Any) -> IngestJobHarness:
    return IngestJobHarness(root, format=form, **{"fields": FIELDS, **given})


def story(report: TaskReport, path: str = "a.parquet") -> str:
    return by_path(report)[path].row_groups


def statistics(world: IngestJobHarness, report: TaskReport) -> list[Any]:
    """Return what Penguin writes of the outputs. It must accept them."""
    staged = {output.staged: output for output in report.outputs}
    storage = LocalStorage(str(world.table))
    entries = [e for e in listed(storage, "_blizzard/", "_blizzard0") if e.path in staged]
    found = read_footers(storage, entries, INLINE)
    assert (found.rejected, found.failed, len(found.sound)) == ((), (), len(staged))
    for footer in found.sound:
        output = staged[footer.entry.path]
        assert (footer.metadata.num_rows, footer.entry.size) == (output.rows, output.size)
        assert footer.output_id == output.output_id
    form = delta_schema(SCHEMA)
    texts = [file_statistics(each.metadata, each.schema, form) for each in found.sound]
    return [json.loads(text) for text in texts]


def both(root: Path, data: bytes, **given: Any) -> tuple[TaskReport, Any]:
    """Ingest a file both ways, compare all that comes out, and return the copy's report."""
    reports = []
    results = []
    for form in (COPY, DECODE):
        world = harness(root / form.row_groups, form, **given)
        world.put("a.parquet", data)
        report = world.run_task()
        files = by_path(report)["a.parquet"]
        results.append((world.rows(report), files.rows, files.bad_rows, statistics(world, report)))
        reports.append(report)
    (rows, count, bad, found), decoded = results
    assert [repr(row) for row in rows] == [repr(row) for row in decoded[0]]
    assert (count, bad) == decoded[1:3]
    assert reports[1].files[0].row_groups == ""
    return reports[0], (found, decoded[3])


WAYS: dict[str, dict[str, Any]] = {
    "snappy": {},
    "zstd": {"compression": "zstd", "use_dictionary": False},
    "gzip": {"compression": "gzip", "write_page_index": True},
    "none": {"compression": "none", "store_schema": False},
    "pages": {"data_page_version": "2.0", "data_page_size": 64, "write_page_checksum": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_copied_groups_equal_decoded_ones(tmp_path: Path, way: str) -> None:
    report, (found, expected) = both(tmp_path, written(table(), **WAYS[way]))
    assert story(report) == f"2 {ALL}"
    assert found == expected
    assert found[0]["minValues"]["part"] > 0
    path = tmp_path / "copy/table" / report.outputs[0].staged
    query = f"SELECT count(*), sum(id), count(text), max(\"at\") FROM '{path}'"  # ours
    decoded = next((tmp_path / "decode/table").rglob("*.parquet"))
    with duckdb.connect() as connection:
        found = connection.execute(query).fetchall()
        assert found == connection.execute(query.replace(str(path), str(decoded))).fetchall()
    assert pl.read_parquet(path).height == 60


def by_duckdb(target: Path, rows: pa.Table) -> None:
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        connection.execute(f"COPY rows TO '{target}' (FORMAT parquet)")


def by_polars(target: Path, rows: pa.Table) -> None:
    pl.DataFrame(rows).write_parquet(target, compression="snappy")


@pytest.mark.parametrize("write", [by_duckdb, by_polars])
def test_files_of_other_writers_are_copied(
    tmp_path: Path, write: Callable[[Path, pa.Table], None]
) -> None:
    write(tmp_path / "a.parquet", table().drop_columns(["map", "price", "part"]))
    fields = [field for field in FIELDS if field.name not in {"map", "price", "part"}]
    fields[0] = FieldSpec("id", "int64", nullable=False)
    data = (tmp_path / "a.parquet").read_bytes()
    report, (found, expected) = both(tmp_path, data, fields=tuple(fields))
    assert story(report) == "1 of 1 row groups were copied"
    assert found == expected


def test_files_of_spark_are_copied_and_spark_reads_them(
    tmp_path: Path, spark_engine: SparkEngine
) -> None:
    spark = spark_engine.session()
    frame = (
        spark.range(1000)
        .selectExpr("nullif(id, -1) id")
        .selectExpr("id", "cast(id as string) text", "id / 7 part", "timestamp_micros(id) at")
    )
    conf = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(conf, "TIMESTAMP_MICROS")
    frame.coalesce(1).write.parquet(str(tmp_path / "spark"))
    spark.conf.unset(conf)
    [path] = (tmp_path / "spark").glob("*.parquet")
    fields = specs(id="int64", text="string", part="float64", at="timestamp")
    report, (found, expected) = both(tmp_path, path.read_bytes(), fields=fields)
    assert story(report) == "1 of 1 row groups were copied"
    assert found == expected
    copied = spark.read.parquet(str(tmp_path / "copy/table" / report.outputs[0].staged))
    # Filters use the statistics, and what they leave must be all that fits.
    assert copied.filter("text = '999' AND part > 142").count() == 1
    assert copied.exceptAll(frame).count() == 0


def test_nan_is_known_by_its_row_group(tmp_path: Path) -> None:
    rows = table(60).to_pylist()
    rows[5]["part"] = float("nan")
    rows[50]["where"] = {"x": 1, "y": float("nan")}
    changed = pa.Table.from_pylist(rows, SCHEMA)
    report, (found, expected) = both(tmp_path, written(changed))
    assert story(report) == f"2 {ALL}"
    assert found == expected
    assert "minValues" not in found[0]


JOBS: list[tuple[dict[str, Any], str]] = [
    ({"transform": "SELECT * FROM source"}, "transform needs the rows"),
    ({"deduplicate_by": ("id",)}, "deduplicate_by needs the rows"),
    ({"metadata": ("_source_line",)}, "rows get _source_line"),
    ({"sort_by": (SortKey("id"),)}, "sink.sort_by sorts the rows"),
    ({"rules": (PartitionRule("text", key="text"),)}, "decides the directory of each row"),
    ({"unexpected_fields": "capture"}, "unexpected_fields: capture adds a column"),
    ({"fields": (*FIELDS[:1], *specs(text="json"))}, "column 'text' is json"),
    (
        {
            "fields": (
                FieldSpec(
                    "s",
                    "struct",
                    nullable=True,
                    children=(FieldSpec("x", "int32", nullable=False),),
                ),
            )
        },
        "column 's' has 'x' in it, which is required",
    ),
]


@pytest.mark.parametrize(("given", "why"), JOBS, ids=[why for _, why in JOBS])
def test_settings_that_need_rows_decode(tmp_path: Path, given: dict[str, Any], why: str) -> None:
    rows = table().drop_columns(["text"]).append_column("text", pa.array(['"x"'] * 60))
    rows = rows.append_column("s", pa.array([{"x": 1}] * 60, pa.struct([("x", pa.int32())])))
    world = harness(tmp_path, **given)
    world.put("a.parquet", written(rows))
    report = world.run_task()
    assert story(report).startswith("all row groups were decoded: ")
    assert why in story(report)
    assert by_path(report)["a.parquet"].rows == len(world.rows(report)) == 60


def changed(edit: Callable[[Tree], object], **way: Any) -> bytes:
    return edited(written(simple(), **way), edit)


def chunk(tree: Tree, group: int = 1, column: int = 0) -> Tree:
    return tree[4][1][1][group][1][1][1][column]


def stats(tree: Tree, column: int, **values: Any) -> None:
    """Change the statistics of the second row group: ``low``, ``high`` and ``nulls``."""
    found = chunk(tree, column=column)[3][1][12][1]
    for name, value in values.items():
        number = {"low": 6, "high": 5, "nulls": 3}[name]
        found[number] = (6 if name == "nulls" else 8, value)


def typed(kind: pa.DataType, name: str = "id", **way: Any) -> bytes:
    rows = simple()
    at = rows.schema.get_field_index(name)
    return written(rows.set_column(at, name, rows.column(name).cast(kind)), **way)


YEAR_10000 = (253_402_300_800 * 10**6).to_bytes(8, "little")
NEEDED = (FieldSpec("id", "int64", nullable=False), *SIMPLE[1:])
NESTED = (FieldSpec("l", "list", nullable=True, children=specs(element="int64")),)
DIGITS = (FieldSpec("d", "decimal", nullable=True, precision=9, scale=2),)
LISTS = pa.table({"l": [[1], [2]]})
# Data, fields and what is said of it. In the upper ones no group is copied, in others the first.
BROKEN: dict[str, tuple[bytes, tuple[FieldSpec, ...], str]] = {
    "more columns": (written(simple(x=[1] * 8)), SIMPLE, "the columns are not those of the table"),
    "fewer columns": (written(simple().drop_columns(["at"])), SIMPLE, "id, part, not id, at, part"),
    "order": (written(simple().select(["at", "id", "part"])), SIMPLE, "at, id, part, not id"),
    "int32": (typed(pa.int32()), SIMPLE, "column 'id' is int32, not int64"),
    "unsigned": (typed(pa.uint64()), SIMPLE, "column 'id' is uint64, not int64"),
    "float32": (typed(pa.float32(), "part"), SIMPLE, "column 'part' is float, not double"),
    "milliseconds": (typed(pa.timestamp("ms", "UTC"), "at"), SIMPLE, "timestamp[ms, tz=UTC], not"),
    "nanoseconds": (typed(pa.timestamp("ns", "UTC"), "at"), SIMPLE, "timestamp[ns, tz=UTC], not"),
    "no zone": (typed(pa.timestamp("us"), "at"), SIMPLE, "'at' is timestamp[us], not"),
    "int96": (written(simple(), use_deprecated_int96_timestamps=True), SIMPLE, "timestamp[ns]"),
    "stored digits": (
        written(pa.table({"d": pa.array([Decimal("1.50")] * 2, pa.decimal128(9, 2))}),
                store_decimal_as_integer=True),
        DIGITS,
        "column 'd' is stored in another way",
    ),
    "names in lists": (
        written(LISTS, use_compliant_nested_type=False), NESTED, "column 'l' is"
    ),
    "required": (
        written(simple().cast(pa.schema([f.with_nullable(False) for f in simple().schema]))),
        SIMPLE,
        "column 'id' is required in the file; declare it with nullable: false",
    ),
    "json": (
        written(pa.table({"t": pa.array(["1"] * 4, pa.json_())})), specs(t="string"),
        "column 't' is",
    ),
    "no orders": (changed(lambda tree: tree.pop(7)), SIMPLE, "bounds that"),
    "old writer": (
        changed(lambda tree: tree.update({6: (8, b"parquet-cpp version 1.5.1-SNAPSHOT")})),
        SIMPLE,
        "the bounds that parquet-cpp version 1.5.1-SNAPSHOT wrote are unsafe",
    ),
    "calendar": (
        changed(lambda tree: tree.update({6: (8, b"parquet-mr version 1.12.0")})),
        SIMPLE,
        "datetime_rebase_mode: corrected",
    ),
    "note": (
        written(simple().replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})),
        SIMPLE,
        "Julian",
    ),
    "codec": (written(simple(), compression="brotli"), SIMPLE, "the footer is refused: column"),
    "elsewhere": (
        changed(lambda tree: chunk(tree).update({1: (8, b"x")})), SIMPLE, "data in another file"
    ),
    "unknown": (
        changed(lambda tree: chunk(tree)[3][1].update({40: (6, 9)})), SIMPLE, "unknown field 40"
    ),
    "nulls": (written(simple(id=[*range(7), None])), NEEDED, "'id' is required, and nulls in it"),
    "no nulls known": (
        changed(lambda tree: chunk(tree)[3][1][12][1].pop(3)), NEEDED, "column 'id' is required"
    ),
    "no statistics": (written(simple(), write_statistics=["at", "part"]), SIMPLE, "'id' has no"),
    "no bounds": (
        changed(lambda tree: [chunk(tree, column=1)[3][1][12][1].pop(n) for n in (5, 6)]),
        SIMPLE,
        "column 'at' has no statistics",
    ),
    "year": (
        changed(lambda tree: stats(tree, 1, high=YEAR_10000)), SIMPLE, "a year beyond 1 to 9999"
    ),
    "long statistics": (
        edited(
            written(pa.table({"t": [f"text {n}" for n in range(80)]})),
            lambda tree: stats(tree, 0, high=b"y" * COPIED_ENTRY_BYTES),
        ),
        specs(t="string"),
        "its statistics have more than 1024 KiB",
    ),
    "overlap": (
        changed(lambda tree: tree[4][1][1].__setitem__(1, tree[4][1][1][0])),
        SIMPLE,
        "it overlaps another one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_condition_decodes(tmp_path: Path, name: str) -> None:
    data, fields, why = BROKEN[name]
    report, _ = both(tmp_path, data, fields=fields)
    assert why in story(report)
    assert "were decoded: " in story(report) or story(report).startswith(("0 of ", "1 of 2 "))


def test_only_large_groups_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = [random.Random(number).randbytes(1000) for number in range(1600)]
    fields = specs(id="int64", raw="binary")
    rows = pa.table({"id": range(1600), "raw": noise})
    data = written(rows, row_group_size=1500, use_dictionary=False)
    monkeypatch.undo()  # the real size
    report, _ = both(tmp_path / "real", data, fields=fields)
    why = "row group 2 was decoded: it has 0.10 MB; groups of 1 MB or more are copied"
    assert story(report) == f"1 {ALL}; {why}"
    assert sorted(output.rows for output in report.outputs) == [100, 1500]
    report, _ = both(tmp_path / "full", data, fields=fields, file_bytes=1 << 20)
    assert "row group 1 was decoded: it has 1 MB, more than advanced.file_size_mb" in story(report)


def mixed(*groups: pa.Table) -> bytes:
    target = io.BytesIO()
    with pq.ParquetWriter(target, groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group)
    return target.getvalue()


def nulls(start: int) -> pa.Table:
    """Return a row group whose first column is not proven to have no null."""
    return pa.table({"id": [start, None, start + 1], "note": ["a", "b", "c"]})


def full(start: int, count: int = 5) -> pa.Table:
    return pa.table({"id": range(start, start + count), "note": ["x"] * count})


ID_AND_NOTE = (FieldSpec("id", "int64", nullable=False), *specs(note="string"))


@pytest.mark.parametrize("attempt", [0, 1, 2])
@pytest.mark.parametrize("threads", [1, 3])
def test_letters_of_decoded_groups_count_copied_rows(
    tmp_path: Path, attempt: int, threads: int
) -> None:
    world = harness(tmp_path, fields=ID_AND_NOTE)
    world.put("a.parquet", mixed(full(1), full(6), nulls(20), full(11), nulls(30)))
    report = world.run_task(attempt=attempt, threads=threads)
    assert [letter["line"] for letter in world.letters(report)] == [12, 20]
    assert world.ids(report) == [*range(1, 16), 20, 21, 30, 31]
    found = by_path(report)["a.parquet"]
    assert (found.rows, found.bad_rows) == (19, 2)
    assert found.row_groups == (
        "3 of 5 row groups were copied; row group 3 was decoded: column 'id' is required, and"
        " nulls in it are not ruled out"
    )


@pytest.mark.parametrize("file_bytes", [128 << 20, 3000])
def test_nothing_of_a_file_that_fails_is_there(tmp_path: Path, file_bytes: int) -> None:
    """Its copied groups are in an output with others, or fill outputs of their own."""
    world = harness(tmp_path, fields=ID_AND_NOTE, file_bytes=file_bytes, max_bad_fraction=0.001)
    world.put("a.parquet", mixed(full(1, 50)))
    world.put("b.parquet", mixed(full(100, 500), full(700, 100), nulls(990)))
    world.put("c.parquet", mixed(full(1000, 50)))
    report = world.run_task()
    assert [file.outcome for file in report.files] == ["ingested", "quarantined", "ingested"]
    assert world.ids(report) == [*range(1, 51), *range(1000, 1050)]
    assert sum(output.rows for output in report.outputs) == 100
    assert {output.staged for output in report.outputs} == world.staged()


def test_a_failed_file_alone_leaves_no_output(tmp_path: Path) -> None:
    world = harness(tmp_path, fields=ID_AND_NOTE, max_bad_fraction=0)
    world.put("a.parquet", mixed(full(1), nulls(9)))
    report = world.run_task()
    assert (report.outputs, world.staged()) == ((), set())


def test_groups_fill_outputs_of_one_directory(tmp_path: Path) -> None:
    partitions = {f"{name}.parquet": f"day={name[0]}" for name in ("1a", "1b", "2a")}
    world = harness(tmp_path, fields=ID_AND_NOTE, partitions=partitions, file_bytes=3000)
    for number, name in enumerate(partitions):
        world.put(name, mixed(*(full(number * 1000 + at, 40) for at in range(0, 400, 40))))
    report = world.run_task()
    assert world.ids(report) == [*range(400), *range(1000, 1400), *range(2000, 2400)]
    rows: dict[str, int] = {}
    for output in report.outputs:
        rows[output.partition] = rows.get(output.partition, 0) + output.rows
    assert rows == {"day=1": 800, "day=2": 400}
    assert len(report.outputs) > 3
    assert all(
        pq.read_metadata(world.table / output.staged).num_row_groups > 1
        for output in report.outputs
    )


def test_long_footers_are_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.kernels.row_groups._ENTRIES_BYTES", 1000)
    world = harness(tmp_path, fields=ID_AND_NOTE)
    world.put("a.parquet", mixed(*(full(at, 40) for at in range(0, 400, 40))))
    report = world.run_task()
    assert world.ids(report) == list(range(400))
    assert len(report.outputs) > 1
    statistics(world, report)


def test_a_file_that_changes_while_it_is_copied_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.lines.source.WHOLE_BYTES", 0)  # read in ranges
    world = harness(tmp_path, fields=ID_AND_NOTE)
    world.put("a.parquet", mixed(full(1)))
    real = LocalStorage.read_range

    def and_touch(self: LocalStorage, path: str, start: int, end: int) -> bytes:
        data = real(self, path, start, end)
        os.utime(world.source / "a.parquet", (1, 1))
        return data

    monkeypatch.setattr(LocalStorage, "read_range", and_touch)
    report = world.run_task()
    assert [(file.outcome, file.stage) for file in report.files] == [("retry", "read")]
    assert (report.outputs, world.staged()) == ((), set())


def test_a_footer_with_other_rows_than_pages_is_quarantined(tmp_path: Path) -> None:
    world = harness(tmp_path, fields=SIMPLE)

    def claim(tree: Tree) -> None:
        tree[3] = (6, 9)
        tree[4][1][1][1][3] = (6, 5)
        for column in range(3):
            chunk(tree, column=column)[3][1][5] = (6, 5)

    world.put("a.parquet", changed(claim))
    report = world.run_task()
    assert by_path(report)["a.parquet"].outcome == "quarantined"
    assert report.outputs == ()


def test_copied_and_decoded_outputs_merge(tmp_path: Path) -> None:
    """A required column is nullable in copied files, so both kinds are not joined."""
    world = harness(tmp_path, fields=ID_AND_NOTE)
    world.put("a.parquet", mixed(full(1)))
    world.put("b.parquet", mixed(full(10), nulls(20)))
    result = world.ingest(engine=DirectEngine())
    assert [output.rows for output in result.outputs] == [12]
    assert world.ids(result) == [*range(1, 6), *range(10, 15), 20, 21]


def test_random_footers_cost_only_their_file(tmp_path: Path) -> None:
    """Penguin takes what is copied of them, and rows of a good file in the same output."""
    data, good = written(table()), written(table(20, seed=3))
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    outcomes = set()
    for seed in range(60):
        draw, changed_data = random.Random(seed), bytearray(data)
        changed_data[draw.randrange(footer, len(data) - 4)] ^= 1 << draw.randrange(8)
        world = harness(tmp_path / str(seed))
        world.put("a.parquet", bytes(changed_data))
        world.put("b.parquet", good)
        report = world.run_task()
        statistics(world, report)
        files = by_path(report)
        assert files["b.parquet"].rows == 20
        outcomes.add((files["a.parquet"].outcome, story(report)[:1]))
    assert ("ingested", "2") in outcomes
    assert "quarantined" in {outcome for outcome, _ in outcomes}
