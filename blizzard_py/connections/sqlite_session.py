"""Sessions of SQLite, times as a column stores them, and the reader of tasks.

Files are opened with ``mode=ro`` and never created. The reader streams one statement. Times are
compared as text, so a bound must have the form of the rows: ``T`` sorts above a space, and a bound
in the other form would skip a day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import BlizzardError, Unavailable
from blizzard_core.extras import optional_module
from blizzard_py.connections.sql.adbc import stream
from blizzard_py.connections.sql.batches import SAMPLE_ROWS, alike, pieces, rows_like
from blizzard_py.connections.sql.errors import ErrorTranslator, ServerLabel, guarded
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access
from blizzard_py.slices.calendars import lowest_wall
from blizzard_py.slices.windows import last_full_tick

# How long to wait for a writer's lock.
_BUSY_MS = 30_000
_BUSY_WORDS = ("locked", "busy", "disk I/O", "unable to open", "failed to open", "malformed")


def path_of(access: Access) -> str:
    """Return the file's path.

    It is ``sqlite:///folder/file.db`` (absolute), ``sqlite://file.db``, or a plain path. Four
    slashes, which other tools use for an absolute path, work as well.
    """
    path = access.uri
    for scheme in ("sqlite://", "file://", "sqlite:", "file:"):
        if path.startswith(scheme):
            path = path.removeprefix(scheme)
            break
    # Text after two slashes would be read as a host.
    return f"/{path.lstrip('/')}" if path.startswith("//") else path


def connect(access: Access) -> Any:
    """Return a session that sees committed states only.

    Raises `Unavailable` if the file is missing.
    """
    path = path_of(access)
    if not Path(path).is_file():
        raise Unavailable(f"{path} does not exist")
    dbapi = optional_module("adbc_driver_sqlite.dbapi", "sqlite")
    uri = f"file:{quote(path)}?mode=ro"

    def opened() -> Any:
        session = dbapi.connect(uri, autocommit=True)
        with session.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        return session

    return guarded(opened, error_translator(access))


def error_translator(access: Access) -> ErrorTranslator:
    """Return a function that translates errors of ADBC and Arrow."""
    place = ServerLabel(path_of(access))

    def translate(error: BaseException) -> BlizzardError | None:
        if isinstance(error, BlizzardError) or not isinstance(error, Exception):
            return None
        text = str(error)
        passing = any(word in text for word in _BUSY_WORDS)
        return place.error("unavailable" if passing else "refused", text, quotes_data=True)

    return translate


_DIGIT = re.compile(r"\d")
_FORM = re.compile(r"\d{4}-\d\d-\d\d(?:([ T])\d\d:\d\d:\d\d(?:\.(\d{1,6}))?(Z|\+00:00)?)?")


def is_time(text: str) -> bool:
    """Return whether it is a time or a date in a form that sorts as text like time."""
    return _FORM.fullmatch(text) is not None


def same_form(value: object, other: object) -> bool:
    """Return whether two stored times have one form, so that text sorts as time does."""
    mine, its = (
        _FORM.fullmatch(text) if isinstance(text, str) else None for text in (value, other)
    )
    return mine is not None and its is not None and _shape(mine) == _shape(its)


def unlike(values: Iterable[str]) -> tuple[str, ...]:
    """Return two values in different forms, if any: then text does not sort as time does."""
    known: dict[object, str] = {}
    for value in values:
        found = _FORM.fullmatch(value)
        known.setdefault(_shape(found) if found else _DIGIT.sub("0", value), value)
        if len(known) > 1:
            return tuple(known.values())
    return ()


def has_zone(text: str) -> bool:
    """Return whether a stored time has a zone, so that it is no local wall time."""
    found = _FORM.fullmatch(text)
    return found is not None and found[3] is not None


def _shape(found: re.Match[str]) -> tuple[str | None, bool, str | None]:
    return found[1], found[2] is not None, found[3]


def until(instant: datetime, like: str, zone: tzinfo = UTC) -> str:
    """Return the last time that is certainly below ``instant``, in the form of ``like``.

    A form without a zone has wall times of ``zone``.
    """
    found = _FORM.fullmatch(like)
    where = UTC if found is not None and found[3] else zone
    below = lowest_wall(instant, where) - timedelta(microseconds=1)
    if found is None or found[1] is None:
        return str(last_full_tick(below, "date"))
    digits = len(found[2] or "")
    value = last_full_tick(below, f"datetime({digits})")
    text: str = value.isoformat(found[1], "microseconds")
    return text[: 19 + (digits + 1 if digits else 0)] + (found[3] or "")


_MOST_ROWS = 8192


def read(
    access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
) -> Iterator[pa.RecordBatch | bytes]:
    """Yield the rows of a task; the statement was made for ``fields``.

    See `blizzard_py.connections.protocol.Reader`.
    """
    del fields
    session = connect(access)
    statement: str = spec["statement"]

    def executed() -> Any:
        return _opened(session, statement, _rows_of_a_batch(session, statement))

    first = 1  # it only fixes the types
    with closing(stream(session, executed, error_translator(access))) as batches:
        for batch in batches:
            for rows in _merged(batch.slice(first)):
                yield from pieces(rows)
            first = 0


def _opened(session: Any, statement: str, rows: int) -> Any:
    cursor = session.cursor()
    cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(rows)})
    cursor.execute(statement)
    return cursor


def _rows_of_a_batch(session: Any, statement: str) -> int:
    few = f"SELECT * FROM ({statement}) LIMIT {SAMPLE_ROWS}"  # noqa: S608  # the task's own
    cursor = _opened(session, few, SAMPLE_ROWS)
    with cursor:
        return rows_like(cursor.fetch_arrow_table(), _MOST_ROWS)


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
