"""A table's declaration, read from its log without the list of its files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from blizzard_core.errors import StateError
from blizzard_core.storage.local import LocalStorage
from blizzard_py.connections.lakes.sink_table import SinkTable, sink_table

ROWS = pa.table({"id": pa.array([1], pa.int64()), "day": ["a"]})


def seen(folder: Path) -> SinkTable:
    return sink_table(LocalStorage(str(folder)))


def test_there_is_no_table_where_there_is_no_log(tmp_path: Path) -> None:
    assert sink_table(LocalStorage(str(tmp_path))) is None
    assert sink_table(LocalStorage(str(tmp_path / "nothing"))) is None


def test_the_newest_columns_count(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), ROWS, partition_by=["day"])
    write_deltalake(
        str(tmp_path),
        ROWS.append_column("n", pa.array([1.5])),
        mode="append",
        schema_mode="merge",
    )
    shape = seen(tmp_path).shape
    assert shape.partition_columns == ("day",)
    assert set(shape.schema.names) == {"id", "day", "n"}
    assert shape.schema.field("n").type == pa.float64()


def test_a_checkpoint_tells_where_the_commits_were_cleaned_up(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    for _ in range(3):
        write_deltalake(str(tmp_path), ROWS, mode="append")
    DeltaTable(str(tmp_path)).create_checkpoint()
    write_deltalake(str(tmp_path), ROWS, mode="append")
    log = tmp_path / "_delta_log"
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    shape = seen(tmp_path).shape
    assert shape.schema.names == ["id", "day"]
    (log / "_last_checkpoint").unlink()  # a hint, and no more
    assert seen(tmp_path).shape == shape


def test_objection_names_the_table_constraint(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), ROWS)
    DeltaTable(str(tmp_path)).alter.add_constraint({"positive": "id > 0"})
    found = seen(tmp_path)
    assert found.shape is None
    assert "'positive'" in found.objections[0]


@pytest.mark.unreadable_tables
@pytest.mark.parametrize("raw", [b"{", b'{"metaData": {"schemaString": 3}, "protocol": {}}'])
def test_a_log_that_makes_no_sense_is_named(tmp_path: Path, raw: bytes) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_bytes(raw + b'"protocol"' if raw == b"{" else raw)
    with pytest.raises(StateError, match="_delta_log"):
        sink_table(LocalStorage(str(tmp_path)))


@pytest.mark.unreadable_tables
def test_a_log_without_metadata_is_no_new_table(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    (log / f"{3:020d}.json").write_text(json.dumps(protocol))
    with pytest.raises(StateError, match="has no metaData"):
        sink_table(LocalStorage(str(tmp_path)))
