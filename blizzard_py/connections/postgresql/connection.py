"""The planning side of PostgreSQL. See `blizzard_py.connections.protocol`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from blizzard_py.connections.literals import literal
from blizzard_py.connections.postgresql import describe, open_transactions, types
from blizzard_py.connections.postgresql.describe import PgColumn, PgTableFacts
from blizzard_py.connections.postgresql.session import (
    READS,
    connect,
    end,
    error_translator,
    planning_session,
    snapshot_of,
)
from blizzard_py.connections.protocol import ReadBound, ReadSelection, SourceColumn, WindowSplit
from blizzard_py.connections.sql.address import address
from blizzard_py.connections.sql.connection import SqlConnection
from blizzard_py.connections.sql.errors import guarded
from blizzard_py.connections.sql.statements import TRUE, identifier, select
from blizzard_py.connections.sql.values import without_index, without_zone
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, BoundKind, ReadTask, Window

# Up to this size a first read is one stream, which is as fast as the server's own COPY.
_TASK_BYTES = 4 << 30
_MAX_TASKS = 16


class PostgresqlConnection(SqlConnection):
    """One table or query of PostgreSQL, 10 or newer.

    Planning uses one session. `hold` opens another one: it lasts as long as the job, and another
    thread plans windows meanwhile.
    """

    dialect = "postgresql"

    def __init__(self, access: Access, selection: ReadSelection) -> None:
        super().__init__(selection)
        self._questions = planning_session(access)
        self._label = address(access).label
        self._types: Mapping[str, types.PgType] = {}
        self._facts = PgTableFacts()
        self._transactions = open_transactions.Transactions()

    @property
    def default_bound(self) -> BoundKind | None:
        """The default bound: `settled` for times, since the server knows open transactions."""
        found = super().default_bound
        return "settled" if found == "clock" else found

    def bound(self, kind: BoundKind, settle_secs: float) -> ReadBound:
        return (
            self._transaction_bound(settle_secs)
            if kind == "settled"
            else super().bound(kind, settle_secs)
        )

    def warnings(self) -> Sequence[str]:
        columns = self._watermark_columns()
        fed = [describe.IS_FED] if self._is_fed() else []
        costs = [self._index_warning(column) for column in columns]
        return [*fed, *self._type_warnings(columns), *(cost for cost in costs if cost)]

    def key(self) -> Sequence[str]:
        table = literal(self._selection.table, self.dialect)
        return [str(row["name"]) for row in self._ask(describe.KEY.format(table=table)).to_pylist()]

    def close(self) -> None:
        """End the session; the next query begins another."""
        self._questions.close()

    # --- questions ------------------------------------------------------------------

    def _ask(self, statement: str) -> pa.Table:
        return self._questions.ask(statement)

    def _described(self) -> Sequence[SourceColumn]:
        found, self._facts = self._describe_columns()
        self._types = {name: kind for name, kind, _ in found}
        return [types.column(name, kind, nullable=nullable) for name, kind, nullable in found]

    def _describe_columns(self) -> tuple[Sequence[PgColumn], PgTableFacts]:
        if self._selection.table:
            table = literal(self._selection.table, self.dialect)
            return describe.from_catalog(self._ask(describe.CATALOG.format(table=table)))
        answer = self._ask(select(["*"], self._source, "1 = 0"))
        return describe.from_schema(answer.schema), PgTableFacts()

    def _expression(self, column: SourceColumn, field: FieldSpec) -> str:
        quoted = identifier(column.name, self.dialect)
        return types.expression(quoted, self._types[column.name], field)

    def _exact(self, column: SourceColumn, expression: str) -> str:
        kind = self._types[column.name].name
        word = {"numeric": "text", "citext": "text", "oid": "bigint"}.get(kind)
        return f"({expression})::{word}" if word else expression

    def _zoned(self, column: SourceColumn) -> bool:
        return self._types[column.name].name == "timestamptz"

    def _now(self) -> datetime:
        now: datetime = self._one("SELECT now() AS now")["now"]
        return now

    # --- bounds ---------------------------------------------------------------------

    def _transaction_bound(self, settle_secs: float) -> ReadBound:
        columns = self._times("settled")
        answer = self._one(open_transactions.STATEMENT)
        if answer["standby"]:
            return self._on_standby(columns, answer, settle_secs)
        if why := self._unseen(answer):
            instant = answer["now"] - timedelta(seconds=settle_secs)
            return self._ending(columns, "clock", instant, None, why)
        until, holder = self._transactions.until(answer)
        for _ in range(open_transactions.MORE_LOOKS):
            if until is None:
                until, holder = self._transactions.until(self._one(open_transactions.STATEMENT))
        if until is None:
            return ReadBound("settled", {}, holder)
        return self._ending(columns, "settled", until, holder)

    def _unseen(self, answer: Mapping[str, Any]) -> str | None:
        """Return why transactions that write the table are invisible; None if they are visible."""
        if not answer["sees_all"]:
            return open_transactions.NOT_A_MEMBER
        if answer["hidden"]:
            return open_transactions.HIDDEN
        return open_transactions.FOREIGN if self._facts.relkind == "f" else None

    def _on_standby(
        self, columns: Sequence[SourceColumn], answer: Mapping[str, Any], settle_secs: float
    ) -> ReadBound:
        if answer["replay_lag"] is None:
            problem = "nothing has been replayed since the server was started"
            return ReadBound("clock", {}, problem, (open_transactions.STANDBY,))
        lag = max(0.0, answer["replay_lag"])
        instant = answer["now"] - timedelta(seconds=settle_secs + lag)
        holder = f"replay is {lag:.0f} s behind" if lag else None
        return self._ending(columns, "clock", instant, holder, open_transactions.STANDBY)

    def _ending(
        self,
        columns: Sequence[SourceColumn],
        kind: BoundKind,
        instant: datetime,
        holder: str | None,
        *warnings: str,
    ) -> ReadBound:
        value = {column.name: self._until(column, instant) for column in columns}
        return ReadBound(kind, value, holder, warnings)

    # --- tasks ----------------------------------------------------------------------

    def _cut(self, inside: str, window: Window, split: WindowSplit) -> Sequence[ReadTask]:
        facts = self._facts
        first = not window.low and facts.pages > 0
        count = split.tasks
        if count == 0:
            large = -(-facts.pages * facts.page_bytes // _TASK_BYTES)
            count = min(large, _MAX_TASKS) if first else 1
        size = facts.pages * facts.page_bytes if first else 0
        if count <= 1:
            return self._named(inside, [TRUE], size)
        if first and facts.by_pages and not split.by:
            return self._named(inside, _page_ranges(facts.pages, count), size)
        return super()._cut(inside, window, replace(split, tasks=count))

    @contextmanager
    def hold(self, access: Access) -> Iterator[Access]:
        """Export a snapshot. Raises `Unavailable` if the server is gone."""
        session = connect(access, READS)
        try:
            name = guarded(lambda: snapshot_of(session), error_translator(self._label))
            yield replace(access, session=name)
        finally:
            with suppress(Exception):  # the server may be gone; the transaction is, too, then
                end(session)

    # --- warnings -------------------------------------------------------------------

    def _type_warnings(self, columns: Sequence[SourceColumn]) -> Iterator[str]:
        if self._facts.relkind == "v":
            yield f"{self._selection.table} is a view: its query runs for every window"
        if self._facts.relkind == "m":
            yield (
                f"{self._selection.table} is a materialized view: a refresh adds rows with earlier"
                " times, and those below the watermark would be missed; read its base tables"
            )
        for column in columns:
            bare = self._types[column.name].name in ("timestamp", "date")
            if bare and not self._selection.zone:
                yield without_zone(column, column.type)

    def _is_fed(self) -> bool:
        if not self._selection.table:
            return False
        table = literal(self._selection.table, self.dialect)
        return bool(self._one(describe.FED.format(table=table))["fed"])

    def _index_warning(self, column: SourceColumn) -> str | None:
        """Return the cost of a window on the column if no index gives its order."""
        if self._is_indexed(column):
            return None
        cost = self._plan(self._highest_first(column))["Total Cost"]
        return without_index(column, f"{cost:.0f}")

    def _is_indexed(self, column: SourceColumn) -> bool:
        # A small table is scanned even with an index, so scans are disabled first.
        for setting in ("enable_seqscan", "enable_sort"):
            self._ask(f"SET {setting} = off")
        indexed = _is_ordered(self._plan(self._highest_first(column)))
        self._ask("RESET ALL")
        return indexed

    def _highest_first(self, column: SourceColumn) -> str:
        name = identifier(column.name, self.dialect)
        return select([name], self._source, f"{name} IS NOT NULL") + f" ORDER BY {name} DESC"

    def _plan(self, statement: str) -> Mapping[str, Any]:
        answer = self._ask(f"EXPLAIN (FORMAT JSON) {statement} LIMIT 1")
        (explained,) = json.loads(answer.column(0)[0].as_py())
        plan: Mapping[str, Any] = explained["Plan"]
        return plan


def _is_ordered(plan: Mapping[str, Any]) -> bool:
    """Return whether the plan takes the order from an index: it neither sorts nor scans."""
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        if "Sort" in node["Node Type"] or "Seq Scan" in node["Node Type"]:
            return False
        nodes += node.get("Plans", [])
    return True


def _page_ranges(pages: int, count: int) -> Sequence[str]:
    """Return ranges of ``ctid``, the last without an end: pages may be added during planning."""
    marks = sorted({pages * number // count for number in range(1, count)} - {0})
    return [
        " AND ".join(
            [f"ctid >= '({low},0)'::tid" for low in ([start] if start else [])]
            + [f"ctid < '({high},0)'::tid" for high in ([end] if end else [])]
        ) or TRUE
        for start, end in zip([None, *marks], [*marks, None], strict=True)
    ]  # fmt: skip
