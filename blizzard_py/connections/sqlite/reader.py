"""The tasks' side of SQLite: one statement, streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_py.connections.sql.batches import MAX_BYTES, pieces
from blizzard_py.connections.sql.faults import guarded, guarded_each
from blizzard_py.connections.sqlite.session import connect, judge
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access

# Batches are bounded by rows alone, so the first rows tell how many are to be in one.
_SAMPLE_ROWS, _MOST_ROWS = 64, 8192


def read(
    access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
) -> Iterator[pa.RecordBatch | bytes]:
    """See `blizzard_py.connections.protocol.Reader`; the statement was made for ``fields``."""
    del fields
    judged = judge(access)
    session = connect(access)
    statement: str = spec["statement"]
    try:
        rows = guarded(lambda: _rows_of_a_batch(session, statement), judged)
        cursor = guarded(lambda: _opened(session, statement, rows), judged)
        try:
            ours = 1
            for batch in guarded_each(cursor.fetch_record_batch(), judged):
                yield from pieces(_merged(batch.slice(ours)))
                ours = 0
        finally:
            with suppress(Exception):  # what matters has been raised already
                cursor.close()
    finally:
        with suppress(Exception):  # likewise
            session.close()


def _opened(session: Any, statement: str, rows: int) -> Any:
    cursor = session.cursor()
    cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(rows)})
    cursor.execute(statement)
    return cursor


def _rows_of_a_batch(session: Any, statement: str) -> int:
    few = f"SELECT * FROM ({statement}) LIMIT {_SAMPLE_ROWS}"  # noqa: S608 — the task's own
    cursor = _opened(session, few, _SAMPLE_ROWS)
    with cursor:
        sample = cursor.fetch_arrow_table()
    average: int = max(1, sample.nbytes // max(1, sample.num_rows))
    return max(1, min(_MOST_ROWS, MAX_BYTES // average))


def _merged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its last column put into the others: what was of another storage class."""
    marks = batch.column(batch.num_columns - 1)
    columns, names = batch.columns[:-1], batch.schema.names[:-1]
    if pc.any(pc.not_equal(marks, "")).as_py():
        told = [json.loads(mark) if mark else {} for mark in marks.to_pylist()]
        for place in sorted({int(key) for row in told for key in row}):
            columns[place] = _as_text(columns[place], [row.get(str(place)) for row in told])
    return pa.RecordBatch.from_arrays(columns, names=names)


def _as_text(column: pa.Array, misfits: list[str | None]) -> pa.Array:
    if pa.types.is_floating(column.type):
        text = pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
    elif pa.types.is_binary(column.type):
        return pa.array(
            [
                b if m is None else m.encode()
                for b, m in zip(column.to_pylist(), misfits, strict=True)
            ],
            pa.binary(),
        )
    else:
        text = column.cast(pa.string())
    return pc.coalesce(text, pa.array(misfits, pa.string()))
