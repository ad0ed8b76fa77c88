"""A connection to tables in this process: rows by number, read above the highest number.

It keeps the contract of `blizzard_py.connections.protocol` as far as a source asks for it, and
counts what it is asked. A reader finds the table by its name.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from blizzard_core.errors import SourceError, Unavailable
from blizzard_py.connections.drivers import DRIVERS, Driver
from blizzard_py.connections.placeholders import Values
from blizzard_py.connections.protocol import (
    ReadBound,
    SourceColumn,
    SourceConnection,
    WindowSplit,
)
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, BoundKind, ReadTask, Window

TABLES: dict[str, ToyTable] = {}


@dataclass
class ToyTable:
    """Rows as dicts. ``column`` is the watermark's; a task reads ``task_rows`` of them at most.

    ``at_read`` is called before a task is read. ``top`` is what the bound says, where it is not
    the highest value there is.
    """

    name: str
    column: str = "n"
    task_rows: int = 2
    rows: list[dict[str, Any]] = field(default_factory=list)
    kind: BoundKind = "max"
    top: Any = None
    statements: int = 0
    held: int = 0
    at_read: Callable[[], None] = lambda: None
    schema: pa.Schema | None = None
    broken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        TABLES[self.name] = self

    @property
    def access(self) -> Access:
        return Access("toy", self.name)

    def within(self, low: Any, high: Any, *, inclusive: bool) -> list[dict[str, Any]]:
        def meets(value: Any) -> bool:
            above = low is None or value > low or (inclusive and value == low)
            return bool(above and value <= high)

        found = [row for row in self.rows if meets(row[self.column])]
        return sorted(found, key=lambda row: row[self.column])


class ToyConnection(SourceConnection):
    def __init__(self, table: ToyTable) -> None:
        self.table = table

    @property
    def default_bound(self) -> BoundKind | None:
        return self.table.kind

    def columns(self) -> Sequence[SourceColumn]:
        names = self.table.rows[0] if self.table.rows else {self.table.column: 0}
        return [
            SourceColumn(n, "any", "other", FieldSpec(n, "string", nullable=True)) for n in names
        ]

    def bound(self, kind: BoundKind, settle_secs: float) -> ReadBound:  # noqa: ARG002  # the protocol gives it
        self.table.statements += 1
        column, top = self.table.column, self.table.top
        if top is None:
            top = max((row[column] for row in self.table.rows), default=None)
        return ReadBound(kind, {} if top is None else {column: top})

    def tasks(self, window: Window, split: WindowSplit) -> Sequence[ReadTask]:  # noqa: ARG002  # the protocol gives it
        self.table.statements += 1
        column = self.table.column
        low, high = window.low.get(column), window.up_to[column]
        values = [row[column] for row in self.table.within(low, high, inclusive=window.inclusive)]
        tasks = []
        for place in range(0, len(values), self.table.task_rows):
            some = values[place : place + self.table.task_rows]
            last = place + self.table.task_rows >= len(values)
            spec = {
                "low": _plain(low if not place else values[place - 1]),
                "high": _plain(high if last else some[-1]),
                "inclusive": window.inclusive and not place,
            }
            tasks.append(ReadTask(str(len(tasks)), f"rows {spec}", spec, len(some)))
        return tasks

    def unit_tasks(self, units: Sequence[Values]) -> Sequence[ReadTask | SourceError]:
        return [
            ReadTask("0", f"rows {values}", {name: _plain(v) for name, v in values.items()})
            for values in units
        ]

    @contextmanager
    def hold(self, access: Access) -> Iterator[Access]:
        self.table.held += 1
        try:
            yield replace(access, session="held")
        finally:
            self.table.held -= 1


def toy_rows(table: ToyTable, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "from" in spec:
        low, high, name = _value(spec["from"]), _value(spec["to"]), spec.get("unit.name")
        if name in table.broken:
            raise Unavailable(f"{name} times out")
        rows = [row for row in table.rows if low <= row[table.column] < high]
        return [row for row in rows if name in {None, row.get("name")}]
    return table.within(_value(spec["low"]), _value(spec["high"]), inclusive=spec["inclusive"])


def read(
    access: Access,
    spec: Mapping[str, Any],
    fields: Sequence[FieldSpec],  # noqa: ARG001  # the protocol gives it
) -> Iterator[pa.RecordBatch | bytes]:
    table = TABLES[access.uri]
    table.at_read()
    assert access.session == "held"
    assert table.held
    rows = toy_rows(table, spec)
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=table.schema)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.datetime) else value


def _value(value: Any) -> Any:
    return dt.datetime.fromisoformat(value) if isinstance(value, str) and "T" in value else value


DRIVERS["toy"] = Driver(f"{__name__}:ToyConnection", f"{__name__}:read")
