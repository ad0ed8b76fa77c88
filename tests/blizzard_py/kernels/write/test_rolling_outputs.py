"""Rows to files: sizes, order, many directories, and what a fault leaves behind."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.errors import StorageError
from blizzard_core.storage.local import LocalStorage
from blizzard_py.job import OutputLayout, PartitionRule, SortKey, StagedOutput
from blizzard_py.kernels.write import rolling_outputs as write
from blizzard_py.kernels.write.parquet_file import ParquetFormat, encodings
from blizzard_py.kernels.write.partition import RowDirectories, place_rows
from blizzard_py.kernels.write.rolling_outputs import OutputSet, StagedNames
from blizzard_py.kernels.write.spill import Spill

MIB = 1 << 20


class Unsynced(LocalStorage):
    """Thousands of files on a real disk, without waiting for it; ``opened`` are their streams."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.opened: list[Any] = []

    def open_output(self, path: str) -> Any:
        self.opened.append(super().open_output(path))
        return self.opened[-1]

    def sync(self, path: str) -> None:
        """Leave it to the system."""


def output_set(
    folder: Path, schema: pa.Schema, sink: Unsynced | None = None, **form: Any
) -> OutputSet:
    given_ = {"compression": "snappy", "file_bytes": 128 * MIB, **form}
    names = StagedNames("s", "p", "t", 1)
    form = ParquetFormat(schema, OutputLayout(**given_))
    return OutputSet(sink or Unsynced(str(folder)), names, form)


def events(rows: int, seed: int = 0) -> pa.Table:
    """Words that repeat, numbers that do not, and text that does not compress."""
    random_ = np.random.default_rng(seed)
    return pa.table(
        {
            "n": np.arange(rows),
            "value": random_.integers(0, 1 << 60, rows),
            "word": pa.array([f"word-{i}" for i in range(20)]).take(
                pa.array(random_.integers(0, 20, rows))
            ),
            "text": pa.array([value.tobytes().hex() for value in random_.random(rows)]),
        }
    )


def chunks(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def read(folder: Path, output: StagedOutput) -> pa.Table:
    return pq.read_table(folder / output.staged)


def all_rows(folder: Path, outputs: list[StagedOutput]) -> list[dict[str, Any]]:
    return [row for output in outputs for row in read(folder, output).to_pylist()]


# --- sizes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["snappy", "zstd", "uncompressed"])
@pytest.mark.parametrize("sort_by", [(), (SortKey("value"),)])
def test_files_come_out_near_their_size(
    tmp_path: Path, compression: str, sort_by: tuple[SortKey, ...]
) -> None:
    table = events(400_000)
    outputs = output_set(
        tmp_path,
        table.schema,
        compression=compression,
        file_bytes=2 * MIB,
        row_group_bytes=MIB // 2,
        sort_by=sort_by,
    )
    for chunk in chunks(table, 3000):
        outputs.add("", chunk)
    done = outputs.close()
    *full, last = done
    assert len(full) > 2
    for output in full:
        assert output.size == (tmp_path / output.staged).stat().st_size
        assert 0.8 * 2 * MIB < output.size < 1.2 * 2 * MIB
    assert last.size < 1.2 * 2 * MIB
    assert sorted(row["n"] for row in all_rows(tmp_path, done)) == list(range(400_000))


def test_row_groups_have_their_size_in_memory(tmp_path: Path) -> None:
    table = events(100_000)
    outputs = output_set(tmp_path, table.schema, row_group_bytes=MIB)
    for chunk in chunks(table, 1000):
        outputs.add("", chunk)
    [output] = outputs.close()
    footer = pq.read_metadata(tmp_path / output.staged)
    width = table.nbytes / table.num_rows
    groups = [footer.row_group(i).num_rows * width for i in range(footer.num_row_groups)]
    assert len(groups) > 3
    for size in groups[:-1]:
        assert 0.95 * MIB < size < 1.1 * MIB


def test_a_table_of_any_size_at_once_is_cut(tmp_path: Path) -> None:
    table = events(100_000)
    outputs = output_set(tmp_path, table.schema, row_group_bytes=MIB)
    outputs.add("", table)
    [output] = outputs.close()
    assert pq.read_metadata(tmp_path / output.staged).num_row_groups > 3
    assert read(tmp_path, output).equals(table)


# --- order ----------------------------------------------------------------------------------

KEYS = st.lists(
    st.builds(SortKey, st.sampled_from(["a", "b", "c"]), st.booleans()),
    min_size=1,
    max_size=3,
    unique_by=lambda key: key.column,
)
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 5),
        st.none() | st.text("xyz", max_size=2),
        st.none() | st.floats(allow_nan=False),
    ),
    min_size=1,
    max_size=200,
)


def by_python(rows: list[dict[str, Any]], keys: tuple[SortKey, ...]) -> list[dict[str, Any]]:
    for key in reversed(keys):
        given_, null = (
            [row for row in rows if (row[key.column] is None) is missing]
            for missing in (False, True)
        )
        given_.sort(key=lambda row: row[key.column], reverse=key.descending)
        rows = given_ + null
    return rows


@given(ROWS, KEYS, st.integers(1, 50), st.integers(64, 2000))
def test_each_output_file_is_fully_sorted(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[tuple[Any, ...]],
    keys: list[SortKey],
    step: int,
    row_group_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("sorted")
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    rows = [dict(zip(schema.names, row, strict=True)) for row in values]
    outputs = output_set(folder, schema, row_group_bytes=row_group_bytes, sort_by=tuple(keys))
    for start in range(0, len(rows), step):
        outputs.add("", pa.Table.from_pylist(rows[start : start + step], schema))
    [output] = outputs.close()
    names = [key.column for key in keys]
    found = [[row[name] for name in names] for row in read(folder, output).to_pylist()]
    expected = [[row[name] for name in names] for row in by_python(rows, tuple(keys))]
    assert found == expected
    assert sorted(map(repr, read(folder, output).to_pylist())) == sorted(map(repr, rows))


def test_equal_rows_keep_their_order_and_the_footer_tells_it(tmp_path: Path) -> None:
    table = events(50_000)
    keys = (SortKey("word", descending=True),)
    outputs = output_set(tmp_path, table.schema, row_group_bytes=MIB // 2, sort_by=keys)
    for chunk in chunks(table, 999):
        outputs.add("", chunk)
    [output] = outputs.close()
    footer = pq.read_metadata(tmp_path / output.staged)
    assert footer.num_row_groups > 3
    [column] = footer.row_group(0).sorting_columns
    assert (column.column_index, column.descending, column.nulls_first) == (2, True, False)
    rows = list(
        zip(*(read(tmp_path, output)[name].to_pylist() for name in ("word", "n")), strict=True)
    )
    assert all(a > c or (a == c and b < d) for (a, b), (c, d) in pairwise(rows))
    # Row groups do not overlap, which is what lets readers skip them.
    ranges = [footer.row_group(i).column(2).statistics for i in range(footer.num_row_groups)]
    assert all(left.min >= right.max for left, right in pairwise(ranges))


# --- many directories -----------------------------------------------------------------------


@pytest.mark.parametrize(("directories", "sort_by"), [(5000, ()), (500, (SortKey("value"),))])
def test_thousands_of_directories_get_one_file_each(
    tmp_path: Path, directories: int, sort_by: tuple[SortKey, ...]
) -> None:
    rows = 60_000
    table = events(rows)
    most = 0
    sink = Unsynced(str(tmp_path))
    outputs = output_set(tmp_path, table.schema, sink, row_group_bytes=MIB, sort_by=sort_by)
    before = pa.total_allocated_bytes()
    names = tuple(f"d={number}" for number in range(directories))
    for start in range(0, rows, directories):
        # A copy, so that what is kept of it counts.
        piece = table.take(pa.array(range(start, min(rows, start + directories))))
        outputs.add(RowDirectories(names, np.arange(piece.num_rows)), piece)
        most = max(most, pa.total_allocated_bytes() - before)
    assert sink.opened == []  # a few rows each are not worth a file yet
    del piece
    done = outputs.close()
    assert most <= 3 * MIB
    assert sorted(output.partition for output in done) == sorted(names)
    assert sum(output.rows for output in done) == rows
    for output in done[::100]:
        number = int(output.partition.removeprefix("d="))
        assert sorted(read(tmp_path, output)["n"].to_pylist()) == list(
            range(number, rows, directories)
        )


@settings(max_examples=40)
@given(st.data())
def test_rows_end_in_their_directory_in_any_mixture(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("mixture")
    random_ = random.Random(data.draw(st.integers(0, 1000)))
    share = data.draw(st.sampled_from([1, 5, 50]))
    schema = pa.schema([("n", pa.int64()), ("d", pa.string())])
    sort_by = data.draw(st.sampled_from([(), (SortKey("n", descending=True),)]))
    outputs = output_set(
        folder,
        schema,
        row_group_bytes=data.draw(st.sampled_from([200, 2000, 100_000])),
        file_bytes=data.draw(st.sampled_from([1000, 1_000_000])),
        sort_by=sort_by,
    )
    expected: dict[str, list[int]] = {}
    number = 0
    for _ in range(data.draw(st.integers(1, 6))):
        rows = []
        for _ in range(random_.randrange(60)):
            rows.append({"n": number, "d": f"{random_.randrange(share)}"})
            expected.setdefault(f"d={rows[-1]['d']}", []).append(number)
            number += 1
        table = pa.Table.from_pylist(rows, schema)
        if rows and len({row["d"] for row in rows}) == 1 and random_.random() < 0.5:
            outputs.add(f"d={rows[0]['d']}", table)
        else:
            outputs.add(place_rows(table, [PartitionRule("d", key="d")]), table)
    found: dict[str, list[int]] = {}
    for output in outputs.close():
        numbers = read(folder, output)["n"].to_pylist()
        assert output.rows == len(numbers)
        if sort_by:
            assert numbers == sorted(numbers, reverse=True)
        found.setdefault(output.partition, []).extend(numbers)
    assert {name: sorted(numbers) for name, numbers in found.items()} == expected


_UNEVEN = """
import sys
import tempfile
from pathlib import Path
import numpy as np, pyarrow as pa
from blizzard_py.kernels.write.partition import (RowDirectories)
from blizzard_py.formats.child_process import prepare_process
from tests.blizzard_py.kernels.write.test_rolling_outputs import output_set, peak_bytes
prepare_process()
piece = pa.table({"text": ["x" * 1000] * 2000})
codes = np.zeros(2000, np.int64); codes[::100] = 1
outputs = output_set(Path(sys.argv[1]), piece.schema, row_group_bytes=8 << 20)
before = peak_bytes()
for _ in range(300):
    outputs.add(RowDirectories(("large", "small"), codes), piece.take(pa.array(range(2000))))
outputs.close()
print(peak_bytes() - before)
"""


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_rare_directory_keeps_no_rows_of_others_in_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _UNEVEN, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[4],
    )
    # 600 MB went through; a buffer of 8 MiB and its copies are what may stay.
    assert int(done.stdout) < 120 * MIB


# --- columns --------------------------------------------------------------------------------


def test_dictionaries_are_judged_for_nested_columns_too() -> None:
    rows = 1000
    table = pa.table(
        {
            "id": pa.array(range(rows)),
            "kind": pa.array([f"k{i % 3}" for i in range(rows)]),
            "flag": pa.array([True] * rows),
            "s": pa.array([{"x": i, "y": {"z": "same"}} for i in range(rows)]),
            "tags": pa.array([["a", "b"], [f"{0}"]] * (rows // 2)),
            "ids": pa.array([[i] for i in range(rows)]),
            "m": pa.array([[("k", i)] for i in range(rows)], pa.map_(pa.string(), pa.int64())),
            "odd.name": pa.array(["same"] * rows),
            "nothing": pa.nulls(rows, pa.string()),
        }
    )
    assert encodings(table).dictionary == [
        "kind",
        "s.y.z",
        "tags.list.element",
        "m.key_value.key",
        "odd.name",
        "nothing",
    ]


def test_nested_dictionaries_reach_the_file(tmp_path: Path) -> None:
    table = pa.table(
        {
            "s": pa.array([{"x": i, "kind": f"k{i % 3}"} for i in range(500)]),
            "tags": pa.array([["a"], ["b"]] * 250),
        }
    )
    outputs = output_set(tmp_path, table.schema)
    outputs.add("", table)
    [output] = outputs.close()
    group = pq.read_metadata(tmp_path / output.staged).row_group(0)
    assert {
        group.column(i).path_in_schema: group.column(i).has_dictionary_page for i in range(3)
    } == {"s.x": False, "s.kind": True, "tags.list.element": True}
    assert read(tmp_path, output).equals(table)


def test_each_file_is_judged_by_its_own_rows(tmp_path: Path) -> None:
    same = pa.table({"v": ["x"] * 1000})
    other = pa.table({"v": [f"{i}" for i in range(1000)]})
    outputs = output_set(tmp_path, same.schema)
    outputs.add("d=1", same)
    outputs.add("d=2", other)
    assert [
        pq.read_metadata(tmp_path / output.staged).row_group(0).column(0).has_dictionary_page
        for output in outputs.close()
    ] == [True, False]


def test_only_long_binary_values_have_no_statistics(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [1, 2],
            "content": [b"a" * 100_000, b"b" * 100_000],
            "inner": [{"name": "x", "text": "t" * 200_000}] * 2,
        }
    )
    outputs = output_set(tmp_path, table.schema)
    outputs.add("", table)
    [output] = outputs.close()
    group = pq.read_metadata(tmp_path / output.staged).row_group(0)
    assert {group.column(i).path_in_schema: group.column(i).is_stats_set for i in range(4)} == {
        "id": True,
        "content": False,
        "inner.name": True,
        "inner.text": True,
    }
    assert read(tmp_path, output).equals(table)


def test_encodings_find_columns_with_repeated_values() -> None:
    rows = 200_000
    table = pa.table({"some": np.arange(rows) % 5000, "all": np.arange(rows)})
    assert encodings(table).dictionary == ["some"]


# --- faults ---------------------------------------------------------------------------------


def test_a_full_local_disk_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/dev/full-of-nothing")
    with pytest.raises(StorageError, match="/dev/full-of-nothing"):
        Spill()

    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    table = events(5000)
    outputs = output_set(
        tmp_path / "table", table.schema, row_group_bytes=MIB // 8, sort_by=(SortKey("n"),)
    )
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115  # see discard
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
    with pytest.raises(StorageError, match=r"No space left"):
        outputs.add("", table)
    outputs.discard()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_rows_on_disk_have_no_name_and_go_with_their_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    table = events(5000)
    spill = Spill()
    blocks = spill.write(table)
    assert list(tmp_path.iterdir()) == []
    assert pa.Table.from_batches(spill.read(blocks, table.schema)).equals(table)
    spill.close()


def test_more_directories_than_open_files_still_fill_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "MAX_OPEN_FILES", 2)
    table = events(40_000)
    sink = Unsynced(str(tmp_path))
    outputs = output_set(tmp_path, table.schema, sink, row_group_bytes=MIB // 4)
    names = tuple(f"d={number}" for number in range(4))
    for chunk in chunks(table, 400):
        outputs.add(RowDirectories(names, np.arange(chunk.num_rows) % 4), chunk)
        assert sum(not stream.closed for stream in sink.opened) <= 2
    done = outputs.close()
    assert sorted(output.partition for output in done) == list(names)
    assert sorted(row["n"] for row in all_rows(tmp_path, done)) == list(range(40_000))
