"""Reading of lakes as the daemon does: read bound, plan through JSON, read, published rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from blizzard_py.connections.protocol import Reader, SourceConnection, WindowSplit
from blizzard_py.formats.protocol import BadRecord, FileRows
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, BoundKind, ReadTask, Window

BATCH_BYTES = 16 << 20


def through_json(task: ReadTask) -> ReadTask:
    """Return the task as a checkpoint restores it."""
    return replace(task, spec=json.loads(json.dumps(task.spec)))


def read_all(
    reader: Reader, access: Access, task: ReadTask, fields: Sequence[FieldSpec] = ()
) -> Iterator[pa.RecordBatch | bytes | BadRecord]:
    """Yield what a task reads, without the records of rows."""
    for rows in reader(access, through_json(task).spec, fields):
        yield rows.batch if isinstance(rows, FileRows) else rows


def rows_of(
    reader: Reader, access: Access, tasks: Sequence[ReadTask], fields: Sequence[FieldSpec] = ()
) -> list[dict[str, Any]]:
    """Return the rows of these tasks, one dictionary each; lines of NDJSON too, no bad records."""
    found: list[dict[str, Any]] = []
    for task in tasks:
        for rows in read_all(reader, access, task, fields):
            if isinstance(rows, bytes):
                assert rows.endswith(b"\n")
                found += [json.loads(line) for line in rows.split(b"\n")[:-1]]
                continue
            if isinstance(rows, BadRecord):
                continue
            assert isinstance(rows, pa.RecordBatch)
            assert 0 < rows.num_rows <= 1 << 16
            found += rows.to_pylist()
    return found


@dataclass
class Poller:
    """Reads window after window, as the source does: the bound, the plan, the rows, the save."""

    connect: Callable[[], SourceConnection]
    reader: Reader
    access: Access
    kind: BoundKind
    columns: Sequence[str] = ()
    fields: Sequence[FieldSpec] = ()
    split: WindowSplit = field(default_factory=WindowSplit)
    stored: dict[str, Any] = field(default_factory=dict)

    def plan(self) -> tuple[Mapping[str, Any], list[ReadTask]]:
        connection = self.connect()
        up_to = connection.bound(self.kind, 0.0).value
        window = Window(
            self.stored, up_to, self.stored, inclusive=False, nulls_first=not self.stored
        )
        if not up_to or up_to == self.stored:
            return self.stored, []
        return up_to, list(connection.tasks(window, self.split))

    def poll(self) -> list[dict[str, Any]]:
        up_to, tasks = self.plan()
        rows = rows_of(self.reader, self.access, tasks, self.fields)
        self.stored = {**self.stored, **up_to}
        return rows
