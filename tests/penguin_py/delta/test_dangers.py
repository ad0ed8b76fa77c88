"""Dangers to readers of a Delta table, each with its guard.

Two halves in most tests: the danger is real with the library in use (so the guard
is not there for nothing), and Penguin does not walk into it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from blizzard_core.errors import CommitError, StateError, Unavailable
from blizzard_core.handover.outputs import NAN_COLUMNS_KEY
from blizzard_core.storage.protocol import ListingPage, NameTest, Range, Storage
from blizzard_core.text import MAX_SHOWN
from penguin_py.delta.messages import clean_message
from penguin_py.delta.table import DeltaLog
from tests.support.table_harness import TableHarness, parquet


def commit_by_hand(
    world: TableHarness, path: str, values: dict[str, str | None], stats: str, **more: Any
) -> None:
    """Commit as a careless writer does."""
    world.tampered = True
    entry = world.storage.stat(path)
    add = AddAction(path, more.get("size", entry.size), values, 1, data_change=True, stats=stats)
    delta = world.delta()
    by = delta.metadata().partition_columns
    delta.create_write_transaction([add], "append", delta.schema(), by)


@pytest.mark.promise("G-173")
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("date", "2024-01-01", "junk"),
        ("date", "2024-01-01", "20240102"),
        ("int32", "7", "abc"),
        ("int64", "7", "9223372036854775808"),
        ("timestamp", "2024-01-01 00%3A00%3A00", "yesterday"),
    ],
)
def test_an_invalid_partition_value_never_reaches_the_log(
    world: TableHarness, kind: str, good: str, bad: str
) -> None:
    settings: dict[str, Any] = {
        "partition_by": {"prefix_template": "p=%Y", "types": {"p": kind}},
    }
    world.put(f"p={good}/a.parquet", {"id": [1]})
    world.run(**settings)
    world.put(f"p={bad}/b.parquet", {"id": [2]})
    world.put(f"p={good}/c.parquet", {"id": [3]})
    world.put("p=__HIVE_DEFAULT_PARTITION__/d.parquet", {"id": [4]})
    world.put(f"q={good}/e.parquet", {"id": [5]})
    world.run(**settings)
    assert sorted(row["id"] for row in world.rows()) == [1, 3, 4]
    assert set(world.quarantined()) == {f"p={bad}/b.parquet", f"q={good}/e.parquet"}
    # The danger: with the value in the log nobody opens the table again.
    with pytest.raises(Exception, match="arse"):
        commit_by_hand(world, f"p={bad}/b.parquet", {"p": bad}, "{}")
    with pytest.raises(Exception, match="arse"):
        world.rows()


def skipped(world: TableHarness) -> bool:
    """Return whether a reader looking for ``n < 5`` skips the file `high`."""
    path = Path(world.uri, "high.parquet")
    path.rename(path.with_name("away"))
    try:
        found = world.delta().to_pyarrow_dataset().to_table(filter=ds.field("n") < 5)
        return bool(found["n"].to_pylist() == [1])
    except FileNotFoundError:
        return False
    finally:
        path.with_name("away").rename(path)


ODD: list[dict[str, Any]] = [
    {"f": [math.nan]},
    {"f": [-math.inf]},
    {"far": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())},
    {"when": pa.array([2**62], pa.timestamp("us", tz="UTC"))},
]


def test_no_odd_column_disables_data_skipping_for_others(world: TableHarness) -> None:
    struct = pa.struct(
        [
            ("x", pa.int64()),
            ("l", pa.list_(pa.int64())),
            ("none", pa.string()),
            ("f", pa.float64()),
        ]
    )

    def file(n: int) -> pa.Table:
        return pa.table(
            {
                "n": pa.array([n], pa.int64()),
                "zero": [-0.0],
                "end": [dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)],
                "long": ["\U0010ffff" * 5000],
                "none": pa.array([None], pa.string()),
                "raw": [b"\xff\x00"],
                "flag": [True],
                "list": [[1]],
                "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
                "s": pa.array([{"x": 1, "l": [1], "none": None, "f": math.nan}], struct),
                "price": pa.array([n]).cast(pa.decimal128(38, 18)),
                'a"b.c': ['quo"te\n\u2028'],
            }
        ).replace_schema_metadata({NAN_COLUMNS_KEY: ""})

    world.put("low.parquet", file(1))
    world.put("high.parquet", file(9))
    # Narrower than the table's, so that the file's own types would be the wrong ones.
    world.put("middle.parquet", pa.table({"n": pa.array([7], pa.int8())}))
    world.run()
    # What no bound can be written of costs its own file its bounds, and no other one.
    for number, odd in enumerate(ODD):
        world.put(f"odd{number}.parquet", pa.table({"n": [5], **odd}))
    world.run()
    assert not world.quarantined()
    assert skipped(world)
    world.delta().create_checkpoint()
    assert skipped(world)
    # The danger: delta-rs writes one mistyped bound and only then fails over it.
    world.put("careless.parquet", {"n": [8]})
    bounds = json.dumps({"numRecords": 1, "minValues": {"n": ""}, "maxValues": {"n": ""}})
    with pytest.raises(Exception, match="Int64"):
        commit_by_hand(world, "careless.parquet", {}, bounds)
    assert world.storage.stat(f"_delta_log/{1:020d}.json") is not None


class Growing:
    """A storage in which a file is replaced by a longer one right after it was listed."""

    def __init__(self, inner: Storage, path: str, data: bytes) -> None:
        self._inner = inner
        self._path = path
        self._data = data

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        return self._growing(self._inner.list_range(after, until))

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage] | None:
        pages = self._inner.list_ranges(ranges, may_be_wanted)
        return None if pages is None else self._growing(pages)

    def _growing(self, pages: Iterator[ListingPage]) -> Iterator[ListingPage]:
        # Page by page: a listing that is left before it comes to the file has not listed it.
        for page in pages:
            if any(entry.path == self._path for entry in page.entries):
                self._inner.put_atomic(self._path, self._data)
            yield page


def test_a_size_that_is_no_longer_true_is_not_committed(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    world.put("b.parquet", {"id": [2]})
    longer = parquet({"id": list(range(5000))})
    table = world.table()
    growing = Growing(world.storage, "b.parquet", longer)
    world.run(world.penguin_on(table, growing, DeltaLog(table, world.storage, world.pool)))  # type: ignore[arg-type]  # a proxy
    assert world.paths() == {"a.parquet"}
    assert set(world.quarantined()) == {"b.parquet"}
    # The danger: readers look for the footer where the log says the file ends.
    entry = world.storage.stat("b.parquet")
    commit_by_hand(world, "b.parquet", {}, '{"numRecords":5000}', size=entry.size - 50)
    with pytest.raises(Exception, match=r"(?i)parquet|footer|range|eof"):
        pl.read_delta(world.uri)


def test_a_shrunk_file_is_not_committed(world: TableHarness) -> None:
    world.put("a.parquet", {"id": list(range(5000))})
    table = world.table()
    shrinking = Growing(world.storage, "a.parquet", parquet({"id": [1]}))
    penguin = world.penguin_on(table, shrinking, DeltaLog(table, world.storage, world.pool))  # type: ignore[arg-type]  # a proxy
    with pytest.raises(Unavailable, match="changed while it was read"):
        world.run(penguin)
    world.run(penguin)
    entry = world.storage.stat("a.parquet")
    assert {add["add"]["size"] for add in world.actions(0) if "add" in add} == {entry.size}
    assert world.rows() == [{"id": 1}]


@pytest.mark.parametrize("path", ["a//b.parquet", "./b.parquet", "b%2Eparquet", "d=1/../b.parquet"])
def test_one_file_has_one_spelling(world: TableHarness, path: str) -> None:
    """Readers count a file once for each spelling of its path that the log has."""
    world.put("b.parquet", {"id": [1]})
    world.run()
    assert world.delta_paths() == ["b.parquet"]
    found = DeltaLog(world.table(), world.storage, world.pool)
    assert found.refresh() is not None
    assert [entry.path for entry in found.known_paths(0)] == ["b.parquet"]
    # A listing can only name keys that exist, in the one spelling that they have.
    listed = [e.path for page in world.storage.list_range("", None) for e in page.entries]
    assert path not in listed


def test_encoded_names_are_recognised_by_their_listed_name(world: TableHarness) -> None:
    """The log percent-encodes paths; compared as they stand, each poll would add them again."""
    names = ["p=a%2Fb/x y.parquet", "p=ü/100%.parquet", "p=a b/q?#&.parquet"]
    for number, name in enumerate(names):
        world.put(name, {"id": [number]})
    world.run()
    assert [row["id"] for row in world.rows()] == [0, 1, 2]
    world.storage.delete("_penguin/events_checkpoint.json")
    for _ in range(2):
        delta = world.delta()
        delta.create_checkpoint()
        known = DeltaLog(world.table(), world.storage, world.pool).known_paths(0)
        assert {entry.path for entry in known} == set(names)
    world.put("p=a%2Fb/z.parquet", {"id": [3]})
    world.run()
    assert [row["id"] for row in world.rows()] == [0, 1, 2, 3]


def test_the_empty_overwrite_overwrites_nothing(tmp_path: Path) -> None:
    """The behaviour of this delta-rs release that schema changes rely on."""
    root = str(tmp_path)
    (tmp_path / "a.parquet").write_bytes(parquet({"id": [1]}))
    add = AddAction("a.parquet", (tmp_path / "a.parquet").stat().st_size, {}, 1, True, "{}")
    create_table_with_add_actions(
        root, Schema.from_arrow(pa.schema([("id", pa.int64())])), [add], mode="error"
    )
    wider = Schema.from_arrow(pa.schema([("id", pa.int64()), ("x", pa.string())]))
    DeltaTable(root).create_write_transaction(
        [], "overwrite", wider, partition_filters=[("id", "in", [])]
    )
    log = (tmp_path / "_delta_log" / f"{1:020d}.json").read_text()
    assert [next(iter(json.loads(line))) for line in log.splitlines()] == ["commitInfo", "metaData"]
    assert len(DeltaTable(root).file_uris()) == 1


def declaring(world: TableHarness, **metadata: Any) -> DeltaLog:
    """A table whose newest commit declares that, and its log as Penguin reads it."""
    world.put("a.parquet", {"id": [1]})
    world.run()
    world.tampered = True
    text = world.storage.read("_delta_log/00000000000000000000.json").decode()
    found = [json.loads(line) for line in text.splitlines()]
    before = next(each["metaData"] for each in found if "metaData" in each)
    action = json.dumps({"metaData": {**before, **metadata}}).encode()
    world.storage.put_atomic("_delta_log/00000000000000000001.json", action)
    return DeltaLog(world.table(), world.storage, world.pool)


def test_a_type_that_arrow_has_no_room_for_is_refused_by_name(world: TableHarness) -> None:
    kind: Any = "long"
    for _ in range(100):
        kind = {"type": "array", "elementType": kind, "containsNull": True}
    column = {"name": "id", "type": kind, "nullable": True, "metadata": {}}
    log = declaring(world, schemaString=json.dumps({"type": "struct", "fields": [column]}))
    with pytest.raises(StateError, match=r"table/_delta_log: the log cannot be read: Recursion"):
        log.refresh()


class Panic(BaseException):
    """The exception of a delta-rs panic; only its name identifies it."""


Panic.__name__ = "PanicException"


@pytest.mark.parametrize("error", [Panic("gave up"), OverflowError("gave up")])
def test_a_log_that_delta_rs_gives_up_on_is_refused_by_name(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    log = declaring(world)
    assert log.refresh() is not None

    def give_up(*_: object, **__: object) -> None:
        raise error

    for name in ("update_incremental", "metadata", "vacuum"):
        monkeypatch.setattr(DeltaTable, name, give_up)
    with pytest.raises(CommitError, match="gave up"):
        log.vacuum(168 * 3600)
    with pytest.raises(StateError, match=r"table/_delta_log: the log cannot be read: gave up"):
        log.refresh()


def test_delta_rs_message_about_a_long_path_is_shortened() -> None:
    """A message goes to the log and to whoever looks at the status page."""
    assert len(clean_message(OSError("x" * 2_000_000 + ": too long"))) <= MAX_SHOWN
    assert clean_message(OSError("x" * 2_000_000 + ": too long")).endswith("x: too long")
