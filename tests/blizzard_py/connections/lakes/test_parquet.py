"""Directories of Parquet files as a source."""

from __future__ import annotations

import errno
import json
import os
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import SourceError, Unavailable
from blizzard_core.settings.formats import ParquetOptions
from blizzard_core.storage.local import LocalStorage
from blizzard_py.connections.lakes.parquet import connect
from blizzard_py.connections.lakes.window_rows import read
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.formats.columnar import process as parquet_process
from blizzard_py.formats.protocol import BadRecord
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, Window
from tests.support.int96 import DAY_NANOS, STORED, int96_file, stored
from tests.support.lake_reading import BATCH_BYTES, read_all, rows_of, through_json
from tests.support.parquet_lakes import DATED, at, ids, poller, put
from tests.support.thrift_tree import Tree, edited


@pytest.mark.promise("G-143")
def test_windows_against_brute_force(tmp_path: Path) -> None:
    """Two columns, nulls, files out of order; rows come once as long as they come in order."""
    for seed in range(30):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        source = poller(folder, ("a", "b"))
        everything: dict[int, dict[str, Any]] = {}
        seen: list[int] = []
        low = {"a": 0, "b": 0}
        for step in range(8):
            rows = []
            for _ in range(chance.randint(0, 5)):
                row: dict[str, Any] = {"id": len(everything)}
                for name, lowest in low.items():
                    value = lowest + chance.randint(1, 5)
                    row[name] = None if chance.random() < 0.2 else value
                everything[row["id"]] = row
                rows.append(row)
            if rows:
                schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
                put(folder / f"{chance.random()}.parquet", rows, schema, row_group_size=2)
            before = dict(source.stored)
            seen += (found := ids(source.poll()))
            high = source.stored
            expected = [row["id"] for row in everything.values() if _lies(row, before, high)]
            assert found == expected or before == high, (seed, step)
            low = {name: max(low[name], high.get(name) or 0) for name in low}
        nulls = {i for i, row in everything.items() if row["a"] is None and row["b"] is None}
        assert not [i for i, count in Counter(seen).items() if count > 1]
        assert set(everything) - set(seen) <= nulls


def _lies(row: dict[str, Any], low: dict[str, Any], high: dict[str, Any]) -> bool:
    """The window's condition, spelled out once more."""
    values = [(row[name], low.get(name), high.get(name)) for name in ("a", "b")]
    if not low and all(value is None for value, _, _ in values):
        return True
    inside = any(
        v is not None and h is not None and v <= h and (lower is None or v > lower)
        for v, lower, h in values
    )
    return inside and all(v is None or (h is not None and v <= h) for v, _, h in values)


def test_files_below_the_window_are_deleted_and_it_still_works(tmp_path: Path) -> None:
    access = Access("parquet", str(tmp_path))
    for number in range(4):
        put(tmp_path / f"{number}.parquet", [{"id": number, "at": at(number)}])
    connection = connect(access, ReadSelection(columns=("at",)))
    tasks = connection.tasks(Window(low={"at": at(2)}, up_to={"at": at(3)}), WindowSplit())
    for number in range(3):
        (tmp_path / f"{number}.parquet").unlink()
    assert ids(rows_of(read, access, tasks)) == [3]


def test_a_poll_without_news_opens_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.parquet", [{"id": 1, "at": at(1)}])
    source = poller(tmp_path)
    source.poll()
    monkeypatch.setattr(LocalStorage, "read_range", None)
    assert source.poll() == []


VALUES: list[tuple[str, list[Any], pa.DataType]] = [
    (
        "nanoseconds",
        [1_700_000_000_000_000_000 + n for n in (1, 999, 1000, 1001)],
        pa.timestamp("ns", "UTC"),
    ),
    ("nanoseconds before 1970", [-1001, -1000, -999, -1], pa.timestamp("ns")),
    ("milliseconds", [1, 2, 3], pa.timestamp("ms", "+02:00")),
    ("dates as milliseconds", [0, 86_400_000], pa.date64()),
    ("unsigned", [1, 2**63 - 1, 2**64 - 1], pa.uint64()),
    ("small numbers", [-128, 0, 127], pa.int8()),
    ("half floats", [-1.5, -0.0, 2.0], pa.float32()),
    (
        "wide decimals",
        [Decimal("1" + "0" * 40), Decimal("1" + "0" * 40 + ".01")],
        pa.decimal256(60, 2),
    ),
    (
        "negative decimals",
        [Decimal("-5.00"), Decimal("-4.99"), Decimal("0.00")],
        pa.decimal128(5, 2),
    ),
    ("short decimals", [Decimal("-1.50"), Decimal("0.01")], pa.decimal32(5, 2)),
    ("less short decimals", [Decimal("-1.50"), Decimal("0.01")], pa.decimal64(12, 2)),
    ("text by bytes", ["Z", "a", "é", "\uffee", "\U0001f600"], pa.string()),
    ("long text", ["x" * 100, "x" * 100 + "a", "x" * 99 + "y"], pa.large_string()),
    ("categories", ["a", "b"], pa.dictionary(pa.int32(), pa.string())),
]


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(("name", "values", "kind"), VALUES, ids=[each[0] for each in VALUES])
def test_every_type_of_watermark(
    tmp_path: Path, name: str, values: list[Any], kind: pa.DataType, statistics: bool
) -> None:
    source = poller(tmp_path, ("c",))
    found: list[int] = []
    for number, value in enumerate(values):
        column = pa.array([value, None], kind.value_type if name == "categories" else kind)
        table = pa.table({"id": [number, -1], "c": column.cast(kind)})
        pq.write_table(table, tmp_path / f"{number}.parquet", write_statistics=statistics)
        before = dict(source.stored)
        got = [i for i in ids(source.poll()) if i >= 0]
        if got:
            found += got
        else:  # within one microsecond of the row before: the same watermark
            assert source.stored == before
    if kind == pa.timestamp("ns", "UTC"):
        assert found == [0, 2]  # 1 and 999, 1000 and 1001 are ties
    elif kind == pa.timestamp("ns"):
        assert found == [0, 1]  # -1000 … -1 are one microsecond, as are not -1001 and -1000
    else:
        assert found == list(range(len(values)))


def test_inclusive_window_reads_ties_again(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [{"id": 1, "at": at(1)}, {"id": 2, "at": at(2)}])
    access = Access("parquet", str(tmp_path))
    connection = connect(access, ReadSelection(columns=("at",)))
    window = Window(low={"at": at(2)}, up_to={"at": at(2)}, inclusive=True)
    assert ids(rows_of(read, access, connection.tasks(window, WindowSplit()))) == [2]


def test_rows_without_a_watermark(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [{"id": 1, "at": at(1)}, {"id": 2, "at": None}])
    access = Access("parquet", str(tmp_path))
    window = Window(up_to={"at": at(1)})

    def found(nulls: Any, first: bool) -> list[int]:
        connection = connect(access, ReadSelection(columns=("at",), nulls=nulls))
        asked = Window(up_to=window.up_to, nulls_first=first)
        return ids(rows_of(read, access, connection.tasks(asked, WindowSplit())))

    assert found("first", True) == [1, 2]
    assert found("never", False) == [1]
    with pytest.raises(SourceError, match="nulls: fail"):
        found("fail", False)


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("s"), pa.date32()])
def test_times_that_python_has_not_are_as_null(tmp_path: Path, kind: pa.DataType) -> None:
    unit = {"us": 1_000_000, "s": 1}.get(getattr(kind, "unit", ""), 0)
    values = [1, 200_000_000_000 * 2 * unit or 5_000_000]  # a year beyond 9999
    number = pa.int32() if not unit else pa.int64()
    table = pa.table({"id": [1, 2], "c": pa.array(values, number).cast(kind)})
    pq.write_table(table, tmp_path / "a.parquet")
    access = Access("parquet", str(tmp_path))
    connection = connect(access, ReadSelection(columns=("c",)))
    value = connection.bound("max", 0).value
    assert value["c"].year == 1970
    tasks = connection.tasks(Window(up_to=value, nulls_first=True), WindowSplit())
    assert sum(batch.num_rows for task in tasks for batch in read(access, task.spec, ())) == 2
    tasks = connection.tasks(Window(low=value, up_to=value, inclusive=True), WindowSplit())
    assert sum(batch.num_rows for task in tasks for batch in read(access, task.spec, ())) == 1


def test_a_folder_that_cannot_be_listed_fails_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "x/a.parquet", [{"id": 1, "at": at(1)}])
    put(tmp_path / "y/a.parquet", [{"id": 2, "at": at(2)}])
    scandir = os.scandir

    def failing(folder: Path) -> Any:
        if Path(folder).name == "x":
            raise OSError(errno.EIO, "Input/output error")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(Unavailable):
        poller(tmp_path).plan()


# --- files that change ------------------------------------------------------------------------


@pytest.mark.promise("G-145")
def test_replaced_or_deleted_file_raises_source_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    put(path, [{"id": 1, "at": at(1)}])
    source = poller(tmp_path)
    _, tasks = source.plan()
    status = path.stat()
    put(path, [{"id": 2, "at": at(1)}])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    assert path.stat().st_size == status.st_size
    with pytest.raises(SourceError, match="replaced by another"):
        rows_of(read, source.access, tasks)
    path.unlink()
    with pytest.raises(SourceError, match="gone now"):
        rows_of(read, source.access, tasks)


def test_invalid_parquet_file_raises_source_error(tmp_path: Path) -> None:
    for data in (b"", b"PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1", b"x" * 1000):
        (tmp_path / "a.parquet").write_bytes(data)
        with pytest.raises(SourceError, match=r"a\.parquet: cannot be read as Parquet"):
            poller(tmp_path).plan()


def test_hidden_files_and_others_are_left_alone(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [{"id": 1, "at": at(1)}])
    put(tmp_path / "_temporary/b.parquet", [{"id": 2, "at": at(1)}])
    put(tmp_path / ".c.parquet", [{"id": 3, "at": at(1)}])
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / "README").write_bytes(b"x")
    assert ids(poller(tmp_path).poll()) == [1]


# --- schemas ----------------------------------------------------------------------------------


def test_columns_and_types_may_differ_between_files(tmp_path: Path) -> None:
    put(
        tmp_path / "a.parquet",
        [{"id": 1, "at": at(1)}],
        pa.schema([("id", pa.int32()), ("at", pa.timestamp("ms", "UTC"))]),
    )
    put(tmp_path / "b.parquet", [{"at": at(2), "v": "x", "id": 2**40}])
    source = poller(tmp_path)
    rows = sorted(source.poll(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "at": at(1), "v": None}, {"id": 2**40, "at": at(2), "v": "x"}]


def test_incomparable_types_raise_source_error(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [{"id": 1, "at": at(1)}])
    put(tmp_path / "b.parquet", [{"id": 2, "at": "2026-01-01"}])
    with pytest.raises(SourceError, match="cannot be compared"):
        poller(tmp_path).plan()


def test_missing_column_raises_source_error(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [{"id": 1}])
    with pytest.raises(SourceError, match=r"no column at; there are id"):
        poller(tmp_path).plan()
    access = Access("parquet", str(tmp_path))
    fields = (FieldSpec("v", "string", nullable=True),)
    with pytest.raises(SourceError, match=r"no column v"):
        connect(access, ReadSelection(fields=fields)).tasks(Window(), WindowSplit())


def test_only_declared_columns_are_read(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [{"id": 1, "at": at(1), "v": "x"}])
    source = poller(tmp_path, fields=(FieldSpec("v", "string", nullable=True),))
    assert source.poll() == [{"v": "x"}]


def test_views_are_read(tmp_path: Path) -> None:
    """DataFusion writes texts as such, and Arrow cannot take rows of them apart."""
    kinds = {
        "text": pa.string_view(),
        "raw": pa.binary_view(),
        "texts": pa.list_(pa.string_view()),
        "inner": pa.struct([("x", pa.string_view())]),
        "names": pa.map_(pa.string_view(), pa.binary_view()),
    }
    row = {
        "text": "é",
        "raw": b"\xff",
        "texts": ["a", None],
        "inner": {"x": "b"},
        "names": [("k", b"v")],
    }
    put(
        tmp_path / "a.parquet",
        [{"n": n, **row} for n in range(3)],
        pa.schema({"n": pa.int64(), **kinds}),
    )
    source = poller(tmp_path, ("n", "text"))
    assert source.poll() == [{"n": n, **row} for n in range(3)]
    put(tmp_path / "b.parquet", [{"n": 3, **row}], pa.schema({"n": pa.int64(), **kinds}))
    assert source.poll() == [{"n": 3, **row}]


def test_a_snapshot_has_all_rows(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", [{"id": 1}])
    put(tmp_path / "b.parquet", [{"id": 2}])
    access = Access("parquet", str(tmp_path))
    connection = connect(access, ReadSelection())
    assert connection.default_bound is None
    assert ids(rows_of(read, access, connection.tasks(Window(), WindowSplit()))) == [1, 2]


# --- memory and stores ------------------------------------------------------------------------


def test_batches_are_bounded_in_rows_and_bytes(tmp_path: Path) -> None:
    rng = random.Random(1)
    texts = [rng.randbytes(500).hex() for _ in range(200)]
    table = pa.table(
        {
            "id": range(200_000),
            "at": [at(1)] * 200_000,
            "s": [texts[n % 200] for n in range(200_000)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = poller(tmp_path)
    _, tasks = source.plan()
    rows = 0
    for batch in read(source.access, through_json(tasks[0]).spec, ()):
        assert isinstance(batch, pa.RecordBatch)
        assert batch.num_rows <= parquet_process.BATCH_ROWS
        assert batch.get_total_buffer_size() <= 5 * BATCH_BYTES
        rows += batch.num_rows
        del batch
    assert rows == 200_000


def test_int96_watermarks_are_times_and_impossible_ones_bad(tmp_path: Path) -> None:
    """An impossible time is a bad record; as the watermark it counts as null."""
    values = [stored(2_000_000), stored(19_000), stored(19_001, DAY_NANOS), None]
    other = [stored(0), stored(0, 1), stored(0), stored(0)]
    table = pa.table({"id": range(4), "at": pa.array(values, STORED), "t": pa.array(other, STORED)})
    (tmp_path / "a.parquet").write_bytes(int96_file(table))
    kinds = {"id": "int64", "at": "timestamp", "t": "timestamp"}
    fields = tuple(FieldSpec(name, kind, nullable=True) for name, kind in kinds.items())  # type: ignore[arg-type]  # literals
    source = poller(tmp_path, fields=fields)
    up_to, tasks = source.plan()
    assert up_to["at"].year == 7445
    [task] = map(through_json, tasks)
    found = list(read(source.access, task.spec, fields))
    rows = [row for each in found if isinstance(each, pa.RecordBatch) for row in each.to_pylist()]
    bad = {
        json.loads(each.head)["id"]: each.reason for each in found if isinstance(each, BadRecord)
    }
    assert [row["id"] for row in rows] == [0, 3]
    assert "nanoseconds" in bad[1]
    assert "no such time" in bad[2]
    assert set(bad) == {1, 2}


TIMES = (*DATED, FieldSpec("d", "date", nullable=True))
OLD = -171_595  # 1500-03-01 in the Julian calendar, 1500-03-11 in the Gregorian one


def _read(folder: Path, condition: str, **given: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of a folder with these options, and the reasons of its bad records."""
    form = ParquetOptions(type="parquet", **given)
    access = Access("parquet", str(folder), format=form)
    selection = ReadSelection(columns=("at",), filter=condition, fields=TIMES)
    connection = connect(access, selection)
    window = Window({}, connection.bound("max", 0.0).value, {}, inclusive=False, nulls_first=True)
    rows, bad = [], []
    for task in connection.tasks(window, WindowSplit()):
        for found in read_all(read, access, task, TIMES):
            if isinstance(found, BadRecord):
                bad.append(found.reason)
            else:
                assert isinstance(found, pa.RecordBatch)
                rows += found.to_pylist()
    return rows, bad


def _by_hive(footer: Tree) -> None:
    footer[6] = (8, b"parquet-mr version 1.10.1")


@pytest.mark.parametrize(
    ("mode", "condition", "expected"),
    [
        ("legacy", "", ["1500-03-01", "2026-05-04"]),
        ("legacy", "d < DATE '1500-03-05'", ["1500-03-01"]),
        ("corrected", "", ["1500-03-11", "2026-05-04"]),
        ("corrected", "d < DATE '1500-03-05'", []),
        ("error", "", ["2026-05-04"]),
    ],
)
def test_old_dates_are_of_the_calendar_that_is_set(
    tmp_path: Path, mode: str, condition: str, expected: list[str]
) -> None:
    path = tmp_path / "a.parquet"
    days = pa.array([OLD, 20_577], pa.int32()).view(pa.date32())
    pq.write_table(pa.table({"id": [0, 1], "at": [at(0), at(1)], "d": days}), path)
    path.write_bytes(edited(path.read_bytes(), _by_hive))
    rows, bad = _read(tmp_path, condition, datetime_rebase_mode=mode)
    assert [row["d"].isoformat() for row in rows] == expected
    assert len(bad) == (mode == "error")
    assert all("set format.datetime_rebase_mode" in reason for reason in bad)


@pytest.mark.parametrize("stored_as_int96", [True, False])
def test_nanoseconds_are_cut_if_that_is_set(tmp_path: Path, stored_as_int96: bool) -> None:
    times = pa.array([1, 1_001], pa.timestamp("ns"))
    table = pa.table({"id": [0, 1], "at": times, "d": pa.nulls(2, pa.date32())})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=stored_as_int96)
    rows, bad = _read(tmp_path, "", nanoseconds="cut")
    assert [row["at"].microsecond for row in rows] == [0, 1]
    assert bad == []
