"""Files joined as they are: read as if written anew by every reader, and refused in doubt."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.handover.outputs import NAN_COLUMNS_KEY, nan_columns_of
from blizzard_core.storage.local import LocalStorage
from blizzard_core.table.footer_check import FooterCheck
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.job import OutputLayout
from blizzard_py.kernels.write.joined_file import JoinedFile
from blizzard_py.kernels.write.parquet_file import ParquetFormat
from tests.support.thrift_tree import Tree, edited

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("yes", pa.bool_()),
        pa.field("part", pa.float64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(20, 4)),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("where", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.float32())])),
        pa.field("told", pa.map_(pa.string(), pa.int64())),
    ]
)
# What writers leave between and behind pages, whose places stand in the footer as well.
WAYS: list[dict[str, Any]] = [
    {"compression": "snappy"},
    {"compression": "zstd", "use_dictionary": False},
    {"compression": "none", "row_group_size": 7},
    {"compression": "gzip", "write_page_index": True, "row_group_size": 30},
    {"compression": "snappy", "data_page_version": "2.0", "write_page_checksum": True},
    {"compression": "snappy", "data_page_size": 64, "write_statistics": False},
    {"compression": "snappy", "row_group_size": 1},  # more groups than a short list has
]


def rows(seed: int, count: int) -> pa.Table:
    draw = random.Random(seed)

    def some(value: Callable[[], Any]) -> Any:
        return None if draw.random() < 0.2 else value()

    found = [
        {
            "id": seed * 1000 + n,
            "name": some(lambda: draw.choice("abcdef") * draw.randint(0, 9)),
            "raw": some(lambda: draw.randbytes(draw.randint(0, 40))),
            "yes": some(lambda: draw.random() < 0.5),
            "part": some(draw.random),
            "at": some(lambda: dt.datetime(2024, 1, 1, draw.randint(0, 23), tzinfo=dt.UTC)),
            "day": some(lambda: dt.date(2024, 1, draw.randint(1, 31))),
            "price": some(lambda: decimal.Decimal(draw.randint(0, 10**9)).scaleb(-4)),
            "tags": some(lambda: [some(lambda: "t" * draw.randint(0, 3)) for _ in range(3)]),
            "where": some(lambda: {"x": draw.randint(0, 9), "y": some(lambda: 0.5)}),
            "told": some(lambda: [("k", draw.randint(0, 9))] * draw.randint(0, 1)),
        }
        for n in range(count)
    ]
    return pa.Table.from_pylist(found, SCHEMA)


def file_of(table: pa.Table, **way: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **way)
    return bytes(sink.getvalue())


def joined(folder: Path, files: list[bytes], schema: pa.Schema = SCHEMA) -> tuple[Path, JoinedFile]:
    storage = LocalStorage(str(folder))
    form = ParquetFormat(schema, OutputLayout("snappy", 1 << 30))
    file = JoinedFile(storage, form, "joined.parquet", "the/id")
    for data in files:
        file.add(data)
    file.finish()
    return folder / "joined.parquet", file


@pytest.mark.parametrize("way", WAYS)
def test_every_reader_finds_all_rows_in_their_order(tmp_path: Path, way: dict[str, Any]) -> None:
    tables = [rows(seed, count) for seed, count in enumerate([40, 1, 0, 25])]
    files = [file_of(table, **way) for table in tables]
    path, file = joined(tmp_path, files)
    wanted = pa.concat_tables(tables)
    assert pq.read_table(path, schema=SCHEMA).equals(wanted)
    with duckdb.connect() as connection:
        told = connection.execute("SELECT id, name, price FROM read_parquet(?)", [str(path)])
        found = told.fetchall()
    assert found == [(one["id"], one["name"], one["price"]) for one in wanted.to_pylist()]
    assert (file.rows, file.size) == (66, path.stat().st_size)
    data = path.read_bytes()
    metadata = pq.read_metadata(path)
    assert metadata.num_rows == 66
    assert metadata.metadata[b"blizzard.output_id"] == b"the/id"
    # Penguin's check holds all that it says against the schema and the file's size.
    size = int.from_bytes(data[-8:-4], "little")
    FooterCheck()(data[-8 - size : -8], len(data) - 8 - size)


@pytest.mark.parametrize(
    ("told", "expected"),
    [(["", ""], frozenset()), (["4", "11,4"], frozenset({4, 11})), (["4", None], None)],
)
def test_the_footer_names_columns_with_nan_of_all_files(
    tmp_path: Path, told: list[str | None], expected: frozenset[int] | None
) -> None:
    files = []
    for seed, text in enumerate(told):
        pairs = {} if text is None else {NAN_COLUMNS_KEY: text}
        files.append(file_of(rows(seed, 5).replace_schema_metadata(pairs)))
    path, _ = joined(tmp_path, files)
    assert nan_columns_of(pq.read_metadata(path).metadata) == expected


@pytest.mark.parametrize("way", WAYS)
def test_pages_are_copied_and_each_place_leads_to_its_own(
    tmp_path: Path, way: dict[str, Any]
) -> None:
    files = [file_of(rows(seed, 20), **way) for seed in range(3)]
    path, _ = joined(tmp_path, files)
    whole = path.read_bytes()
    before = [(data, group) for data in files for group in groups_of(data)]
    after = groups_of(whole)
    for (data, old), new in zip(before, after, strict=True):
        for was, is_ in zip(old[1][1][1], new[1][1][1], strict=True):
            for begin, size in ((4, 5), (6, 7)):  # the indexes
                assert (begin in was) == (begin in is_)
                if begin in was:
                    assert span(data, was, begin, size) == span(whole, is_, begin, size)
            assert pages(data, was) == pages(whole, is_)
            # All else is as it was.
            for tree in (was, is_):
                for place in (2, 4, 6):
                    tree.pop(place, None)
                for place in (9, 10, 11, 14):
                    tree[3][1].pop(place, None)
            assert was == is_


def groups_of(data: bytes) -> list[Tree]:
    found: list[Tree] = []
    edited(data, lambda tree: found.extend(tree[4][1][1]))
    return found


def span(data: bytes, tree: Tree, begin: int, size: int) -> bytes:
    return data[tree[begin][1] : tree[begin][1] + tree[size][1]]


def pages(data: bytes, chunk: Tree) -> bytes:
    details: Tree = chunk[3][1]
    begin = min(details[place][1] for place in (9, 11) if place in details)
    return data[begin : begin + details[7][1]]


def test_spark_reads_it(tmp_path: Path, spark_engine: SparkEngine) -> None:
    tables = [rows(seed, 30) for seed in range(3)]
    path, _ = joined(tmp_path, [file_of(table, row_group_size=11) for table in tables])
    frame = spark_engine.session().read.parquet(str(path))
    [told] = frame.selectExpr("count(*)", "sum(id)", "count(name)", "sum(where.x)").collect()
    wanted = pa.concat_tables(tables).to_pylist()
    xs = [one["where"]["x"] for one in wanted if one["where"]]
    names = sum(one["name"] is not None for one in wanted)
    assert tuple(told) == (90, sum(one["id"] for one in wanted), names, sum(xs))


def narrower(_: bytes) -> bytes:
    return file_of(rows(1, 5).drop_columns(["told"]))


def cut(data: bytes) -> bytes:
    size = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - size // 2] + (size // 2).to_bytes(4, "little") + b"PAR1"


def of_all(change: Callable[[Tree], object]) -> Callable[[bytes], bytes]:
    return lambda data: edited(data, change)


def first_chunk(tree: Tree) -> Tree:
    return tree[4][1][1][0][1][1][1][0]


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        (narrower, "other columns"),
        (cut, "unreadable"),
        (lambda _: b"", "no Parquet file"),
        (lambda data: data[:-4] + b"PARE", "no Parquet file"),
        (lambda data: data[-100:], "no Parquet file"),
        (of_all(lambda tree: tree.update({8: (12, {})})), "unknown field 8"),
        (of_all(lambda tree: first_chunk(tree).update({1: (8, b"elsewhere")})), "unknown field 1"),
        (of_all(lambda tree: first_chunk(tree).update({8: (12, {})})), "unknown field 8"),
        (of_all(lambda tree: first_chunk(tree)[3][1].update({40: (6, 9)})), "unknown field 40"),
        (of_all(lambda tree: tree[4][1][1][0].update({7: (4, 0)})), "unknown field 7"),
        (of_all(lambda tree: tree.pop(2)), "no schema"),
    ],
)
def test_join_rejects_unknown_or_damaged_parquet_files(
    tmp_path: Path, spoiled: Callable[[bytes], bytes], why: str
) -> None:
    good = file_of(rows(0, 5))
    with pytest.raises(SchemaMismatch, match=why):
        joined(tmp_path, [good, spoiled(good)])
