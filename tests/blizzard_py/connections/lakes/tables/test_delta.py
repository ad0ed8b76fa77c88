"""Delta as a source, over real tables that delta-rs wrote."""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes.delta import DeltaConnection
from blizzard_py.connections.lakes.window_rows import read
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, Window
from blizzard_py.slices.windows import window
from tests.support.lake_reading import Poller, rows_of

pytestmark = pytest.mark.unreadable_tables("sources are broken and emptied on purpose")

UTC = dt.UTC
START = dt.datetime(2026, 5, 4, 12, tzinfo=UTC)


def access_to(folder: Path) -> Access:
    return Access("delta", str(folder))


def poller(folder: Path, **arguments: Any) -> Poller:
    access = access_to(folder)
    columns = arguments.get("columns", ())
    fields = arguments.get("fields", ())
    selection = ReadSelection(columns=tuple(columns), fields=tuple(fields))
    kind = arguments.pop("kind", "max" if columns else "version")
    return Poller(lambda: DeltaConnection(access, selection), read, access, kind, **arguments)


def append(folder: Path, rows: list[dict[str, Any]], **options: Any) -> None:
    write_deltalake(str(folder), pa.Table.from_pylist(rows), mode="append", **options)


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def log(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020d}.json"


def rewrite(folder: Path, version: int, change: Any) -> None:
    """Change each action of a log entry in place."""
    path = log(folder, version)
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        change(action)
    path.write_text("\n".join(map(json.dumps, actions)) + "\n")


# --- versions ---------------------------------------------------------------------------------


@pytest.mark.promise("G-142")
def test_a_compaction_brings_nothing(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path, [{"id": number}])
    source = poller(tmp_path)
    source.poll()
    append(tmp_path, [{"id": 9}])
    assert DeltaTable(str(tmp_path)).optimize.compact()["numFilesRemoved"] == 5
    assert ids(source.poll()) == [9]
    append(tmp_path, [{"id": 10}])
    assert ids(source.poll()) == [10]


@pytest.mark.promise("G-142")
def test_random_histories_come_exactly_once(tmp_path: Path) -> None:
    for seed in range(8):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        append(folder, [{"id": 0, "day": "0", "at": START}], partition_by=["day"])
        polls = [poller(folder), poller(folder, columns=["at"])]
        found = [Counter[int](), Counter[int]()]
        written = 1
        at = START
        for _ in range(25):
            match chance.choice(["append", "append", "compact", "poll", "checkpoint"]):
                case "append":
                    at += dt.timedelta(microseconds=chance.choice([1, 999, 1_000_000]))
                    rows = [
                        {"id": written + n, "day": chance.choice("012"), "at": at}
                        for n in range(chance.randint(1, 3))
                    ]
                    append(folder, rows, partition_by=["day"])
                    written += len(rows)
                case "compact":
                    DeltaTable(str(folder)).optimize.compact()
                case "checkpoint":
                    DeltaTable(str(folder)).create_checkpoint()
                case "poll":
                    for source, seen in zip(polls, found, strict=True):
                        seen.update(ids(source.poll()))
        for source, seen in zip(polls, found, strict=True):
            seen.update(ids(source.poll()))
            assert seen == Counter(range(written)), seed


@pytest.mark.promise("G-142")
@pytest.mark.parametrize("what", ["delete", "update", "overwrite"])
def test_rows_that_were_changed_stop_the_source(tmp_path: Path, what: str) -> None:
    append(tmp_path, [{"id": 1}, {"id": 2}])
    source = poller(tmp_path)
    source.poll()
    table = DeltaTable(str(tmp_path))
    if what == "delete":
        table.delete("id = 1")
    elif what == "update":
        table.update(updates={"id": "7"}, predicate="id = 1")
    else:
        write_deltalake(str(tmp_path), pa.table({"id": [5]}), mode="overwrite")
    with pytest.raises(SourceError, match=r"version 1 deletes or changes rows.*_change_type"):
        source.poll()


FEED = [
    FieldSpec("id", "int64", nullable=True),
    FieldSpec("v", "string", nullable=True),
    FieldSpec("_change_type", "string", nullable=True),
    FieldSpec("_commit_version", "int64", nullable=True),
]


def test_the_change_feed_tells_what_became_of_rows(tmp_path: Path) -> None:
    fed = {"delta.enableChangeDataFeed": "true"}
    append(tmp_path, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], configuration=fed)
    source = poller(tmp_path, fields=FEED)
    assert {row["_change_type"] for row in source.poll()} == {"insert"}
    DeltaTable(str(tmp_path)).update(new_values={"v": "z"}, predicate="id = 1")
    append(tmp_path, [{"id": 3, "v": "c"}])
    DeltaTable(str(tmp_path)).delete("id = 2")
    DeltaTable(str(tmp_path)).optimize.compact()
    found = {
        (row["id"], row["v"], row["_change_type"], row["_commit_version"]) for row in source.poll()
    }
    reference = pa.table(DeltaTable(str(tmp_path)).load_cdf(starting_version=1)).to_pylist()
    assert found == {
        (row["id"], row["v"], row["_change_type"], row["_commit_version"]) for row in reference
    }
    assert len(found) == 4


@pytest.mark.parametrize("left_out", ["size", "partitionValues"])
def test_change_feed_needs_partition_values_but_not_sizes(tmp_path: Path, left_out: str) -> None:
    fed = {"delta.enableChangeDataFeed": "true"}
    rows = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    append(tmp_path, rows, configuration=fed, partition_by=["v"])
    source = poller(tmp_path, fields=FEED)
    source.poll()
    DeltaTable(str(tmp_path)).delete("v = 'b'")

    def bare(action: dict[str, Any]) -> None:
        if "remove" in action:
            del action["remove"][left_out]

    rewrite(tmp_path, 1, bare)
    # As of a writer without change files: the feed is then the removed file itself.
    lines = log(tmp_path, 1).read_text().splitlines()
    kept = [line for line in lines if "cdc" not in json.loads(line)]
    log(tmp_path, 1).write_text("\n".join(kept) + "\n")
    if left_out == "size":
        found = [(row["id"], row["v"], row["_change_type"]) for row in source.poll()]
        assert found == [(2, "b", "delete")]
    else:
        with pytest.raises(SourceError, match="lacks the value of v"):
            source.poll()


def test_without_the_feed_in_the_table_changes_stop_it(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    source = poller(tmp_path, fields=FEED)
    source.poll()
    DeltaTable(str(tmp_path)).delete("id = 2")
    with pytest.raises(SourceError, match=r"enableChangeDataFeed was not set"):
        source.poll()


def test_poll_rejects_a_log_that_was_cleaned_up(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1}])
    source = poller(tmp_path)
    source.poll()
    append(tmp_path, [{"id": 2}])
    append(tmp_path, [{"id": 3}])
    DeltaTable(str(tmp_path)).create_checkpoint()
    log(tmp_path, 1).unlink()
    with pytest.raises(SourceError, match=r"cleaned up.*checkpoint reset"):
        source.poll()


def test_poll_rejects_a_recreated_table_at_any_version(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    append(folder, [{"id": 1}])
    append(folder, [{"id": 2}])
    source = poller(folder)
    source.poll()
    for versions in (1, 2, 4):
        shutil.rmtree(folder)
        for number in range(versions):
            append(folder, [{"id": number}])
        with pytest.raises(SourceError, match=r"was recreated"):
            source.poll()
    source.stored.pop("table")
    source.stored["version"] = 17
    with pytest.raises(SourceError, match=r"is at version 3, the stored watermark at 17"):
        source.poll()


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ({"version": 0, "table": "0"}, "was recreated"),
        ({"version": 0, "table": "z"}, "was recreated"),
        ({"version": 9, "table": "z"}, "was recreated"),
        ({"version": 9}, "rolled back or recreated"),
    ],
)
def test_tasks_reject_recreated_and_rolled_back_tables(
    tmp_path: Path, stored: dict[str, Any], told: str
) -> None:
    append(tmp_path, [{"id": 1}])
    connection = DeltaConnection(access_to(tmp_path), ReadSelection())
    bound = connection.bound("version", 0)
    found = window({**bound.value, **stored}, bound.value, {}, START, bound.kind)
    assert found is not None
    with pytest.raises(SourceError, match=f"{told}.*checkpoint reset"):
        connection.tasks(found, WindowSplit())


def test_truncated_log_entry_raises_source_error(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path, [{"id": number}])
    connection = DeltaConnection(access_to(tmp_path), ReadSelection())
    up_to = connection.bound("version", 0).value
    window = Window({"version": 0}, up_to, {"version": 0})
    whole = log(tmp_path, 1).read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 3):
        # The table is opened from a checkpoint, so that only the window needs the entry.
        log(tmp_path, 1).write_bytes(whole)
        DeltaTable(str(tmp_path)).create_checkpoint()
        log(tmp_path, 1).write_bytes(whole[:size])
        with pytest.raises(SourceError, match=r"0001\.json: this entry"):
            connection.tasks(window, WindowSplit())


def test_column_mapping_and_deletion_vectors_are_refused_by_name(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1}])
    append(tmp_path, [{"id": 2}])

    def with_vector(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["deletionVector"] = {"storageType": "u", "sizeInBytes": 1}

    connection = DeltaConnection(access_to(tmp_path), ReadSelection())
    up_to = connection.bound("version", 0).value
    DeltaTable(str(tmp_path)).create_checkpoint()
    rewrite(tmp_path, 1, with_vector)
    window = Window({"version": 0}, up_to, {"version": 0})
    with pytest.raises(SourceError, match=r"deletion vectors.*skip.* --column version=1"):
        connection.tasks(window, WindowSplit())

    def as_purge(action: dict[str, Any]) -> None:
        """As REORG does it: files go with their vectors, and no row changes."""
        add = action.pop("add", None)
        if add is not None:
            told = {"path": add["path"], "deletionTimestamp": 1, "dataChange": False}
            action["remove"] = {**told, "deletionVector": add["deletionVector"]}

    rewrite(tmp_path, 1, as_purge)
    assert connection.tasks(window, WindowSplit()) == []

    mapped = tmp_path / "mapped"
    append(mapped, [{"id": 1}])

    def with_mapping(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}

    rewrite(mapped, 0, with_mapping)
    with pytest.raises(SourceError, match="column mapping"):
        DeltaConnection(access_to(mapped), ReadSelection()).bound("version", 0)


def test_vacuumed_planned_file_raises_source_error(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1}])
    source = poller(tmp_path)
    _, tasks = source.plan()
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    with pytest.raises(SourceError, match=r"gone now: a vacuum"):
        rows_of(read, source.access, tasks)


@pytest.mark.promise("G-145")
def test_replaced_planned_file_raises_source_error(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1}])
    source = poller(tmp_path)
    _, tasks = source.plan()
    for path in tmp_path.glob("*.parquet"):
        path.write_bytes(path.read_bytes() + b"PAR1")
    with pytest.raises(SourceError, match=r"replaced by another"):
        rows_of(read, source.access, tasks)


def test_damaged_file_error_hides_its_rows(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1, "s": "secret value"}])
    source = poller(tmp_path)
    _, tasks = source.plan()
    for path in tmp_path.glob("*.parquet"):
        path.write_bytes(b"secret value" + b"x" * (path.stat().st_size - 12))
    with pytest.raises(SourceError, match="cannot be read as Parquet") as caught:
        rows_of(read, source.access, tasks)
    assert "secret" not in str(caught.value)


# --- columns ----------------------------------------------------------------------------------

TRAPS: list[tuple[str, list[Any]]] = [
    # Delta's maximum is 12:00:00.123: the microseconds behind it are still to be found.
    ("microseconds", [START + dt.timedelta(microseconds=n) for n in (123_001, 123_456, 123_999)]),
    ("before 1970", [dt.datetime(1960, 1, 1, 0, 0, 0, n, UTC) for n in (1, 999, 123_456)]),
    (
        "no zone",
        [dt.datetime(2026, 1, 1, 0, 0, 0, n, UTC).replace(tzinfo=None) for n in (1, 999, 123_456)],
    ),
    ("dates", [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2026, 1, 1)]),
    ("whole numbers", [-(2**63), 2**53 + 1, 2**63 - 1]),
    ("negative zero", [-0.0, 0.5, 1.0]),
    ("fractions", [-1e308, 5e-324, 1e308]),
    (
        "decimals",
        [Decimal("-0.01"), Decimal("12345678901234567.89"), Decimal("12345678901234567.90")],
    ),
    ("long text", ["a" * 40, "a" * 40 + "b", "a" * 39 + "b"]),
    ("text by bytes", ["z", "é", "\uffee", "\U0001f600"]),
]


@pytest.mark.promise("G-143")
@pytest.mark.parametrize(("name", "values"), TRAPS, ids=[name for name, _ in TRAPS])
def test_statistics_never_hide_a_row(tmp_path: Path, name: str, values: list[Any]) -> None:
    kind = pa.decimal128(20, 2) if name == "decimals" else None
    order = sorted(values)
    source = poller(tmp_path, columns=["c"])
    found = []
    for number, value in enumerate(order):
        # One file each, with a null beside it.
        table = pa.table({"id": [number, -1], "c": pa.array([value, None], kind)})
        write_deltalake(str(tmp_path), table, mode="append")
        rows = source.poll()
        found += [row["id"] for row in rows if row["c"] is not None]
        assert source.stored["c"] == value
        assert type(source.stored["c"]) is type(value)
    assert found == list(range(len(order)))


def test_nan_is_as_null(tmp_path: Path) -> None:
    nan = float("nan")
    source = poller(tmp_path, columns=["c"])
    append(tmp_path, [{"id": 1, "c": 1.0}, {"id": 2, "c": nan}])
    assert ids(source.poll()) == [1, 2]  # as null, with the first window
    assert source.stored == {"c": 1.0}
    append(tmp_path, [{"id": 3, "c": nan}])
    append(tmp_path, [{"id": 4, "c": 2.0}])
    assert ids(source.poll()) == [4]


def test_files_below_the_window_are_deleted_and_it_still_works(tmp_path: Path) -> None:
    for number in range(5):
        append(tmp_path, [{"id": number, "at": START + dt.timedelta(milliseconds=number * 10)}])
    source = poller(tmp_path, columns=["at"])
    source.poll()
    append(tmp_path, [{"id": 9, "at": START + dt.timedelta(seconds=1)}])
    actions = pa.table(DeltaTable(str(tmp_path)).get_add_actions()).to_pylist()
    # That of the stored maximum itself may hold microseconds above it, and is read.
    edge = START + dt.timedelta(milliseconds=40)
    old = [action["path"] for action in actions if action["max"]["at"] < edge]
    assert len(old) == 4
    for path in old:
        (tmp_path / path).unlink()
    assert ids(source.poll()) == [9]


def test_files_without_statistics_are_read(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1, "at": START}])
    append(tmp_path, [{"id": 2, "at": START + dt.timedelta(seconds=1)}])

    def bare(action: dict[str, Any]) -> None:
        if "add" in action:
            del action["add"]["stats"]

    rewrite(tmp_path, 1, bare)
    source = poller(tmp_path, columns=["at"])
    assert ids(source.poll()) == [1, 2]
    assert source.stored["at"] == START + dt.timedelta(seconds=1)


@pytest.mark.parametrize("kind", ["version", "max"])
def test_partition_values_come_back_however_they_are_spelt(tmp_path: Path, kind: str) -> None:
    odd = ["a b/ü", "x=%20", "p=q", "é\n", "100%", "#?&", "'\"", "..", "\U0001f600", None]
    source = poller(tmp_path, columns=["id"] if kind == "max" else [])
    append(tmp_path, [{"id": 0, "p": "first"}], partition_by=["p"])
    source.poll()
    append(tmp_path, [{"id": n + 1, "p": p} for n, p in enumerate(odd)], partition_by=["p"])
    found = source.poll()
    assert {row["id"]: row["p"] for row in found} == {n + 1: p for n, p in enumerate(odd)}


def test_partition_columns_have_their_types(tmp_path: Path) -> None:
    row = {
        "id": 1,
        "d": dt.date(2026, 1, 2),
        "t": START + dt.timedelta(microseconds=7),
        "n": dt.datetime(2026, 1, 1, 0, 0, 0, 7, UTC).replace(tzinfo=None),
        "i": -7,
        "b": True,
        "m": Decimal("1.50"),
    }
    source = poller(tmp_path)
    keys = [key for key in row if key != "id"]
    append(tmp_path, [{**row, "id": 0}], partition_by=keys)
    first = source.poll()
    append(tmp_path, [row])
    assert first == [{**row, "id": 0}]
    assert source.poll() == [row]


@pytest.mark.parametrize("columns", [[], ["id"]])
def test_a_partition_column_of_bytes_is_refused(tmp_path: Path, columns: list[str]) -> None:
    append(tmp_path, [{"id": 0, "p": b"x"}], partition_by=["p"])
    with pytest.raises(SourceError, match="partition column p is binary, which is not read"):
        poller(tmp_path, columns=columns).poll()


def test_a_partition_column_is_a_watermark(tmp_path: Path) -> None:
    days = [dt.date(2026, 1, 1) + dt.timedelta(days=n) for n in range(4)]
    source = poller(tmp_path, columns=["d"])
    for number, day in enumerate(days):
        append(tmp_path, [{"id": number, "d": day}], partition_by=["d"])
        assert ids(source.poll()) == [number]
        assert source.stored == {"d": day}


# --- schemas ----------------------------------------------------------------------------------


def test_columns_added_later_are_null_in_older_files(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1}])
    append(tmp_path, [{"id": 2, "v": "b"}], schema_mode="merge")
    assert sorted(poller(tmp_path).poll(), key=lambda row: row["id"]) == [
        {"id": 1, "v": None},
        {"id": 2, "v": "b"},
    ]


def test_a_missing_column_error_lists_existing_columns(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1, "at": START}])
    source = poller(tmp_path, columns=["at"])
    source.poll()
    write_deltalake(str(tmp_path), pa.table({"id": [2]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SourceError, match=r"no column at; there are id"):
        source.poll()


def test_changed_type_error_names_both_types(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1}])
    source = poller(tmp_path, columns=["id"])
    source.poll()
    write_deltalake(
        str(tmp_path), pa.table({"id": ["x"]}), mode="overwrite", schema_mode="overwrite"
    )
    with pytest.raises(SourceError, match=r"id is .*string.*watermark is int"):
        source.poll()


def test_unsupported_delta_selections_raise_source_error(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1, "l": [1]}])
    access = access_to(tmp_path)
    with pytest.raises(SourceError, match="no column w; there are"):
        DeltaConnection(access, ReadSelection(filter="w > 1")).bound("version", 0)
    with pytest.raises(SourceError, match="has no clock"):
        DeltaConnection(access, ReadSelection(columns=("id",))).bound("clock", 1)
    with pytest.raises(SourceError, match="no order"):
        DeltaConnection(access, ReadSelection(columns=("l",))).bound("max", 0)
    with pytest.raises(SourceError, match="is not a Delta table"):
        DeltaConnection(access_to(tmp_path / "none"), ReadSelection()).bound("version", 0)


def test_bound_warns_when_every_watermark_value_is_null(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1, "v": 5}])
    DeltaTable(tmp_path).update(updates={"v": "NULL"})
    told = DeltaConnection(access_to(tmp_path), ReadSelection(columns=("v",))).bound("max", 0)
    assert told.value == {}
    assert "no row of the table has a value in v" in told.warnings[0]


def test_the_clock_is_a_bound_for_times_and_dates(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1, "at": START, "n": START.replace(tzinfo=None), "d": START.date()}])
    selection = ReadSelection(columns=("at", "n", "d"))
    connection = DeltaConnection(access_to(tmp_path), selection, lambda: START)
    assert connection.default_bound == "max"
    value = connection.bound("clock", 60).value
    settled = START - dt.timedelta(seconds=60)
    for name in ("at", "n"):
        below = settled.replace(tzinfo=value[name].tzinfo) - value[name]
        assert dt.timedelta(0) <= below <= dt.timedelta(microseconds=1)
    assert value["d"] == START.date() - dt.timedelta(days=1)
    assert value["n"].tzinfo is None


def test_columns_have_types_and_kinds(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1, "at": START, "d": dt.date(2026, 1, 1), "s": "x", "l": [1.5]}])
    found = DeltaConnection(access_to(tmp_path), ReadSelection()).columns()
    assert {each.name: each.kind for each in found} == {
        "id": "number",
        "at": "time",
        "d": "date",
        "s": "text",
        "l": "other",
    }
    assert {each.name: each.field.type for each in found} == {
        "id": "int64",
        "at": "timestamp",
        "d": "date",
        "s": "string",
        "l": "list",
    }


def test_tasks_split_the_files(tmp_path: Path) -> None:
    for number in range(7):
        append(tmp_path, [{"id": number}])
    source = poller(tmp_path, split=WindowSplit(tasks=3))
    _, tasks = source.plan()
    assert [task.name for task in tasks] == ["0", "1", "2"]
    assert ids(rows_of(read, source.access, tasks)) == list(range(7))


def test_a_type_that_arrow_has_no_room_for_is_refused_by_name(tmp_path: Path) -> None:
    append(tmp_path, [{"id": 1}])
    kind: Any = "long"
    for _ in range(100):
        kind = {"type": "array", "elementType": kind, "containsNull": True}
    column = {"name": "id", "type": kind, "nullable": True, "metadata": {}}

    def deepen(action: dict[str, Any]) -> None:
        if "metaData" in action:
            deep = {"type": "struct", "fields": [column]}
            action["metaData"]["schemaString"] = json.dumps(deep)

    rewrite(tmp_path, 0, deepen)
    with pytest.raises(SourceError, match="the table's columns cannot be read: Recursion"):
        poller(tmp_path).poll()
