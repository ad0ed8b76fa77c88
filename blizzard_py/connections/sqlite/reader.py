"""The reader of SQLite tasks: one statement, streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_py.connections.sql.batches import MAX_BYTES, alike, pieces
from blizzard_py.connections.sql.errors import guarded, guarded_each
from blizzard_py.connections.sqlite.session import connect, error_translator
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access

# Batches are limited by rows only, so the size of the first rows decides their number.
_SAMPLE_ROWS, _MOST_ROWS = 64, 8192


def read(
    access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
) -> Iterator[pa.RecordBatch | bytes]:
    """Yield the rows of a task; the statement was made for ``fields``.

    See `blizzard_py.connections.protocol.Reader`.
    """
    del fields
    translate = error_translator(access)
    session = connect(access)
    statement: str = spec["statement"]
    try:
        rows = guarded(lambda: _rows_of_a_batch(session, statement), translate)
        cursor = guarded(lambda: _opened(session, statement, rows), translate)
        try:
            pid = 1
            for batch in guarded_each(cursor.fetch_record_batch(), translate):
                for rows in _merged(batch.slice(pid)):
                    yield from pieces(rows)
                pid = 0
        finally:
            with suppress(Exception):  # the relevant error has been raised already
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
    few = f"SELECT * FROM ({statement}) LIMIT {_SAMPLE_ROWS}"  # noqa: S608  # the task's own
    cursor = _opened(session, few, _SAMPLE_ROWS)
    with cursor:
        sample = cursor.fetch_arrow_table()
    average: int = max(1, sample.nbytes // max(1, sample.num_rows))
    return max(1, min(_MOST_ROWS, MAX_BYTES // average))


def _merged(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch with the values of its last column put into the other columns.

    The last column has the values of other storage classes. Rows with such values are in separate
    batches, so that all other rows look as they do in any batch.
    """
    marks = batch.column(batch.num_columns - 1)
    marks_read = [json.loads(mark) if mark else {} for mark in _texts(marks)] if _any(marks) else []
    odd = {
        int(key): np.array([key in row for row in marks_read])
        for key in sorted({key for row in marks_read for key in row})
    }
    for rows, places in alike(batch, odd):
        columns, texts = rows.columns[:-1], _texts(rows.column(batch.num_columns - 1))
        for place in places:
            values = [json.loads(text)[str(place)] for text in texts]
            columns[place] = _as_text(columns[place], values)
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names[:-1])


def _any(marks: pa.Array) -> bool:
    return bool(pc.any(pc.not_equal(marks, "")).as_py())


def _texts(marks: pa.Array) -> list[str]:
    """Return marks as text. SQLite keeps text that is not UTF-8; it fits no column here."""
    return [mark.decode(errors="replace") for mark in marks.cast(pa.binary()).to_pylist()]


def _as_text(column: pa.Array, misfits: list[str]) -> pa.Array:
    if pa.types.is_binary(column.type):
        return pa.array([text.encode() for text in misfits], pa.binary())
    return pa.array(misfits, pa.string())
