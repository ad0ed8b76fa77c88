"""Move from another loader without reading twice: docs/guides/move-from-auto-loader.md."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from tests.support.table_drill import CHECKPOINT, Drill

ROWS = pa.schema([("id", pa.int64()), ("text", pa.string()), ("_rescued_data", pa.string())])


def files(drill: Drill) -> None:
    """Two days; of the second the other loader has taken the first of two files."""
    drill.put_rows("date=2024-01-21/1706-a.ndjson.gz", 1)
    drill.put_rows("date=2024-01-22/1707-a.ndjson.gz", 2)
    drill.put_rows("date=2024-01-22/1708-a.ndjson.gz", 3)


def mark(drill: Drill, *arguments: str) -> None:
    where = ("--pipeline", "events", "--source", "main", "--yes")
    command, *others = arguments
    drill.run("blizzard", "checkpoint", command, str(drill.config), *where, *others)


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    made = Drill(tmp_path, str(tmp_path / "place"))
    made.document["pipelines"]["events"]["sink"].pop("partition_by")
    fields = made.document["pipelines"]["events"]["schema"]["fields"]
    fields[0]["nullable"] = True
    made.write_config()
    files(made)
    return made


@pytest.mark.promise("G-213")
def test_table_of_auto_loader_continues_without_doubles(drill: Drill) -> None:
    drill.lake.mkdir(parents=True)
    taken = [{"id": 1, "text": "t1", "_rescued_data": None}, {"id": 2, "text": "t2"}]
    write_deltalake(drill.lake, pa.Table.from_pylist(taken, ROWS))
    mark(drill, "rebuild", "--done-before", "date=2024-01-22")
    mark(drill, "set", "--partition", "date=2024-01-22", "--watermark", "1707-a.ndjson.gz")
    assert drill.start_once() == 0
    assert drill.ids() == [1, 2, 3]
    drill.put_rows("date=2024-01-22/1709-a.ndjson.gz", 4)
    drill.put_rows("date=2024-01-23/1710-a.ndjson.gz", 5)
    assert drill.start_once() == 0
    assert drill.ids() == [1, 2, 3, 4, 5]


def test_unsorted_names_continue_by_partitions(drill: Drill) -> None:
    drill.main_source["use_watermark"] = False
    drill.write_config()
    drill.lake.mkdir(parents=True)
    taken = [{"id": number, "text": f"t{number}"} for number in (1,)]
    write_deltalake(drill.lake, pa.Table.from_pylist(taken, ROWS))
    mark(drill, "rebuild", "--done-before", "date=2024-01-22")
    assert drill.start_once() == 0
    assert drill.ids() == [1, 2, 3]


@pytest.mark.promise("G-213")
def test_table_of_the_original_continues_after_conversion(drill: Drill) -> None:
    # Its Parquet files are named by UUIDv7 alone, and its Penguin commits them.
    drill.lake.mkdir(parents=True)
    taken = [{"id": 1, "text": "t1"}, {"id": 2, "text": "t2"}]
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    write_deltalake(drill.lake, pa.Table.from_pylist(taken, schema))
    state = {
        "schema_version": 1,
        "watermark": {"state": "Idle", "value": "date=2024-01-22/1707-a.ndjson.gz"},
        "partition_watermarks": {
            "date=2024-01-21": "1706-a.ndjson.gz",
            "date=2024-01-22": "1707-a.ndjson.gz",
        },
        "last_update_ts": 1706450500,
    }
    (drill.lake / CHECKPOINT).parent.mkdir()
    (drill.lake / CHECKPOINT).write_text(json.dumps(state))
    old = {
        "pipelines": {
            "events": {
                "sources": {"main": {"path": f"{drill.place}/raw", "use_watermark": True}},
                "sink": {"table_uri": str(drill.lake)},
                "schema": {"fields": drill.document["pipelines"]["events"]["schema"]["fields"]},
            }
        }
    }
    source = drill.folder / "old.yaml"
    source.write_text(yaml.safe_dump(old))
    drill.config = drill.folder / "new.yaml"
    drill.run("blizzard", "convert", str(source), "--output", str(drill.config))
    assert drill.start_once() == 0
    assert drill.ids() == [1, 2, 3]
    assert DeltaTable(drill.lake).version() == 1
