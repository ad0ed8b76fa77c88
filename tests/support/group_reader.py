"""A table as whoever applies its groups in order sees it: what a committer has to come to."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from blizzard_core.groups import GROUPS_FOLDER, UNIT_COLUMN, Group, decode_group, group_path


def groups_of(table: Path, source_id: str) -> Iterator[Group]:
    """The source's groups in their order, up to the first number that is missing."""
    seq = 1
    while (path := table / group_path(source_id, seq)).exists():
        yield decode_group(path.read_bytes(), str(path), source_id, seq)
        seq += 1


def rows_of(table: Path) -> list[dict[str, Any]]:
    """All rows after all groups of all sources, and of files that were published by listing."""
    rows: list[dict[str, Any]] = []
    for path in sorted(table.rglob("*.parquet")):
        hidden = any(part.startswith(("_", ".")) for part in path.relative_to(table).parts[:-1])
        if not hidden and not path.name.startswith("unit-"):
            rows += pq.read_table(path).to_pylist()
    folder = table / GROUPS_FOLDER
    for source in sorted(folder.iterdir()) if folder.exists() else []:
        for group in groups_of(table, source.name):
            rows = [row for row in rows if not _goes(row, group)]
            for file in group.files:
                data = (table / file.path).read_bytes()
                assert len(data) == file.size
                found = pq.read_table(io.BytesIO(data)).to_pylist()
                assert len(found) == file.rows
                assert len({row[UNIT_COLUMN] for row in found}) == 1
                rows += found
    return rows


def _goes(row: dict[str, Any], group: Group) -> bool:
    unit = row.get(UNIT_COLUMN)
    return unit is not None and any(low <= unit < high for low, high in group.replace)
