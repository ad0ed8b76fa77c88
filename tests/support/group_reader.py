"""A table with all groups applied in order: the state that a committer must reach."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from blizzard_core.handover.groups import (
    GROUPS_FOLDER,
    UNIT_COLUMN,
    Group,
    decode_group,
    group_path,
)
from blizzard_core.storage.protocol import is_hidden

Objects = Mapping[str, bytes]


def objects_of(table: Path) -> Objects:
    """Return the files of a table on the disk, by paths below it."""
    return {
        path.relative_to(table).as_posix(): path.read_bytes()
        for path in sorted(table.rglob("*"))
        if path.is_file()
    }


def groups_of(table: Path | Objects, source_id: str) -> Iterator[Group]:
    """Yield the source's groups in their order, up to the first missing number."""
    objects = objects_of(table) if isinstance(table, Path) else table
    seq = 1
    while (path := group_path(source_id, seq)) in objects:
        yield decode_group(objects[path], path, source_id, seq)
        seq += 1


def rows_of(table: Path | Objects) -> list[dict[str, Any]]:
    """Return all rows after all groups of all sources, with files published by listing."""
    objects = objects_of(table) if isinstance(table, Path) else table
    rows: list[dict[str, Any]] = []
    for path, data in sorted(objects.items()):
        name = path.rpartition("/")[2]
        if path.endswith(".parquet") and not is_hidden(path) and not name.startswith("unit-"):
            rows += pq.read_table(io.BytesIO(data)).to_pylist()
    root = f"{GROUPS_FOLDER}/"
    for source in sorted({p.removeprefix(root).split("/")[0] for p in objects if root in p}):
        for group in groups_of(objects, source):
            rows = [row for row in rows if not _goes(row, group)]
            for file in group.files:
                assert len(objects[file.path]) == file.size
                found = pq.read_table(io.BytesIO(objects[file.path])).to_pylist()
                assert len(found) == file.rows
                assert len({row[UNIT_COLUMN] for row in found}) == 1
                rows += found
    return rows


def _goes(row: dict[str, Any], group: Group) -> bool:
    unit = row.get(UNIT_COLUMN)
    return unit is not None and any(low <= unit < high for low, high in group.replace)
