"""Sessions of ADBC: planning queries, and the stream of a task."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from blizzard_core.errors import BlizzardError
from blizzard_py.connections.sql.errors import ErrorTranslator, guarded, guarded_each


class AdbcSession:
    """Runs queries in one session.

    A session that fails is dropped, whatever the failure. The next query opens another one, with
    the password that is configured then. ``prepare`` gets the cursor and the statement.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        translate: ErrorTranslator,
        prepare: Callable[[Any, str], None] = lambda _cursor, _statement: None,
    ) -> None:
        self._connect = connect
        self._translate = translate
        self._prepare = prepare
        self._session: Any = None

    def ask(self, statement: str) -> pa.Table:
        """Return the complete result of one statement; a lost session is noticed only when used."""
        if self._session is None:
            self._session = self._connect()
        try:
            return guarded(lambda: self._answered(statement), self._translate)
        except BlizzardError:
            self.close()
            raise

    def _answered(self, statement: str) -> pa.Table:
        with self._session.cursor() as cursor:
            self._prepare(cursor, statement)
            cursor.execute(statement)
            return cursor.fetch_arrow_table()

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # ADBC has no common base with Arrow; it is gone either way
                session.close()


def stream(
    session: Any,
    executed: Callable[[], Any],
    translate: ErrorTranslator,
    check: Callable[[], None] = lambda: None,
) -> Generator[pa.RecordBatch]:
    """Yield the batches of the cursor that ``executed`` returns, then end the session.

    ``check`` raises an error if the rows cannot be trusted.
    """
    try:
        cursor = guarded(executed, translate)
        try:
            yield from guarded_each(cursor.fetch_record_batch(), translate)
        finally:
            with suppress(Exception):  # the relevant error has been raised already
                cursor.close()
        guarded(check, translate)
    finally:
        with suppress(Exception):  # likewise
            session.close()
