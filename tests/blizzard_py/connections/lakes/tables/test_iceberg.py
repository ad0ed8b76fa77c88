"""Iceberg as a source, over real tables that pyiceberg wrote."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from blizzard_core.errors import ConfigError, SourceError
from blizzard_py.connections.lakes.iceberg import IcebergConnection
from blizzard_py.connections.lakes.window_rows import read
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.reading import Access
from tests.support.iceberg_catalog import FolderCatalog
from tests.support.lake_reading import Poller, rows_of

UTC = dt.UTC
START = dt.datetime(2026, 5, 4, 12, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("s", pa.string())])


def made(folder: Path, schema: pa.Schema = SCHEMA, **options: Any) -> Table:
    return FolderCatalog("default", warehouse=str(folder)).create_table("db.t", schema, **options)


def access_to(folder: Path) -> Access:
    catalog = {
        "py-catalog-impl": "tests.support.iceberg_catalog.FolderCatalog",
        "warehouse": str(folder),
    }
    return Access("iceberg", "", catalog)


def poller(folder: Path, columns: tuple[str, ...] = ()) -> Poller:
    access = access_to(folder)
    selection = ReadSelection(table="db.t", columns=columns)
    kind = "max" if columns else "version"
    return Poller(lambda: IcebergConnection(access, selection), read, access, kind, columns)


def append(table: Table, *numbers: int, step: dt.timedelta = dt.timedelta(seconds=1)) -> None:
    rows = [{"id": n, "at": START + n * step, "s": f"text {n}" * 5} for n in numbers]
    table.append(pa.Table.from_pylist(rows, SCHEMA))


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


@pytest.mark.promise("G-142")
def test_random_histories_come_exactly_once(tmp_path: Path) -> None:
    for seed in range(3):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        merged = {
            "commit.manifest-merge.enabled": "true",
            "commit.manifest.min-count-to-merge": "2",
        }
        table = made(folder, properties=merged)
        polls = [poller(folder), poller(folder, ("at",))]
        found = [Counter[int](), Counter[int]()]
        written = 0
        for _ in range(12):
            if chance.random() < 0.6:
                append(table, *range(written, written := written + chance.randint(1, 3)))
            else:
                for source, seen in zip(polls, found, strict=True):
                    seen.update(ids(source.poll()))
        for source, seen in zip(polls, found, strict=True):
            seen.update(ids(source.poll()))
            assert seen == Counter(range(written)), seed


@pytest.mark.parametrize("what", ["delete", "overwrite"])
def test_rows_that_were_changed_stop_the_source(tmp_path: Path, what: str) -> None:
    table = made(tmp_path)
    append(table, 1, 2)
    source = poller(tmp_path)
    source.poll()
    if what == "delete":
        table.delete("id = 1")
    else:
        table.overwrite(pa.Table.from_pylist([{"id": 9}], SCHEMA))
    with pytest.raises(SourceError, match=r"deletes or changes rows"):
        source.poll()


def test_poll_rejects_expired_snapshots_and_recreated_tables(tmp_path: Path) -> None:
    table = made(tmp_path)
    append(table, 1)
    source = poller(tmp_path)
    source.poll()
    append(table, 2)
    append(table, 3)
    first, second = (each.snapshot_id for each in table.metadata.snapshots[:2])
    table.maintenance.expire_snapshots().by_ids([first, second]).commit()
    with pytest.raises(SourceError, match=r"1 to 3 are not in its history"):
        source.poll()
    made(tmp_path)
    append(FolderCatalog("default", warehouse=str(tmp_path)).load_table("db.t"), 1)
    with pytest.raises(SourceError, match="was recreated"):
        source.poll()


def test_poll_rejects_a_rolled_back_table(tmp_path: Path) -> None:
    table = made(tmp_path)
    append(table, 1)
    append(table, 2)
    source = poller(tmp_path)
    source.poll()
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()
    with pytest.raises(SourceError, match="at version 1, the stored watermark at 2"):
        source.poll()
    append(table, 3)
    with pytest.raises(SourceError, match="2 to 3 are not in its history"):
        source.poll()


def test_format_version_1_has_columns_only(tmp_path: Path) -> None:
    table = made(tmp_path, properties={"format-version": "1"})
    append(table, 1)
    with pytest.raises(SourceError, match="format version 1"):
        poller(tmp_path).poll()
    assert ids(poller(tmp_path, ("at",)).poll()) == [1]


def test_files_below_the_window_are_deleted_and_it_still_works(tmp_path: Path) -> None:
    table = made(tmp_path)
    for number in range(4):
        append(table, number)
    source = poller(tmp_path, ("at",))
    source.poll()
    old = list((tmp_path / "db.t/data").glob("*.parquet"))
    append(table, 9)
    for path in old:
        path.unlink()
    assert ids(source.poll()) == [9]


def test_missing_planned_file_raises_source_error(tmp_path: Path) -> None:
    table = made(tmp_path)
    append(table, 1)
    source = poller(tmp_path)
    _, tasks = source.plan()
    for path in (tmp_path / "db.t/data").glob("*.parquet"):
        path.unlink()
    with pytest.raises(SourceError, match="gone now"):
        rows_of(read, source.access, tasks)


TRAPS: list[tuple[str, pa.DataType, list[Any]]] = [
    (
        "times",
        pa.timestamp("us", "UTC"),
        [START.replace(microsecond=n) for n in (1, 2, 999)],
    ),
    ("no zone", pa.timestamp("us"), [START.replace(tzinfo=None, microsecond=n) for n in (1, 2)]),
    ("dates", pa.date32(), [dt.date(1969, 12, 31), dt.date(2026, 1, 1)]),
    ("numbers", pa.int32(), [-(2**31), 0, 2**31 - 1]),
    ("floats", pa.float64(), [-1e308, -0.0, 0.1]),
    ("decimals", pa.decimal128(38, 2), [Decimal("-5.01"), Decimal("9" * 36 + ".99")]),
    ("text", pa.string(), ["a" * 20, "a" * 20 + "b", "é", "\uffee", "\U0001f600"]),
]


@pytest.mark.promise("G-143")
@pytest.mark.parametrize(
    ("kind", "values"), [each[1:] for each in TRAPS], ids=[each[0] for each in TRAPS]
)
def test_statistics_never_hide_a_row(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("id", pa.int64()), ("c", kind)])
    table = made(tmp_path, schema)
    source = poller(tmp_path, ("c",))
    found = []
    for number, value in enumerate(values):
        table.append(pa.table({"id": [number, -1], "c": pa.array([value, None], kind)}, schema))
        found += [row["id"] for row in source.poll() if row["c"] is not None]
        assert source.stored["c"] == value
    assert found == list(range(len(values)))


def test_columns_are_known_by_number(tmp_path: Path) -> None:
    table = made(tmp_path)
    append(table, 1)
    with table.update_schema() as update:
        update.rename_column("at", "changed")
        update.rename_column("s", "at")
        update.add_column("v", LongType())
    assert poller(tmp_path).poll() == [
        {"id": 1, "changed": START + dt.timedelta(seconds=1), "at": "text 1" * 5, "v": None}
    ]
    assert ids(poller(tmp_path, ("changed",)).poll()) == [1]


def test_poll_rejects_a_renamed_nested_field(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("s", inner), ("l", pa.list_(inner))])
    table = made(tmp_path, schema)
    row = {"id": 1, "s": {"a": 1, "b": 2}, "l": [{"a": 1, "b": 2}]}
    table.append(pa.Table.from_pylist([row], schema))
    assert poller(tmp_path).poll() == [row]
    with table.update_schema() as update:
        update.rename_column("l.element.a", "c")
    with pytest.raises(SourceError, match="a field a inside l that is now called c"):
        poller(tmp_path).poll()


def test_poll_rejects_a_dropped_watermark_column(tmp_path: Path) -> None:
    table = made(tmp_path)
    append(table, 1)
    source = poller(tmp_path, ("at",))
    source.poll()
    with table.update_schema() as update:
        update.delete_column("at")
    with pytest.raises(SourceError, match="no column at; there are id, s"):
        source.poll()


def test_partitions_come_back(tmp_path: Path) -> None:
    field = PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="s")
    table = made(tmp_path)
    with table.update_spec() as update:
        update.add_identity("s")
    odd = ["a b/ü", "x=%20", "é", None]
    table.append(pa.Table.from_pylist([{"id": n, "s": s} for n, s in enumerate(odd)], SCHEMA))
    assert {row["id"]: row["s"] for row in poller(tmp_path).poll()} == dict(enumerate(odd))
    assert PartitionSpec(field).fields


def test_files_that_lack_their_partition_column_are_refused(tmp_path: Path) -> None:
    table = made(tmp_path)
    with table.update_spec() as update:
        update.add_identity("s")
    table.append(pa.Table.from_pylist([{"id": 1, "s": "x"}], SCHEMA))
    source = poller(tmp_path)
    _, tasks = source.plan()
    [path] = (tmp_path / "db.t/data").rglob("*.parquet")
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["s"]), path)
    [task] = tasks
    task.spec["files"][0][2] = path.stat().st_size
    with pytest.raises(SourceError, match="does not contain s, which partitions"):
        rows_of(read, source.access, tasks)


def test_without_a_catalog_the_metadata_are_named(tmp_path: Path) -> None:
    table = made(tmp_path)
    append(table, 1)
    place = table.metadata_location.removeprefix("file://")
    access = Access("iceberg", str(tmp_path))

    def found(name: str) -> list[int]:
        connection = IcebergConnection(access, ReadSelection(table=name))
        return ids(Poller(lambda: connection, read, access, "version").poll())

    assert found(place) == [1]
    with pytest.raises(SourceError, match="only its catalog"):
        found("db.t")
    for version in (1, 2):
        (tmp_path / f"db.t/metadata/v{version}.metadata.json").write_bytes(Path(place).read_bytes())
    (tmp_path / "db.t/metadata/version-hint.text").write_text("1")
    assert found("db.t") == [1]
    with pytest.raises(SourceError):
        found("none")


def test_missing_table_and_missing_driver_raise_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        poller(tmp_path).poll()
    monkeypatch.setitem(__import__("sys").modules, "pyiceberg", None)
    with pytest.raises(ConfigError, match=r"blizzard-penguin\[iceberg\]"):
        IcebergConnection(access_to(tmp_path), ReadSelection(table="db.t")).columns()


_called: list[object] = []


def called(given: object) -> FileIO:
    """A function that a table's writer tries to have called."""
    _called.append(given)
    return PyArrowFileIO({})


@pytest.mark.parametrize("with_catalog", [True, False])
def test_table_properties_do_not_change_how_a_table_is_read(
    tmp_path: Path, with_catalog: bool
) -> None:
    """They went before ours: a table's writer had any function called, with our credentials."""
    _called.clear()
    table = made(tmp_path, properties={"py-io-impl": f"{__name__}.called"})
    append(table, 1, 2)
    place = str(table.refresh().metadata_location).removeprefix("file://")
    _called.clear()  # its writer's own doing
    access = access_to(tmp_path) if with_catalog else Access("iceberg", str(tmp_path), {})
    selection = ReadSelection(table="db.t" if with_catalog else place)
    source = Poller(lambda: IcebergConnection(access, selection), read, access, "version")
    assert ids(source.poll()) == [1, 2]
    assert _called == []
