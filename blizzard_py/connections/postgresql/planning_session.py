"""The session for short planning queries to PostgreSQL, opened when it is needed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa

from blizzard_core.errors import BlizzardError
from blizzard_py.connections.postgresql.session import PLANS, connect, error_translator
from blizzard_py.connections.sql.address import address
from blizzard_py.connections.sql.errors import guarded
from blizzard_py.reading import Access


class PlanningSession:
    """Runs queries by ADBC.

    A session that fails is dropped, whatever the failure. The next query opens another one, with
    the password that is configured then.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._label = address(access).label
        self._session: Any = None

    def ask(self, statement: str) -> pa.Table:
        """Return the complete result of one statement; a lost session is noticed only when used."""
        if self._session is None:
            self._session = connect(self._access, PLANS)
        try:
            return guarded(lambda: self._answered(statement), error_translator(self._label))
        except BlizzardError:
            self.close()
            raise

    def _answered(self, statement: str) -> pa.Table:
        with self._session.cursor() as cursor:
            # COPY does not accept a statement that begins with a word like EXPLAIN.
            if not statement.lstrip().startswith(("SELECT", "WITH")):
                cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
            cursor.execute(statement)
            return cursor.fetch_arrow_table()

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # ADBC has no common base with Arrow; it is gone either way
                session.close()
