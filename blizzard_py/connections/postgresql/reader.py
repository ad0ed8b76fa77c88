"""The reader of PostgreSQL tasks: one statement as a COPY stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from blizzard_py.connections.postgresql.session import (
    READS,
    batch_options,
    check_not_rewritten,
    connect,
    error_translator,
    join_snapshot,
)
from blizzard_py.connections.sql.address import address
from blizzard_py.connections.sql.batches import MAX_BYTES, pieces
from blizzard_py.connections.sql.errors import guarded, guarded_each
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access


def read(
    access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
) -> Iterator[pa.RecordBatch | bytes]:
    """Yield the rows of a task; the statement was made for ``fields``.

    See `blizzard_py.connections.protocol.Reader`.
    """
    del fields
    translate = error_translator(address(access).label)
    session = connect(access, READS)
    try:
        cursor = guarded(lambda: _opened(session, access.session, spec["statement"]), translate)
        try:
            for batch in guarded_each(cursor.fetch_record_batch(), translate):
                yield from pieces(batch)
        finally:
            with suppress(Exception):  # the relevant error has been raised already
                cursor.close()
        if access.session:
            guarded(lambda: check_not_rewritten(session, address(access).label), translate)
    finally:
        with suppress(Exception):  # likewise
            session.close()


def _opened(session: Any, snapshot: str, statement: str) -> Any:
    if snapshot:
        join_snapshot(session, snapshot)
    cursor = session.cursor()
    cursor.adbc_statement.set_options(**batch_options(MAX_BYTES))
    cursor.execute(statement)
    return cursor
