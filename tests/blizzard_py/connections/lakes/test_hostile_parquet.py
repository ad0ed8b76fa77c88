"""Parquet files of kilobytes that become gigabytes, read as a table."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import SourceError
from blizzard_core.limits import TABLE_FOOTER_BYTES
from blizzard_core.storage.local import LocalStorage
from blizzard_core.table.thrift import encode_length
from blizzard_py.connections.lakes.column_ranges import group_ranges
from blizzard_py.formats.columnar import rows as parquet_rows
from blizzard_py.formats.columnar.file import batches, opened
from blizzard_py.formats.columnar.rows import StoredFile
from tests.support.thrift_tree import Tree, edited

MIB = 1 << 20

READING = """
import json, resource, sys
from pathlib import Path
from blizzard_core.errors import SourceError
from blizzard_core.storage.local import LocalStorage
from blizzard_py.connections.lakes.column_ranges import highest
from blizzard_py.formats.columnar import rows as parquet_rows
from blizzard_py.formats.columnar.file import batches, opened
from blizzard_py.formats.columnar.rows import StoredFile

def megabytes(kind):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(kind)).split()[1]) // 1024

path, rows, largest, why = Path(sys.argv[1]), 0, 0, ""
Path("/proc/self/clear_refs").write_text("5")
before = megabytes("VmRSS:")
try:
    stored = StoredFile.of(LocalStorage(str(path.parent)), path.name, path.stat().st_size)
    with opened(stored) as file:
        if sys.argv[2] == "highest":
            largest = len(highest(file, "t"))
        else:
            every = range(file.metadata.num_row_groups)
            for batch in batches(file, every, file.schema_arrow.names):
                rows, largest = rows + batch.num_rows, max(largest, batch.nbytes)
except SourceError as error:
    why = str(error)
parquet_rows.end_idle()
apart = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
print(json.dumps([rows, largest, why, megabytes("VmHWM:") - before, apart]))
"""


def named(path: Path, texts: list[str], rows: int, **columns: pa.Array) -> None:
    """Each row names a text of a dictionary."""
    places = pa.array([index % len(texts) for index in range(rows)], pa.int32())
    table = pa.table({"t": pa.DictionaryArray.from_arrays(places, texts), **columns})
    written(path, table, dictionary_pagesize_limit=1 << 30)


def written(path: Path, table: pa.Table, **options: Any) -> None:
    options = {"compression": "zstd", "store_schema": False, "write_statistics": False} | options
    pq.write_table(table, path, **options)


def long_texts(path: Path, size: int, rows: int, **options: Any) -> None:
    """One row group of many long texts, written a few at a time."""
    table = pa.table({"t": ["x" * size] * (16 * MIB // size)})
    with pq.ParquetWriter(
        path, table.schema, compression="zstd", use_dictionary=False, **options
    ) as writer:
        for _ in range(rows * size // (16 * MIB)):
            writer.write_batch(table.to_batches()[0])


def hostile(kind: str, path: Path) -> None:
    if kind == "a dictionary's text in each row":
        named(path, ["x" * 65536], 65536)
    elif kind == "a list of millions":
        written(path, pa.table({"t": pa.array([[1] * (1 << 24)] * 2, pa.list_(pa.int64()))}))
    elif kind == LISTS:
        lists = [["x" * 4096] * 1000] * 100 + [[]] * 900
        written(path, pa.table({"t": lists}), dictionary_pagesize_limit=1 << 30)
    elif kind == "a page that unpacks":
        written(path, pa.table({"t": ["x" * (256 * MIB)]}), use_dictionary=False)
    elif kind == TOGETHER:
        texts = pa.array(["x" * (8 * MIB)])
        table = pa.table({f"t{number}": texts for number in range(60)})
        written(path, table, use_dictionary=False)
    elif kind == "texts that begin alike":
        long_texts(path, MIB, 640, column_encoding={"t": "DELTA_BYTE_ARRAY"})
    elif kind == "a footer that says little":
        long_texts(path, 8192, 65536)
        path.write_bytes(edited(path.read_bytes(), _small))
    else:
        written(path, pa.table({"t": pa.nulls(65536, pa.string())}))
        path.write_bytes(edited(path.read_bytes(), _wide))


def _small(footer: Tree) -> None:
    for group in footer[4][1][1]:
        group[2] = (6, 1)


def _wide(footer: Tree) -> None:
    """The texts are of a fixed length by now: a megabyte each."""
    element = footer[2][1][1][1]
    element[1], element[2] = (5, 7), (5, MIB)
    element.pop(6, None)
    element.pop(10, None)
    for group in footer[4][1][1]:
        about = group[1][1][1][0][3][1]
        about[1] = (5, 7)
        about.pop(16)


def _two_kinds(footer: Tree) -> None:
    """Of numbers it is said how long their texts are together."""
    footer[4][1][1][0][1][1][1][0][3][1][16] = (12, {1: (6, 5)})


def _another_kind(footer: Tree) -> None:
    """Of texts it is said that they are booleans."""
    footer[4][1][1][0][1][1][1][0][3][1][1] = (5, 0)


LISTS = "lists of a dictionary's text"
TOGETHER = "many columns of pages that unpack"
READ = {"a dictionary's text in each row", LISTS}
READ |= {"texts that begin alike", "a footer that says little"}
REFUSED = {
    "texts of a fixed length",
    "a list of millions",
    "a page that unpacks",
    TOGETHER,
}


def measured(path: Path, what: str) -> Any:
    """Rows, the largest batch or text, the refusal, MB taken here and by a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", READING, str(path), what], capture_output=True, check=True, text=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", sorted(READ | REFUSED))
def test_small_files_cost_bounded_memory(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    hostile(kind, path)
    assert path.stat().st_size < MIB
    rows, largest, why, taken, apart = measured(path, "rows")
    assert taken < 300
    assert apart < 450
    assert largest <= 17 * MIB
    if kind in REFUSED:
        assert str(path) in why
        assert ("60 columns together" if kind == TOGETHER else "column t") in why
        assert "rewrite the file" in why
    else:
        assert why == ""
        assert rows == pq.read_metadata(path).num_rows


@pytest.mark.parametrize("kind", sorted(READ - {LISTS}))
def test_looking_for_the_highest_text_costs_bounded_memory(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    hostile(kind, path)
    _, length, why, taken, apart = measured(path, "highest")
    assert why == ""
    assert length >= 8192
    assert taken < 100
    assert apart < 450


def read(storage: LocalStorage, path: Path) -> Iterator[pa.RecordBatch]:
    with opened(StoredFile.of(storage, path.name, path.stat().st_size)) as file:
        yield from batches(file, range(file.metadata.num_row_groups), file.schema_arrow.names)


@cache
def honest(rows: int = 30_000) -> pa.Table:
    chosen = random.Random(5)
    words = ["".join(chosen.choices("abcdef", k=chosen.randrange(40))) for _ in range(5000)]
    return pa.table(
        {
            "id": range(rows),
            "word": [chosen.choice([*words, None]) for _ in range(rows)],
            "only": [str(chosen.random()) for _ in range(rows)],
            "tags": [chosen.choices(words, k=chosen.randrange(4)) for _ in range(rows)],
            "in": [{"a": index, "b.c": chosen.choice(words)} for index in range(rows)],
            "map": pa.array(
                [{chosen.choice(words): index} for index in range(rows)],
                pa.map_(pa.string(), pa.int32()),
            ),
            "money": pa.array(range(rows)).cast(pa.decimal128(30, 2)),
            "none": pa.nulls(rows, pa.string()),
        }
    )


WAYS: list[dict[str, Any]] = [
    {"compression": codec, "data_page_version": version}
    for codec in ("snappy", "gzip", "zstd", "lz4", "brotli", "none")
    for version in ("1.0", "2.0")
]
WAYS.append({"use_dictionary": False, "column_encoding": {"only": "DELTA_BYTE_ARRAY"}})


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_honest_files_are_read_in_small_memory(
    ways: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table = tmp_path / "a.parquet", honest()
    pq.write_table(table, path, row_group_size=11_000, **ways)
    monkeypatch.setattr(parquet_rows, "TABLE_READER_BYTES", 32 * MIB)
    storage = LocalStorage(str(tmp_path))
    assert pa.Table.from_batches(read(storage, path)).equals(table)


def test_fewer_rows_at_a_time_are_the_same_rows(tmp_path: Path) -> None:
    """The second row group has one long text in each row, which its footer does not say."""
    path, rows = tmp_path / "a.parquet", 1 << 16
    short = pa.table({"id": range(rows), "t": pa.array(["y"] * rows).dictionary_encode()})
    places = pa.array([0] * (rows // 2) + [1] * (rows // 2), pa.int32())
    texts = pa.DictionaryArray.from_arrays(places, ["y", "x" * 32_768])
    long = pa.table({"id": range(rows, 2 * rows), "t": texts})
    with pq.ParquetWriter(path, short.schema, store_schema=False) as writer:
        writer.write_table(short)
        writer.write_table(long)
    found = 0
    for batch in read(LocalStorage(str(tmp_path)), path):
        assert batch.column("id").equals(pa.array(range(found, found + batch.num_rows)))
        long_ones = max(0, min(batch.num_rows, found + batch.num_rows - rows - rows // 2))
        size = pc.sum(pc.binary_length(batch.column("t"))).as_py()
        assert size == batch.num_rows + long_ones * 32_767
        found += batch.num_rows
    assert found == 2 * rows


def test_a_process_that_keeps_memory_reads_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    named(path, ["x" * 65536], 65536)
    monkeypatch.setattr(parquet_rows, "IDLE", [])
    storage = LocalStorage(str(tmp_path))
    small = tmp_path / "b.parquet"
    written(small, pa.table({"t": [1]}))
    for _ in range(3):
        assert pa.Table.from_batches(read(storage, small)).num_rows == 1
    [reader] = parquet_rows.IDLE
    assert sum(batch.num_rows for batch in read(storage, path)) == 65536
    for kept in parquet_rows.IDLE:
        assert kept is reader
        lines = Path(f"/proc/{kept.process.pid}/status").read_text().splitlines()
        taken = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        assert taken < 200_000
    parquet_rows.end_idle()


class Ending(LocalStorage):
    """Ends the processes that ask for rows."""

    def __init__(self, root: str, processes: list[int]) -> None:
        super().__init__(root)
        self._processes = processes

    def read_range(self, path: str, start: int, end: int) -> bytes:
        while self._processes:
            os.kill(self._processes.pop(), signal.SIGKILL)
        return super().read_range(path, start, end)


def test_a_file_that_ends_the_process_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table = tmp_path / "a.parquet", pa.table({"t": [1, 2]})
    written(path, table)
    parquet_rows.end_idle()
    started: list[int] = []
    start = parquet_rows.RowReader.__init__

    def recorded(reader: parquet_rows.RowReader) -> None:
        start(reader)
        started.append(reader.process.pid)

    monkeypatch.setattr(parquet_rows.RowReader, "__init__", recorded)
    storage = Ending(str(tmp_path), started)
    with (
        opened(StoredFile.of(storage, path.name, path.stat().st_size)) as file,
        pytest.raises(SourceError, match=r"a\.parquet: the process that read it ended"),
    ):
        list(batches(file, [0], ["t"]))
    assert pa.Table.from_batches(read(LocalStorage(str(tmp_path)), path)).equals(table)
    parquet_rows.end_idle()


def test_a_row_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    text = random.Random(1).randbytes(36 * MIB).hex()
    pq.write_table(pa.table({"id": [1], "big": [text]}), path, use_dictionary=False)
    with pytest.raises(SourceError, match=r"a\.parquet: a row of 72 MB, the most of it in.* big;"):
        list(read(LocalStorage(str(tmp_path)), path))


def test_a_long_footer_is_not_read(tmp_path: Path) -> None:
    path, size = tmp_path / "a.parquet", TABLE_FOOTER_BYTES + 1
    path.write_bytes(b"PAR1" + bytes(size) + struct.pack("<I", size) + b"PAR1")
    with pytest.raises(SourceError, match="footer of more than 8 MiB"):
        list(read(LocalStorage(str(tmp_path)), path))


def _many_columns(footer: Tree) -> None:
    elements = footer[2][1][1]
    elements[0][5] = (5, 200_000)
    elements[1:] = [{1: (5, 1), 3: (5, 1), 4: (8, b"c")}] * 200_000


def _many_chunks(footer: Tree) -> None:
    footer[4][1][1][0][1] = (9, (12, [{2: (6, 0)}] * 300_000))


@pytest.mark.parametrize("edit", [_many_columns, _many_chunks])
def test_a_hostile_footer_costs_only_its_file(
    tmp_path: Path, edit: Callable[[Tree], object]
) -> None:
    path = tmp_path / "a.parquet"
    written(path, pa.table({"t": [1, 2]}))
    path.write_bytes(edited(path.read_bytes(), edit))
    rows, _, why, grown, _ = measured(path, "rows")
    assert rows == 0
    assert "its footer of" in why
    assert "fewer columns, or larger row groups" in why
    assert grown < 60


def test_a_list_that_claims_a_million_items_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    # The version, and a schema of a million structs that are not there.
    footer = bytes([0x15, 2, 0x19, 0xFC]) + encode_length(1_000_000)
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    rows, _, why, grown, _ = measured(path, "rows")
    assert rows == 0
    assert "its footer is cut off, or contradicts itself" in why
    assert grown < 60


def test_the_footer_of_a_wide_file_is_read(tmp_path: Path) -> None:
    """5,000 columns in several row groups, with statistics: more than 4 MB."""
    path = tmp_path / "a.parquet"
    table = pa.table({f"a column of the number {at}": range(8) for at in range(5000)})
    written(path, table, row_group_size=2, write_statistics=True)
    assert int.from_bytes(path.read_bytes()[-8:-4], "little") > 2 * MIB
    storage = LocalStorage(str(tmp_path))
    with opened(StoredFile.of(storage, path.name, path.stat().st_size)) as file:
        found = list(batches(file, range(4), ["a column of the number 4999"]))
    assert [row for batch in found for row in batch.column(0).to_pylist()] == list(range(8))


def test_a_footer_of_two_minds_ends_no_process(tmp_path: Path) -> None:
    path, storage = tmp_path / "a.parquet", LocalStorage(str(tmp_path))
    written(path, pa.table({"t": [1, 2]}))
    path.write_bytes(edited(path.read_bytes(), _two_kinds))
    why = r"a\.parquet: cannot be read as Parquet"
    with pytest.raises(SourceError, match=why):
        list(read(storage, path))
    size = path.stat().st_size
    with (
        pytest.raises(SourceError, match=why),
        opened(StoredFile.of(storage, path.name, size)) as file,
    ):
        group_ranges(file, "t")


def test_footer_statistics_of_another_type_end_no_process(tmp_path: Path) -> None:
    """A reader of its rows has no objection; pyarrow ends who looks at the statistics."""
    path, storage = tmp_path / "a.parquet", LocalStorage(str(tmp_path))
    written(path, pa.table({"t": ["a", "b"]}), write_statistics=True)
    path.write_bytes(edited(path.read_bytes(), _another_kind))
    why, size = r"a\.parquet: .*its footer contradicts itself about column t", path.stat().st_size
    with (
        pytest.raises(SourceError, match=why),
        opened(StoredFile.of(storage, path.name, size)) as file,
    ):
        group_ranges(file, "t")


def test_a_name_that_is_no_text_costs_only_its_file(tmp_path: Path) -> None:
    path, storage = tmp_path / "a.parquet", LocalStorage(str(tmp_path))
    written(path, pa.table({"tést": [1, 2]}))
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xff"))
    with pytest.raises(SourceError, match=r"a\.parquet: cannot be read as Parquet"):
        list(read(storage, path))


def test_a_valid_file_with_row_group_sized_pages_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As duckdb writes them: of wide tables the current pages are most of the row group."""
    chance = random.Random(7)
    texts = {f"c{place}": [chance.randbytes(24).hex() for _ in range(30_000)] for place in range(8)}
    table = pa.table(texts)
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, data_page_size=1 << 30, use_dictionary=False)

    def read() -> pa.Table:
        storage = LocalStorage(str(tmp_path))
        with opened(StoredFile.of(storage, path.name, path.stat().st_size)) as file:
            return pa.Table.from_batches(batches(file, [0], table.schema.names))

    monkeypatch.setattr(parquet_rows, "TABLE_READER_BYTES", 8 << 20)
    assert read().equals(table)
    monkeypatch.setattr(parquet_rows, "TABLE_READER_PER_BYTE", 0)
    parquet_rows.end_idle()  # what a file before has left comes on top
    with pytest.raises(SourceError, match=r"be read in 8 MiB|8 MiB of memory are not available"):
        read()


def test_the_memory_limit_follows_the_size_of_the_file() -> None:
    assert parquet_rows.allowed(8 << 10) < 257 * MIB
    assert parquet_rows.allowed(100 * MIB) == (256 + 800) * MIB
    assert parquet_rows.allowed(1 << 40) == 2048 * MIB
